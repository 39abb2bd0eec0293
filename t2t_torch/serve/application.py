"""ASGI application: routes, request handling and the OpenAPI description."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import inspect
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from t2t_torch import __version__, reports
from t2t_torch.errors import T2TError
from t2t_torch.features import InputSpec, OutputSpec
from t2t_torch.runtime.prediction import InputError, Prediction
from t2t_torch.runtime.session import CancellationToken, Stopped
from t2t_torch.serve import protocol, server, tensors
from t2t_torch.serve.limits import (
    MAX_ATTENTION_WEIGHTS,
    MAX_FILE_BYTES,
    BadRequest,
    HTTPError,
    NoInput,
    ServerLimits,
    Unavailable,
)
from t2t_torch.serve.middleware import CONTENT_TYPE, ServerMetrics
from t2t_torch.serve.model import Extent, Sample, ServedModel, extent_of, has_files, open_files
from t2t_torch.serve.protocol import json_response
from t2t_torch.serve.repository import Repository, Retired, Served
from t2t_torch.serve.tensors import NAME as BINARY

_T = TypeVar("_T")
_DECODERS = 2  # threads: a picture of 24 megapixels takes 0.2 GB
_TRIES = 3  # a model may be replaced during a request, but hardly three times


def check_attention(predictions: Sequence[Prediction]) -> None:
    """Raises HTTPError if the attention of the predictions exceeds the limit of a response."""
    attentions = (one.attention for one in predictions if one.attention)
    weights = sum(len(one.read) * len(one.written) for one in attentions)
    if weights > MAX_ATTENTION_WEIGHTS:
        raise NoInput(
            f"the predictions have {weights:,} attention weights (pairs of an input word and an "
            f"output word); at most {MAX_ATTENTION_WEIGHTS:,} are returned per request. Leave out "
            "`attention`, or send fewer inputs."
        )


async def _wait(
    request: Request, result: asyncio.Future[_T], drop: Callable[[], None], limits: ServerLimits
) -> _T:
    """Returns a result; calls `drop` if nobody waits for it any more."""
    left = limits.max_seconds - (time.monotonic() - request.scope["started_at"])
    disconnected = asyncio.ensure_future(_is_gone(request))
    either: set[asyncio.Future[Any]] = {result, disconnected}
    try:
        await asyncio.wait(either, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return _answers(result)
        if disconnected.done():
            raise ClientDisconnect
        raise Unavailable(
            f"it was not answered within {limits.max_seconds:g} seconds. Try again later, or with "
            "less."
        )
    finally:
        disconnected.cancel()
        if not result.done():
            drop()


class FilePool:
    """Threads that decode the pictures and sounds of requests, within their time limit.

    The decoded files of the requests that wait for their answers have `MAX_FILE_BYTES` together.

    Args:
      limits: limits of requests, and of their number.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(_DECODERS, thread_name_prefix="files")
        self._waiting = self._bytes = 0

    @contextlib.asynccontextmanager
    async def decode(
        self, request: Request, model: ServedModel, samples: Sequence[Sample]
    ) -> AsyncIterator[Sequence[Sample]]:
        """Yields inputs with arrays in place of files, which count until the block ends.

        See `open_files`.

        Raises:
          ClientDisconnect: the client has disconnected.
          HTTPError: a file cannot be decoded, too many requests wait, or the request timed out.
        """
        if not has_files(model, samples):
            yield samples
            return
        if self._waiting >= self._limits.max_queue:
            raise Unavailable(f"{self._waiting} requests wait for their files. Try again later.")
        token = CancellationToken()
        work = functools.partial(open_files, model, samples, self._limits, token)
        decoding = asyncio.get_running_loop().run_in_executor(self._threads, work)

        def drop() -> None:
            token.set()
            decoding.cancel()

        self._waiting += 1
        try:
            opened = await _wait(request, decoding, drop, self._limits)
        finally:
            self._waiting -= 1
        size = sum(getattr(value, "nbytes", 0) for one in opened for value in one.values())
        if self._bytes and self._bytes + size > MAX_FILE_BYTES:
            raise Unavailable("too many pictures and sounds wait for answers. Try again later.")
        self._bytes += size
        try:
            yield opened
        finally:
            self._bytes -= size


def _answers(answers: asyncio.Future[_T]) -> _T:
    try:
        return answers.result()
    except Stopped:
        raise Unavailable("the server ends. Ask another one.") from None
    except InputError as error:
        raise NoInput(str(error)) from None
    except T2TError as error:
        raise NoInput(f"this cannot be answered: {error}") from None


