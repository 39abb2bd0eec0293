"""HTTP server of artifacts, or of a run; and a client for lines of text."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch.errors import UsageError, install_extra
from t2t_torch.remote import is_url
from t2t_torch.reporter import Reporter, output
from t2t_torch.serve.limits import ServerLimits
from t2t_torch.settings import MissingSettingsError, Settings, hp, hp_path
from t2t_torch.trust import CodeSettings, running
from t2t_torch.workflows.context import DATA_DIR, PROBLEM

if TYPE_CHECKING:
    from t2t_torch.serve.repository import ModelSource


class ServeSettings(ServerLimits, CodeSettings):
    """Serves models over HTTP, with a web page to try them.

        t2t-server --artifact=artifact
        t2t-server --artifact=flights=artifact --artifact=tags=models/tags --host=0.0.0.0
        t2t-server --output_dir=run
        t2t-server --watch=run

    Implements the Open Inference Protocol v2, and plain JSON at /predict.  In a folder with
    sub-folders 1, 2 ..., each is a version of the model.  Artifacts need no torch.  On SIGTERM,
    requests in progress are completed.
    """

    artifact: tuple[str, ...] = hp(
        (),
        "Artifact of t2t-exporter, or a folder of versions 1, 2 ...; NAME=PATH sets the "
        "model's name, by default that of the folder. Repeatable.",
        repeated=True,
    )
    watch: tuple[str, ...] = hp(
        (),
        "Run of t2t-trainer --export_best whose newest export is served, also while it trains; or "
        "any folder whose link `latest` names an artifact. NAME=PATH sets the model's name. "
        "Repeatable.",
        repeated=True,
    )
    output_dir: str | None = hp_path(
        "Run directory whose checkpoint is served for trying it out, instead of artifacts; of "
        "several problems each is a model."
    )
    checkpoint_path: str | None = hp_path(
        "Checkpoint of --output_dir: a step, 'best', 'latest' or a ckpt-<step> folder; default: "
        "the best evaluated one, or the latest if none was evaluated."
    )
    decode_hparams: str = hp("", "Decoding settings, for --output_dir.")
    host: str = hp("127.0.0.1", "Address to listen on; 0.0.0.0: all interfaces.")
    port: int = hp(8080, "Port to listen on; 0: any free port.", low=0, high=65535)
    threads: int = hp(1, "Number of threads per batch; 0: the number of cores.", low=0, high=1024)
    api_key_file: str | None = hp_path(
        "File of API keys, one per line; requests must send one of them. Also read from "
        "T2T_API_KEY."
    )
    reload_seconds: float = hp(
        5.0, "How often changed artifacts are looked for; 0: never.", low=0.0
    )
    drain_seconds: float = hp(
        30.0, "Seconds until running requests are cut off after SIGTERM.", low=0.0
    )
    drain_delay: float = hp(
        0.0, "Seconds after SIGTERM that requests are still taken, but not ready.", low=0.0
    )
    allow_other_problem: bool = hp(
        False,
        "Lets an artifact of another problem, or with other fields, take over the name of a "
        "served one.",
    )
    log_texts: bool = hp(False, "Includes inputs in the log.")


def serve(settings: ServeSettings, *, reporter: Reporter | None = None) -> int:
    """Serves models until a signal ends the process; the log is on stderr.

    Args:
      settings: the models, the address and the limits.
      reporter: where warnings are reported; None: to the current one.

    Returns:
      The exit code.

    Raises:
      T2TError: a setting does not fit, or a model cannot be loaded.
    """
    with running(settings, reporter):
        if bool(settings.artifact or settings.watch) == bool(settings.output_dir):
            raise MissingSettingsError(
                "expected either --artifact=PATH or --watch=PATH, repeatable for several models, "
                "or --output_dir=RUN."
            )
        if settings.watch and not settings.reload_seconds:
            raise UsageError("--watch looks every --reload_seconds, and 0 is never: give more.")
        for name in ("checkpoint_path", "decode_hparams"):
            if getattr(settings, name) and not settings.output_dir:
                raise UsageError(f"--{name} is for --output_dir; an artifact has what it needs.")
        try:
            for name in ("httptools", "prometheus_client", "starlette", "uvicorn"):
                importlib.import_module(name)
        except ImportError as error:
            missing = f"t2t-server needs what is not installed: {error}."
            raise UsageError(f"{missing}  {install_extra('serve')}") from None
        return _serve(settings, _sources(settings))


def _serve(settings: ServeSettings, sources: Sequence[ModelSource]) -> int:
    from t2t_torch.serve import server
    from t2t_torch.serve.application import Application
    from t2t_torch.serve.middleware import Keys, RequestMiddleware, ServerMetrics
    from t2t_torch.serve.repository import Repository

    keys = Keys.read(settings.api_key_file)
    with server.json_log():
        metrics = ServerMetrics()
        repository = Repository(
            sources, settings, metrics, allow_other_problem=settings.allow_other_problem
        )
        repository.load()
        if settings.reload_seconds:
            repository.watch(settings.reload_seconds)
        shutdown = server.GracefulShutdown(settings.drain_delay, settings.drain_seconds)
        application = Application(
            repository, settings, metrics, shutdown, log_texts=settings.log_texts
        )
        listener = server.listen_at(settings.host, settings.port)
        if not keys and not settings.host.startswith(("127.", "localhost", "::1")):
            warning = "the server has no authentication and is reachable from other hosts"
            server.log_event(warning, 30)
        app = RequestMiddleware(application.app, keys, metrics, shutdown)
        code = server.serve(app, listener, shutdown, header_seconds=settings.header_seconds)
        # Every request is answered or cut off: nobody waits for a batch that still runs.
        repository.close(0.0)
    return code


def _sources(settings: ServeSettings) -> list[ModelSource]:
    from t2t_torch.runtime.signature import EXPORTS, LATEST
    from t2t_torch.serve.artifact_model import artifact_model
    from t2t_torch.serve.repository import ModelSource
    from t2t_torch.workflows.run_kind import kind_of

    if settings.output_dir:
        return kind_of(settings.output_dir).served_models(settings)
    load = functools.partial(artifact_model, threads=settings.threads)
    sources: dict[str, ModelSource] = {}
    watched = [(given, True) for given in settings.watch]
    for given, is_watched in [*((given, False) for given in settings.artifact), *watched]:
        name, sign, path = given.partition("=")
        folder = Path(path if sign else given).expanduser()
        if is_watched and is_url(path if sign else given):
            raise UsageError(
                f"--watch={given}: a folder of this machine is watched, and no store. Mount the "
                "store, or copy its artifacts with a link `latest`."
            )
        if is_watched and folder.name == LATEST:
            folder = folder.parent
        of_run = folder.resolve().parent if is_watched and folder.name == EXPORTS else folder
        name = name if sign else of_run.resolve().name
        if name in sources:
            raise UsageError(
                f"two models are called {name!r}: {sources[name].path} and {folder}. Name them:  "
                f"--artifact=OTHER={folder}"
            )
        if not name or "/" in name:
            raise UsageError(f"--artifact={given}: {name!r} is no name.  --artifact=NAME=PATH")
        sources[name] = ModelSource(name, folder, load, is_watched=is_watched)
    return list(sources.values())


class QuerySettings(Settings):
    """Sends inputs to t2t-server, and prints its outputs.

        t2t-query-server --server=localhost:8080
        t2t-query-server --server=localhost:8080 --inputs_once="A man on a bicycle."
        t2t-query-server --server=localhost:8080 --servable_name=artifact < inputs.txt

    Without --inputs_once each line of the standard input is sent; in a terminal there is a prompt.
    """

    problem: str | None = PROBLEM
    data_dir: str | None = DATA_DIR
    server: str = hp("localhost:8080", "Address of the server: HOST:PORT, or a URL.")
    servable_name: str = hp("", "Model of a server of several; default: its only one.")
    inputs_once: str = hp("", "Input to send once; default: lines of the standard input.")
    timeout_secs: int = hp(100, "Seconds to wait for an answer.", low=1)


def query(settings: QuerySettings) -> None:
    """Sends inputs to a server, and reports its outputs."""
    server = settings.server.rstrip("/")
    base = server if server.startswith(("http://", "https://")) else f"http://{server}"
    model = settings.servable_name
    url = f"{base}/models/{model}/predict" if model else f"{base}/predict"
    for text in _inputs(settings):
        (record,) = ask(url, [_read(text)], settings.timeout_secs)
        values = {target: one["value"] for target, one in record.items()}
        (value,) = values.values() if len(values) == 1 else (values,)
        output(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _inputs(settings: QuerySettings) -> Iterator[str]:
    """Yields the inputs to send."""
    if "inputs_once" in settings.given:
        yield settings.inputs_once
        return
    while True:
        if sys.stdin.isatty():
            print(">> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        yield line.rstrip("\n")


def ask(url: str, inputs: Sequence[Any], seconds: float) -> list[Any]:
    """Returns a server's answers to inputs, each a record by target.

    Raises:
      TypeError: the inputs are no values of JSON.
      UsageError: there is no such server, or it refuses an input; the message is the server's.
    """
    body = json.dumps({"inputs": inputs}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as response:
            content: dict[str, Any] = json.load(response)
    except urllib.error.HTTPError as error:
        reason = f"status {error.code}"
        with contextlib.suppress(ValueError, KeyError, TypeError):
            reason = str(json.load(error)["error"])
        raise UsageError(f"{url}: {reason}") from None
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = str(getattr(error, "reason", error))
        raise UsageError(
            f"{url} does not answer: {reason}. Start a server:  t2t-server --artifact=ARTIFACT"
        ) from None
    return list(content["outputs"])


def _read(text: str) -> Any:
    """Returns an input: the object of a line of JSON, of a model with several fields, or a text."""
    with contextlib.suppress(ValueError):
        if text.startswith("{"):
            return json.loads(text)
    return text
