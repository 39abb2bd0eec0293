"""The configuration of an experiment, as PEDL's and Determined's users have it."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import ConfigError
from t2t_torch.trial.experiment import ExperimentConfig, Length, LengthScale

WHOLE = """\
name: mnist
description: mnist with two layers
labels: [mnist, small]
data:
  url: https://example.org/mnist.tar.gz
  released: 2019-10-31
  classes: {0: zero, 1: one}
entrypoint: model_def:MNistTrial
hyperparameters:
  learning_rate: 1e-3
  layer:
    width: {type: int, minval: 8, maxval: 64}
searcher:
  name: adaptive_asha
  metric: error
  smaller_is_better: false
  max_length: {epochs: 8}
  max_trials: 16
  max_concurrent_trials: 2
  mode: aggressive
  divisor: 3
  max_rungs: 4
  bracket_rungs: [1, 2]
  source_checkpoint: before
batches_per_step: 50
records_per_epoch: 6000
min_validation_period: 2
min_checkpoint_period: {batches: 200}
checkpoint_policy: all
save_trial_best: 2
save_trial_latest: 3
save_experiment_best: 1
perform_initial_validation: true
max_restarts: 0
resources: {slots_per_trial: 2}
optimizations:
  aggregation_frequency: 4
  average_aggregated_gradients: false
  mixed_precision: O1
