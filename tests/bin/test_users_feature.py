"""A kind of feature in a folder of the user's, through all commands: examples/my_usr_dir."""

from __future__ import annotations

import asyncio
import datetime
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import torch

import t2t_torch
from t2t_torch import registry
from t2t_torch.bin.commands import data, datagen, decoder, exporter, server, trainer
from t2t_torch.errors import DataError
from t2t_torch.hparam import HParams
from t2t_torch.runtime.prediction import InputError
from t2t_torch.serve import server as listening
from t2t_torch.testing import check_problem

USR_DIR = Path(__file__).resolve().parents[2] / "examples" / "my_usr_dir"
ROWS = [
    {"inputs": "net 30 days", "date": "2024-01-31"},
    {"inputs": "due on receipt", "date": "2026-09-01"},
]


@pytest.fixture
def due_date(own_registry: None) -> Iterator[ModuleType]:
    """The module of the example."""
    registry.import_usr_dir(USR_DIR)
    registry.problem("invoice_due_date")
    name = next(name for name in sys.modules if name.endswith(".due_date"))
    yield importlib.import_module(name)


@pytest.fixture
def run(tmp_path: Path, due_date: ModuleType, capsys: pytest.CaptureFixture[str]) -> Path:
    """The folder of data and of a run of two steps."""
    command(
        datagen,
        "--problem=invoice_due_date",
        f"--data_dir={tmp_path / 'data'}",
        "--max_cases=64",
        "--num_concurrent_processes=1",
    )
    command(
        trainer,
        "--problem=invoice_due_date",
        "--model=transformer_encoder",
        "--hparams_set=encoder_due_date",
        f"--data_dir={tmp_path / 'data'}",
        f"--output_dir={tmp_path / 'run'}",
        "--hparams=learning_rate_warmup_steps=0",
        "--train_steps=2",
        "--eval_steps=1",
        "--worker_gpu=0",
    )
    return tmp_path


def command(which: Any, *flags: str) -> None:
    assert which.main([f"--t2t_usr_dir={USR_DIR}", *flags]) == 0


def test_it_trains_decodes_exports_and_is_served(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = (run / "run" / "metrics.jsonl").read_text("utf-8")
    assert "metrics-invoice_due_date/targets/days_off" in results
    command(data, "--problem=invoice_due_date", f"--data_dir={run / 'data'}")
    printed = capsys.readouterr().out
    assert "earliest" in printed and "weekends" in printed
    inputs, outputs = run / "in.jsonl", run / "out.jsonl"
    inputs.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS), "utf-8")
    command(
        decoder,
        f"--output_dir={run / 'run'}",
        f"--decode_from_file={inputs}",
        f"--decode_to_file={outputs}",
        "--decode_hparams=output_format=jsonl",
    )
    records = [json.loads(line)["output"]["targets"] for line in outputs.read_text().splitlines()]
    for record in records:
        assert datetime.date.fromisoformat(record["value"]) and 0 < record["probability"] <= 1
    command(
        exporter,
        f"--output_dir={run / 'run'}",
        f"--data_dir={run / 'data'}",
        f"--export_dir={run / 'artifact'}",
    )
    dates = [record["value"] for record in records]
    artifact = t2t_torch.load(run / "artifact")
    assert artifact(ROWS) == dates
    with pytest.raises(InputError, match="no date from 2024 to 2027"):
        artifact([{"inputs": "net 30 days", "date": "2024-02-30"}])
    assert _served(f"--artifact={run / 'artifact'}", monkeypatch) == dates
    assert _served(f"--output_dir={run / 'run'}", monkeypatch) == dates


def _served(flag: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns what t2t-server answers."""
    answers: list[str] = []

    async def ask(app: Any) -> None:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            response = await client.post("/predict", json={"inputs": ROWS})
        answers.extend(record["targets"]["value"] for record in response.json()["outputs"])

    def serve(app: Any, listener: Any, drain: Any, *, header_seconds: float) -> int:
        asyncio.run(ask(app))
        listener.close()
        return 0

    monkeypatch.setattr(listening, "serve", serve)
    command(server, flag, "--port=0")
    return answers


def test_the_problem_keeps_the_contract(due_date: ModuleType, tmp_path: Path) -> None:
    check_problem(registry.problem("invoice_due_date"), tmp_path, tmp_path)


@pytest.mark.sample(2)
@pytest.mark.parametrize("value", ["2026-02-30", "20260101", "1999-12-31", 7, None])
def test_what_is_no_date_is_refused(due_date: ModuleType, value: Any) -> None:
    with pytest.raises(DataError):
        due_date.Date().encode(value)


@pytest.mark.quick
def test_a_predicted_date_exists(due_date: ModuleType) -> None:
    modality = due_date.DateModality(
        due_date.Date(2024, 2026), HParams(hidden_size=4), is_target=True
    )
    logits = torch.full((2, 3 + 12 + 31), -9.0)
    logits[:, [3 + 1, 3 + 12 + 30]] = 9.0  # 31 February
    logits[:, 3 + 12 + 28] = 5.0  # the 29th
    logits[:, 3 + 12 + 27] = 1.0
    logits[0, 0] = logits[1, 1] = 9.0
    dates = modality.predict(logits).numbers.tolist()
    assert dates == [[2024, 2, 29], [2025, 2, 28]]
