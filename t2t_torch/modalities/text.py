"""Modality of texts: embedding and softmax."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features import Feature, Text, TreeFeature
from t2t_torch.hparam import HParams
from t2t_torch.layers.cross_entropy import linear_cross_entropy, rows_at_a_time, sum_in_chunks
from t2t_torch.layers.pooling import padding_mask
from t2t_torch.loss import ItemTerms, TargetOutputs, average
from t2t_torch.modality import Hidden, Loss, Modality
from t2t_torch.text.encoder import NUM_RESERVED, PAD


class Embedding(nn.Module):
    """Embedding table.  The padding id 0 is always embedded as zeros.

    Args:
      vocab_size: V, number of rows.
      hparams: hidden_size, the embedding width; scaling; dropouts, which apply in TRAIN only and
        without rescaling: `symbol_dropout` replaces ids by padding (tensor2tensor,
        `symbol_bottom`), `word_dropout` and `singleton_dropout` by the unknown word; `word_dropout`
        by padding if there is none.
      unknown: id of the unknown word; None if there is none.

    Attributes:
      scale: factor of the embeddings.
      singletons: ids that occur once in the training data, [V] bool; None if not known.
    """

    rows_by_id = ("weight",)
    singletons: Tensor | None

    def __init__(self, vocab_size: int, hparams: HParams, unknown: int | None = None) -> None:
        super().__init__()
        width = hparams.hidden_size
        self.weight = nn.Parameter(torch.randn(vocab_size, width) * width**-0.5)
        self.scale = width**0.5 if hparams.multiply_embedding_mode == "sqrt_depth" else 1.0
        self.symbol_dropout = hparams.symbol_dropout
        self.unknown = unknown
        self.word_dropout = hparams.word_dropout
        self.singleton_dropout = hparams.singleton_dropout
        self.register_buffer("singletons", None, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """[...] ids -> [..., H]."""
        if self.training:
            ids = self._dropped(ids)
        present = (ids != PAD).to(self.weight.dtype) * self.scale
        return F.embedding(ids, self.weight) * present[..., None]

    def vector(self, number: int) -> Tensor | None:
        """Returns the embedding of an id, that of padding as in the table; None below 0.  [H].

        Raises:
          HParamsError: the vocabulary has no such id.
        """
        if number >= len(self.weight):
            raise HParamsError(
                f"decoder_start_id={number}: the vocabulary of the targets has {len(self.weight)} "
                "ids. Set --hparams=decoder_start_id=-1, or an id of this vocabulary."
            )
        return self.weight[number] * self.scale if number >= 0 else None

    def _dropped(self, ids: Tensor) -> Tensor:
        """Returns ids, some replaced."""
        if self.word_dropout:
            drawn = torch.rand(ids.shape, device=ids.device) < self.word_dropout
            unknown = PAD if self.unknown is None else self.unknown
            ids = torch.where(drawn & (ids >= NUM_RESERVED), unknown, ids)
        if self.unknown is not None and self.singletons is not None:
            drawn = torch.rand(ids.shape, device=ids.device) < self.singleton_dropout
            ids = torch.where(drawn & self.singletons[ids], self.unknown, ids)
        if self.symbol_dropout:
            kept = torch.rand(ids.shape, device=ids.device) >= self.symbol_dropout
            ids = torch.where(kept, ids, PAD)
        return ids


def first_input(model: Any) -> Tensor | None:
    """Returns the first input of a model's decoder, by `decoder_start_id`, [H]; None: zeros."""
    table = model.modalities["targets"].bottom
    vector: Tensor | None = table.vector(model.hparams.decoder_start_id)
    return vector


