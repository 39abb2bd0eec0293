"""Evaluates a checkpoint of a run, and leaves the run as it is.

    t2t-eval --output_dir=run --data_dir=data
    t2t-eval --output_dir=run --data_dir=data --checkpoint_path=best --eval_use_test_set
    t2t-eval --output_dir=run --data_dir=data --checkpoint_path=6000 --output_json=eval.json

Problem, model, hyperparameters and vocabularies come from the run directory; of a run that keeps an
average of its weights, the average is evaluated.
Several processes:  torchrun --nproc-per-node=2 -m t2t_torch.bin.eval ...
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

import t2t_torch
from t2t_torch.bin import flags as shared
from t2t_torch.data.staging import staged
from t2t_torch.errors import CheckpointError, UsageError
from t2t_torch.mode import Split
from t2t_torch.train.run_config import RunConfig
from t2t_torch.train.run_directory import RunDirectory, TaskRecord
from t2t_torch.train.stopping import short_name

if TYPE_CHECKING:
    from t2t_torch.checkpoint.checkpoint import Checkpoint
    from t2t_torch.compute.distributed import World
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.task import ProblemTask

FLAGS = flags.FlagValues()  # type: ignore[no-untyped-call]
shared.define(
    FLAGS,
    "output_dir",
    "data_dir",
    "problem",
    "model",
    "hparams_set",
    "hparams",
    "t2t_usr_dir",
    "registry_help",
)
FLAGS["output_dir"].help = "Run directory of t2t-trainer."
FLAGS["hparams"].help = "Changes to the run's, of those that may change: batch_size may not."
for _name in ("problem", "model", "hparams_set"):
    FLAGS[_name].help = "Need not be given; if it is, the run must be of it."
shared.define_path(
    FLAGS,
    "checkpoint_path",
    None,
    "A ckpt-<step> folder, a step, or 'best', as evaluations found it; the newest by default.",
)
flags.DEFINE_boolean(
    "eval_use_test_set", False, "The test split, not the dev split.", flag_values=FLAGS
)
flags.DEFINE_integer(
    "eval_steps", 0, "Batches; 0: the whole split.", lower_bound=0, flag_values=FLAGS
)
flags.DEFINE_integer(
    "worker_gpu", 1, "1: a GPU, if there is one; 0: the CPU.", 0, 1, flag_values=FLAGS
)
shared.define_path(FLAGS, "output_json", None, "File that the results are written to; - prints.")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return shared.run_main(_run, FLAGS, __doc__, argv)


def _flag(name: str) -> Any:
    return FLAGS[name].value


def _run() -> int:
    shared.require(FLAGS, "output_dir", "data_dir")
    directory = RunDirectory(_flag("output_dir"))
    record = directory.task()
    for name in ("problem", "model", "hparams_set"):
        asked, here = _flag(name), getattr(record, name)
        if asked and asked != here:
            raise UsageError(
                f"--{name}={asked}, but '{directory.path}' is a run of {name} {here!r}. Leave "
                f"--{name} out, or give the --output_dir of another run."
            )
    target = Path(_flag("output_json")) if _flag("output_json") else None
    if target is not None and str(target) != "-" and not target.resolve().parent.is_dir():
        raise UsageError(f"--output_json={target}: there is no folder {target.parent}.")
    from t2t_torch.compute.distributed import join_world
    from t2t_torch.summary.summary import Summary
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.stop import StopRequest

    split = Split.TEST if _flag("eval_use_test_set") else Split.EVAL
    config = RunConfig(eval_steps=_flag("eval_steps"), eval_split=split)
    with join_world(use_gpu=_flag("worker_gpu") > 0) as world, StopRequest() as stop:
        task = _task(directory, world)
        with Estimator(task, directory, config, world=world, stop=stop) as estimator:
            estimator.summary = Summary(directory.path, leads=False)  # the run stays as it is
            checkpoint = _restored(estimator, _flag("checkpoint_path"))
            metrics = estimator.evaluate()
            if estimator.signal:
                return 128 + estimator.signal
            if world.leads:
                _report(_results(record, checkpoint, metrics, split), target)
    return 0


def _task(directory: RunDirectory, world: World) -> ProblemTask:
    from t2t_torch.decode.loading import registered
    from t2t_torch.train.task import ProblemTask

    problem, model = registered(directory, directory.task())
    hparams = directory.hparams(model.HParams).parse(_flag("hparams"))
    data_dir = Path(_flag("data_dir"))
    with world.leader_first() as leads:
        if leads:
            directory.check_hparams(hparams)
            directory.check_vocabularies(problem.vocab_files, data_dir)
    return ProblemTask(
        problem,
        model,
        hparams,
        data_dir=data_dir,
        vocab_dir=directory.path,
        pin_memory=world.device.type == "cuda",
    )


def _restored(estimator: Estimator, wanted: str | None) -> Checkpoint:
    """Restores the newest checkpoint, the best one, or that of a step or a folder.

    Raises:
      CheckpointError: there is none, or it is broken.
    """
    from t2t_torch.decode.loading import find_checkpoint

    if not wanted:
        newest = estimator.restore_newest()
        if newest is None:
            raise CheckpointError(
                f"'{estimator.directory.path}' has no checkpoint yet. t2t-trainer writes the first "
                "after --local_eval_frequency steps."
            )
        return newest
    chosen = find_checkpoint(estimator.directory, wanted)
    chosen.check_vocabularies(estimator.directory.path)
    estimator.restore(chosen)
    return chosen


def _results(
    record: TaskRecord, checkpoint: Checkpoint, metrics: Mapping[str, float], split: Split
) -> dict[str, Any]:
    """Returns what is told; JSON has no NaN, which becomes null."""
    return {
        "problem": record.problem,
        "model": record.model,
        "checkpoint": str(checkpoint.path),
        "step": checkpoint.step,
        "split": split.value,
        "batches": _flag("eval_steps") or "all",
        "version": t2t_torch.__version__,
        "metrics": {name: v if math.isfinite(v) else None for name, v in metrics.items()},
    }


def _report(results: dict[str, Any], target: Path | None) -> None:
    text = json.dumps(results, indent=2) + "\n"
    if str(target) == "-":
        print(text, end="")
        return
    what = f"{results['problem']}, {results['split']}, step {results['step']}"
    print(f"{what}  ({results['checkpoint']})")
    names = {name: short_name(name) for name in results["metrics"]}
    width = max(map(len, names.values()))
    for name, value in results["metrics"].items():
        print(f"  {names[name]:<{width}}  {'nan' if value is None else format(value, '.6g')}")
    if target is not None:
        with staged(target) as file:
            file.write_text(text, encoding="utf-8")
        print(f"written to {target}")


if __name__ == "__main__":
    sys.exit(main())
