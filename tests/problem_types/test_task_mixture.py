"""Mixing and examples of several tasks, against those of tensor2tensor 1.15.7."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from t2t_torch import registry, testing
from t2t_torch.data.generate import generate_data
from t2t_torch.errors import DataError, RegistryError, UsageError
from t2t_torch.mode import Split
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.problem_types.mixture import MixingSchedule, first_schedule
from t2t_torch.problem_types.task_mixture import TaskEncoder, TaskMixtureProblem, join_task
from t2t_torch.text.encoder import EOS, ByteEncoder
from t2t_torch.text_problem import Text2SelfProblem, Text2TextProblem, VocabType

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "mixing.json").read_text("utf-8"))


@pytest.mark.parametrize("case", GOLDEN["schedules"], ids=lambda case: case["string"])
def test_schedules_have_tensor2tensors_probabilities(case: dict[str, Any]) -> None:
    schedule = MixingSchedule.parse(case["string"], len(case["pmf"][0]))
    assert [schedule.kind, list(schedule.steps)] == case["decoded"][:2]
    np.testing.assert_allclose(schedule.at(np.asarray(case["steps"])), case["pmf"], atol=3e-8)


def first(problems: int, **settings: Any) -> MixingSchedule:
    values = {"threshold": 0.5, "max_examples": 1e7, "per_task": "", **settings}
    text = first_schedule(values.pop("schedule", "constant"), problems, **values)
    return MixingSchedule.parse(text, problems)


# The row of ten million examples is left out: there float32 loses a quarter of the value.
@pytest.mark.parametrize(
    "case", [case for case in GOLDEN["v1"]["probability"] if case["max_examples"] < 5000]
)
def test_the_others_have_tensor2tensors_probability(case: dict[str, Any]) -> None:
    settings = {name: case[name] for name in ("threshold", "max_examples") if name in case}
    for problems in (2, 4):
        schedule = first(problems, schedule=case["schedule"], **settings)
        shares = schedule.at(np.asarray(case["step"]) - 1)  # there the first example is 1
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)
        others = shares[:, 1:]
        np.testing.assert_allclose(others.sum(axis=1), case["prob_secondary"], rtol=1e-4)
        np.testing.assert_allclose(others, np.broadcast_to(others[:, :1], others.shape))


@pytest.mark.parametrize("case", GOLDEN["v1"]["selection"])
def test_the_shares_are_those_of_tensor2tensors_selection(case: dict[str, Any]) -> None:
    overrides = case["overrides"]
    per_task = overrides.get("multiproblem_per_task_threshold", "")
    threshold = overrides.get("multiproblem_schedule_threshold", 0.5)
    shares = first(case["num_tasks"], per_task=per_task, threshold=threshold).at(np.zeros(1))[0]
    # By thresholds the first task has the smallest numbers, else the last one.
    order = range(len(shares)) if per_task else range(len(shares))[::-1]
    ends = np.cumsum([shares[task] for task in order])
    side: Any = "right" if per_task else "left"
    for number, chosen in zip(case["random_number"], case["chosen_task_id"], strict=True):
        place = int(np.searchsorted(ends - 1e-9 if per_task else ends + 1e-9, number, side=side))
        assert case["task_ids"][order[place]] == chosen


def test_rates_and_constant_proportions_are_normalized_as_in_tensor2tensor() -> None:
    for case in GOLDEN["example_rates_to_pmf"]:
        schedule = MixingSchedule.parse(" ".join(map(str, case["rates"])), len(case["rates"]))
        np.testing.assert_allclose(schedule.shares[0], case["pmf"])
    sizes = GOLDEN["epoch_rates_to_pmf"][0]
    by_size = MixingSchedule.parse("by_size", 2).of_sizes(sizes["num_training_examples"])
    np.testing.assert_allclose(by_size.shares[0], sizes["pmf"])
    for case in GOLDEN["constant_schedule"]:
        schedule = MixingSchedule.parse(case["encoded"], len(case["pmf"]))
        np.testing.assert_allclose(schedule.shares[0], case["pmf"])


def test_a_malformed_exponential_schedule_is_named() -> None:
    for text in ("exponential 1 1", "exponential @0 1 1", "exponential @5 1 1 @9 1 1"):
        with pytest.raises(DataError, match="mixing_schedule"):
            MixingSchedule.parse(text, 2)
    with pytest.raises(DataError, match="mixes several problems"):
        first(1)


# `fixed_train_length`, padding for TPUs, does not exist here.
EXAMPLES = [case for case in GOLDEN["normalize_example_nlp"] if case["fixed_train_length"] < 0]


@pytest.mark.parametrize("case", EXAMPLES)
def test_examples_are_joined_as_in_tensor2tensor(case: dict[str, Any]) -> None:
    example, offset = case["example"], case["vocab_offset"]
    offset = 50 if case["vocab_type"] == "character" else offset
    inputs, targets = example.get("inputs", [EOS])[:-1], example["targets"]
    if case["num_classes"]:  # cut in no classification there
        joined, targets = join_task(inputs, case["task_id"]), [targets[0] + offset]
    else:
        joined = join_task(inputs, case["task_id"], max(0, case["max_input_length"]))
        if case["has_inputs"] and not case["is_infer"] and case["max_target_length"] > 0:
            targets = targets[: case["max_target_length"]]  # here hparam max_target_seq_length
    if case["is_infer"] and case["has_inputs"]:
        assert joined == case["result"]["inputs"]
    else:
        assert [*joined, *targets] == case["result"]["targets"]


def test_markers_and_labels_have_ids_after_those_of_the_text() -> None:
    labels = {"lm": (), "mood": ("bad", "good"), "topic": ("a", "b", "good")}
    encoder = TaskEncoder(ByteEncoder(), labels, max_input_length=4)
    assert encoder.vocab_size == 258 + 3 + 5
    assert encoder.task_ids == {"lm": 258, "mood": 259, "topic": 260}
    assert encoder.label_ids == {"mood": range(261, 263), "topic": range(263, 266)}
    assert encoder.encode("fine<|mood|>good") == [*ByteEncoder().encode("fine"), 259, 262]
    assert encoder.encode("fine<|topic|>good")[-2:] == [260, 265]
    assert encoder.encode("<|lm|>good") == [258, *ByteEncoder().encode("good")]
    assert encoder.encode("excellent<|mood|>")[-2:] == [ByteEncoder().encode("e")[0], 259]
    assert encoder.encode("x<|mood|>odd")[-3:] == ByteEncoder().encode("odd")  # no such label
    for text in ("fine<|mood|>good", "<|lm|>good day", "a<|topic|>a", "no <|marker|>"):
        assert TaskEncoder(ByteEncoder(), labels).decode(encoder.encode(text)) in (text, text[:4])
    assert encoder.decode([262, EOS]) == "good"


class Story(Text2SelfProblem):
    """A language model."""

    name = "story"
    vocab_type = VocabType.WORD
    shards: ClassVar = {Split.TRAIN: 1, Split.EVAL: 1}

    def generate_samples(self, tmp_dir: Path, split: Split) -> Any:
        yield from ({"targets": f"the dog runs {'far ' * (i % 3)}home"} for i in range(12))


class Mood(Text2ClassProblem):
    """A classification with learnt labels."""

    name = "mood"
    vocab_type = VocabType.WORD
    shards: ClassVar = {Split.TRAIN: 1, Split.EVAL: 1}

    def generate_samples(self, tmp_dir: Path, split: Split) -> Any:
        for i in range(12):
            yield {"inputs": "the dog " * (1 + i % 2), "targets": ("good", "bad")[i % 2]}


class Back(Text2TextProblem):
    """A text-to-text task."""

    name = "back"
    vocab_type = VocabType.WORD
    shards: ClassVar = {Split.TRAIN: 1, Split.EVAL: 1}

    def generate_samples(self, tmp_dir: Path, split: Split) -> Any:
        yield from ({"inputs": "dog the", "targets": "the dog"} for _ in range(6))


class Tasks(TaskMixtureProblem):
    """All of them."""

    name = "tasks"
    problem_names = ("story", "mood", "back")


@pytest.fixture
def tasks(own_registry: None) -> TaskMixtureProblem:
    for kind in (Story, Mood, Back, Tasks):
        registry.register_problem(kind.name)(kind)
    made = registry.problem("tasks")
    assert isinstance(made, TaskMixtureProblem)
    return made


def test_each_task_has_data_of_its_own_in_one_vocabulary(
    tasks: TaskMixtureProblem, tmp_path: Path
) -> None:
    (tmp_path / "check").mkdir()
    testing.check_problem(tasks, tmp_path / "check", tmp_path)
    assert tasks.mixing_schedule == "0.5 0.25 0.25"
    features = set()
    for part in tasks.components:
        assert registry.problem(part.full_name).full_name == part.full_name
        manifest = generate_data(part, tmp_path, tmp_path, num_processes=1, progress=False)
        manifest.verify(tmp_path)
        text = part.features(tmp_path).targets["targets"]
        features.add(text.vocab_size)
    assert [part.full_name for part in tasks.components] == [
        "tasks__story",
        "tasks__mood",
        "tasks__back",
    ]
    assert len(features) == 1
    assert text.decode(text.encode("the dog<|mood|>bad")) == "the dog<|mood|>bad"


def test_tasks_that_are_no_texts_are_refused(own_registry: None) -> None:
    class Wrong(TaskMixtureProblem):
        problem_names = ("tiny_algo", "languagemodel_ptb10k")

    registry.register_problem("wrong")(Wrong)
    with pytest.raises(RegistryError, match="cannot have 'tiny_algo'"):
        registry.problem("wrong")
    with pytest.raises(UsageError, match="none of the problems of"):
        registry.problem("languagemodel_lm1b_multi_nli__cola")


def test_positions_before_and_after_a_task_are_tensor2tensors() -> None:
    torch = pytest.importorskip("torch")
    from t2t_torch.losses.cross_entropy import after_task

    cases = {case["function"]: case for case in GOLDEN["weights"]}
    labels = torch.tensor(cases["weights_multi_problem"]["labels"])
    rows = (labels == 53).any(1)  # its weights of other tasks' rows are 0
    after = after_task(labels, 53, 53)[rows]
    whole = (labels != 0)[rows]
    for name, found in (("", after), ("_input", whole & ~after), ("_all", whole)):
        expected = torch.tensor(cases[f"weights_multi_problem{name}"]["weights"])[rows]
        assert torch.equal(found.float(), expected)
