"""The files of `examples/engines`: each fits the schema of its engine, its commands our flags."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import Any

import pytest
import yaml

from t2t_torch.workflows.generate import DatagenSettings
from t2t_torch.workflows.train_settings import TrainSettings

from .conftest import ROOT

pytestmark = pytest.mark.engines

FOLDER = ROOT / "examples" / "engines"


def words_of(value: Any) -> list[str]:
    """Returns the words of all commands in a file."""
    if isinstance(value, dict):
        return [word for one in value.values() for word in words_of(one)]
    if isinstance(value, list):
        return [word for one in value for word in words_of(one)]
    return shlex.split(value, comments=True) if isinstance(value, str) else []


@pytest.mark.parametrize("name", ["trainjob", "jobset", "sky", "compose"])
def test_the_flags_of_a_file_are_those_of_the_commands(name: str) -> None:
    words = words_of(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()))
    assert "t2t_torch.bin.trainer" in words
    flags = {word[2:].partition("=")[0] for word in words if word.startswith("--")}
    ours = {flag for flag in flags if "-" not in flag} - {"nnodes"}  # others are torchrun's
    assert ours - {*TrainSettings.declared(), *DatagenSettings.declared()} == set()
    assert ours >= {"problem", "model", "hparams_set", "data_dir", "output_dir", "train_steps"}


@pytest.mark.parametrize(("name", "kind"), [("trainjob", "TrainJob"), ("jobset", "JobSet")])
def test_a_file_for_kubernetes_fits_the_models_of_its_operator(name: str, kind: str) -> None:
    models = pytest.importorskip("kubeflow_trainer_api.models")
    content = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    assert content["kind"] == kind
    versions = {"TrainJob": "TrainerV1alpha1TrainJob", "JobSet": "JobsetV1alpha2JobSet"}
    model = getattr(models, versions[kind])
    assert model.from_dict(content).to_dict() == content, "a field that it does not know is lost"


def test_compose_fits_the_schema_of_compose() -> None:
    pytest.importorskip("check_jsonschema")
    command = ["-m", "check_jsonschema", "--builtin-schema=vendor.compose-spec"]
    done = subprocess.run(
        [sys.executable, *command, str(FOLDER / "compose.yaml")], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout.decode()


def test_sky_fits_the_schema_of_skypilot() -> None:
    schemas = pytest.importorskip("sky.utils.schemas")
    jsonschema = pytest.importorskip("jsonschema")
    content = yaml.safe_load((FOLDER / "sky.yaml").read_text())
    jsonschema.validate(content, schemas.get_task_schema())
