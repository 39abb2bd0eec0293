"""Language models of several tasks: each example is one text, with an id for its task.

Source: tensor2tensor's `multi_problem.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch import registry
from t2t_torch.data.publish import data_settings
from t2t_torch.data.raw_file import samples_of
from t2t_torch.data.vocabulary_builder import VocabularyBuilder, learn
from t2t_torch.errors import RegistryError
from t2t_torch.features import Features, Text
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.problem_types.classification import Text2ClassProblem, TextPair2ClassProblem
from t2t_torch.problem_types.mixture import MixtureProblem
from t2t_torch.text.encoder import TextEncoder
from t2t_torch.text_problem import Text2SelfProblem, Text2TextProblem, TextProblem

_SEPARATOR = "__"
_CLASSIFIERS = (Text2ClassProblem, TextPair2ClassProblem)


class TaskEncoder(TextEncoder):
    """Encodes texts with task markers: `inputs<|task|>targets`.

    The ids of the tasks follow those of the text encoder, then come the labels of each task in
    turn.  After the marker of a classification task a label is a single id.

    Args:
      text: encoder of everything else.
      labels: labels by task; empty for tasks that are not classifications.
      max_input_length: number of ids that are kept of the text before a marker; 0 for all.

    Attributes:
      text: the encoder of everything else.
      task_ids: id of each task.
      label_ids: ids of the labels by task, for the tasks that have some.
    """

    def __init__(
        self, text: TextEncoder, labels: Mapping[str, Sequence[str]], max_input_length: int = 0
    ) -> None:
        self.text = text
        self.is_lossless = text.is_lossless
        self._most = max_input_length
        start = text.vocab_size
        self.task_ids = {task: start + index for index, task in enumerate(labels)}
        end = start + len(labels)
        self.label_ids: dict[str, range] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._spelled = {identity: f"<|{task}|>" for task, identity in self.task_ids.items()}
        for task, own in labels.items():
            if own:
                self.label_ids[task] = range(end, end + len(own))
            for identity, label in enumerate(own, start=end):
                self._ids[task, label] = identity
                self._spelled[identity] = label
            end += len(own)
        self._vocab_size = end
        self._markers = re.compile("|".join(f"<\\|({re.escape(task)})\\|>" for task in labels))

    @property
    def vocab_size(self) -> int:
        """The number of ids of the text encoder, tasks and labels."""
        return self._vocab_size

    @property
    def unknown_ids(self) -> frozenset[int]:
        """Those of the text encoder."""
        return self.text.unknown_ids

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text and its markers.

        A label that the task does not have is encoded as text.
        """
        ids: list[int] = []
        task, start = "", 0
        for marker in self._markers.finditer(text):
            ids = join_task(self._piece(task, text[start : marker.start()], ids), None, self._most)
            task, start = str(next(filter(None, marker.groups()))), marker.end()
            ids = [*ids, self.task_ids[task]]
        return self._piece(task, text[start:], ids)

    def _piece(self, task: str, text: str, before: list[int]) -> list[int]:
        label = self._ids.get((task, text))
        return [*before, *(self.text.encode(text) if label is None else [label])]

    def _decode(self, ids: list[int]) -> str:
        parts, held = [], list[int]()
        for identity in ids:
            if identity in self._spelled:
                parts += [self.text.decode(held), self._spelled[identity]]
                held = []
            else:
                held.append(identity)
        return "".join([*parts, self.text.decode(held)])


def join_task(inputs: Sequence[int], task_id: int | None, max_input_length: int = 0) -> list[int]:
    """Returns truncated inputs, without an end symbol, and the id of the task if there is one."""
    kept = inputs[:max_input_length] if max_input_length else inputs
    return [*kept, *([] if task_id is None else [task_id])]


class TaskMixtureProblem(MixtureProblem):
    """A language model of several tasks, with an id of the task in each example.

    An example of a problem with inputs is the text `inputs<|problem|>targets`, of a language model
    `<|problem|>targets`.  Texts of all tasks have the vocabulary of the first problem.  Each task
    has an id and each class of a classification has one, in addition to those of the vocabulary.
    A model continues `inputs<|problem|>`.

    Each task has data of its own, under the name `<mixture>__<problem>`; `t2t-datagen` with the
    name of the mixture generates all.

    Attributes:
      problem_names: names of language models, text-to-text problems and classifications of texts or
        text pairs.
      mixing_schedule: proportions by step; by default half of the batches are of the first task.
      max_input_length: number of ids kept of the text before a task's id; 0 for all.
    """

    mixing_schedule: ClassVar[str] = "constant"
    max_input_length: ClassVar[int] = 0

    def __init__(self, *, reverse: bool = False, copy: bool = False) -> None:
        super().__init__(reverse=reverse, copy=copy)
        if self.mixing_schedule == "constant":
            others = len(self.problem_names) - 1
            shares = " ".join(["0.5", *[str(0.5 / others)] * others]) if others else "1"
            setattr(self, "mixing_schedule", shares)  # noqa: B010  of the class until here

    @property
    def components(self) -> Sequence[Problem]:
        """The tasks."""
        return [TaskProblem(self, index) for index in range(len(self.problem_names))]


