"""Sends inputs to t2t-server, and prints its outputs.

    t2t-query-server --server=localhost:8080
    t2t-query-server --server=localhost:8080 --inputs_once="A man on a bicycle."
    t2t-query-server --server=localhost:8080 --servable_name=artifact < inputs.txt

Without --inputs_once each line of the standard input is sent; in a terminal there is a prompt.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

from t2t_torch.bin import flags as shared
from t2t_torch.errors import UsageError
from t2t_torch.settings import Settings, hp


class QueryFlags(Settings):
    """Flags of `t2t-query-server`."""

    server: str = hp("localhost:8080", "Address of the server: HOST:PORT, or a URL.")
    servable_name: str = hp("", "Model of a server of several; default: its only one.")
    inputs_once: str = hp("", "Input to send once; default: lines of the standard input.")
    timeout_secs: int = hp(100, "Seconds to wait for an answer.", low=1)


FLAGS = shared.CommandFlags("t2t-query-server", QueryFlags, common=("problem", "data_dir"))
_flag = FLAGS.value_of


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return shared.run_main(_run, FLAGS, __doc__, argv)


def _run() -> int:
    server = _flag("server").rstrip("/")
    base = server if server.startswith(("http://", "https://")) else f"http://{server}"
    model = _flag("servable_name")
    url = f"{base}/models/{model}/predict" if model else f"{base}/predict"
    for text in _inputs():
        print(_one_line(_answer(url, text)))
    return 0


def _inputs() -> Iterator[str]:
    """Yields the inputs to send."""
    if FLAGS["inputs_once"].present:
        yield _flag("inputs_once")
        return
    while True:
        if sys.stdin.isatty():
            print(">> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        yield line.rstrip("\n")


def _answer(url: str, text: str) -> dict[str, Any]:
    """Returns the record of an input by target.

    Raises:
      UsageError: there is no such server, or it refuses the input; the message is the server's.
    """
    body = json.dumps({"inputs": [_read(text)]}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=_flag("timeout_secs")) as response:
            content: dict[str, Any] = json.load(response)
    except urllib.error.HTTPError as error:
        raise UsageError(f"{url}: {_reason(error)}") from None
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise UsageError(
            f"{url} does not answer: {reason}. Start a server:  t2t-server --artifact=ARTIFACT"
        ) from None
    record: dict[str, Any] = content["outputs"][0]
    return record


def _read(text: str) -> Any:
    """Returns an input: the object of a line of JSON, of a model with several fields, or a text."""
    if text.startswith("{"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError, TypeError):
        return f"status {error.code}"


def _one_line(record: dict[str, Any]) -> str:
    """Returns the value of the only target, or those of all targets as JSON."""
    values = {target: one["value"] for target, one in record.items()}
    (value,) = values.values() if len(values) == 1 else (values,)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
