"""Processes that write a checkpoint together: each its own parts, all or none of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from t2t_torch.errors import CheckpointError


class Peers(Protocol):
    """The processes that save together, as one of them sees them."""

    @property
    def rank(self) -> int:
        """Of this process, from 0, which is the leader."""

    @property
    def size(self) -> int:
        """How many processes there are."""

    def exchange(self, message: str) -> Sequence[str]:
        """Hands a message to all and returns those of all, by rank; all must call it.

        Raises:
          RuntimeError: a process died.
        """


class PeerDefectError(Exception):
    """Another process failed for a reason that is a defect of the program."""


def together(peers: Peers, work: Callable[[], Any]) -> list[Any]:
    """Does work in all processes, and returns once all have done theirs.

    If it fails in one it fails in all: none goes on, and none waits for one that has given up.

    Args:
      peers: the processes, all of which must call this.
      work: of this process; its result must fit into JSON.

    Returns:
      the results of all processes, by rank.

    Raises:
      OSError, CheckpointError: of this process's own work.
      CheckpointError: such an error came up in another process.
      PeerDefectError: any other came up in another process.
      Exception: any other, of this process's own work.
    """
    failed: Exception | None = None
    answer: dict[str, Any] = {}
    try:
        answer["result"] = work()
    except (OSError, CheckpointError) as error:
        failed, answer = error, {"error": str(error)}
    except Exception as error:  # raised below, once the others know
        failed, answer = error, {"defect": f"{type(error).__name__}: {error}"}
    answers = [json.loads(message) for message in peers.exchange(json.dumps(answer))]
    if failed is not None and "defect" in answer:
        raise failed
    for rank, other in enumerate(answers):
        if "defect" in other:
            raise PeerDefectError(f"process {rank}: {other['defect']}")
    if failed is not None:
        raise failed
    for rank, other in enumerate(answers):
        if "error" in other:
            raise CheckpointError(f"process {rank}: {other['error']}")
    return [other["result"] for other in answers]
