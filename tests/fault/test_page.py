"""docs/explanation/reliability.md names a test for each promise, and each is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import results

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "reliability.md"
COUNTS = {"R": 12, "C": 11, "S": 5, "N": 7, "D": 7}
PROMISES = [f"{kind}{number + 1}" for kind, count in COUNTS.items() for number in range(count)]


def rows():
    """The cells of the table's rows, by promise."""
    found = re.findall(r"^\| ([RCSND]\d+) \|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    assert len(dict(found)) == len(found)
    return dict(found)


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_names_tests_and_they_are_there(promise):
    named = re.findall(r"`(\w+/test_\w+)::(test_\w+)`", rows()[promise])
    assert named, f"{promise} names no test"
    for file, test in named:
        tree = ast.parse((ROOT / "tests" / f"{file}.py").read_text())
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert test in functions, f"{file} has no {test}"


def test_every_test_of_this_folder_but_what_tests_the_tests_is_named():
    page = PAGE.read_text()
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        assert file.stem in page, f"{file.name} is named nowhere"


def test_results_are_put_between_the_marks_and_tell_no_path(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{results.BEGIN}\nold\n{results.END}\nafter\n")
    passed = [SimpleNamespace(nodeid=f"{tmp_path}/test_a.py::test_{i}") for i in range(3)]
    failed = [SimpleNamespace(nodeid="tests/fault/test_b.py::test_x")]
    results.write(page, SimpleNamespace(stats={"passed": passed, "failed": failed}))
    text = page.read_text()
    assert text.startswith(f"before\n{results.BEGIN}\n") and text.endswith(
        f"{results.END}\nafter\n"
    )
    assert "| `test_a.py` | 3 | 0 | 0 | 0 |" in text
    assert "| all | 3 | 1 | 0 | 0 |" in text
    assert "old" not in text and str(tmp_path) not in text
