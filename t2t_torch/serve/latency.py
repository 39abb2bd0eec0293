"""Latency measurement.

The protocol is that of PyText's table 2 (Aly et al. 2018, arXiv:1812.08729): sequential requests,
percentiles over requests, implementations of the same weights on one machine.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_torch.errors import UsageError

_WARM_UP_SECONDS = 60.0
_TURN = 50  # requests


class Latency(NamedTuple):
    """Latency of requests in milliseconds.

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
        took = np.asarray(nanoseconds, dtype=np.float64) / 1e6
        p50, p90, p99 = (float(one) for one in np.percentile(took, (50, 90, 99)))
        total = float(took.sum())
        mean, longest = total / len(took), float(took.max())
        computed = np.percentile(np.asarray(busy, dtype=np.float64) / 1e6, (50, 90, 99))
        return cls(
            p50, p90, p99, mean, longest, inputs / total * 1e3, len(took), *map(float, computed)
        )


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
    if not inputs:
        raise UsageError("there is nothing to ask: no inputs.")
    if batch_size < 1 or passes < 1 or warm_up < 0:
        raise UsageError(
            f"batch_size={batch_size}, passes={passes}, warm_up={warm_up}: expected at least 1, 1 "
            "and 0."
        )
    order = np.random.default_rng(seed).permutation(len(inputs))
    shuffled = [inputs[place] for place in order]
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
