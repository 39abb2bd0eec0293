"""Bodies of requests and responses, and their schemas: the Open Inference Protocol 2, and our own.

The protocol is https://github.com/kserve/open-inference-protocol, specification/protocol,
`inference_rest.md` and `open_inference_rest.yaml`.  Parameters are strings, numbers and
booleans.
"""

from __future__ import annotations

import gc
import json
import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar

import anyio
import pydantic_core
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
from starlette.requests import Request
from starlette.responses import Response

from t2t_torch.runtime.prediction import BEST
from t2t_torch.serve.limits import (
    MAX_AXES,
    MAX_TENSORS,
    BadRequest,
    HTTPError,
    NotJson,
    ServerLimits,
    TimedOut,
    TooLarge,
    Unavailable,
)

HEADER = "Inference-Header-Content-Length"
"""Header with the length of the JSON in bytes, for a body with binary tensors after it."""

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # an escaped surrogate, possibly of a valid pair


def _without_others(parameters: Any) -> Any:
    """Raises an error for the first invalid parameter only."""
    for name, value in parameters.items() if isinstance(parameters, dict) else ():
        if not isinstance(value, str | bool | int | float):
            raise pydantic_core.PydanticCustomError(
                "parameter", "{name} is no string, number or boolean", {"name": reprlib.repr(name)}
            )
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


class InputTensor(
    BaseModel,
    title="request_input",
    json_schema_extra={"required": ["name", "shape", "datatype", "data"]},
):
    """An input tensor; `data` may be nested or flat, in row-major order, or in binary form."""

    name: StrictStr
    shape: Annotated[
        list[Annotated[StrictInt, Field(ge=0, le=2**31 - 1)]], Field(max_length=MAX_AXES)
    ]
    datatype: StrictStr
    parameters: Parameters = {}
    data: Annotated[list[Any], Field(default_factory=list)]

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
    inputs: Annotated[list[InputTensor], Field(max_length=MAX_TENSORS)]
    outputs: Annotated[list[RequestOutput], Field(max_length=MAX_TENSORS)] | None = None

    def check_extensions(self) -> None:
        """Raises HTTPError if a parameter requires an unsupported extension."""
        parts: list[Any] = [self, *self.inputs, *(self.outputs or ())]
        for name in (name for part in parts for name in part.parameters):
            if name in _UNSUPPORTED or name.startswith(_RESERVED):
                raise BadRequest(
                    f"the parameter {name!r} requests an extension that this server does not have. "
                    "Leave it out."
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


_REALS = ("FP16", "FP32", "FP64")
_WHOLES = tuple(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))
_GREATEST = 3.4028235677973366e38  # just above the largest float32


def flat(tensor: InputTensor) -> list[Any]:
    """Returns the elements in row-major order; raises HTTPError if the shape has another count."""
    data = tensor.data
    while data and all(isinstance(one, list) for one in data):
        data = [one for row in data for one in row]
    if tensor.count != len(data):
        raise miscounted(tensor, f"{len(data)}")
    return data


def strings(tensor: InputTensor) -> list[str]:
    """Returns the elements of a string tensor; raises HTTPError if an element is not a string."""
    return _elements(tensor, ("BYTES",), str, "string")


def numbers(tensor: InputTensor) -> list[float]:
    """Returns the elements of a number tensor; raises HTTPError if an element is not a number."""
    kind = int if tensor.datatype in _WHOLES else (int, float)
    elements = _elements(tensor, (*_REALS, *_WHOLES), kind, "number")
    if any(isinstance(one, bool) or not abs(one) < _GREATEST for one in elements):
        raise BadRequest(f"{tensor.name!r} has an element that is no finite number.")
    return elements


def miscounted(tensor: InputTensor, count: str) -> HTTPError:
    """Returns the error for a tensor whose number of elements differs from its shape."""
    return BadRequest(f"{tensor.name!r} has the shape {tensor.shape} and {count} elements.")


def misshapen(tensor: InputTensor, expected: str) -> HTTPError:
    """Returns the error for a tensor of an unexpected shape."""
    return BadRequest(f"{tensor.name!r} has the shape {tensor.shape}; expected {expected}.")


