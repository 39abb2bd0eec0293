"""ELECTRA: an encoder learns to recognize the tokens that a small generator has replaced.

Clark et al. 2020, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators",
arXiv:2003.10555.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.features import Features, MaskedTokens, Text
from t2t_torch.hparams.electra import ElectraHParams
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.pooling import attend_to
from t2t_torch.layers.transformer_layer import EncoderLayer, stack_output
from t2t_torch.model import Hidden, ModelInput, ModelInputs
from t2t_torch.models.transformer_encoder import TransformerEncoder
from t2t_torch.registry import register_model


@register_model
class Electra(TransformerEncoder):
    """A `transformer_encoder` and a generator that reads the same embeddings.

    The generator gives hidden tokens; its samples take their places, and the encoder recognizes
    them.  A `transformer_encoder` of the same sizes continues from the encoder
    (`--warm_start_from`).  Metrics are those of the generator.
    """

    HParams = ElectraHParams
    hparams: ElectraHParams
    produces = (MaskedTokens,)
    reads = (Text,)
    texts = (1, 1)
    reads_packed = False

    def __init__(self, hparams: ElectraHParams, features: Features) -> None:
        super().__init__(hparams, features)
        small = hparams.of_generator()
        self.generator_input = nn.Linear(hparams.hidden_size, small.hidden_size)
        self.generator = nn.ModuleList(
            EncoderLayer(small)
            for _ in range(hparams.num_encoder_layers or hparams.num_hidden_layers)
        )
        self.generator_output = stack_output(small)
        width = hparams.hidden_size
        self.discriminator = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: ElectraHParams, features: Features, target: str) -> int:
        """Returns the width of the generator's layers."""
        return hparams.of_generator().hidden_size

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the generator's states; in TRAIN the encoder's loss is their penalty."""
        joined = self.join(features)
        x = self.generator_input(self.dropout(joined.x))
        for layer in self.generator:
            x = layer(x, attend_to(joined.mask))
        hidden = Hidden(self.generator_output(x), joined.mask)
        if self.training:
            hidden = dataclasses.replace(hidden, penalty=self._recognition(features, hidden.states))
        return {"targets": hidden}

    def _recognition(self, features: ModelInputs, states: Tensor) -> Tensor:
        """Returns the loss of recognizing replaced tokens, times the number of hidden ones.  []."""
        given, hidden_ids = features["inputs"], features["targets"].values
        text = torch.where(hidden_ids > 0, hidden_ids, given.values)
        sampled = torch.where(hidden_ids > 0, self._samples(states, hidden_ids > 0), text)
        modality: Any = self.modality("inputs")
        read: ModelInput = dataclasses.replace(
            given, values=sampled, embedded=modality.bottom(sampled)
        )
        joined = self.join({"inputs": read})
        scores = self.discriminator(self._encode(joined))[..., 0]  # [B, S]
        losses = F.binary_cross_entropy_with_logits(
            scores.float(), (sampled != text).float(), joined.mask.float(), reduction="sum"
        )
        share = (hidden_ids > 0).sum() / joined.mask.sum().clamp(min=1)
        penalty: Tensor = self.hparams.discriminator_weight * losses * share
        return penalty

    def _samples(self, states: Tensor, is_hidden: Tensor) -> Tensor:
        """Samples an id of the generator at each hidden position; 0 or an id elsewhere.  [B, S]."""
        modality: Any = self.modality("targets")
        if states.device.type != "cpu":  # their number would need a synchronization
            sampled: Tensor = modality.sample(Hidden(states))
            return sampled
        ids = torch.zeros_like(is_hidden, dtype=torch.int64)
        if bool(is_hidden.any()):
            ids[is_hidden] = modality.sample(Hidden(states[is_hidden][None]))[0]
        return ids