class Softmax(nn.Module):
    """Output layer of logits.

    Args:
      weight: [V, H]; may be shared with an embedding table.
      bias: True for a bias.
    """

    rows_by_id = ("weight", "bias")

    def __init__(self, weight: nn.Parameter, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(len(weight))) if bias else None

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., H] -> [..., V] float32."""
        return F.linear(hidden, self.weight, self.bias).float()

    def as_product(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Returns hidden states and a matrix with whose product they give the logits.

        [N, H] -> [N, H'] and [V, H'].
        """
        if self.bias is None:
            return hidden, self.weight
        ones = hidden.new_ones(len(hidden), 1)
        return torch.cat([hidden, ones], 1), torch.cat([self.weight, self.bias[:, None]], 1)


class TextModality(Modality):
    """Modality of texts: embedding and softmax; padding has no weight in the loss.

    Args:
      bottom: embedding, or a module that contains one.
      top: softmax; None for an input.
    """

    serves = Text
    default_loss = "cross_entropy"
    is_distribution = True
    bottom: nn.Module | None
    top: Any

    def __init__(self, bottom: nn.Module | None, top: nn.Module | None) -> None:
        super().__init__()
        self.bottom = bottom
        if top is not None:
            self.top = top

    @classmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> TextModality:
        """Creates a modality without shared tables; see `build_modalities`."""
        bottom = embedding(feature, hparams)
        top = Softmax(embedding(feature, hparams).weight, bias=hparams.output_bias)
        return cls(bottom, top if is_target else None)

    @classmethod
    def chosen(cls, hparams: HParams) -> type[Modality]:
        """Returns the modality without tables for a body that embeds ids itself."""
        return LogitsModality if hparams.reads_pretrained else cls

    def mask(self, values: Tensor) -> Tensor:
        """Returns the mask of ids that are not padding.  [B, S] -> [B, S] bool."""
        return padding_mask(values)

    def counted(self, targets: Tensor) -> Tensor:
        """Returns 1 for ids that are not padding, else 0.  [B, T] -> [B, T]."""
        return (targets != PAD).float()

    def training_loss(self, outputs: TargetOutputs) -> Loss:
        """Returns the training loss without storing all logits at once.  [B, T, H].

        All logits are computed if the model overrides `top`, and if some ids are excluded.
        """
        passes, targets, weights, top, terms = outputs
        first, target_loss = passes[0], self.target_loss
        if first.prepended is not None:
            return self._with_prepended(outputs)
        if target_loss is None or top or (first.mask is not None and first.mask.dim() == 3):
            return super().training_loss(outputs)
        present = _present(targets)
        if present is None:
            counted = self.counted(targets)
            weights = counted if weights is None else counted * weights[:, None]
        elif weights is not None:
            weights = weights[:, None].expand_as(targets)
        if (by_position := target_loss.weights(targets)) is not None:
            weights = by_position if weights is None else weights * by_position

        def rows(values: Tensor) -> Tensor:
            flat = values.flatten(0, 1)
            return flat if present is None else flat.index_select(0, present)

        ids = rows(targets)
        row_weights = None if weights is None else rows(weights)
        label_smoothing = target_loss.label_smoothing_alone
        if label_smoothing is not None and terms is None:
            hidden, weight = self.top.as_product(rows(first.states))
            total = linear_cross_entropy(hidden, weight, ids, label_smoothing, row_weights)
        else:
            teacher = None if terms is None else terms.teacher
            taught = None if teacher is None else rows(teacher.hidden.states)
            states = [rows(one.states) for one in passes]
            total = sum_in_chunks(
                functools.partial(self._sum, terms),
                [ids, row_weights, taught, *states],
                rows_at_a_time(len(self.top.weight), states[0].element_size(), ids.device),
            )
        weight = total.new_tensor(float(len(ids))) if row_weights is None else row_weights.sum()
        return Loss(total, weight)

    def _with_prepended(self, outputs: TargetOutputs) -> Loss:
        """Returns the training loss with that of prepended positions, which have no teacher."""
        passes, terms = outputs.passes, outputs.terms
        own = outputs._replace(passes=[dataclasses.replace(one, prepended=None) for one in passes])
        before = [one.prepended for one in passes if one.prepended is not None]
        more = outputs._replace(
            passes=[Hidden(one.states) for one in before],
            targets=before[0].ids,
            terms=None if terms is None else terms.without_teacher(),
        )
        loss, added = self.training_loss(own), self.training_loss(more)
        return Loss(loss.sum + added.sum, loss.weight + added.weight)

    def _sum(
        self,
        terms: ItemTerms | None,
        ids: Tensor,
        row_weights: Tensor | None,
        hidden: Tensor | None,
        *states: Tensor,
    ) -> Tensor:
        """Returns the sum of losses over positions.  [N], [N], [N, H], [N, H] each."""
        assert self.target_loss is not None
        taught = None
        if terms is not None and terms.teacher is not None and hidden is not None:
            with torch.no_grad():
                taught = terms.teacher.logits(Hidden(hidden))
        logits = [self.top(one) for one in states]
        values = average([self.target_loss.values(one, ids) for one in logits], 1)
        if terms is not None:
            values = terms(values, logits, taught, 1)
        return values.sum() if row_weights is None else (values * row_weights).sum()

    def mean(self, logits: Sequence[Tensor]) -> Tensor:
        """Returns the mean of the log-probabilities of each id, as in a search with an ensemble.

        If models pad their logits to different widths, only the common ids are kept.
        """
        least = min(one.size(-1) for one in logits)
        return torch.stack([one[..., :least].float().log_softmax(-1) for one in logits]).mean(0)

    @torch.no_grad()
    def sample(self, hidden: Hidden, top: Callable[[Hidden], Tensor] | None = None) -> Tensor:
        """Samples an id for each position, never `PAD`.  -> [B, T]."""
        if top is not None:
            return _drawn(top(hidden))
        states = hidden.states.flatten(0, 1)
        chunk = rows_at_a_time(len(self.top.weight), states.element_size(), states.device)
        drawn = [_drawn(self.top(rows)) for rows in torch.split(states, chunk)]
        return torch.cat(drawn).view(hidden.states.shape[:2])


