"""Features and models of the small pretrained models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from t2t_torch import registry
from t2t_torch.features import ClassLabel, Features, Text
from t2t_torch.text.encoder import ClassLabelEncoder
from t2t_torch.text.pieces import PieceEncoder
from t2t_torch.text.pretrained import PretrainedFolder


@pytest.fixture(autouse=True)
def _needs_transformers():
    pytest.importorskip("transformers")


@pytest.fixture
def text_of():
    """Returns the feature of a text that a folder's tokenizer reads."""

    def made(folder):
        path = Path(folder) / "vocab.test.pieces"
        path.write_bytes(PretrainedFolder(str(folder)).vocabulary)
        return Text(PieceEncoder.load(path))

    return made


@pytest.fixture
def model_of(text_of):
    """Returns a model of this library with the weights of a folder, in evaluation mode."""

    def made(name, folder, **hparams):
        text = text_of(folder)
        inputs, targets = {"inputs": text}, {"targets": text}
        if name == "pretrained_encoder":
            targets = {"targets": ClassLabel(ClassLabelEncoder(["no", "yes"]))}
        known = registry.hparams(f"{name}_base").replace(pretrained=str(folder), **hparams)
        model = registry.model(name)(known.completed(None), Features(inputs, targets))
        model.load_pretrained()
        return model.eval()

    return made


def padded(rows):
    """Returns rows of ids as a tensor."""
    length = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])
