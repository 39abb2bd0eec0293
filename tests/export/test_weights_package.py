"""The weights of a model alone, in a folder that is loaded as a run is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import t2t_torch
from t2t_torch.decode.loading import load, load_run
from t2t_torch.errors import ArtifactError, ExportError, UsageError
from t2t_torch.export import exporter
from t2t_torch.export.exporter import WeightsExporter
from t2t_torch.export.settings import ExportSettings


@pytest.fixture
def settings_of(run: Path, tmp_path: Path) -> Callable[..., ExportSettings]:
    """Makes settings for the weights of the run."""

    def make(**changes: Any) -> ExportSettings:
        given = {"output_dir": str(run), "export_dir": str(tmp_path / "weights")}
        return ExportSettings(**{**given, "format": "safetensors", **changes})

    return make


def test_weights_are_those_of_the_run_to_the_bit(settings_of, run: Path) -> None:
    done = WeightsExporter.export(settings_of(checkpoint="2"))
    assert (done.signature.form, done.signature.checkpoint) == ("safetensors", "step 2")
    right = load_run(run, 2).model.state_dict()
    read = load_file(done.folder / "model.safetensors")
    assert {name: tensor.shape for name, tensor in read.items()} == {
        name: tensor.shape for name, tensor in right.items()
    }
    assert all(torch.equal(read[name], right[name]) for name in read)


def test_weights_are_loaded_as_a_run_is(settings_of, run: Path) -> None:
    done = WeightsExporter.export(settings_of())
    asked: Any = [{"inputs": ["go", "to", "Rome"]}, {"inputs": ""}]
    expected = t2t_torch.load(run, device="cpu").predict(asked)
    assert t2t_torch.load(done.folder, device="cpu").predict(asked) == expected
    both = load([done.folder, run], device="cpu")
    assert both(asked) == load(run, device="cpu")(asked)


def test_a_mean_of_checkpoints_is_written(settings_of, run: Path) -> None:
    done = WeightsExporter.export(settings_of(checkpoint="average:3"))
    read = load_file(done.folder / "model.safetensors")
    members = [load_run(run, step).model.state_dict() for step in (1, 2, 3)]
    for name, tensor in read.items():
        mean = torch.stack([one[name].double() for one in members]).mean(0)
        torch.testing.assert_close(tensor.double(), mean, atol=1e-6, rtol=0)
    assert done.signature.checkpoint == "mean of steps 1, 2, 3"


def test_what_is_there_is_replaced_if_it_was_exported(settings_of, tmp_path: Path) -> None:
    WeightsExporter.export(settings_of(checkpoint="1"))
    with pytest.raises(UsageError, match="--overwrite"):
        WeightsExporter.export(settings_of())
    assert WeightsExporter.export(settings_of(overwrite=True)).signature.step == 2
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]


def test_what_weights_have_not_is_refused(settings_of, run: Path) -> None:
    with pytest.raises(UsageError, match="--quantize=int8: --format=safetensors has none"):
        WeightsExporter.export(settings_of(quantize="int8"))
    with pytest.raises(UsageError, match="holds one model"):
        WeightsExporter.export(settings_of(output_dir=f"{run},{run}"))
    done = WeightsExporter.export(settings_of())
    with pytest.raises(UsageError, match="is an exported model of step 2 and has no checkpoint 2"):
        load_run(done.folder, 2)
    with pytest.raises(UsageError, match=r"threads=2 .* torch\.set_num_threads"):
        t2t_torch.load(done.folder, threads=2)


def test_weights_that_were_altered_are_refused(settings_of) -> None:
    done = WeightsExporter.export(settings_of())
    content = bytearray((done.folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (done.folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"model\.safetensors: another content"):
        t2t_torch.load(done.folder)


def test_an_altered_task_is_refused_by_its_name_before_its_problem_is_looked_for(
    settings_of,
) -> None:
    done = WeightsExporter.export(settings_of())
    task = done.folder / "task.json"
    task.write_text(task.read_text().replace("small_requests", "s1all_requests"))
    with pytest.raises(ArtifactError, match=r"task\.json: another content"):
        t2t_torch.load(done.folder)


def test_weights_that_are_not_read_as_they_were_are_not_written(
    settings_of, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "load_run", lambda folder: load_run(run, 1))
    with pytest.raises(ExportError, match="has other weights than the run"):
        WeightsExporter.export(settings_of())
    assert not list(tmp_path.iterdir())
