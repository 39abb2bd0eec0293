"""What is given of words, as tensors of the Open Inference Protocol and as JSON has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from t2t_torch.artifact.feeds import WEIGHTS
from t2t_torch.errors import DataError
from t2t_torch.features.text import words_of
from t2t_torch.serve.elements import misshapen, numbers, strings
from t2t_torch.serve.model import InputField
from t2t_torch.serve.protocol import RequestInput
from t2t_torch.serve.refusal import BAD_REQUEST, Refusal


def described(field: InputField) -> dict[str, tuple[str, list[int]]]:
    """Returns datatype and shape of the tensors of a field, by name; none of what is no list of
    lists or mappings, one for each word.
    """
    if field.kind == "word_numbers":
        return {field.name: ("FP32", [-1, -1, field.size])}
    if field.kind == "gazetteer":
        shape = [-1, -1, -1]
        return {field.name: ("BYTES", shape), f"{field.name}{WEIGHTS}": ("FP64", shape)}
    return {}


def counts_of(texts: Sequence[Any]) -> list[int]:
    """Returns how many words each text has; 0 of what is none, which is refused later."""
    return [_count(text) for text in texts]


def _count(text: Any) -> int:
    try:
        return len(words_of(text))
    except DataError:
        return 0


def column_of(
    field: InputField, tensors: Sequence[RequestInput], counts: Sequence[int]
) -> list[Any]:
    """Returns what the words of each input have: lists of numbers, or mappings.

    What is nothing behind a text's words, zeros or empty strings, is left out: it fills up.

    Args:
      field: one that `described` knows.
      tensors: of its names, in their order.
      counts: words of each input, as many as the tensors have rows.

    Raises:
      Refusal: a tensor is of another datatype, shape or size, or a label is there twice.
    """
    shapes = [tensor.shape for tensor in tensors]
    inner = f"words, {field.size}" if field.kind == "word_numbers" else "words, entries"
    first, *others = tensors
    sized = field.kind == "gazetteer" or first.shape[2:] == [field.size]
    if len(first.shape) != 3 or first.shape[0] != len(counts) or not sized:
        raise misshapen(first, f"[N, {inner}]")
    for other in others:
        if other.shape != first.shape:
            raise Refusal(
                BAD_REQUEST,
                f"{first.name!r} and {other.name!r} have different shapes: {shapes}.",
            )
    _, words, size = first.shape
    rows: list[Any]
    if field.kind == "gazetteer":
        entries = list(zip(strings(first), numbers(others[0]), strict=True))
        if not size:  # of any number of words, as they take no room: each text has its own
            return [[{}] * min(words, count) for count in counts]
        rows = [_mapping(first.name, one) for one in _cut(entries, len(counts) * words, size)]
    else:
        rows = _cut(numbers(first), len(counts) * words, size)
    each = _cut(rows, len(counts), words)
    return [_without_end(row, count) for row, count in zip(each, counts, strict=True)]


def _cut(flat: list[Any], count: int, size: int) -> list[list[Any]]:
    """Returns `count` lists of `size`."""
    return [flat[number * size : (number + 1) * size] for number in range(count)]


def _mapping(name: str, entries: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Returns labels with their weights, without those that only fill up."""
    known = [(label, weight) for label, weight in entries if label]
    found = dict(known)
    if len(found) < len(known):
        labels = [label for label, _ in known]
        raise Refusal(BAD_REQUEST, f"{name!r} has a label twice for one word: {labels}.")
    return found


def _without_end(row: list[Any], count: int) -> list[Any]:
    """Returns what words have without what is nothing behind the last of them."""
    end = len(row)
    while end > count and not any(row[end - 1]):
        end -= 1
    return row[:end]
