"""Modalities of word features: an embedding for each word."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.features import (
    Features,
    Gazetteer,
    Text,
    WordCharacters,
    WordLabel,
    WordReal,
    WordShape,
)
from t2t_torch.hparam import HParams
from t2t_torch.layers.convolution import CharacterCNN
from t2t_torch.modalities.text import Embedding
from t2t_torch.modality import InputModality
from t2t_torch.text.encoder import EOS, PAD


class WordModality(InputModality):
    """Base class of modalities of word features: embeddings [B, W, H].  Inputs only."""

    @classmethod
    def bottom_of(cls, feature: Any, hparams: HParams) -> nn.Module:
        """Returns the embedding module: a table in which id 0 is the zero vector."""
        return nn.Embedding(feature.vocab_size, hparams.hidden_size, padding_idx=0)

    def mask(self, values: Tensor) -> Tensor:
        """Returns the mask of words with data.  [B, W] or [B, W, width] -> [B, W] bool."""
        return values != 0 if values.dim() == 2 else (values != 0).any(-1)


class WordShapeModality(WordModality):
    """Modality of word shapes."""

    serves = WordShape


class WordLabelModality(WordModality):
    """Modality of input labels of words."""

    serves = WordLabel


class WordRealModality(WordModality):
    """Modality of numbers of words: a linear layer without bias, which keeps padding zero."""

    serves = WordReal

    @classmethod
    def bottom_of(cls, feature: Any, hparams: HParams) -> nn.Module:
        """Returns the linear layer."""
        return nn.Linear(feature.size, hparams.hidden_size, bias=False)


class WordCharactersModality(WordModality):
    """Modality of the characters, or bytes, of words."""

    serves = WordCharacters

    @classmethod
    def bottom_of(cls, feature: Any, hparams: HParams) -> nn.Module:
        """Returns the convolutions and the highway layers."""
        return CharacterCNN(feature.vocab_size, hparams.hidden_size, hparams)


class GazetteerModality(WordModality):
    """Modality of gazetteers: the mean of the weighted embeddings of a word's entries."""

    serves = Gazetteer

    def embed(self, name: str, batch: dict[str, Tensor]) -> Tensor:
        """Returns the means, zeros for a word without entries; reads `<name>_weights`.

        As PyText's DictEmbedding has it: sum(weight * vector) / entries.  [B, W, H].
        """
        ids = batch[name]
        entries: Tensor = self.bottom(ids)  # [B, W, width, H]
        total = (entries * batch[f"{name}_weights"][..., None]).sum(2)
        return total / (ids != 0).sum(2, keepdim=True).clamp(min=1)


_TARGET = "targets"


class FrozenLanguageModel(nn.Module):
    """Frozen language model, without dropout.

    Its weights are part of the enclosing model; the training task initializes them.

    Its states are contextual token embeddings.  Peters et al. 2017, arXiv:1705.00108 (states of a
    frozen language model, concatenated with word embeddings), and 2018, arXiv:1802.05365.

    Args:
      architecture: hparam `contextual_architecture`.
      text: feature whose ids it reads.

    Attributes:
      model: language model.
      size: width of its states.

    Raises:
      HParamsError: the architecture is unknown.
    """

    def __init__(self, architecture: str, text: Text) -> None:
        super().__init__()
        try:
            known = json.loads(architecture)
            name, written = known["model"], json.dumps(known["hparams"])
        except (ValueError, KeyError, TypeError):
            raise HParamsError(
                "contextual_architecture is not the language model of contextual_embeddings."
                " t2t-trainer writes it: leave it out, and give contextual_embeddings."
            ) from None
        kind: Any = registry.model(name)
        hparams = registry.hparams_class(kind.HParams, written).from_json(written)
        hparams = hparams.replace(stream_length=0)  # texts are independent: no state across batches
        features = Features({}, {_TARGET: Text(text.encoder)})
        self.model = kind(hparams, features)
        self.size = int(kind.target_width(hparams, features, _TARGET))
        self.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> FrozenLanguageModel:
        """Stays in EVAL mode, without dropout."""
        super().train(False)
        return self

    @torch.no_grad()
    def forward(self, ids: Tensor) -> Tensor:
        """Returns the state after each id.  [B, S] -> [B, S, size]."""
        # A state predicts the id at its position from previous ones: one more position is needed.
        longer = torch.cat([ids, ids.new_full((len(ids), 1), PAD)], 1)
        ends = (longer != PAD).sum(1, keepdim=True)  # [B, 1]
        longer = longer.scatter(1, ends, EOS)
        states: Tensor = self.model.body(self.model.bottom({_TARGET: longer}))[_TARGET].states
        return states[:, 1:]


class ContextualEmbedding(nn.Module):
    """Token embedding, concatenated with a projection of the language model's state.

    Args:
      table: token embedding, ids -> [..., E].
      context: language model, ids -> states.
      size: C, width of the projection.
    """

    def __init__(self, table: Embedding, context: FrozenLanguageModel, size: int) -> None:
        super().__init__()
        self.table = table
        self.context = context
        self.map = nn.Linear(context.size, size)

    def forward(self, ids: Tensor) -> Tensor:
        """[B, S] ids -> [B, S, E + C], zeros at padding."""
        own = self.table(ids)
        found = self.map(self.context(ids)) * (ids != PAD)[..., None]
        return torch.cat([own, found.to(own.dtype)], -1)


def own_width(hparams: HParams, width: int) -> int:
    """Returns the width of the token embedding within the width of an input.

    Raises:
      HParamsError: the width would be 0, or examples are packed.
    """
    if not hparams.contextual_embeddings:
        return width
    if hparams.pack_dataset:
        raise HParamsError(
            "contextual_embeddings: a language model reads on from one packed example to the next. "
            "Set pack_dataset=False."
        )
    if hparams.contextual_size >= width:
        raise HParamsError(
            f"contextual_size={hparams.contextual_size} leaves nothing of the {width} numbers of a "
            "token's vector for its own. Make it smaller."
        )
    return width - hparams.contextual_size
