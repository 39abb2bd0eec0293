"""What the commands that read a run do with one of a trial."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_run import code, made_run

import t2t_torch
from t2t_torch import registry
from t2t_torch.bin.commands import avg_all, decoder, exporter, latency, server, translate_all
from t2t_torch.bin.commands import evaluation as eval_command
from t2t_torch.errors import UsageError
from t2t_torch.run.checksums import FILE as SUMS
from t2t_torch.trial import pytorch_trial, user_code

COLLATE = """x = torch.stack([record(n) for n in numbers])
return {"x": x, "rest": (x[:, 0], None)}, torch.zeros(len(numbers))"""
FORWARD = """return {"y": self.linear(x["x"]), "both": [x["x"].sum(1) + x["rest"][0]]}"""
METHODS = """
    def losses(self, predictions, labels):
        return predictions["y"].mean()

    def validation_metrics(self, predictions, labels, losses):
        return {"loss": losses, "both": predictions["both"][0].mean()}
"""


@pytest.fixture(autouse=True)
def forgets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No trial is left."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(pytorch_trial._Current, "context", None)
    yield
    user_code._Loaded.forget()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return made_run(tmp_path / "made", code(FORWARD, collate=COLLATE, methods=METHODS))


def _row(number: int) -> Any:
    return np.random.RandomState(number).randn(3).astype(np.float32)


def test_the_validation_loader_is_decoded(run: Path, capsys: Any) -> None:
    assert decoder.main([f"--output_dir={run}"]) == 0
    assert "25 records of the validation loader, step 2" in capsys.readouterr().out
    with np.load(run / "decodes" / "validation-2.npz") as result:
        assert {name: result[name].shape for name in result} == {"y": (25, 2), "both.0": (25,)}
        expected = [_row(n).sum() + _row(n)[0] for n in range(25)]
        np.testing.assert_allclose(result["both.0"], expected, rtol=1e-4, atol=1e-5)


def test_files_of_arrays_and_of_lines_are_decoded(run: Path, tmp_path: Path) -> None:
    rows = np.stack([_row(n) for n in range(9)])
    np.savez(tmp_path / "in.npz", **{"x": rows, "rest.0": rows[:, 1]})
    lines = [{"x": row.tolist(), "rest": [row[1].item(), None]} for row in rows]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    for kind in ("npz", "jsonl"):
        out = tmp_path / f"{kind}.jsonl"
        flags = [f"--output_dir={run}", f"--decode_from_file={tmp_path / 'in'}.{kind}"]
        assert decoder.main([*flags, f"--decode_to_file={out}", "--checkpoint_path=best"]) == 0
        result = [json.loads(line) for line in out.read_text().splitlines()]
        expected = t2t_torch.load(run, "best")([{"x": row, "rest": (row[1], None)} for row in rows])
        for one, other in zip(result, expected, strict=True):
            np.testing.assert_allclose(one["y"], other["y"], rtol=1e-5)
            np.testing.assert_allclose(one["both"][0], other["both"][0], rtol=1e-5)
    assert decoder.main([f"--output_dir={run}", f"--decode_from_file={tmp_path}/in.jsonl"]) == 0
    assert (tmp_path / "in.SmallTrial.2.jsonl").read_text().count("\n") == 9


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("in.txt", "", "a file is NAME.npz"),
        ("gone.npz", None, "there is no such file"),
        ("in.npz", "x", "in.npz cannot be read"),
        ("in.jsonl", "{", "in.jsonl, line 1:"),
        ("in.jsonl", '{"x": [1, 2, 3]}', "line 1: the input has x, where x, rest were expected"),
        ("in.jsonl", '{"x": [1, 2, "3"], "rest": [1, null]}', "where float32 was expected"),
    ],
)
def test_a_file_of_something_else_is_told(
    run: Path, tmp_path: Path, capsys: Any, name: str, content: str | None, expected: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    target = tmp_path / "out.jsonl"
    flags = [f"--decode_from_file={tmp_path / name}", f"--decode_to_file={target}"]
    assert decoder.main([f"--output_dir={run}", *flags]) == 2
    assert expected in capsys.readouterr().err
    assert not target.exists()


def test_outputs_of_several_sizes_need_lines(tmp_path: Path, capsys: Any) -> None:
    collate = "return torch.ones(len(numbers), 1 + len(numbers)), torch.zeros(len(numbers))"
    trial = code("return x * 2 + 0 * self.linear.bias[0]", collate=collate)
    run = made_run(tmp_path / "made", trial)
    assert decoder.main([f"--output_dir={run}"]) == 2
    assert "not there for all records: [[2], [9]]" in capsys.readouterr().err
    target = tmp_path / "out.jsonl"
    assert decoder.main([f"--output_dir={run}", f"--decode_to_file={target}"]) == 0
    assert json.loads(target.read_text().splitlines()[-1]) == [2.0, 2.0]


def test_a_checkpoint_is_evaluated(run: Path, tmp_path: Path, capsys: Any) -> None:
    target = tmp_path / "eval.json"
    flags = [f"--output_dir={run}", "--worker_gpu=0", f"--output_json={target}"]
    assert eval_command.main([*flags, "--checkpoint_path=best"]) == 0
    assert "SmallTrial, dev, step 2" in capsys.readouterr().out
    text = json.loads(target.read_text())
    assert (text["problem"], text["model"], text["step"]) == ("SmallTrial", "Model", 2)
    sizes = [range(8), range(8, 16), range(16, 24), range(24, 25)]
    means = [np.mean([_row(n).sum() + _row(n)[0] for n in numbers]) for numbers in sizes]
    assert text["metrics"]["both"] == pytest.approx(np.mean(means), rel=1e-4)
    assert not (run / "metrics.jsonl").exists()


@pytest.mark.sample(1)
@pytest.mark.parametrize("command", [decoder, eval_command, exporter])
def test_a_folder_of_code_inside_the_run_is_imported_only_with_trust(
    run: Path, tmp_path: Path, capsys: Any, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, imported = run / "own", []
    own.mkdir()
    monkeypatch.setattr(registry, "import_usr_dir", imported.append)
    record = json.loads((run / "task.json").read_text())
    text = json.dumps({**record, "usr_dirs": [str(own)]})
    (run / "task.json").write_text(text)
    with (run / SUMS).open("a") as sums:
        sums.write(f"{hashlib.sha256(text.encode()).hexdigest()}  task.json\n")
    flags = [f"--output_dir={run}"]
    flags += [f"--export_dir={tmp_path / 'exported'}"] if command is exporter else []
    assert command.main(flags) == 2
    assert "give --trust_code" in capsys.readouterr().err
    assert imported == []
    command.main([*flags, "--trust_code"])
    assert imported[0] == str(own)


def test_a_mean_of_checkpoints_is_a_run_that_stands_alone(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "mean"
    assert avg_all.main([f"--model_dir={run}", f"--output_dir={target}", "--n=2"]) == 0
    record = {"x": _row(1), "rest": (np.float32(0), None)}
    expected = t2t_torch.load(run, "average:2")([record])[0]["y"]
    shutil.rmtree(run)
    (tmp_path / "made" / "small.py").unlink()
    with pytest.raises(UsageError, match="trust_code=True"):
        t2t_torch.load(target)
    mean = t2t_torch.load(target, trust_code=True)
    np.testing.assert_allclose(mean([record])[0]["y"], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (server, ["--output_dir={run}"]),
        (decoder, ["--output_dir={run},{run}"]),
        (decoder, ["--output_dir={run}", "--decode_interactive", "--decode_hparams=beam_size=2"]),
        (decoder, ["--output_dir={run}", "--data_dir=x"]),
        (eval_command, ["--output_dir={run},{run}", "--data_dir=x"]),
        (eval_command, ["--output_dir={run}", "--output=x", "--hparams=a=1"]),
        (translate_all, ["--model_dir={run}", "--source={run}/in", "--translations_dir={run}/out"]),
    ],
)
def test_what_is_for_problems_is_refused_by_name(
    run: Path, capsys: Any, command: Any, flags: list[str]
) -> None:
    (run / "in").write_text("a\n")
    assert command.main([flag.format(run=run) for flag in flags]) == 2
    printed = capsys.readouterr().err
    assert "trial" in printed and "Traceback" not in printed
    if command in (decoder, eval_command):
        assert flags[-1].split("=")[0] in printed or "several runs" in printed
    else:
        assert "t2t-exporter and then" in printed


def test_latency_tells_that_a_trial_is_no_model_of_labels(run: Path, capsys: Any) -> None:
    (run / "in").write_text("a\n")
    flags = [f"--artifact={run}", f"--output_dir={run}", f"--inputs={run}/in"]
    assert latency.main(flags) == 2
    assert "Traceback" not in capsys.readouterr().err
