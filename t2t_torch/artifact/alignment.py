"""Which word of an input each word of a text comes from, as a graph tells it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from t2t_torch.artifact.prediction import Attention, Prediction


def attention_names(target: str) -> tuple[str, str, str]:
    """Returns the names of the outputs that tell what words look at.

    They are the weights, [B, n, W, R], below 0 where there is no word; the words that are read,
    [B, R]; and those that are written, [B, n, W].

    Args:
      target: whose texts it is about.
    """
    return f"{target}_attention", f"{target}_attention_read", f"{target}_attention_written"


def wanted_name(target: str) -> str:
    """Returns the name of the input that says whether they are wanted, [] bool; by default true."""
    return f"{target}_attention_wanted"


def aligned(
    target: str, outputs: Mapping[str, npt.NDArray[Any]], predictions: Sequence[Prediction]
) -> list[Prediction]:
    """Returns predictions with the `alignment` of each hypothesis, and the best one's `attention`.

    Args:
      target: whose texts they are.
      outputs: of the graph, by name.
      predictions: of each row.
    """
    parts = [outputs[name].tolist() for name in attention_names(target)]
    return [_aligned(*row) for row in zip(predictions, *parts, strict=True)]


def _aligned(
    prediction: Prediction,
    weights: Sequence[Sequence[Sequence[float]]],
    read: Sequence[str],
    written: Sequence[Sequence[str]],
) -> Prediction:
    places = range(len(prediction.hypotheses))
    told = [_attention(weights[place], read, written[place]) for place in places]
    hypotheses = tuple(
        dataclasses.replace(hypothesis, alignment=_pairs(attention))
        for hypothesis, attention in zip(prediction.hypotheses, told, strict=True)
    )
    return Prediction(hypotheses, told[0])


def _attention(
    weights: Sequence[Sequence[float]], read: Sequence[str], written: Sequence[str]
) -> Attention:
    """Returns what there is of a hypothesis's words."""
    rows = [tuple(weight for weight in row if weight >= 0) for row in weights if row[0] >= 0]
    if not rows:
        return Attention((), (), ())
    return Attention(tuple(read[: len(rows[0])]), tuple(written[: len(rows)]), tuple(rows))


def _pairs(attention: Attention) -> tuple[tuple[int, int], ...]:
    """Returns of each written word the number of the word that it looks at most, and its own."""
    return tuple((row.index(max(row)), place) for place, row in enumerate(attention.weights))
