"""Tensors of the Open Inference Protocol: texts, words, arrays, binary data and their bounds.

A field is a tensor of its name, a target one of its name and others beside it, as the graph of an
artifact has them; so a client can ask Triton and this server alike.
"""

from __future__ import annotations

import json
import math
import reprlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError
from t2t_torch.features import InputSpec, OutputSpec
from t2t_torch.features.text import words_of
from t2t_torch.runtime.feeds import WEIGHTS
from t2t_torch.runtime.nesting import array_of
from t2t_torch.runtime.prediction import Prediction
from t2t_torch.serve.limits import BAD_REQUEST, TOO_LARGE, HTTPError, Limits
from t2t_torch.serve.model import (
    TEXTS,
    Extent,
    Sample,
    ServedModel,
    extent_of,
)
from t2t_torch.serve.protocol import (
    MOST_TENSORS,
    InferenceRequest,
    RequestInput,
    flat,
    miscounted,
    misshapen,
    numbers,
    parsed,
    strings,
)

# What is given of words, as tensors of the Open Inference Protocol and as JSON has it.


def described_words(field: InputSpec) -> dict[str, tuple[str, list[int]]]:
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


def word_column_of(
    field: InputSpec, tensors: Sequence[RequestInput], counts: Sequence[int]
) -> list[Any]:
    """Returns what the words of each input have: lists of numbers, or mappings.

    What is nothing behind a text's words, zeros or empty strings, is left out: it fills up.

    Args:
      field: one that `described` knows.
      tensors: of its names, in their order.
      counts: words of each input, as many as the tensors have rows.

    Raises:
      HTTPError: a tensor is of another datatype, shape or size, or a label is there twice.
    """
    shapes = [tensor.shape for tensor in tensors]
    inner = f"words, {field.size}" if field.kind == "word_numbers" else "words, entries"
    first, *others = tensors
    sized = field.kind == "gazetteer" or first.shape[2:] == [field.size]
    if len(first.shape) != 3 or first.shape[0] != len(counts) or not sized:
        raise misshapen(first, f"[N, {inner}]")
    for other in others:
        if other.shape != first.shape:
            raise HTTPError(
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
        raise HTTPError(BAD_REQUEST, f"{name!r} has a label twice for one word: {labels}.")
    return found


def _without_end(row: list[Any], count: int) -> list[Any]:
    """Returns what words have without what is nothing behind the last of them."""
    end = len(row)
    while end > count and not any(row[end - 1]):
        end -= 1
    return row[:end]


# Arrays of a trial as the tensors of the Open Inference Protocol.


DATATYPES = {
    "bool": "BOOL",
    **{
        f"{sign}int{bits}": f"{sign}INT{bits}".upper()
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
}
"""What the protocol calls numbers, by numpy's name."""

_MOST_EMPTY = 1 << 20
"""Product of the axes beside those of 0: a model may make elements of what has none, by a sum."""


def described_array(part: InputSpec | OutputSpec) -> tuple[str, list[int]]:
    """Returns datatype and shape of what goes in or comes out; -1 is a size that is not fixed."""
    return DATATYPES[part.dtype], [-1, *part.shape]


def array_column_of(field: InputSpec, tensor: RequestInput, data: Sequence[Any]) -> list[Any]:
    """Returns the arrays of a tensor, one for each input.

    Args:
      field: that it is given for.
      tensor: of the request.
      data: its elements, flat; as many as its shape says.

    Raises:
      HTTPError: it is of another datatype or shape.
    """
    datatype, shape = described_array(field)
    if tensor.datatype not in DATATYPES.values():
        raise HTTPError(
            BAD_REQUEST,
            f"{field.name!r} has the datatype {tensor.datatype!r}; expected {datatype}.",
        )
    if not data and math.prod(size or 1 for size in tensor.shape) > _MOST_EMPTY:
        raise misshapen(tensor, f"{shape}, and smaller axes where there are no elements")
    try:
        # By their own elements, not by what the request calls them: whole numbers stay whole.
        array = np.asarray(data, field.dtype if not data else None)
        rows = array_of(
            InputSpec(field.name, "tensor", field.dtype, shape=field.shape),
            array.reshape(tensor.shape),
            rows=True,
        )
    except (DataError, ValueError, OverflowError) as error:
        raise HTTPError(BAD_REQUEST, f"{error} Expected {datatype} {shape}.") from None
    return list(rows)


def tensor_of(target: OutputSpec, found: Sequence[Prediction]) -> dict[str, Any]:
    """Returns the tensor of answers.

    Raises:
      HTTPError: the answers to a request are of different sizes.
    """
    rows: list[npt.NDArray[Any]] = [np.asarray(one.values[target.name]) for one in found]
    if len({row.shape for row in rows}) > 1:
        raise HTTPError(
            BAD_REQUEST,
            f"the answers in {target.name!r} have different shapes, and a tensor has one: ask with "
            "inputs of one size, or at predict.",
        )
    array = np.stack(rows)
    return {
        "name": target.name,
        "shape": list(array.shape),
        "datatype": described_array(target)[0],
        "data": array.reshape(-1).tolist(),
    }


# Whether what is asked is within a server's limits.


_EACH = 3  # elements of a word, at most: a gazetteer has a mapping, a label and a weight


def check_size(count: int, limits: Limits) -> None:
    """Raises HTTPError if a request has too many inputs."""
    if count > limits.inputs:
        raise HTTPError(
            TOO_LARGE,
            f"the request has {count:,} inputs, and {limits.inputs} are taken at once. Put "
            "them into several requests.",
        )


def check_tensors(tensors: Sequence[RequestInput], limits: Limits) -> None:
    """Raises HTTPError if tensors, which may have no elements yet, are of too many inputs."""
    check_size(max((tensor.shape[0] for tensor in tensors if tensor.shape), default=0), limits)


def check_lengths(texts: Sequence[str], limits: Limits) -> None:
    """Raises HTTPError if a text, of one input each, is too long by itself."""
    for number, text in enumerate(texts):
        _check_length(number, len(text), limits)


def extents_of(model: ServedModel, samples: Sequence[Sample], limits: Limits) -> list[Extent]:
    """Returns how large inputs are.

    Args:
      model: that they are put to.
      samples: the inputs.
      limits: of their characters, and so of their elements.

    Raises:
      HTTPError: one is too large.
    """
    most = sum(_most_elements(field, limits.characters) for field in model.fields)
    found = []
    for number, sample in enumerate(samples):
        extent = extent_of(sample, most)
        if extent is None:
            raise HTTPError(
                TOO_LARGE,
                f"input {number} has more than {most:,} elements in its lists and objects, which "
                f"is all that is taken with {limits.characters:,} characters. Cut it.",
            )
        _check_length(number, sum(map(len, extent.texts)), limits)
        found.append(extent)
    return found


def _check_length(number: int, length: int, limits: Limits) -> None:
    if length > limits.characters:
        raise HTTPError(
            TOO_LARGE,
            f"input {number} has {length:,} characters, and {limits.characters:,} are taken. "
            "Cut it.",
        )


def _most_elements(field: InputSpec, characters: int) -> int:
    """Returns how many elements a field may have in all its lists and mappings.

    No word has less than a character, so there are no more of them; a picture's and numbers of
    words have their own size.
    """
    if field.kind == "image":
        return _EACH * (math.prod(field.shape) + characters)
    return _EACH * characters + field.size * (characters if field.kind == "word_numbers" else 1)


Tensor: TypeAlias = dict[str, Any]

_NO_SCORE = -1e9  # of a text that there is not: less than that of any


def input_metadata(field: InputSpec) -> list[Tensor]:
    """Returns what metadata say of the tensors of a field; there are none of a "value"."""
    if field.kind == "tensor":
        told = {field.name: described_array(field)}
    else:
        told = described_words(field) or _described(field)
    return [
        {"name": name, "datatype": datatype, "shape": shape}
        for name, (datatype, shape) in told.items()
    ]


def _described(field: InputSpec) -> dict[str, tuple[str, list[int]]]:
    """Returns datatype and shape of a field with one tensor, by its name."""
    if field.kind == "value":
        return {}
    if field.kind == "numbers":
        return {field.name: ("FP32", [-1, field.size])}
    if field.kind == "image":
        return {field.name: ("UINT8", [-1, *field.shape])}
    return {field.name: ("BYTES", [-1])}


def output_metadata(model: ServedModel) -> list[Tensor]:
    """Returns what metadata say of the tensors that a model answers."""
    told: list[Tensor] = []
    for target in model.targets:
        for name, (datatype, shape) in _outputs(target).items():
            if model.first is None or _has(target, name, model.first):
                told.append({"name": name, "datatype": datatype, "shape": shape})
    return told


def raw_name(model: ServedModel) -> str:
    """Returns the name of the only tensor that a model is asked with, one of strings; "" if it is
    asked with more or with others.
    """
    told = [one for field in model.fields for one in input_metadata(field)]
    alone = len(told) == len(model.fields) == 1 and told[0]["datatype"] == "BYTES"
    return str(told[0]["name"]) if alone else ""


def samples_of(model: ServedModel, tensors: Sequence[RequestInput], limits: Limits) -> list[Sample]:
    """Returns the inputs that tensors hold.

    Args:
      model: that is asked.
      tensors: one for each field; of a gazetteer two.
      limits: of the texts of whose words there are tensors.

    Raises:
      HTTPError: one is missing, not known, or of another datatype, shape or size; or a text is too
        long.
    """
    given = {tensor.name: tensor for tensor in tensors}
    own = {one.name: list(described_words(one)) or [one.name] for one in model.fields}
    names = [name for several in own.values() for name in several]
    if sorted(one.name for one in tensors) != sorted(names):
        raise HTTPError(
            BAD_REQUEST,
            f"the inputs are {', '.join(one.name for one in tensors) or 'none'}; this model is "
            f"asked with {', '.join(names)}, each once.",
        )
    of_words = [field for field in model.fields if described_words(field)]
    columns = {
        field.name: _column(field, given[field.name])
        for field in model.fields
        if field not in of_words
    }
    sizes = {name: len(column) for name, column in columns.items()}
    sizes |= {name: (given[name].shape or [0])[0] for field in of_words for name in own[field.name]}
    if len(set(sizes.values())) > 1:
        raise HTTPError(BAD_REQUEST, f"the inputs have different first dimensions: {sizes}.")
    for field in of_words:
        its = [given[name] for name in own[field.name]]
        texts = columns.get(field.of, [])
        check_lengths(texts, limits)
        counts = counts_of(texts)
        columns[field.name] = word_column_of(field, its, counts)
    fields = [field.name for field in model.fields]
    rows = zip(*(columns[name] for name in fields), strict=True)
    return [dict(zip(fields, row, strict=True)) for row in rows]


def tensors_of(
    model: ServedModel,
    samples: Sequence[Sample],
    found: Sequence[Prediction],
    wanted: Sequence[str] | None,
) -> list[Tensor]:
    """Returns the tensors of answers, flat, in the order in which they are wanted.

    Args:
      model: that has answered.
      samples: that it was asked, at least one.
      found: as many.
      wanted: names of outputs; None is all that there are.

    Raises:
      HTTPError: one that is wanted is not there.
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
        raise HTTPError(
            BAD_REQUEST, f"there is no output {missing[0]!r}; there are {', '.join(there)}."
        )
    return [_tensor(there[name], name, found) for name in names]


def check_wanted(model: ServedModel, wanted: Sequence[str]) -> None:
    """Raises HTTPError if a model can have no output of such a name, or one is there twice."""
    known = [name for target in model.targets for name in _outputs(target)]
    if len(set(wanted)) < len(wanted):
        twice = next(name for name in wanted if wanted.count(name) > 1)
        raise HTTPError(BAD_REQUEST, f"the output {twice!r} is asked for twice: expected once.")
    for name in wanted:
        if name not in known:
            raise HTTPError(
                BAD_REQUEST, f"there is no output {name!r}; there are {', '.join(known)}."
            )


def _column(field: InputSpec, tensor: RequestInput) -> list[Any]:
    """Returns the values of a field, one for each input."""
    if field.kind == "value":
        raise HTTPError(BAD_REQUEST, f"{field.name!r} is no tensor. Ask at predict, with JSON.")
    if field.kind == "tensor":
        return array_column_of(field, tensor, flat(tensor))
    if field.kind == "image":
        pixels = flat(tensor)
        picture = InputSpec(field.name, "tensor", dtype="uint8", shape=field.shape)
        return [array.tolist() for array in array_column_of(picture, tensor, pixels)]
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


def _outputs(target: OutputSpec) -> dict[str, tuple[str, list[int]]]:
    """Returns datatype and shape of all tensors that a target may have, by name."""
    name, kind, labels = target.name, target.kind, len(target.labels)
    if kind == "tensor":
        return {name: described_array(target)}
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


def _has(target: OutputSpec, name: str, found: Prediction) -> bool:
    """Whether an answer has such a tensor."""
    part = name[len(target.name) :]
    if found.hypotheses:
        return True
    if part == "_probability":
        return target.name in found.probabilities
    if part == "_scores":
        return target.name in found.scores
    return True


def _tensor(target: OutputSpec, name: str, found: Sequence[Any]) -> Tensor:
    """Returns a tensor of answers."""
    if target.kind == "tensor":
        return tensor_of(target, found)
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


def _row(target: OutputSpec, part: str, found: Any) -> Any:
    """Returns what a tensor has of one answer."""
    if found.hypotheses:
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


# Tensors as bytes behind the JSON of a body: Triton's extension `binary_tensor_data`.
#
# https://github.com/triton-inference-server/server, docs/protocol/extension_binary_data.md.
# Elements are little-endian, in row-major order; of `BYTES` each has its length before it, in four
# bytes.


NAME = "binary_tensor_data"
"""Of the extension."""

HEADER = "Inference-Header-Content-Length"
"""Of a body with bytes behind its JSON: how many bytes the JSON has."""

SIZE = "binary_data_size"
"""The parameter of a tensor whose data are behind the JSON: its bytes."""

_EVERY, _ONE = "binary_data_output", "binary_data"
_LENGTH = struct.Struct("<I")
_DTYPES = {datatype: np.dtype(name).newbyteorder("<") for name, datatype in DATATYPES.items()}


def divided(body: bytes, length: str) -> tuple[bytes, bytes]:
    """Returns the JSON of a body and the bytes behind it.

    Args:
      body: both.
      length: what `HEADER` says.

    Raises:
      HTTPError: it is no number, or the body is shorter.
    """
    if not (length.isascii() and length.isdecimal() and len(length) < 20):
        raise HTTPError(BAD_REQUEST, f"{HEADER}: {length!r} is no number of bytes.")
    if int(length) > len(body):
        raise HTTPError(
            BAD_REQUEST, f"{HEADER} says {int(length):,} bytes; the body has {len(body):,}."
        )
    return body[: int(length)], body[int(length) :]


def raw(name: str, blob: bytes) -> Any:
    """Returns a request for all outputs as bytes: its body is one text, without its length.

    Args:
      name: of the only tensor that the model is asked with; "" if that is no such.
      blob: the body.

    Raises:
      HTTPError: the model is asked otherwise, or the text is no UTF-8.
    """
    if not name:
        raise HTTPError(
            BAD_REQUEST,
            f"{HEADER}: 0 says that the body is the only text which the model is asked with, and "
            "this one is asked with others. Send JSON that tells its tensors.",
        )
    tensor = {"name": name, "shape": [1], "datatype": "BYTES", "data": [_text(name, 0, blob)]}
    return {"inputs": [tensor], "parameters": {_EVERY: True}}


def filled(told: Any, blob: bytes, limits: Limits) -> InferenceRequest:
    """Returns a request whose tensors all have `data`, those of bytes, too.

    Args:
      told: the request's JSON, of any form.
      blob: the bytes behind it, of one tensor after another.
      limits: of how many inputs are read.

    Raises:
      HTTPError: the JSON has another form, or asks for what there is not; there are more bytes or
        fewer than the tensors say; or they are no such elements.
    """
    bare = [isinstance(one, dict) and "data" not in one for one in _inputs(told)]
    if any(bare):
        given = zip(_inputs(told), bare, strict=True)
        told = {**told, "inputs": [{**one, "data": []} if its else one for one, its in given]}
    request = parsed(InferenceRequest, told)
    request.check_extensions()
    _check_booleans(request)
    check_tensors(request.inputs, limits)
    at = 0
    for number, (tensor, its) in enumerate(zip(request.inputs, bare, strict=True)):
        size = _size_of(tensor)
        if size is None and its:
            raise HTTPError(BAD_REQUEST, f"inputs.{number}.data: Field required.")
        if size is None:
            continue
        if not its:
            raise HTTPError(
                BAD_REQUEST, f"{tensor.name!r} has both `data` and {SIZE}: expected one."
            )
        if size > len(blob) - at:
            raise HTTPError(
                BAD_REQUEST,
                f"{tensor.name!r} has {size:,} bytes by its {SIZE}, and {len(blob) - at:,} are "
                "left behind the JSON.",
            )
        tensor.data = _elements(tensor, blob[at : at + size])
        at += size
    if at < len(blob):
        raise HTTPError(
            BAD_REQUEST,
            f"behind the JSON there are {len(blob) - at:,} bytes that are of no tensor; each says "
            f"in its parameter {SIZE} how many are its own.",
        )
    return request


def packed(
    request: InferenceRequest, outputs: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], bytes]:
    """Returns the tensors of a response, and the bytes of those that are wanted so.

    Args:
      request: that says which: by `binary_data` of an output, or `binary_data_output` of all.
      outputs: with `data`, which those of bytes lose.
    """
    every = request.parameters.get(_EVERY, False)
    asked = {one.name: one.parameters for one in request.outputs or ()}
    told, blobs = [], []
    for output in map(dict, outputs):
        if asked.get(output["name"], {}).get(_ONE, every):
            blobs.append(_bytes(output["datatype"], output.pop("data")))
            output["parameters"] = {**output.get("parameters", {}), SIZE: len(blobs[-1])}
        told.append(output)
    return told, b"".join(blobs)


def _inputs(told: Any) -> list[Any]:
    """Returns the inputs of a request of any form; none if it has no list of so few."""
    inputs = told.get("inputs") if isinstance(told, dict) else None
    return inputs if isinstance(inputs, list) and len(inputs) <= MOST_TENSORS else []


def _check_booleans(request: InferenceRequest) -> None:
    """Raises HTTPError unless what says which outputs are bytes says yes or no."""
    told = [(_EVERY, request.parameters)]
    told += [(_ONE, output.parameters) for output in request.outputs or ()]
    for name, parameters in told:
        value = parameters.get(name, False)
        if not isinstance(value, bool):
            raise HTTPError(
                BAD_REQUEST, f"the parameter {name} is {reprlib.repr(value)}: expected a boolean."
            )


def _size_of(tensor: RequestInput) -> int | None:
    """Returns how many bytes a tensor has behind the JSON; None if its data are in it."""
    size = tensor.parameters.get(SIZE)
    if size is None:
        return None
    if type(size) is not int or size < 0:
        raise HTTPError(BAD_REQUEST, f"{SIZE}: {reprlib.repr(size)} is no number of bytes.")
    return size


def _elements(tensor: RequestInput, blob: bytes) -> list[Any]:
    """Returns as many elements as a tensor's shape says; no more are read."""
    if tensor.datatype == "BYTES":
        return _texts(tensor, blob)
    dtype = _DTYPES.get(tensor.datatype)
    if dtype is None or len(blob) % dtype.itemsize:
        raise HTTPError(
            BAD_REQUEST,
            f"{tensor.name!r}: {len(blob):,} bytes are no elements of {tensor.datatype}.",
        )
    if len(blob) != tensor.count * dtype.itemsize:
        raise miscounted(tensor, f"{len(blob) // dtype.itemsize}")
    return np.frombuffer(blob, dtype).tolist()  # type: ignore[no-any-return]


def _texts(tensor: RequestInput, blob: bytes) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(blob):
        if len(found) == tensor.count:
            raise miscounted(tensor, f"more than {tensor.count}")
        end = at + _LENGTH.size
        if end <= len(blob):
            end += _LENGTH.unpack_from(blob, at)[0]
        if end > len(blob):
            raise HTTPError(
                BAD_REQUEST,
                f"{tensor.name!r}: element {len(found)} goes beyond the tensor's {len(blob):,} "
                "bytes. Each has its length before it, four bytes, the lowest first.",
            )
        found.append(_text(tensor.name, len(found), blob[at + _LENGTH.size : end]))
        at = end
    return found


def _text(name: str, number: int, blob: bytes) -> str:
    try:
        return blob.decode()
    except UnicodeDecodeError:
        raise HTTPError(BAD_REQUEST, f"{name!r}: element {number} is no UTF-8.") from None


def _bytes(datatype: str, data: Sequence[Any]) -> bytes:
    if datatype != "BYTES":
        return np.asarray(data, _DTYPES[datatype]).tobytes()
    texts = [text.encode("utf-8", "replace") for text in data]
    return b"".join(_LENGTH.pack(len(text)) + text for text in texts)