class LogitsModality(TextModality):
    """Texts of a model whose body embeds ids itself, and whose states are the logits."""

    def __init__(self) -> None:
        super().__init__(None, nn.Identity())

    @classmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> LogitsModality:
        """Creates a modality without weights."""
        return cls()

    def training_loss(self, outputs: TargetOutputs) -> Loss:
        """Returns the training loss.  [B, T, V]."""
        return Modality.training_loss(self, outputs)

    def sample(self, hidden: Hidden, top: Callable[[Hidden], Tensor] | None = None) -> Tensor:
        """Samples an id for each position, never `PAD`.  -> [B, T]."""
        return _drawn(hidden.states if top is None else top(hidden))


def _drawn(logits: Tensor) -> Tensor:
    """Samples an id from each row of logits.  [..., V] -> [...]."""
    # Gumbel-max trick: the argmax of logits plus Gumbel noise is a sample from the softmax.
    noise = torch.empty_like(logits).exponential_().log()
    logits = logits - noise
    logits[..., PAD] = -torch.inf
    return logits.argmax(-1)


def _present(targets: Tensor) -> Tensor | None:
    """Returns the positions without padding, [tokens], on a CPU; None for all positions.

    On a GPU their number would need a synchronization; there padding is computed with weight 0.
    """
    if targets.device.type != "cpu":
        return None
    return targets.flatten().nonzero().squeeze(1)  # PAD is 0


def padded_size(feature: Feature, hparams: HParams) -> int:
    """Returns the number of rows of a table: vocabulary size, rounded up to `vocab_divisor`."""
    return -(-feature.vocab_size // hparams.vocab_divisor) * hparams.vocab_divisor


def embedding(feature: Feature, hparams: HParams) -> Embedding:
    """Returns a new embedding table of a text, `hidden_size` wide."""
    is_tree = isinstance(feature, TreeFeature)
    unknown = feature.encoder.unknown_ids if isinstance(feature, Text) and not is_tree else ()
    return Embedding(
        padded_size(feature, hparams), hparams, next(iter(unknown)) if len(unknown) == 1 else None
    )
