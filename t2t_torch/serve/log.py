"""A log of one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone
from typing import Any, TextIO

LOG = logging.getLogger("t2t_torch.serve")
_ELSEWHERE = ("uvicorn", "uvicorn.error", "asyncio")


class JsonLines(logging.Formatter):
    """Writes what is logged as JSON: `time`, `level`, `event`, and what else is known of it."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        when = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "told", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


def start_log(stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Sends what the server says to a stream, stderr by default, and nowhere else."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in (LOG.name, *_ELSEWHERE):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level if name == LOG.name else logging.WARNING)


def tell(event: str, level: int = logging.INFO, *, error: bool = False, **told: Any) -> None:
    """Logs an event.

    Args:
      event: a few words that are always the same.
      level: how grave it is.
      error: whether the traceback of the exception that is handled is told, too.
      told: what is known of it.
    """
    LOG.log(level, event, extra={"told": told}, exc_info=error)
