"""Leaderboard of a race: the runs, their dev metrics, and the ensemble that is better than them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch.atomic_files import write_text
from t2t_torch.errors import HParamsError
from t2t_torch.files import read_json
from t2t_torch.mode import Split
from t2t_torch.reporter import phase

if TYPE_CHECKING:
    from t2t_torch.train.problem_task import LearningTask

NAME = "leaderboard.json"
_MEMBERS = 4  # of an ensemble, at most
_TIMED = 40  # inputs, for the latency
_QUARTERS = 4  # of the weight of an ensemble


@dataclasses.dataclass(frozen=True)
class Standing:
    """A run of a race.

    Attributes:
      name: name of its directory in the folder of the race.
      metric: full name of the metric; empty if it was not evaluated.
      value: best value on dev, or the mean of those on the folds of a cross-validation; None if
        there is none.
      rows: rows on which it was measured.
      folds: folds of the cross-validation; 0: the dev split.
      step: step of the best value on dev.
      seconds: seconds of training, on all folds.
      planned: estimated seconds of the whole training.
      has_ended: True if its training is complete.
      why: why it failed; empty if it did not.
      megabytes: size of the weights.
      milliseconds: median latency of an input of dev, one at a time, in PyTorch.
    """

    name: str
    metric: str = ""
    value: float | None = None
    rows: int = 0
    folds: int = 0
    step: int = 0
    seconds: float = 0.0
    planned: float = 0.0
    has_ended: bool = False
    why: str = ""
    megabytes: float = 0.0
    milliseconds: float = 0.0

    @property
    def is_share(self) -> bool:
        """True if the metric is about a share of right answers."""
        return self.metric.rpartition("/")[2] not in ("loss", "rmse", "pearson", "query_map")


def standing_of(run: Path, metric: str, rows: int = 0) -> Standing:
    """Returns the standing of a run by the reports in its directory.

    Args:
      run: run directory; it may not exist yet.
      metric: short name of the metric.
      rows: rows of the dev split.
    """
    from t2t_torch.metrics.metric import lower_is_better
    from t2t_torch.run.directory import RunDirectory
    from t2t_torch.run.metrics_file import MetricsFile
    from t2t_torch.train.stopping import full_name

    reports = MetricsFile(run).read()
    evaluations = [one for one in reports if one["split"] == Split.EVAL.value]
    has_ended = RunDirectory(run).ended_at() is not None
    if not evaluations:
        return Standing(run.name, has_ended=has_ended)
    names = [name for name in evaluations[0] if name not in ("step", "split", "time")]
    name = full_name(metric, names)
    values = {one["step"]: one[name] for one in evaluations if one[name] is not None}
    sign = 1 if lower_is_better(name) else -1
    step = min(values, key=lambda at: (sign * values[at], at), default=0)
    trained = [one.get("seconds", 0.0) for one in reports if one["split"] == "train"]
    seconds = max(trained, default=0.0)
    return Standing(run.name, name, values.get(step), rows, 0, step, seconds, has_ended=has_ended)


def ranked(standings: Iterable[Standing]) -> list[Standing]:
    """Returns standings, the best first, those without a value last; of equal ones the one that
    was planned to take less time.

    Candidates with folds come first: the others were clearly worse on dev.
    """
    from t2t_torch.metrics.metric import lower_is_better

    def rank(one: Standing) -> tuple[bool, bool, float, float, str]:
        sign = 1 if one.metric and lower_is_better(one.metric) else -1
        return one.value is None, not one.folds, sign * (one.value or 0.0), one.planned, one.name

    return sorted(standings, key=rank)


@dataclasses.dataclass(frozen=True)
class Leaderboard:
    """The result of a race.

    Attributes:
      folder: folder of the race.
      standings: the runs, the best first.
      members: names of the runs of the best model: one, or those of an ensemble; none if the race
        was stopped.
      value: its value of the metric on dev.
      trained_again: names of the runs of the same models that were trained on dev, too, which are
        the result; none if there are none.
    """

    folder: Path
    standings: tuple[Standing, ...]
    members: tuple[str, ...] = ()
    value: float | None = None
    trained_again: tuple[str, ...] = ()

    def write(self) -> None:
        """Writes it into its folder, which may be moved."""
        content = {**dataclasses.asdict(self), "folder": None}
        write_text(self.folder / NAME, json.dumps(content, indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Leaderboard | None:
        """Returns the leaderboard of the race in a folder; None if there is none."""
        if not (folder / NAME).exists():
            return None
        content = read_json(folder / NAME) | {"folder": folder}
        standings = tuple(Standing(**one) for one in content["standings"])
        for key in ("members", "trained_again"):
            content[key] = tuple(content.get(key, ()))
        return cls(**{**content, "standings": standings})

    @property
    def best(self) -> list[str]:
        """The runs of the best model; of a race that was stopped, the best run so far."""
        evaluated = [one.name for one in self.standings if one.value is not None]
        return [str(self.folder / name) for name in self.members or evaluated[:1]]

    @property
    def result(self) -> list[str]:
        """The runs of the best model as it is used."""
        return [str(self.folder / name) for name in self.trained_again] or self.best

    @property
    def run(self) -> Path:
        """The best single run, as it is used."""
        again = dict(zip(self.members, self.trained_again, strict=False))
        name = self.standings[0].name
        return self.folder / again.get(name, name)

    def table(self) -> list[list[str]]:
        """Returns the rows of the table, the header first."""
        short = next((one.metric.rpartition("/")[2] for one in self.standings if one.metric), "")
        head = ["run", f"dev {short}", "95 %", "seconds", "MB", "ms", ""]
        rows = [self._row(one) for one in self.standings]
        if len(self.members) > 1:
            value, counts = self.value or 0.0, Counter(self.members)
            parts = [f"{count} x {name}" if count > 1 else name for name, count in counts.items()]
            spread = _interval(self.standings[0], value)
            rows.insert(0, [" + ".join(parts), f"{value:.4g}", spread, "", "", "", "ensemble"])
        return [head, *rows]

    def _row(self, one: Standing) -> list[str]:
        if one.value is None:
            return [one.name, "", "", f"{one.seconds:.0f}", "", "", one.why[:60] or "not evaluated"]
        sizes = [f"{one.seconds:.0f}", f"{one.megabytes:.1f}", f"{one.milliseconds:.2f}"]
        note = f"mean of {one.folds} folds" if one.folds else ""
        note = note if one.has_ended else "stopped before its end"
        return [one.name, f"{one.value:.4g}", _interval(one, one.value), *sizes, note]

    def lines(self) -> Iterator[str]:
        """Yields the lines of the table."""
        from t2t_torch.reports.section import aligned

        return aligned(self.table(), (0, 6))


def _interval(one: Standing, value: float) -> str:
    """Returns the 95 % interval of a value on the rows of a run; empty if it is no share."""
    from t2t_torch.reports.slices import wilson_interval

    low, high = wilson_interval(value, one.rows)
    return f"{low:.3f}-{high:.3f}" if one.is_share else ""


def noise_of_gain(value: float, rows: int) -> float:
    """Returns the standard error of the difference of two models' shares of right rows.

    The rows on which they differ are taken to be half as many as the wrong ones, of which one more
    is counted (Laplace's rule): no wrong row of few is no certainty.
    """
    wrong = ((1 - value) * rows + 1) / (rows + 2)
    return math.sqrt(max(0.0, wrong) / 2 / max(1, rows))


def measured(board: Leaderboard, data_dir: Path) -> Leaderboard:
    """Returns a leaderboard with sizes, latencies and the best ensemble."""
    with phase("measuring latencies and ensembles"):
        timed = [_timed(board.folder, one, data_dir) for one in board.standings]
        return _with_ensemble(dataclasses.replace(board, standings=tuple(timed)), data_dir)


def _timed(folder: Path, one: Standing, data_dir: Path) -> Standing:
    """Returns a standing with the size and the latency of its best checkpoint."""
    from t2t_torch.decode.loading import load
    from t2t_torch.workflows.latency import rows_of

    if one.value is None:
        return one
    predictor = load(folder / one.name, device="cpu")
    size = sum(p.numel() * p.element_size() for p in predictor.model.parameters()) / 1e6
    times = []
    for row in rows_of(predictor, data_dir, _TIMED):
        start = time.perf_counter()
        predictor.predict([row])
        times.append(time.perf_counter() - start)
    median = sorted(times)[len(times) // 2] if times else 0.0
    return dataclasses.replace(one, megabytes=size, milliseconds=1000 * median)


def _with_ensemble(board: Leaderboard, data_dir: Path) -> Leaderboard:
    """Returns a leaderboard with the best ensemble; with the best run alone if no ensemble is
    better than it by more than noise.

    Of the ensembles of the best runs, in which each has some quarters of the weight, the one with
    the least loss on dev is compared with the best run: its loss must be less by more than the
    standard error of the difference, and its metric no worse, or its metric better by more than
    that.
    """
    from t2t_torch.decode.evaluation import losses_of_mixtures
    from t2t_torch.metrics.metric import lower_is_better

    best = board.standings[0]
    alone = dataclasses.replace(board, members=(best.name,), value=best.value)
    names = [one.name for one in board.standings if one.has_ended and one.value is not None]
    names = _of_a_kind(board.folder, names[:_MEMBERS])
    if len(names) < 2 or best.value is None:
        return alone
    runs = [board.folder / name for name in names]
    mixtures = list(itertools.combinations_with_replacement(range(len(runs)), _QUARTERS))
    losses = losses_of_mixtures(runs, mixtures, data_dir, Split.EVAL)
    found = int(losses.sum(1).argmin())
    changes = losses[found] - losses[0]  # the first is the best run alone
    error = changes.std(ddof=1) * math.sqrt(len(changes)) if len(changes) > 1 else math.inf
    counts = Counter(names[i] for i in mixtures[found])
    factor = math.gcd(*counts.values())
    members = tuple(name for name, count in counts.items() for _ in range(count // factor))
    values = [
        _value_on_dev([board.folder / name for name in each], best.metric, data_dir)
        for each in ([best.name], members)
    ]
    gain = (values[1] - values[0]) * (-1 if lower_is_better(best.metric) else 1)
    noise = noise_of_gain(best.value, best.rows) if best.is_share else math.inf
    is_better = gain > noise or (gain >= 0 and changes.sum() < -error)
    return dataclasses.replace(board, members=members, value=values[1]) if is_better else alone


def _value_on_dev(runs: Sequence[Path], metric: str, data_dir: Path) -> float:
    """Returns a metric of an ensemble, also one that is not of the problem's own."""
    from t2t_torch.decode.evaluation import evaluate_ensemble
    from t2t_torch.metrics.metric import is_metric_of
    from t2t_torch.train.experiment import add_metrics

    name = metric.rpartition("/")[2]

    def prepare(task: LearningTask) -> None:
        if name != "loss":
            add_metrics(task, (), lambda feature: [name] if is_metric_of(name, feature) else [])

    return evaluate_ensemble(runs, data_dir, Split.EVAL, prepare=prepare)[metric]


def _of_a_kind(folder: Path, names: Sequence[str]) -> list[str]:
    """Returns the runs that form an ensemble with the first."""
    from t2t_torch.decode.loading import load

    chosen = list(names[:1])
    for name in names[1:]:
        try:
            load([folder / one for one in (names[0], name)], device="cpu")
        except HParamsError:  # labels that are found in different ways, as by a CRF
            continue
        chosen.append(name)
    return chosen
