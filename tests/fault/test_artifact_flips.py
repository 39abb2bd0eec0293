"""Any changed byte of an artifact is refused by name or changes nothing: no answer is wrong."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import results
from served import ROW, write_artifact

import t2t_torch
from t2t_torch.artifact.signature import EXAMPLES, FILE, MODEL
from t2t_torch.errors import ArtifactError

BEGIN = "<!-- artifact flips: begin -->"
END = "<!-- artifact flips: end -->"
_BINARY = 1000  # flips of each binary file


def outcome(folder: Path, expected: Any) -> str:
    """What came of loading and asking an artifact: "refused" or "without effect"."""
    try:
        answer = t2t_torch.load(folder, threads=1).predict([ROW])
    except ArtifactError as error:
        assert str(folder) in str(error)
        return "refused"
    assert answer == expected
    return "without effect"


def flips(path: Path, places: list[int], folder: Path, expected: Any) -> Counter[str]:
    """Changes single bytes of a file, each to another value, and counts the outcomes."""
    content, draw, counts = path.read_bytes(), random.Random(0), Counter[str]()
    for place in places:
        changed = bytearray(content)
        changed[place] ^= draw.randrange(1, 256)
        path.write_bytes(changed)
        counts[outcome(folder, expected)] += 1
    path.write_bytes(content)
    assert outcome(folder, expected) == "without effect"
    return counts


def all_flips(folder: Path, every: int) -> dict[str, Counter[str]]:
    """Flips each `every`-th byte of JSON files and a part as large of 1,000 of others."""
    write_artifact(folder)
    expected = t2t_torch.load(folder, threads=1).predict([ROW])
    found = {}
    for name in (FILE, EXAMPLES, MODEL):
        size = (folder / name).stat().st_size
        places = list(range(0, size, every))
        if name == MODEL:
            draw = random.Random(1)
            places = [draw.randrange(size) for _ in range(_BINARY // every)]
        found[name] = flips(folder / name, places, folder, expected)
    return found


def test_a_changed_byte_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    found = all_flips(tmp_path / "artifact", every=41)
    assert found[FILE]["refused"] > 20 * found[FILE]["without effect"]
    assert found[EXAMPLES]["without effect"] == found[MODEL]["without effect"] == 0


@pytest.mark.slow
def test_every_changed_byte_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    found = all_flips(tmp_path / "artifact", every=1)
    if page := os.environ.get("T2T_FAULT_PAGE"):
        write(Path(page), found)
    assert all(sum(counts.values()) >= 100 for counts in found.values())


def write(page: Path, found: dict[str, Counter[str]]) -> None:
    """Puts the table between the page's two marks."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    assert after, f"{page} lacks the mark {END}"
    rows = [
        f"| `{name}` | {sum(counts.values()):,} | {counts['refused']:,} | "
        f"{counts['without effect']:,} | 0 |"
        for name, counts in found.items()
    ]
    head = ["| file | bytes changed | refused | without effect | wrong |", "|---|--:|--:|--:|--:|"]
    block = "\n".join([BEGIN, f"{results.machine()}.", "", *head, *rows, END])
    page.write_text(f"{before}{block}{after}", "utf-8")
