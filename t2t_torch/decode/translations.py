"""Files of outputs of one checkpoint after another, and their scores as curves.

A file is named `<anything>-<step>`, as `t2t-translate-all` names them; its time is that of its
checkpoint.  The scores are TensorBoard's events at that step and time, as those of tensor2tensor's
`t2t-bleu`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from t2t_torch.data.staging import staged
from t2t_torch.errors import DataError

_NAME = re.compile(r".*-(\d+)")
_TAGS = {"t2t_bleu": "BLEU_cased", "t2t_bleu_uncased": "BLEU_uncased"}


class Translation(NamedTuple):
    """A file of outputs.

    Attributes:
      step: of the checkpoint.
      path: of the file.
    """

    step: int
    path: Path

    @property
    def seconds(self) -> float:
        """When the checkpoint was written, since 1970."""
        return self.path.stat().st_mtime


def translations_in(folder: Path, min_steps: int = 0) -> list[Translation]:
    """Returns the files of outputs of a folder, the fewest steps first.

    Args:
      folder: where they are; empty if it is not there.
      min_steps: those of fewer are left out.

    Raises:
      DataError: two are of the same step.
    """
    found: dict[int, Path] = {}
    for path in sorted(folder.glob("*-*")) if folder.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match is None or path.name.startswith(".") or not path.is_file():
            continue
        step = int(match[1])
        if step < min_steps:
            continue
        if step in found:
            raise DataError(
                f"{found[step]} and {path} are of the same step. Give each series of translations "
                "a folder of its own."
            )
        found[step] = path
    return [Translation(step, path) for step, path in sorted(found.items())]


def start_of(folder: Path) -> float:
    """Returns the time of the oldest file of a folder, in seconds since 1970."""
    return min(path.stat().st_mtime for path in folder.iterdir() if path.is_file())


class ScoreEvents:
    """Scores as events, and up to which step there are some.

    Args:
      folder: where the events are written; made if absent.
      suffix: what the tags end in.
    """

    def __init__(self, folder: Path, suffix: str = "") -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder.mkdir(parents=True, exist_ok=True)
        self._suffix = suffix
        self._last = folder / f"last_evaluated_step{suffix}.txt"
        self._writer: Any = EventFileWriter(str(folder))  # type: ignore[no-untyped-call]

    def last_step(self) -> int | None:
        """Returns the last step that was scored; None if there is none.

        Raises:
          DataError: the file that tells it is damaged.
        """
        try:
            return int(self._last.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            raise DataError(
                f"{self._last} should hold the number of a step. Remove it, and all is scored "
                "again, or say where to begin: --min_steps=..."
            ) from None

    def write(self, step: int, seconds: float, scores: Mapping[str, float]) -> None:
        """Writes scores.

        Args:
          step: of the checkpoint.
          seconds: when it was written, since 1970.
          scores: by name.
        """
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=f"{_TAGS.get(name, name)}{self._suffix}", simple_value=value)
            for name, value in scores.items()
        ]
        event = Event(step=step, wall_time=seconds, summary=Summary(value=values))
        self._writer.add_event(event)
        self._writer.flush()

    def note(self, step: int) -> None:
        """Notes that a step was scored."""
        with staged(self._last) as file:
            file.write_text(f"{step}\n", encoding="utf-8")

    def close(self) -> None:
        """Ends the file of events."""
        self._writer.close()
