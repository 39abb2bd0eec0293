"""The network of a predictor, and the rows by which it is traced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from torch import Tensor

from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.errors import ExportError
from t2t_torch.export.network import export_network
from t2t_torch.export.verification import Row
from t2t_torch.features import Text
from t2t_torch.features.text import words_of

_SHORTEST = 3  # ids of what the network is traced with; 1 would become part of the graph


def network_of(predictor: LabelPredictor, rows: Sequence[Row]) -> onnx.ModelProto:
    """Returns the network by itself: numbers in, numbers out.

    Args:
      predictor: whose.
      rows: some of the data, by which it is traced.
    """
    return export_network(predictor.model, example_of(predictor, rows))


def example_of(predictor: LabelPredictor, rows: Sequence[Row]) -> dict[str, Tensor]:
    """Returns a batch of two rows, of such lengths that none becomes part of a graph.

    Args:
      predictor: whose.
      rows: some of the data.

    Raises:
      ExportError: all have an empty text where a longer one is needed.
    """
    samples = sorted((row.sample for row in rows if row.number >= 0), key=_size)
    first, second = samples[len(samples) // 3], samples[len(samples) // 2]
    for field, kind in predictor.kinds.items():
        if isinstance(kind, Text) and _width(predictor, [first, second], field) < _SHORTEST:
            first = {**first, **_lengthened(predictor, [first, *samples], field)}
    return predictor.batch_of([first, second])


def _width(predictor: LabelPredictor, samples: Sequence[Mapping[str, Any]], field: str) -> int:
    """Returns the length of the batch's shortest axis that is made of a field of texts."""
    features = predictor.features
    widths = (
        ids.shape[1]
        for name, ids in predictor.batch_of(samples).items()
        if features.sources[name] == field and features.all[name].is_sequence
    )
    return min(widths, default=_SHORTEST)


def _lengthened(
    predictor: LabelPredictor, samples: Sequence[Mapping[str, Any]], field: str
) -> dict[str, Any]:
    """Returns a text of one of the samples, said as often as tracing needs, and its labels.

    Tracing takes a length of 1 for one that never varies.

    Raises:
      ExportError: none of the samples has such a text.
    """
    written = next((sample for sample in samples if words_of(sample[field])), None)
    if written is None:
        raise ExportError(
            f"the network cannot be traced: {field!r} is empty in all {len(samples) - 1} rows of "
            "the dev split that were read. Give the dev split a row with such a text, or a "
            "greater --verify_rows."
        )
    sources, found = predictor.features.sources, {field: written[field]}
    for name, kind in predictor.kinds.items():
        if kind.aligned_to is not None and sources[kind.aligned_to] == field:
            found[name] = written[name]
    several = found
    for times in range(2, _SHORTEST + 1):
        if _width(predictor, [{**written, **several}], field) < _SHORTEST:
            several = {name: _repeated(value, times) for name, value in found.items()}
    return several


def _repeated(value: Any, times: int) -> Any:
    return " ".join([value] * times) if isinstance(value, str) else [*value] * times


def _size(sample: Any) -> int:
    return sum(len(value) for value in sample.values() if isinstance(value, str | list))
