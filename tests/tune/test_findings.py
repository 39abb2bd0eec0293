"""What a search has found is ready to use, and its evidence is true."""

from __future__ import annotations

import ast
import dataclasses
import json
import shlex
from pathlib import Path

import pytest
import yaml
from planted_search import of_a_trial, planted_search

from t2t_torch import registry
from t2t_torch.search_space import Space
from t2t_torch.tune.findings import (
    common_step,
    edges,
    evidence_of,
    hparams_flag,
    set_name,
    summary,
    to_json,
    verdict,
    write_findings,
)
from t2t_torch.tune.search_plan import SearchRecord, SpaceAxis, TrialRecord

pytestmark = pytest.mark.usefixtures("own_registry")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a name of its own, for Python remembers what it has imported."""
    made = tmp_path / f"usr_{tmp_path.name}"
    made.mkdir()
    return made


def test_of_trials_with_equal_values_the_loss_decides() -> None:
    record = planted_search()
    assert record.best is not None
    best = record.best
    other = next(one.number for one in record.trials if one.number != best.number)
    same = {"value": best.value, "curve": best.curve, "state": best.state}
    tied = changed(record, other, loss=0.1, **same)
    tied = changed(tied, best.number, loss=0.2)
    assert tied.best is not None and tied.best.number == other
    unknown = changed(tied, other, loss=None)
    assert unknown.best is not None and unknown.best.number == best.number


def changed(record: SearchRecord, number: int, **fields: object) -> SearchRecord:
    """The record with another trial in place of one."""
    trials = [
        dataclasses.replace(one, **fields) if one.number == number else one  # type: ignore
        for one in record.trials
    ]
    default = trials[record.default.number] if record.default else None
    return dataclasses.replace(record, trials=tuple(trials), default=default)


def test_the_set_is_registered_and_equals_its_base_with_the_best_values(folder: Path) -> None:
    record = planted_search()
    content = write_findings(record, folder)
    assert str(folder / "best_hparams.py") in content
    registry.import_usr_dir(folder)
    name = "transformer_tiny_dates_to_iso_found"
    assert set_name(record) == name and name in registry.list_names("hparams")

    made, base = registry.hparams(name), registry.hparams("transformer_tiny")
    assert record.best is not None
    expected = {"batch_size": 512, **record.best.hparams}
    assert made == base.replace(**expected)
    assert type(made) is type(base)
    assert {field for field, who in made.provenance.items() if who == name} == set(expected)
    others = made.provenance.keys() - expected
    assert {made.provenance[field] for field in others} == {base.provenance[f] for f in others}


def test_the_file_is_as_the_house_writes_it(folder: Path) -> None:
    write_findings(planted_search(axes=12), folder)
    text = (folder / "best_hparams.py").read_text("utf-8")
    ast.parse(text)
    assert max(map(len, text.splitlines())) <= 100
    assert "Command: t2t-tuner --problem=dates_to_iso" in " ".join(text.split())


def test_a_hostile_name_ends_no_docstring(folder: Path) -> None:
    record = planted_search()
    hostile = dataclasses.replace(
        record, command='t2t-tuner --data_dir=\'a """\\N b\' --output_dir=\\', name='""" + 1'
    )
    write_findings(hostile, folder)
    registry.import_usr_dir(folder)
    assert registry.hparams(set_name(record)).batch_size == 512


def test_a_found_value_goes_before_what_all_trials_changed(folder: Path) -> None:
    record = dataclasses.replace(
        planted_search(), hparams_changes="label_smoothing=0.5,learning_rate_boundaries=[1,2]"
    )
    write_findings(record, folder)
    registry.import_usr_dir(folder)
    made = registry.hparams(set_name(record))
    assert record.best is not None
    assert made.label_smoothing == record.best.hparams["label_smoothing"]
    assert made.learning_rate_boundaries == (1, 2)


def test_the_flag_says_the_same_as_the_set() -> None:
    record = planted_search(axes=12)
    evidence = evidence_of(record)
    assert evidence is not None
    (flag,) = shlex.split(hparams_flag(record, evidence))
    parsed = registry.hparams("transformer_tiny").parse(flag.removeprefix("--hparams="))
    expected = {"batch_size": 512, **evidence.best.hparams}
    assert parsed == registry.hparams("transformer_tiny").replace(**expected)


def test_the_flag_leaves_out_what_the_trainer_would_refuse() -> None:
    record = planted_search(axes=12)
    assert record.best is not None
    space = (*record.space, SpaceAxis("optimizer", "categorical", False, values=("sgd", "adam")))
    trials = tuple(
        dataclasses.replace(one, hparams={**one.hparams, "optimizer": "sgd"})
        for one in record.trials
    )
    by_sgd = dataclasses.replace(record, space=space, trials=trials, default=trials[0])
    evidence = evidence_of(by_sgd)
    assert evidence is not None
    assert "optimizer_adam" not in hparams_flag(by_sgd, evidence)
    assert "optimizer=sgd" in hparams_flag(by_sgd, evidence)
    unknown = dataclasses.replace(by_sgd, hparams_set="a_users_set")
    assert "optimizer_adam_beta2=" in hparams_flag(unknown, evidence)


def test_the_json_holds_the_evidence(folder: Path) -> None:
    record = planted_search(over=True)
    write_findings(record, folder)
    content = json.loads((folder / "best.json").read_text("utf-8"))
    best, default = record.best, record.default
    assert best is not None and default is not None
    assert content["hparams"] == best.hparams
    assert (content["value"], content["step"], content["trial"]) == (best.value, 1600, best.number)
    assert content["evidence"]["unchanged_set"] == {
        "step": 100,
        "value": default.value,
        "best_there": dict(best.curve)[100],
    }
    assert content["evidence"]["seed"] == record.seed
    assert content["evidence"]["trials"]["failed"] == 1
    registry.import_usr_dir(folder)  # it is no declaration of a problem, and does not look like one
    assert "dates_to_iso" in registry.list_names("problem")


