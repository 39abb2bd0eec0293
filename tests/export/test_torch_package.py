"""A model's network as a program of torch.export, in a folder that is loaded as a run is."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import t2t_torch
from t2t_torch.decode.loading import Loaded, load_run
from t2t_torch.errors import ArtifactError, CheckpointError, ExportError, UsageError
from t2t_torch.export import torch_package
from t2t_torch.export.exporter import Exported
from t2t_torch.export.settings import ExportSettings
from t2t_torch.export.torch_package import TorchExporter, check_exportable, check_program
from t2t_torch.features.text import words_of

_DONE: list[Exported] = []
_INPUTS = [["go", "to", "Rome"], "", "stay", "😀 go to Place3", "go " * 40, ["Town4"]]


def settings_of(runs: str, folder: Path, data: Path) -> ExportSettings:
    return ExportSettings(
        output_dir=runs, export_dir=str(folder), data_dir=str(data), format="torch"
    )


@pytest.fixture
def done(run: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Steps 2 and 3 of the run as one, exported once."""
    if not _DONE:
        folder = tmp_path_factory.mktemp("packages") / "package"
        _DONE.append(
            TorchExporter.export(settings_of(f"{run / 'ckpt-2'},{run / 'ckpt-3'}", folder, data))
        )
    return _DONE[0]


def test_a_package_answers_as_the_mean_of_its_runs_does(done: Exported, run: Path) -> None:
    members = [run / "ckpt-2", run / "ckpt-3"]
    model, package = t2t_torch.load(members, device="cpu"), t2t_torch.load(done.folder)
    assert package.fields == model.fields  # type: ignore[union-attr]
    asked: Any = [{"inputs": given} for given in _INPUTS]
    answers: Any = zip(model.predict(asked), package.predict(asked), strict=True)
    for (one, other), given in zip(answers, _INPUTS, strict=True):
        assert one.values == other.values
        assert len(other.values["slots"]) == len(words_of(given))
        assert other.probabilities == pytest.approx(one.probabilities, abs=1e-5)
        assert other.scores["intent"] == pytest.approx(one.scores["intent"], abs=1e-5)


def test_a_package_says_what_it_is(done: Exported, run: Path) -> None:
    signature = done.signature
    assert (signature.form, signature.model, signature.problem) == (
        "torch", "joint_bilstm", "small_requests",
    )  # fmt: skip
    assert signature.checkpoint == "mean of 2 models"
    assert signature.members == (
        "run/ckpt-2: joint_bilstm, step 2",
        "run/ckpt-3: joint_bilstm, step 3",
    )
    assert {path.name for path in done.folder.iterdir()} == {*signature.files, "signature.json"}
    told = json.loads((done.folder / "tensors.json").read_bytes())
    assert told["inputs"]["inputs"]["shape"] == ["rows", "places"]
    assert told["inputs"]["inputs_characters"]["shape"] == ["rows", "places", 6]
    assert told["targets"]["intent"]["labels"] == ["go", "stay"]
    assert (done.folder / "hparams-2.json").read_bytes() == (run / "hparams.json").read_bytes()
    assert done.verified is not None and len(done.verified.answers) > 60


@pytest.mark.slow
def test_torch_alone_runs_the_program_as_the_pages_say(done: Exported, tmp_path: Path) -> None:
    docs = (Path(__file__).resolve().parents[2] / "docs" / "how_to" / "export.md").read_text(
        "utf-8"
    )
    (shapes,) = [
        block
        for block in re.findall(r"^```python\n(.*?)^```$", docs, flags=re.M | re.S)
        if "torch.export.load" in block
    ]
    page = (done.folder / "README.md").read_text("utf-8")
    alone, with_us = re.findall(r"^```python\n(.*?)^```$", page, flags=re.M | re.S)
    assert 't2t_torch.load("package")' in with_us
    blocked = 'import sys\nsys.modules["t2t_torch"] = None\n'
    within = '\nimport os\nos.chdir("package")\n'
    (tmp_path / "alone.py").write_text(blocked + shapes + within + alone, "utf-8")
    found = subprocess.run(
        [sys.executable, "-W", "ignore", tmp_path / "alone.py"],
        cwd=done.folder.parent,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert found.returncode == 0, found.stderr
    assert "intent.scores (2, 2)" in found.stdout
    assert "'intent.numbers': [[" in found.stdout and "'slots.mask'" in found.stdout


def test_a_package_that_was_altered_is_refused(done: Exported, tmp_path: Path) -> None:
    folder = tmp_path / "package"
    shutil.copytree(done.folder, folder)
    with (folder / "model.pt2").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ArtifactError, match=r"model\.pt2: .* bytes instead of"):
        t2t_torch.load(folder)


