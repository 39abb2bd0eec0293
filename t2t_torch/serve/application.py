"""What is answered at which address."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from t2t_torch import __version__
from t2t_torch.serve.asking import Asked, ask
from t2t_torch.serve.binary import HEADER, packed
from t2t_torch.serve.binary import NAME as BINARY
from t2t_torch.serve.body import Bodies, to_json
from t2t_torch.serve.bounds import check_size, extents_of
from t2t_torch.serve.drain import Drain
from t2t_torch.serve.limits import Limits
from t2t_torch.serve.metrics import CONTENT_TYPE, Metrics
from t2t_torch.serve.model import Extent, Model, Sample, texts_of
from t2t_torch.serve.openapi import Address, describe
from t2t_torch.serve.page import POLICY, page
from t2t_torch.serve.protocol import (
    InferenceResponse,
    ModelMetadata,
    PredictRequest,
    PredictResponse,
    ServerMetadata,
    parsed,
)
from t2t_torch.serve.refusal import UNAVAILABLE, Refusal
from t2t_torch.serve.repository import Repository, Served
from t2t_torch.serve.tensors import (
    check_wanted,
    input_metadata,
    output_metadata,
    raw_name,
    samples_of,
    tensors_of,
)

NAME = "t2t_torch"

_EXAMPLES = 5  # that the page offers
_UNKNOWN = "<UNK>"  # as vocabularies of words write what they do not have
_VERSION = "/versions/{version}"
_LONGEST = 2000  # characters of an error: what it quotes may be as long as the body


class Application:
    """Answers requests with models.

    Args:
      repository: the models.
      limits: of requests.
      metrics: what is counted.
      drain: says whether the server is ready.
      log_texts: whether inputs are told in the log.

    Attributes:
      app: the ASGI application.
    """

    def __init__(
        self,
        repository: Repository,
        limits: Limits,
        metrics: Metrics,
        drain: Drain,
        *,
        log_texts: bool = False,
    ) -> None:
        self._repository = repository
        self._limits = limits
        self._bodies = Bodies(limits)
        self._metrics = metrics
        self._drain = drain
        self._log_texts = log_texts
        metrics.is_ready = lambda: drain.is_ready
        self._addresses: list[Address] = []
        self._add_addresses()
        self.app = Starlette(
            routes=[Route(one.path, one.answer, methods=[one.method]) for one in self._addresses],
            exception_handlers={Refusal: _refused, HTTPException: _no_address, Exception: _failed},
        )

    def _add_addresses(self) -> None:
        model = "/v2/models/{model}"
        # They are tried in this order: those that are asked most stand first.
        self._add("POST", "/predict", self.predict, PredictResponse)
        for version in ("", _VERSION):
            place = f"/models/{{model}}{version}/predict"
            self._add("POST", place, self.predict, PredictResponse)
            self._add("POST", f"{model}{version}/infer", self.infer, InferenceResponse)
        for version in ("", _VERSION):
            self._add("GET", model + version, self.about_model, ModelMetadata)
            self._add("GET", f"{model}{version}/ready", self.model_ready)
        for path in ("/v2", "/v2/"):
            self._add("GET", path, self.about, ServerMetadata)
        self._add("GET", "/v2/health/live", self.live)
        self._add("GET", "/v2/health/ready", self.ready)
        self._add("GET", "/models", self.models)
        self._add("GET", "/metrics", self.metrics)
        self._add("GET", "/openapi.json", self.openapi)
        self._add("GET", "/", self.page)

    def _add(
        self,
        method: str,
        path: str,
        answer: Callable[[Request], Awaitable[Response]],
        response: type[BaseModel] | None = None,
    ) -> None:
        self._addresses.append(Address(method, path, answer, response))

    async def about(self, request: Request) -> Response:
        """What the server is."""
        return _json({"name": NAME, "version": __version__, "extensions": [BINARY]})

    async def live(self, request: Request) -> Response:
        """Whether the server runs."""
        return _json({"live": True})

    async def ready(self, request: Request) -> Response:
        """Whether requests may be sent here."""
        status = 200 if self._drain.is_ready else UNAVAILABLE
        return _json({"ready": self._drain.is_ready}, status)

    async def about_model(self, request: Request) -> Response:
        """What a model is asked, and what it answers."""
        model = self._served(request).model
        told = {
            "name": model.name,
            "versions": list(self._repository.versions(model.name)),
            "platform": model.platform,
            "inputs": [one for field in model.fields for one in input_metadata(field)],
            "outputs": output_metadata(model),
        }
        return _json(told)

    async def model_ready(self, request: Request) -> Response:
        """Whether a model may be asked."""
        name = self._served(request).model.name
        status = 200 if self._drain.is_ready else UNAVAILABLE
        return _json({"name": name, "ready": self._drain.is_ready}, status)

    async def infer(self, request: Request) -> Response:
        """Answers tensors with tensors."""
        self._begin(request)
        body = await self._bodies.read_tensors(request, raw_name(self._served(request).model))
        wanted = None if body.outputs is None else [output.name for output in body.outputs]

        def read(model: Model) -> Sequence[Sample]:
            check_wanted(model, wanted or ())
            return samples_of(model, body.inputs, self._limits)

        model, samples, found = await self._ask(request, read)
        if not found:
            raise Refusal(400, "the inputs have no elements: their first dimension is 0.")
        outputs, behind = packed(body, tensors_of(model, samples, found, wanted))
        told: dict[str, Any] = {
            "model_name": model.name,
            "model_version": model.version,
            "outputs": outputs,
        }
        if body.id is not None:
            told["id"] = body.id
        if body.parameters:
            told["parameters"] = body.parameters
        return _with_bytes(told, behind) if behind else _json(told)

    async def predict(self, request: Request) -> Response:
        """Answers inputs with records by target."""
        self._begin(request)
        body = parsed(PredictRequest, await self._bodies.read(request))
        check_size(len(body.inputs), self._limits)

        def read(model: Model) -> Sequence[Sample]:
            if body.attention:
                model.check_attends()
            return [model.sample(number, given) for number, given in enumerate(body.inputs)]

        model, samples, found = await self._ask(request, read, attention=body.attention)
        records = [
            model.record(sample, its, body.best) for sample, its in zip(samples, found, strict=True)
        ]
        return _json({"model": model.name, "version": model.version, "outputs": records})

    async def models(self, request: Request) -> Response:
        """All models, with what the page wants to know of them."""
        told = []
        for name in self._repository.names:
            versions = self._repository.versions(name)
            told.append({"versions": list(versions), **_described(list(versions.values())[-1][0])})
        return _json({"models": told})

    async def metrics(self, request: Request) -> Response:
        """What was counted, for Prometheus."""
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        """What is answered at which address, as OpenAPI has it."""
        return _json(describe(NAME, __version__, self._addresses))

    async def page(self, request: Request) -> Response:
        """A page for people."""
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
        return Response(page(), media_type="text/html; charset=utf-8", headers=headers)

    def _served(self, request: Request) -> Served:
        return self._repository.get(*_place(request))

    def _begin(self, request: Request) -> None:
        """Notes when a request has begun, and refuses it if there is no such model."""
        request.scope["told_at"] = time.monotonic()
        self._tell(request, self._served(request).model, ())

    def _tell(self, request: Request, model: Model, extents: Sequence[Extent]) -> None:
        request.scope["told"].update(
            model=model.name,
            version=model.version,
            inputs=len(extents),
            tokens=sum(extent.tokens for extent in extents),
        )

    async def _ask(
        self,
        request: Request,
        read: Callable[[Model], Sequence[Sample]],
        *,
        attention: bool = False,
    ) -> Asked:
        def checked(model: Model) -> Sequence[Sample]:
            samples = read(model)
            check_size(len(samples), self._limits)
            extents = extents_of(model, samples, self._limits)
            self._tell(request, model, extents)
            if self._log_texts:
                request.scope["told"]["texts"] = [extent.texts for extent in extents]
            return samples

        place = _place(request)
        return await ask(
            request, self._repository, place, checked, self._limits, attention=attention
        )


def _place(request: Request) -> tuple[str | None, str | None]:
    """Returns the model's name and its version, as the address has them."""
    return request.path_params.get("model"), request.path_params.get("version")


