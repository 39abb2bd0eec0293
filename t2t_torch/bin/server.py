"""Serves models over HTTP, with a web page to try them.

    t2t-server --artifact=artifact
    t2t-server --artifact=flights=artifact --artifact=tags=models/tags --host=0.0.0.0
    t2t-server --output_dir=run

Implements the Open Inference Protocol v2, and plain JSON at /predict.  In a folder with sub-folders
1, 2 ..., each is a version of the model.  Artifacts need no torch.  On SIGTERM, requests in
progress are completed.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch.bin import flags as shared
from t2t_torch.errors import T2TError, UsageError, install_extra
from t2t_torch.settings import Settings, hp

if TYPE_CHECKING:
    from t2t_torch.serve.limits import ServerLimits
    from t2t_torch.serve.repository import Source


INSTALL = install_extra("serve")


class ServerOptions(Settings):
    """Flags of `t2t-server`."""

    artifact: tuple[str, ...] = hp(
        (),
        "Artifact of t2t-exporter, or a folder of versions 1, 2 ...; NAME=PATH sets the "
        "model's name, by default that of the folder. Repeatable.",
        repeated=True,
    )
    output_dir: str | None = hp(
        None,
        "Run directory whose checkpoint is served for trying it out, instead of artifacts; of "
        "several problems each is a model.",
        path=True,
    )
    checkpoint_path: str | None = hp(
        None,
        "Checkpoint of --output_dir: a step, 'best', 'latest' or a ckpt-<step> folder; default: "
        "the best evaluated one, or the latest if none was evaluated.",
        path=True,
    )
    decode_hparams: str = hp("", "Decoding settings, for --output_dir.")
    host: str = hp("127.0.0.1", "Address to listen on; 0.0.0.0: all interfaces.")
    port: int = hp(8080, "Port to listen on; 0: any free port.", low=0, high=65535)
    threads: int = hp(1, "Number of threads per batch; 0: the number of cores.", low=0, high=1024)
    api_key_file: str | None = hp(
        None,
        "File of API keys, one per line; requests must send one of them. Also read from "
        "T2T_API_KEY.",
        path=True,
    )
    max_body_bytes: int = hp(1048576, "Maximum size of a request body in bytes.", low=1)
    max_inputs: int = hp(64, "Maximum number of inputs per request.", low=1)
    max_characters: int = hp(10000, "Maximum length of an input in characters.", low=1)
    max_queue: int = hp(
        256, "Requests that wait for a model; further ones are answered with 503.", low=1
    )
    max_batch_inputs: int = hp(64, "Maximum number of inputs per batch.", low=1)
    max_batch_tokens: int = hp(1024, "Approximate maximum number of words per batch.", low=1)
    max_batches: int = hp(
        2,
        "Batches that an artifact computes at once; of --threads they share all but one each.",
        low=1,
    )
    max_seconds: float = hp(
        30.0, "Seconds for a request; after these it is answered with 503.", low=0.001
    )
    header_seconds: float = hp(
        10.0, "Seconds for a request's headers; then the connection is closed.", low=0.001
    )
    batch_delay_ms: float = hp(
        2.0, "Milliseconds that requests wait for others while there are many.", low=0.0
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
        False, "Lets an artifact of another problem take over the name of a served one."
    )
    log_texts: bool = hp(False, "Includes inputs in the log.")


FLAGS = shared.CommandFlags(
    "t2t-server",
    ServerOptions,
    common=("output_dir", *shared.CODE_FLAGS),
)
_flag = FLAGS.value_of


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return shared.run_main(_run, FLAGS, __doc__, argv)


def _run() -> int:
    if bool(_flag("artifact")) == bool(_flag("output_dir")):
        raise UsageError(
            "expected either --artifact=PATH, repeatable for several models, or --output_dir=RUN."
            f"\nExample:\n{FLAGS.__dict__['example']}"
        )
    for name in ("checkpoint_path", "decode_hparams"):
        if _flag(name) and not _flag("output_dir"):
            raise UsageError(f"--{name} is for --output_dir; an artifact has what it needs.")
    try:
        import prometheus_client
        import starlette
        import uvicorn
    except ImportError as error:
        raise UsageError(f"t2t-server needs what is not installed: {error}.  {INSTALL}") from None
    del prometheus_client, starlette, uvicorn
    return _serve(_sources())


def _serve(sources: Sequence[Source]) -> int:
    from t2t_torch.serve.application import Application
    from t2t_torch.serve.middleware import Keys, Metrics, RequestMiddleware
    from t2t_torch.serve.repository import Repository
    from t2t_torch.serve.server import GracefulShutdown, json_log, listen_at, log_event, serve

    keys = Keys.read(_flag("api_key_file"))
    with json_log():
        limits, metrics = _limits(), Metrics()
        allows = _flag("allow_other_problem")
        repository = Repository(sources, limits, metrics, allow_other_problem=allows)
        repository.load()
        if _flag("reload_seconds"):
            repository.watch(_flag("reload_seconds"))
        shutdown = GracefulShutdown(_flag("drain_delay"), _flag("drain_seconds"))
        application = Application(
            repository, limits, metrics, shutdown, log_texts=_flag("log_texts")
        )
        listener = listen_at(_flag("host"), _flag("port"))
        if not keys and not _flag("host").startswith(("127.", "localhost", "::1")):
            log_event("the server has no authentication and is reachable from other hosts", 30)
        app = RequestMiddleware(application.app, keys, metrics, shutdown)
        code = serve(app, listener, shutdown, header_seconds=limits.header_seconds)
        # Every request is answered or cut off: nobody waits for a batch that still runs.
        repository.close(0.0)
    return code


def _limits() -> ServerLimits:
    from t2t_torch.serve.limits import ServerLimits

    return ServerLimits(
        body_bytes=_flag("max_body_bytes"),
        inputs=_flag("max_inputs"),
        characters=_flag("max_characters"),
        seconds=_flag("max_seconds"),
        queue=_flag("max_queue"),
        batch_inputs=_flag("max_batch_inputs"),
        batch_tokens=_flag("max_batch_tokens"),
        batches=_flag("max_batches"),
        delay=_flag("batch_delay_ms") / 1e3,
        header_seconds=_flag("header_seconds"),
    )


def _sources() -> list[Source]:
    from t2t_torch.serve.artifact_model import artifact_model
    from t2t_torch.serve.repository import Source

    if _flag("output_dir"):
        return _run_sources(Path(_flag("output_dir")))
    load = functools.partial(artifact_model, threads=_flag("threads"))
    sources: dict[str, Source] = {}
    for given in _flag("artifact"):
        name, sign, path = given.partition("=")
        folder = Path(path if sign else given).expanduser()
        name = name if sign else folder.resolve().name
        if name in sources:
            raise UsageError(
                f"two models are called {name!r}: {sources[name].path} and {folder}. Name them:  "
                f"--artifact=OTHER={folder}"
            )
        if not name or "/" in name:
            raise UsageError(f"--artifact={given}: {name!r} is no name.  --artifact=NAME=PATH")
        sources[name] = Source(name, folder, load)
    return list(sources.values())


def _run_sources(folder: Path) -> list[Source]:
    """Returns the model of a run; of a run of several problems one for each, with its name."""
    from t2t_torch.decode.hparam import parse_decode_hparams
    from t2t_torch.decode.loading import problem_names
    from t2t_torch.loading import decode_defaults
    from t2t_torch.serve.model import ServedModel
    from t2t_torch.serve.repository import Source
    from t2t_torch.serve.run_model import run_model

    hparams = parse_decode_hparams(_flag("decode_hparams"), defaults=decode_defaults(folder))
    problems: tuple[str, ...] = ()
    with contextlib.suppress(T2TError):  # loading the model describes it
        problems = problem_names(folder)

    def load(name: str, version: str, path: Path) -> ServedModel:
        return run_model(
            name,
            path,
            checkpoint=_flag("checkpoint_path"),
            hparams=hparams,
            threads=_flag("threads"),
            problem=name if problems else None,
        )

    names = problems or (folder.resolve().name,)
    return [Source(name, folder, load, is_run=True) for name in names]


if __name__ == "__main__":
    sys.exit(main())
