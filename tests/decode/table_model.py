"""A model that looks its logits up, and what is found of it the slow way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from t2t_torch.decode.policies import BeamPolicy
from t2t_torch.layers.attention import Attended

EOS = 1


class TableState(NamedTuple):
    """Which row of the table each hypothesis reads, at which step, and the last id read."""

    rows: Tensor
    position: int = 0
    attended: Attended | None = None

    def expand(self, copies: int) -> TableState:
        return self._replace(rows=self.rows.repeat_interleave(copies))

    def reorder(self, index: Tensor) -> TableState:
        return self._replace(rows=self.rows[index])

    def watched(self) -> TableState:
        return self


class TableModel:
    """Logits by row, step and last id; [B, T, V, V].  Attention likewise, [B, T, V, S]."""

    def __init__(self, logits: Tensor, attention: Tensor | None = None, words: int = 0) -> None:
        self.logits = logits
        self.attention = attention
        self.words = words

    def state(self, *rows: int) -> TableState:
        return TableState(torch.tensor(rows or range(len(self.logits))))

    def step(self, ids: Tensor, state: TableState) -> tuple[Tensor, TableState]:
        attended = None
        if self.attention is not None:
            weights = self.attention[state.rows, state.position, ids]
            mask = torch.arange(weights.size(1)) < self.words
            attended = Attended(weights, mask.expand_as(weights))
        logits = self.logits[state.rows, state.position, ids]
        return logits, TableState(state.rows, state.position + 1, attended)


def random_table(rows: int, steps: int, vocab: int, seed: int) -> TableModel:
    generator = torch.Generator().manual_seed(seed)
    return TableModel(torch.randn(rows, steps, vocab, vocab, generator=generator))


def log_prob(logits: Tensor, ids: Sequence[int]) -> float:
    """Of a sequence, by one row's table."""
    found = logits.double().log_softmax(-1)
    steps = enumerate(zip([0, *ids[:-1]], ids, strict=True))
    return float(sum(found[t, a, b] for t, (a, b) in steps))


def every_ended(vocab: int, longest: int) -> Iterator[list[int]]:
    """All sequences that end within so many ids."""
    for length in range(1, longest + 1):
        for body in itertools.product([0, *range(2, vocab)], repeat=length - 1):
            yield [*body, EOS]


def penalized(found: float, length: int, alpha: float) -> float:
    return found / BeamPolicy(alpha).penalty(torch.tensor(float(length))).item()


def ended(row: Tensor) -> list[int]:
    """The ids of a hypothesis up to its end symbol."""
    ids = row.tolist()
    return ids[: ids.index(EOS) + 1] if EOS in ids else ids
