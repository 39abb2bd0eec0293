"""The JSON of requests and responses: the Open Inference Protocol, version 2, and our own.

The protocol is https://github.com/kserve/open-inference-protocol, specification/protocol,
`inference_rest.md` and `open_inference_rest.yaml`.  Its parameters are strings, numbers and
booleans.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr
from pydantic import ValidationError as _Invalid

from t2t_torch.artifact.record import BEST
from t2t_torch.serve.refusal import BAD_REQUEST, Refusal

Parameters: TypeAlias = dict[StrictStr, StrictStr | StrictBool | StrictInt | StrictFloat]

_UNSUPPORTED = ("shared_memory", "classification", "sequence_", "priority")
"""How parameters of Triton's extensions begin that would change what is answered."""

_Body = TypeVar("_Body", bound=BaseModel)


class RequestInput(BaseModel):
    """A tensor that is given; `data` may be nested or flat, in row-major order."""

    model_config = ConfigDict(title="request_input")
    name: StrictStr
    shape: list[Annotated[StrictInt, Field(ge=0, le=2**64 - 1)]]
    datatype: StrictStr
    parameters: Parameters = {}
    data: list[Any]


class RequestOutput(BaseModel):
    """A tensor that is asked for."""

    model_config = ConfigDict(title="request_output")
    name: StrictStr
    parameters: Parameters = {}


class InferenceRequest(BaseModel):
    """What is put to `infer`."""

    model_config = ConfigDict(title="inference_request")
    id: StrictStr | None = None
    parameters: Parameters = {}
    inputs: list[RequestInput]
    outputs: list[RequestOutput] | None = None

    def check_extensions(self) -> None:
        """Raises Refusal if a parameter asks for an extension that this server does not have."""
        parts: list[Any] = [self, *self.inputs, *(self.outputs or ())]
        for name in (name for part in parts for name in part.parameters):
            if name.startswith(_UNSUPPORTED):
                raise Refusal(
                    BAD_REQUEST,
                    f"the parameter {name!r} asks for an extension that this server does not have. "
                    "Leave it out.",
                )


class PredictRequest(BaseModel):
    """What is put to `predict`."""

    model_config = ConfigDict(extra="forbid", title="predict_request")
    inputs: list[Any]
    best: Annotated[StrictInt, Field(ge=1, le=1000)] = BEST
    attention: StrictBool = False


class ResponseOutput(BaseModel):
    """A tensor that is answered, flat."""

    model_config = ConfigDict(title="response_output")
    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters = {}
    data: list[Any]


class InferenceResponse(BaseModel):
    """What `infer` answers."""

    model_config = ConfigDict(title="inference_response")
    model_name: str
    model_version: str
    id: str | None = None
    parameters: Parameters = {}
    outputs: list[ResponseOutput]


class PredictResponse(BaseModel):
    """What `predict` answers: of each input its records by target."""

    model_config = ConfigDict(title="predict_response")
    model: str
    version: str
    outputs: list[dict[str, Any]]


class TensorMetadata(BaseModel):
    """A tensor as metadata tell of it; -1 is a size that is not fixed."""

    model_config = ConfigDict(title="metadata_tensor")
    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """What is said of a model."""

    model_config = ConfigDict(title="metadata_model_response")
    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ServerMetadata(BaseModel):
    """What is said of the server."""

    model_config = ConfigDict(title="metadata_server_response")
    name: str
    version: str
    extensions: list[str]


class ErrorResponse(BaseModel):
    """What is answered in place of anything else."""

    model_config = ConfigDict(title="error_response")
    error: str


def parsed(kind: type[_Body], given: Any) -> _Body:
    """Returns a body in its form.

    Raises:
      Refusal: it has another.
    """
    if not isinstance(given, dict):
        raise Refusal(BAD_REQUEST, "the body should be a JSON object.")
    try:
        return kind.model_validate(given)
    except _Invalid as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise Refusal(BAD_REQUEST, f"{place}: {first['msg']}.") from None
