"""Trains and evaluates a model on a problem; resumes exactly where it stopped.

    t2t-trainer --problem=translate_multi30k_ende --model=transformer \\
        --hparams_set=transformer_small --data_dir=data --output_dir=run --train_steps=10000

Run again with the same --output_dir to go on; problem, model, hparams and --train_steps then come
from there.
Several processes:  torchrun --nproc-per-node=2 -m t2t_torch.bin.trainer ...
SIGTERM, SIGINT or SIGUSR1 saves and stops with exit code 128 + the signal's number.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

import t2t_torch
from t2t_torch import registry
from t2t_torch.allocator import keep_freed_memory
from t2t_torch.bin import flags as shared
from t2t_torch.errors import RegistryError, UsageError
from t2t_torch.mode import Split
from t2t_torch.train.run_config import SCHEDULES, RunConfig
from t2t_torch.train.run_directory import RunDirectory, TaskRecord

if TYPE_CHECKING:
    from t2t_torch.data.manifest import Manifest
    from t2t_torch.hparam import HParams
    from t2t_torch.train.distributed import World
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.task import ProblemTask

FLAGS = flags.FlagValues()  # type: ignore[no-untyped-call]
shared.define(
    FLAGS,
    "problem",
    "model",
    "hparams_set",
    "hparams",
    "data_dir",
    "output_dir",
    "tmp_dir",
    "t2t_usr_dir",
    "random_seed",
    "registry_help",
)
_DEFAULTS = RunConfig()


def _define_number(name: str, meaning: str, low: int = 0) -> None:
    default = getattr(_DEFAULTS, name)
    flags.DEFINE_integer(name, default, meaning, lower_bound=low, flag_values=FLAGS)


_define_number("train_steps", "Optimizer steps at which the run ends, from its beginning.", low=1)
_define_number("eval_steps", "Batches of an evaluation; 0: the whole split.")
_define_number(
    "local_eval_frequency", "Steps between checkpoints and evaluations; 0: the end only."
)
_define_number("save_checkpoints_secs", "Seconds between checkpoints, besides; 0: by steps alone.")
_define_number("keep_checkpoint_max", "Newest checkpoints to keep; 0: all.")
_define_number("log_step_count_steps", "Steps between reports.", low=1)
_define_number("eval_timeout_mins", "Minutes that continuous_eval waits for a checkpoint.")
flags.DEFINE_enum("schedule", SCHEDULES[0], SCHEDULES, "What is done.", flag_values=FLAGS)
flags.DEFINE_boolean(
    "eval_use_test_set", False, "Evaluates on the test split, not on dev.", flag_values=FLAGS
)
flags.DEFINE_boolean(
    "generate_data", False, "Runs t2t-datagen first; does nothing if done.", flag_values=FLAGS
)
flags.DEFINE_integer(
    "worker_gpu",
    1,
    "1: a GPU for each process, if there are any; 0: the CPU.",
    lower_bound=0,
    flag_values=FLAGS,
)
flags.DEFINE_boolean(
    "help_hparams", False, "Prints the hparams, who set each, and exits.", flag_values=FLAGS
)
flags.DEFINE_boolean(
    "dry_run",
    False,
    "Prints examples, buckets, steps, parameters and memory, and exits; trains and writes nothing.",
    flag_values=FLAGS,
)
flags.DEFINE_string("decode_hparams", "", "How train_eval_and_decode decodes.", flag_values=FLAGS)
shared.define_path(FLAGS, "decode_from_file", None, "What train_eval_and_decode decodes.")
shared.define_path(FLAGS, "decode_to_file", None, "Where it writes to.")
shared.define_path(FLAGS, "decode_reference", None, "What it compares with.")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return shared.run_main(_run, FLAGS, __doc__, argv)


def _flag(name: str) -> Any:
    return FLAGS[name].value


def _run() -> int:
    if _flag("help_hparams"):
        shared.require(FLAGS, "hparams_set")
        print(registry.hparams(_flag("hparams_set")).parse(_flag("hparams")).describe())
        return 0
    if _flag("dry_run"):
        return _dry_run()
    shared.require(FLAGS, "data_dir", "output_dir")
    if Path(_flag("output_dir")).resolve() == Path(_flag("data_dir")).resolve():
        raise UsageError("--output_dir and --data_dir are the same folder; give a run its own.")
    if _flag("worker_gpu") > 1:
        raise UsageError(
            f"--worker_gpu={_flag('worker_gpu')}: a process trains on one GPU. Start several: "
            f"torchrun --nproc-per-node={_flag('worker_gpu')} -m t2t_torch.bin.trainer ..."
        )
    # torch takes seconds to import: everything above is answered without it.
    from t2t_torch.train.distributed import join_world
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.experiment import Experiment
    from t2t_torch.train.stop import StopRequest

    keep_freed_memory()
    directory = RunDirectory(_flag("output_dir"))
    with StopRequest() as stop, join_world(use_gpu=_flag("worker_gpu") > 0) as world:
        try:
            record = _record(directory)
            task = _task(directory, record, world)
            config = _run_config(record)
            with Estimator(task, directory, config, world=world, stop=stop) as estimator:
                decode = functools.partial(_decode, world, estimator)
                Experiment(estimator, decode=decode).run(_flag("schedule"))
                return 128 + estimator.signal if estimator.signal else 0
        finally:
            directory.unlock()


def _dry_run() -> int:
    """Tells what the same command would do without --dry_run."""
    shared.require(FLAGS, "data_dir")
    if _flag("generate_data"):
        raise UsageError("--dry_run writes nothing: run t2t-datagen first, or leave it out.")
    if not _flag("output_dir"):
        shared.require(FLAGS, "problem", "model", "hparams_set")
    from t2t_torch.train.distributed import join_world
    from t2t_torch.train.dry_run import dry_run_lines
    from t2t_torch.train.task import ProblemTask

    # Without --output_dir nothing is there, as in a new one.
    directory = RunDirectory(_flag("output_dir") or Path(_flag("data_dir"), "no-output-dir"))
    record = _record(directory)
    problem, model = registry.problem(record.problem), registry.model(record.model)
    hparams, data_dir = _hparams(directory, record), Path(_flag("data_dir"))
    with join_world(use_gpu=False) as world:
        task = ProblemTask(problem, model, hparams, data_dir=data_dir, vocab_dir=data_dir)
        if world.leads:
            split = None if _flag("schedule") == "train" else _eval_split()
            for line in dry_run_lines(task, world, _flag("random_seed"), eval_split=split):
                print(line)
    return 0


def _train_steps(known: int) -> int:
    """Returns what the flag says, or where it is silent, what the run directory says."""
    return known if known and not FLAGS["train_steps"].present else _flag("train_steps")


def _run_config(record: TaskRecord) -> RunConfig:
    numbers = {
        name: _flag(name)
        for name in (
            "eval_steps",
            "local_eval_frequency",
            "save_checkpoints_secs",
            "keep_checkpoint_max",
            "log_step_count_steps",
            "eval_timeout_mins",
            "random_seed",
        )
    }
    return RunConfig(train_steps=record.train_steps, **numbers, eval_split=_eval_split())


def _eval_split() -> Split:
    return Split.TEST if _flag("eval_use_test_set") else Split.EVAL


def _trains() -> bool:
    return _flag("schedule") not in ("evaluate", "continuous_eval")


def _task(directory: RunDirectory, record: TaskRecord, world: World) -> ProblemTask:
    """Joins what the flags name, in a run directory that is claimed if the schedule trains."""
    from t2t_torch.data.manifest import Manifest
    from t2t_torch.train.task import ProblemTask, check_pairing

    problem, model = registry.problem(record.problem), registry.model(record.model)
    hparams = _hparams(directory, record)
    check_pairing(model, hparams)
    data_dir = Path(_flag("data_dir"))
    with world.leader_first() as leads:
        if leads:
            if _flag("generate_data"):
                for component in problem.components:
                    _generate_data(component.full_name)
            manifests = [Manifest.load(data_dir, p.dataset_name) for p in problem.components]
            problem.features(data_dir)
            if not _trains():
                directory.check_is_of(record)
                directory.check_hparams(hparams)
            else:
                _check_later_needs(manifests, data_dir)
                for change in directory.claim(record, hparams):
                    print(f"changed since the checkpoint:  {change}", file=sys.stderr)
                directory.claim_vocabularies(problem.vocab_files, data_dir)
    # Those of data_dir are the run's, as was checked; the copies come when training begins.
    vocab_dir = data_dir if _trains() else directory.path
    task = ProblemTask(problem, model, hparams, data_dir=data_dir, vocab_dir=vocab_dir)
    if _flag("schedule") != "train":  # that nothing is left to evaluate is found before training
        task.eval_batches(_eval_split(), rank=world.rank, world_size=world.size)
    return task


def _check_later_needs(manifests: Sequence[Manifest], data_dir: Path) -> None:
    """Checks what is first read after many steps: the split that is evaluated, what is decoded."""
    from t2t_torch.decode.hparam import parse_decode_hparams

    if _flag("schedule") != "train":
        for manifest in manifests:
            manifest.split(_eval_split(), data_dir)
            manifest.verify(data_dir, [_eval_split()])
    if _flag("schedule") == "train_eval_and_decode":
        parse_decode_hparams(_flag("decode_hparams"))
        for name in ("decode_from_file", "decode_reference"):
            if _flag(name) and not Path(_flag(name)).is_file():
                raise UsageError(f"--{name}={_flag(name)}: there is no such file.")


def _record(directory: RunDirectory) -> TaskRecord:
    """Returns what the flags name, and where they are silent, what the run directory holds."""
    names = {name: _flag(name) for name in ("problem", "model", "hparams_set")}
    steps = 0
    if directory.exists or directory.has_checkpoints:
        known = directory.task()
        steps = known.train_steps
        names = {name: asked or getattr(known, name) for name, asked in names.items()}
        _open_usr_dirs(known, names)
    else:
        shared.require(FLAGS, *names)
    names["problem"] = registry.problem(names["problem"]).full_name
    record = TaskRecord(
        **names,
        usr_dirs=tuple(registry.usr_dirs()),
        train_steps=_train_steps(steps),
        version=t2t_torch.__version__,
    )
    if directory.exists:
        directory.check_is_of(record)
    return record


def _open_usr_dirs(known: TaskRecord, names: Mapping[str, str]) -> None:
    """Imports the folders that a run was begun with; one that was moved may be given anew.

    Raises:
      UsageError: one is gone, and none that is given declares what is named.
    """
    gone = [folder for folder in known.usr_dirs if not Path(folder).is_dir()]
    given = [folder for folder in registry.usr_dirs() if folder not in known.usr_dirs]
    for folder in known.usr_dirs:
        if folder not in gone and folder not in registry.usr_dirs():
            registry.import_usr_dir(folder)
    if not gone:
        return
    try:
        registry.problem(names["problem"])
        registry.model(names["model"])
    except RegistryError as error:
        raise UsageError(
            f"the run was begun with --t2t_usr_dir={gone[0]}, which is not there any more: {error} "
            "Say where it is now with --t2t_usr_dir."
        ) from error
    instead = f"; {', '.join(given)} is used" if given else " and is not needed"
    print(f"--t2t_usr_dir={', '.join(gone)} is not there any more{instead}", file=sys.stderr)


def _hparams(directory: RunDirectory, record: TaskRecord) -> HParams:
    """Returns the named set, or that of the run if none is named, changed by `--hparams`.

    What only evaluates takes the run's if its own set is named, too.
    """
    own = not _flag("hparams_set")
    if directory.exists and not own and not _trains():
        own = _flag("hparams_set") == directory.task().hparams_set
    if directory.exists and own:
        hparams = directory.hparams(registry.model(record.model).HParams)
    else:
        hparams = registry.hparams(record.hparams_set)
    return hparams.parse(_flag("hparams"))


def _generate_data(problem: str) -> None:
    from t2t_torch.bin import datagen

    arguments = [f"--problem={problem}", f"--data_dir={_flag('data_dir')}"]
    if _flag("tmp_dir"):
        arguments.append(f"--tmp_dir={_flag('tmp_dir')}")
    _succeed(datagen.main(arguments))


def _decode(world: World, estimator: Estimator) -> None:
    """Decodes as t2t-decoder does: a file, or the split that is evaluated."""
    from t2t_torch.bin import decoder

    with world.leader_first() as leads:
        if not leads:
            return
        if not (estimator.checkpoints.path / f"ckpt-{estimator.state.step}").is_dir():
            return  # it could not be saved, of which there was a warning
        output_dir, step = _flag("output_dir"), estimator.state.step
        arguments = [f"--output_dir={output_dir}", f"--decode_hparams={_flag('decode_hparams')}"]
        source, target = _flag("decode_from_file"), _flag("decode_to_file")
        if source:
            target = target or str(Path(output_dir, "decodes", f"{Path(source).name}-{step}"))
            arguments.append(f"--decode_from_file={source}")
            if _flag("decode_reference"):
                arguments.append(f"--decode_reference={_flag('decode_reference')}")
        else:
            arguments.append(f"--data_dir={_flag('data_dir')}")
            arguments.append(f"--eval_use_test_set={str(_flag('eval_use_test_set')).lower()}")
        if target:
            arguments.append(f"--decode_to_file={target}")
        _succeed(decoder.main(arguments))


def _succeed(exit_code: int) -> None:
    """Ends the process as a command ended that has told its error already."""
    if exit_code:
        raise SystemExit(exit_code)


if __name__ == "__main__":
    sys.exit(main())
