"""Any changed byte of an exported model is refused by name or changes nothing."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import exported
import pytest
import results
from served import ROW, write_artifact

import t2t_torch
from t2t_torch.bin.commands import exporter
from t2t_torch.errors import T2TError
from t2t_torch.runtime.signature import FILE

BEGIN = "<!-- artifact flips: begin -->"
END = "<!-- artifact flips: end -->"
_BINARY = 1000  # flips of each binary file
_BINARIES = (".onnx", ".pt2", ".safetensors")
ASKED = {"onnx": ROW, "safetensors": exported.ROW, "torch": exported.ROW}


@pytest.fixture
def make(own_registry: None, tmp_path: Path) -> Callable[[str], Path]:
    """Makes what is exported in a form."""

    def make(form: str) -> Path:
        folder = tmp_path / form
        if form == "onnx":
            return write_artifact(folder)
        if not (tmp_path / "run").exists():
            exported.write_run(tmp_path)
        assert exporter.main(exported.flags_of(tmp_path, form, folder)) == 0
        return folder

    return make


def answer_of(folder: Path, form: str) -> Any:
    """What it answers, when it is loaded again."""
    return t2t_torch.load(folder, device="cpu").predict([ASKED[form]])


def outcome(folder: Path, form: str, expected: Any) -> str:
    """The result of loading and asking it: "refused" or "without effect"."""
    try:
        answer = answer_of(folder, form)
    except T2TError as error:
        assert str(folder) in str(error)
        return "refused"
    assert answer == expected
    return "without effect"


def flips(path: Path, places: list[int], form: str, expected: Any) -> Counter[str]:
    """Changes single bytes of a file, each to another value, and counts the outcomes."""
    content, draw, counts = path.read_bytes(), random.Random(0), Counter[str]()
    for place in places:
        changed = bytearray(content)
        changed[place] ^= draw.randrange(1, 256)
        path.write_bytes(changed)
        counts[outcome(path.parent, form, expected)] += 1
    path.write_bytes(content)
    assert outcome(path.parent, form, expected) == "without effect"
    return counts


def all_flips(folder: Path, form: str, every: int) -> dict[str, Counter[str]]:
    """Flips each `every`-th byte of texts and a part as large of 1,000 of other files."""
    expected = answer_of(folder, form)
    found = {}
    for path in sorted(folder.iterdir()):
        size = path.stat().st_size
        places = list(range(0, size, every))
        if path.suffix in _BINARIES:
            draw = random.Random(1)
            places = [draw.randrange(size) for _ in range(_BINARY // every)]
        found[path.name] = flips(path, places, form, expected)
    return found


@pytest.mark.parametrize("form", ["onnx", "safetensors"])
def test_a_changed_byte_is_refused_or_changes_nothing(make: Any, form: str) -> None:
    found = all_flips(make(form), form, every=41)
    assert found[FILE]["refused"] > 10 * found[FILE]["without effect"]
    assert not any(counts["without effect"] for name, counts in found.items() if name != FILE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_changed_byte_is_refused_or_changes_nothing(make: Any) -> None:
    found = {form: all_flips(make(form), form, every=1) for form in ASKED}
    if page := os.environ.get("T2T_FAULT_PAGE"):
        write(Path(page), found)
    assert all(sum(counts.values()) for form in found.values() for counts in form.values())


def write(page: Path, found: dict[str, dict[str, Counter[str]]]) -> None:
    """Puts the table between the page's two marks."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    assert after, f"{page} lacks the mark {END}"
    rows = [
        f"| {form} | `{name}` | {sum(counts.values()):,} | {counts['refused']:,} | "
        f"{counts['without effect']:,} | 0 |"
        for form, files in found.items()
        for name, counts in files.items()
    ]
    head = ["| format | file | bytes changed | refused | without effect | wrong |"]
    head.append("|---|---|--:|--:|--:|--:|")
    block = "\n".join([BEGIN, f"{results.machine()}.", "", *head, *rows, END])
    page.write_text(f"{before}{block}{after}", "utf-8")