class TaskProblem(Text2SelfProblem):
    """One task of a `TaskMixtureProblem`, as examples of a language model.

    Args:
      mixture: the mixture.
      index: number of the problem in it.

    Raises:
      RegistryError: a problem of the mixture is of an unsupported type.
    """

    name = "task"
    metrics = (*Text2SelfProblem.metrics, "label_accuracy")
    setting_names = ("task_settings",)
    optional_setting_names = ()

    def __init__(self, mixture: TaskMixtureProblem, index: int) -> None:
        super().__init__()
        self._mixture = mixture
        self._parts = [_supported(mixture, name) for name in mixture.problem_names]
        self._part = self._parts[index]
        for name, value in {
            "name": f"{mixture.name}{_SEPARATOR}{self._part.full_name}",
            "shards": self._part.shards,
            "suggested_flags": TaskMixtureProblem.suggested_flags,
        }.items():
            setattr(self, name, value)

    @property
    def full_name(self) -> str:
        """The name of the mixture, two underscores, and the full name of the problem."""
        return self.name

    @property
    def task_settings(self) -> dict[str, Any]:
        """The tasks in the order of their ids, and the settings of the problem."""
        return {
            "tasks": list(self._mixture.problem_names),
            "max_input_length": self._mixture.max_input_length,
            "problem": data_settings(self._part),
        }

    @property
    def vocab_files(self) -> tuple[str, ...]:
        """The vocabulary of the first problem, and the labels of all."""
        first = self._parts[0].vocab_filename
        labels = [learner.file for part in self._parts for learner in _label_learners(part)]
        return tuple(dict.fromkeys([*([] if first is None else [first]), *labels]))

    @property
    def kept_vocab_files(self) -> tuple[str, ...]:
        """All, as they belong to the problems."""
        return self.vocab_files

    def learners(self) -> Sequence[VocabularyBuilder]:
        """None: `build_vocab` has those of the problems build."""
        return ()

    def raw_files(self, tmp_dir: Path) -> Sequence[Path]:
        """Returns the raw files of the problem."""
        return self._part.raw_files(tmp_dir)

    def prepare(self, tmp_dir: Path) -> None:
        """Fetches the raw files of all problems, whose labels the vocabulary holds."""
        for part in self._parts:
            part.prepare(tmp_dir)

    def build_vocab(self, data_dir: Path, tmp_dir: Path) -> None:
        """Builds the vocabulary of the first problem, and the labels of all."""
        first = self._parts[0]
        if first.vocab_filename is not None and not (data_dir / first.vocab_filename).exists():
            first.build_vocab(data_dir, tmp_dir)
        for part in self._parts:
            absent = [one for one in _label_learners(part) if not (data_dir / one.file).exists()]
            if absent:
                learn(absent, samples_of(part, tmp_dir, Split.TRAIN), data_dir)

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the samples of the problem as texts with a marker."""
        part = self._part
        part.bad_records = self.bad_records
        fields = [field for field in part.text_fields if field != "targets"]
        for sample in part.generate_samples(tmp_dir, split):
            inputs = "\n".join(sample[field] for field in fields)
            yield {"targets": f"{inputs}<|{part.full_name}|>{sample['targets']}"}

    def stored_features(self, directory: Path) -> Features:
        """Returns the text."""
        labels: dict[str, Sequence[str]] = {}
        for part in self._parts:
            is_class = isinstance(part, _CLASSIFIERS)
            own = part.label_encoder(directory, "targets").labels if is_class else ()
            labels[part.full_name] = own
        most = self._mixture.max_input_length
        encoder = TaskEncoder(self._parts[0].encoder(directory), labels, most)
        return Features({}, {"targets": Text(encoder)})


def _supported(mixture: TaskMixtureProblem, name: str) -> TextProblem:
    """Returns a problem of a mixture; RegistryError if its examples are not texts."""
    part = registry.problem(name)
    kinds = (Text2TextProblem, *_CLASSIFIERS)
    is_soft = isinstance(part, Text2ClassProblem) and part.soft_labels
    if not isinstance(part, kinds) or is_soft or part.was_reversed or part.was_copy:
        raise RegistryError(
            f"{mixture.name!r} makes one language model of several problems, and cannot have "
            f"{name!r}. Name language models, text-to-text problems without _rev and _copy, and "
            "classifications of texts or of text pairs with one label."
        )
    return part


def _label_learners(part: TextProblem) -> list[VocabularyBuilder]:
    return part.label_learner("targets") if isinstance(part, _CLASSIFIERS) else []
