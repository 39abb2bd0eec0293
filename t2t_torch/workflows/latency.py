"""Latency of artifacts, and of the PyTorch model for comparison."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from t2t_torch.errors import DataError, DecodeError, UsageError
from t2t_torch.files import read_lines
from t2t_torch.reporter import output, phase
from t2t_torch.settings import hp, hp_path, require
from t2t_torch.trust import CodeSettings, workflow
from t2t_torch.workflows.context import data_dir_of_run, file_to_write

if TYPE_CHECKING:
    from t2t_torch.decode.label_predictor import LabelPredictor
    from t2t_torch.decode.predictor import Predictor
    from t2t_torch.runtime.session import Artifact


class LatencySettings(CodeSettings):
    """Measures the latency of an artifact, and of the PyTorch model for comparison.

        t2t-latency --artifact=artifact --inputs=sentences.txt
        t2t-latency --artifact=artifact --output_dir=run --data_dir=data
        t2t-latency --artifact=artifact --output_dir=run --data_dir=data --batch_size=32 --rows=320

    Requests are sent one after the other, alternating between the models every fifty requests, so
    that the load of the machine affects both.  Prints the 50th, 90th and 99th percentile of the
    latency in milliseconds, and of the CPU time, which other programs do not affect.  For a model
    that generates text, PyTorch searches with the same beam, length penalty and lengths as the
    artifact.
    """

    artifact: str | None = hp_path("Artifact of t2t-exporter.")
    other_artifact: str | None = hp_path("One more, such as the quantized one, to be compared.")
    output_dir: str | None = hp_path(
        "Run directory to compare, executed by PyTorch in float32; default: none."
    )
    data_dir: str | None = hp_path(
        "Directory of the generated data; its test split, or dev split, is the input. "
        "Default: that of --output_dir."
    )
    problem: str | None = hp(None, "Problem to measure, of a run of several problems.")
    inputs: str | None = hp_path(
        "File of inputs that replaces the data: one text per line, or one JSON value per line"
        " (.jsonl). Without data and file: the examples of the artifact."
    )
    rows: int = hp(1000, "Maximum number of inputs.", low=1)
    threads: int = hp(1, "Number of threads per computation.", low=1, high=1024)
    batch_size: int = hp(1, "Number of inputs per request.", low=1)
    warm_up: int = hp(200, "Number of unmeasured requests at the start.", low=0)
    passes: int = hp(3, "Number of passes over the inputs.", low=1)
    json_: str | None = hp_path("JSON file of the measurements.")


@workflow
def measure_latency(settings: LatencySettings) -> None:
    """Measures the latency of artifacts, and of a run's model."""
    require(settings, "artifact")
    if settings.data_dir and not settings.output_dir:
        raise UsageError(
            "--data_dir needs --output_dir, the run, which knows how rows are read. Or give the "
            "rows as text: --inputs=FILE."
        )
    if settings.data_dir and settings.inputs:
        raise UsageError("--data_dir and --inputs: give one of them; either sets the inputs.")
    if settings.problem and not settings.output_dir:
        raise UsageError(
            f"--problem={settings.problem} is for --output_dir, a run of several problems; an "
            "artifact answers for one. Leave it out."
        )
    if settings.output_dir and not settings.inputs:
        with contextlib.suppress(UsageError):  # then the artifact's own examples are used
            data_dir = data_dir_of_run(settings.output_dir, settings.data_dir)
            settings = settings.replace(data_dir=data_dir)
    figures = file_to_write(settings, "json")
    from t2t_torch.runtime.session import Artifact

    answerers: dict[str, Callable[[Sequence[Any]], Any]] = {}
    predictor = None
    artifact = Artifact(str(settings.artifact), threads=settings.threads)
    if settings.output_dir:
        from t2t_torch.distributed.process_group import chosen_threads

        predictor = _eager(settings, artifact)
        answerers["PyTorch"] = predictor.predict
    answerers[_name(artifact)] = artifact.predict
    if settings.other_artifact:
        other = Artifact(settings.other_artifact, threads=settings.threads)
        answerers[f"{_name(other)}, other"] = other.predict
    inputs = _inputs(settings, artifact, predictor)
    threads = chosen_threads(str(settings.threads)) if predictor else contextlib.nullcontext()
    with phase("measuring the latency"), threads:
        for name, answerer in answerers.items():
            _check_answers(name, answerer, inputs, settings.inputs)
        measured = measure(
            answerers,
            inputs,
            batch_size=settings.batch_size,
            warm_up=settings.warm_up,
            passes=settings.passes,
        )
    _report(settings, measured, len(inputs), figures)


