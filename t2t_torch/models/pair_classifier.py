"""Classifier or regressor of text pairs: a shared encoder and a comparison of both vectors.

Conneau et al. 2017, "Supervised Learning of Universal Sentence Representations from Natural
Language Inference Data" (InferSent), arXiv:1705.02364; with alignment Parikh et al. 2016,
arXiv:1606.01933, and Chen et al. 2017, "Enhanced LSTM for Natural Language Inference" (ESIM),
arXiv:1609.06038.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import ClassLabel, Features, MultiLabel, Real, SoftLabel, Text
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.pair_classifier import PairClassifierHParams
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.recurrent import LSTM
from t2t_torch.layers.sentence_encoder import Alignment, Contexts, Matches, Pool
from t2t_torch.layers.tokens import Tokens, beside_dense, dense_of, dense_width, texts_of
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model


@register_model
class PairClassifier(T2TModel):
    """Encodes two texts, aligns the tokens of each with the other, and compares pooled vectors."""

    HParams = PairClassifierHParams
    hparams: PairClassifierHParams
    produces = (ClassLabel, MultiLabel, SoftLabel, Real)
    reads = (Text, OfWords, Real)
    texts = (2, 2)

    def __init__(self, hparams: PairClassifierHParams, features: Features) -> None:
        super().__init__(hparams, features)
        self._texts = texts_of(features)
        self._dense = dense_of(features)
        tokens = [Tokens(features, hparams, name) for name in self._texts]
        self.tokens = nn.ModuleList(tokens)
        sizes = [one.size for one in tokens]
        self.matches = Matches(features, self._texts) if hparams.match_feature else None
        if self.matches is not None:
            sizes = [size + self.matches.size for size in sizes]
        needs_equal = hparams.tied_encoders or hparams.alignment == "inputs"
        if sizes[0] != sizes[1] and (needs_equal or hparams.encoder == "none"):
            raise HParamsError(
                f"tokens of {self._texts[0]!r} have {sizes[0]} numbers and those of "
                f"{self._texts[1]!r} {sizes[1]}: one has inputs that the other lacks. Set "
                "--hparams=tied_encoders=False, with encoder=lstm or cnn and alignment not inputs."
            )
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        first = Contexts(sizes[0], hparams)
        second = first if hparams.tied_encoders else Contexts(sizes[1], hparams)
        self.encoders = nn.ModuleList([first, second])
        size = first.size
        self.compared = None
        if hparams.alignment != "none":
            self.compared = Compared(first.size, sizes[0], hparams)
            size = self.compared.size
        self.pools = nn.ModuleList([Pool(size, hparams)])
        if hparams.mean_too:
            self.pools.append(Pool(size, hparams.replace(sentence_pooling="mean")))
        width = 4 * size * len(self.pools) + dense_width(features, hparams)
        if self.matches is not None:
            width += self.matches.summary_size
        self.outputs = nn.ModuleDict(
            {name: Perceptron(width, hparams) for name in features.targets}
        )
        initialize(self, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the output of the perceptron of each target.  [B, H] each."""
        masks = [features[name].mask for name in self._texts]
        ids = [features[name].values for name in self._texts]
        inputs = [self.dropout(tokens(features)) for tokens in self.tokens]
        if self.matches is not None:
            found = self.matches(*ids), self.matches(*reversed(ids))
            inputs = [torch.cat(pair, -1) for pair in zip(inputs, found, strict=True)]
        encoders = zip(self.encoders, inputs, masks, strict=True)
        contexts = [encoder(x, mask) for encoder, x, mask in encoders]
        if self.compared is not None:
            contexts = self.compared(contexts, inputs, masks)
        u, v = (
            torch.cat([pool(x, mask) for pool in self.pools], -1)
            for x, mask in zip(contexts, masks, strict=True)
        )
        pair = self.dropout(torch.cat([u, v, (u - v).abs(), u * v], -1))
        pair = beside_dense(pair, self._dense, features)
        if self.matches is not None:
            pair = torch.cat([pair, self.matches.summary(*ids)], -1)
        return {name: Hidden(output(pair)) for name, output in self.outputs.items()}


class Compared(nn.Module):
    """Projection of each token x and its alignment y: [x; y; x - y; x * y].

    Args:
      size: width of contextual tokens.
      input_size: width of token embeddings.
      hparams: alignment, encoder_size, dropout.

    Attributes:
      size: output width.
    """

    def __init__(self, size: int, input_size: int, hparams: PairClassifierHParams) -> None:
        super().__init__()
        self._by_inputs = hparams.alignment == "inputs"
        self.alignment = Alignment(
            input_size if self._by_inputs else size,
            0 if hparams.alignment == "esim" else hparams.encoder_size,
        )
        self.project = nn.Linear(4 * size, hparams.encoder_size)
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        self.composition = None
        self.size = hparams.encoder_size
        if hparams.alignment == "esim":
            self.composition = LSTM(hparams.encoder_size, hparams.encoder_size, bidirectional=True)
            self.size = self.composition.size

    def forward(
        self, contexts: list[Tensor], inputs: list[Tensor], masks: list[Tensor]
    ) -> list[Tensor]:
        """Returns the outputs of both texts.

        Args:
          contexts: contextual tokens of both texts, [B, S, size], [B, T, size].
          inputs: token embeddings of both texts, [B, S, input_size], [B, T, input_size].
          masks: masks of both texts.
        """
        scores = self.alignment.scores(*(inputs if self._by_inputs else contexts))
        x, y = contexts
        aligned = (
            self.alignment(scores, y, masks[1]),
            self.alignment(scores.transpose(1, 2), x, masks[0]),
        )
        found = []
        for own, other, mask in zip(contexts, aligned, masks, strict=True):
            both = torch.cat([own, other, own - other, own * other], -1)
            local = self.dropout(self.project(self.dropout(both)).relu())
            local = local * mask[..., None].to(local.dtype)
            found.append(local if self.composition is None else self.composition(local, mask))
        return found


class Perceptron(nn.Module):
    """Hidden layers with ReLU, dropout after each.  [B, width] -> [B, hidden_size].

    Args:
      width: input width.
      hparams: hidden_size, mlp_layers, dropout.
    """

    def __init__(self, width: int, hparams: PairClassifierHParams) -> None:
        super().__init__()
        sizes = [width, *[hparams.hidden_size] * hparams.mlp_layers]
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        self.layers = nn.ModuleList(
            nn.Linear(before, after) for before, after in itertools.pairwise(sizes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Returns the last layer's outputs."""
        for layer in self.layers:
            x = self.dropout(layer(x).relu())
        return x
