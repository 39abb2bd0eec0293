"""bAbI: questions about short synthetic stories, in twenty tasks with 1,000 training questions.

Source: Weston et al. 2015, "Towards AI-Complete Question Answering: A Set of Prerequisite Toy
Tasks", arXiv:1502.05698.  Licence: CC BY 3.0.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import RawFile, existing_files
from t2t_torch.mode import Split
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import VocabType

_TOP = "tasks_1-20_v1-2"
_ARCHIVE = RawFile(
    f"{_TOP}.tar.gz",  # checksum unknown
    ("babi", ""),
    (
        f"https://s3.amazonaws.com/text-datasets/babi_{_TOP}.tar.gz",
        f"http://www.thespermwhale.com/jaseweston/babi/{_TOP}.tar.gz",
    ),
    other_names=(f"babi_{_TOP}.tar.gz", "tasks_en-valid.tar.gz"),
)
_PARTS = {Split.TRAIN: "train", Split.EVAL: "valid", Split.TEST: "test"}
_WORD = re.compile(r"\w+|[^\w\s]")
_END_OF_QUESTION = "<EOQ>"  # tensor2tensor's separator between question and story


class BabiQaConcat(Text2ClassProblem):
    """Answers a question, followed by the story so far, with a class.

    The raw files are `en-valid/qa{1..20}_{train,valid,test}.txt`, or `en-valid-10k/...`, or the
    archive that contains them.  A list answer (tasks 8 and 19) is one class: "football,milk".
    tensor2tensor has no development split, and trains every task on all tasks, as `all_tasks` does.

    Attributes:
      folder: folder of the files, on disk or inside the archive.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    vocab_type = VocabType.WORD
    approx_vocab_size = 2**10
    suggested_flags = (
        "--model=transformer_encoder --hparams_set=transformer_encoder_small --train_steps=2000"
    )
    folder: ClassVar[str] = "en-valid"
    setting_names = (*Text2ClassProblem.setting_names, "tasks", "folder")

    @property
    @abstractmethod
    def tasks(self) -> tuple[int, ...]:
        """The task numbers."""

    def raw_files(self, tmp_dir: Path) -> list[Path]:
        """Returns the existing files of the tasks."""
        return existing_files(
            (file for split in self.shards for file in self._files(split)), tmp_dir
        )

    def prepare(self, tmp_dir: Path) -> None:
        """Downloads the files of the tasks."""
        for split in self.shards:
            for file in self._files(split):
                file.get(tmp_dir)

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the questions, task by task."""
        for file in self._files(split):
            yield from self._questions(file.get(tmp_dir))

    def _files(self, split: Split) -> list[RawFile]:
        inside = f"{_TOP}/{self.folder}", f"babi/{self.folder}"
        folders = (*inside, self.folder)
        names = [f"qa{task}_{_PARTS[split]}.txt" for task in self.tasks]
        return [RawFile(name, folders, archive=_ARCHIVE, inside=inside) for name in names]

    def _questions(self, path: Path) -> Iterator[dict[str, str]]:
        story: list[str] = []
        for record in open_records(path, format="lines", bad=self.bad_records):
            number, _, text = record.values["text"].partition(" ")
            sentence, *answer = text.split("\t")
            if not number.isdecimal() or not sentence or (answer and not answer[0]):
                why = "no number and sentence, or no answer after the tab"
                self.bad_records.report(record.place, why)
                continue
            if number == "1":
                story = []
            if answer:
                words = [*_WORD.findall(sentence), _END_OF_QUESTION, *story]
                yield {"inputs": " ".join(words), "targets": answer[0]}
            else:
                story += _WORD.findall(sentence)


@register_problem
class BabiQaConcatAllTasks_1k(BabiQaConcat):
    """All tasks."""

    tasks = tuple(range(1, 21))


@register_problem
class BabiQaConcatTask1_1k(BabiQaConcat):
    """Task 1: single supporting fact."""

    tasks = (1,)


@register_problem
class BabiQaConcatTask2_1k(BabiQaConcat):
    """Task 2: two supporting facts."""

    tasks = (2,)


@register_problem
class BabiQaConcatTask3_1k(BabiQaConcat):
    """Task 3: three supporting facts."""

    tasks = (3,)


@register_problem
class BabiQaConcatTask4_1k(BabiQaConcat):
    """Task 4: relations of two arguments."""

    tasks = (4,)


@register_problem
class BabiQaConcatTask5_1k(BabiQaConcat):
    """Task 5: relations of three arguments."""

    tasks = (5,)


@register_problem
class BabiQaConcatTask6_1k(BabiQaConcat):
    """Task 6: yes/no questions."""

    tasks = (6,)


@register_problem
class BabiQaConcatTask7_1k(BabiQaConcat):
    """Task 7: counting."""

    tasks = (7,)


@register_problem
class BabiQaConcatTask8_1k(BabiQaConcat):
    """Task 8: lists and sets."""

    tasks = (8,)


@register_problem
class BabiQaConcatTask9_1k(BabiQaConcat):
    """Task 9: simple negation."""

    tasks = (9,)


@register_problem
class BabiQaConcatTask10_1k(BabiQaConcat):
    """Task 10: indefinite knowledge."""

    tasks = (10,)


@register_problem
class BabiQaConcatTask11_1k(BabiQaConcat):
    """Task 11: basic coreference."""

    tasks = (11,)


@register_problem
class BabiQaConcatTask12_1k(BabiQaConcat):
    """Task 12: conjunction."""

    tasks = (12,)


@register_problem
class BabiQaConcatTask13_1k(BabiQaConcat):
    """Task 13: compound coreference."""

    tasks = (13,)


@register_problem
class BabiQaConcatTask14_1k(BabiQaConcat):
    """Task 14: reasoning about time."""

    tasks = (14,)


@register_problem
class BabiQaConcatTask15_1k(BabiQaConcat):
    """Task 15: basic deduction."""

    tasks = (15,)


@register_problem
class BabiQaConcatTask16_1k(BabiQaConcat):
    """Task 16: basic induction."""

    tasks = (16,)


@register_problem
class BabiQaConcatTask17_1k(BabiQaConcat):
    """Task 17: reasoning about positions."""

    tasks = (17,)


@register_problem
class BabiQaConcatTask18_1k(BabiQaConcat):
    """Task 18: reasoning about sizes."""

    tasks = (18,)


@register_problem
class BabiQaConcatTask19_1k(BabiQaConcat):
    """Task 19: path finding."""

    tasks = (19,)


@register_problem
class BabiQaConcatTask20_1k(BabiQaConcat):
    """Task 20: agents' motivations."""

    tasks = (20,)
