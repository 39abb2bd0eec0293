"""bAbI: questions about short stories, in twenty tasks with 1,000 or 10,000 training questions.

Source: Weston et al. 2015, "Towards AI-Complete Question Answering: A Set of Prerequisite Toy
Tasks", arXiv:1502.05698.  Licence: CC BY 3.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import RawFile
from t2t_torch.mode import Split
from t2t_torch.problem import records_of
from t2t_torch.problem_types.classification import Text2ClassProblem
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


class _BabiQaConcat(Text2ClassProblem):
    """Answers a question, followed by the story so far, with a class.

    The raw files are `en-valid/qa{1..20}_{train,valid,test}.txt`, or `en-valid-10k/...`, or the
    archive that contains them.  A list answer (tasks 8 and 19) is one class: "football,milk".
    tensor2tensor has no development split, and trains every task on all tasks, as `all_tasks` does.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    vocab_type = VocabType.WORD
    approx_vocab_size = 2**10
    suggested_flags = (
        "--model=transformer_encoder --hparams_set=transformer_encoder_small --train_steps=2000"
    )
    setting_names = (*Text2ClassProblem.setting_names, "tasks", "folder")

    @property
    def tasks(self) -> tuple[int, ...]:
        """The task numbers: that of the problem's name, or all."""
        task = re.search(r"_task(\d+)_", self.name)
        return (int(task[1]),) if task else tuple(range(1, 21))

    @property
    def folder(self) -> str:
        """Folder of the files, on disk or inside the archive."""
        return "en-valid-10k" if self.name.endswith("_10k") else "en-valid"

    @property
    def sources(self) -> Mapping[Split, Sequence[RawFile]]:  # type: ignore[override]
        """The files of the tasks."""
        inside = f"{_TOP}/{self.folder}", f"babi/{self.folder}"
        folders = (*inside, self.folder)
        return {
            split: [
                RawFile(f"qa{task}_{part}.txt", folders, archive=_ARCHIVE, inside=inside)
                for task in self.tasks
            ]
            for split, part in _PARTS.items()
        }

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the questions, task by task."""
        story: list[str] = []
        for record in records_of(self, tmp_dir, split, "lines"):
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
class BabiQaConcatAllTasks_1k(_BabiQaConcat):
    """All tasks."""


@register_problem
class BabiQaConcatTask1_1k(_BabiQaConcat):
    """Task 1: single supporting fact."""


@register_problem
class BabiQaConcatTask2_1k(_BabiQaConcat):
    """Task 2: two supporting facts."""


@register_problem
class BabiQaConcatTask3_1k(_BabiQaConcat):
    """Task 3: three supporting facts."""


@register_problem
class BabiQaConcatTask4_1k(_BabiQaConcat):
    """Task 4: relations of two arguments."""


@register_problem
class BabiQaConcatTask5_1k(_BabiQaConcat):
    """Task 5: relations of three arguments."""


@register_problem
class BabiQaConcatTask6_1k(_BabiQaConcat):
    """Task 6: yes/no questions."""


@register_problem
class BabiQaConcatTask7_1k(_BabiQaConcat):
    """Task 7: counting."""


@register_problem
class BabiQaConcatTask8_1k(_BabiQaConcat):
    """Task 8: lists and sets."""


@register_problem
class BabiQaConcatTask9_1k(_BabiQaConcat):
    """Task 9: simple negation."""


@register_problem
class BabiQaConcatTask10_1k(_BabiQaConcat):
    """Task 10: indefinite knowledge."""


@register_problem
class BabiQaConcatTask11_1k(_BabiQaConcat):
    """Task 11: basic coreference."""


@register_problem
class BabiQaConcatTask12_1k(_BabiQaConcat):
    """Task 12: conjunction."""


@register_problem
class BabiQaConcatTask13_1k(_BabiQaConcat):
    """Task 13: compound coreference."""


@register_problem
class BabiQaConcatTask14_1k(_BabiQaConcat):
    """Task 14: reasoning about time."""


@register_problem
class BabiQaConcatTask15_1k(_BabiQaConcat):
    """Task 15: basic deduction."""


@register_problem
class BabiQaConcatTask16_1k(_BabiQaConcat):
    """Task 16: basic induction."""


@register_problem
class BabiQaConcatTask17_1k(_BabiQaConcat):
    """Task 17: reasoning about positions."""


@register_problem
class BabiQaConcatTask18_1k(_BabiQaConcat):
    """Task 18: reasoning about sizes."""


@register_problem
class BabiQaConcatTask19_1k(_BabiQaConcat):
    """Task 19: path finding."""


@register_problem
class BabiQaConcatTask20_1k(_BabiQaConcat):
    """Task 20: agents' motivations."""


@register_problem
class BabiQaConcatAllTasks_10k(_BabiQaConcat):
    """All tasks."""


@register_problem
class BabiQaConcatTask1_10k(_BabiQaConcat):
    """Task 1: single supporting fact."""


@register_problem
class BabiQaConcatTask2_10k(_BabiQaConcat):
    """Task 2: two supporting facts."""


@register_problem
class BabiQaConcatTask3_10k(_BabiQaConcat):
    """Task 3: three supporting facts."""


@register_problem
class BabiQaConcatTask4_10k(_BabiQaConcat):
    """Task 4: relations of two arguments."""


@register_problem
class BabiQaConcatTask5_10k(_BabiQaConcat):
    """Task 5: relations of three arguments."""


@register_problem
class BabiQaConcatTask6_10k(_BabiQaConcat):
    """Task 6: questions of yes and no."""


@register_problem
class BabiQaConcatTask7_10k(_BabiQaConcat):
    """Task 7: counting."""


@register_problem
class BabiQaConcatTask8_10k(_BabiQaConcat):
    """Task 8: lists and sets."""


@register_problem
class BabiQaConcatTask9_10k(_BabiQaConcat):
    """Task 9: simple negation."""


@register_problem
class BabiQaConcatTask10_10k(_BabiQaConcat):
    """Task 10: indefinite knowledge."""


@register_problem
class BabiQaConcatTask11_10k(_BabiQaConcat):
    """Task 11: basic coreference."""


@register_problem
class BabiQaConcatTask12_10k(_BabiQaConcat):
    """Task 12: conjunction."""


@register_problem
class BabiQaConcatTask13_10k(_BabiQaConcat):
    """Task 13: compound coreference."""


@register_problem
class BabiQaConcatTask14_10k(_BabiQaConcat):
    """Task 14: reasoning about time."""


@register_problem
class BabiQaConcatTask15_10k(_BabiQaConcat):
    """Task 15: basic deduction."""


@register_problem
class BabiQaConcatTask16_10k(_BabiQaConcat):
    """Task 16: basic induction."""


@register_problem
class BabiQaConcatTask17_10k(_BabiQaConcat):
    """Task 17: reasoning about positions."""


@register_problem
class BabiQaConcatTask18_10k(_BabiQaConcat):
    """Task 18: reasoning about sizes."""


@register_problem
class BabiQaConcatTask19_10k(_BabiQaConcat):
    """Task 19: path finding."""


@register_problem
class BabiQaConcatTask20_10k(_BabiQaConcat):
    """Task 20: agents' motivations."""
