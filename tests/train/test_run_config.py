"""What may be said of a run is read by what runs it."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest

import t2t_torch
from t2t_torch.errors import HParamsError
from t2t_torch.train.run_config import RunConfig

FIELDS = list(RunConfig.declared())
LEAST = {name: field.low for name, field in RunConfig.declared().items() if field.low is not None}


@pytest.mark.parametrize(
    "settings",
    [{name: least - 1} for name, least in LEAST.items()]
    + [{"keep_checkpoint_every_n_hours": math.nan}, {"reduce_lr_on_plateau_factor": 1.5}],
    ids=str,
)
def test_a_number_that_no_run_can_have_is_refused_by_name(settings):
    ((name, value),) = settings.items()
    with pytest.raises(HParamsError, match=f"^{name}={value}: should be .*{name}: "):
        RunConfig(**settings)


def test_every_number_of_a_run_may_be_at_its_lower_bound(make_estimator):
    estimator = make_estimator(**{**LEAST, "train_steps": 2})
    estimator.train(2)
    assert estimator.state.step == 2
    assert estimator.evaluate()["loss"] > 0


@pytest.fixture(scope="module")
def read():
    """The names that the package asks a config for, below the commands that make it."""
    result = set()
    for path in Path(t2t_torch.__file__).parent.rglob("*.py"):
        source = path.read_text("utf-8")
        if path.parent.name == "bin" or "config." not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Attribute):
                requested = getattr(node.value, "attr", getattr(node.value, "id", ""))
                result |= {node.attr} if requested.endswith("config") else set()
    return result


@pytest.mark.parametrize("name", FIELDS)
def test_a_setting_of_a_run_is_read_wherever_it_is_made(read, name):
    assert name in read
