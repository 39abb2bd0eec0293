"""What is to be exported, of which checkpoint, and where to."""

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

from t2t_torch.checkpoint.checkpoint import Checkpoint
from t2t_torch.checkpoint.directory import CheckpointDirectory
from t2t_torch.checkpoint.warm_start import average_checkpoints
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.loading import Loaded, as_one, load_member, load_run
from t2t_torch.errors import ArtifactError, CheckpointError, ExportError, UsageError
from t2t_torch.files import STAGED_SUFFIX, sync
from t2t_torch.runtime.signature import (
    CTRANSLATE2,
    FILE,
    ONNX,
    SAFETENSORS,
    TORCH,
    Signature,
    Written,
)
from t2t_torch.train.run_directory import RunDirectory, check_files

LATEST = "latest"
FORMS = (ONNX, TORCH, SAFETENSORS, CTRANSLATE2)
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
      form: one of `FORMS`.
      decode_hparams: of what writes texts, how they are searched for.
      others: further runs, or `ckpt-<step>` folders in them, whose models answer with that of
        `run_dir` as one.
    """

    run_dir: Path
    export_dir: Path
    data_dir: Path
    checkpoint: str = LATEST
    problem: str | None = None
    quantize: str = ""
    verify_rows: int = FEWEST_ROWS
    overwrite: bool = False
    form: str = ONNX
    others: Sequence[Path] = ()
    decode_hparams: DecodeHParams = dataclasses.field(default_factory=DecodeHParams)

    def check(self) -> None:
        """Checks what would else be found after minutes.

        Raises:
          UsageError: a value is none that is taken, or the folder cannot be written.
        """
        self._check_form()
        if self.verify_rows < FEWEST_ROWS:
            raise UsageError(
                f"--verify_rows={self.verify_rows}: expected {FEWEST_ROWS} or more; of a dev split "
                "that is smaller all rows are verified."
            )
        self._averaged()
        there = self.export_dir
        # Folders that are not there are made.
        above = next(folder for folder in there.resolve().parents if os.path.lexists(folder))
        if not above.is_dir():
            raise UsageError(f"--export_dir={there}: {above} is no folder. Give another folder.")
        if not os.access(above, os.W_OK):
            raise UsageError(f"--export_dir={there}: {above} cannot be written.")
        if there.resolve() in {run_of(run) for run in self.runs}:
            raise UsageError(f"--export_dir={there} is the run itself. Give another folder.")
        if os.path.lexists(there):
            _check_replaceable(there, overwrite=self.overwrite)

    def _check_form(self) -> None:
        if self.form not in FORMS:
            raise UsageError(f"--format={self.form}: expected one of {', '.join(FORMS)}.")
        if self.quantize and self.form in (TORCH, SAFETENSORS):
            raise UsageError(
                f"--quantize={self.quantize} is not for --format={self.form}, whose weights are as "
                "they were trained. Leave it out, or quantize a graph: --format=onnx"
            )
        # What CTranslate2 can store it says itself.
        if self.form == ONNX and self.quantize not in ("", *QUANTIZATIONS):
            raise UsageError(
                f"--quantize={self.quantize}: expected {' or '.join(QUANTIZATIONS)}, or nothing."
            )
        if self.others and self.form in (SAFETENSORS, CTRANSLATE2):
            told = ",".join(map(str, (self.run_dir, *self.others)))
            raise UsageError(
                f"--output_dir={told}: --format={self.form} holds the weights of one model. Export "
                "each run; t2t_torch.load([one, other]) answers with several as one."
                if self.form == SAFETENSORS
                else f"--output_dir={told}: --format={self.form} holds one model. Give one run."
            )

    @property
    def runs(self) -> tuple[Path, ...]:
        """All runs, or `ckpt-<step>` folders in them."""
        return (self.run_dir, *self.others)

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

    def load_members(self, scratch: Path) -> list[Member]:
        """Loads the model of each run on the CPU.

        Args:
          scratch: an empty folder, for means of checkpoints.

        Raises:
          CheckpointError: there is no such checkpoint, or it is damaged.
          UsageError: `problem` is not what the run has learnt, or it is missing for a run of
            several problems.
        """
        found = []
        for number, path in enumerate(self.runs):
            folder = scratch / str(number)
            folder.mkdir()
            found.append(self._member(path, folder))
        return found

    def _member(self, path: Path, scratch: Path) -> Member:
        folder = run_of(path)
        name = "/".join((folder.name, *path.resolve().relative_to(folder).parts))
        if count := self._averaged():
            steps = self._average(folder, count, scratch)
            loaded = load_run(scratch, None, self.problem)
            return Member(loaded, name, f"mean of steps {', '.join(map(str, steps))}")
        asked = None if self.checkpoint == LATEST else self.checkpoint
        load = load_member if self.others else load_run
        loaded = load(path, asked, self.problem)
        return Member(loaded, name, f"step {loaded.info.step}")

    def _average(self, run: Path, count: int, scratch: Path) -> list[int]:
        """Makes a run of the mean of a run's newest checkpoints; returns their steps."""
        found = newest_whole(run, count)
        vocabularies = found[0].manifest().get("vocabularies", {})
        check_files(run, ["task.json", "hparams.json"])
        for name in ("task.json", "hparams.json", *vocabularies):
            shutil.copyfile(run / name, scratch / name)
        average_checkpoints(found, CheckpointDirectory(scratch))
        return sorted(one.step for one in found)