def test_what_a_package_has_not_is_refused(done: Exported) -> None:
    with pytest.raises(UsageError, match="checkpoint='2' is for a run directory"):
        t2t_torch.load(done.folder, "2")
    with pytest.raises(UsageError, match=r"threads=2 .* torch\.set_num_threads"):
        t2t_torch.load(done.folder, threads=2)
    with pytest.raises(ArtifactError, match="exported as torch, not a run directory"):
        load_run(done.folder)
    with pytest.raises(UsageError, match="device='cuda' is for a run directory"):
        t2t_torch.load(done.folder, device="cuda")


@pytest.mark.slow
def test_a_size_that_became_part_of_the_program_is_told(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_run(run).model
    monkeypatch.setattr(torch_package, "_lstms_of_any_length", contextlib.nullcontext)
    example = {
        "inputs": torch.ones(2, 4, dtype=torch.int64),
        "inputs_characters": torch.ones(2, 4, 6, dtype=torch.int64),
    }
    with pytest.raises(ExportError, match=r"axis 1 of 'inputs.*' would always be 4"):
        torch_package.program_of(model, example)


def test_a_model_that_writes_is_refused_by_name(run: Path, monkeypatch) -> None:
    loaded: Loaded = load_run(run)
    monkeypatch.setattr(type(loaded.features.targets["slots"]), "generates", True)
    with pytest.raises(ExportError, match=r"'joint_bilstm' writes 'slots', .*--format=safetensors"):
        check_exportable(loaded)


@pytest.mark.slow
def test_nothing_is_written_of_a_program_that_answers_otherwise(
    run: Path, data: Path, tmp_path: Path, monkeypatch, done: Exported
) -> None:
    def changed(model: Any, example: Any) -> Any:
        return torch.export.load(done.folder / "model.pt2")  # of other weights

    monkeypatch.setattr(torch_package, "program_of", changed)
    with pytest.raises(ExportError, match="run alone: row 0 of the dev split"):
        TorchExporter.export(settings_of(str(run), tmp_path / "p", data))
    assert not list(tmp_path.iterdir())


def test_runs_of_other_checkpoints_are_refused(run: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        TorchExporter.export(settings_of(f"{run},{run / 'ckpt-9'}", tmp_path / "p", data))


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("executed"),)


def _with(path: Path, target: Path, change: Callable[[str, bytes], bytes], **more: bytes) -> Path:
    """Copies an archive, with changed and with more entries."""
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(target, "w") as copy:
        for name in archive.namelist():
            copy.writestr(name, change(name, archive.read(name)))
        for name, content in more.items():
            copy.writestr(f"{archive.namelist()[0].split('/')[0]}/{name}", content)
    return target


def test_a_program_that_would_execute_something_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    linear = torch.nn.Linear(2, 2)
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(linear, (torch.zeros(3, 2),), dynamic_shapes=({0: rows},))
    torch.export.save(program, tmp_path / "whole.pt2")
    bomb = io.BytesIO()
    torch.save(_Bomb(), bomb)

    def same(name: str, content: bytes) -> bytes:
        return content

    def pickled(name: str, content: bytes) -> bytes:
        if name.endswith("/weight_0"):
            return bomb.getvalue()
        return content.replace(b'"use_pickle": false', b'"use_pickle": true', 1)

    def sampled(name: str, content: bytes) -> bytes:
        return bomb.getvalue() if "sample_inputs" in name else content

    def evaluated(name: str, content: bytes) -> bytes:
        return re.sub(rb'"expr_str": "[^"]*"', b'"expr_str": "exec(chr(49))"', content)

    check_program(_with(tmp_path / "whole.pt2", tmp_path / "copy.pt2", same))
    for number, (change, more, message) in enumerate(
        (
            (pickled, {}, "says use_pickle"),
            (sampled, {}, "has a pickle in it"),
            (evaluated, {}, r"has the expr_str 'exec"),
            (same, {"data/aotinductor/model/a.so": b""}, "is compiled code"),
        )
    ):
        bad = _with(tmp_path / "whole.pt2", tmp_path / f"{number}.pt2", change, **more)
        with pytest.raises(ArtifactError, match=message):
            check_program(bad)
    assert not (tmp_path / "executed").exists()
    with pytest.raises(Exception, match="Parameter"):  # when it has executed the pickle
        torch.export.load(_with(tmp_path / "whole.pt2", tmp_path / "again.pt2", pickled))
    assert (tmp_path / "executed").exists(), "the file that is refused would not execute anything"


_TOUCH = "__import__('os').system('touch executed')"


def _guarded(graph: dict[str, Any]) -> None:
    graph["guards_code"] = [f"{_TOUCH} == 0"]


def _named(graph: dict[str, Any]) -> None:
    called: Any = graph["graph_module"]["module_call_graph"][0]["signature"]
    called["forward_arg_names"] = [f"x={_TOUCH}"]


def _unverified(graph: dict[str, Any]) -> None:
    graph["verifiers"] = []


def _calling(target: str) -> Callable[[dict[str, Any]], None]:
    def change(graph: dict[str, Any]) -> None:
        graph["graph_module"]["graph"]["nodes"][0]["target"] = target

    return change


def _importing(graph: dict[str, Any]) -> None:
    called: Any = graph["graph_module"]["module_call_graph"][0]["signature"]
    factory = {"default_factory_module": "antigravity", "default_factory_name": "x"}
    node = {"type": "collections.defaultdict", "context": json.dumps(factory), "children_spec": []}
    called["out_spec"] = json.dumps([1, node])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_guarded, "has the guards_code"),
        (_named, "has the forward_arg_names"),
        (_unverified, "need not verify"),
        (_calling("torch.os.system"), "has the target 'torch.os.system'"),
        (_calling("torch.ops.aten.save.default"), "has the target"),
        (_calling("torch.ops.load_library"), "has the target"),
        (_importing, "has the out_spec"),
    ],
)
def test_a_graph_whose_text_would_be_executed_is_refused(
    change: Callable[[dict[str, Any]], None],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(3, 2),))
    torch.export.save(program, "whole.pt2")

    def changed(name: str, content: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return content
        graph = json.loads(content)
        change(graph)
        return json.dumps(graph).encode()

    bad = _with(Path("whole.pt2"), Path("bad.pt2"), changed)
    check_program(Path("whole.pt2"))
    with pytest.raises(ArtifactError, match=message):
        check_program(bad)
    if change is _guarded:
        torch.export.load(bad).module()(torch.zeros(3, 2))
        assert Path("executed").exists(), "the file that is refused would not execute anything"


def test_a_graph_under_another_name_is_refused(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(3, 2),))
    torch.export.save(program, tmp_path / "whole.pt2")
    bad = _with(
        tmp_path / "whole.pt2",
        tmp_path / "bad.pt2",
        lambda _, held: held,
        **{"models/more_txt": b"{}"},
    )
    with pytest.raises(ArtifactError, match="models/more_txt is no part of a network"):
        check_program(bad)


def test_guards_on_sizes_are_no_code(tmp_path: Path) -> None:
    class Same(torch.nn.Module):
        def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return one + other

    size = torch.export.Dim.AUTO
    given = torch.zeros(4, 2), torch.zeros(4, 2)
    program = torch.export.export(Same(), given, dynamic_shapes=({0: size}, {0: size}))
    torch.export.save(program, tmp_path / "whole.pt2")
    with zipfile.ZipFile(tmp_path / "whole.pt2") as archive:
        assert json.loads(archive.read("whole/models/model.json"))["guards_code"]
    check_program(tmp_path / "whole.pt2")


def test_a_size_that_is_nearly_one_is_refused_at_once() -> None:
    from t2t_torch.export.torch_package import _SIZE

    assert _SIZE.fullmatch("1" * 100 + "x") is None
