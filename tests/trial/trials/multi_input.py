# ruff: noqa
"""
Several inputs and several losses: batches of nested dicts and tuples of arrays and tensors.
"""

from collections import namedtuple
from typing import Any, Dict

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from pedl.frameworks.pytorch import PyTorchTrial
from pedl.frameworks.pytorch.data import DataLoader, TorchData

Texts = namedtuple("Texts", ["words", "lengths"])


class Reviews(Dataset):
    """Words and a picture; the labels are a class and a number."""

    def __init__(self, seed: int, count: int) -> None:
        rng = np.random.RandomState(seed)
        self.lengths = rng.randint(2, 7, count)
        self.words = rng.randint(1, 20, (count, 6)) * (np.arange(6) < self.lengths[:, None])
        self.pictures = rng.randn(count, 5).astype(np.float32)
        self.classes = self.words.max(1) > 15
        self.numbers = self.pictures.sum(1) + self.lengths

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, i: int) -> int:
        return i

    def collate(self, rows):
        texts = Texts(torch.from_numpy(self.words[rows]), torch.from_numpy(self.lengths[rows]))
        inputs = {"text": texts, "more": ({"picture": self.pictures[rows]}, None)}
        labels = {
            "class": self.classes[rows].astype(np.int64),
            "number": self.numbers[rows],
            "ids": np.array(["review-%d" % row for row in rows]),
        }
        return inputs, labels


def make_data_loaders(experiment_config: Dict[str, Any], hparams: Dict[str, Any]) -> Any:
    train, valid = Reviews(0, 90), Reviews(1, 25)
    size = hparams["batch_size"]
    return (
        DataLoader(train, batch_size=size, shuffle=True, collate_fn=train.collate, drop_last=True),
        DataLoader(valid, batch_size=size, collate_fn=valid.collate),
    )


class TwoHeads(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.words = nn.Embedding(20, hidden, padding_idx=0)
        self.picture = nn.Linear(5, hidden)
        self.classes = nn.Linear(2 * hidden, 2)
        self.number = nn.Linear(2 * hidden, 1)

    def forward(self, *args: TorchData, **kwargs: Any) -> Any:
        assert len(args) == 1
        inputs = args[0]
        texts, (rest, nothing) = inputs["text"], inputs["more"]
        assert nothing is None
        words = self.words(texts.words).sum(1) / texts.lengths.unsqueeze(1).float()
        both = torch.cat([words, self.picture(rest["picture"])], 1)
        return {"class": self.classes(both), "number": self.number(both).squeeze(1)}


class TwoLossesTrial(PyTorchTrial):
    def build_model(self, hparams: Dict[str, Any]) -> nn.Module:
        return TwoHeads(hparams["net"]["hidden"])

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=0.01)

    def losses(self, predictions: Any, labels: Any) -> Dict[str, torch.Tensor]:
        labels["number"] = labels["number"].type(torch.float32)
        class_loss = nn.functional.cross_entropy(predictions["class"], labels["class"])
        number_loss = nn.functional.mse_loss(predictions["number"], labels["number"])
        return {"loss": class_loss + number_loss, "class_loss": class_loss, "number": number_loss}

    def training_metrics(self, predictions: Any, labels: Any, losses: Any) -> Dict[str, Any]:
        return {"mean_number": predictions["number"].mean()}

    def validation_metrics(self, predictions: Any, labels: Any, losses: Any) -> Dict[str, Any]:
        right = predictions["class"].argmax(1) == labels["class"]
        return {
            "accuracy": right.float().mean().item(),
            "loss": losses["loss"],
            "number_error": (predictions["number"] - labels["number"]).abs().mean().cpu().numpy(),
        }
