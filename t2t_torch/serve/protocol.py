"""JSON schemas of requests and responses: the Open Inference Protocol, version 2, and our own.

The protocol is https://github.com/kserve/open-inference-protocol, specification/protocol,
`inference_rest.md` and `open_inference_rest.yaml`.  Parameters are strings, numbers and
booleans.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
)
from pydantic import ValidationError as _Invalid
from pydantic_core import PydanticCustomError

from t2t_torch.runtime.prediction import BEST
from t2t_torch.serve.limits import MAX_AXES, MAX_TENSORS, BadRequest, HTTPError


def _without_others(parameters: Any) -> Any:
    """Raises an error for the first invalid parameter only."""
    for name, value in parameters.items() if isinstance(parameters, dict) else ():
        if not isinstance(value, str | bool | int | float):
            message = "{name} is no string, number or boolean"
            raise PydanticCustomError("parameter", message, {"name": reprlib.repr(name)})
    return parameters


Parameters: TypeAlias = Annotated[
    dict[StrictStr, StrictStr | StrictBool | StrictInt | StrictFloat],
    BeforeValidator(_without_others),
]

_UNSUPPORTED = (
    *("sequence_id", "sequence_start", "sequence_end"),
    *("priority", "timeout"),  # schedule policy
    "classification",
    *("shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"),
)
"""Parameters of Triton's extensions that would change the response; clients may use any other name
for their own.  https://github.com/triton-inference-server/server, docs/protocol."""

_RESERVED = "triton_"
"""Prefix of further parameters, reserved by Triton's extension `parameters`."""

_Body = TypeVar("_Body", bound=BaseModel)


class RequestInput(BaseModel, title="request_input"):
    """An input tensor; `data` may be nested or flat, in row-major order."""

    name: StrictStr
    shape: Annotated[
        list[Annotated[StrictInt, Field(ge=0, le=2**31 - 1)]], Field(max_length=MAX_AXES)
    ]
    datatype: StrictStr
    parameters: Parameters = {}
    data: list[Any]

    @property
    def count(self) -> int:
        """The number of elements of the shape."""
        return math.prod(self.shape)


class RequestOutput(BaseModel, title="request_output"):
    """A requested output tensor."""

    name: StrictStr
    parameters: Parameters = {}


class InferenceRequest(BaseModel, title="inference_request"):
    """Request of `infer`."""

    id: StrictStr | None = None
    parameters: Parameters = {}
    inputs: Annotated[list[RequestInput], Field(max_length=MAX_TENSORS)]
    outputs: Annotated[list[RequestOutput], Field(max_length=MAX_TENSORS)] | None = None

    def check_extensions(self) -> None:
        """Raises HTTPError if a parameter requires an unsupported extension."""
        parts: list[Any] = [self, *self.inputs, *(self.outputs or ())]
        for name in (name for part in parts for name in part.parameters):
            if name in _UNSUPPORTED or name.startswith(_RESERVED):
                raise BadRequest(
                    f"the parameter {name!r} requests an extension that this server does not have. "
                    "Leave it out.",
                )


class PredictRequest(BaseModel, extra="forbid", title="predict_request"):
    """Request of `predict`."""

    inputs: list[Any]
    best: Annotated[StrictInt, Field(ge=1, le=1000)] = BEST
    attention: StrictBool = False


class ResponseOutput(BaseModel, title="response_output"):
    """An output tensor, flat."""

    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters = {}
    data: list[Any]


class InferenceResponse(BaseModel, title="inference_response"):
    """Response of `infer`."""

    model_name: str
    model_version: str
    id: str | None = None
    parameters: Parameters = {}
    outputs: list[ResponseOutput]


class PredictResponse(BaseModel, title="predict_response"):
    """Response of `predict`: the records of each input by target."""

    model: str
    version: str
    outputs: list[dict[str, Any]]


class TensorMetadata(BaseModel, title="metadata_tensor"):
    """Metadata of a tensor; -1 is a dynamic size."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel, title="metadata_model_response"):
    """Metadata of a model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ServerMetadata(BaseModel, title="metadata_server_response"):
    """Metadata of the server."""

    name: str
    version: str
    extensions: list[str]


class ErrorResponse(BaseModel, title="error_response"):
    """Error response."""

    error: str


def parsed(kind: type[_Body], body: Any) -> _Body:
    """Returns a body validated against its schema.

    Raises:
      HTTPError: the body is invalid.
    """
    if not isinstance(body, dict):
        raise BadRequest("the body should be a JSON object.")
    try:
        return kind.model_validate(body)
    except _Invalid as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BadRequest(f"{place}: {first['msg']}.") from None


# Elements of a request's tensor.


_REALS = ("FP16", "FP32", "FP64")
_WHOLES = tuple(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))
_GREATEST = 3.4028235677973366e38  # just above the largest float32


def flat(tensor: RequestInput) -> list[Any]:
    """Returns the elements in row-major order; raises HTTPError if the shape has another count."""
    data = tensor.data
    while data and all(isinstance(one, list) for one in data):
        data = [one for row in data for one in row]
    if tensor.count != len(data):
        raise miscounted(tensor, f"{len(data)}")
    return data


def strings(tensor: RequestInput) -> list[str]:
    """Returns the elements of a string tensor; raises HTTPError if an element is not a string."""
    data = flat(tensor)
    _check_type(tensor, ("BYTES",), "strings")
    return _all(tensor, data, str, "a string")


def numbers(tensor: RequestInput) -> list[float]:
    """Returns the elements of a number tensor; raises HTTPError if an element is not a number."""
    data = flat(tensor)
    _check_type(tensor, (*_REALS, *_WHOLES), "numbers")
    whole = tensor.datatype in _WHOLES
    elements = _all(tensor, data, int if whole else (int, float), "a number")
    if any(isinstance(one, bool) or not abs(one) < _GREATEST for one in elements):
        raise BadRequest(f"{tensor.name!r} has an element that is no finite number.")
    return elements


def miscounted(tensor: RequestInput, count: str) -> HTTPError:
    """Returns the error for a tensor whose number of elements differs from its shape."""
    return BadRequest(f"{tensor.name!r} has the shape {tensor.shape} and {count} elements.")


def misshapen(tensor: RequestInput, expected: str) -> HTTPError:
    """Returns the error for a tensor of an unexpected shape."""
    return BadRequest(f"{tensor.name!r} has the shape {tensor.shape}; expected {expected}.")


def _check_type(tensor: RequestInput, allowed: Sequence[str], what: str) -> None:
    if tensor.datatype not in allowed:
        raise BadRequest(
            f"{tensor.name!r} has the datatype {tensor.datatype!r}; expected {what}: "
            f"{', '.join(allowed)}.",
        )


def _all(tensor: RequestInput, data: list[Any], kind: Any, what: str) -> list[Any]:
    for number, one in enumerate(data):
        if not isinstance(one, kind):
            raise BadRequest(
                f"element {number} of {tensor.name!r} is not {what}, as {tensor.datatype} wants.",
            )
    return data