reproducibility: {experiment_seed: 777}
"""


def read(tmp_path: Path, text: str) -> ExperimentConfig:
    path = tmp_path / "experiment.yaml"
    path.write_text(text, "utf-8")
    return ExperimentConfig.read(path)


def refused(written: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        ExperimentConfig.from_dict(written, source="exp.yaml")
    return str(caught.value)


def test_every_key_of_the_document_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, WHOLE)
    assert config.labels == ("mnist", "small")
    assert config.data["classes"] == {0: "zero", 1: "one"}
    assert config.searcher.length == Length(8, "epochs")
    assert (config.searcher.name, config.searcher.bracket_rungs) == ("adaptive_asha", (1, 2))
    assert config.min_validation_period == Length(2, "steps")
    assert config.min_checkpoint_period == Length(200, "batches")
    assert config.optimizations.mixed_precision == "O1"
    assert config.reproducibility.experiment_seed == 777
    assert config.ignored == ()


def test_an_empty_mapping_has_the_defaults_of_the_document() -> None:
    config = ExperimentConfig.from_dict({})
    assert (config.batches_per_step, config.max_restarts) == (100, 5)
    assert (config.searcher.name, config.searcher.smaller_is_better) == ("single", True)
    assert (config.searcher.divisor, config.searcher.max_rungs) == (4, 5)
    assert config.searcher.max_concurrent_trials == 16
    assert (config.resources.slots_per_trial, config.searcher.length) == (1, None)
    assert config.min_validation_period is None


def test_numbers_are_read_as_they_are_written(tmp_path: Path) -> None:
    values = "{a: 1e-3, b: 1E5, c: -2.5e+1, d: .5, e: 1_000, f: '1e-3', g: 1:30, h: 0x1f, i: 1.2.3}"
    config = read(tmp_path, f"hyperparameters: {values}")
    assert config.hyperparameters == {
        "a": 0.001, "b": 1e5, "c": -25.0, "d": 0.5, "e": 1000,
        "f": "1e-3", "g": "1:30", "h": 31, "i": "1.2.3",
    }  # fmt: skip
    assert type(config.hyperparameters["e"]) is int


def test_dates_stay_texts(tmp_path: Path) -> None:
    assert read(tmp_path, WHOLE).data["released"] == "2019-10-31"


def test_a_key_that_stands_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"line 4, column 3: the key 'b' stands on line 3 already"
    ):
        read(tmp_path, "data: {}\nhyperparameters:\n  b: 1\n  b: 2\n")


def test_merged_mappings_may_be_overridden(tmp_path: Path) -> None:
    config = read(tmp_path, "data:\n  one: &one {x: 1, y: 2}\n  two: {<<: *one, x: 3}\n")
    assert config.data["two"] == {"x": 3, "y": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2", "line 1, column 9"),
        ("", "holds nothing"),
        ("- a\n- b\n", "holds a list"),
        ("data: !!python/object/apply:os.getcwd []\n", "line 1, column 7"),
        ("data: \x07\n", "is no YAML"),
    ],
)
def test_what_is_no_mapping_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read"):
        ExperimentConfig.read(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"description: \xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.yaml cannot be read"):
        ExperimentConfig.read(tmp_path / "latin.yaml")


def test_keys_of_clusters_are_accepted_and_told(tmp_path: Path) -> None:
    text = (
        "bind_mounts: [{host_path: /a, container_path: b}]\n"
        "environment: {image: pytorch, environment_variables: [A=1]}\n"
        "checkpoint_storage: {type: shared_fs, host_path: /tmp, save_trial_best: 4}\n"
        "resources: {slots_per_trial: 1, resource_pool: gpu}\n"
        "optimizations: {gradient_compression: false}\n"
    )
    config = read(tmp_path, text)
    assert config.ignored == (
        "bind_mounts",
        "environment",
        "checkpoint_storage",
        "resources.resource_pool",
        "optimizations.gradient_compression",
    )
    assert config.save_trial_best == 4


def test_how_many_checkpoints_are_kept_is_said_once() -> None:
    both = {"save_trial_best": 1, "checkpoint_storage": {"save_trial_best": 2}}
    assert "save_trial_best is 1 at the top and 2 in checkpoint_storage" in refused(both)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"serchr": {}}, "exp.yaml: serchr: there is no such key. Did you mean searcher?"),
        (
            {"searcher": {"max_step": 3}},
            "searcher.max_step: there is no such key. Did you mean max_step",
        ),
        (
            {"optimizations": {"xyz": 2}},
            "optimizations.xyz: there is no such key. There are: aggre",
        ),
        (
            {"searcher": {"name": "single_"}},
            "searcher.name: 'single_': should be 'adaptive_asha', 'asha'",
        ),
        ({"searcher": {"name": "random"}}, "a search (random) needs metric"),
        ({"searcher": {"max_steps": "4"}}, "searcher.max_steps: '4': should be a valid integer."),
        ({"searcher": {"max_steps": 0}}, "searcher.max_steps: 0: should be greater than or equal"),
        ({"searcher": {"max_length": 500}}, "such as {batches: 1000}"),
        ({"searcher": {"max_length": {"batches": 0}}}, "such as {batches: 1000}"),
        ({"searcher": {"max_length": {"batches": 1, "epochs": 1}}}, "such as {batches: 1000}"),
        ({"searcher": {"max_time": 9}}, "max_time needs time_metric"),
        ({"searcher": {"max_steps": 1, "max_length": {"epochs": 1}}}, "keep one of them"),
        ({"searcher": {"step_budget": 4}}, "step_budget needs target_trial_steps"),
        (
            {"searcher": {"step_budget": 4, "max_trials": 2, "max_steps": 2}},
            "step_budget and max_trials both say how much to train",
        ),
        ({"entrypoint": {"script": "mnist.py"}}, "should be a valid string"),
        ({"entrypoints": {"trial_class": "MyTrial"}}, "expected module:name, such as"),
        ({"entrypoints": {"data_loader": "a:b"}}, "Did you mean data_loaders_function"),
        ({"searcher": {"source_trial_id": 4}}, "Write source_checkpoint"),
        ({"min_validation_period": {"epoch": 1}}, "min_validation_period: {'epoch': 1}: expected"),
        ({"min_checkpoint_period": True}, "min_checkpoint_period: True: expected"),
        ({"batches_per_step": True}, "batches_per_step: True: should be a valid integer."),
        ({"max_restarts": -1}, "max_restarts: -1: should be greater than or equal to 0."),
        ({"resources": 3}, "resources: 3: should be a section of keys: distributed, optim"),
        ({"labels": "x"}, "labels: 'x': should be a list."),
        ({"data": [1]}, "data: [1]: should be a mapping of keys."),
        ({3: 4}, "3: Keys should be strings."),
        ({"reproducibility": {"experiment_seed": -1}}, "experiment_seed: -1: should be greater"),
    ],
)
def test_what_is_wrong_is_told_by_its_dotted_name(written: Any, message: str) -> None:
    assert message in refused(written)


@pytest.mark.parametrize(
    ("searcher", "trials"),
    [
        # rungs of 1, 4 and 16 steps; 16 + 3 * 4 + 12 * 1 = 40 steps for 16 that begin
        ({"target_trial_steps": 16, "step_budget": 80, "mode": "aggressive", "max_rungs": 3}, 32),
        # brackets of 3 and 2 rungs: 40 steps each; the second: 4 * 4 + 12 = 28 steps for 4
        ({"target_trial_steps": 16, "step_budget": 80, "max_rungs": 3}, 16 + 5),
        ({"target_trial_steps": 16, "step_budget": 1, "bracket_rungs": [1, 2]}, 2),
        ({"max_steps": 16, "max_trials": 7}, 7),
    ],
)
def test_a_budget_of_steps_says_how_many_trainings_begin(searcher: Any, trials: int) -> None:
    written = {"searcher": {"name": "adaptive", "metric": "error", **searcher}}
    assert ExperimentConfig.from_dict(written).searcher.trials == trials


def test_all_that_is_wrong_is_told_at_once() -> None:
    message = refused({"max_restarts": -1, "labels": "x", "searcher": {"nme": "single"}})
    assert [key in message for key in ("max_restarts", "labels", "searcher.nme")] == [True] * 3


def test_unknown_keys_are_the_users_own_below_data_and_hyperparameters() -> None:
    own = {"data": {"searcher": {"x": [None]}}, "hyperparameters": {"maxx": {"y": 1}}}
    config = ExperimentConfig.from_dict(own)
    assert (config.data, config.hyperparameters) == (own["data"], own["hyperparameters"])


def test_empty_sections_are_defaults(tmp_path: Path) -> None:
    config = read(tmp_path, "data:\nhyperparameters:\nsearcher:\nresources:\n")
    assert (config.data, config.hyperparameters) == ({}, {})
    assert config.resources.slots_per_trial == 1


def test_the_trial_is_handed_what_is_written_with_defaults_and_the_chosen_values(
    tmp_path: Path,
) -> None:
    text = "environment: {image: x}\nsearcher: {metric: error}\nhyperparameters: {a: {type: int}}\n"
    config = read(tmp_path, text)
    hparams = {"a": 3, "b": {"c": [1]}}
    whole = config.resolved(hparams)
    assert whole["hyperparameters"] == hparams
    assert whole["environment"] == {"image": "x"}
    assert whole["searcher"]["metric"] == "error"
    assert whole["searcher"]["name"] == "single"
    assert whole["batches_per_step"] == 100
    assert whole["data"] == {}
    whole["hyperparameters"]["b"]["c"].append(2)
    whole["environment"]["image"] = "y"
    assert hparams["b"] == {"c": [1]}
    assert config.resolved({})["environment"] == {"image": "x"}


def test_what_a_trial_is_handed_can_be_read_again() -> None:
    storage = {"type": "s3", "save_trial_best": 2}
    written = {"checkpoint_storage": storage, "min_validation_period": {"epochs": 2}}
    config = ExperimentConfig.from_dict(written)
    again = ExperimentConfig.from_dict(config.resolved({}))
    assert again.model_dump() == config.model_dump()


# 2 processes, 4 batches each in an optimizer step, 32 records in a batch: 256 records in a step.
SCALE = LengthScale(
    batches_per_step=50,
    aggregation_frequency=4,
    world_size=2,
    records_per_batch=32.0,
    batches_per_epoch=100,
)


@pytest.mark.parametrize(
    ("length", "steps", "period"),
    [
        (Length(3, "steps"), 38, 37),  # 150 batches
        (Length(4, "batches"), 1, 1),
        (Length(5, "batches"), 2, 1),
        (Length(1, "batches"), 1, 1),
        (Length(25_600, "records"), 100, 100),
        (Length(25_601, "records"), 101, 100),
        (Length(2, "epochs"), 25, 25),
        (Length(1, "epochs"), 13, 12),
    ],
)
def test_lengths_are_rounded_up_and_periods_down(length: Length, steps: int, period: int) -> None:
    assert SCALE.steps(length) == steps
    assert SCALE.period(length, "min_validation_period") == period


def test_epochs_of_a_loader_without_a_length_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"searcher\.max_length is 2 epochs, but the training"):
        LengthScale().steps(Length(2, "epochs"))


def test_records_per_epoch_says_how_long_an_epoch_is(tmp_path: Path) -> None:
    source = types.SimpleNamespace(records_per_batch=60.0, batches_per_epoch=None)
    scale = read(tmp_path, WHOLE).scale(source)
    assert scale.batches_per_epoch == 100
    assert scale.steps(Length(8, "epochs")) == 200  # 4 batches in a step


def test_reading_a_configuration_imports_no_torch() -> None:
    script = (
        "import sys; from t2t_torch.trial.experiment import ExperimentConfig; "
        "ExperimentConfig.from_dict({}); print({'torch', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
