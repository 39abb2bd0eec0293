"""`t2t-decoder` of a run of a trial."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags

from t2t_torch.errors import UsageError
from t2t_torch.train.run_config import RunConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from t2t_torch.checkpoint.checkpoint import Checkpoint
    from t2t_torch.train.estimator import Estimator


_DECODE_FLAGS_OF_PROBLEMS = (
    *("data_dir", "problem", "model", "hparams_set", "decode_reference", "score_file"),
    *("decode_hparams", "decode_shards", "decode_interactive", "eval_use_test_set"),
)


def run(values: flags.FlagValues) -> int:
    """Runs the command; returns its exit code.

    Args:
      values: the flags.

    Raises:
      UsageError: one means nothing for a trial, or a file is of no kind that is read or written.
    """
    check_flags(values, _DECODE_FLAGS_OF_PROBLEMS)
    from t2t_torch.distributed.process_group import World
    from t2t_torch.files import check_target
    from t2t_torch.trial.decoding import TrialDecoder, check_files, device
    from t2t_torch.trial.predictor import OpenedRun

    run_dir = Path(str(values["output_dir"].value)).expanduser()
    given, asked = values["decode_from_file"].value, values["decode_to_file"].value
    source = Path(given) if given else None
    if asked:
        check_files(source, Path(asked))
        check_target(Path(asked), *([source] if source else []))
    elif source:
        check_files(source, source)
    opened = OpenedRun.of(run_dir, World(0, 1, device()))
    decoder = TrialDecoder(opened, values["checkpoint_path"].value)
    step = decoder.predictor.chosen.step
    if asked:
        target = Path(asked)
    elif source:
        target = source.with_name(f"{source.stem}.{opened.task.name}.{step}{source.suffix}")
    else:
        target = run_dir / "decodes" / f"validation-{step}.npz"
    check_target(target, *([source] if source else []))
    count = decoder.decode(source, target)
    what = source or "the validation loader"
    print(f"{count:,} records of {what}, {decoder.predictor.chosen.told}: {target}")
    return 0


def check_flags(values: flags.FlagValues, of_problems: tuple[str, ...]) -> None:
    """Checks flags against what a trial is.

    Args:
      values: the flags.
      of_problems: those that mean nothing for a trial.

    Raises:
      UsageError: one is given; all are told.
    """
    named = [f"--{name}" for name in of_problems if values[name].present]
    if "," in str(values["output_dir"].value):
        named.append("several runs in --output_dir")
    if named:
        are = "are" if len(named) > 1 else "is"
        raise UsageError(
            f"{', '.join(named)} {are} for a run of a problem, and '{values['output_dir'].value}' "
            f"is one of a trial: leave {'them' if are == 'are' else 'it'} out."
        )


# `t2t-eval` of a run of a trial.


_EVAL_FLAGS_OF_PROBLEMS = (
    *("data_dir", "problem", "model", "hparams_set", "hparams", "eval_metrics"),
    *("eval_use_test_set", "output", "decode_hparams"),
)


class Evaluated(NamedTuple):
    """What came of it.

    Attributes:
      trial: the name of its class.
      model: the name of its model's class.
      checkpoint: that was evaluated.
      metrics: those that are numbers; empty if a signal has ended it.
      signal: the number of one that has ended it, or 0.
      leads: whether this process tells it.
    """

    trial: str
    model: str
    checkpoint: Checkpoint
    metrics: dict[str, float]
    signal: int
    leads: bool


def evaluated(
    values: flags.FlagValues, restored: Callable[[Estimator, str | None], Checkpoint]
) -> Evaluated:
    """Evaluates a checkpoint on the trial's validation loader.

    Args:
      values: the flags.
      restored: restores the checkpoint that is asked for.

    Raises:
      UsageError: a flag means nothing for a trial.
    """
    check_flags(values, _EVAL_FLAGS_OF_PROBLEMS)
    from t2t_torch.distributed.process_group import join_world
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.stopping import StopRequest
    from t2t_torch.train.summary import Summary
    from t2t_torch.trial.predictor import open_task

    asked: dict[str, Any] = values.flag_values_dict()
    config = RunConfig(eval_steps=asked["eval_steps"])
    with join_world(use_gpu=asked["worker_gpu"] > 0) as world, StopRequest() as stop:
        directory, _, task = open_task(Path(asked["output_dir"]), world)
        with Estimator(task, directory, config, world=world, stop=stop) as estimator:
            estimator.summary = Summary(directory.path, leads=False)  # the run stays as it is
            checkpoint = restored(estimator, asked["checkpoint_path"])
            metrics = dict(estimator.evaluate())
            model = type(estimator.model).__name__
            return Evaluated(
                task.name, model, checkpoint, metrics, estimator.signal or 0, world.leads
            )
