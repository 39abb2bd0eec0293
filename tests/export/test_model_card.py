"""The README of an artifact: a model card that the Hugging Face Hub reads."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from t2t_torch.export.model_card import model_card
from t2t_torch.run.metrics_file import MetricsFile
from t2t_torch.runtime.signature import Signature


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The record of a run: two evaluated checkpoints, and hyperparameters."""
    reports = MetricsFile(tmp_path)
    for step, accuracy in ((10, 0.5), (20, 0.75)):
        name = "metrics-tickets/label/accuracy"
        reports.add("dev", step, {"loss": 0.25, name: accuracy, f"{name}_per_label/a": 1.0})
        reports.add("train", step, {"loss": 9.0})
    hparams = {"batch_size": 8, "name": "a|b", "provenance": {"batch_size": "default"}}
    hparams["provenance"]["name"] = "--hparams"
    (tmp_path / "hparams.json").write_text(json.dumps(hparams))
    return tmp_path


def card(run: Path, loaded: Any = None, **changes: Any) -> tuple[dict[str, Any], str]:
    """Returns the metadata and the text."""
    values: dict[str, Any] = {"problem": "tickets", "model": "text_cnn", "step": 20}
    values |= {"checkpoint": "step 20", "created": "now", "made_with": {"torch": "2.13"}}
    text = model_card(Signature(**{**values, **changes}), run, "", loaded)
    _, front, rest = text.split("---\n", 2)
    return yaml.safe_load(front), rest


def test_metrics_are_those_of_the_exported_checkpoint(run: Path) -> None:
    metadata, text = card(run)
    (index,) = metadata["model-index"]
    results = [(one["dataset"]["split"], one["metrics"]) for one in index["results"]]
    assert results == [
        ("dev", [{"type": "loss", "name": "loss", "value": 0.25}]),
        ("dev", [{"type": "accuracy", "name": "accuracy of label", "value": 0.75}]),
    ]
    assert "| dev | accuracy of label | 0.75 | 20" in text
    assert "9.0" not in text


@pytest.mark.parametrize("changes", [{"step": 30}, {"checkpoint": "mean of steps 10, 20"}])
def test_a_checkpoint_without_an_evaluation_has_none(run: Path, changes: dict[str, Any]) -> None:
    metadata, text = card(run, **changes)
    assert "model-index" not in metadata
    assert "## Evaluation" not in text


def test_only_chosen_hyperparameters_are_listed(run: Path) -> None:
    _, text = card(run)
    assert '| name | `"a&#124;b"` | --hparams |' in text
    assert "batch_size" not in text


def test_a_translation_has_its_languages_and_its_task(tmp_path: Path) -> None:
    metadata, _ = card(tmp_path, problem="translate_multi30k_ende")
    assert (metadata["language"], metadata["pipeline_tag"]) == (["de", "en"], "translation")


def test_the_hub_reads_the_card(run: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    known = SimpleNamespace(
        inputs={"inputs": SimpleNamespace(input_spec=lambda *_: SimpleNamespace(kind="text"))},
        targets={"label": SimpleNamespace(output_spec=lambda *_: SimpleNamespace(kind="class"))},
    )
    loaded = SimpleNamespace(features=known, model=SimpleNamespace(parameters=list))
    signature = Signature("tickets", "text_cnn", 20, "step 20", "now")
    read = hub.ModelCard(model_card(signature, run, "", loaded)).data
    assert read.pipeline_tag == "text-classification"
    assert read.eval_results[1].metric_value == 0.75
