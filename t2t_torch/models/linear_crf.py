"""Linear-chain CRF over hashed features of words, fitted before the first step.

Lafferty, McCallum and Pereira 2001, "Conditional random fields"; the features are those of
Ratnaparkhi 1996, "A Maximum Entropy Model for Part-Of-Speech Tagging".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.data.shards import Ragged
from t2t_torch.features import Features, Gazetteer, Tags, Text, WordCharacters, WordLabel, WordShape
from t2t_torch.hparams.linear_crf import LinearCrfHParams
from t2t_torch.layers.ngrams import WordFeatures
from t2t_torch.layers.tokens import WordPlaces, texts_of
from t2t_torch.loss import Loss
from t2t_torch.model import Hidden, ModelInput, ModelInputs, T2TModel, TrainingRows
from t2t_torch.pipeline.collate import padded
from t2t_torch.registry import register_model
from t2t_torch.text.linear import split_folds

_LARGEST = 2**24  # numbers of a table
_STEPS = 100  # of an epoch of the fit
_BATCHES = (500, 4_000)  # fewest and most words of its batches
_RATE = 0.3
_MOST_HELD_OUT = 3_000  # sentences on which the L2 norm is chosen
_FOLDS = 4  # of which one is held out


@register_model
class LinearCrf(T2TModel):
    """Linear in words, affixes, shapes and labels of a window; a CRF scores the chain."""

    HParams = LinearCrfHParams
    hparams: LinearCrfHParams
    produces = (Tags,)
    reads = (Text, WordCharacters, WordShape, WordLabel, Gazetteer)
    texts = (1, 1)

    def __init__(self, hparams: LinearCrfHParams, features: Features) -> None:
        super().__init__(hparams, features)
        (self._text,) = texts_of(features)
        for name in features.inputs:
            self.modality(name).bottom = None  # ids are read as they are
        sizes = {name: feature.vocab_size for name, feature in features.targets.items()}
        buckets = min(hparams.feature_buckets, _LARGEST // sum(sizes.values()))
        self.word_features = WordFeatures(features, self._text, buckets)
        self._places = WordPlaces(features)
        self.weights = nn.ParameterDict(
            {name: torch.zeros(buckets, size) for name, size in sizes.items()}
        )
        for name in sizes:
            top: Any = self.modality(name).top
            nn.init.eye_(top.weight)
            nn.init.zeros_(top.bias)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the number of tags."""
        return features.targets[target].vocab_size

    def bottom(self, batch: dict[str, Tensor]) -> dict[str, ModelInput]:
        """Returns the features as they are."""
        there = {name: batch[name] for name in self.features.all if name in batch}
        return {name: ModelInput(values, values, values != 0) for name, values in there.items()}

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the score of each tag at each word, [B, W, C]."""
        columns = self.word_features(features)
        mask = self._places.mask(self._text, features)
        tables = self.weights.items()
        return {name: Hidden(_emissions(columns, table), mask) for name, table in tables}

    @torch.no_grad()
    def fit(self, rows: TrainingRows) -> list[str]:
        """Fits each target on all training rows."""
        data = {name: rows(name) for name in self.features.all}
        lines = []
        for target, table in self.weights.items():
            lengths = data[target].lengths
            every = np.flatnonzero(lengths > 0)
            some = every[:: max(1, len(every) // _MOST_HELD_OUT)]
            out = split_folds(some, _FOLDS)[0]
            train, held_out, all_batches = (
                list(self._batches(data, target, own))
                for own in (np.setdiff1d(some, out), out, every)
            )
            epochs = self.hparams.fit_epochs
            losses = {
                l2: ChainFit(self.modality(target), train, l2, epochs).loss_of(held_out)
                for l2 in self.hparams.fit_l2
                if len(self.hparams.fit_l2) > 1 and train
            }
            l2 = min(losses, key=losses.__getitem__, default=self.hparams.fit_l2[0])
            found = ChainFit(self.modality(target), all_batches, l2, epochs)
            table.zero_()
            table[found.used] = found.table[1:]
            lines.append(f"{target}: fitted on {len(every):,} rows, L2 {l2:g}")
        return lines

    def _batches(
        self, data: Mapping[str, Ragged], target: str, rows: npt.NDArray[np.int64]
    ) -> Iterator[TagBatch]:
        """Yields batches of rows of similar length."""
        lengths = data[target].lengths[rows]
        order = np.argsort(lengths, kind="stable")
        ends = np.cumsum(lengths[order])
        ends //= int(np.clip(ends[-1:].sum() // _STEPS, *_BATCHES))
        for own in np.split(rows[order], np.flatnonzero(np.diff(ends)) + 1):
            if len(own):
                batch = {
                    name: torch.from_numpy(padded(feature, data[name].take(own)))
                    for name, feature in self.features.all.items()
                }
                weights = self.example_weights(target, batch)
                yield TagBatch(self.word_features(self.bottom(batch)), batch[target], weights)


class TagBatch(NamedTuple):
    """Sentences of a fit.

    Attributes:
      columns: of the features of each word, [B, W, features].
      tags: [B, W].
      weights: of the sentences, [B]; None is 1.
    """

    columns: Tensor
    tags: Tensor
    weights: Tensor | None


class ChainFit:
    """Fit of a table of features and of a chain by AdaGrad.

    Duchi et al. 2011, "Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization", JMLR; the rate falls linearly to 0.  L-BFGS needs ten times as many passes.

    Args:
      modality: modality of the tags; the parameters of its chain are set.
      batches: training sentences.
      l2: weight of the L2 norm.
      epochs: passes over the batches.

    Attributes:
      used: columns that occur, [used].
      table: zeros and the row of each of them, [1 + used, C].
    """

    def __init__(self, modality: Any, batches: Sequence[TagBatch], l2: float, epochs: int) -> None:
        self._modality = modality
        used = torch.unique(torch.cat([torch.unique(batch.columns) for batch in batches]))
        self.used = used[used > 0]
        self.table = torch.zeros(len(self.used) + 1, modality.top.out_features)
        self._places = torch.zeros(int(used.max()) + 1, dtype=torch.int64)
        self._places[self.used] = torch.arange(1, len(self.used) + 1)
        crf = getattr(modality, "crf", None)
        parameters = [self.table, *(crf.parameters() if crf is not None else ())]
        for parameter in parameters:
            parameter.zero_().requires_grad_()
        squares = [torch.full_like(one, 1e-8) for one in parameters]
        own = [batch._replace(columns=self._places[batch.columns]) for batch in batches]
        generator = torch.Generator().manual_seed(0)
        orders = [torch.randperm(len(own), generator=generator) for _ in range(epochs)]
        for step, index in enumerate(torch.cat(orders).tolist()):
            rate = _RATE * (1.0 - step / (epochs * len(own)))
            with torch.enable_grad():
                gradients = torch.autograd.grad(self._loss(own[index]).sum, parameters)
            for one, gradient, square in zip(parameters, gradients, squares, strict=True):
                total = gradient.add(one, alpha=l2 / len(own))
                square.addcmul_(total, total)
                one.addcdiv_(total, square.sqrt(), value=-rate)
        self.table.requires_grad_(False)

    def _loss(self, batch: TagBatch) -> Loss:
        """Returns the loss of sentences with columns of the table."""
        hidden = Hidden(_emissions(batch.columns, self.table), self._modality.mask(batch.tags))
        loss: Loss = self._modality.loss(self._modality.logits(hidden), batch.tags, batch.weights)
        return loss

    def loss_of(self, batches: Sequence[TagBatch]) -> float:
        """Returns the mean loss of other sentences."""
        size = len(self._places)
        total = torch.zeros(2, dtype=torch.float64)
        for batch in batches:
            known = batch.columns * (batch.columns < size)
            loss = self._loss(batch._replace(columns=self._places[known]))
            total += torch.stack([loss.sum, loss.weight])
        return float(total[0] / total[1].clamp(min=1e-12))


def _emissions(columns: Tensor, table: Tensor) -> Tensor:
    """Returns the sum of the rows of each word's features.  [B, W, features] -> [B, W, C]."""
    found = F.embedding_bag(columns.flatten(0, 1), table, mode="sum", padding_idx=0)
    return found.view(*columns.shape[:2], -1)
