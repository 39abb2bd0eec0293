"""What is to be exported, of which checkpoint, and where to."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from t2t_torch.artifact.signature import FILE, MODEL, Signature
from t2t_torch.checkpoint.averaging import average_checkpoints
from t2t_torch.checkpoint.checkpoint import Checkpoint
from t2t_torch.checkpoint.directory import CheckpointDirectory
from t2t_torch.data.staging import STAGED_SUFFIX, sync
from t2t_torch.decode.loading import Loaded, load_run
from t2t_torch.errors import ArtifactError, CheckpointError, ExportError, UsageError
from t2t_torch.train.run_directory import RunDirectory

LATEST = "latest"
QUANTIZATIONS = ("int8",)
FEWEST_ROWS = 200


@dataclasses.dataclass(frozen=True)
class Request:
    """What is to be exported.

    Attributes:
      run_dir: the run directory.
      export_dir: where the artifact is to be.
      data_dir: of the generated data, whose dev split it is verified on.
      checkpoint: "latest", "best", a step, the path of a `ckpt-<step>` folder, or "average:8", the
        mean of the newest eight.
      problem: of a run of several problems, the one that is exported.
      quantize: "int8", or "" for the weights as they were trained.
      verify_rows: of the dev split, at most.
      overwrite: whether an artifact that is there is replaced.
    """

    run_dir: Path
    export_dir: Path
    data_dir: Path
    checkpoint: str = LATEST
    problem: str | None = None
    quantize: str = ""
    verify_rows: int = FEWEST_ROWS
    overwrite: bool = False

    def check(self) -> None:
        """Checks what would else be found after minutes.

        Raises:
          UsageError: a value is none that is taken, or the folder cannot be written.
        """
        if self.quantize not in ("", *QUANTIZATIONS):
            raise UsageError(
                f"--quantize={self.quantize}: expected {' or '.join(QUANTIZATIONS)}, or nothing."
            )
        if self.verify_rows < FEWEST_ROWS:
            raise UsageError(
                f"--verify_rows={self.verify_rows}: expected {FEWEST_ROWS} or more; of a dev split "
                "that is smaller all rows are verified."
            )
        self._averaged()
        there = self.export_dir
        if not there.resolve().parent.is_dir():
            raise UsageError(f"--export_dir={there}: there is no folder {there.resolve().parent}.")
        if not os.access(there.resolve().parent, os.W_OK):
            raise UsageError(f"--export_dir={there}: {there.resolve().parent} cannot be written.")
        if os.path.lexists(there):
            _check_replaceable(there, overwrite=self.overwrite)

    def _averaged(self) -> int:
        """Returns how many checkpoints are averaged; 0: none.

        Raises:
          UsageError: the number is none.
        """
        kind, colon, count = self.checkpoint.partition(":")
        if not colon or kind != "average":
            return 0
        if not re.fullmatch("[1-9][0-9]*", count):
            raise UsageError(
                f"--checkpoint={self.checkpoint}: expected how many checkpoints, as in average:8."
            )
        return int(count)

    def load(self, scratch: Path) -> tuple[Loaded, str]:
        """Loads the model on the CPU; returns it and how the checkpoint was chosen.

        Args:
          scratch: an empty folder, for a mean of checkpoints.

        Raises:
          CheckpointError: there is no such checkpoint, or it is broken.
          UsageError: `problem` is not what the run has learnt, or of several it is not said which.
        """
        if count := self._averaged():
            steps = self._average(count, scratch)
            loaded = load_run(scratch, None, self.problem)
            return loaded, f"mean of steps {', '.join(map(str, steps))}"
        asked = None if self.checkpoint == LATEST else self.checkpoint
        loaded = load_run(self.run_dir, asked, self.problem)
        return loaded, f"step {loaded.info.step}"

    def _average(self, count: int, scratch: Path) -> list[int]:
        """Makes a run of the mean of the newest checkpoints; returns their steps."""
        there = CheckpointDirectory(self.run_dir).list()
        found: list[Checkpoint] = []
        for checkpoint in reversed(there):
            if len(found) < count:
                with contextlib.suppress(CheckpointError):  # a broken one is left out
                    checkpoint.verify()
                    found.append(checkpoint)
        if len(found) < count:
            RunDirectory(self.run_dir).task()  # says so if this is no run at all
            raise CheckpointError(
                f"'{self.run_dir}' has too few whole checkpoints for an average of {count}: "
                f"{[one.step for one in there]}. Give a smaller number; t2t-trainer "
                "--keep_checkpoint_max says how many are kept."
            )
        vocabularies = found[0].manifest().get("vocabularies", {})
        for name in ("task.json", "hparams.json", *vocabularies):
            shutil.copyfile(self.run_dir / name, scratch / name)
        average_checkpoints(found, CheckpointDirectory(scratch))
        return sorted(one.step for one in found)


def _check_replaceable(there: Path, *, overwrite: bool) -> None:
    """Raises UsageError unless a folder is empty, or an artifact that may be replaced."""
    if there.is_symlink() or not there.is_dir():
        raise UsageError(f"--export_dir={there} is there already, and no folder. Give another.")
    names = {path.name for path in there.iterdir()}
    if not names:
        return
    if not {FILE, MODEL} <= names:
        raise UsageError(
            f"--export_dir={there} is there already, and is no artifact: nothing in it is "
            "touched. Give another folder."
        )
    if not overwrite:
        raise UsageError(
            f"--export_dir={there} is an artifact already. Replace it with --overwrite, or "
            "give another folder."
        )
    try:
        others = sorted(names - {FILE, *Signature.read(there).files})
    except ArtifactError as error:
        raise UsageError(
            f"--export_dir={there} cannot be replaced, as it is not known which files are of the "
            f"artifact: {error} Or remove the folder, or give another."
        ) from None
    if others:
        raise UsageError(
            f"--export_dir={there} is an artifact with files that are not of it: "
            f"{', '.join(others)}. Nothing in it is touched. Move them elsewhere, or give another "
            "folder."
        )


@contextlib.contextmanager
def staged_folder(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yields a temporary folder beside `path`; on success its folder "whole" is renamed to it.

    A reader therefore sees the old folder, none, or the whole new one.  When the body raises, the
    temporary folder is removed and `path` is as it was.

    Args:
      path: missing, an empty folder, or an artifact.
      overwrite: whether an artifact is replaced.

    Raises:
      ExportError: meanwhile something came to `path` that is not to be replaced.
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
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _put(whole: Path, path: Path, replaced: Path, *, overwrite: bool) -> None:
    """Renames a folder to `path`; what may be replaced there becomes `replaced`.

    Raises:
      ExportError: what is at `path` may not be replaced.
    """
    try:
        if os.path.lexists(path):
            _check_replaceable(path, overwrite=overwrite)
    except UsageError as error:
        raise ExportError(f"while the model was exported, something was written: {error}") from None
    if overwrite and path.is_dir():
        path.rename(replaced)
    try:
        whole.rename(path)  # an empty folder gives way, another does not
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
    """Removes what killed processes left of `path`; an old folder that one took away comes back."""
    path = path.resolve()
    for leftover in path.parent.glob(f".*{STAGED_SUFFIX}"):
        match = re.fullmatch(re.escape(f".{path.name}.") + r"(\d+)" + STAGED_SUFFIX, leftover.name)
        # In containers the next process often has the number of the one that was killed.
        if match is None or (int(match[1]) != os.getpid() and _is_alive(int(match[1]))):
            continue
        if (leftover / "replaced").is_dir() and not path.exists():
            (leftover / "replaced").rename(path)  # killed between the two renames
        shutil.rmtree(leftover, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
