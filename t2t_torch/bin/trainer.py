"""Trains and evaluates a model on a problem; resumes exactly where it stopped.

    t2t-trainer --problem=translate_multi30k_ende --model=transformer \\
        --hparams_set=transformer_small --data_dir=data --output_dir=run --train_steps=10000

Run it again with the same --output_dir to resume; problem, model, hparams, --train_steps and the
settings of evaluations and checkpoints are then those of the run.  --config=run.json contains any
of them; run/config.json reproduces a run.
Several processes:  torchrun --nproc-per-node=2 -m t2t_torch.bin.trainer ...
SIGTERM, SIGINT or SIGUSR1 saves and stops with exit code 128 + the signal's number, or
--signal_exit_code (under torchrun the exit code is torchrun's, 1).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch import registry
from t2t_torch.bin import config_file, named_run, trainer_flags
from t2t_torch.bin import flags as shared
from t2t_torch.bin.trainer_flags import (
    FLAGS,
    check_flags,
    chosen,
    eval_split,
    flag,
    run_config,
    trains,
)
from t2t_torch.errors import UsageError
from t2t_torch.train.recommendation import AUTO
from t2t_torch.train.run_config import DECODING, check_patience
from t2t_torch.train.stopping import EarlyExit

if TYPE_CHECKING:
    from t2t_torch.data.manifest import Manifest
    from t2t_torch.distributed.process_group import World
    from t2t_torch.hparam import HParams
    from t2t_torch.train.problem_task import LearningTask
    from t2t_torch.train.run_directory import RunDirectory, TaskRecord
    from t2t_torch.train.task import Hook


_OF_SEARCHES = (
    *("autotune_objective", "autotune_maximize", "autotune_max_trials"),
    "autotune_parallel_trials",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return shared.run_main(_run, FLAGS, __doc__, argv, prepare=trainer_flags.expanded)


def _run() -> int:
    with contextlib.ExitStack() as stack:
        return run(lambda: stack.enter_context(EarlyExit(flag("signal_exit_code"))))


def run(early_exit: Callable[[], EarlyExit | None], callbacks: Sequence[Hook] = ()) -> int:
    """Runs the command with the flags that are set; returns its exit code.

    Args:
      early_exit: returns the handling of signals until torch is imported; None leaves them alone.
      callbacks: hooks in addition to those of `--hooks`.
    """
    if flag("hparams_range"):
        from t2t_torch.bin.tuner import autotune

        return autotune()
    from t2t_torch.bin import trial_run  # which --help does not need

    if trial_run.is_requested():
        check_flags()
        return trial_run.run(early_exit(), callbacks)
    _check_no_trial()
    if flag("help_hparams"):
        shared.require(FLAGS, "hparams_set")
        print(
            named_run.changed(registry.hparams(flag("hparams_set"), flag("model") or "")).describe()
        )
        return 0
    check_flags()
    if flag("dry_run"):
        return _dry_run()
    return _prepare(early_exit(), callbacks)


def _check_no_trial() -> None:
    """Checks that no flag of trials or searches is given.

    Raises:
      UsageError: such a flag is given without a trial or a search.
    """
    names = [name for name in named_run.OF_TRIALS if chosen(name)]
    if names:
        raise UsageError(f"--{', --'.join(names)}: of a trial; give --trial=..., too.")
    names = [name for name in _OF_SEARCHES if chosen(name)]
    if names:
        raise UsageError(f"--{', --'.join(names)}: of a search; give --hparams_range=..., too.")


def _prepare(early: EarlyExit | None, callbacks: Sequence[Hook]) -> int:
    from t2t_torch.train.run_directory import RunDirectory

    # Without --output_dir nothing is there, as in a new one.
    directory = RunDirectory(flag("output_dir") or _nowhere())
    if not flag("print_config"):
        of_run = () if directory.exists or directory.has_checkpoints else shared.RUN_FLAGS
        shared.require(FLAGS, *of_run, "data_dir", "output_dir")
    if AUTO in (flag("model"), flag("hparams_set")) and flag("generate_data"):
        _generate_data(flag("problem"))
    chosen_flags = named_run.choose(directory)
    recalled = named_run.recall(directory)
    record = named_run.record(directory)
    hparams = named_run.hparams(directory, record)
    check_patience(hparams.swa_patience, flag("schedule"), flag("local_eval_frequency"))
    for kind, names in {"model": [record.model], "hook": flag("hooks")}.items():
        for name in names:
            if name not in registry.list_names(kind):
                getattr(registry, kind)(name)  # says which there are, before torch is imported
    if flag("print_config"):
        print(config_file.written(named_run.config_of(directory, record, hparams)), end="")
        return 0
    named_run.check_warm_start(directory)
    if os.environ.get("RANK", "0") == "0":
        if chosen_flags:
            print(f"auto:  {' '.join(chosen_flags)}", file=sys.stderr)
        _print_sources(directory, recalled)
    return _run_schedule(directory, record, hparams, early, callbacks)


def _nowhere() -> Path:
    return Path(flag("data_dir") or ".", "no-output-dir")


def _print_sources(directory: RunDirectory, recalled: Sequence[str]) -> None:
    if flag("config"):
        config_file.RunJson.read(Path(flag("config")), FLAGS).warn(named_run.processes())
    if recalled:
        print(f"as in {directory.path / config_file.NAME}:  {' '.join(recalled)}", file=sys.stderr)
    if flag("warm_start_from") and directory.has_checkpoints:
        print(
            f"--warm_start_from={flag('warm_start_from')} was the start of this run; it resumes "
            "from its own checkpoint",
            file=sys.stderr,
        )


def _run_schedule(
    directory: RunDirectory,
    record: TaskRecord,
    hparams: HParams,
    early: EarlyExit | None,
    callbacks: Sequence[Hook],
) -> int:
    # torch takes seconds to import: everything before is answered without it.
    from t2t_torch.bin.decoding_schedule import DecodingSchedule
    from t2t_torch.distributed.precision import resolve
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.experiment import BaselineCheck, Experiment, chosen_hooks
    from t2t_torch.train.multi_task import with_choices
    from t2t_torch.train.problem_task import with_architecture

    before = directory.hparams(type(hparams)) if directory.exists else None
    with named_run.training(directory, early) as (world, stop):
        decoding = None
        if flag("schedule") in DECODING:
            problem = registry.problem(record.problem)
            decoding = DecodingSchedule(directory, problem, world, stop)
        with shared.phase("preparing the training"):
            hparams = with_architecture(resolve(hparams, world, before), before)
            hparams = with_choices(registry.problem(record.problem), hparams, before)
            task = _task(directory, record, hparams, world)
        config = run_config(record.train_steps)
        baselines = BaselineCheck(registry.problem(record.problem), Path(flag("data_dir")))
        hooks = [*callbacks, baselines, *chosen_hooks(config, hparams)]
        with Estimator(task, directory, config, world=world, stop=stop, hooks=hooks) as estimator:
            experiment = Experiment(estimator)
            if decoding is not None:
                decoding.check(task)
                decode = decoding.of(estimator)
                experiment = Experiment(estimator, decode=decode, scores=decoding.scores)
            experiment.run(flag("schedule"))
        return named_run.exit_code(estimator)


def _dry_run() -> int:
    """Prints what the same command would do without --dry_run."""
    shared.require(FLAGS, *(() if flag("output_dir") else shared.RUN_FLAGS), "data_dir")
    if flag("generate_data"):
        raise UsageError("--dry_run writes nothing: run t2t-datagen first, or leave it out.")
    from t2t_torch.distributed.process_group import join_world
    from t2t_torch.train.experiment import add_metrics, chosen_hooks
    from t2t_torch.train.memory import dry_run_lines
    from t2t_torch.train.multi_task import task_of, with_choices
    from t2t_torch.train.problem_task import with_architecture
    from t2t_torch.train.run_directory import RunDirectory

    directory = RunDirectory(flag("output_dir") or _nowhere())
    named_run.choose(directory)
    named_run.recall(directory)
    record = named_run.record(directory)
    problem, model = registry.problem(record.problem), registry.model(record.model)
    hparams, data_dir = named_run.hparams(directory, record), Path(flag("data_dir"))
    check_patience(hparams.swa_patience, flag("schedule"), flag("local_eval_frequency"))
    hparams = with_choices(problem, with_architecture(hparams))
    with join_world(use_gpu=False) as world:
        task = task_of(problem, model, hparams, data_dir=data_dir, vocab_dir=data_dir)
        add_metrics(task, flag("eval_metrics"))
        config = run_config(record.train_steps)
        chosen_hooks(config, hparams)
        if world.leads:
            split = None if flag("schedule") == "train" else eval_split()
            seed = flag("random_seed")
            for line in dry_run_lines(task, world, seed, eval_split=split, config=config):
                print(line)
    return 0


def _task(
    directory: RunDirectory, record: TaskRecord, hparams: HParams, world: World
) -> LearningTask:
    """Creates the task; claims the run directory if the schedule trains."""
    from t2t_torch.data.manifest import Manifest
    from t2t_torch.train.experiment import add_metrics
    from t2t_torch.train.multi_task import task_of
    from t2t_torch.train.problem_task import check_pairing

    problem, model = registry.problem(record.problem), registry.model(record.model)
    check_pairing(model, hparams)
    data_dir = Path(flag("data_dir"))
    with world.leader_first() as leads:
        if leads:
            if flag("generate_data"):
                for component in problem.components:
                    _generate_data(component.full_name)
            manifests = [Manifest.load(data_dir, p.dataset_name) for p in problem.components]
            shared.verify_data(FLAGS, problem)
            problem.features(data_dir)
            names = problem.vocab_files_in(data_dir, directory.path)
            if not trains():
                directory.check_is_of(record)
                directory.check_hparams(hparams, trains=False)
                directory.check_vocabularies(names, data_dir)
            else:
                if _evaluates():
                    _check_evaluated(manifests, data_dir)
                _claim(directory, record, hparams)
                directory.claim_vocabularies(names, data_dir)
    # Those of data_dir are the run's, as was checked; the copies come when training begins.
    vocab_dir = data_dir if trains() else directory.path
    task = task_of(
        problem,
        model,
        hparams,
        data_dir=data_dir,
        vocab_dir=vocab_dir,
        loader_workers=flag("loader_workers"),
        pin_memory=world.device.type == "cuda",
    )
    add_metrics(task, flag("eval_metrics"))
    if _evaluates():  # that nothing is left to evaluate is found before training
        task.eval_batches(eval_split(), rank=world.rank, world_size=world.size)
    return task


def _evaluates() -> bool:
    schedule = flag("schedule")
    return schedule != "train" and (trains() or schedule not in DECODING)


def _claim(directory: RunDirectory, record: TaskRecord, hparams: HParams) -> None:
    from t2t_torch.train.run_code import keep_code

    config = config_file.written(named_run.config_of(directory, record, hparams))
    policy = flag("resume_data")
    changes = directory.claim(record, hparams, config=config, resume_data=policy)
    for change in [*changes, *keep_code(directory, record)]:
        print(f"changed since the checkpoint:  {change}", file=sys.stderr)


def _check_evaluated(manifests: Sequence[Manifest], data_dir: Path) -> None:
    """Checks the evaluated split, which training reads only after many steps."""
    for manifest in manifests:
        manifest.split(eval_split(), data_dir)
        manifest.verify(data_dir, [eval_split()])


def _generate_data(problem: str) -> None:
    from t2t_torch.bin import datagen

    arguments = [f"--problem={problem}", f"--data_dir={flag('data_dir')}"]
    if flag("tmp_dir"):
        arguments.append(f"--tmp_dir={flag('tmp_dir')}")
    code = datagen.main(arguments)
    if code:  # it has printed its error already
        raise SystemExit(code)


if __name__ == "__main__":
    sys.exit(main())
