"""How much hyperparameters matter: known functions give known shares."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from t2t_torch.search_space import AnyValue
from t2t_torch.tune.findings import LEAST_TRIALS, Importance, importance_of
from t2t_torch.tune.search_plan import SearchRecord, SpaceAxis, TrialRecord

SPACE = (
    SpaceAxis("rate", "double", log=True, low=1e-4, high=1.0),
    SpaceAxis("layers", "int", log=False, low=1, high=6),
    SpaceAxis("optimizer", "categorical", log=False, values=("sgd", "adam", "muon")),
    SpaceAxis("fixed", "const", log=False, values=(3,)),
)


def searched(
    loss: Callable[[dict[str, AnyValue]], float | None], trials: int, seed: int = 0
) -> SearchRecord:
    """A search at random of a known function, whose trials all reach step 10."""
    rng, made = random.Random(seed), []
    for number in range(trials):
        hparams: dict[str, AnyValue] = {
            "rate": 10 ** rng.uniform(-4, 0),
            "layers": rng.randint(1, 6),
            "optimizer": rng.choice(["sgd", "adam", "muon"]),
            "fixed": 3,
        }
        value = loss(hparams)
        state = "failed" if value is None else "completed"
        curve = () if value is None else ((10, value),)
        made.append(
            TrialRecord(number, state, hparams, 10, 10, value, curve, 1.0, "", Path(str(number)))
        )
    return SearchRecord(
        "planted", "random", "loss", True, seed, SPACE, tuple(made), None, 1.0, 0.0, True, Path()
    )


def by_name(result: Importance) -> dict[str, float]:
    return {one.name: one.share for one in result.shares}


def test_what_the_metric_is_made_of_has_all_of_the_importance() -> None:
    result = importance_of(searched(lambda hp: abs(math.log10(hp["rate"]) + 2), 80))
    assert result.shares[0].name == "rate"
    assert result.shares[0].share > 0.85 > result.shares[0].chance
    assert all(one.share < 0.1 for one in result.shares[1:])
    assert "one search in twenty" in result.reliability


def test_a_category_can_matter_most() -> None:
    values = {"sgd": 3.0, "adam": 1.0, "muon": 2.0}
    result = importance_of(searched(lambda hp: values[hp["optimizer"]] + 0.01 * hp["layers"], 80))
    shares_of = by_name(result)
    assert result.shares[0].name == "optimizer" and shares_of["optimizer"] > 0.7
    assert shares_of["rate"] < 0.1


@pytest.mark.slow
def test_noise_seldom_rises_above_chance() -> None:
    rng = random.Random(7)
    result = [importance_of(searched(lambda hp: rng.random(), 30, seed)) for seed in range(8)]
    above = sum(share.share > share.chance for one in result for share in one.shares)
    assert above <= 3  # of 24, one in twenty by the definition of chance


def test_few_trials_are_a_hint() -> None:
    result = importance_of(searched(lambda hp: math.log10(hp["rate"]), 16))
    assert result.reliability == (
        "16 trials for 3 hyperparameters, ranked by loss at step 10: a hint, not a measurement."
    )
    assert result.shares[0].name == "rate"


def test_too_few_trials_say_nothing() -> None:
    result = importance_of(searched(lambda hp: hp["rate"], LEAST_TRIALS - 1))
    assert result.shares == () and result.reliability.startswith(
        "7 trials can be compared; from 8 on"
    )
    none = importance_of(searched(lambda hp: None, 9))
    assert none.shares == () and none.step is None and none.reliability.startswith("0 trials")


def test_a_trial_is_ranked_only_where_it_was_evaluated() -> None:
    record = searched(lambda hp: hp["rate"], LEAST_TRIALS)
    ahead = dataclasses.replace(record.trials[0], curve=((5, 0.1),), value=0.1)  # trained to 10
    result = importance_of(dataclasses.replace(record, trials=(ahead, *record.trials[1:])))
    assert result.step == 10 and result.reliability.startswith("7 trials can be compared")


def test_equal_values_say_nothing() -> None:
    result = importance_of(searched(lambda hp: 1.0, 20))
    assert (result.shares, result.reliability) == ((), "All trials have the same value at step 10.")


@pytest.mark.slow
def test_constants_have_no_share_and_failed_trials_no_rank() -> None:
    result = importance_of(searched(lambda hp: hp["rate"] if hp["layers"] > 1 else None, 80))
    assert set(by_name(result)) == {"rate", "layers", "optimizer"}
    assert not result.reliability.startswith("80 ")


@pytest.mark.slow
def test_the_same_record_says_the_same() -> None:
    one, other = (importance_of(searched(lambda hp: hp["rate"], 30)) for _ in range(2))
    assert one == other


@pytest.mark.slow
def test_a_diverged_trial_is_only_the_last() -> None:
    tame = by_name(importance_of(searched(lambda hp: hp["rate"], 60)))
    wild = by_name(
        importance_of(searched(lambda hp: hp["rate"] * (1e300 if hp["rate"] > 0.3 else 1), 60))
    )
    assert wild["rate"] == pytest.approx(tame["rate"], abs=0.1)
