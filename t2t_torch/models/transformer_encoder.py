"""Transformer encoder for targets other than texts: classes, numbers, tags, spans, rankings.

Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762; several inputs in one sequence
as in Devlin et al. 2019, arXiv:1810.04805; pictures as in Dosovitskiy et al. 2021,
arXiv:2010.11929.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from t2t_torch.features import (
    Choice,
    ClassLabel,
    Features,
    Image,
    MultiLabel,
    Real,
    SoftLabel,
    Span,
    Tags,
)
from t2t_torch.hparams.transformer_encoder import (
    TransformerEncoderHParams,
    TransformerRegressorHParams,
    VitHParams,
)
from t2t_torch.layers import pooling
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.mixture_of_experts import mark_data
from t2t_torch.layers.pooling import attend_to, same_segment
from t2t_torch.layers.tokens import take_penalties
from t2t_torch.layers.transformer_layer import (
    NUM_SPACES,
    EncoderLayer,
    Joined,
    JoinInputs,
    Positions,
    stack_output,
)
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model

_TARGETS: tuple[type, ...] = (ClassLabel, MultiLabel, SoftLabel, Real, Tags, Span, Choice)


@register_model
class TransformerEncoder(T2TModel):
    """Encodes all inputs as one sequence; each target reads its part of the output."""

    HParams = TransformerEncoderHParams
    hparams: TransformerEncoderHParams
    reads_packed = True
    produces = _TARGETS

    def __init__(self, hparams: TransformerEncoderHParams, features: Features) -> None:
        super().__init__(hparams, features)
        targets = features.targets.items()
        specs = {name: target.output_spec(name, features) for name, target in targets}
        self._spans = [name for name, spec in specs.items() if spec.kind == "span"]
        positions = Positions(hparams, hparams.max_source_positions)
        self.join = JoinInputs(features, hparams.hidden_size, positions)
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        self.encoder = nn.ModuleList(
            EncoderLayer(hparams)
            for _ in range(hparams.num_encoder_layers or hparams.num_hidden_layers)
        )
        self.encoder_output = stack_output(hparams)
        if hparams.use_target_space_embedding:
            table = torch.randn(NUM_SPACES, hparams.hidden_size) * hparams.hidden_size**-0.5
            self.target_space = nn.Parameter(table)
        initialize(self, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the hidden states of each target; see `T2TModel.body`."""
        targets = self.features.targets
        found: dict[str, Hidden] = {}
        choices = {name: its for name, its in targets.items() if isinstance(its, Choice)}
        if len(choices) < len(targets):
            joined = self.join(features)
            hidden = self._encode(joined, self.join.segments(features))
            summary = self._summary(hidden, joined.mask)  # [B, H]
        for name, target in targets.items():
            of = target.refers_to
            if name in choices:
                found[name] = Hidden(self._candidates(choices[name], features))
            elif of is not None:
                first, last = joined.places[of]
                words = self.join.places.at_words(of, hidden[:, first:last], features)  # [B, W, H]
                there = self.join.places.mask(of, features)
                if name in self._spans:  # position 0 is "no answer"
                    words = torch.cat([summary[:, None], words], 1)
                    there = nn.functional.pad(there, (1, 0), value=True)
                found[name] = Hidden(words, there)
            else:
                found[name] = Hidden(summary)
        first = next(iter(targets))
        found[first] = dataclasses.replace(found[first], penalty=take_penalties(self))
        return found

    def _encode(self, joined: Joined, segments: Tensor | None = None) -> Tensor:
        """Returns the encoder's output; `segments` [B, S] of packed examples.  [B, S, H]."""
        x = joined.x
        if self.hparams.use_target_space_embedding:
            x = x + self.target_space[self.features.target_space_id]
        x = self.dropout(x)
        mask = attend_to(joined.mask) if segments is None else same_segment(segments, segments)
        mark_data(self.encoder, joined.mask)
        return self.encoder_output(self._run_encoder(x, mask, joined))

    def _run_encoder(self, x: Tensor, mask: Tensor, joined: Joined) -> Tensor:
        """Runs the layers; `mask` is that of the attention.  [B, S, H]."""
        for layer in self.encoder:
            x = layer(x, mask)
        return x

    def _summary(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Returns one vector of each example.  [B, S, H], [B, S] -> [B, H]."""
        return hidden[:, 0] if self.hparams.summary == "first" else pooling.mean(hidden, mask)

    def _candidates(self, target: Choice, features: ModelInputs) -> Tensor:
        """Returns a summary of each candidate, combined with the shared inputs.  [B, K, H]."""
        common = [name for name in self.join.names if name not in target.candidates]
        summaries = []
        for candidate in target.candidates:
            joined = self.join(features, [*common, candidate], {candidate: target.candidates[0]})
            summaries.append(self._summary(self._encode(joined), joined.mask))
        return torch.stack(summaries, 1)


@register_model
class TransformerRegressor(TransformerEncoder):
    """`transformer_encoder` for numbers only."""

    HParams = TransformerRegressorHParams
    hparams: TransformerRegressorHParams
    produces = (Real,)


@register_model
class Vit(TransformerEncoder):
    """`transformer_encoder` for pictures, with a patch size and scaling of pixels.

    Dosovitskiy et al. 2021, arXiv:2010.11929, without the class token: classes are read from the
    mean of all places, as in Beyer et al. 2022, arXiv:2205.01580 (`summary`).
    """

    HParams = VitHParams
    hparams: VitHParams
    produces = (ClassLabel, MultiLabel, SoftLabel, Real)
    reads = (Image,)
    reads_packed = False
    texts = (0, 0)
