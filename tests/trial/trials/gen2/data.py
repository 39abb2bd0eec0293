# ruff: noqa
from typing import Any, Dict, Tuple

import numpy as np
from torch.utils.data import Dataset

import pedl
from pedl.frameworks.pytorch.data import DataLoader


class Collate:
    def __call__(self, batch):
        points = np.stack([point for point, _ in batch], 0)
        labels = np.array([label for _, label in batch])
        return {"data": points}, {"labels": labels}


class BatchSampler:
    """Batches of random lengths, drawn from numpy's global generator."""

    def __init__(self, dataset: Dataset) -> None:
        self.length = len(dataset)

    def __iter__(self):
        order = np.random.permutation(self.length).tolist()
        while order:
            size = np.random.randint(3, 9)
            yield order[:size]
            order = order[size:]


class TwoMoons(Dataset):
    def __init__(self, seed: int, count: int) -> None:
        rng = np.random.RandomState(seed)
        self.labels = rng.randint(0, 2, count)
        angle = np.pi * rng.rand(count)
        moons = np.stack([np.cos(angle), np.sin(angle)], 1)
        other = np.stack([1 - np.cos(angle), 0.5 - np.sin(angle)], 1)
        self.points = np.where(self.labels[:, None] == 0, moons, other).astype(np.float32)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> Tuple[np.ndarray, int]:
        return self.points[i], self.labels[i]


def make_data_loaders(
    experiment_config: Dict[str, Any], hparams: Dict[str, Any]
) -> Tuple[DataLoader, DataLoader]:
    train, valid = TwoMoons(0, 120), TwoMoons(1, 40)
    return (
        DataLoader(train, batch_sampler=BatchSampler(train), collate_fn=Collate()),
        DataLoader(
            valid, batch_size=pedl.get_hyperparameter("eval_batch_size"), collate_fn=Collate()
        ),
    )
