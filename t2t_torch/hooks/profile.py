"""Profiler of training steps: `--profile`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.profiler import ProfilerActivity, profile, schedule

from t2t_torch.registry import register_hook
from t2t_torch.train.task import Hook

if TYPE_CHECKING:
    from t2t_torch.train.estimator import Estimator


_SKIPPED = 10  # steps for allocators, autotuners and compilers to settle
_WARM_UP = 2  # profiler warm-up steps, whose records are discarded
_RECORDED = 5  # steps
_SHOWN = 20  # rows of the table
_COLUMNS = 60  # of an operator's name
FOLDER = "profile"


@register_hook
class Profile(Hook):
    """Records steps 13 to 17 after the start, once, in the main process.

    Writes `profile/<step>.pt.trace.json` in the run directory, for https://ui.perfetto.dev and
    TensorBoard's profile plugin.  Writes a table of operators by self time to the same folder and
    prints it.  A shorter run records the steps it has.
    """

    def __init__(self) -> None:
        self._profiler: profile | None = None

    def begin(self, estimator: Estimator) -> None:
        """Starts the profiler schedule."""
        if not estimator.world.leads:
            return
        activities = [ProfilerActivity.CPU]
        if estimator.world.device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._first = estimator.state.step
        self._profiler = profile(
            activities=activities,
            schedule=schedule(wait=_SKIPPED, warmup=_WARM_UP, active=_RECORDED, repeat=1),
            record_shapes=True,
            acc_events=True,  # of one cycle; else torch 2.11 warns that another would discard them
        )
        self._profiler.start()

    def after_step(self, estimator: Estimator) -> None:
        """Advances the profiler by a step; writes the results after the last recorded step."""
        if self._profiler is None:
            return
        self._profiler.step()
        if estimator.state.step - self._first == _SKIPPED + _WARM_UP + _RECORDED:
            assert estimator.run is not None
            estimator.run.meter.stop_clock()  # excludes the seconds of writing from training time
            self._finish(estimator, _RECORDED)
            estimator.run.meter.start_clock()

    def end(self, estimator: Estimator) -> None:
        """Writes the recorded steps if the run ended early."""
        if self._profiler is not None:
            recorded = estimator.state.step - self._first - _SKIPPED - _WARM_UP
            self._finish(estimator, recorded)

    def _finish(self, estimator: Estimator, recorded: int) -> None:
        assert self._profiler is not None
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        if recorded <= 0:
            needed = _SKIPPED + _WARM_UP + _RECORDED
            estimator.say(f"--profile: nothing was recorded: that takes {needed} steps of training")
            return
        folder = estimator.directory.path / FOLDER
        try:
            folder.mkdir(exist_ok=True)
            path = folder / f"{estimator.state.step}.pt.trace.json"
            profiler.export_chrome_trace(str(path))
            table = _table(profiler, recorded, estimator.world.device.type)
            (folder / f"{estimator.state.step}.txt").write_text(table + "\n", encoding="utf-8")
        except OSError as error:
            estimator.say(f"warning: --profile: {folder} cannot be written: {error}")
            return
        estimator.say(f"{table}\nThe trace of these steps, for https://ui.perfetto.dev: {path}")


def _table(profiler: profile, steps: int, device: str) -> str:
    """Returns the operators with the most self time, per step."""
    on_gpu = device == "cuda"
    spent_by = "self_device_time_total" if on_gpu else "self_cpu_time_total"  # microseconds
    # Annotations such as ProfilerStep#12 are not operators; they contain the others.
    rows = [
        (event.key, float(getattr(event, spent_by)), event.count)
        for event in profiler.key_averages()
        if not event.key.startswith(("ProfilerStep", "Optimizer."))
    ]
    total = sum(spent for _, spent, _ in rows) or 1.0
    rows.sort(key=lambda row: -row[1])
    where = "the GPU" if on_gpu else "the CPU's threads of Python and autograd"
    lines = [
        f"profile of {steps} steps: {total / steps / 1000:,.1f} ms a step on {where}",
        f"{'operator':<{_COLUMNS}}  {'self ms a step':>14}  {'share':>6}  {'calls a step':>12}",
    ]
    for name, spent, count in rows[:_SHOWN]:
        lines.append(
            f"{name[:_COLUMNS]:<{_COLUMNS}}  {spent / steps / 1000:>14,.2f}  "
            f"{spent / total:>6.1%}  {count / steps:>12,.1f}"
        )
    return "\n".join(lines)