def _eager(settings: LatencySettings, artifact: Artifact) -> LabelPredictor | Predictor:
    """Loads the model of a run in float32, with the same number of threads as the artifact.

    Raises:
      UsageError: its problem differs from that of the artifact.
    """
    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.decode.loading import load
    from t2t_torch.distributed.precision import in_float32

    search, of = artifact.signature.search, artifact.signature.problem
    hparams = DecodeHParams().replace(**search) if search else None
    run = str(settings.output_dir)
    predictor = load(run, problem=settings.problem, hparams=hparams, device="cpu")
    if predictor.problem.full_name != of:
        raise UsageError(
            f"--artifact={artifact.path} is of problem {of!r}, and --output_dir={run} of "
            f"{predictor.problem.full_name!r}. Give the run that the artifact was exported from."
        )
    in_float32(predictor.model)
    return predictor


def _name(artifact: Artifact) -> str:
    return f"artifact {artifact.signature.quantized}".rstrip()


def _inputs(
    settings: LatencySettings, artifact: Artifact, predictor: LabelPredictor | Predictor | None
) -> list[Any]:
    from t2t_torch.decode.predictor import Predictor

    if settings.inputs:
        inputs: list[Any] = list(read_lines(Path(settings.inputs)))
        if settings.inputs.endswith(".jsonl"):
            from t2t_torch.decode.outputs import read_json

            inputs = [read_json(one, f"{settings.inputs}:{n}") for n, one in enumerate(inputs, 1)]
    elif predictor is not None and settings.data_dir:
        inputs = rows_of(predictor, Path(settings.data_dir), settings.rows)
    else:
        from t2t_torch.runtime.signature import EXAMPLES

        inputs = [json.loads(line)["input"] for line in read_lines(artifact.path / EXAMPLES)]
    inputs = inputs[: settings.rows]
    if not isinstance(predictor, Predictor):
        return inputs
    # A text is all that an input is; a graph's field may have another name than the model's.
    return [next(iter(one.values())) if isinstance(one, dict) else one for one in inputs]


def _check_answers(
    name: str, answerer: Callable[[Sequence[Any]], Any], inputs: list[Any], file: str | None
) -> None:
    """Runs all inputs once, in large batches.

    Raises:
      DataError: an input is rejected; says which one.
    """
    try:
        answerer(inputs)
    except (DataError, DecodeError):
        for number, one in enumerate(inputs, start=1):
            try:
                answerer([one])
            except (DataError, DecodeError) as error:
                why = getattr(error, "why", str(error).removeprefix("input 0 "))
                where = f"{file}:{number}" if file else "the data"  # each line is an input
                raise DataError(
                    f"{where}: the {name} does not answer {one!r}: {why} Leave it out: what is "
                    "refused takes no time."
                ) from None
        raise


def rows_of(predictor: LabelPredictor | Predictor, data_dir: Path, most: int) -> list[Any]:
    """Returns at most `most` inputs of the test split, or of the dev split."""
    from t2t_torch.decode.loading import Loaded
    from t2t_torch.decode.predictor import Predictor
    from t2t_torch.export.targets import TextExportTarget
    from t2t_torch.export.verification import rows_of
    from t2t_torch.mode import Split

    split = Split.TEST if Split.TEST in predictor.problem.shards else Split.EVAL
    if isinstance(predictor, Predictor):
        assert predictor.run is not None
        loaded = Loaded(predictor.model, predictor.problem, predictor.features, predictor.run)
        rows = TextExportTarget(loaded, predictor.hparams).rows(data_dir, most, split)
    else:
        rows = rows_of(predictor, data_dir, most, split)
    return [row.sample for row in rows if row.number >= 0]


def _report(
    settings: LatencySettings, measured: Mapping[str, Latency], inputs: int, file: Path | None
) -> None:
    about = Path("/proc/cpuinfo")
    text = about.read_text("utf-8") if about.exists() else ""  # a file of the kernel
    found = re.search(r"(?m)^model name\s*: *(.+)$", text)
    processor = found[1].strip() if found else platform.processor() or platform.machine()
    names = ("passes", "warm_up", "batch_size", "threads")
    facts = {
        "inputs": inputs,
        **{name: getattr(settings, name) for name in names},
        "machine": f"{os.cpu_count()} cores of {processor}, {platform.system()}",
    }
    output(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items()))
    first = next(iter(measured.values()))
    output(f"{'ms':<18}{'p50':>9}{'p90':>9}{'p99':>9}{'mean':>9}{'longest':>9}{'a second':>10}")
    parts = [slice(5)]
    if settings.threads == 1:  # of several, the others' are not known
        parts.append(slice(-3, None))
    for part in parts:
        if part.stop is None:
            output("of the processor's time")
        for name, latency in measured.items():
            figures, firsts = list(latency)[part], list(first)[part]
            times = "".join(f"{one:>9.2f}" for one in figures)
            pairs = zip(figures[:3], firsts[:3], strict=True)
            ratios = ", ".join(f"{a / b:.2f}" for a, b in pairs)
            relative = "" if latency is first else f"   {ratios} of {next(iter(measured))}"
            rate = f"{latency.per_second:>10.0f}" if part.stop else ""
            output(f"{name:<18}{times}{rate}{relative}")
    if file is not None:
        content = {
            "settings": facts,
            "found": {n: latency._asdict() for n, latency in measured.items()},
        }
        file.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


