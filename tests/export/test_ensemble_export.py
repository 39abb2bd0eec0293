"""Several runs as one graph, whose answer is the mean of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import t2t_torch
from t2t_torch.decode.loading import as_one, load_run
from t2t_torch.distributed.precision import in_float32
from t2t_torch.errors import HParamsError
from t2t_torch.export.exporter import OnnxExporter
from t2t_torch.export.folder import joined, load_members
from t2t_torch.export.settings import ExportSettings


@pytest.mark.slow
def test_a_graph_answers_as_the_mean_of_its_runs_does(
    run: Path, data: Path, tmp_path: Path
) -> None:
    done = OnnxExporter.export(
        ExportSettings(
            output_dir=f"{run / 'ckpt-1'},{run / 'ckpt-3'}",
            export_dir=str(tmp_path / "both"),
            data_dir=str(data),
        )
    )
    signature = done.signature
    assert (signature.model, signature.checkpoint) == ("joint_bilstm", "mean of 2 models")
    assert signature.members == (
        "run/ckpt-1: joint_bilstm, step 1",
        "run/ckpt-3: joint_bilstm, step 3",
    )
    assert {"hparams.json", "hparams-2.json"} <= signature.files.keys()
    asked: Any = [{"inputs": "go to Rome"}, {"inputs": ["stay", "here", "😀"]}, {"inputs": ""}]
    both = t2t_torch.load([run / "ckpt-1", run / "ckpt-3"], device="cpu")
    one = t2t_torch.load(run, 3, device="cpu")
    expected: Any = both.predict(asked)
    other: Any = one.predict(asked)
    found: Any = t2t_torch.load(done.folder).predict(asked)
    for right, answer in zip(expected, found, strict=True):
        assert answer.values == right.values
        assert answer.scores["intent"] == pytest.approx(right.scores["intent"], abs=1e-5)
    assert found[0].scores["intent"] != pytest.approx(other[0].scores["intent"], abs=1e-5)


def test_each_run_has_its_mean_of_checkpoints(run: Path, tmp_path: Path) -> None:
    settings = ExportSettings(
        output_dir=f"{run},{run}", export_dir=str(tmp_path / "x"), checkpoint="average:2"
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    members = load_members(settings, scratch)
    assert [str(member) for member in members] == ["run: joint_bilstm, mean of steps 2, 3"] * 2
    loaded, chosen = joined(members)
    assert chosen == "mean of 2 models" and len(loaded.model.models) == 2


def test_a_model_computes_in_float32_whatever_it_was_trained_with(run: Path) -> None:
    loaded = load_run(run)
    loaded.model.hparams = loaded.model.hparams.replace(activation_dtype="bfloat16")
    both = as_one([loaded._replace(model=loaded.model.half()), loaded])
    model = in_float32(both.model)
    assert model is both.model and model.hparams.activation_dtype == "float32"
    assert {str(weight.dtype) for weight in model.parameters()} == {"torch.float32"}
    with pytest.raises(HParamsError, match="no models"):
        as_one([])
