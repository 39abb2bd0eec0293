"""What tests of the server begin with; see `served.py`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Served, artifact_source, write_artifact, write_phrases

from t2t_torch.serve import server as log
from t2t_torch.serve.repository import ModelSource


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Starts servers; see `Served`."""
    made: list[Served] = []

    def start(*sources: ModelSource, **given: Any) -> Served:
        made.append(Served(*sources, **given))
        return made[-1]

    yield start
    for one in made:
        one.repository.close()


@pytest.fixture(scope="session")
def phrases(tmp_path_factory: pytest.TempPathFactory, shared_folder: Path) -> Path:
    """An artifact that writes texts."""
    return write_phrases(tmp_path_factory.mktemp("phrases"), shared_folder)


@pytest.fixture
def server(tmp_path: Path, serve: Callable[..., Served]) -> Served:
    """A server of the artifact."""
    return serve(artifact_source(write_artifact(tmp_path / "made")))


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """What is logged, a dictionary a line."""
    stream = io.StringIO()
    log.start_log(stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    log.LOG.handlers[:] = []
    log.LOG.propagate = True
