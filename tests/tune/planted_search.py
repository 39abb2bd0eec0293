"""Records of searches that never were: realistic, and of any size."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path

from t2t_torch.search_space import AnyValue
from t2t_torch.tune.search_plan import SearchRecord, SpaceAxis, State, TrialRecord

AXES = (
    SpaceAxis("learning_rate_constant", "double", log=True, low=0.1, high=4.0),
    SpaceAxis("learning_rate_warmup_steps", "int", log=True, low=50, high=8000),
    SpaceAxis("layer_prepostprocess_dropout", "double", log=False, low=0.0, high=0.3),
    SpaceAxis("attention_dropout", "double", log=False, low=0.0, high=0.2),
    SpaceAxis("optimizer_adam_beta2", "categorical", log=False, values=(0.95, 0.98, 0.99, 0.997)),
    SpaceAxis("label_smoothing", "double", log=False, low=0.0, high=0.2),
    SpaceAxis("relu_dropout", "double", log=False, low=0.0, high=0.2),
    SpaceAxis(
        "initializer",
        "categorical",
        log=False,
        values=("uniform", "orthogonal", "uniform_unit_scaling"),
    ),
    SpaceAxis("optimizer_adam_epsilon", "double", log=True, low=1e-9, high=1e-2),
    SpaceAxis("num_hidden_layers", "int", log=False, low=1, high=6),
    SpaceAxis("hidden_size", "categorical", log=True, values=(32, 64, 128, 256, 512)),
    SpaceAxis("shared_embedding", "categorical", log=False, values=(True, False)),
)
"""Of a problem's search: any number of the first are a space."""

UNCHANGED: dict[str, AnyValue] = {
    "learning_rate_constant": 2.0,
    "learning_rate_warmup_steps": 8000,
    "layer_prepostprocess_dropout": 0.1,
    "attention_dropout": 0.1,
    "optimizer_adam_beta2": 0.997,
    "label_smoothing": 0.1,
    "relu_dropout": 0.1,
    "initializer": "uniform_unit_scaling",
    "optimizer_adam_epsilon": 1e-9,
    "num_hidden_layers": 2,
    "hidden_size": 128,
    "shared_embedding": False,
}
"""What `transformer_tiny` says of them."""

RUNGS = (100, 400, 1600)


def planted_search(
    trials: int = 16, axes: int = 7, *, over: bool = False, seed: int = 1, metric: str = "loss"
) -> SearchRecord:
    """A search by rungs of 100, 400 and 1,600 steps: a quarter goes on from each to the next.

    Args:
      trials: the first of them is the unchanged set; the sixth failed, if there is one.
      axes: how many hyperparameters are searched.
      over: whether all is done; else two are training and one is paused.
      seed: of the values.
      metric: "loss", or "accuracy", of which more is better.
    """
    rng, space = random.Random(seed), AXES[:axes]
    chosen = [{axis.name: UNCHANGED[axis.name] for axis in space}]
    chosen += [{axis.name: _drawn(axis, rng) for axis in space} for _ in range(trials - 1)]
    lower = metric == "loss"
    floors = [_floor(hparams, rng) for hparams in chosen]
    reach = _reach(floors)
    made = []
    for number, hparams in enumerate(chosen):
        state: State = "completed" if reach[number] == RUNGS[-1] else "stopped"
        if number == 5:
            state = "failed"
        elif not over and number >= trials - 2:
            state = "running"
        elif not over and state == "stopped" and number % 5 == 3:
            state = "paused"
        step = 50 if state in ("failed", "running") else reach[number]
        curve = _curve(floors[number], step, rng, lower=lower)
        made.append(
            TrialRecord(
                number,
                state,
                hparams,
                step,
                RUNGS[-1],
                curve[-1][1],
                curve,
                seconds=step * rng.uniform(0.08, 0.12),
                error="CheckpointError: no space left on device" if state == "failed" else "",
                output_dir=Path("search") / "trials" / str(number),
                restarts=int(number == 5) * 2,
            )
        )
    return SearchRecord(
        name="transformer on dates_to_iso",
        searcher="adaptive_asha",
        metric=metric,
        lower_is_better=lower,
        seed=seed,
        space=space,
        trials=tuple(made),
        default=made[0],
        seconds=1234.5,
        began=1_790_000_000.0,
        over=over,
        output_dir=Path("search"),
        command="t2t-tuner --problem=dates_to_iso --model=transformer --hparams_set="
        "transformer_tiny --hparams_range=transformer_tiny_range --searcher=adaptive_asha",
        model="transformer",
        hparams_set="transformer_tiny",
        hparams_changes="batch_size=512",
        problem="dates_to_iso",
    )


def of_a_trial(record: SearchRecord) -> SearchRecord:
    """The same as a search over a PyTorchTrial, whose names are nested."""
    names = {axis.name: f"optimizer.{axis.name}" for axis in record.space[:2]}

    def renamed(trial: TrialRecord) -> TrialRecord:
        hparams = {names.get(name, name): value for name, value in trial.hparams.items()}
        return dataclasses.replace(trial, hparams=hparams)

    space = [dataclasses.replace(a, name=names.get(a.name, a.name)) for a in record.space]
    space.append(SpaceAxis("batch_size", "const", log=False, values=(64,)))
    return dataclasses.replace(
        record,
        name="mnist_trial",
        space=tuple(space),
        trials=tuple(map(renamed, record.trials)),
        default=None,
        model="",
        hparams_set="",
        hparams_changes="",
        problem="",
        trial="mnist/model_def.py:MnistTrial",
    )


def _drawn(axis: SpaceAxis, rng: random.Random) -> AnyValue:
    if axis.values:
        return rng.choice(axis.values)
    assert axis.low is not None and axis.high is not None
    if axis.log:
        value = math.exp(rng.uniform(math.log(axis.low), math.log(axis.high)))
    else:
        value = rng.uniform(axis.low, axis.high)
    return round(value) if axis.kind == "int" else value


def _floor(hparams: dict[str, AnyValue], rng: random.Random) -> float:
    """Where a trial's loss goes: its rate decides most, its dropout and noise some."""
    rate = math.log10(float(hparams["learning_rate_constant"] or 1)) + 0.4
    warm_up = float(hparams.get("learning_rate_warmup_steps", 1000) or 1)
    dropout = float(hparams.get("layer_prepostprocess_dropout", 0.1) or 0)
    return 0.03 + 0.9 * rate**2 + 0.3 * math.log10(warm_up / 40) + dropout + rng.uniform(0, 0.1)


def _reach(floors: list[float]) -> dict[int, int]:
    """How far each trial comes."""
    order = sorted(range(len(floors)), key=floors.__getitem__)
    quarter, sixteenth = math.ceil(len(order) / 4), math.ceil(len(order) / 16)
    reach = dict.fromkeys(order, RUNGS[0])
    reach.update(dict.fromkeys(order[:quarter], RUNGS[1]))
    reach.update(dict.fromkeys(order[:sixteenth], RUNGS[2]))
    return reach


def _curve(
    floor: float, until: int, rng: random.Random, *, lower: bool
) -> tuple[tuple[int, float | None], ...]:
    points: list[tuple[int, float | None]] = []
    for step in range(50, until + 1, 50):
        loss = floor + 3.2 * math.exp(-step / 120) + rng.uniform(0, 0.04)
        points.append((step, loss if lower else math.exp(-loss)))
    return tuple(points)