def _described(model: Model) -> Mapping[str, Any]:
    asked = model.nested or model
    return {
        "name": model.name,
        "problem": model.problem,
        "learner": model.learner,
        "platform": model.platform,
        "fields": [{"name": one.name, "kind": one.kind, "size": one.size} for one in asked.fields],
        "targets": [{"name": one.name, "kind": one.kind} for one in asked.targets],
        "attention": model.attend is not None,
        "examples": _shown(model.examples),
    }


def _shown(examples: Sequence[Sample]) -> list[Sample]:
    """Returns the examples that a page offers, the usual ones first.

    Those come last that have unknown words, or a text of nothing.
    """

    def is_odd(example: Sample) -> bool:
        return any(_UNKNOWN in text or not text.strip() for text in texts_of(example))

    return sorted(examples, key=is_odd)[:_EXAMPLES]


def _json(told: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(to_json(told), status, headers, "application/json")


def _with_bytes(told: Any, behind: bytes) -> Response:
    text = to_json(told)
    return Response(
        text + behind, headers={HEADER: str(len(text))}, media_type="application/octet-stream"
    )


def _wrong(message: str, status: int, headers: Mapping[str, str] | None) -> Response:
    told = message if len(message) <= _LONGEST else f"{message[:_LONGEST]} ..."
    return _json({"error": told}, status, headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    retry = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return _wrong(error.message, error.status, retry)


async def _no_address(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}."
    return _wrong(message, error.status_code, error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    request_id = request.scope["told"]["request_id"]
    message = f"this is a defect of the server; its log tells more of request {request_id}."
    return _json({"error": message}, 500)