_WARM_UP_SECONDS = 60.0
_TURN = 50  # requests


class Latency(NamedTuple):
    """Latency of requests in milliseconds.

    The protocol of table 2 of PyText (Aly et al. 2018, arXiv:1812.08729): sequential requests,
    percentiles over requests, implementations of the same weights on one machine.

    Attributes:
      p50: median.
      p90: 90th percentile.
      p99: 99th percentile.
      mean: mean.
      longest: maximum.
      per_second: throughput in inputs per second.
      requests: number of measured requests.
      busy50: median CPU time of the calling thread; excludes other programs on the machine.
      busy90: 90th percentile of the CPU time.
      busy99: 99th percentile of the CPU time.
    """

    p50: float
    p90: float
    p99: float
    mean: float
    longest: float
    per_second: float
    requests: int
    busy50: float
    busy90: float
    busy99: float

    @classmethod
    def of(cls, nanoseconds: Sequence[int], busy: Sequence[int], inputs: int) -> Latency:
        """Returns the statistics of requests.

        Args:
          nanoseconds: wall-clock time of each request.
          busy: CPU time of each request, in nanoseconds.
          inputs: total number of inputs.
        """
        import numpy as np

        took, computed = (np.asarray(one, dtype=np.float64) / 1e6 for one in (nanoseconds, busy))
        p50, p90, p99, *busiest = (
            float(one) for times in (took, computed) for one in np.percentile(times, (50, 90, 99))
        )
        total = float(took.sum())
        mean, longest = total / len(took), float(took.max())
        return cls(p50, p90, p99, mean, longest, inputs / total * 1e3, len(took), *busiest)


def measure(
    answerers: Mapping[str, Callable[[Sequence[Any]], Any]],
    inputs: Sequence[Any],
    *,
    batch_size: int = 1,
    warm_up: int = 200,
    passes: int = 3,
    seed: int = 0,
) -> dict[str, Latency]:
    """Measures the latency of implementations in turns of fifty requests each.

    Other load on the machine thus affects all implementations alike, and each runs with its weights
    in the CPU cache, as in a server.  The inputs are shuffled once.  Garbage collection is disabled
    during the measurement.

    Args:
      answerers: implementations by name; called with a list of inputs.
      inputs: inputs of the requests.
      batch_size: inputs per request.
      warm_up: number of unmeasured requests per implementation.
      passes: number of passes over all inputs.
      seed: seed of the order.

    Raises:
      UsageError: there are no inputs, or a number is not positive.
    """
    import numpy as np

    if not inputs:
        raise UsageError("there is nothing to ask: no inputs.")
    shuffled = [inputs[place] for place in np.random.default_rng(seed).permutation(len(inputs))]
    requests = [shuffled[at : at + batch_size] for at in range(0, len(shuffled), batch_size)]
    _warm_up(list(answerers.values()), requests, warm_up)
    took: dict[str, list[int]] = {name: [] for name in answerers}
    busy: dict[str, list[int]] = {name: [] for name in answerers}
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(passes):
            for at in range(0, len(requests), _TURN):
                for name, answerer in answerers.items():
                    for request in requests[at : at + _TURN]:
                        start, began = time.perf_counter_ns(), time.thread_time_ns()
                        answerer(request)
                        busy[name].append(time.thread_time_ns() - began)
                        took[name].append(time.perf_counter_ns() - start)
    finally:
        if collects:
            gc.enable()
    count = passes * len(inputs)
    return {name: Latency.of(times, busy[name], count) for name, times in took.items()}


def _warm_up(
    answerers: Sequence[Callable[[Sequence[Any]], Any]],
    requests: Sequence[Sequence[Any]],
    count: int,
) -> None:
    """Sends `count` requests to each, longest first, for at most one minute."""
    longest = sorted(requests, key=lambda request: -sum(len(str(one)) for one in request))
    for answerer in answerers:
        end = time.monotonic() + _WARM_UP_SECONDS
        for number in range(count):
            answerer(longest[number % len(longest)])
            if time.monotonic() > end:
                break