async def _is_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


_PLACE = "#/components/schemas/"
_BODIES: dict[str, type[BaseModel]] = {
    "infer": protocol.InferenceRequest,
    "predict": protocol.PredictRequest,
}


class Endpoint(NamedTuple):
    """A route of the server.

    Attributes:
      method: HTTP method.
      path: path with {names} of parameters.
      answer: handler of requests; its name and docstring are the operation's id and summary.
      response: schema of the JSON response; None if it is not described.
      media_type: media type of the response.
    """

    method: str
    path: str
    answer: Callable[..., Any]
    response: type[BaseModel] | None = None
    media_type: str = "application/json"


def describe(title: str, version: str, endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Returns the OpenAPI description of JSON requests; binary tensors are those of Triton.

    Args:
      title: name of the server.
      version: version of the server.
      endpoints: all routes.
    """
    responses = [one.response for one in endpoints if one.response is not None]
    answers: list[type[BaseModel]] = [*dict.fromkeys(responses), protocol.ErrorResponse]
    _, definitions = models_json_schema(
        [(kind, "serialization") for kind in answers]
        + [(kind, "validation") for kind in _BODIES.values()],
        ref_template=_PLACE + "{model}",
    )
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": definitions["$defs"]},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    name = endpoint.answer.__name__
    answered = _content(endpoint.response, endpoint.media_type)
    operation: dict[str, Any] = {
        "summary": name.replace("_", " ").title(),
        "description": inspect.getdoc(endpoint.answer),
        "operationId": re.sub(r"\W", "_", f"{name}{endpoint.path}_{endpoint.method.lower()}"),
        "parameters": [
            {"name": part, "in": "path", "required": True, "schema": {"type": "string"}}
            for part in re.findall(r"\{(\w+)\}", endpoint.path)
        ],
        "responses": {
            "200": {"description": "Successful Response", **answered},
            "4XX": {"description": "Refused", **_content(protocol.ErrorResponse)},
        },
    }
    if (body := _BODIES.get(endpoint.path.rpartition("/")[2])) is not None:
        operation["requestBody"] = {"required": True, **_content(body)}
    return operation


def _content(form: type[BaseModel] | None, media_type: str = "application/json") -> dict[str, Any]:
    """Returns the content description of JSON of a schema; of anything of the type for None."""
    schema = {} if form is None else {"$ref": _PLACE + form.__name__}
    return {"content": {media_type: {"schema": schema}}}


_TEMPLATE = Path(__file__).with_name("page.html")
_ASSET = Path(reports.__file__).with_name("page.css")


@functools.cache
def page() -> bytes:
    """Returns the HTML of the web page, which sends requests only to its own server."""
    return _TEMPLATE.read_text("utf-8").replace("/* STYLE */", _ASSET.read_text("utf-8")).encode()


def _hash(tag: str) -> str:
    """Returns the content-security-policy hash of the only element with a tag."""
    contents = re.findall(rf"<{tag}>(.*?)</{tag}>", page().decode(), re.S)
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in contents]
    return " ".join(f"'sha256-{digest}'" for digest in digests)


POLICY = (
    f"default-src 'none'; script-src {_hash('script')}; style-src {_hash('style')}; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Content security policy of the page: its own script, and requests to this server."""


NAME = "t2t_torch"

_EXAMPLES = 5  # number of examples on the page
_UNKNOWN = "<UNK>"  # unknown word in word vocabularies
_MODEL, _VERSION = "/v2/models/{model}", "/versions/{version}"
_LONGEST = 2000  # maximum characters of an error message, which may quote the body


class Application:
    """The server's ASGI application.

    Args:
      repository: models.
      limits: limits of requests.
      metrics: metrics of the server.
      shutdown: shutdown state, which decides readiness.
      log_texts: if True, inputs are logged.

    Attributes:
      app: the ASGI application.
    """

    def __init__(
        self,
        repository: Repository,
        limits: ServerLimits,
        metrics: ServerMetrics,
        shutdown: server.GracefulShutdown,
        *,
        log_texts: bool = False,
    ) -> None:
        self._repository = repository
        self._limits = limits
        self._bodies = protocol.Bodies(limits)
        self._files = FilePool(limits)
        self._metrics = metrics
        self._shutdown = shutdown
        self._log_texts = log_texts
        metrics.ready.set_function(lambda: shutdown.is_ready)
        self._endpoints = self._make_endpoints()
        self.app = Starlette(
            routes=[Route(one.path, one.answer, methods=[one.method]) for one in self._endpoints],
            exception_handlers={
                HTTPError: _rejected,
                HTTPException: _http_error,
                Exception: _failed,
            },
        )

    def _make_endpoints(self) -> list[Endpoint]:
        """Returns the routes in the order of matching, the most frequent ones first."""
        endpoints = [Endpoint("POST", "/predict", self.predict, protocol.PredictResponse)]
        for version in ("", _VERSION):
            predict, model = f"/models/{{model}}{version}/predict", _MODEL + version
            endpoints += [
                Endpoint("POST", predict, self.predict, protocol.PredictResponse),
                Endpoint("POST", f"{model}/infer", self.infer, protocol.InferenceResponse),
                Endpoint("GET", model, self.about_model, protocol.ModelMetadata),
                Endpoint("GET", f"{model}/ready", self.model_ready),
            ]
        return [
            *endpoints,
            Endpoint("GET", "/v2", self.about, protocol.ServerMetadata),
            Endpoint("GET", "/v2/", self.about, protocol.ServerMetadata),
            Endpoint("GET", "/v2/health/live", self.live),
            Endpoint("GET", "/v2/health/ready", self.ready),
            Endpoint("GET", "/models", self.models),
            Endpoint("GET", "/metrics", self.metrics, media_type=CONTENT_TYPE.partition(";")[0]),
            Endpoint("GET", "/openapi.json", self.openapi),
            Endpoint("GET", "/", self.page, media_type="text/html"),
        ]

    async def about(self, request: Request) -> Response:
        """Metadata of the server."""
        return json_response({"name": NAME, "version": __version__, "extensions": [BINARY]})

    async def live(self, request: Request) -> Response:
        """Liveness of the server."""
        return json_response({"live": True})

    async def ready(self, request: Request) -> Response:
        """Readiness of the server."""
        return self._readiness()

    async def about_model(self, request: Request) -> Response:
        """Metadata of a model: its inputs and outputs."""
        model = self._served(request).model
        metadata = {
            "name": model.name,
            "versions": list(self._repository.versions(model.name)),
            "platform": model.platform,
            "inputs": [one for field in model.fields for one in tensors.input_metadata(field)],
            "outputs": tensors.output_metadata(model),
        }
        return json_response(metadata)

    async def model_ready(self, request: Request) -> Response:
        """Readiness of a model."""
        return self._readiness(name=self._served(request).model.name)

    def _readiness(self, **fields: str) -> Response:
        status = 200 if self._shutdown.is_ready else Unavailable.status
        return json_response({**fields, "ready": self._shutdown.is_ready}, status)

    async def infer(self, request: Request) -> Response:
        """Inference with tensors as inputs and outputs."""
        self._start_request(request)
        body = await tensors.read_tensors(self._bodies, request, self._limits)
        wanted = None if body.outputs is None else [output.name for output in body.outputs]

        def read(model: ServedModel) -> Sequence[Sample]:
            tensors.check_wanted(model, wanted or ())
            return tensors.samples_of(model, body.inputs, self._limits)

        model, _, predictions = await self._predict(request, read)
        if not predictions:
            raise BadRequest("the inputs have no elements: their first dimension is 0.")
        outputs, binary = tensors.packed(body, tensors.tensors_of(model, predictions, wanted))
        response: dict[str, Any] = {
            "model_name": model.name,
            "model_version": model.version,
            "outputs": outputs,
        }
        if body.id is not None:
            response["id"] = body.id
        if body.parameters:
            response["parameters"] = body.parameters
        if not binary:
            return json_response(response)
        text = protocol.to_json(response)
        headers = {protocol.HEADER: str(len(text))}
        return Response(text + binary, headers=headers, media_type="application/octet-stream")

    async def predict(self, request: Request) -> Response:
        """Predictions as JSON records by target."""
        self._start_request(request)
        body = protocol.parsed(protocol.PredictRequest, await self._bodies.read(request))
        tensors.check_size(len(body.inputs), self._limits)

        def read(model: ServedModel) -> Sequence[Sample]:
            if body.attention:
                model.check_attends()
            tensors.check_written(model, body.inputs)
            return [model.sample(number, value) for number, value in enumerate(body.inputs)]

        model, samples, predictions = await self._predict(request, read, attention=body.attention)
        pairs = zip(samples, predictions, strict=True)
        records = [model.record(*pair, body.best) for pair in pairs]
        return json_response({"model": model.name, "version": model.version, "outputs": records})

    async def models(self, request: Request) -> Response:
        """All models with the metadata that the web page uses."""
        descriptions = []
        for name in self._repository.names:
            versions = self._repository.versions(name)
            model = list(versions.values())[-1].model
            descriptions.append({"versions": list(versions), **_described(model)})
        return json_response({"models": descriptions})

    async def metrics(self, request: Request) -> Response:
        """Metrics for Prometheus."""
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        """OpenAPI description of the server."""
        return json_response(describe(NAME, __version__, self._endpoints))

    async def page(self, request: Request) -> Response:
        """Web page."""
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
        return Response(page(), media_type="text/html; charset=utf-8", headers=headers)

    def _served(self, request: Request) -> Served:
        path = request.path_params
        return self._repository.get(path.get("model"), path.get("version"))

    def _start_request(self, request: Request) -> None:
        """Records the start of a request; raises HTTPError if there is no such model."""
        request.scope["started_at"] = time.monotonic()
        self._log_inputs(request, self._served(request).model, ())

    def _log_inputs(self, request: Request, model: ServedModel, extents: Sequence[Extent]) -> None:
        request.scope["log_fields"].update(
            model=model.name,
            version=model.version,
            inputs=len(extents),
            tokens=sum(extent.tokens for extent in extents),
        )

    async def _predict(
        self,
        request: Request,
        read: Callable[[ServedModel], Sequence[Sample]],
        *,
        attention: bool = False,
    ) -> tuple[ServedModel, Sequence[Sample], Sequence[Prediction]]:
        """Returns the model of a request, the inputs as it reads them, and its predictions.

        If another version replaces the model meanwhile, the new version is used, provided that the
        request names no version or the new version has the name.

        Args:
          request: request whose body was read; it is checked for a disconnect of the client.
          read: function from a model to the inputs of the request; the model does not run if there
            are none.
          attention: if True, predictions include the attention.

        Raises:
          ClientDisconnect: the client has disconnected.
          HTTPError: there is no such model, the inputs are over the limits, an input cannot be
            encoded, the queue is full, the request timed out, or the attention exceeds the limit
            of a response.
        """
        for _ in range(_TRIES):
            served = self._served(request)
            model = served.model
            samples = read(model)
            extents = tensors.extents_of(model, samples, self._limits)
            self._log_inputs(request, model, extents)
            if self._log_texts:
                request.scope["log_fields"]["texts"] = [extent.texts for extent in extents]
            if not samples:
                return model, samples, []
            async with self._files.decode(request, model, samples) as opened:
                try:
                    job = served.batcher.submit(opened, model.attend if attention else None)
                except Retired:
                    continue
                predictions = await _wait(request, job.answers, job.drop, self._limits)
            check_attention(predictions)
            return model, opened, predictions
        raise Unavailable("the model is replaced again and again. Try again later.")


def _described(model: ServedModel) -> Mapping[str, Any]:
    def titled(one: InputSpec | OutputSpec) -> dict[str, Any]:
        title = model.column_names.get(one.name, one.name)
        return {"name": one.name, "title": title, "kind": one.kind}

    return {
        "name": model.name,
        "problem": model.problem,
        "learner": model.architecture,
        "platform": model.platform,
        "fields": [
            {**titled(one), "kind": "text" if one.tokenizer else one.kind, "size": one.size}
            for one in model.json_fields
        ],
        "targets": [titled(one) for one in model.json_targets],
        "attention": not model.why_no_attention,
        "examples": _shown(model.examples),
    }


def _shown(examples: Sequence[Sample]) -> list[Sample]:
    """Returns the examples for the web page.

    Examples with unknown words or an empty text come last.
    """

    def is_odd(example: Sample) -> bool:
        return any(_UNKNOWN in text or not text.strip() for text in extent_of(example).texts)

    return sorted(examples, key=is_odd)[:_EXAMPLES]


def _error_response(message: str, status: int, headers: Mapping[str, str] | None) -> Response:
    shortened = message if len(message) <= _LONGEST else f"{message[:_LONGEST]} ..."
    return json_response({"error": shortened}, status, headers)


async def _rejected(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPError)
    return _error_response(str(error), error.status, error.headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}."
    return _error_response(message, error.status_code, error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    request_id = request.scope["log_fields"]["request_id"]
    message = f"this is a defect of the server; see request {request_id} in its log."
    return json_response({"error": message}, 500)
