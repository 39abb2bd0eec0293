"""Extractive question answering: DrQA's document reader.

Chen et al. 2017, "Reading Wikipedia to Answer Open-Domain Questions", arXiv:1704.00051, section
3.2.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch.features import Features, Span, Text
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.span_qa import SpanQaHParams
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.recurrent import LSTM
from t2t_torch.layers.sentence_encoder import Alignment, Matches, SelfAttentive
from t2t_torch.layers.tokens import Tokens, texts_of
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model


@register_model
class SpanQa(T2TModel):
    """Reads a text with attention to the question; bilinear scores of both ends of the answer."""

    HParams = SpanQaHParams
    hparams: SpanQaHParams
    produces = (Span,)
    reads = (Text, OfWords)
    texts = (2, 2)

    def __init__(self, hparams: SpanQaHParams, features: Features) -> None:
        super().__init__(hparams, features)
        ((self._target, target),) = features.targets.items()
        assert isinstance(target, Span)
        self._context = target.of
        (self._question,) = [name for name in texts_of(features) if name != target.of]
        self.question_tokens = Tokens(features, hparams, self._question)
        self.context_tokens = Tokens(features, hparams, self._context)
        self.aligned = Alignment(hparams.text_size, hparams.embedding_size)
        width = self.context_tokens.size + hparams.text_size
        self.matches = None
        if hparams.match_feature:
            self.matches = Matches(features, [self._question, self._context])
            width += self.matches.size
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        self.question_layers = StackedLSTM(self.question_tokens.size, hparams)
        self.context_layers = StackedLSTM(width, hparams)
        self.summary = SelfAttentive(self.question_layers.size)
        self.nowhere = nn.Parameter(torch.randn(self.context_layers.size) * 0.1)
        self.ends = nn.ModuleList(
            nn.Linear(self.question_layers.size, self.context_layers.size, bias=False)
            for _ in range(2)
        )
        initialize(self, hparams)
        top: Any = self.modalities[self._target].top  # at first the identity: scores are logits
        nn.init.eye_(top.weight)
        nn.init.zeros_(top.bias)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns 2: each position has scores as the first and as the last word."""
        return 2

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the bilinear scores, of "no answer" first.  [B, 1 + W, 2]."""
        question_mask = features[self._question].mask
        mask = features[self._context].mask
        own, asked = features[self._context].embedded, features[self._question].embedded
        aligned = self.aligned(self.aligned.scores(own, asked), asked, question_mask)
        parts = [self.dropout(self.context_tokens(features)), self.dropout(aligned)]
        if self.matches is not None:
            ids = features[self._context].values, features[self._question].values
            parts.append(self.matches(*ids).to(aligned.dtype))
        context = self.dropout(self.context_layers(torch.cat(parts, -1), mask))
        question = self.dropout(self.question_tokens(features))
        question = self.question_layers(question, question_mask)
        asked_for = self.summary(self.dropout(question), question_mask)  # [B, H]
        words = self.context_tokens.places.at_words(self._context, context, features)
        nowhere = self.nowhere.to(words.dtype).expand(words.size(0), 1, -1)
        places = torch.cat([nowhere, words], 1)  # [B, 1 + W, H]
        scores = [torch.matmul(places, end(asked_for)[..., None]) for end in self.ends]
        there = self.context_tokens.places.mask(self._context, features)
        mask = nn.functional.pad(there, (1, 0), value=True)
        return {self._target: Hidden(torch.cat(scores, -1), mask)}


class StackedLSTM(nn.Module):
    """Bidirectional LSTM layers, with concatenated outputs of all layers.

    Args:
      input_size: E, input width.
      hparams: hidden_size of each direction, num_hidden_layers; dropout between layers.

    Attributes:
      size: output width.
    """

    def __init__(self, input_size: int, hparams: SpanQaHParams) -> None:
        super().__init__()
        layers = [
            LSTM(
                2 * hparams.hidden_size if number else input_size,
                hparams.hidden_size,
                bidirectional=True,
            )
            for number in range(hparams.num_hidden_layers)
        ]
        self.layers = nn.ModuleList(layers)
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        self.size = 2 * hparams.hidden_size * len(layers)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Returns the outputs, zeros at padding.  [B, S, E], [B, S] -> [B, S, H]."""
        found: list[Tensor] = []
        for layer in self.layers:
            x = layer(self.dropout(x) if found else x, mask)
            found.append(x)
        return torch.cat(found, -1)
