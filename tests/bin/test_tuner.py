"""What `t2t-tuner` asks for, and what it refuses."""

from __future__ import annotations

import json
import sys

import pytest

from t2t_torch import registry
from t2t_torch.bin.commands import tuner
from t2t_torch.search_space import Double, LogDouble
from t2t_torch.trial import search as trial_search
from t2t_torch.tune.study import open_storage
from t2t_torch.workflows import search_settings
from t2t_torch.workflows.search_settings import recall, remember, requested_search

EXPERIMENT = """
description: tiny
data: {}
hyperparameters:
  rate: {type: log, minval: -4, maxval: -1, base: 10, count: 2}
  net: {width: {type: int, minval: 8, maxval: 32}, depth: 2}
searcher:
  name: random
  metric: error
  smaller_is_better: false
  max_steps: 3
  max_trials: 7
  max_concurrent_trials: 2
optimizations: {aggregation_frequency: 2}
reproducibility: {experiment_seed: 11}
max_restarts: 1
"""


@pytest.fixture
def arguments(tmp_path):
    """Makes the flags of a search; a flag of None is left out."""

    def make(**flags):
        values = {
            "problem": "dates_to_iso",
            "model": "transformer",
            "hparams_set": "transformer_tiny",
            "hparams_range": "transformer_tiny_range",
            "data_dir": tmp_path,
            "output_dir": tmp_path / "search",
            "train_steps": 100,
            **flags,
        }
        return [f"--{name}={value}" for name, value in values.items() if value is not None]

    return make


def parsed(arguments):
    """Returns the search that flags ask for; nothing is trained."""
    return requested_search(tuner.settings_of(arguments), {})


def test_data_that_is_not_there_is_told_before_the_first_trial(arguments, capsys, tmp_path) -> None:
    text = refused(arguments(), capsys)
    assert f"No data of 'dates_to_iso' in {tmp_path}" in text
    assert "t2t-datagen --problem=dates_to_iso" in text
    assert not (tmp_path / "search" / "trials").exists()


def refused(arguments, capsys) -> str:
    assert tuner.main(arguments) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert "Traceback" not in printed
    return printed


def test_a_problem_is_searched_with_asha_around_its_set(arguments) -> None:
    requested = parsed(arguments(hparams="attention_dropout=0.05"))
    plan = requested.plan
    assert (plan.searcher, plan.metric, plan.lower_is_better) == ("adaptive_asha", "loss", True)
    assert (plan.length, plan.max_trials, plan.seed) == (100, 16, 1)
    assert plan.default["attention_dropout"] == 0.05
    assert plan.default.keys() == requested.space.kinds.keys()
    trainer = requested.subject.arguments({"attention_dropout": 0.1, "norm": True})
    assert trainer.index("--hparams=attention_dropout=0.05") < trainer.index(
        "--hp=attention_dropout=0.1"
    )
    assert "--hp=norm=true" in trainer
    assert "--eval_early_stopping_metric=loss" in trainer


def test_ranges_come_from_a_file_too(arguments, tmp_path) -> None:
    file = tmp_path / "ranges.yaml"
    file.write_text(
        "attention_dropout: {type: double, minval: 0, maxval: 0.5}\n"
        "learning_rate_constant: {type: log, minval: -2, maxval: 0}\n"
    )
    requested = parsed(arguments(hparams_range=None, ranges=file))
    assert requested.space.kinds == {
        "attention_dropout": Double(0.0, 0.5),
        "learning_rate_constant": LogDouble(-2.0, 0.0),
    }


