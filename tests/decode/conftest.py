"""A model of tensor2tensor that has learnt something, a run directory of one that has not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.decode.predictor import Predictor
from t2t_torch.features import Features, Text
from t2t_torch.interop.tensor2tensor_weights import convert_hparams, load_variables
from t2t_torch.models.transformer import Transformer
from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.text.encoder import NUM_RESERVED, IntegerEncoder

GOLDEN = Path(__file__).parents[1] / "golden" / "transformer"


def golden_predictor(variant: str) -> Predictor:
    """The golden model of that name; its texts are numbers."""
    record = json.loads((GOLDEN / variant / "hparams.json").read_text())
    problem = record["problem_hparams"]
    texts = {
        name: Text(IntegerEncoder(size - NUM_RESERVED))
        for name, size in problem["vocab_size"].items()
    }
    features = Features(
        inputs={name: text for name, text in texts.items() if name == "inputs"},
        targets={"targets": texts["targets"]},
        target_space_id=problem["target_space_id"],
    )
    model = Transformer(convert_hparams("transformer", record["hparams"]), features)
    load_variables(model, dict(np.load(GOLDEN / variant / "variables.npz")))
    return Predictor(model, registry.problem("tiny_algo"), features)


@pytest.fixture(scope="session")
def predictor() -> Predictor:
    """An encoder and decoder that end most of their outputs."""
    return golden_predictor("v3")


@pytest.fixture(scope="session")
def language_model() -> Predictor:
    """A decoder alone."""
    return golden_predictor("lm")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run of dates_to_iso with two checkpoints, of steps 3 and 7, that has learnt nothing."""
    path = tmp_path / "run"
    run = RunDirectory(path)
    hparams = registry.hparams("transformer_test")
    run.begin(
        TaskRecord(problem="dates_to_iso", model="transformer", hparams_set="transformer_test"),
        hparams,
    )
    for step in (3, 7):
        torch.manual_seed(step)
        model = Transformer(hparams, registry.problem("dates_to_iso").features(path))
        adam = torch.optim.Adam(model.parameters())
        CheckpointDirectory(path).save(Snapshot.take(model, adam, TrainerState(step=step)))
    run.unlock()
    return path


@pytest.fixture
def reverse_data(tmp_path: Path) -> Path:
    """The data of tiny_algo."""
    data_dir = tmp_path / "data"
    generate_data(registry.problem("tiny_algo"), data_dir, tmp_path, num_processes=1)
    return data_dir
