"""Times of a search as people say them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Writes a time: "45 s", "3 min 20 s", "2 h 5 min"."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
