"""The names of other things in a declaration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2t_torch import registry
from t2t_torch.data.publish import data_settings
from t2t_torch.declaration.problem import problem_of
from t2t_torch.errors import RegistryError
from t2t_torch.problem import metric_names

pytestmark = pytest.mark.usefixtures("own_registry")

KNOWN = ["algorithmic_identity_binary40", "algorithmic_reverse_binary40"]
MIXED: dict[str, Any] = {"kind": "mixture", "files": None, "problems": KNOWN}


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"schedule": "banana"}, r'"schedule": .*word 1: \'banana\' is neither step, linear, '),
        ({"schedule": "step @0 1"}, r'"schedule": .*1 shares for 2 problems'),
        ({"schedule": "step @0 0 0"}, "no problem has a share"),
        (
            {"problems": ["algorithmic_identity_binary4", KNOWN[1]], "schedule": "step @0 1 1"},
            r"\"problems\": no problem is named .*mean 'algorithmic_identity_binary40'",
        ),
        ({"problems": ["x_rev_rev", KNOWN[0]], "schedule": "step @0 1 1"}, "says '_rev' twice"),
        (
            {"problems": ["mine", KNOWN[0]], "schedule": "step @0 1 1"},
            "the problem itself: mine -> mine",
        ),
    ],
)
def test_a_mixture_of_what_cannot_be_mixed_is_refused(keys: dict[str, Any], told: str, declare):
    with pytest.raises(RegistryError, match=rf"(?s)mine\.json:\d+: .*{told}"):
        declare(**MIXED | keys)


def test_mixtures_that_name_each_other_in_a_circle_are_refused(tmp_path: Path):
    for name, others in (("one", ["two_rev"]), ("two", [KNOWN[0], "three"]), ("three", ["one"])):
        schedule = f"step @0 {' '.join('1' for _ in others)}"
        said = {"problem": name, "kind": "mixture", "problems": others, "schedule": schedule}
        (tmp_path / f"{name}.json").write_text(json.dumps(said), "utf-8")
    registry.import_usr_dir(tmp_path)
    with pytest.raises(RegistryError, match="the problem itself: one -> two -> three -> one"):
        registry.problem("one")


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"model": "transformer_encode"}, r'"model": there is no .*mean \'transformer_encoder\'\?'),
        ({"hparams_set": "transformer_bas"}, r'"hparams_set": .*mean \'transformer_base\'\?'),
        ({"use_vocab_from_other_problem": "nobodys"}, r"no problem is named 'nobodys'"),
        ({"use_vocab_from_other_problem": "mine"}, "names the problem itself"),
        ({"metrics": {"target": ["accuracy"]}}, r'"metrics\.target": .*mean \'targets\'\?'),
        ({"metrics": {"targets": ["acuracy"]}}, r'"metrics": .*mean \'accuracy\'\?'),
        ({"loss": "focl"}, r'"loss": there is no loss \'focl\'\. .*mean \'focal\'\?'),
        ({"loss": ""}, r'"loss": there is no loss'),
        ({"loss": {"targets": "hing"}}, r'"loss": .*mean \'hinge\'\?'),
        ({"loss": {"target": "focal"}}, r'"loss\.target": .*mean \'targets\'\?'),
    ],
)
def test_a_name_that_there_is_not_is_told_with_the_nearest(
    keys: dict[str, Any], told: str, declare
):
    with pytest.raises(RegistryError, match=rf"mine\.json:\d+: .*{told}"):
        declare(**keys)


def test_the_names_of_a_users_directory_count(declare, tmp_path):
    folder = tmp_path / f"usr_{tmp_path.name}"
    folder.mkdir()
    (folder / "own.py").write_text(
        "from t2t_torch.registry import *\nfrom t2t_torch import registry\n"
        "@register_hparams\ndef my_set(): pass\n"
        "@register_problem\nclass MyOwn: pass\n"
        "for n in (1, 2):\n    register_problem(f'made_{n}')(type(f'Made{n}', (), {\n"
        "        '__module__': __name__, '__init__': lambda self, reverse, copy: None}))\n"
    )
    registry.import_usr_dir(folder)
    declare(hparams_set="my_set")
    problem = declare(**MIXED | {"problems": [*KNOWN, "made_2"], "schedule": "step @0 1 1 1"})
    assert problem.problem_names[-1] == "made_2"


def test_a_declared_loss_is_of_all_targets_or_of_those_that_are_named(declare):
    assert declare().loss == ""
    assert declare(loss="focal").loss == "focal"
    problem = declare(kind="intentslot", loss={"slots": "focal"})
    assert problem.loss == {"slots": "focal"}


def test_another_loss_needs_no_other_data(declare):
    assert data_settings(declare(loss="focal")) == data_settings(declare())


def test_targets_that_are_not_named_keep_the_metrics_of_the_kind(declare):
    problem = declare(kind="intentslot", metrics={"slots": ["span_f1"]})
    assert metric_names(problem, "slots") == ("span_f1",)
    assert metric_names(problem, "intent") == ("accuracy",)


def test_a_declaration_that_is_drafted_is_checked_too(tmp_path):
    content = {"problem": "x", "kind": "text2class", "files": {"train": "a", "eval": "b"}}
    with pytest.raises(RegistryError, match=r'"model": there is no model \'no_such\''):
        problem_of({**content, "model": "no_such"}, tmp_path / "x.json")
