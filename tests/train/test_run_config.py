"""What may be said of a run is read by what runs it."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

import t2t_torch
from t2t_torch.train.run_config import RunConfig

FIELDS = [field.name for field in dataclasses.fields(RunConfig)]


@pytest.fixture(scope="module")
def read():
    """The names that the package asks a config for, below the commands that make it."""
    found = set()
    for path in Path(t2t_torch.__file__).parent.rglob("*.py"):
        if path.parent.name == "bin":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute):
                asked = getattr(node.value, "attr", getattr(node.value, "id", ""))
                found |= {node.attr} if asked.endswith("config") else set()
    return found


@pytest.mark.parametrize("name", FIELDS)
def test_a_setting_of_a_run_is_read_wherever_it_is_made(read, name):
    assert name in read
