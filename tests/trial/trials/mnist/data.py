# ruff: noqa
"""
Loads MNIST from the four idx files. If they are not there yet, `download_data` puts a small
synthetic data set of the same format in their place.
"""

import gzip
import logging
import os
import struct
from typing import Any, Dict, Tuple

import numpy as np
import torch
from torch.utils.data import TensorDataset

import pedl
from pedl.frameworks.pytorch.data import DataLoader

FILES = {
    "train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    "valid": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
}


def write_synthetic(images_file: str, labels_file: str, seed: int, count: int) -> None:
    """Each digit is a bright bar at its own height, in noise."""
    rng = np.random.RandomState(seed)
    labels = rng.randint(0, 10, count).astype(np.uint8)
    images = rng.randint(0, 64, (count, 28, 28)).astype(np.uint8)
    for image, label in zip(images, labels):
        image[2 * label + 3 : 2 * label + 6, 4:24] += 150
    with gzip.open(images_file, "wb") as f:
        f.write(struct.pack(">IIII", 2051, count, 28, 28) + images.tobytes())
    with gzip.open(labels_file, "wb") as f:
        f.write(struct.pack(">II", 2049, count) + labels.tobytes())


def download_data(experiment_config: Dict[str, Any], hparams: Dict[str, Any]) -> str:
    path = experiment_config["data"]["path"]
    if not os.path.isdir(path):
        os.makedirs(path)
    for seed, (images, labels) in enumerate(FILES.values()):
        images, labels = os.path.join(path, images), os.path.join(path, labels)
        if not os.path.exists(images) or not os.path.exists(labels):
            logging.info("Writing synthetic data to {}".format(path))
            write_synthetic(images, labels, seed, 512 if seed == 0 else 100)
    return path


def read(path: str, split: str, limit: Any) -> TensorDataset:
    images, labels = FILES[split]
    with gzip.open(os.path.join(path, images), "rb") as f:
        _, count, height, width = struct.unpack(">IIII", f.read(16))
        x = np.frombuffer(f.read(), np.uint8).reshape(count, 1, height, width)[:limit]
    with gzip.open(os.path.join(path, labels), "rb") as f:
        f.read(8)
        y = np.frombuffer(f.read(), np.uint8)[:limit]
    x = (x.astype(np.float32) / 255 - 0.1307) / 0.3081
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y.astype(np.int64)))


def make_data_loaders(
    experiment_config: Dict[str, Any], hparams: Dict[str, Any]
) -> Tuple[DataLoader, DataLoader]:
    path = pedl.get_download_data_dir()
    data_config = pedl.get_data_config()
    train = read(path, "train", data_config.get("train_records"))
    valid = read(path, "valid", data_config.get("valid_records"))
    return (
        DataLoader(train, batch_size=hparams["batch_size"], shuffle=True),
        DataLoader(valid, batch_size=hparams["batch_size"]),
    )
