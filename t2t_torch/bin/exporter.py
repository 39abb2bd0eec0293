"""Exports a run to one ONNX graph, from text to answers, and checks that it answers as the run.

    t2t-exporter --output_dir=run --data_dir=data --export_dir=artifact
    t2t-exporter --output_dir=run --data_dir=data --export_dir=artifact --checkpoint=average:8
    t2t-exporter --output_dir=run --data_dir=data --export_dir=artifact --quantize=int8

Rows of the dev split are answered by the model and by the artifact.  If they do not agree nothing
is written.  In Python t2t_torch.load("artifact") answers, with onnxruntime and without torch.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from absl import flags

from t2t_torch.bin import flags as shared
from t2t_torch.errors import ExportError, UsageError

if TYPE_CHECKING:
    from t2t_torch.export.exporter import Exported

FLAGS = flags.FlagValues()  # type: ignore[no-untyped-call]
shared.define(FLAGS, "output_dir", "data_dir", "problem", "t2t_usr_dir", "registry_help")
FLAGS["output_dir"].help = "Run directory of t2t-trainer."
FLAGS["data_dir"].help = "Directory of the generated data, on whose dev split it is verified."
FLAGS["problem"].help = "Of a run of several problems, the one that is exported; else its own."
shared.define_path(
    FLAGS, "export_dir", None, "The artifact: a folder that is not there yet, or empty."
)
flags.DEFINE_string(
    "checkpoint",
    None,
    "latest, best as evaluations found it, a step, or average:8, the mean of the weights of the "
    "newest eight; latest by default.",
    flag_values=FLAGS,
)
shared.define_path(
    FLAGS, "checkpoint_path", None, "A ckpt-<step> folder, a step, or 'best', as in t2t-decoder."
)
flags.DEFINE_string(
    "quantize",
    "",
    "int8: weights of eight bits, if metrics lose no more than half a point and it is faster.",
    flag_values=FLAGS,
)
flags.DEFINE_integer(
    "verify_rows", 200, "Rows of the dev split that are compared, at most.", flag_values=FLAGS
)
flags.DEFINE_boolean("overwrite", False, "Replaces an artifact that is there.", flag_values=FLAGS)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return shared.run_main(_run, FLAGS, __doc__, argv)


def _flag(name: str) -> Any:
    return FLAGS[name].value


def _run() -> int:
    shared.require(FLAGS, "output_dir", "data_dir", "export_dir")
    if "," in _flag("output_dir"):
        raise ExportError(
            f"--output_dir={_flag('output_dir')}: several runs that answer as one cannot be "
            "exported yet. Give one run; --checkpoint=average:8 is a mean of its checkpoints."
        )
    if _flag("checkpoint") and _flag("checkpoint_path"):
        raise UsageError("--checkpoint and --checkpoint_path: give one of them.")
    from t2t_torch.export.exporter import export
    from t2t_torch.export.request import LATEST, Request

    request = Request(
        run_dir=Path(_flag("output_dir")),
        export_dir=Path(_flag("export_dir")),
        data_dir=Path(_flag("data_dir")),
        checkpoint=_flag("checkpoint") or _flag("checkpoint_path") or LATEST,
        problem=_flag("problem"),
        quantize=_flag("quantize"),
        verify_rows=_flag("verify_rows"),
        overwrite=_flag("overwrite"),
    )
    with _ended_by_sigterm():
        _report(export(request))
    return 0


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Lets SIGTERM end the process as an exception does: what was begun is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _report(done: Exported) -> None:
    signature, verified = done.signature, done.verified
    size = sum(written.bytes for written in signature.files.values())
    graph = signature.files["model.onnx"].bytes
    print(f"{done.folder}: {signature.model} of {signature.problem}, {signature.checkpoint}")
    print(f"  size      {size / 2**20:.1f} MiB, of these model.onnx {graph / 2**20:.1f}")
    rows = len(verified.rows)
    own = sum(row.number >= 0 for row in verified.rows)
    print(
        f"  verified  {rows} rows ({own} of the dev split, {rows - own} made up), each alone and "
        f"with the others: the same values, scores within {verified.difference:.1e}"
    )
    if done.times is not None:
        before, after = done.times
        for name, (plain, quantized) in done.metrics.items():
            print(f"  {signature.quantized}      {name} {plain:.4f} -> {quantized:.4f}")
        print(
            f"  {signature.quantized}      {before / own * 1e3:.2f} -> {after / own * 1e3:.2f} ms "
            "an input, one at a time, one thread"
        )
    if signature.needs_extensions:
        print("  needs     onnxruntime and onnxruntime-extensions")
    print(f"  took      {done.seconds:.0f} seconds")


if __name__ == "__main__":
    sys.exit(main())
