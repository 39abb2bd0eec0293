"""Inputs and answers as the tensors of the Open Inference Protocol.

A field is a tensor of its name, a target one of its name and others beside it, as the graph of an
artifact has them; so a client can ask Triton and this server alike.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from t2t_torch.artifact.prediction import Prediction
from t2t_torch.serve import arrays, word_tensors
from t2t_torch.serve.bounds import check_lengths
from t2t_torch.serve.elements import flat, misshapen, numbers, strings
from t2t_torch.serve.limits import Limits
from t2t_torch.serve.model import TEXTS, Found, InputField, Model, OutputTarget, Sample
from t2t_torch.serve.protocol import RequestInput
from t2t_torch.serve.refusal import BAD_REQUEST, Refusal

Tensor: TypeAlias = dict[str, Any]

_NO_SCORE = -1e9  # of a text that there is not: less than that of any


def input_metadata(field: InputField) -> list[Tensor]:
    """Returns what metadata say of the tensors of a field; there are none of a "value"."""
    if field.kind == "tensor":
        told = {field.name: arrays.described(field)}
    else:
        told = word_tensors.described(field) or _described(field)
    return [
        {"name": name, "datatype": datatype, "shape": shape}
        for name, (datatype, shape) in told.items()
    ]


def _described(field: InputField) -> dict[str, tuple[str, list[int]]]:
    """Returns datatype and shape of a field with one tensor, by its name."""
    if field.kind == "value":
        return {}
    if field.kind == "numbers":
        return {field.name: ("FP32", [-1, field.size])}
    if field.kind == "image":
        return {field.name: ("UINT8", [-1, *field.shape])}
    return {field.name: ("BYTES", [-1])}


def output_metadata(model: Model) -> list[Tensor]:
    """Returns what metadata say of the tensors that a model answers."""
    told: list[Tensor] = []
    for target in model.targets:
        for name, (datatype, shape) in _outputs(target).items():
            if model.told is None or _has(target, name, model.told):
                told.append({"name": name, "datatype": datatype, "shape": shape})
    return told


def raw_name(model: Model) -> str:
    """Returns the name of the only tensor that a model is asked with, one of strings; "" if it is
    asked with more or with others.
    """
    told = [one for field in model.fields for one in input_metadata(field)]
    alone = len(told) == len(model.fields) == 1 and told[0]["datatype"] == "BYTES"
    return str(told[0]["name"]) if alone else ""


def samples_of(model: Model, tensors: Sequence[RequestInput], limits: Limits) -> list[Sample]:
    """Returns the inputs that tensors hold.

    Args:
      model: that is asked.
      tensors: one for each field; of a gazetteer two.
      limits: of the texts of whose words there are tensors.

    Raises:
      Refusal: one is missing, not known, or of another datatype, shape or size; or a text is too
        long.
    """
    given = {tensor.name: tensor for tensor in tensors}
    own = {one.name: list(word_tensors.described(one)) or [one.name] for one in model.fields}
    names = [name for several in own.values() for name in several]
    if sorted(one.name for one in tensors) != sorted(names):
        raise Refusal(
            BAD_REQUEST,
            f"the inputs are {', '.join(one.name for one in tensors) or 'none'}; this model is "
            f"asked with {', '.join(names)}, each once.",
        )
    of_words = [field for field in model.fields if word_tensors.described(field)]
    columns = {
        field.name: _column(field, given[field.name])
        for field in model.fields
        if field not in of_words
    }
    sizes = {name: len(column) for name, column in columns.items()}
    sizes |= {name: (given[name].shape or [0])[0] for field in of_words for name in own[field.name]}
    if len(set(sizes.values())) > 1:
        raise Refusal(BAD_REQUEST, f"the inputs have different first dimensions: {sizes}.")
    for field in of_words:
        its = [given[name] for name in own[field.name]]
        texts = columns.get(field.of, [])
        check_lengths(texts, limits)
        counts = word_tensors.counts_of(texts)
        columns[field.name] = word_tensors.column_of(field, its, counts)
    fields = [field.name for field in model.fields]
    rows = zip(*(columns[name] for name in fields), strict=True)
    return [dict(zip(fields, row, strict=True)) for row in rows]


def tensors_of(
    model: Model, samples: Sequence[Sample], found: Sequence[Found], wanted: Sequence[str] | None
) -> list[Tensor]:
    """Returns the tensors of answers, flat, in the order in which they are wanted.

    Args:
      model: that has answered.
      samples: that it was asked, at least one.
      found: as many.
      wanted: names of outputs; None is all that there are.

    Raises:
      Refusal: one that is wanted is not there.
    """
    there = {
        name: target
        for target in model.targets
        for name in _outputs(target)
        if _has(target, name, found[0])
    }
    names = list(there) if wanted is None else wanted
    missing = [name for name in names if name not in there]
    if missing:
        raise Refusal(
            BAD_REQUEST, f"there is no output {missing[0]!r}; there are {', '.join(there)}."
        )
    return [_tensor(there[name], name, found) for name in names]


def check_wanted(model: Model, wanted: Sequence[str]) -> None:
    """Raises Refusal if a model can have no output of such a name, or one is there twice."""
    known = [name for target in model.targets for name in _outputs(target)]
    if len(set(wanted)) < len(wanted):
        twice = next(name for name in wanted if wanted.count(name) > 1)
        raise Refusal(BAD_REQUEST, f"the output {twice!r} is asked for twice: expected once.")
    for name in wanted:
        if name not in known:
            raise Refusal(
                BAD_REQUEST, f"there is no output {name!r}; there are {', '.join(known)}."
            )


def _column(field: InputField, tensor: RequestInput) -> list[Any]:
    """Returns the values of a field, one for each input."""
    if field.kind == "value":
        raise Refusal(BAD_REQUEST, f"{field.name!r} is no tensor. Ask at predict, with JSON.")
    if field.kind == "tensor":
        return arrays.column_of(field, tensor, flat(tensor))
    if field.kind == "image":
        pixels = flat(tensor)
        picture = InputField(field.name, "tensor", dtype="uint8", shape=field.shape)
        return [array.tolist() for array in arrays.column_of(picture, tensor, pixels)]
    if field.kind != "numbers":
        texts = strings(tensor)
        if len(tensor.shape) not in (1, 2) or math.prod(tensor.shape[1:]) != 1:
            raise misshapen(tensor, "[N] or [N, 1]")
        return texts
    rows = tensor.shape[0] if tensor.shape else 0
    if tensor.shape != [rows, field.size] and not (field.size == 1 and len(tensor.shape) == 1):
        raise misshapen(tensor, f"[N, {field.size}]")
    found = numbers(tensor)
    return [found[at : at + field.size] for at in range(0, len(found), field.size)]


def _outputs(target: OutputTarget) -> dict[str, tuple[str, list[int]]]:
    """Returns datatype and shape of all tensors that a target may have, by name."""
    name, kind, labels = target.name, target.kind, len(target.labels)
    if kind == "tensor":
        return {name: arrays.described(target)}
    if kind in TEXTS:
        return {
            name: ("BYTES", [-1, -1]),
            f"{name}_scores": ("FP32", [-1, -1]),
            f"{name}_ids": ("INT64", [-1, -1, -1]),
        }
    if kind in ("numbers", "distribution"):
        return {name: ("FP32", [-1, labels or target.size])}
    probability = {f"{name}_probability": ("FP32", [-1])}
    if kind == "tags":
        return {
            name: ("BYTES", [-1, -1]),
            f"{name}_lengths": ("INT64", [-1]),
            **probability,
            f"{name}_scores": ("FP32", [-1, -1]),
        }
    scores = {f"{name}_scores": ("FP32", [-1, labels])} if labels else {}
    if kind == "multilabel":
        return {name: ("BOOL", [-1, labels]), **probability, **scores}
    return {name: ("BYTES", [-1]), **probability, **scores}


def _has(target: OutputTarget, name: str, found: Found) -> bool:
    """Whether an answer has such a tensor."""
    part = name[len(target.name) :]
    if isinstance(found, Prediction):
        return True
    if part == "_probability":
        return target.name in found.probabilities
    if part == "_scores":
        return target.name in found.scores
    return True


def _tensor(target: OutputTarget, name: str, found: Sequence[Any]) -> Tensor:
    """Returns a tensor of answers."""
    if target.kind == "tensor":
        return arrays.tensor_of(target, found)
    datatype, _ = _outputs(target)[name]
    part = name[len(target.name) :]
    rows = [_row(target, part, one) for one in found]
    tensor: Tensor = {"name": name, "shape": [len(rows)], "datatype": datatype}
    if target.kind in TEXTS and part == "_ids":
        count, length = max(map(len, rows)), max(len(ids) for row in rows for ids in row)
        tensor["shape"] = [len(rows), count, length]
        full = [row + [[]] * (count - len(row)) for row in rows]
        tensor["data"] = [one for row in full for ids in row for one in _filled(ids, length, 0)]
    elif any(isinstance(row, list) for row in rows):
        width = max(map(len, rows))
        filler = "" if datatype == "BYTES" else _NO_SCORE if target.kind in TEXTS else 0.0
        tensor["shape"] = [len(rows), width]
        tensor["data"] = [one for row in rows for one in _filled(row, width, filler)]
    else:
        tensor["data"] = rows
    if target.labels and len(tensor["shape"]) == 2 and target.kind != "tags":
        # A parameter is a string, a number or a boolean: the list is JSON in a string.
        tensor["parameters"] = {"labels": json.dumps(list(target.labels), ensure_ascii=False)}
    return tensor


def _filled(row: list[Any], width: int, filler: Any) -> list[Any]:
    return row + [filler] * (width - len(row))


def _row(target: OutputTarget, part: str, found: Any) -> Any:
    """Returns what a tensor has of one answer."""
    if isinstance(found, Prediction):
        if part == "_ids":
            return [list(one.ids) for one in found.hypotheses]
        return [one.score if part else one.text for one in found.hypotheses]
    value = found.values[target.name]
    if part == "_probability":
        return found.probabilities[target.name]
    if part == "_lengths":
        return len(value)
    if part == "_scores":
        scores = found.scores[target.name]
        return list(scores) if target.kind == "tags" else [scores[one] for one in target.labels]
    if target.kind == "multilabel":
        return [label in value for label in target.labels]
    if target.kind == "distribution":
        return [value[label] for label in target.labels]
    if target.kind == "tags":
        return [tag or "" for tag in value]
    return list(value) if target.kind == "numbers" else str(value)
