"""The addresses of a server as OpenAPI describes them."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from t2t_torch.serve.protocol import ErrorResponse, InferenceRequest, PredictRequest

_PLACE = "#/components/schemas/"
_BODIES: dict[str, type[BaseModel]] = {"infer": InferenceRequest, "predict": PredictRequest}


def describe(app: FastAPI) -> dict[str, Any]:
    """Returns the description; bodies are added to it, as they are read by hand.

    Args:
      app: whose routes say what they answer.
    """
    told = get_openapi(title=app.title, version=app.version, routes=app.routes)
    kinds: list[type[BaseModel]] = [*_BODIES.values(), ErrorResponse]
    _, made = models_json_schema(
        [(kind, "validation") for kind in kinds], ref_template=_PLACE + "{model}"
    )
    schemas = told.setdefault("components", {}).setdefault("schemas", {})
    schemas.update({name: its for name, its in made["$defs"].items() if name not in schemas})
    for path, methods in told["paths"].items():
        for operation in methods.values():
            names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
            operation["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in names
            ]
            operation["responses"]["4XX"] = {
                "description": "Refused",
                "content": _json_of(ErrorResponse.__name__),
            }
            body = _BODIES.get(path.rpartition("/")[2])
            if body is not None:
                operation["requestBody"] = {"required": True, "content": _json_of(body.__name__)}
    return told


def _json_of(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _PLACE + name}}}
