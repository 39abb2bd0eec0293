"""A trial as it was written for PEDL: digits, by a small convolutional network.

t2t-trainer --trial=examples/mnist_trial --config=examples/mnist_trial/one.yaml --output_dir=run
t2t-tuner --trial=examples/mnist_trial --config=examples/mnist_trial/search.yaml --output_dir=search
"""

import gzip
import urllib.request
from pathlib import Path

import numpy as np
import pedl
import torch
from pedl.frameworks.pytorch import PyTorchTrial
from pedl.frameworks.pytorch.data import DataLoader
from pedl.frameworks.pytorch.util import error_rate
from torch import nn
from torch.utils.data import TensorDataset

FILES = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
VALIDATED = 6000  # the last images: the test set is left alone


def download_data(experiment_config, hparams):
    """Fetches what is not there yet; called once on each machine."""
    data = experiment_config["data"]
    folder = Path(data["path"])
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if not (folder / name).exists():
            part, _ = urllib.request.urlretrieve(f"{data['url']}/{name}", folder / f"{name}.part")
            Path(part).rename(folder / name)
    return str(folder)


def read():
    """Reads two files of the IDX format."""
    images, labels = (Path(pedl.get_download_data_dir(), name) for name in FILES)
    with gzip.open(images) as file:
        x = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(labels) as file:
        y = np.frombuffer(file.read(), np.uint8, offset=8)
    x = (x.astype(np.float32) / 255 - 0.1307) / 0.3081
    return torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))


def make_data_loaders(experiment_config, hparams):
    """Returns the loaders of training and of validation."""
    x, y = read()
    train = TensorDataset(x[:-VALIDATED], y[:-VALIDATED])
    valid = TensorDataset(x[-VALIDATED:], y[-VALIDATED:])
    return (
        DataLoader(train, batch_size=hparams["batch_size"], shuffle=True),
        DataLoader(valid, batch_size=250),
    )


class MNistTrial(PyTorchTrial):
    """Two convolutions and two layers."""

    def build_model(self, hparams):
        """Returns the network."""
        first, second = hparams["filters"]["first"], hparams["filters"]["second"]
        return nn.Sequential(
            nn.Conv2d(1, first, 5), nn.MaxPool2d(2), nn.ReLU(),
            nn.Conv2d(first, second, 5), nn.MaxPool2d(2), nn.ReLU(),
            nn.Flatten(),
            nn.Linear(second * 16, 50), nn.ReLU(), nn.Dropout(hparams["dropout"]),
            nn.Linear(50, 10), nn.LogSoftmax(dim=1),
        )  # fmt: skip

    def optimizer(self, model):
        """Returns the optimizer."""
        rate = pedl.get_hyperparameter("learning_rate")
        return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)

    def losses(self, predictions, labels):
        """Returns the loss."""
        return nn.functional.nll_loss(predictions, labels)

    def training_metrics(self, predictions, labels, losses):
        """Returns what a training batch reports besides."""
        return {"classification_error": error_rate(predictions, labels)}

    def validation_metrics(self, predictions, labels, losses):
        """Returns what a validation batch reports: numbers, or arrays of any shape."""
        right = (predictions.argmax(1) == labels).float()
        hits = torch.zeros(10).index_add_(0, labels.cpu(), right.cpu()) / len(labels)
        return {"error": error_rate(predictions, labels), "loss": losses, "hits_of_digits": hits}
