"""A problem that counts, and what is stored of it, for the tests of tasks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.shards import Shards
from t2t_torch.features import Features, Text
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.readers.text_file import Place
from t2t_torch.text.encoder import ByteEncoder


class Counting(Problem):
    """Numbers in digits; what a test wants to happen, happens in `before`, at each sample.

    Every number of `unreadable` is a bad record, every one of `unfit` a sample without a text.
    """

    name = "counting"
    shards: ClassVar[dict[Split, int]] = {Split.TRAIN: 3, Split.EVAL: 1}
    count = 100
    unreadable: tuple[int, ...] = ()
    unfit: tuple[int, ...] = ()
    vocab = "digits"
    before: Callable[[Split, int], object] = staticmethod(lambda split, number: None)

    @property
    def vocab_files(self) -> tuple[str, ...]:
        return ("vocab.counting",)

    def build_vocab(self, data_dir: Path, tmp_dir: Path) -> None:
        for _ in self.generate_samples(tmp_dir, Split.TRAIN):
            pass
        (data_dir / "vocab.counting").write_text(self.vocab)

    def stored_features(self, directory: Path) -> Features:
        assert (directory / "vocab.counting").read_text() == self.vocab
        return Features({"inputs": Text(ByteEncoder())}, {"targets": Text(ByteEncoder())})

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        for number in range(self.count if split is Split.TRAIN else 10):
            self.before(split, number)
            if number in self.unreadable:
                self.bad_records.report(Place(tmp_dir / "raw.txt", number + 1, 1), "no number")
                continue
            yield {"inputs": str(number), "targets": None if number in self.unfit else f"{number}!"}


def counting(**attributes: Any) -> Counting:
    """A problem with other attributes."""
    problem = Counting()
    for name, value in attributes.items():
        setattr(problem, name, value)
    return problem


def files(folder: Path) -> dict[str, bytes]:
    """What a user sees in a folder."""
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")
    }


def numbers(folder: Path, split: Split = Split.TRAIN) -> list[int]:
    """The numbers that are stored, in their order; each has its target."""
    shards = Shards.open(folder, "counting", split)
    encoder = ByteEncoder()
    inputs, targets = (
        [
            encoder.decode(values[a:b])
            for values, offsets in shards.column(feature)
            for a, b in itertools.pairwise(offsets)
        ]
        for feature in ("inputs", "targets")
    )
    assert targets == [f"{text}!" for text in inputs]
    return list(map(int, inputs))
