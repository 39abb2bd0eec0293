"""How one feature enters and leaves a network, found by the feature's type."""

from __future__ import annotations

import abc
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features import Feature, Features, Text
from t2t_torch.hparam import HParams
from t2t_torch.layers.cross_entropy import cross_entropy, linear_cross_entropy
from t2t_torch.text.encoder import PAD


class Loss(NamedTuple):
    """A sum and the weight it is over: add both over batches and devices, divide once.

    Attributes:
      sum: float32 scalar, in nats for a cross entropy.
      weight: float32 scalar: tokens, or examples.
    """

    sum: Tensor
    weight: Tensor


class Modality(nn.Module, abc.ABC):
    """One feature's way in (`bottom`) and, for a target, out (`top`, `loss`).

    Attributes:
      serves: the type of feature.
      bottom: ids [B, S] -> [B, S, H].
      top: hidden [..., H] -> logits [..., V]; targets only.
    """

    serves: ClassVar[type[Feature]]
    bottom: nn.Module
    top: nn.Module

    @abc.abstractmethod
    def loss(self, logits: Tensor, targets: Tensor) -> Loss:
        """Returns the loss of logits, as it is reported in EVAL."""

    def training_loss(self, hidden: Tensor, targets: Tensor) -> Loss:
        """Returns the loss that is trained on; a modality may find it without making logits."""
        return self.loss(self.top(hidden), targets)


class Embedding(nn.Module):
    """A table of vectors.  Id 0, the padding, is the zero vector whatever its row holds.

    Args:
      vocab_size: V, rows.
      hidden_size: H.
      scale: what a vector is multiplied by.
      symbol_dropout: probability of taking padding for an id; TRAIN only, and nothing is scaled up
        for it (tensor2tensor, `symbol_bottom`).
    """

    def __init__(
        self, vocab_size: int, hidden_size: int, scale: float, symbol_dropout: float
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, hidden_size) * hidden_size**-0.5)
        self.scale = scale
        self.symbol_dropout = symbol_dropout

    def forward(self, ids: Tensor) -> Tensor:
        """[...] ids -> [..., H]."""
        if self.training and self.symbol_dropout:
            kept = torch.rand(ids.shape, device=ids.device) >= self.symbol_dropout
            ids = torch.where(kept, ids, PAD)
        present = (ids != PAD).to(self.weight.dtype) * self.scale
        return F.embedding(ids, self.weight) * present[..., None]


class Softmax(nn.Module):
    """Logits: the product with a table of vectors, no bias.

    Args:
      weight: [V, H]; an embedding's table where the two are shared.
    """

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., H] -> [..., V] float32."""
        return F.linear(hidden, self.weight).float()


class TextModality(Modality):
    """Ids of a vocabulary: an embedding in, a softmax out; padding has no weight in the loss.

    Args:
      hparams: label_smoothing.
      bottom: the embedding.
      top: the softmax; None for an input.
    """

    serves = Text

    def __init__(self, hparams: HParams, bottom: Embedding, top: Softmax | None) -> None:
        super().__init__()
        self.bottom = bottom
        if top is not None:
            self.top = top
        self.label_smoothing = hparams.label_smoothing

    def loss(self, logits: Tensor, targets: Tensor) -> Loss:
        """Returns the summed cross entropy and the tokens.  [B, T, V], [B, T]; smoothed in
        TRAIN.
        """
        label_smoothing = self.label_smoothing if self.training else 0.0
        weights = (targets != PAD).float()
        losses = cross_entropy(logits, targets, label_smoothing)
        return Loss((losses * weights).sum(), weights.sum())

    def training_loss(self, hidden: Tensor, targets: Tensor) -> Loss:
        """Returns the loss of `loss(top(hidden), targets)`, without making all logits.  [B, T,
        H].
        """
        label_smoothing = self.label_smoothing if self.training else 0.0
        present = targets.flatten().nonzero().squeeze(1)  # [tokens]; PAD is 0
        total = linear_cross_entropy(
            hidden.flatten(0, 1).index_select(0, present),
            self.top.weight,  # type: ignore[arg-type]
            targets.flatten().index_select(0, present),
            label_smoothing,
        )
        return Loss(total, total.new_tensor(float(len(present))))


def build_modalities(hparams: HParams, features: Features) -> nn.ModuleDict:
    """Returns a modality for each feature.  The one place where tables are shared.

    `shared_embedding_and_softmax_weights` hands one table to all bottoms and to the softmax,
    `shared_embedding` one table to all bottoms.

    Raises:
      HParamsError: a table is to be shared by vocabularies of different sizes, or a feature's type
        has no modality.
    """
    share_all = hparams.shared_embedding_and_softmax_weights
    sizes = {name: _padded_size(feature, hparams) for name, feature in features.all.items()}
    if (share_all or hparams.shared_embedding) and len(set(sizes.values())) > 1:
        flag = "shared_embedding_and_softmax_weights" if share_all else "shared_embedding"
        raise HParamsError(
            f"{flag}=True needs vocabularies of one size, but they are {sizes}. "
            f"Use a joint vocabulary, or --hparams={flag}=False."
        )
    modalities = nn.ModuleDict()
    shared: Embedding | None = None
    for name, feature in features.all.items():
        if type(feature) is not TextModality.serves:
            raise HParamsError(
                f"feature {name!r} is a {type(feature).__name__}: it has no modality."
            )
        bottom = shared or _embedding(sizes[name], hparams)
        if share_all or hparams.shared_embedding:
            shared = bottom
        top = None
        if name in features.targets:
            top = Softmax(bottom.weight if share_all else _embedding(sizes[name], hparams).weight)
        modalities[name] = TextModality(hparams, bottom, top)
    return modalities


def _padded_size(feature: Feature, hparams: HParams) -> int:
    return -(-feature.vocab_size // hparams.vocab_divisor) * hparams.vocab_divisor


def _embedding(vocab_size: int, hparams: HParams) -> Embedding:
    scale = hparams.hidden_size**0.5 if hparams.multiply_embedding_mode == "sqrt_depth" else 1.0
    return Embedding(vocab_size, hparams.hidden_size, scale, hparams.symbol_dropout)
