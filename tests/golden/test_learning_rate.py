"""Learning rates are those of tensor2tensor 1.15.7."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from t2t_torch.errors import HParamsError
from t2t_torch.optim.settings import learning_rate

CASES = json.loads((Path(__file__).parent / "learning_rate.json").read_text())
# cyclelinear10x raises a TypeError in tensor2tensor itself and is left out here.
COMPUTED = [case for case in CASES if "learning_rate" in case]
REFUSED = [case for case in CASES if "error" in case]


def hparams_of(case):
    """The golden's own values; sets that this library lacks have learning rates too."""
    values = {
        "learning_rate_schedule": "legacy",
        "learning_rate_decay_scheme": "none",
        "learning_rate_warmup_steps": 100,
        "learning_rate_minimum": None,
        "learning_rate_boundaries": (),
        "learning_rate_multiples": (),
        **case["overrides"],
        **case.get("hparams", {}),
    }
    return SimpleNamespace(**values)


@pytest.mark.parametrize("case", COMPUTED, ids=lambda case: case["name"])
def test_the_rate_of_every_step_is_that_of_tensor2tensor(case):
    hparams = hparams_of(case)
    rate = learning_rate(hparams, hparams.train_steps)
    # tensor2tensor counts micro-batches where several make a step; a step is a step here.
    per_step = hparams.optimizer_multistep_accumulate_steps or 1
    found = [rate(step / per_step) for step in case["steps"]]
    # float32's cosine at step 300,000 is off by 4e-5.
    assert found == pytest.approx(case["learning_rate"], rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["name"])
def test_what_tensor2tensor_refuses_is_refused_with_a_reason(case):
    hparams = hparams_of(case)
    with pytest.raises(HParamsError, match=r"there is no|--train_steps"):
        learning_rate(hparams, hparams.train_steps)


def test_all_golden_schedules_are_compared():
    assert (len(COMPUTED), len(REFUSED)) == (42, 4)
