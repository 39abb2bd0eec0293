"""Which word of an input each word of a text comes from, as a graph tells it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from t2t_torch.artifact.prediction import Attention, Prediction
from t2t_torch.errors import DecodeError


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


def check_size(
    target: str, outputs: Mapping[str, npt.NDArray[Any]], numbers: Sequence[int], most: int
) -> None:
    """Raises DecodeError if the best hypothesis of an input has more than so many weights.

    Args:
      target: whose texts they are.
      outputs: of the graph, by name.
      numbers: of the inputs of each row, for the error.
      most: weights of an input.
    """
    weights, _, _ = attention_names(target)
    for number, its in zip(numbers, outputs[weights], strict=True):
        size = _there(its[0]).size
        if size > most:
            raise DecodeError(
                f"input {number} has {size:,} pairs of a word that is read and one that is "
                f"written, and attention is told of {most:,}. Ask without attention, or less at "
                "once."
            )


def paired(
    target: str, outputs: Mapping[str, npt.NDArray[Any]], predictions: Sequence[Prediction]
) -> list[Prediction]:
    """Returns predictions with the `alignment` of each hypothesis.

    Args:
      target: whose texts they are.
      outputs: of the graph, by name.
      predictions: of each row.
    """
    weights, _, _ = attention_names(target)
    return [
        Prediction(
            tuple(
                dataclasses.replace(hypothesis, alignment=_pairs(_there(rows)))
                for hypothesis, rows in zip(prediction.hypotheses, its, strict=False)
            )
        )
        for prediction, its in zip(predictions, outputs[weights], strict=True)
    ]


def aligned(
    target: str, outputs: Mapping[str, npt.NDArray[Any]], predictions: Sequence[Prediction]
) -> list[Prediction]:
    """Returns predictions with the `alignment` of each hypothesis, and the best one's `attention`.

    Args:
      target: whose texts they are.
      outputs: of the graph, by name.
      predictions: of each row.
    """
    parts = [outputs[name] for name in attention_names(target)]
    return [
        dataclasses.replace(prediction, attention=_attention(_there(weights[0]), read, written[0]))
        for prediction, weights, read, written in zip(
            paired(target, outputs, predictions), *parts, strict=True
        )
    ]


def _there(weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns what there is of a hypothesis's words, of [W, R]."""
    if not weights.size:
        return weights[:0, :0]
    written = int((weights[:, 0] >= 0).sum())
    return weights[:written, : int((weights[0] >= 0).sum())]


def _attention(
    weights: npt.NDArray[Any], read: npt.NDArray[Any], written: npt.NDArray[Any]
) -> Attention:
    if not weights.size:
        return Attention((), (), ())
    count, width = weights.shape
    rows = tuple(map(tuple, weights.tolist()))
    return Attention(tuple(read[:width].tolist()), tuple(written[:count].tolist()), rows)


def _pairs(weights: npt.NDArray[Any]) -> tuple[tuple[int, int], ...]:
    """Returns of each written word the number of the word that it looks at most, and its own."""
    if not weights.size:
        return ()
    return tuple((at, place) for place, at in enumerate(weights.argmax(1).tolist()))
