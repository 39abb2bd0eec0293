"""What tests of several rooms need."""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

import t2t_torch
from t2t_torch import registry

PACKAGE = Path(t2t_torch.__file__).parent

# No test passes or fails by chance, nor by how busy the machine is: the same examples each time,
# without limits of time.  `pytest --hypothesis-profile=default` looks for new ones.
hypothesis.settings.register_profile(
    "same_each_time",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("same_each_time")

# torch asks for the names of addresses that connect to it: where no name server answers, each
# question takes ten seconds, and a start of two processes half a minute more.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")

# What is collected lives as long as the tests do.  Without this each search for garbage goes
# through all modules and thousands of tests, a second of work where memory runs out in a test.
gc.disable()


def pytest_collection_finish() -> None:
    """Looks for garbage from now on, but not among what is there already."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Begins each test with the same random numbers, whichever tests came before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Takes what users' folders and tests have declared off the registry afterwards."""
    state, shelves = registry._STATE, registry._STATE.shelves[:]
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield
    users = [Path(folder).name for folder in registry.usr_dirs()]
    state.shelves[:] = shelves
    state.forget_index()
    for things in state.things.values():
        for name, (_, place) in list(things.items()):
            if not Path(place.path).is_relative_to(PACKAGE):
                del things[name]
    for name in list(sys.modules):
        if name.split(".")[0] in users:
            del sys.modules[name]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real data sets, where they are: `T2T_SHARED`, or beside the repository."""
    beside = PACKAGE.parent.parent / "shared" / "data"
    folder = Path(os.environ.get("T2T_SHARED", beside))
    if not (folder / "README.md").exists():
        pytest.skip(f"the real data sets are not in {folder}; say where with T2T_SHARED")
    return folder