def test_an_experiment_says_all_of_a_trials_search(tmp_path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(EXPERIMENT)
    flags = [f"--trial={tmp_path}", f"--config={file}", f"--output_dir={tmp_path}/search"]
    requested = parsed(flags)
    plan = requested.plan
    assert (plan.searcher, plan.metric, plan.lower_is_better) == ("random", "error", False)
    assert (plan.length, plan.max_trials, plan.max_concurrent, plan.seed) == (150, 7, 2, 11)
    assert plan.default is None
    assert requested.max_restarts == 1
    values = {"rate": 0.01, "net.width": 8, "net.depth": 2}
    trainer = requested.subject.arguments(values)
    assert [one for one in trainer if one.startswith("--hp")] == [
        "--hp=rate=0.01",
        "--hp=net.width=8",
        "--hp=net.depth=2",
    ]
    assert requested.space.nested(values) == {"rate": 0.01, "net": {"width": 8, "depth": 2}}
    # The flags are stronger.
    plan = parsed([*flags, "--searcher=single", "--metric_minimize", "--train_steps=9"]).plan
    assert (plan.searcher, plan.max_trials, plan.length) == ("single", 1, 9)
    assert plan.lower_is_better


@pytest.mark.sample(12)
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"max_trials": 0}, "max_trials"),
        ({"parallel": 0}, "parallel"),
        ({"train_steps": None}, "--train_steps="),
        ({"output_dir": None}, "--output_dir="),
        ({"data_dir": None, "model": None}, "--data_dir="),
        ({"problem": "dates_to_is"}, "dates_to_iso"),
        ({"model": "transfomer"}, "transformer"),
        ({"hparams_range": "transformer_tiny_rang"}, "transformer_tiny_range"),
        ({"hparams_range": None}, "give either --hparams_range"),
        ({"ranges": "r.yaml"}, "give either --hparams_range"),
        ({"searcher": "hyperband"}, "adaptive_asha"),
        ({"divisor": 1}, "divisor is 1; more than 1"),
        ({"bracket_rungs": "two"}, "'two' is no whole number"),
        ({"searcher": "grid"}, "a grid needs a count for each range"),
        ({"storage": "search.db"}, "--storage=search.db cannot be opened: Could not parse"),
        ({"storage": "nosuch://me:secret@host/db"}, "--storage=nosuch://me:***@host/db"),
        ({"storage": "sqlite:////nonexistent/folder/search.db"}, "cannot be opened"),
        ({"config": "x.yaml"}, "--config is not read for a run of a problem: leave it out"),
        ({"trial": "x", "config": "x.yaml"}, "--data_dir are not read for a run of a trial"),
        ({"hparams": "hidden_sise=3"}, "hidden_size"),
        ({"max_trails": 3}, "Did you mean --max_trials"),
        ({"searcher": "random", "mode": "standard"}, "--mode: of rungs, and --searcher=random"),
        ({"searcher": "tpe", "divisor": 3}, "--divisor: of rungs"),
        ({"searcher": "random", "max_rungs": 3}, "--max_rungs: of rungs"),
        ({"searcher": "random", "bracket_rungs": 3}, "--bracket_rungs: of rungs"),
        ({"bracket_rungs": 3, "mode": "standard"}, "--mode: bracket_rungs, which are given"),
        ({"searcher": "asha", "mode": "standard"}, "--searcher=asha has one"),
        ({"searcher": "single", "max_trials": 2}, "--searcher=single has one trial"),
        ({"searcher": "single", "default_first": "true"}, "--default_first: the unchanged set"),
    ],
)
def test_bad_flags_are_refused(arguments, capsys, flags: dict, told: str) -> None:
    assert told in refused(arguments(**flags), capsys)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("num_hidden_layers: {type: int, minval: 6, maxval: 2}", "minval is 6 and maxval 2"),
        ("num_hiden_layers: {type: int, minval: 2, maxval: 6}", "num_hidden_layers"),
        ("num_hidden_layers: {type: double, minval: 2, maxval: 6.5}", "num_hidden_layers"),
        ("attention_dropout: {type: double, minval: 0, maxval: 1.5}", "attention_dropout"),
        ("attention_dropout: 0.1", "there is nothing to search"),
        ("attention_dropout: [", "ranges.yaml"),
    ],
)
def test_bad_ranges_are_refused(arguments, capsys, tmp_path, written: str, told: str) -> None:
    file = tmp_path / "ranges.yaml"
    file.write_text(written)
    assert told in refused(arguments(hparams_range=None, ranges=file), capsys)


def test_a_file_of_ranges_that_is_not_there_is_told(arguments, capsys, tmp_path) -> None:
    text = refused(arguments(hparams_range=None, ranges=tmp_path / "no.yaml"), capsys)
    assert "no.yaml" in text


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (("metric: error", ""), "needs metric"),
        (("max_steps: 3", ""), "does not say how long to train"),
        (("minval: 8, maxval: 32", "minval: 64, maxval: 32"), "net.width: minval is 64"),
        (("name: random", "name: randon"), "random"),
    ],
)
def test_a_bad_experiment_is_refused(capsys, tmp_path, changed: tuple, told: str) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(EXPERIMENT.replace(*changed))
    flags = [f"--trial={tmp_path}", f"--config={file}", f"--output_dir={tmp_path}/search"]
    assert told in refused(flags, capsys)


