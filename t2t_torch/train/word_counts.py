"""How often training data has each id of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from t2t_torch.modalities.text import Embedding, TextModality
from t2t_torch.text.encoder import NUM_RESERVED

if TYPE_CHECKING:
    from torch import nn

    from t2t_torch.train.problem_data import ProblemData

Counts = npt.NDArray[np.int64]


def texts_by_table(model: nn.Module) -> list[tuple[Embedding, list[str]]]:
    """Returns a model's tables of vectors, each with the names of the texts that share it."""
    modalities: Any = model.modalities
    groups: dict[int, tuple[Embedding, list[str]]] = {}
    for name, modality in modalities.items():
        if isinstance(modality, TextModality):
            # A model may have put something of its own around it.
            table = next(part for part in modality.bottom.modules() if isinstance(part, Embedding))
            groups.setdefault(id(table), (table, []))[1].append(name)
    return list(groups.values())


def count_ids(data: ProblemData, names: list[str], size: int) -> Counts:
    """Counts the ids of texts in the training rows, every row once.

    Args:
      data: of the run.
      names: of texts of one vocabulary.
      size: ids that there can be.

    Returns:
      [size].
    """
    counts = np.zeros(size, np.int64)
    for name in names:
        for column in data.training_columns(name):
            for _, rows in column.blocks():
                counts += np.bincount(rows.values, minlength=size)[:size]
    return counts


def set_singletons(model: nn.Module, data: ProblemData) -> None:
    """Tells a model's tables which words training data has once; nothing without
    `singleton_dropout`.
    """
    learner: Any = model
    if not learner.hparams.singleton_dropout:
        return
    for table, names in texts_by_table(model):
        if table.unknown is not None:
            once = torch.from_numpy(count_ids(data, names, len(table.weight)) == 1)
            once[:NUM_RESERVED], once[table.unknown] = False, False
            table.singletons = once.to(table.weight.device)
