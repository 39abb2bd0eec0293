"""What the tests of the problems on raw files need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from t2t_torch import registry, testing
from t2t_torch.data import raw_file
from t2t_torch.data.generate import generate_data
from t2t_torch.data.manifest import Manifest
from t2t_torch.mode import Split


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a problem that wants to download something fail."""

    def fetch(urls: list[str], *_: object, **__: object) -> Path:
        raise AssertionError(f"a test asked the network for {urls}")

    monkeypatch.setattr(raw_file, "fetch", fetch)


@pytest.fixture
def real(shared_data: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Returns a `--tmp_dir` with one folder of the real data sets; skips where they are not."""

    def linked(folder: str) -> Path:
        for file in (shared_data / folder).rglob("*"):
            if file.is_file():
                link = tmp_path / "real" / file.relative_to(shared_data)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file)
        return tmp_path / "real"

    return linked


@pytest.fixture
def samples() -> Callable[[str, Path, Split], list[dict[str, object]]]:
    """Returns all samples of a split, after `prepare`."""

    def listed(name: str, tmp_dir: Path, split: Split) -> list[dict[str, object]]:
        problem = registry.problem(name)
        problem.prepare(tmp_dir)
        return list(problem.generate_samples(tmp_dir, split))

    return listed


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., dict[str, int]]:
    """Generates the data of a problem and checks the problem; returns the rows by split."""

    def generated(name: str, tmp_dir: Path, max_cases: int = 0) -> dict[str, int]:
        data_dir = tmp_path / "data"
        manifest: Manifest = generate_data(
            registry.problem(name),
            data_dir,
            tmp_dir,
            num_processes=1,
            max_cases=max_cases,
            progress=False,
        )
        # With the vocabulary that is there now: it need not be learnt twice.
        testing.check_problem(registry.problem(name), data_dir, tmp_dir)
        return {split: entry.rows for split, entry in manifest.splits.items()}

    return generated