def test_a_trials_findings_are_yaml_that_is_read_as_constants(folder: Path) -> None:
    record = of_a_trial(planted_search())
    content = write_findings(record, folder)
    assert str(folder / "best.yaml") in content and not (folder / "best_hparams.py").exists()
    section = yaml.safe_load((folder / "best.yaml").read_text("utf-8"))["hyperparameters"]
    assert section["optimizer"].keys() == {"learning_rate_constant", "learning_rate_warmup_steps"}
    assert record.best is not None
    space = Space.of_mapping(section)
    assert not space.searched
    values = {name: kind.value for name, kind in space.kinds.items()}  # type: ignore[union-attr]
    assert values == {**record.best.hparams, "batch_size": 64}


def test_values_are_compared_at_equal_steps_alone() -> None:
    record = planted_search(over=True)
    evidence = evidence_of(record)
    assert evidence is not None and record.default is not None
    # The unchanged set was stopped at step 100; there is where it is compared.
    assert (record.default.step, evidence.best.step, evidence.default_step) == (100, 1600, 100)
    assert evidence.default_value == record.default.value
    assert evidence.best_value == dict(evidence.best.curve)[100]
    assert "At step 100, the newest that both have reached," in " ".join(summary(record))
    assert (evidence.median, evidence.others) == (None, 0)


def test_a_value_counts_only_where_it_was_measured() -> None:
    # Trial 0 was last evaluated at 50 and has trained on to 90, where trial 1 was evaluated.
    record = planted_search(2, 3, over=True)
    ahead = {"state": "running", "step": 90, "value": 0.5, "curve": ((50, 0.5),)}
    there = {"state": "stopped", "step": 90, "value": 0.6, "curve": ((90, 0.6),)}
    both = changed(changed(record, 0, **ahead), 1, **there)
    one, other = both.trials
    assert (one.values, other.values) == ({50: 0.5}, {90: 0.6})
    assert common_step([one]) == 50
    evidence = evidence_of(both)
    assert evidence is not None and evidence.best.number == 1
    assert (evidence.default_step, evidence.median) == (None, None)
    alone = evidence_of(dataclasses.replace(both, trials=(one,)))
    assert alone is not None and "0.5 at step 50 (trial 0)" in verdict(both, alone)[0]
    assert json.loads(to_json(both, alone))["step"] == 50


def test_the_median_is_of_the_others_at_the_same_step() -> None:
    record = planted_search()
    trials = [_ended(one, 100) for one in record.trials[:5]]
    evidence = evidence_of(dataclasses.replace(record, trials=tuple(trials), default=trials[0]))
    assert evidence is not None
    values = sorted(one.value for one in trials if one.value is not None)[1:]
    assert evidence.median == pytest.approx((values[1] + values[2]) / 2)
    assert evidence.others == 4


def _ended(trial: TrialRecord, step: int) -> TrialRecord:
    curve = tuple(point for point in trial.curve if point[0] <= step)
    return dataclasses.replace(
        trial, state="completed", step=step, length=step, value=curve[-1][1], curve=curve
    )


def test_nothing_better_than_the_unchanged_set_is_said_so(folder: Path) -> None:
    record = planted_search()
    write_findings(record, folder)
    assert (folder / "best_hparams.py").exists()
    best = changed(record, 0, step=1600, value=0.001, curve=((100, 0.001), (1600, 0.001)))
    content = write_findings(best, folder)
    assert content.startswith("Nothing better than the unchanged set was found: loss 0.001 at step")
    assert not (folder / "best_hparams.py").exists()
    assert json.loads((folder / "best.json").read_text("utf-8"))["trial"] == 0


def test_a_metric_of_which_more_is_better_is_told_rightly() -> None:
    content = " ".join(summary(planted_search(metric="accuracy", over=True)))
    assert " more, which is better." in content


def test_a_value_of_zero_is_a_value() -> None:
    record = changed(planted_search(over=True), 0, value=0.0, curve=((100, 0.0),))
    evidence = evidence_of(record)
    assert evidence is not None and evidence.default_value == 0.0
    assert "the unchanged set 0, which is not better" in " ".join(summary(record))


def test_without_an_evaluation_there_is_nothing_to_tell(folder: Path) -> None:
    record = planted_search(trials=2)
    trials = tuple(dataclasses.replace(one, value=None, curve=()) for one in record.trials)
    none = dataclasses.replace(record, trials=trials, default=trials[0])
    assert write_findings(none, folder).startswith("No trial has been evaluated yet")
    assert not list(folder.iterdir())


def test_a_value_at_the_end_of_its_range_is_told() -> None:
    record = planted_search(axes=3)
    assert record.best is not None
    hparams = {"learning_rate_constant": 0.1005, "learning_rate_warmup_steps": 8000}
    content = edges(record, dataclasses.replace(record.best, hparams=hparams))
    assert content == [
        "Its learning_rate_constant of 0.1005 is at the lower end of the range, 0.1: a wider one "
        "may hold better.",
        "Its learning_rate_warmup_steps of 8,000 is at the upper end of the range, 8,000: a wider "
        "one may hold better.",
    ]


def test_most_trials_are_compared_where_three_quarters_have_come() -> None:
    record = planted_search(over=True)
    assert common_step(record.trials) == 100
    assert common_step(record.trials[:0]) is None
