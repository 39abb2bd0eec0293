"""How much each class counts in training: as hparams say, or by how often training data has it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from t2t_torch.census.labels import count_labels, labels_of
from t2t_torch.errors import HParamsError
from t2t_torch.features import ClassLabel, Feature, MultiLabel, SoftLabel, Tags
from t2t_torch.modalities.objective import by_target

if TYPE_CHECKING:
    from t2t_torch.census.column import Column
    from t2t_torch.model import T2TModel
    from t2t_torch.train.problem_data import ProblemData

_WITH_CLASSES = (ClassLabel, Tags, MultiLabel, SoftLabel)
_RULES = ("balanced", "sqrt_balanced")


def set_class_weights(model: T2TModel, data: ProblemData) -> None:
    """Gives a model's losses the weights that its hparams ask for; nothing if they ask for none.

    Args:
      model: any.
      data: whose training labels are counted, every row once, if need be.

    Raises:
      HParamsError: a target has no classes, not so many, or a loss that takes no weights.
      DataError: the data has more classes than the problem.
    """
    hparams: Any = model.hparams
    text, features = hparams.class_weights, model.features
    if not text:
        return
    asked = by_target("class_weights", text, features)
    everywhere = asked.get("", [])
    chosen = {
        target: asked.get(target, everywhere)
        for target, feature in features.targets.items()
        if target in asked or (everywhere and isinstance(feature, _WITH_CLASSES))
    }
    if not chosen:
        raise HParamsError(f"class_weights={text}: no target has classes. Leave it out.")
    for target, words in chosen.items():
        feature = features.targets[target]
        labels = labels_of(feature)
        if labels is None or not isinstance(feature, _WITH_CLASSES):
            raise HParamsError(
                f"class_weights={text}: target {target!r} is a {type(feature).__name__}; weights "
                f"are of {', '.join(kind.__name__ for kind in _WITH_CLASSES)}."
            )
        if len(words) == 1 and words[0] in _RULES:
            weights = balanced(feature, labels, data.training_columns(target))
            if words[0] == "sqrt_balanced":
                weights = [math.sqrt(weight) for weight in weights]
        else:
            weights = _given(text, target, words, labels)
        model.weigh_classes(target, weights)


def balanced(feature: Feature, labels: tuple[str, ...], columns: Iterable[Column]) -> list[float]:
    """Returns weights with which all classes count the same, by their counts.

    Of one class among C that is count of all / (C * its count), as in King and Zeng 2001; of each
    label that is there or not, rows without it / rows with it.  A class that is never there, or
    always, counts as one that is once, or all but once.

    Args:
      feature: of the labels.
      labels: in the order of the ids.
      columns: the stored rows.
    """
    counts, rows = np.zeros(len(labels)), 0
    for column in columns:
        counts += np.asarray(count_labels(feature, labels, column).counts)
        rows += len(column)
    there = np.maximum(counts, 1.0)
    if isinstance(feature, MultiLabel):
        return list((np.maximum(rows - counts, 1.0) / there).tolist())
    return list((counts.sum() / (len(labels) * there)).tolist())


def _given(text: str, target: str, words: Sequence[str], labels: tuple[str, ...]) -> list[float]:
    try:
        weights = [float(word) for word in words]
    except ValueError:
        weights = []
    good = all(weight >= 0 and math.isfinite(weight) for weight in weights) and any(weights)
    if len(weights) != len(labels) or not good:
        raise HParamsError(
            f"class_weights={text}: target {target!r} has {len(labels)} classes "
            f"({', '.join(labels[:10])}{' ...' if len(labels) > 10 else ''}). Expected as many "
            f"numbers from 0 on, not all 0, or one of {', '.join(_RULES)}."
        )
    return weights
