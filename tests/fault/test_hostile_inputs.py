"""No file from outside starts a program, takes much memory or time, or ends the process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hostile
import pytest

MAKERS = hostile.all_makers()


@pytest.fixture(scope="module")
def watch() -> Iterator[hostile.Watch]:
    one = hostile.Watch()
    yield one
    one.close()


def cases() -> list[object]:
    return [
        pytest.param(key, marks=() if maker.is_quick else pytest.mark.slow)
        for key, maker in MAKERS.items()
    ]


@pytest.mark.parametrize("key", cases())
def test_a_hostile_file_is_refused_at_little_cost(
    key: str, watch: hostile.Watch, tmp_path: Path
) -> None:
    outcome = watch.read(MAKERS[key], tmp_path)
    assert outcome.faults(MAKERS[key]) == []
