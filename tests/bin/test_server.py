"""The command t2t-server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import write_artifact

from t2t_torch.bin.commands import server
from t2t_torch.serve import server as listening
from t2t_torch.serve import server as log
from t2t_torch.serve.limits import ServerLimits
from t2t_torch.serve.middleware import RequestMiddleware
from t2t_torch.workflows import serve as workflow


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What is served, and where; the server ends at once."""
    seen: dict[str, Any] = {}

    def serve(
        app: RequestMiddleware, listener: Any, shutdown: Any, *, header_seconds: float
    ) -> int:
        seen.update(app=app, host=listener.getsockname()[0], shutdown=shutdown)
        listener.close()
        return 0

    monkeypatch.setattr(listening, "serve", serve)
    yield seen
    log.LOG.handlers[:] = []
    log.LOG.propagate = True


def test_it_listens_at_this_machine_alone_unless_it_is_asked_to(
    tmp_path: Path, started: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    def warnings() -> list[str]:
        events = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
        assert [one["event"] for one in events if one["level"] == "info"] == ["loaded"]
        return [one["event"] for one in events if one["level"] == "warning"]

    artifact = write_artifact(tmp_path / "made")
    assert server.main([f"--artifact={artifact}", "--port=0"]) == 0
    assert started["host"] == "127.0.0.1" and warnings() == []
    assert server.main([f"--artifact={artifact}", "--port=0", "--host=0.0.0.0"]) == 0
    assert started["host"] == "0.0.0.0"
    assert warnings() == ["the server has no authentication and is reachable from other hosts"]


def test_flags_are_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "max_body_bytes": 1, "max_inputs": 2, "max_characters": 3, "max_seconds": 4.5,
        "max_queue": 5, "max_batch_inputs": 6, "max_batch_tokens": 7,
        "max_batches": 8, "batch_delay_ms": 9.0, "header_seconds": 10.5,
    }  # fmt: skip
    seen: list[Any] = []
    monkeypatch.setattr(workflow, "_serve", lambda settings, sources: seen.append(settings))
    for values in (given, {}):
        server.main(["--artifact=a", *(f"--{name}={value}" for name, value in values.items())])
        limits = {name: getattr(seen[-1], name) for name in ServerLimits.declared()}
        assert limits == dict(ServerLimits(**values))


def test_models_have_the_names_of_their_folders_or_those_that_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(workflow, "_serve", lambda settings, sources: seen.extend(sources))
    flags = [f"--artifact={tmp_path / 'a'}/", f"--artifact=b={tmp_path / 'x=y'}"]
    assert server.main(flags) == 0
    assert [(one.name, one.path.name, one.is_run) for one in seen] == [
        ("a", "a", False),
        ("b", "x=y", False),
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "t2t-server --artifact=artifact"),
        (["--artifact=a", "--output_dir=run"], "t2t-server --artifact=artifact"),
        (["--artifact=a", "--checkpoint_path=3"], "--checkpoint_path is for --output_dir"),
        (["--artifact=a", "--decode_hparams=beam_size=2"], "--decode_hparams is for --output_dir"),
        (["--artifact=x/a", "--artifact=y/a"], "two models are called 'a'"),
        (["--artifact=a/b=c"], "'a/b' is no name"),
        (["--artifact==c"], "'' is no name"),
        (["--artifact=none"], "'none' is no artifact"),
        (["--artifact=a", "--port=70000"], "--port"),
        (["--artifact=a", "--max_inputs=0"], "--max_inputs"),
        (["--artifact=a", "--api_key_file=none"], "--api_key_file=none cannot be read"),
    ],
)
def test_what_cannot_be_served_is_told(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str], started: dict[str, Any]
) -> None:
    assert server.main(flags) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "prometheus_client"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert server.main(["--artifact=a"]) == 2
    printed = capsys.readouterr().err
    assert missing in printed and "pip install '.[serve]'" in printed
