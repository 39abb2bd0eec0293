"""Messages between processes beside training: from a thread, while the main one computes."""

from __future__ import annotations

import dataclasses
import datetime

import torch
import torch.distributed as dist

from t2t_torch.compute import groups

# As long as gradients may take: a thread that writes a large checkpoint holds up the others.
_LONGEST_WAIT = datetime.timedelta(hours=12)


@dataclasses.dataclass(frozen=True)
class SideChannel:
    """A group of its own over gloo, so that its messages and training's do not mix.

    Attributes:
      rank: of this process.
      size: processes.
      group: theirs.
    """

    rank: int
    size: int
    group: groups.Held

    @classmethod
    def open(cls) -> SideChannel:
        """Opens a channel between the processes of the world; all of them must do it."""
        group = groups.hold(dist.new_group(backend="gloo", timeout=_LONGEST_WAIT))
        return cls(dist.get_rank(), dist.get_world_size(), group)

    def exchange(self, message: str) -> list[str]:
        """Returns the messages of all processes, by rank; all must hand in one.

        Raises:
          RuntimeError: a process died.
        """
        own = torch.frombuffer(bytearray(message.encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(own)]), group=self.group())
        longest = int(max(sizes))
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(own)] = own
        found = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(found, padded, group=self.group())
        return [
            bytes(text[: int(size)].tolist()).decode()
            for text, size in zip(found, sizes, strict=True)
        ]
