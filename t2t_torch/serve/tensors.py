"""Tensors of the Open Inference Protocol: texts, words, arrays, binary data and their limits.

A field is a tensor with its name; a target is a tensor with its name plus further tensors, as in
the graph of an artifact.  A client can therefore use Triton or this server with the same requests.
"""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from starlette.requests import Request

from t2t_torch.errors import DataError
from t2t_torch.features import InputSpec, OutputSpec
from t2t_torch.features.audio import FRAMES_PER_SECOND
from t2t_torch.features.text import words_of
from t2t_torch.runtime.feeds import WEIGHTS
from t2t_torch.runtime.nesting import array_of
from t2t_torch.runtime.prediction import WRITTEN_LIST, Prediction
from t2t_torch.serve.limits import MAX_SECONDS, BadRequest, ServerLimits, TooLarge
from t2t_torch.serve.model import TEXTS, Extent, Sample, ServedModel, TooManyElements, extent_of
from t2t_torch.serve.protocol import (
    HEADER,
    Bodies,
    InferenceRequest,
    InputTensor,
    flat,
    miscounted,
    misshapen,
    numbers,
    parse_json,
    parsed,
    strings,
)

DATATYPES = {
    "bool": "BOOL",
    **{
        f"{sign}int{bits}": f"{sign}INT{bits}".upper()
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
}
"""Datatypes of the protocol by numpy's name."""


_OF_WORDS = ("word_numbers", "gazetteer")
"""Kinds of fields with one list or mapping per word."""


def described_field(field: InputSpec) -> dict[str, tuple[str, list[int]]]:
    """Returns datatype and shape of the tensors of a field by name; -1 is a dynamic size.

    A "value" has none.
    """
    if field.kind == "value":
        return {}
    if field.kind == "gazetteer":
        shape = [-1, -1, -1]
        return {field.name: ("BYTES", shape), f"{field.name}{WEIGHTS}": ("FP64", shape)}
    of_kind = {
        "tensor": (DATATYPES.get(field.dtype, ""), [-1, *field.shape]),
        "word_numbers": ("FP32", [-1, -1, field.size]),
        "numbers": ("FP32", [-1, field.size]),
        "image": ("UINT8", [-1, *field.shape]),
    }
    return {field.name: of_kind.get(field.kind, ("BYTES", [-1]))}


def word_column_of(
    field: InputSpec, tensors: Sequence[InputTensor], counts: Sequence[int]
) -> list[Any]:
    """Returns the entries per word of each input: lists of numbers, or mappings.

    Padding after the words of a text (zeros or empty strings) is removed.

    Args:
      field: a field with one list or mapping per word.
      tensors: tensors with the names of the field, in order.
      counts: number of words of each input, one per row of the tensors.

    Raises:
      HTTPError: a tensor has another datatype, shape or size, or a duplicate label.
    """
    shapes = [tensor.shape for tensor in tensors]
    inner = f"words, {field.size}" if field.kind == "word_numbers" else "words, entries"
    first, *others = tensors
    sized = field.kind == "gazetteer" or first.shape[2:] == [field.size]
    if len(first.shape) != 3 or first.shape[0] != len(counts) or not sized:
        raise misshapen(first, f"[N, {inner}]")
    for other in others:
        if other.shape != first.shape:
            raise BadRequest(f"{first.name!r} and {other.name!r} have different shapes: {shapes}.")
    _, words, size = first.shape
    elements: list[Any] = strings(first) if field.kind == "gazetteer" else numbers(first)
    if others:
        elements = list(zip(elements, numbers(others[0]), strict=True))
    if not size:  # empty entries allow any number of words: that of each text
        return [[{}] * min(words, count) for count in counts]
    rows: list[Any] = [elements[at : at + size] for at in range(0, len(elements), size)]
    if others:
        rows = [_mapping(first.name, row) for row in rows]
    columns = []
    for number, count in enumerate(counts):
        row = rows[number * words : (number + 1) * words]
        while len(row) > count and not any(row[-1]):
            row.pop()
        columns.append(row)
    return columns


def _mapping(name: str, entries: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Returns the weights by label, without padding."""
    known = [(label, weight) for label, weight in entries if label]
    weights = dict(known)
    if len(weights) < len(known):
        labels = [label for label, _ in known]
        raise BadRequest(f"{name!r} has a label twice for one word: {labels}.")
    return weights


_MAX_EMPTY = 1 << 20
"""Maximum product of the other axes of an empty tensor: a model may expand it, by a sum."""


def array_column_of(field: InputSpec, tensor: InputTensor) -> list[Any]:
    """Returns the arrays of a tensor, one per input.

    Raises:
      HTTPError: the tensor has another datatype or shape.
    """
    data = flat(tensor)
    ((datatype, shape),) = described_field(field).values()
    if tensor.datatype not in DATATYPES.values():
        raise BadRequest(
            f"{field.name!r} has the datatype {tensor.datatype!r}; expected {datatype}."
        )
    if not data and math.prod(size or 1 for size in tensor.shape) > _MAX_EMPTY:
        raise misshapen(tensor, f"{shape}, and smaller axes where there are no elements")
    try:
        # The dtype follows from the elements, not the request's datatype: integers stay integers.
        array = np.asarray(data, field.dtype if not data else None)
        rows = array_of(field, array.reshape(tensor.shape), rows=True)
    except (DataError, ValueError, OverflowError) as error:
        raise BadRequest(f"{error} Expected {datatype} {shape}.") from None
    return list(rows)


_EACH = 3  # maximum elements of a word: a gazetteer has a mapping, a label and a weight


def check_size(count: int, limits: ServerLimits) -> None:
    """Raises HTTPError if a request has too many inputs."""
    if count > limits.max_inputs:
        raise TooLarge(
            f"the request has {count:,} inputs, and {limits.max_inputs} are taken at once. Put "
            "them into several requests."
        )


_MAX_WRITTEN = 100_000  # characters: Python's parser takes 0.2 s, and nothing else is answered


def check_written(model: ServedModel, inputs: Sequence[Any]) -> None:
    """Raises HTTPError if inputs have too much text in columns of lists in Python's notation."""
    columns: set[str] = set()
    for name, form in model.column_forms.items():
        if form.get("split") == WRITTEN_LIST:
            columns |= {*form["column"], model.column_names.get(name, name)}
    cells = (one.get(name) for one in inputs if isinstance(one, dict) for name in columns)
    if (length := sum(len(cell) for cell in cells if isinstance(cell, str))) > _MAX_WRITTEN:
        raise TooLarge(
            f"the lists in strings have {length:,} characters, and {_MAX_WRITTEN:,} are taken at "
            "once. Send arrays of JSON, or several requests."
        )


def extents_of(model: ServedModel, samples: Sequence[Sample], limits: ServerLimits) -> list[Extent]:
    """Returns the sizes of inputs.

    Args:
      model: model of the request.
      samples: inputs.
      limits: limit of characters, which also limits the elements.

    Raises:
      HTTPError: an input is too large.
    """
    most = sum(_most_elements(field, limits.max_characters) for field in model.fields)
    files = {field.name: field for field in model.fields if field.kind in ("audio", "image")}
    extents = []
    for number, sample in enumerate(samples):
        try:
            extent = _extent_of_files(sample, files, most)
        except TooManyElements:
            raise TooLarge(
                f"input {number} has more than {most:,} elements in its lists and objects, which "
                f"is all that is taken with {limits.max_characters:,} characters. Cut it."
            ) from None
        _check_length(number, sum(map(len, extent.texts)), limits)
        extents.append(extent)
    return extents


def _extent_of_files(sample: Sample, files: Mapping[str, InputSpec], most: float) -> Extent:
    """Returns the size of an input with files in base64, whose length is limited by the body's.

    Args:
      sample: input by field.
      files: fields of sounds and pictures.
      most: see `extent_of`.
    """
    encoded = {
        name: value for name, value in sample.items() if name in files and isinstance(value, str)
    }
    extent = extent_of({k: v for k, v in sample.items() if k not in encoded}, most)
    frames = [
        len(value) * 3 // 8 * FRAMES_PER_SECOND // files[name].size  # samples of 16 bits
        for name, value in encoded.items()
        if files[name].kind == "audio"
    ]
    return extent._replace(tokens=max([extent.tokens, *frames]))


def _check_length(number: int, length: int, limits: ServerLimits) -> None:
    if length > limits.max_characters:
        raise TooLarge(
            f"input {number} has {length:,} characters, and {limits.max_characters:,} are taken. "
            "Cut it."
        )


def _most_elements(field: InputSpec, characters: int) -> int:
    """Returns the maximum number of elements of a field in all its lists and mappings.

    A word has at least one character, so the limit of characters limits the words; pictures and
    numbers per word have a known size.
    """
    if field.kind == "audio":
        return MAX_SECONDS * field.size
    if field.kind == "image":
        return _EACH * (math.prod(field.shape) + characters)
    return _EACH * characters + field.size * (characters if field.kind == "word_numbers" else 1)


Tensor: TypeAlias = dict[str, Any]

_NO_SCORE = -1e9  # score of a missing text: less than any other


def input_metadata(field: InputSpec) -> list[Tensor]:
    """Returns the metadata of the tensors of a field; a "value" has none."""
    return [
        {"name": name, "datatype": datatype, "shape": shape}
        for name, (datatype, shape) in described_field(field).items()
    ]


def output_metadata(model: ServedModel) -> list[Tensor]:
    """Returns the metadata of a model's output tensors."""
    tensors: list[Tensor] = []
    for target in model.targets:
        for name, (datatype, shape) in _outputs(target).items():
            if model.first is None or name in _rows(target, model.first):
                tensors.append({"name": name, "datatype": datatype, "shape": shape})
    return tensors


def samples_of(
    model: ServedModel, tensors: Sequence[InputTensor], limits: ServerLimits
) -> list[Sample]:
    """Returns the inputs from tensors.

    Args:
      model: model of the request.
      tensors: one per field; two per gazetteer.
      limits: limits of texts that have tensors with entries per word.

    Raises:
      HTTPError: a tensor is missing, unknown, or has another datatype, shape or size; or a text is
        too long.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    names_of_field = {one.name: list(described_field(one)) or [one.name] for one in model.fields}
    names = [name for several in names_of_field.values() for name in several]
    if sorted(one.name for one in tensors) != sorted(names):
        raise BadRequest(
            f"the inputs are {', '.join(one.name for one in tensors) or 'none'}; this model "
            f"takes {', '.join(names)}, each once."
        )
    of_words = [field for field in model.fields if field.kind in _OF_WORDS]
    columns = {
        field.name: _column(field, by_name[field.name])
        for field in model.fields
        if field not in of_words
    }
    sizes = {name: (by_name[name].shape or [0])[0] for name in names}
    if len(set(sizes.values())) > 1:
        raise BadRequest(f"the inputs have different first dimensions: {sizes}.")
    tokenizers = {field.name: field.tokenizer for field in model.fields}
    for field in of_words:
        parts = [by_name[name] for name in names_of_field[field.name]]
        texts = columns.get(field.of, [])
        for number, text in enumerate(texts):
            _check_length(number, len(text), limits)
        counts = []
        for text in texts:
            try:
                counts.append(len(words_of(text, tokenizers.get(field.of, ""))))
            except DataError:  # it has no words
                counts.append(0)
        columns[field.name] = word_column_of(field, parts, counts)
    fields = [field.name for field in model.fields]
    rows = zip(*(columns[name] for name in fields), strict=True)
    return [dict(zip(fields, row, strict=True)) for row in rows]


def tensors_of(
    model: ServedModel, predictions: Sequence[Prediction], wanted: Sequence[str] | None
) -> list[Tensor]:
    """Returns the flat output tensors of predictions in the requested order.

    Args:
      model: model of the predictions.
      predictions: predictions, one per input, at least one.
      wanted: names of outputs; None for all.

    Raises:
      HTTPError: a requested output is missing.
    """
    available: dict[str, tuple[OutputSpec, list[Any]]] = {}
    for target in model.targets:
        rows = [_rows(target, one) for one in predictions]
        available |= {name: (target, [row[name] for row in rows]) for name in rows[0]}
    names = list(available) if wanted is None else wanted
    if missing := [name for name in names if name not in available]:
        raise BadRequest(f"there is no output {missing[0]!r}; there are {', '.join(available)}.")
    return [_tensor(name, *available[name]) for name in names]


def check_wanted(model: ServedModel, wanted: Sequence[str]) -> None:
    """Raises HTTPError if a requested output is unknown or duplicate."""
    known = [name for target in model.targets for name in _outputs(target)]
    if len(set(wanted)) < len(wanted):
        twice = next(name for name in wanted if wanted.count(name) > 1)
        raise BadRequest(f"the output {twice!r} is requested twice: expected once.")
    for name in wanted:
        if name not in known:
            raise BadRequest(f"there is no output {name!r}; there are {', '.join(known)}.")


def _column(field: InputSpec, tensor: InputTensor) -> list[Any]:
    """Returns the values of a field, one per input."""
    if field.kind == "value":
        raise BadRequest(f"{field.name!r} is no tensor. Ask at predict, with JSON.")
    if field.kind == "tensor":
        return array_column_of(field, tensor)
    if field.kind == "image":
        bytes_of = dataclasses.replace(field, dtype="uint8")
        return [array.tolist() for array in array_column_of(bytes_of, tensor)]
    if field.kind != "numbers":
        texts = strings(tensor)
        if len(tensor.shape) not in (1, 2) or math.prod(tensor.shape[1:]) != 1:
            raise misshapen(tensor, "[N] or [N, 1]")
        return texts
    rows = tensor.shape[0] if tensor.shape else 0
    if tensor.shape != [rows, field.size] and not (field.size == 1 and len(tensor.shape) == 1):
        raise misshapen(tensor, f"[N, {field.size}]")
    elements = numbers(tensor)
    return [elements[at : at + field.size] for at in range(0, len(elements), field.size)]


def _outputs(target: OutputSpec) -> dict[str, tuple[str, list[int]]]:
    """Returns datatype and shape of all possible tensors of a target by name."""
    name, kind, labels = target.name, target.kind, len(target.labels)
    if kind == "tensor":
        return {name: (DATATYPES[target.dtype], [-1, *target.shape])}
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


def _rows(target: OutputSpec, prediction: Prediction) -> dict[str, Any]:
    """Returns the row of each tensor of a target that a prediction has, by name."""
    name, each = target.name, prediction.hypotheses
    if each:
        texts, scores = [one.text for one in each], [one.score for one in each]
        ids = [list(one.ids) for one in each]
        return {name: texts, f"{name}_scores": scores, f"{name}_ids": ids}
    if name not in prediction.values:
        return {}
    value, by_label = prediction.values[name], target.kind != "tags"
    rows = {name: _written(target, value)}
    if not by_label:
        rows[f"{name}_lengths"] = len(value)
    if name in prediction.probabilities:
        rows[f"{name}_probability"] = prediction.probabilities[name]
    if name in prediction.scores:
        own: Any = prediction.scores[name]
        rows[f"{name}_scores"] = [own[one] for one in target.labels] if by_label else list(own)
    return {one: row for one, row in rows.items() if one in _outputs(target)}


def _written(target: OutputSpec, value: Any) -> Any:
    """Returns a predicted value as the row of a tensor."""
    if target.kind == "multilabel":
        return [label in value for label in target.labels]
    if target.kind == "distribution":
        return [value[label] for label in target.labels]
    if target.kind == "tags":
        return [tag or "" for tag in value]
    if target.kind == "numbers":
        return list(value)
    return value if target.kind == "tensor" else str(value)


def _tensor(name: str, target: OutputSpec, data: list[Any]) -> Tensor:
    """Returns an output tensor from its rows; those of different lengths are padded."""
    datatype, described = _outputs(target)[name]
    shape = [len(data)]
    tensor: Tensor = {"name": name, "shape": shape, "datatype": datatype}
    if target.kind == "tensor":
        arrays = [np.asarray(one) for one in data]
        if len({array.shape for array in arrays}) > 1:
            raise BadRequest(
                f"the answers in {name!r} have different shapes, and a tensor has one: ask with "
                "inputs of one size, or at predict."
            )
        tensor["shape"] = [*shape, *arrays[0].shape]
        return {**tensor, "data": np.stack(arrays).reshape(-1).tolist()}
    filler: Any = "" if datatype == "BYTES" else _NO_SCORE if target.kind in TEXTS else 0.0
    if datatype == "INT64":
        filler = 0
    for axis in range(1, len(described)):
        shape.append(max(map(len, data), default=0))
        padding = [filler if axis == len(described) - 1 else []]
        data = [one for row in data for one in row + padding * (shape[-1] - len(row))]
    tensor["data"] = data
    if target.labels and len(shape) == 2 and target.kind != "tags":
        # A parameter is a string, a number or a boolean: the list is JSON in a string.
        tensor["parameters"] = {"labels": json.dumps(list(target.labels), ensure_ascii=False)}
    return tensor


NAME = "binary_tensor_data"
"""Name of Triton's extension for binary data after the JSON of a body: little-endian elements in
row-major order; each element of `BYTES` is preceded by its length in four bytes.
https://github.com/triton-inference-server/server, docs/protocol/extension_binary_data.md."""

SIZE = "binary_data_size"
"""Parameter of a tensor with binary data: its size in bytes."""

_EVERY, _ONE = "binary_data_output", "binary_data"
_LENGTH = struct.Struct("<I")
_DTYPES = {datatype: np.dtype(name).newbyteorder("<") for name, datatype in DATATYPES.items()}


async def read_tensors(bodies: Bodies, request: Request, limits: ServerLimits) -> InferenceRequest:
    """Returns the inference request of a body, with the data of all tensors, also binary ones.

    Args:
      bodies: reader of bodies.
      request: request with the body; its header `HEADER` has the length of the JSON.
      limits: limit of inputs.

    Raises:
      ClientDisconnect: the client has disconnected.
      HTTPError: the length is not a number, or the body is shorter; see `Bodies.read`, `filled`.
    """
    length = request.headers.get(HEADER)
    if length is None:
        text = await bodies.content(request, ("application/json",))
        return filled(parse_json(text), b"", limits)
    body = await bodies.content(request, ("application/json", "application/octet-stream"))
    if not (length.isascii() and length.isdecimal() and len(length) < 20):
        raise BadRequest(f"{HEADER}: {length!r} is no number of bytes.")
    if not int(length):
        raise BadRequest(f"{HEADER}: 0, a text without JSON, is not supported. Send it as JSON.")
    if int(length) > len(body):
        raise BadRequest(f"{HEADER} says {int(length):,} bytes; the body has {len(body):,}.")
    return filled(parse_json(body[: int(length)]), body[int(length) :], limits)


def filled(body: Any, blob: bytes, limits: ServerLimits) -> InferenceRequest:
    """Returns a request whose tensors all have `data`, including the binary ones.

    Args:
      body: JSON of the request, not yet validated.
      blob: binary data of the tensors in order.
      limits: limit of inputs.

    Raises:
      HTTPError: the JSON is invalid or requires an unsupported extension, the size of the binary
        data differs from that of the tensors, or the elements are invalid.
    """
    request = parsed(InferenceRequest, body)
    request.check_extensions()
    _check_booleans(request)
    check_size(
        max((tensor.shape[0] for tensor in request.inputs if tensor.shape), default=0), limits
    )
    at = 0
    for number, tensor in enumerate(request.inputs):
        size, has_data = _size_of(tensor), "data" in tensor.model_fields_set
        if size is None and not has_data:
            raise BadRequest(f"inputs.{number}.data: Field required.")
        if size is None:
            continue
        if has_data:
            raise BadRequest(f"{tensor.name!r} has both `data` and {SIZE}: expected one.")
        if size > len(blob) - at:
            raise BadRequest(
                f"{tensor.name!r} has {size:,} bytes by its {SIZE}, and {len(blob) - at:,} are "
                "left behind the JSON."
            )
        tensor.data = _elements(tensor, blob[at : at + size])
        at += size
    if at < len(blob):
        raise BadRequest(
            f"behind the JSON there are {len(blob) - at:,} bytes that are of no tensor; each says "
            f"in its parameter {SIZE} how many are its own."
        )
    return request


def packed(
    request: InferenceRequest, outputs: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], bytes]:
    """Returns the tensors of a response, and the binary data of those requested as binary.

    Args:
      request: request with `binary_data` per output, or `binary_data_output` for all.
      outputs: output tensors; binary ones are returned without `data`.
    """
    every = request.parameters.get(_EVERY, False)
    requested = {one.name: one.parameters for one in request.outputs or ()}
    tensors, blobs = [], []
    for output in map(dict, outputs):
        if requested.get(output["name"], {}).get(_ONE, every):
            data = output.pop("data")
            if output["datatype"] == "BYTES":
                texts = [text.encode("utf-8", "replace") for text in data]
                blobs.append(b"".join(_LENGTH.pack(len(text)) + text for text in texts))
            else:
                blobs.append(np.asarray(data, _DTYPES[output["datatype"]]).tobytes())
            output["parameters"] = {**output.get("parameters", {}), SIZE: len(blobs[-1])}
        tensors.append(output)
    return tensors, b"".join(blobs)


def _check_booleans(request: InferenceRequest) -> None:
    """Raises HTTPError if a parameter for binary outputs is not a boolean."""
    parts = [(_EVERY, request.parameters)]
    parts += [(_ONE, output.parameters) for output in request.outputs or ()]
    for name, parameters in parts:
        value = parameters.get(name, False)
        if not isinstance(value, bool):
            raise BadRequest(f"the parameter {name} is {reprlib.repr(value)}: expected a boolean.")


def _size_of(tensor: InputTensor) -> int | None:
    """Returns the size of a tensor's binary data in bytes; None if its data is in the JSON."""
    size = tensor.parameters.get(SIZE)
    if size is None:
        return None
    if type(size) is not int or size < 0:
        raise BadRequest(f"{SIZE}: {reprlib.repr(size)} is no number of bytes.")
    return size


def _elements(tensor: InputTensor, blob: bytes) -> list[Any]:
    """Returns the elements of a tensor from binary data; reads no more than its shape has."""
    if tensor.datatype == "BYTES":
        return _texts(tensor, blob)
    dtype = _DTYPES.get(tensor.datatype)
    if dtype is None or len(blob) % dtype.itemsize:
        raise BadRequest(
            f"{tensor.name!r}: {len(blob):,} bytes are no elements of {tensor.datatype}."
        )
    if len(blob) != tensor.count * dtype.itemsize:
        raise miscounted(tensor, f"{len(blob) // dtype.itemsize}")
    return np.frombuffer(blob, dtype).tolist()  # type: ignore[no-any-return]


def _texts(tensor: InputTensor, blob: bytes) -> list[str]:
    texts: list[str] = []
    at = 0
    while at < len(blob):
        if len(texts) == tensor.count:
            raise miscounted(tensor, f"more than {tensor.count}")
        end = at + _LENGTH.size
        if end <= len(blob):
            end += _LENGTH.unpack_from(blob, at)[0]
        if end > len(blob):
            raise BadRequest(
                f"{tensor.name!r}: element {len(texts)} goes beyond the tensor's {len(blob):,} "
                "bytes. Each has its length before it, four bytes, the lowest first."
            )
        try:
            texts.append(blob[at + _LENGTH.size : end].decode())
        except UnicodeDecodeError:
            raise BadRequest(f"{tensor.name!r}: element {len(texts)} is no UTF-8.") from None
        at = end
    return texts
