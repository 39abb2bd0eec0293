"""What tests of several rooms need."""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import logging
import os
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import hypothesis
import numpy as np
import pytest
import torch

import t2t_torch
from t2t_torch import registry
from t2t_torch.train import recommendation

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

# Nothing that tests write has to survive a loss of power, and each flush takes milliseconds.
os.fsync = lambda descriptor: None

# A look-up of an unknown name reads all declarations again, as a file may have been added since.
# None is added to the package while it is tested, and parsing its files takes half a second.
registry._list_own.cache_clear = lambda: None  # type: ignore[attr-defined]

# The speed of the machine, for estimates of times, is measured once.
recommendation._speed = functools.cache(recommendation._speed)

# pytest gives handlers to loggers that do not propagate.  With any, torch computes what it would
# trace of each export and compilation, stacks included.
_TRACE = logging.getLogger("torch.__trace")
_TRACE.propagate = True
_TRACE.handlers.clear()

# What is collected lives as long as the tests do.  Without this each search for garbage goes
# through all modules and thousands of tests, a second of work where memory runs out in a test.
gc.disable()

# A file of tests that starts processes or exports models, which takes seconds.  `phrases` is
# an exported model; `exporter` and `quick` are commands that make one.
SLOW_FILE = re.compile(
    r"^(?:import|from) (?:subprocess|(?:torch\.)?multiprocessing|forked|processes|together"
    r"|t2t_torch\.(?:export|hooks|data\.task))|torch\.export|run_together|phrases: Path"
    r"|bin(?:\.commands)? import .*\b(?:exporter|quick)\b",
    re.MULTILINE,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--quick`."""
    parser.addoption("--quick", action="store_true", help="run a tenth of the tests; make quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not import a file of which `--quick` runs no test."""
    if not config.getoption("quick") or not collection_path.name.startswith("test_"):
        return None
    return None if _is_quick(collection_path) or _has_quick(collection_path) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the cases that `sample` leaves out as slow; selects the tests of `--quick`."""
    cases: dict[str, list[pytest.Item]] = collections.defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    for group in cases.values():
        marker = group[0].get_closest_marker("sample")
        if marker is not None:
            (count,) = marker.args
            quick = [item for item in group if not item.get_closest_marker("slow")]
            kept = {number * len(quick) // count for number in range(count)}
            for number, item in enumerate(quick):
                if number not in kept:
                    item.add_marker(pytest.mark.slow)
    if config.getoption("quick"):
        kept_items = set(_quick(cases))
        config.hook.pytest_deselected(items=[item for item in items if item not in kept_items])
        items[:] = [item for item in items if item in kept_items]


def _quick(cases: dict[str, list[pytest.Item]]) -> Iterator[pytest.Item]:
    """Yields one case of each fifth test of a file, and of each that is marked `quick`.

    Left out are slow tests and files that start processes or export models.
    """
    position: collections.Counter[Path] = collections.Counter()
    for group in cases.values():
        item = next((one for one in group if not one.get_closest_marker("slow")), None)
        if item is None:
            continue
        if item.get_closest_marker("quick"):
            yield item
        elif _is_quick(item.path):
            if position[item.path] % 5 == 0:
                yield item
            position[item.path] += 1


@functools.cache
def _is_quick(path: Path) -> bool:
    return path.parent.name != "fault" and not SLOW_FILE.search(path.read_text("utf-8"))


def _has_quick(path: Path) -> bool:
    return "pytest.mark.quick" in path.read_text("utf-8")


def pytest_collection_finish() -> None:
    """Looks for garbage from now on, but not among what is there already."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)  # a test makes few cycles, but syntax trees many objects
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
    monkeypatch.setattr(sys, "path", sys.path[:])
    with _declarations_are_removed():
        yield


@pytest.fixture(scope="module")
def module_registry() -> Iterator[None]:
    """Does what `own_registry` does, for all tests of a file."""
    with _declarations_are_removed():
        yield


@contextlib.contextmanager
def _declarations_are_removed() -> Iterator[None]:
    state, roots, copies = registry._STATE, registry._STATE.roots[:], dict(registry._STATE.copies)
    yield
    users = [folder.name for folder in registry.users()]
    state.roots[:] = roots
    state.copies.clear()
    state.copies.update(copies)
    state.forget_index()
    for things in state.objects.values():
        for name, (_, place) in list(things.items()):
            if not place.path.startswith(f"{PACKAGE}/"):  # Path takes 10 ms for all names
                del things[name]
    for name in list(sys.modules):
        if name.split(".")[0] in users:
            del sys.modules[name]


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this run of pytest have."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def made_once(shared_folder: Path) -> Callable[[str, Callable[[Path], None]], Path]:
    """Fills a folder once for all processes of this run of pytest; tests that change it copy it."""

    def make(name: str, fill: Callable[[Path], None]) -> Path:
        folder, done = shared_folder / "made" / name, shared_folder / "made" / f"{name}.done"
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{folder}.lock"):
            if not done.exists():
                fill(folder)
                done.touch()
        return folder

    return make


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real data sets, where they are: `T2T_SHARED`, or beside the repository."""
    beside = PACKAGE.parent.parent / "shared" / "data"
    folder = Path(os.environ.get("T2T_SHARED", beside))
    if not (folder / "README.md").exists():
        pytest.skip(f"the real data sets are not in {folder}; say where with T2T_SHARED")
    return folder
