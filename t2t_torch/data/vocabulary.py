"""The vocabulary files of a data set: which are learnt for it, which are only used."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from absl import logging

from t2t_torch.data.manifest import datagen_command, sha256_of
from t2t_torch.errors import DataError

if TYPE_CHECKING:
    from t2t_torch.problem import Problem


def make(problem: Problem, folder: Path, tmp_dir: Path, staging: Path) -> Path:
    """Makes the vocabulary files; returns the folder in which all of them are.

    What the problem learns is learnt anew, in `staging`, whatever `folder` holds: a file there may
    be of a run that failed, or of other raw files.  A file that is kept (`kept_vocab_files`), or
    that `build_vocab` does not write, is the one of `folder`.

    Args:
      problem: whose vocabulary.
      folder: the data folder.
      tmp_dir: holds the raw files; `prepare` has been called.
      staging: an empty folder.

    Returns:
      `staging`, from which `publish` moves the files, or `folder` if none is learnt.
    """
    kept = [file for file in problem.kept_vocab_files if (folder / file).is_file()]
    if set(kept) == set(problem.vocab_files):
        problem.build_vocab(folder, tmp_dir)
        return folder
    for file in kept:
        shutil.copyfile(folder / file, staging / file)
    problem.build_vocab(staging, tmp_dir)
    for file in problem.vocab_files:
        if not (staging / file).exists() and (folder / file).is_file():
            shutil.copyfile(folder / file, staging / file)
    return staging


def publish(vocab_files: Mapping[str, str], staging: Path, folder: Path) -> None:
    """Moves the vocabulary files that differ, or are not there, from staging to the data folder.

    Args:
      vocab_files: their sha256, by name.
      staging: where `make` left them.
      folder: the data folder.
    """
    for file, sha256 in vocab_files.items():
        path = folder / file
        if path.is_file():
            if sha256_of(path) == sha256:
                continue
            logging.warning(
                "%s is learnt anew and differs from what was there; other data that was made with "
                "it has to be made anew too.",
                path,
            )
        (staging / file).replace(path)


def check_kept(problem: Problem, folder: Path, vocab_files: Mapping[str, str]) -> None:
    """Checks that the vocabulary files that are not learnt are those of the manifest.

    Args:
      problem: whose vocabulary.
      folder: the data folder.
      vocab_files: what the manifest says: their sha256, by name.

    Raises:
      DataError: one differs.
    """
    changed = [
        str(folder / file)
        for file in problem.kept_vocab_files
        if (folder / file).is_file()
        and file in vocab_files
        and sha256_of(folder / file) != vocab_files[file]
    ]
    if changed:
        name = problem.dataset_name
        raise DataError(
            f"The data of {name!r} in {folder} was made with another vocabulary than is there now: "
            f"{', '.join(changed)}. Put the earlier one back, or make the data with this one:  "
            f"{datagen_command(name, folder)} --overwrite"
        )
