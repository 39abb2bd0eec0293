"""The page on serving tells what there is."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import uvicorn
from served import Served, length_of, stub_source

from t2t_torch.bin.commands import server as command
from t2t_torch.serve.server import listen_at

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "how_to" / "serving.md").read_text("utf-8")


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_all_flags_are_told_with_their_defaults() -> None:
    rows = dict(re.findall(r"^\| `--(\w+)` \|([^|]*)\|", section("Limits and flags"), re.M))
    every_command = {"registry_help", "verbosity", "config", "config_schema"}
    assert set(rows) == set(command.declared) - every_command
    for name, told in rows.items():
        default = command.declared[name].default
        if default not in (None, "", ()):
            assert told.strip() == f"`{str(default).lower()}`", name


def test_all_metrics_are_told(serve: Callable[..., Served]) -> None:
    server = serve(stub_source(length_of))
    server.post("/predict", {"inputs": ["a"]})
    text = server.get("/metrics").text
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
    told = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", section("Metrics"), re.M))
    assert told == kinds


def test_all_addresses_are_told(serve: Callable[..., Served]) -> None:
    for path in serve(stub_source(length_of)).get("/openapi.json").json()["paths"]:
        short = path.replace("/versions/{version}", "").replace("{model}", "NAME").rstrip("/")
        assert f"{short}`" in section("Endpoints") or short == "", path


def test_the_client_is_answered(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", section("Clients"), re.M | re.S)
    names: dict[str, Callable[..., list[dict[str, dict[str, str]]]]] = {}
    exec(code, names)
    app = serve(stub_source(length_of)).app
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none"))
    listener = listen_at("127.0.0.1", 0)
    url = "http://{}:{}".format(*listener.getsockname())
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        outputs = names["predict"](["a", "a long text"], url)
    finally:
        server.should_exit = True
        thread.join(60)
    assert [one["targets"]["value"] for one in outputs] == ["short", "long"]
    assert url.rpartition(":")[0] + ":8080" in code


def test_the_container_has_what_the_extra_has() -> None:
    container = (ROOT / "Dockerfile").read_text("utf-8")
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    extra = project.split("\nserve = [")[1].split("]")[0]
    needed = re.findall(r'"[^"]+"', extra)
    assert len(needed) > 2
    assert not [one for one in needed if one not in container]
    asked = re.findall(r'"[a-z-]+>=[^"]+"', container)
    assert len(asked) > len(needed)
    assert not [one for one in asked if one not in project]
