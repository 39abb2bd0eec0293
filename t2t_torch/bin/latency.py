"""Measures the latency of an artifact, and of the PyTorch model for comparison.

    t2t-latency --artifact=artifact --inputs=sentences.txt
    t2t-latency --artifact=artifact --output_dir=run --data_dir=data
    t2t-latency --artifact=artifact --output_dir=run --data_dir=data --batch_size=32 --rows=320

Requests are sent one after the other, alternating between the models every fifty requests, so that
the load of the machine affects both.  Prints the 50th, 90th and 99th percentile of the latency in
milliseconds, and of the CPU time, which other programs do not affect.  For a model that generates
text, PyTorch searches with the same beam, length penalty and lengths as the artifact.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch.bin import flags as shared
from t2t_torch.errors import DataError, DecodeError, UsageError
from t2t_torch.files import read_lines
from t2t_torch.settings import Settings, hp

if TYPE_CHECKING:
    from t2t_torch.decode.label_predictor import LabelPredictor
    from t2t_torch.decode.predictor import Predictor
    from t2t_torch.runtime.session import Artifact
    from t2t_torch.serve.latency import Latency


class LatencyOptions(Settings):
    """Flags of `t2t-latency`."""

    artifact: str | None = hp(None, "Artifact of t2t-exporter.", path=True)
    other_artifact: str | None = hp(
        None, "One more, such as the quantized one, to be compared.", path=True
    )
    output_dir: str | None = hp(
        None, "Run directory to compare, executed by PyTorch in float32; default: none.", path=True
    )
    data_dir: str | None = hp(
        None,
        "Directory of the generated data; its test split, or dev split, is the input. "
        "Default: that of --output_dir.",
        path=True,
    )
    problem: str | None = hp(None, "Problem to measure, of a run of several problems.")
    inputs: str | None = hp(
        None,
        "File of inputs that replaces the data: one text per line, or one JSON value per line"
        " (.jsonl). Without data and file: the examples of the artifact.",
        path=True,
    )
    rows: int = hp(1000, "Maximum number of inputs.", low=1)
    threads: int = hp(1, "Number of threads per computation.", low=1, high=1024)
    batch_size: int = hp(1, "Number of inputs per request.", low=1)
    warm_up: int = hp(200, "Number of unmeasured requests at the start.", low=0)
    passes: int = hp(3, "Number of passes over the inputs.", low=1)
    json_: str | None = hp(None, "JSON file of the measurements.", path=True)


FLAGS = shared.CommandFlags(
    "t2t-latency",
    LatencyOptions,
    common=("problem", "data_dir", "output_dir", *shared.CODE_FLAGS),
)
_flag = FLAGS.value_of


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return shared.run_main(_run, FLAGS, __doc__, argv)


def _run() -> int:
    shared.require(FLAGS, "artifact")
    if _flag("data_dir") and not _flag("output_dir"):
        raise UsageError(
            "--data_dir needs --output_dir, the run, which knows how rows are read. Or give the "
            "rows as text: --inputs=FILE."
        )
    if _flag("data_dir") and _flag("inputs"):
        raise UsageError("--data_dir and --inputs: give one of them; either sets the inputs.")
    if _flag("problem") and not _flag("output_dir"):
        raise UsageError(
            f"--problem={_flag('problem')} is for --output_dir, a run of several problems; an "
            "artifact answers for one. Leave it out."
        )
    if _flag("output_dir") and not _flag("inputs"):
        with contextlib.suppress(UsageError):  # then the artifact's own examples are used
            shared.take_data_dir_of_run(FLAGS)
    figures = shared.file_to_write(FLAGS, "json")
    from t2t_torch.runtime.session import Artifact
    from t2t_torch.serve.latency import measure

    answerers: dict[str, Callable[[Sequence[Any]], Any]] = {}
    predictor = None
    artifact = Artifact(_flag("artifact"), threads=_flag("threads"))
    if _flag("output_dir"):
        predictor = _eager(_flag("output_dir"), artifact)
        answerers["PyTorch"] = predictor.predict
    answerers[_name(artifact)] = artifact.predict
    if _flag("other_artifact"):
        other = Artifact(_flag("other_artifact"), threads=_flag("threads"))
        answerers[f"{_name(other)}, other"] = other.predict
    inputs = _inputs(artifact, predictor)
    with shared.phase("measuring the latency"):
        for name, answerer in answerers.items():
            _check_answers(name, answerer, inputs)
        measured = measure(
            answerers,
            inputs,
            batch_size=_flag("batch_size"),
            warm_up=_flag("warm_up"),
            passes=_flag("passes"),
        )
    _report(measured, len(inputs), figures)
    return 0


def _eager(run: str, artifact: Artifact) -> LabelPredictor | Predictor:
    """Loads the model of a run in float32, with the same number of threads as the artifact.

    Raises:
      UsageError: its problem differs from that of the artifact.
    """
    import torch

    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.decode.loading import load
    from t2t_torch.distributed.precision import in_float32

    torch.set_num_threads(_flag("threads"))
    search, of = artifact.signature.search, artifact.signature.problem
    hparams = DecodeHParams().replace(**search) if search else None
    predictor = load(run, problem=_flag("problem"), hparams=hparams, device="cpu")
    if predictor.problem.full_name != of:
        raise UsageError(
            f"--artifact={artifact.path} is of problem {of!r}, and --output_dir={run} of "
            f"{predictor.problem.full_name!r}. Give the run that the artifact was exported from."
        )
    in_float32(predictor.model)
    return predictor


def _name(artifact: Artifact) -> str:
    return f"artifact {artifact.signature.quantized}".rstrip()


def _inputs(artifact: Artifact, predictor: LabelPredictor | Predictor | None) -> list[Any]:
    from t2t_torch.decode.predictor import Predictor

    if _flag("inputs"):
        inputs = _read(Path(_flag("inputs")))
    elif predictor is not None and _flag("data_dir"):
        inputs = _rows(predictor, Path(_flag("data_dir")))
    else:
        from t2t_torch.runtime.signature import EXAMPLES

        inputs = [json.loads(line)["input"] for line in read_lines(artifact.path / EXAMPLES)]
    inputs = inputs[: _flag("rows")]
    if not isinstance(predictor, Predictor):
        return inputs
    # A text is all that an input is; a graph's field may have another name than the model's.
    return [next(iter(one.values())) if isinstance(one, dict) else one for one in inputs]


def _check_answers(name: str, answerer: Callable[[Sequence[Any]], Any], inputs: list[Any]) -> None:
    """Runs all inputs once, in large batches.

    Raises:
      DataError: an input is rejected; says which one.
    """
    from t2t_torch.runtime.prediction import InputError

    try:
        answerer(inputs)
    except InputError as error:
        number, why = error.number, error.why
    except DecodeError:  # of what is no input at all
        number, why = _first_refused(answerer, inputs)
    else:
        return
    # Each line of a file is an input.
    where = f"{_flag('inputs')}:{number + 1}" if _flag("inputs") else "the data"
    raise DataError(
        f"{where}: the {name} does not answer {inputs[number]!r}: {why} Leave it out: what is "
        "refused takes no time."
    )


def _first_refused(answerer: Callable[[Sequence[Any]], Any], inputs: list[Any]) -> tuple[int, str]:
    """Returns the number of the first rejected input, and the reason."""
    for number, one in enumerate(inputs):
        try:
            answerer([one])
        except DecodeError as error:
            return number, str(error).removeprefix("input 0 ")
    raise AssertionError("an input was refused among others and is not by itself")


def _read(path: Path) -> list[Any]:
    lines = list(read_lines(path))
    if path.suffix != ".jsonl":
        return lines
    values = []
    for number, line in enumerate(lines, start=1):
        try:
            values.append(json.loads(line))
        except ValueError as error:
            raise DataError(f"{path}:{number} is no JSON: {error}.") from None
    return values


def _rows(predictor: LabelPredictor | Predictor, data_dir: Path) -> list[Any]:
    from t2t_torch.decode.loading import Loaded
    from t2t_torch.decode.predictor import Predictor
    from t2t_torch.export.targets import TextExportTarget
    from t2t_torch.export.verification import rows_of
    from t2t_torch.mode import Split

    splits = predictor.problem.shards
    split = Split.TEST if Split.TEST in splits else Split.EVAL
    if isinstance(predictor, Predictor):
        assert predictor.run is not None
        loaded = Loaded(predictor.model, predictor.problem, predictor.features, predictor.run)
        rows = TextExportTarget(loaded, predictor.hparams).rows(data_dir, _flag("rows"), split)
    else:
        rows = rows_of(predictor, data_dir, _flag("rows"), split)
    return [row.sample for row in rows if row.number >= 0]


def _processor() -> str:
    """Returns the processor's name."""
    about = Path("/proc/cpuinfo")
    if about.exists():
        for line in about.read_text("utf-8").splitlines():  # a file of the kernel
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _report(measured: Mapping[str, Latency], inputs: int, file: Path | None) -> None:
    settings = {
        "inputs": inputs,
        **{name: _flag(name) for name in ("passes", "warm_up", "batch_size", "threads")},
        "machine": f"{os.cpu_count()} cores of {_processor()}, {platform.system()}",
    }
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items()))
    first = next(iter(measured.values()))
    print(f"{'ms':<18}{'p50':>9}{'p90':>9}{'p99':>9}{'mean':>9}{'longest':>9}{'a second':>10}")
    parts = [slice(5)]
    if _flag("threads") == 1:  # of several, the others' are not known
        parts.append(slice(-3, None))
    for part in parts:
        if part.stop is None:
            print("of the processor's time")
        for name, latency in measured.items():
            figures, firsts = list(latency)[part], list(first)[part]
            times = "".join(f"{one:>9.2f}" for one in figures)
            pairs = zip(figures[:3], firsts[:3], strict=True)
            ratios = ", ".join(f"{a / b:.2f}" for a, b in pairs)
            relative = "" if latency is first else f"   {ratios} of {next(iter(measured))}"
            rate = f"{latency.per_second:>10.0f}" if part.stop else ""
            print(f"{name:<18}{times}{rate}{relative}")
    if file is not None:
        content = {
            "settings": settings,
            "found": {n: latency._asdict() for n, latency in measured.items()},
        }
        file.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
