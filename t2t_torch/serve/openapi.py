"""The addresses of a server as OpenAPI describes them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from t2t_torch.serve.protocol import ErrorResponse, InferenceRequest, PredictRequest

_FORM = "3.1.0"
_PLACE = "#/components/schemas/"
_BODIES: dict[str, type[BaseModel]] = {"infer": InferenceRequest, "predict": PredictRequest}


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
        "components": {"schemas": told["$defs"]},
    }


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
    body = _BODIES.get(address.path.rpartition("/")[2])
    if body is not None:
        told["requestBody"] = {"required": True, **_content(body)}
    return told


def _content(form: type[BaseModel] | None) -> dict[str, Any]:
    """Returns what says that JSON of a form is there, or of any."""
    schema = {} if form is None else {"$ref": _PLACE + form.__name__}
    return {"content": {"application/json": {"schema": schema}}}
