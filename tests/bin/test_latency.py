"""The command t2t-latency."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from t2t_torch.bin.commands import latency
from t2t_torch.errors import DecodeError
from t2t_torch.runtime import session
from t2t_torch.runtime.prediction import InputError
from t2t_torch.runtime.signature import EXAMPLES

_FEW = ["--passes=1", "--warm_up=0"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The inputs that artifacts are asked, which answer nothing."""
    inputs: list[Any] = []

    class Artifact:
        def __init__(self, path: str, *, threads: int) -> None:
            self.path = Path(path)
            self.signature = SimpleNamespace(quantized="int8" if "int8" in path else "")
            assert threads == 1

        def predict(self, given: Sequence[Any]) -> None:
            inputs.extend(given)

    monkeypatch.setattr(session, "Artifact", Artifact)
    return inputs


def test_figures_are_printed_and_written(asked, capsys, tmp_path: Path) -> None:
    (tmp_path / "inputs.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    flags = [f"--inputs={tmp_path / 'inputs.txt'}", f"--json={tmp_path / 'found.json'}", "--rows=2"]
    both = ["--artifact=whole", "--other_artifact=int8"]
    assert latency.main([*both, *flags, *_FEW]) == 0
    once_checked_once_measured = 2
    assert sorted(asked) == sorted(["one", "two"] * 2 * once_checked_once_measured)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("inputs 2, passes 1, warm up 0, batch size 1, threads 1, machine ")
    assert [line[:20].split("  ")[0] for line in printed[1:]] == [
        "ms",
        "artifact",
        "artifact int8, other",
        "of the processor's t",
        "artifact",
        "artifact int8, other",
    ]
    assert printed[6].endswith(" of artifact") and "of" not in printed[5]
    assert printed[3].endswith(" of artifact")
    result = json.loads((tmp_path / "found.json").read_text("utf-8"))
    assert result["found"]["artifact"]["requests"] == 2


def test_only_a_line_end_ends_an_input(asked, tmp_path: Path) -> None:
    examples = [{"input": {"inputs": "a\u2028b\x85c"}}, {"input": {"inputs": ""}}]
    lines = [json.dumps(one, ensure_ascii=False) + "\n" for one in examples]
    (tmp_path / EXAMPLES).write_text("".join(lines), encoding="utf-8")
    assert latency.main([f"--artifact={tmp_path}", *_FEW]) == 0
    assert sorted({one["inputs"] for one in asked}) == ["", "a\u2028b\x85c"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--artifact="], "--artifact"),
        (["--data_dir=data"], "--data_dir needs --output_dir"),
        (["--output_dir=run", "--data_dir=data", "--inputs=x"], "give one of them"),
        (["--problem=topics"], "an artifact answers for one"),
        (["--inputs=broken.jsonl"], "broken.jsonl:2 is no JSON"),
        (["--inputs=empty.txt"], "there is nothing to ask"),
        (["--rows=-5"], "positive"),
    ],
)
def test_what_cannot_be_met_is_refused(asked, capsys, tmp_path, monkeypatch, more, told) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.jsonl").write_text('"a"\n{\n', encoding="utf-8")
    Path("empty.txt").touch()
    assert latency.main(["--artifact=whole", *more]) in (1, 2)
    assert told in "".join(capsys.readouterr())
    assert not asked


def test_an_input_that_is_refused_is_told_with_its_line(
    asked, capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def predict(self: Any, given: Sequence[Any]) -> None:
        for number, one in enumerate(given):
            if one == "bad":
                raise InputError(number, "it is bad.")
            if one == "none":
                raise DecodeError(f"input {number} is none.")

    monkeypatch.setattr(session.Artifact, "predict", predict)
    (tmp_path / "inputs.txt").write_text("one\ntwo\nbad\nfour\n", encoding="utf-8")
    flags = ["--artifact=whole", f"--inputs={tmp_path / 'inputs.txt'}", *_FEW]
    assert latency.main(flags) == 2
    printed = capsys.readouterr().err
    assert "inputs.txt:3: the artifact does not answer 'bad': it is bad. Leave it out" in printed
    (tmp_path / "inputs.txt").write_text("one\ntwo\nthree\nnone\n", encoding="utf-8")
    assert latency.main(flags) == 2
    assert "inputs.txt:4: the artifact does not answer 'none': is none." in capsys.readouterr().err
