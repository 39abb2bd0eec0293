"""Data of which every example is known by its number, and tasks that note what they train on."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.features import Features, Text
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.problem_types.mixture import MixtureProblem
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.text.encoder import IntegerEncoder
from t2t_torch.train.problem_task import ProblemTask

BASE = 8  # digits of numbers
EXAMPLES = 150
RECORD = TaskRecord(problem="numbered", model="transformer", hparams_set="transformer_test")
HPARAMS = (
    "batch_size=256,max_length=40,learning_rate_warmup_steps=4,learning_rate_constant=0.5,"
    "layer_prepostprocess_dropout=0.1,attention_dropout=0.1,relu_dropout=0.1"
)


class Numbered(Problem):
    """An example is its problem's digit, its number in three digits, and noise of any length."""

    name = "numbered"
    batch_size_means_tokens = True
    shards: ClassVar[dict[Split, int]] = {Split.TRAIN: 3, Split.EVAL: 1}
    digit = 1

    def stored_features(self, directory: Path) -> Features:
        """Digits in, digits out."""
        text = Text(IntegerEncoder(BASE))
        return Features({"inputs": text}, {"targets": text})

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields examples that are long and short."""
        draw = random.Random(f"{self.name} {split.value}")
        for number in range(EXAMPLES if split is Split.TRAIN else 20):
            digits = [self.digit, number // 64, number // 8 % 8, number % 8]
            digits += [draw.randrange(BASE) for _ in range(draw.choice((0, 1, 2, 5, 9, 30)))]
            text = " ".join(map(str, digits))
            yield {"inputs": text, "targets": text[::-1]}


class NumberedToo(Numbered):
    """Other examples."""

    name, digit = "numbered_too", 2


class NumberedThree(Numbered):
    """Yet others."""

    name, digit = "numbered_three", 3


class Mixed(MixtureProblem):
    """All three, in shares that change."""

    name = "mixed"
    problem_names = ("numbered", "numbered_too", "numbered_three")
    mixing_schedule = "linear @0 6 3 1 @40 1 3 6"

    @property
    def components(self) -> Sequence[Problem]:
        """The problems, which no registry knows."""
        return [Numbered(), NumberedToo(), NumberedThree()]


def number_of(tokens: Sequence[int]) -> int:
    """Returns the number of an example, of its first tokens; no two problems share one."""
    first = IntegerEncoder(BASE).decode(list(tokens[:4])).split()
    problem, *digits = map(int, first)
    return problem * 1000 + digits[0] * 64 + digits[1] * 8 + digits[2]


def numbers_of(batch: dict[str, Any]) -> list[int]:
    """Returns the numbers of a batch's examples; of packed rows those of each segment."""
    found = []
    segments = batch.get("inputs_segmentation")
    for row, tokens in enumerate(batch["inputs"].tolist()):
        marks = (
            [int(token != 0) for token in tokens] if segments is None else segments[row].tolist()
        )
        starts = [i for i, mark in enumerate(marks) if mark and (not i or marks[i - 1] != mark)]
        found += [number_of(tokens[start : start + 4]) for start in starts]
    return found


class NotingTask(ProblemTask):
    """Notes the examples of each batch when the loop takes it.

    Attributes:
      consumed: the numbers of the examples, batch by batch.
    """

    consumed: list[list[int]]

    def train_batches(self, **position: Any) -> Any:
        """Returns a source that notes."""
        self.__dict__.setdefault("consumed", [])
        return Noting(super().train_batches(**position), self.consumed)


class Noting:
    """A source of batches, as it is, that notes what is taken from it."""

    def __init__(self, source: Any, consumed: list[list[int]]) -> None:
        self._source = source
        self._consumed = consumed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._source:
            self._consumed.append(numbers_of(batch))
            yield batch


def digest(consumed: Sequence[Sequence[int]]) -> str:
    """Returns the sha256 of the examples, in their order."""
    return hashlib.sha256(repr([list(batch) for batch in consumed]).encode()).hexdigest()


def generate(folder: Path) -> Path:
    """Writes the shards of all three problems."""
    for problem in Mixed().components:
        generate_data(problem, folder, folder, num_processes=1, progress=False)
    return folder


def make_task(
    data_dir: Path, hparams: str = "", kind: type[Problem] = Numbered, workers: int = 1
) -> NotingTask:
    """Makes a task."""
    return NotingTask(
        kind(),
        registry.model("transformer"),
        registry.hparams("transformer_test").parse(HPARAMS).parse(hparams),
        data_dir=data_dir,
        vocab_dir=data_dir,
        loader_workers=workers,
    )


def run_directory(path: Path, task: ProblemTask, resume_data: str = "exact") -> RunDirectory:
    """Makes or opens a run's folder."""
    directory = RunDirectory(path)
    directory.begin(RECORD, task.hparams, resume_data=resume_data)
    return directory
