"""Checks of an export, the models to export, and the files of the artifact's folder."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t2t_torch.atomic_files import STAGED_SUFFIX, is_alive, sync
from t2t_torch.data.vocabulary_builder import vocab_files_in
from t2t_torch.decode.loading import Loaded, as_one, load_member, load_run
from t2t_torch.errors import ArtifactError, CheckpointError, ExportError, UsageError
from t2t_torch.export.settings import ExportSettings
from t2t_torch.files import copy_regular
from t2t_torch.remote import remove
from t2t_torch.run.checkpoint import Checkpoint
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.checksums import check_files
from t2t_torch.run.code import copy_code
from t2t_torch.run.directory import RunDirectory
from t2t_torch.run.storage import step_of
from t2t_torch.run.warm_start import average_checkpoints
from t2t_torch.runtime.signature import FILE, FileChecksum, Signature

FEWEST_ROWS = 200


def check(settings: ExportSettings) -> None:
    """Checks the settings early, before minutes of work.

    Raises:
      UsageError: a setting has an invalid value, or the folder cannot be written.
    """
    if settings.verify_rows < FEWEST_ROWS:
        raise UsageError(
            f"--verify_rows={settings.verify_rows}: expected {FEWEST_ROWS} or more; of a dev split "
            "that is smaller all rows are verified."
        )
    averaged(settings.chosen_checkpoint)
    target = settings.folder
    # Missing folders are created.
    above = next(folder for folder in target.resolve().parents if os.path.lexists(folder))
    if not above.is_dir():
        raise UsageError(f"--export_dir={target}: {above} is no folder. Give another folder.")
    if not os.access(above, os.W_OK):
        raise UsageError(f"--export_dir={target}: {above} cannot be written.")
    if target.resolve() in {run_of(run) for run in settings.runs}:
        raise UsageError(f"--export_dir={target} is the run itself. Give another folder.")
    if os.path.lexists(target):
        _check_replaceable(target, overwrite=settings.overwrite)


def check_problem(settings: ExportSettings, problem: str) -> None:
    """Checks that the artifact to replace, if any, is one of the same problem.

    Raises:
      UsageError: it is one of another problem, for which its users do not ask.
    """
    if settings.allow_other_problem or not (settings.folder / FILE).exists():
        return
    before = Signature.read(settings.folder).problem
    if before != problem:
        raise UsageError(
            f"--export_dir={settings.folder} is an artifact of {before}, and this one is of "
            f"{problem}: users of the folder would get other answers. Give another folder, "
            "or replace it with --allow_other_problem."
        )


def averaged(checkpoint: object) -> int:
    """Returns how many checkpoints a choice such as "average:8" averages; 0 for other choices.

    Raises:
      UsageError: the number is invalid.
    """
    kind, colon, count = str(checkpoint).partition(":")
    if not colon or kind != "average":
        return 0
    if not re.fullmatch("[1-9][0-9]*", count):
        raise UsageError(
            f"--checkpoint={kind}:{count}: expected how many checkpoints, as in average:8."
        )
    return int(count)


def load_members(settings: ExportSettings, scratch: Path) -> list[Member]:
    """Loads the model of each run on the CPU.

    Args:
      settings: the settings of the export.
      scratch: an empty folder, for averaged checkpoints.

    Raises:
      CheckpointError: there is no such checkpoint, or it is damaged.
      UsageError: `problem` is not a problem of the run, or is missing for a run of several
        problems.
    """
    members: dict[Path, Member] = {}
    for number, path in enumerate(dict.fromkeys(settings.runs)):
        folder = scratch / str(number)
        folder.mkdir()
        members[path] = _member(settings, path, folder)
    return [members[path] for path in settings.runs]


def _member(settings: ExportSettings, path: Path, scratch: Path) -> Member:
    folder = run_of(path)
    name = "/".join((folder.name, *path.resolve().relative_to(folder).parts))
    if count := averaged(settings.chosen_checkpoint):
        steps = _average(folder, count, scratch)
        loaded = load_run(scratch, None, settings.problem)
        return Member(loaded, name, f"mean of steps {', '.join(map(str, steps))}")
    load = load_member if settings.runs[1:] else load_run
    loaded = load(path, settings.chosen_checkpoint, settings.problem)
    return Member(loaded, name, f"step {loaded.info.step}")


def _average(run: Path, count: int, scratch: Path) -> list[int]:
    """Writes a run with the mean of the newest checkpoints of a run; returns their steps."""
    checkpoints = newest_whole(run, count)
    vocabularies = checkpoints[0].manifest().get("vocabularies", {})
    check_files(run, ["task.json", "hparams.json"])
    for name in ("task.json", "hparams.json", *vocabularies):
        copy_regular(run / name, scratch / name)
    copy_code(run, scratch)
    average_checkpoints(checkpoints, CheckpointDirectory(scratch))
    return sorted(one.step for one in checkpoints)


def newest_whole(run: Path, count: int) -> list[Checkpoint]:
    """Returns the newest intact checkpoints of a run, the newest first.

    Args:
      run: run directory.
      count: number of checkpoints.

    Raises:
      CheckpointError: there are fewer, or this is not a run directory.
    """
    available = CheckpointDirectory(run).list()
    checkpoints: list[Checkpoint] = []
    for checkpoint in reversed(available):
        if len(checkpoints) < count:
            with contextlib.suppress(CheckpointError):  # skips a corrupt one
                checkpoint.verify()
                checkpoints.append(checkpoint)
    if len(checkpoints) < count:
        RunDirectory(run).task()  # raises if this is not a run directory
        raise CheckpointError(
            f"'{run}' has too few whole checkpoints for an average of {count}: "
            f"{[one.step for one in available]}. Give a smaller number; t2t-trainer "
            "--keep_checkpoint_max says how many are kept."
        )
    return checkpoints


class Member(NamedTuple):
    """A model and its origin.

    Attributes:
      loaded: the model.
      run: name of the run's folder; of a `ckpt-<step>` folder, both names.
      chosen: choice of the checkpoint: "step 500", "mean of steps 400, 500".
    """

    loaded: Loaded
    run: str
    chosen: str

    def __str__(self) -> str:
        return f"{self.run}: {self.loaded.info.task.model}, {self.chosen}"


def joined(members: Sequence[Member]) -> tuple[Loaded, str]:
    """Returns the model, or the ensemble of several, and the choice of the checkpoints.

    Raises:
      HParamsError: the models have different targets or vocabularies.
    """
    if len(members) == 1:
        return members[0].loaded, members[0].chosen
    return as_one([member.loaded for member in members]), f"mean of {len(members)} models"


def run_of(path: Path) -> Path:
    """Returns the resolved run directory of a `ckpt-<step>` folder or of a run directory."""
    folder = path.resolve()
    return folder if step_of(folder) is None else folder.parent


def _check_replaceable(folder: Path, *, overwrite: bool) -> None:
    """Raises UsageError unless a folder is empty or a replaceable artifact."""
    if folder.is_symlink() or not folder.is_dir():
        raise UsageError(f"--export_dir={folder} is there already, and no folder. Give another.")
    names = {path.name for path in folder.iterdir()}
    if not names:
        return
    if FILE not in names:
        raise UsageError(
            f"--export_dir={folder} is there already, and is no artifact: nothing in it is "
            "touched. Give another folder."
        )
    if not overwrite:
        raise UsageError(
            f"--export_dir={folder} is an artifact already. Replace it with --overwrite, or "
            "give another folder."
        )
    try:
        own = {Path(name).parts[0] for name in Signature.read(folder).files}
        others = sorted(names - {FILE, *own})
    except ArtifactError as error:
        raise UsageError(
            f"--export_dir={folder} cannot be replaced, as it is not known which files are of the "
            f"artifact: {error} Or remove the folder, or give another."
        ) from None
    if others:
        raise UsageError(
            f"--export_dir={folder} is an artifact with files that are not of it: "
            f"{', '.join(others)}. Nothing in it is touched. Move them elsewhere, or give another "
            "folder."
        )


@contextlib.contextmanager
def staged_folder(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yields a temporary folder next to `path`; on success renames its folder "whole" to `path`.

    A reader therefore sees the old folder, none, or the complete new one.  If the body raises, the
    temporary folder is removed and `path` is unchanged.

    Args:
      path: missing, an empty folder, or an artifact.
      overwrite: if True, replaces an artifact.

    Raises:
      ExportError: something that must not be replaced appeared at `path` meanwhile, or the disk is
        full.
    """
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{os.getpid()}{STAGED_SUFFIX}")
    whole = temporary / "whole"
    try:
        whole.mkdir(parents=True)
        yield temporary
        for file in whole.iterdir():
            sync(file)
        sync(whole)
        _put(whole, path, temporary / "replaced", overwrite=overwrite)
        sync(path.parent)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        what = error.filename or f"a file of {path}"
        raise ExportError(
            f"{what} cannot be written: {error.strerror}. No artifact was written, and what was "
            "written of it is removed. Free space, or give another --export_dir."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _put(whole: Path, path: Path, replaced: Path, *, overwrite: bool) -> None:
    """Renames a folder to `path`, after a replaceable artifact there is renamed to `replaced`.

    Raises:
      ExportError: the content of `path` must not be replaced.
    """
    try:
        if os.path.lexists(path):
            _check_replaceable(path, overwrite=overwrite)
    except UsageError as error:
        raise ExportError(f"while the model was exported, something was written: {error}") from None
    if overwrite and path.is_dir():
        remove(path)
        path.rename(replaced)
    try:
        whole.rename(path)  # replaces an empty folder only
    except OSError as error:
        if replaced.is_dir() and not os.path.lexists(path):
            replaced.rename(path)
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise ExportError(
                f"while the model was exported, something was written to {path}: it stays as it "
                "is, and no artifact was written. Give another folder."
            ) from error
        raise


def remove_leftovers(path: Path) -> None:
    """Removes temporary folders of killed processes, and restores an old folder they moved away."""
    path = path.resolve()
    for leftover in path.parent.glob(f".*{STAGED_SUFFIX}"):
        match = re.fullmatch(re.escape(f".{path.name}.") + r"(\d+)" + STAGED_SUFFIX, leftover.name)
        # In containers the next process often has the process id of the killed one.
        if match is None or (int(match[1]) != os.getpid() and is_alive(int(match[1]))):
            continue
        if (leftover / "replaced").is_dir() and not path.exists():
            (leftover / "replaced").rename(path)  # killed between the two renames
        shutil.rmtree(leftover, ignore_errors=True)


def copy_explanations(runs: Sequence[Path], loaded: Loaded, folder: Path) -> None:
    """Copies the metadata of a model: its hyperparameters and vocabularies.

    Args:
      runs: run directory of the model; of all models of an ensemble.
      loaded: the model.
      folder: destination.
    """
    first = run_of(runs[0])
    for name in ("hparams.json", *vocab_files_in(loaded.problem, first)):
        copy_regular(first / name, folder / name)
    for number, run in enumerate(runs[1:], start=2):
        copy_regular(run_of(run) / "hparams.json", folder / f"hparams-{number}.json")


def write_task(run: Path, loaded: Loaded, folder: Path) -> None:
    """Writes `task.json` of a folder that is loadable like a run, with the model's own problem.

    Copies the code and the declarations of the run.
    """
    copy_code(run_of(run), folder)
    task = loaded.info.task.model_copy(update={"problem": loaded.problem.full_name})
    (folder / "task.json").write_text(task.text, encoding="utf-8")


def write_signature(signature: Signature, folder: Path) -> Signature:
    """Writes the signature of a folder with the checksums of all its files; returns it."""
    paths = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    files = {name: FileChecksum.of(folder / name) for name in sorted(paths) if name != FILE}
    signature = dataclasses.replace(signature, files=files)
    (folder / FILE).write_text(signature.to_json(), encoding="utf-8")
    return signature


def write_examples(examples: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Writes inputs with their predictions, one JSON object per line."""
    with path.open("w", encoding="utf-8") as file:
        for example in examples:
            file.write(json.dumps(example, ensure_ascii=False) + "\n")