def _elements(tensor: InputTensor, allowed: Sequence[str], kind: Any, what: str) -> list[Any]:
    """Returns the elements of a tensor of some datatypes, which are all of a type of Python."""
    data = flat(tensor)
    if tensor.datatype not in allowed:
        raise BadRequest(
            f"{tensor.name!r} has the datatype {tensor.datatype!r}; expected {what}s: "
            f"{', '.join(allowed)}."
        )
    for number, one in enumerate(data):
        if not isinstance(one, kind):
            raise BadRequest(
                f"element {number} of {tensor.name!r} is not a {what}, as {tensor.datatype} wants."
            )
    return data


class Bodies:
    """Reader of request bodies, at most twice `ServerLimits.max_queue` at once.

    Args:
      limits: limits of bodies.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._most = 2 * limits.max_queue
        self._active = 0

    async def read(self, request: Request) -> Any:
        """Returns the parsed JSON of a body.

        Raises:
          ClientDisconnect: the client has disconnected.
          HTTPError: the body is too long, takes too long or is not JSON, or too many bodies are
            being read.
        """
        if HEADER in request.headers:
            raise BadRequest(f"expected JSON alone here, without {HEADER}.")
        return parse_json(await self.content(request, ("application/json",)))

    async def content(self, request: Request, kinds: Sequence[str]) -> bytes:
        """Returns the bytes of a body with one of some media types; see `read`."""
        _check_headers(request, self._limits, kinds)
        if self._active >= self._most:
            raise Unavailable(f"{self._active} bodies are read, as many as may. Try again later.")
        self._active += 1
        chunks, size = [], 0
        try:
            with anyio.fail_after(self._limits.max_seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > self._limits.max_body_bytes:
                        raise _too_long(self._limits)
                    chunks.append(chunk)
        except TimeoutError:
            raise TimedOut(
                f"the body was not there after {self._limits.max_seconds:g} seconds."
            ) from None
        finally:
            self._active -= 1
        return b"".join(chunks)


def _check_headers(request: Request, limits: ServerLimits, kinds: Sequence[str]) -> None:
    kind = request.headers.get("content-type", kinds[0]).partition(";")[0].strip()
    if kind.lower() not in kinds:
        raise NotJson("expected JSON. Send the header  Content-Type: application/json")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise NotJson("expected a body as it is, without Content-Encoding.")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length.lstrip("0")[:20] or "0") > limits.max_body_bytes:
        raise _too_long(limits)


def _too_long(limits: ServerLimits) -> HTTPError:
    return TooLarge(
        f"the body has more than {limits.max_body_bytes:,} bytes, which is all that is read. Put "
        "its inputs into several requests, or start the server with a larger --max_body_bytes."
    )


def parse_json(body: bytes) -> Any:
    """Returns the parsed JSON of a body.

    Raises:
      HTTPError: the body is not JSON in UTF-8, or has an unpaired surrogate, NaN or infinity.
    """
    try:
        value = _loads(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is no UTF-8, at byte {error.start + 1:,}.") from None
    except json.JSONDecodeError as error:
        raise BadRequest(
            f"the body is no JSON, at line {error.lineno}, column {error.colno}: {error.msg}."
        ) from None
    except (ValueError, RecursionError):  # a number with too many digits, or too deep nesting
        raise BadRequest("the body is no JSON that can be read.") from None
    if _HALF.search(body):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise BadRequest(
                "the body has half a character: an escape from \\ud800 to \\udfff without its "
                "other half."
            ) from None
    return value


def _loads(text: str) -> Any:
    """Returns the parsed JSON, with garbage collection disabled meanwhile.

    Each collection scans all lists created so far, none of which is garbage: for a megabyte of `[]`
    that was 90 % of the time, during which no other request is handled.  A thread would not help,
    because parsing holds the interpreter lock.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return json.loads(text, parse_constant=_no_constant)
    finally:
        if collects:
            gc.enable()


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def to_json(value: Any) -> bytes:
    """Returns a value as JSON bytes; NaN and infinities become null."""
    return pydantic_core.to_json(value, inf_nan_mode="null")


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Returns a response with a JSON body."""
    return Response(to_json(value), status, headers, "application/json")