def newest_whole(run: Path, count: int) -> list[Checkpoint]:
    """Returns the newest checkpoints of a run that are whole, the newest first.

    Args:
      run: its directory.
      count: of checkpoints.

    Raises:
      CheckpointError: there are fewer, or this is no run.
    """
    there = CheckpointDirectory(run).list()
    found: list[Checkpoint] = []
    for checkpoint in reversed(there):
        if len(found) < count:
            with contextlib.suppress(CheckpointError):  # a broken one is left out
                checkpoint.verify()
                found.append(checkpoint)
    if len(found) < count:
        RunDirectory(run).task()  # says so if this is no run at all
        raise CheckpointError(
            f"'{run}' has too few whole checkpoints for an average of {count}: "
            f"{[one.step for one in there]}. Give a smaller number; t2t-trainer "
            "--keep_checkpoint_max says how many are kept."
        )
    return found


class Member(NamedTuple):
    """A model, and where it is from.

    Attributes:
      loaded: the model.
      run: the name of the run's folder; of a `ckpt-<step>` folder, both names.
      chosen: how the checkpoint was chosen: "step 500", "mean of steps 400, 500".
    """

    loaded: Loaded
    run: str
    chosen: str

    def __str__(self) -> str:
        return f"{self.run}: {self.loaded.info.task.model}, {self.chosen}"


def joined(members: Sequence[Member]) -> tuple[Loaded, str]:
    """Returns the model, or the mean of several, and how the checkpoints were chosen.

    Raises:
      HParamsError: they are of different targets or vocabularies.
    """
    if len(members) == 1:
        return members[0].loaded, members[0].chosen
    return as_one([member.loaded for member in members]), f"mean of {len(members)} models"


def run_of(path: Path) -> Path:
    """Returns the run directory of a `ckpt-<step>` folder, or of itself.  Resolved."""
    folder = path.resolve()
    is_checkpoint = re.fullmatch(r"ckpt-\d+", folder.name) and folder.is_dir()
    return folder.parent if is_checkpoint else folder


def _check_replaceable(there: Path, *, overwrite: bool) -> None:
    """Raises UsageError unless a folder is empty, or an artifact that may be replaced."""
    if there.is_symlink() or not there.is_dir():
        raise UsageError(f"--export_dir={there} is there already, and no folder. Give another.")
    names = {path.name for path in there.iterdir()}
    if not names:
        return
    if FILE not in names:
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
        own = {Path(name).parts[0] for name in Signature.read(there).files}
        others = sorted(names - {FILE, *own})
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
      ExportError: meanwhile something came to `path` that is not to be replaced, or the disk is
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


# The files of an artifact, beside what holds its weights.


def copy_explanations(runs: Sequence[Path], loaded: Loaded, folder: Path) -> None:
    """Copies what explains a model: its hyperparameters and vocabularies.

    Args:
      runs: of the model; of several as one, of all.
      loaded: the model.
      folder: where to.
    """
    first = run_of(runs[0])
    for name in ("hparams.json", *loaded.problem.vocab_files_in(first)):
        shutil.copyfile(first / name, folder / name)
    for number, run in enumerate(runs[1:], start=2):
        shutil.copyfile(run_of(run) / "hparams.json", folder / f"hparams-{number}.json")


def write_task(loaded: Loaded, folder: Path) -> None:
    """Writes `task.json` of a folder that is loaded as a run is; its problem is the model's own."""
    task = loaded.info.task.model_copy(update={"problem": loaded.problem.full_name})
    (folder / "task.json").write_text(task.model_dump_json(indent=2) + "\n", encoding="utf-8")


def write_signature(signature: Signature, folder: Path) -> Signature:
    """Writes the signature of a folder with the checksums of all files in it; returns it."""
    paths = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    files = {name: Written.of(folder / name) for name in sorted(paths) if name != FILE}
    signature = dataclasses.replace(signature, files=files)
    (folder / FILE).write_text(signature.to_json(), encoding="utf-8")
    return signature


def write_examples(examples: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Writes inputs with their answers, one JSON object a line."""
    with path.open("w", encoding="utf-8") as file:
        for example in examples:
            file.write(json.dumps(example, ensure_ascii=False) + "\n")
