"""A checkpoint to which each of several processes adds its own parts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from t2t_torch.checkpoint.checkpoint import Checkpoint, kinds_of
from t2t_torch.checkpoint.disk import make_folder, rename
from t2t_torch.checkpoint.explanations import Explanations
from t2t_torch.checkpoint.peers import Peers, together
from t2t_torch.checkpoint.snapshot import Snapshot


def write_share(
    snapshot: Snapshot, final: Checkpoint, begin: Callable[[], Path | None], peers: Peers
) -> None:
    """Writes this process's parts; returns when the checkpoint of all is there.

    The leader makes the folder, and when all have written and read back their files it adds the
    manifest, with the sums that they tell it, and renames the folder.

    Args:
      snapshot: a share.
      final: the checkpoint that is to be.
      begin: called in the leader; returns the temporary folder, which it makes, or None if the
        checkpoint is there already.
      peers: all of which must call this, with shares of the same step.

    Raises:
      OSError, CheckpointError: it could not be written, be it in another process; nothing half is
        left.
      RuntimeError, PeerDefectError: another process died, or has a defect.
    """
    leads = peers.rank == 0
    made: list[Path] = []

    def make_folders() -> str:
        staged = begin() if leads else None
        if staged is None:
            return ""
        made.append(staged)
        for folder in (staged, *(staged / kind for kind in kinds_of(snapshot))):
            make_folder(folder)
        return staged.name

    def finish() -> None:
        if leads:
            tensors = {name: entry for one in files for name, entry in one.items()}
            said = Explanations.of(final.path.parent)
            Checkpoint.write_rest(
                staged, snapshot, tensors, copies=said.copies, vocabularies=said.vocabularies
            )
            rename(staged, final.path)

    try:
        name = together(peers, make_folders)[0]
        if name:
            staged = final.path.with_name(name)
            files = together(peers, lambda: Checkpoint.write_tensors(staged, snapshot))
            together(peers, finish)
    except Exception:
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)
        raise
