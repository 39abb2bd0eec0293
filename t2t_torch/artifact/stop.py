"""A word to a computation: nobody waits for it any more."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from t2t_torch.artifact.onnx_runtime import onnx_runtime

_SHRINKAGE = "memory.enable_memory_arena_shrinkage"  # of onnxruntime's RunOptions


class Stopped(Exception):
    """A computation was ended before it had found anything; no fault of an input."""


class Stop:
    """Ends a computation from another thread.

    A run of onnxruntime, and a search inside a graph, ends when the operator that runs is done:
    mostly within a tenth of a second, with a very long input after seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._options: Any = None
        self._is_set = False

    @property
    def is_set(self) -> bool:
        """Whether the computation has to end."""
        return self._is_set

    def set(self) -> None:
        """Ends the computation."""
        with self._lock:
            self._is_set = True
            if self._options is not None:
                self._options.terminate = True

    def check(self) -> None:
        """Raises Stopped if the computation has to end."""
        if self._is_set:
            raise Stopped("nobody waits for it.")

    @contextlib.contextmanager
    def run(self, *, gives_back: bool = False) -> Iterator[Any]:
        """Yields onnxruntime's RunOptions for one run, which `set` ends.

        Args:
          gives_back: whether the memory that the session took goes back to the system at the end,
            also if the run was ended; the next one has to ask for it anew.

        Raises:
          Stopped: it was ended, or should not begin.
        """
        self.check()
        options = onnx_runtime().RunOptions()
        if gives_back:
            options.add_run_config_entry(_SHRINKAGE, "cpu:0")
        with self._lock:
            options.terminate = self._is_set
            self._options = options
        try:
            yield options
        except Exception:  # of onnxruntime's own, which have no base of theirs
            self.check()
            raise
        finally:
            with self._lock:
                self._options = None
