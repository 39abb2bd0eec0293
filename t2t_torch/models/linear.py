"""Linear model of hashed n-grams of words and characters, fitted before the first step.

Wang and Manning 2012, "Baselines and Bigrams: Simple, Good Sentiment and Topic Classification",
ACL; see `text/linear.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.features import ClassLabel, Feature, Features, MultiLabel, Real, Text
from t2t_torch.features.real import num_channels
from t2t_torch.hparams.linear import LinearHParams
from t2t_torch.layers import ngrams
from t2t_torch.layers.tokens import dense_of, texts_of
from t2t_torch.model import Hidden, ModelInputs, T2TModel, TrainingRows
from t2t_torch.registry import register_model
from t2t_torch.text import linear
from t2t_torch.text.ngrams import NUM_OVERLAPS, TokenRows, codes_of_ids, count_ngrams, overlaps

_LARGEST = 2**24  # numbers of a table


@register_model
class Linear(T2TModel):
    """Linear in TF-IDF of n-grams of one text or a pair, and in numbers of the example."""

    HParams = LinearHParams
    hparams: LinearHParams
    produces = (ClassLabel, MultiLabel, Real)
    reads = (Text, Real)
    texts = (1, 2)

    def __init__(self, hparams: LinearHParams, features: Features) -> None:
        super().__init__(hparams, features)
        self._texts, self._dense = texts_of(features), dense_of(features)
        for name in features.inputs:
            self.modality(name).bottom = None  # ids and numbers are read as they are
        texts: Any = [features.inputs[name] for name in self._texts]
        self._codes = codes = [codes_of_ids(text.encoder) for text in texts]
        self.ngrams = nn.ModuleList(map(ngrams.TextNGrams, codes))
        sizes = {name: _outputs(feature) for name, feature in features.targets.items()}
        self.buckets = min(hparams.ngram_buckets, _LARGEST // sum(sizes.values()))
        self.register_buffer("idf", torch.ones(self.buckets))
        self.idf: Tensor
        numbers = sum(num_channels(features.inputs[name]) for name in self._dense)
        numbers += NUM_OVERLAPS * (len(codes) - 1)
        self.weights = nn.ParameterDict(
            {name: torch.zeros(self.buckets + numbers, size) for name, size in sizes.items()}
        )
        for name, feature in features.targets.items():
            self._scale(name, feature, 1.0, torch.zeros(sizes[name]))

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the number of scores: one for two classes."""
        return _outputs(features.targets[target])

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the scores of each target, [B, K]."""
        texts = [
            own(features[name].values, features[name].mask)
            for own, name in zip(self.ngrams, self._texts, strict=True)
        ]
        columns, values = ngrams.weigh(ngrams.columns_of(texts, self.buckets), self.idf)
        numbers = [features[name].values for name in self._dense]
        if len(texts) > 1:
            numbers.append(ngrams.overlaps(texts))
        hidden = {}
        for name, table in self.weights.items():
            scores = F.embedding_bag(columns, table, per_sample_weights=values, mode="sum")
            if numbers:
                scores = scores + torch.cat(numbers, 1).to(table.dtype) @ table[self.buckets :]
            hidden[name] = Hidden(scores)
        return hidden

    @torch.no_grad()
    def fit(self, rows: TrainingRows) -> list[str]:
        """Fits each target on all training rows."""
        texts = [TokenRows(one.values, one.offsets) for one in map(rows, self._texts)]
        counts = count_ngrams(texts, self._codes, self.buckets)
        numbers = [rows(name).values.reshape(len(counts), -1) for name in self._dense]
        if len(texts) > 1:
            numbers.append(overlaps(texts, self._codes))
        dense = torch.cat([torch.from_numpy(one.copy()) for one in numbers], 1) if numbers else None
        notes = {note: torch.tensor(rows(note).values) for note in self.features.notes}
        lines = []
        for name, feature in self.features.targets.items():
            weights = self.example_weights(name, notes)
            classes = _classes(feature)
            target = rows(name).values.reshape(len(counts), -1)
            found = linear.fit(
                counts,
                target[:, 0] if classes > 0 else target,
                classes,
                buckets=self.buckets,
                dense=None if dense is None else dense.numpy(),
                weights=None if weights is None else weights.numpy(),
                costs=self.hparams.fit_costs,
            )
            self.idf.copy_(torch.from_numpy(found.idf))
            self.weights[name].copy_(torch.from_numpy(found.weights))
            self._scale(name, feature, found.slope, torch.from_numpy(found.bias))
            lines.append(f"{name}: fitted on {len(counts):,} rows, cost {found.cost:g}")
        return lines

    @torch.no_grad()
    def _scale(self, target: str, feature: Feature, slope: float, bias: Tensor) -> None:
        """Sets the layer that makes scores, [B, K], calibrated logits."""
        factors = torch.tensor([[-0.5], [0.5]]) if _classes(feature) == 2 else torch.eye(len(bias))
        top: Any = self.modality(target).top
        top.weight.copy_(slope * factors)
        top.bias.copy_(slope * factors @ bias.cpu())


def _classes(feature: Feature) -> int:
    """Returns `text.linear.FittedLinear.classes` of a target."""
    return feature.vocab_size or (0 if feature.labels else -1)


def _outputs(feature: Feature) -> int:
    """Returns the number of scores of a target."""
    classes = _classes(feature)
    size = len(feature.labels) if classes >= 0 else int(feature.shape[0] or 1)
    return 1 if classes == 2 else size
