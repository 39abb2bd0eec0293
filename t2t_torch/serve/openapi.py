"""The addresses of a server as OpenAPI describes them."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from t2t_torch.serve.binary import HEADER, SIZE
from t2t_torch.serve.protocol import ErrorResponse, InferenceRequest, PredictRequest

_FORM = "3.1.0"
_PLACE = "#/components/schemas/"
_BODIES: dict[str, type[BaseModel]] = {"infer": InferenceRequest, "predict": PredictRequest}
_BINARY = "infer"  # the end of what takes and answers bytes
_BYTES = "WithBytes"  # ends the names of forms whose tensors may be bytes
_LENGTH = {
    "description": "Bytes of the JSON, behind which are those of the tensors.",
    "schema": {"type": "integer", "minimum": 0},
}


class Address(NamedTuple):
    """What is answered somewhere.

    Attributes:
      method: of HTTP.
      path: with {names} of what varies.
      answer: answers requests; its name and docstring tell what it is.
      response: the form of its JSON; None if it has none that is told.
    """

    method: str
    path: str
    answer: Callable[..., Any]
    response: type[BaseModel] | None = None


def describe(title: str, version: str, addresses: Sequence[Address]) -> dict[str, Any]:
    """Returns the description.

    Args:
      title: what the server is called.
      version: of it.
      addresses: all that there are.
    """
    responses = [one.response for one in addresses if one.response is not None]
    answers: list[type[BaseModel]] = [*dict.fromkeys(responses), ErrorResponse]
    _, told = models_json_schema(
        [(kind, "serialization") for kind in answers]
        + [(kind, "validation") for kind in _BODIES.values()],
        ref_template=_PLACE + "{model}",
    )
    paths: dict[str, dict[str, Any]] = {}
    for one in addresses:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": _FORM,
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": {**told["$defs"], **_with_bytes(told["$defs"])}},
    }


def _with_bytes(schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the forms of requests and responses whose tensors may be bytes behind the JSON."""
    pairs = {"InferenceRequest": "RequestInput", "InferenceResponse": "ResponseOutput"}
    found = {}
    for whole, part in pairs.items():
        text = json.dumps(schemas[whole])
        found[whole + _BYTES] = json.loads(text.replace(f"{_PLACE}{part}", _PLACE + part + _BYTES))
        found[part + _BYTES] = {
            **schemas[part],
            "description": f"A tensor; without data it has the parameter {SIZE}, its bytes.",
            "required": [name for name in schemas[part]["required"] if name != "data"],
        }
    for name, one in found.items():
        one["title"] = f"{one.get('title', name)}_with_bytes"
    return found


def _operation(address: Address) -> dict[str, Any]:
    name = address.answer.__name__
    told: dict[str, Any] = {
        "summary": name.replace("_", " ").title(),
        "description": inspect.getdoc(address.answer),
        "operationId": re.sub(r"\W", "_", f"{name}{address.path}_{address.method.lower()}"),
        "parameters": [
            {"name": part, "in": "path", "required": True, "schema": {"type": "string"}}
            for part in re.findall(r"\{(\w+)\}", address.path)
        ],
        "responses": {
            "200": {"description": "Successful Response", **_content(address.response)},
            "4XX": {"description": "Refused", **_content(ErrorResponse)},
        },
    }
    end = address.path.rpartition("/")[2]
    body = _BODIES.get(end)
    if body is not None:
        told["requestBody"] = {"required": True, **_content(body)}
    if end == _BINARY:
        what = f"Needed if tensors are bytes. {_LENGTH['description']} 0: the body is one text."
        told["parameters"].append({"name": HEADER, "in": "header", **_LENGTH, "description": what})
        _add_bytes(told["requestBody"], InferenceRequest)
        answered = told["responses"]["200"]
        answered["headers"] = {HEADER: _LENGTH}
        _add_bytes(answered, address.response)
    return told


def _add_bytes(told: dict[str, Any], form: type[BaseModel] | None) -> None:
    """Adds what says that bytes may follow JSON of a form."""
    assert form is not None
    told["content"]["application/octet-stream"] = {
        "schema": {
            "description": f"JSON of {form.__name__}{_BYTES}, and behind it the tensors' bytes.",
            "type": "string",
            "contentMediaType": "application/octet-stream",
            "contentSchema": {"$ref": f"{_PLACE}{form.__name__}{_BYTES}"},
        }
    }


def _content(form: type[BaseModel] | None) -> dict[str, Any]:
    """Returns what says that JSON of a form is there, or of any."""
    schema = {} if form is None else {"$ref": _PLACE + form.__name__}
    return {"content": {"application/json": {"schema": schema}}}
