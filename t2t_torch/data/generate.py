"""From a problem to its vocabulary, shards and manifest."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from absl import logging

from t2t_torch import registry
from t2t_torch.data.encoding import Encoder, MakeFeatures
from t2t_torch.data.manifest import Manifest
from t2t_torch.data.parts import Parts
from t2t_torch.data.publish import Publication
from t2t_torch.data.request import Request
from t2t_torch.data.share import encode_share, whole
from t2t_torch.data.shuffle import Shuffle
from t2t_torch.data.staging import STAGED_SUFFIX
from t2t_torch.readers.bad_records import Policy

if TYPE_CHECKING:
    from t2t_torch.problem import Problem


def generate_data(
    problem: Problem,
    data_dir: str | Path,
    tmp_dir: str | Path,
    *,
    num_processes: int | None = None,
    seed: int | None = None,
    max_cases: int = 0,
    on_bad_record: Policy = "fail",
    overwrite: bool = False,
    progress: bool = True,
) -> Manifest:
    """Generates a problem's vocabulary, shards and manifest, or verifies that they are there.

    Samples are encoded as they come, shuffled with bounded memory and written to a folder
    `.NAME.incomplete`; when all is written the shards are moved to their names and the manifest is
    written.  Whatever happens before leaves nothing that looks finished.  The bytes depend on the
    problem's settings, its raw files and `seed` alone.  A vocabulary that the problem learns is
    part of the data set: learnt with it and published with it; one that is borrowed or the user's
    own (`kept_vocab_files`) is used as it is.  A second call for the same data set waits for the
    first.

    Args:
      problem: what to generate; a `_rev` or `_copy` problem shares the data of its base.
      data_dir: where to; made if absent.
      tmp_dir: where the raw files are or are downloaded to; made if absent.
      num_processes: how many processes encode; None takes all CPUs when the data is large.
      seed: of the shuffle and of Python's and numpy's global generators; None is the problem's own.
      max_cases: at most so many samples of each split; 0 is all.
      on_bad_record: "skip" leaves out records that cannot be read and samples that cannot be
        encoded, counts them in the manifest and lists them in `NAME.skipped.txt`.
      overwrite: replace a data set that was made with other settings, or make it again.
      progress: show a progress bar on stderr.

    Raises:
      DataError: raw files are missing or malformed, a sample cannot be encoded, a split is empty,
        or the data set is there with other settings, raw files or vocabulary of the user's; or
        a directory cannot be made.
    """
    request = Request.of(
        problem,
        data_dir,
        tmp_dir,
        seed=seed,
        max_cases=max_cases,
        on_bad_record=on_bad_record,
    )
    with request.lock():
        if not overwrite:
            manifest = request.complete(thorough=True)
            if manifest is not None:
                request.tell_complete()
                return manifest
        return _make(request, num_processes, progress=progress)


def _make(request: Request, num_processes: int | None, *, progress: bool) -> Manifest:
    """Generates everything; the caller holds the lock."""
    problem = request.problem
    staging = request.folder / f".{request.name}{STAGED_SUFFIX}"
    shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
    staging.mkdir()
    try:
        made_from, vocab_folder = request.learn(staging)
        features = problem.stored_features(vocab_folder)
        make_features = MakeFeatures(problem, vocab_folder, registry.usr_dirs())
        skip_unfit = request.on_bad_record == "skip"
        publication = Publication(request, features, staging)
        with Encoder(features, make_features, num_processes, skip_unfit=skip_unfit) as encoder:
            for split in problem.shards:
                shuffle = Shuffle(
                    f"{request.seed}:{split.value}",
                    staging / f"spill-{split.value}",
                    keeps_order=problem.keeps_order,
                )
                share = encode_share(request, split, features, encoder, shuffle, progress=progress)
                entry = whole([share], request.where(split))
                logging.info(
                    "%s: %d rows encoded, writing the shards.", request.where(split), entry.rows
                )
                publication.write(split, entry, shuffle.drain())
        Parts(request.folder, request.name).done.unlink(missing_ok=True)  # of data that goes now
        return publication.publish(made_from, vocab_folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
