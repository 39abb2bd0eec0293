"""Average of the weights of a run's checkpoints."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch import errors, reporter, trust
from t2t_torch.settings import Settings, hp, hp_path, require

if TYPE_CHECKING:
    from t2t_torch.run.checkpoint import Checkpoint
    from t2t_torch.run.checkpoint_directory import CheckpointDirectory


class AveragingSettings(Settings):
    """Averages the weights of a run's checkpoints, for decoding and evaluation.

        t2t-avg-all --model_dir=run --output_dir=avg              each with the 7 before it
        t2t-avg-all --model_dir=run --output_dir=avg --best=5     the five best
        t2t-avg-all --model_dir=run --output_dir=avg --steps=8000,9000,10000
        t2t-decoder --output_dir=avg --decode_from_file=in.txt

    The output directory can be used by t2t-decoder and t2t-trainer --schedule=evaluate.  To
    continue training from an average, start a new run with --warm_start_from.
    """

    model_dir: str | None = hp_path("Run directory of t2t-trainer.")
    output_dir: str | None = hp_path(
        "Directory of the averaged checkpoints; must differ from the run's."
    )
    n: int = hp(8, "Number of checkpoints per average: each one and its predecessors.", low=1)
    best: int = hp(
        0,
        "Number of best checkpoints, by evaluation, in a single average; 0: one average per "
        "checkpoint.",
        low=0,
    )
    steps: tuple[str, ...] = hp((), "One average of the checkpoints of these steps.")
    min_steps: int = hp(0, "Least step of a checkpoint; earlier ones are skipped.", low=0)
    wait_minutes: int = hp(0, "Minutes to wait for another checkpoint; 0: no wait.", low=0)


@trust.workflow
def average_all(settings: AveragingSettings) -> None:
    """Averages the checkpoints of a run, and writes them to the output directory."""
    require(settings, "model_dir", "output_dir")
    if settings.best and settings.steps:
        raise errors.UsageError("--best and --steps: give one of them.")
    if any(not step.isdecimal() for step in settings.steps):
        raise errors.UsageError(f"--steps={','.join(settings.steps)}: expected numbers of steps.")

    from safetensors import SafetensorError

    from t2t_torch.run.checkpoint_directory import CheckpointDirectory
    from t2t_torch.run.directory import RunDirectory

    run, target = RunDirectory(str(settings.model_dir)), RunDirectory(str(settings.output_dir))
    if run.path.resolve() == target.path.resolve():
        raise errors.UsageError("--output_dir: expected another directory than --model_dir.")
    task, source = run.task(), CheckpointDirectory(run.path)
    if target.exists:
        target.check_is_of(task)
    target.lock()
    try:
        written = 0
        for group in _groups(settings, source):
            try:
                _average(group, run.path, target.path, is_first=not written)
            except (errors.CheckpointError, OSError, SafetensorError):
                deleted = [one for one in group if not one.path.is_dir()]
                if not deleted or settings.steps or settings.best:
                    raise
                paths = ", ".join(str(one.path) for one in deleted)
                reporter.message(f"warning: {paths} was deleted before it was averaged")
                continue
            written += 1
    finally:
        target.unlock()
    if not written:
        there = [checkpoint.step for checkpoint in source.list()]
        raise errors.CheckpointError(
            f"'{run.path}' has too few whole checkpoints for an average of {settings.n}: {there}. "
            "Give a smaller --n; t2t-trainer --keep_checkpoint_max says how many are kept."
        )


def _average(group: Sequence[Checkpoint], run: Path, target: Path, *, is_first: bool) -> None:
    """Writes the mean of some checkpoints and prints its path.

    Raises:
      CheckpointError: a checkpoint is corrupt, or a trainer has deleted it.
      OSError, SafetensorError: a trainer has deleted a checkpoint.
    """
    from t2t_torch.run.checkpoint import MANIFEST
    from t2t_torch.run.checkpoint_directory import CheckpointDirectory, time_of
    from t2t_torch.run.storage import set_time
    from t2t_torch.run.warm_start import average_checkpoints

    time = time_of(max(group))
    copied = _copy_run(run, target, group[-1]) if is_first else []
    try:
        averaged = average_checkpoints(group, CheckpointDirectory(target))
    except BaseException:
        for file in copied:  # a run directory without a checkpoint is none
            file.unlink(missing_ok=True)
        raise
    set_time(averaged.path / MANIFEST, time)
    steps = ", ".join(f"{checkpoint.step:,}" for checkpoint in sorted(group))
    reporter.output(f"{averaged.path}: the mean of steps {steps}")


def _groups(
    settings: AveragingSettings, source: CheckpointDirectory
) -> Iterator[Sequence[Checkpoint]]:
    """Yields the checkpoints of each average.

    Raises:
      CheckpointError: a requested checkpoint is missing or corrupt, or none was evaluated.
    """
    from t2t_torch.run.checkpoint_directory import follow_checkpoints

    if settings.steps:
        yield [source.at(int(step)) for step in dict.fromkeys(settings.steps)]
    elif settings.best:
        best = source.best_ones(settings.best)
        if len(best) < settings.best:
            raise errors.CheckpointError(
                f"'{source.path}' has {len(best)} checkpoints that were evaluated; "
                f"--best={settings.best}. t2t-trainer --keep_checkpoint_best says how many "
                "of the best are kept."
            )
        yield best
    else:
        last: list[Checkpoint] = []
        for checkpoint in follow_checkpoints(source, settings.min_steps, settings.wait_minutes):
            last = [*last, checkpoint][-settings.n :]
            # A trainer beside this may have deleted some since.
            last = [one for one in last if one.path.is_dir()]
            if len(last) == settings.n:
                yield last


def _copy_run(run: Path, target: Path, checkpoint: Checkpoint) -> Sequence[Path]:
    """Copies settings, vocabularies, code and declarations of a run; returns the new files."""
    from t2t_torch.files import copy_regular, staged
    from t2t_torch.run.checksums import FILE, read_checked, renewed, settings_files
    from t2t_torch.run.code import copies_in, copy_code

    own = [name for name in settings_files(run) if name != "config.json"]
    names = [*own, *checkpoint.manifest().get("vocabularies", {}), "task.json"]
    new = [target / name for name in (*names, FILE) if not (target / name).exists()]
    # Of the copied files, vocabularies are checked by the checkpoints' manifests.
    texts = {name: read_checked(run, name) for name in (*own, "task.json")}
    with renewed(target, {**texts, **copies_in(run)}):
        for name in names:
            with staged(target / name) as file:
                copy_regular(run / name, file)
                shutil.copystat(run / name, file)  # t2t-bleu reads when the training started
        copy_code(run, target)
    return new
