"""The lock of a run directory: one process trains there."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

from t2t_torch.errors import CheckpointError


class Lock:
    """An flock on a file; the kernel drops it when the process ends, however it ends.

    Args:
      path: the file; created, never removed (removing a locked file would let a second one in).

    Raises:
      CheckpointError: another process holds it.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._descriptor, 256).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise CheckpointError(
                f"another process trains in '{path.parent}' ({holder or 'unknown'}). "
                "Wait for it, stop it, or use another --output_dir."
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(
            self._descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0
        )

    def release(self) -> None:
        """Lets others train here."""
        if self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # forked workers hold copies of it
            os.close(self._descriptor)
            self._descriptor = -1