def test_an_unchanged_set_is_no_trials(capsys, tmp_path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(EXPERIMENT)
    flags = [f"--trial={tmp_path}", f"--config={file}", f"--output_dir={tmp_path}/search"]
    assert "a --trial has no unchanged set" in refused([*flags, "--nodefault_first"], capsys)


def test_a_length_in_epochs_is_asked_for_again_if_it_has_changed(monkeypatch, tmp_path) -> None:
    file = tmp_path / "experiment.yaml"
    output_dir = tmp_path / "search"
    output_dir.mkdir()
    result, requested = [], []

    def whole_length(*arguments) -> int:
        requested.append(arguments)
        return 10 * len(requested)

    monkeypatch.setattr(trial_search, "whole_length", whole_length)
    flags = [f"--trial={tmp_path}", f"--config={file}", f"--output_dir={output_dir}"]
    for length, arguments in ((3, flags), (3, flags[2:]), (4, flags[2:]), (4, flags)):
        written = EXPERIMENT.replace("max_steps: 3", f"max_length: {{epochs: {length}}}")
        file.write_text(written)
        settings, known = recall(tuner.settings_of(arguments), output_dir)
        search = requested_search(settings, known)
        remember(settings, output_dir, search.steps_of)
        result.append(search.plan.length)
    assert result == [10, 10, 20, 20]
    assert len(requested) == 2


def test_a_trial_needs_its_experiment(capsys, tmp_path) -> None:
    assert "--config=" in refused([f"--trial={tmp_path}", f"--output_dir={tmp_path}/s"], capsys)


def test_without_optuna_the_extra_is_named(arguments, capsys, monkeypatch) -> None:
    from t2t_torch.tune.study import optuna_module

    optuna_module.cache_clear()
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "pip install '.[tune]'" in refused(arguments(), capsys)
    optuna_module.cache_clear()


def test_there_is_nothing_to_report_where_no_search_is(capsys, tmp_path) -> None:
    pytest.importorskip("optuna")
    assert "is not there" in refused([f"--output_dir={tmp_path}/no", "--report_only"], capsys)
    flags = [f"--output_dir={tmp_path}", "--report_only"]
    assert "no search was started here" in refused(flags, capsys)
    assert not list(tmp_path.iterdir())
    open_storage(tmp_path, "")
    assert "no search was started here" in refused([*flags, "--study_name=other"], capsys)


def test_a_remembered_folder_of_the_users_is_read_again(capsys, monkeypatch, tmp_path) -> None:
    read = []
    monkeypatch.setattr(registry, "import_usr_dir", read.append)
    mine, search = tmp_path / "mine", tmp_path / "search"
    mine.mkdir()
    search.mkdir()
    (search / search_settings.NAME).write_text(json.dumps({"t2t_usr_dir": [str(mine)]}))
    refused([f"--output_dir={search}", "--report_only"], capsys)
    assert read == [str(mine)]


def test_another_name_is_another_search(capsys, tmp_path) -> None:
    output_dir = tmp_path / "search"
    output_dir.mkdir()
    settings = tuner.settings_of([f"--output_dir={output_dir}"])
    remember(settings, output_dir, {})
    assert "study_name" not in search_settings.command(settings, output_dir)
    moved = output_dir.rename(tmp_path / "moved")
    text = refused([f"--output_dir={moved}", "--study_name=moved"], capsys)
    assert "is --study_name=search" in text
    settings, _ = recall(tuner.settings_of([f"--output_dir={moved}"]), moved)
    assert search_settings.study_name(settings, moved) == "search"


def test_flags_are_remembered_without_passwords(arguments, capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    output_dir = tmp_path / "search"
    output_dir.mkdir()
    (tmp_path / "data").mkdir()
    storage = "postgresql://me:secret@host/db"
    flags = arguments(data_dir="data", storage=storage, parallel=3, max_trials=5)
    remember(tuner.settings_of(flags), output_dir, {})
    text = (output_dir / search_settings.NAME).read_text()
    assert "secret" not in text
    known = json.loads(text)
    assert known["data_dir"] == str(tmp_path / "data")
    assert known["max_trials"] == 5
    assert "parallel" not in known
    flags = [f"--output_dir={output_dir}", "--max_trials=6"]
    # Without its database the search would begin again.
    assert "is kept at --storage=postgresql://me:***@host/db" in refused(flags, capsys)
    assert "is kept at" in refused([*flags, "--storage=sqlite:///other.db"], capsys)
    given = tuner.settings_of([*flags, f"--storage={storage}"])
    settings, _ = recall(given, output_dir)
    assert (settings.max_trials, settings.train_steps) == (6, 100)
    assert settings.given == given.given


def test_what_is_remembered_and_damaged_is_told(capsys, tmp_path) -> None:
    (tmp_path / search_settings.NAME).write_text("{")
    assert "tuner.json is damaged" in refused([f"--output_dir={tmp_path}"], capsys)
