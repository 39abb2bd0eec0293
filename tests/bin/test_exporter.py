"""The command t2t-exporter."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from t2t_torch import registry
from t2t_torch.bin.commands import exporter
from t2t_torch.export import decode_ids
from t2t_torch.export import exporter as export_room
from t2t_torch.export.exporter import Exported, WeightsReport
from t2t_torch.export.quantization import Times
from t2t_torch.export.settings import ExportSettings
from t2t_torch.export.verification import VerificationRow, Verified
from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.runtime.signature import MODEL, FileChecksum, Signature
from t2t_torch.text.encoder import IntegerEncoder


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    """What has to be given."""
    names = {"output_dir": "run", "data_dir": "data", "export_dir": "artifact"}
    return [f"--{name}={tmp_path / folder}" for name, folder in names.items()]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[ExportSettings]:
    """The settings of each export, which is said to be done."""
    given: list[ExportSettings] = []

    def export(settings: ExportSettings) -> Exported:
        given.append(settings)
        signature = Signature(
            problem="topics",
            model="text_cnn",
            step=7,
            checkpoint="step 7",
            created="",
            fields=(),
            targets=(),
            needs_extensions=True,
            quantized=settings.quantize,
            opset=20,
            made_with={},
            files={MODEL: FileChecksum(3 << 20, ""), "hparams.json": FileChecksum(1 << 20, "")},
        )
        rows = [
            VerificationRow("row 0", {}, 0),
            VerificationRow("row 1", {}, 1),
            VerificationRow("an emoji", {}),
        ]
        metrics = {"metrics-topics/targets/accuracy": (0.9, 0.899)} if settings.quantize else {}
        times = Times(0.004, 0.002) if settings.quantize else None
        verified = Verified(rows, {}, 2.5e-7, metrics=metrics, times=times)
        return Exported(settings.folder, signature, verified, 12.0)

    monkeypatch.setattr(export_room.OnnxExporter, "export", export)
    return given


def test_what_was_written_is_told(flags, asked, capsys, tmp_path: Path) -> None:
    assert exporter.main([*flags, "--quantize=int8"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"{tmp_path / 'artifact'}: text_cnn of topics, step 7"
    assert "4.0 MiB, of these model.onnx 3.0" in printed[1]
    assert (
        "3 rows (2 of the dev split, 1 synthetic)" in printed[2] and "within 2.5e-07" in printed[2]
    )
    assert "accuracy 0.9000 -> 0.8990" in printed[3]
    assert "2.00 -> 1.00 ms an input" in printed[4]
    assert "onnxruntime-extensions" in printed[5]
    assert exporter.main(flags) == 0
    assert "int8" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "checkpoint"),
    [
        ([], None),
        (["--checkpoint=latest"], "latest"),
        (["--checkpoint=average:8"], "average:8"),
        (["--checkpoint_path=best"], "best"),
    ],
)
def test_the_flags_say_what_is_exported(flags, asked, tmp_path, more, checkpoint) -> None:
    assert exporter.main([*flags, *more, "--verify_rows=300", "--overwrite"]) == 0
    (settings,) = asked
    assert settings.runs == (tmp_path / "run",)
    assert settings.folder == tmp_path / "artifact"
    assert settings.data_folder == tmp_path / "data"
    assert settings.chosen_checkpoint == checkpoint
    assert settings.verify_rows == 300 and settings.overwrite


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--output_dir="], "--output_dir=..."),
        (["--output_dir=a,b", "--format=ctranslate2"], "--format=ctranslate2 holds one model"),
        (["--format=safetensors"], "--data_dir: --format=safetensors does not read this"),
        (["--format=pickle"], "--format=pickle: expected one of onnx, torch, safetensors"),
        (["--format=torch", "--quantize=int8"], "--quantize=int8: --format=torch has none"),
        (
            ["--format=ctranslate2", "--quantize=int4"],
            "--quantize=int4: --format=ctranslate2 has int8",
        ),
        (
            ["--format=torch", "--decode_hparams=beam_size=2"],
            "--decode_hparams: --format=torch does not read this",
        ),
        (["--checkpoint=best", "--checkpoint_path=7"], "give one of them"),
        (["--quantize=int4"], "--quantize=int4: --format=onnx has int8"),
        (["--verify_rows=20"], "--verify_rows=20: expected 200 or more"),
        (["--checkpoint=average:x"], "as in average:8"),
        (["--export_dir=/dev/null/artifact"], "/dev/null is no folder"),
        ([], "is not a run directory"),
    ],
)
def test_what_cannot_be_met_is_refused(flags, capsys, tmp_path, more, told) -> None:
    assert exporter.main([*flags, *more]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and told in error
    assert not list(tmp_path.iterdir())


def test_a_model_whose_texts_no_graph_writes_is_refused_and_says_why(
    flags, tmp_path, capsys, request
) -> None:
    known = decode_ids.dispatch(IntegerEncoder)
    request.addfinalizer(lambda: decode_ids.register(IntegerEncoder, known))
    decode_ids.register(IntegerEncoder, decode_ids.dispatch(object))
    path = tmp_path / "run"
    run, hparams = RunDirectory(path), registry.hparams("transformer_test")
    task = TaskRecord(problem="tiny_algo", model="transformer", hparams_set="transformer_test")
    run.begin(task, hparams)
    model = registry.model("transformer")(hparams, registry.problem("tiny_algo").features(path))
    adam = torch.optim.Adam(model.parameters())
    CheckpointDirectory(path).save(Snapshot.take(model, adam, TrainerState(step=7)))
    run.unlock()
    assert exporter.main(flags) == 2
    error = capsys.readouterr().err
    assert "'targets' is a text of a IntegerEncoder, which a graph cannot write" in error
    assert "Serve the run with PyTorch" in error
    assert [folder.name for folder in tmp_path.iterdir()] == ["run"]


def test_sigterm_removes_what_was_begun(flags, tmp_path: Path, monkeypatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    (tmp_path / "run").mkdir()
    seen: list[list[str]] = []

    def load(settings: ExportSettings, scratch: Path) -> Any:
        seen.append([folder.name for folder in tmp_path.iterdir()])
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(10)
        raise AssertionError("SIGTERM did not end it")

    monkeypatch.setattr(export_room, "load_members", load)
    with pytest.raises(SystemExit) as ended:
        exporter.main(flags)
    assert ended.value.code == 128 + signal.SIGTERM
    assert sorted(seen[0]) == [f".artifact.{os.getpid()}.incomplete", "run"]
    assert [folder.name for folder in tmp_path.iterdir()] == ["run"]
    assert signal.getsignal(signal.SIGTERM) == before


def test_several_runs_are_one_request(flags, asked, tmp_path: Path) -> None:
    runs = f"--output_dir={tmp_path / 'a'},{tmp_path / 'b'},{tmp_path / 'c'}"
    assert exporter.main([*flags, runs]) == 0
    (settings,) = asked
    assert settings.runs == (tmp_path / "a", tmp_path / "b", tmp_path / "c")


def test_each_form_is_written_by_its_own(flags, tmp_path: Path, monkeypatch, capsys) -> None:
    def exported(settings: ExportSettings) -> Exported:
        files = {"model.safetensors": FileChecksum(2 << 20, "")}
        signature = Signature(
            problem="topics", model="text_cnn", step=7, checkpoint="mean of 2 models", created="",
            fields=(), targets=(), needs_extensions=False, quantized="", opset=0, made_with={},
            files=files, form=settings.format,
            members=("a: text_cnn, step 7", "b: text_cnn, step 8"),
        )  # fmt: skip
        return Exported(settings.folder, signature, WeightsReport(), 1.0)

    monkeypatch.setattr("t2t_torch.export.exporter.WeightsExporter.export", exported)
    monkeypatch.setattr("t2t_torch.export.torch_package.TorchExporter.export", exported)
    monkeypatch.setattr(
        "t2t_torch.interop.ctranslate2.CTranslate2Exporter.export", lambda settings: settings.format
    )
    without_data = [flag for flag in flags if "data_dir" not in flag]
    assert exporter.main([*without_data, "--format=safetensors"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[1:5] == [
        "  member    a: text_cnn, step 7",
        "  member    b: text_cnn, step 8",
        "  size      2.0 MiB, of these model.safetensors 2.0",
        "  verified  what is loaded from there: the same weights to the bit",
    ]
    assert exporter.main([*flags, "--format=torch"]) == 0
    assert exporter.main([*without_data, "--format=torch"]) == 2
    assert "data_dir" in capsys.readouterr().err
    assert exporter.main([*flags, "--format=ctranslate2", "--quantize=int16"]) == 0
    assert capsys.readouterr().out == "ctranslate2\n"
