"""SQuAD: 108,000 questions about Wikipedia paragraphs; version 2.0 adds 54,000 without answers.

Source: Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text", and
2018, "Know What You Don't Know".  Licence: CC BY-SA 4.0.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile
from t2t_torch.mode import Split
from t2t_torch.problem_types.text2text import QuestionContext2TextProblem
from t2t_torch.problem_types.words import SpanQAProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem

_MIRRORS = (
    "https://rajpurkar.github.io/SQuAD-explorer/dataset/",
    "https://raw.githubusercontent.com/rajpurkar/SQuAD-explorer/master/dataset/",
)
# Checksums: 1.1 from TensorFlow Datasets, url_checksums/squad.txt; 2.0 from Hugging Face datasets,
# datasets/squad_v2/dataset_infos.json.
_SHA256 = {
    "train-v1.1.json": "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
    "dev-v1.1.json": "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
    "train-v2.0.json": "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002",
    "dev-v2.0.json": "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8",
}
_FILES = {
    name: RawFile(name, ("squad", ""), [mirror + name for mirror in _MIRRORS], sha256)
    for name, sha256 in _SHA256.items()
}


class SquadProblem(SpanQAProblem):
    """Questions of any file in SQuAD format, with or without answers."""

    def questions(
        self, path: Path, wanted: Callable[[int], bool] = lambda article: True
    ) -> Iterator[dict[str, Any]]:
        """Yields a sample for each question of a file.

        Args:
          path: the file.
          wanted: selects articles by their number, from 0.

        Raises:
          DataError: the file is not in SQuAD format.
        """
        records = open_records(path, format="squad", bad=self.bad_records)
        articles = itertools.groupby(records, key=lambda record: record.values["title"])
        for number, (_, article) in enumerate(articles):
            if wanted(number):
                for record in article:
                    names = ("question", "context", "answers")
                    yield {name: record.values[name] for name in names}

    @abstractmethod
    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the `questions` of the split's file, or a subset of them."""


@register_problem("squad")
class Squad(SquadProblem):
    """Questions of version 1.1, all with answers; EVAL is its development set.

    tensor2tensor's `squad` generates the answer text, as `squad_context2text` does.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1}
    sources = (_FILES["train-v1.1.json"], _FILES["dev-v1.1.json"])

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the questions of a split."""
        yield from self.questions(_file(self.sources, split).get(tmp_dir))


@register_problem("squad_v2")
class SquadV2(Squad):
    """Questions of version 2.0, a third without answers; EVAL is its development set."""

    sources = (_FILES["train-v2.0.json"], _FILES["dev-v2.0.json"])


@register_problem("squad_context2text")
class SquadContext2Text(QuestionContext2TextProblem):
    """Questions of version 1.1 with the first answer as generated text."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1}
    sources = Squad.sources
    input_space_id = 3  # tensor2tensor's SpaceID.EN_TOK
    target_space_id = 3

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the questions of a split."""
        path = _file(self.sources, split).get(tmp_dir)
        for record in open_records(path, format="squad", bad=self.bad_records):
            question, context, answers = (
                record.values[name] for name in ("question", "context", "answers")
            )
            yield {"inputs": question, "context": context, "targets": answers[0]["text"]}


def _file(sources: tuple[RawFile, ...], split: Split) -> RawFile:
    train, development = sources
    return train if split is Split.TRAIN else development
