"""Deleting the checkpoints that need not be kept."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence

from t2t_torch.checkpoint.checkpoint import Checkpoint
from t2t_torch.checkpoint.disk import free_name, remove_folder, rename
from t2t_torch.checkpoint.ratings import Ratings
from t2t_torch.checkpoint.retention import Retention
from t2t_torch.errors import CheckpointError

_FULL = (errno.ENOSPC, errno.EDQUOT)


class Deletion:
    """Deletes checkpoints once there are later ones, or to make room for them.

    Args:
      retention: which are kept.
      ratings: of those that were evaluated.
    """

    def __init__(self, retention: Retention, ratings: Ratings) -> None:
        self._retention = retention
        self._ratings = ratings

    def after(self, written: Checkpoint, checkpoints: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        """Deletes what is superfluous; returns it.

        Args:
          written: the newest that is known to be whole.
          checkpoints: all, oldest first.

        Raises:
          OSError: the disk fails.
          CheckpointError: `best.json` is damaged.
        """
        ranked = self._ratings.ranked()
        superfluous = self._retention.superfluous(checkpoints, written, ranked)
        for checkpoint in superfluous:
            # Renamed first: a crash in the middle of deleting leaves nothing that looks like one.
            removed = free_name(checkpoint.path.with_name(f"{checkpoint.path.name}.removed"))
            rename(checkpoint.path, removed)
            remove_folder(removed)
        return superfluous

    def before(self, coming: Checkpoint, there: Sequence[Checkpoint], error: Exception) -> None:
        """Deletes what would go once another is written, if that failed as the disk is full.

        The newest stays, and if it is not whole all do.

        Args:
          coming: that is being written.
          there: all others, oldest first.
          error: why it failed.
        """
        if not (isinstance(error, OSError) and error.errno in _FULL) or len(there) < 2:
            return
        try:
            there[-1].verify()
            deleted = self.after(there[-1], sorted([*there, coming]))
            if deleted:
                names = ", ".join(one.path.name for one in deleted)
                _warn(f"deleted before {coming.path.name} is written, to make room: {names}")
        except (OSError, CheckpointError) as fault:
            _warn(f"nothing is deleted to make room: {fault}")


def _warn(told: str) -> None:
    print(f"warning: {told}", file=sys.stderr, flush=True)
