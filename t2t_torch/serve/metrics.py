"""What a server counts, for Prometheus."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_LATEST
QUANTILES = (0.5, 0.9, 0.99)
WINDOW_SECONDS = 300.0
WINDOW_REQUESTS = 10_000

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Window:
    """The latencies of the last five minutes, ten thousand at most."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, float]] = deque(maxlen=WINDOW_REQUESTS)
        self._lock = threading.Lock()

    def add(self, seconds: float) -> None:
        """Notes a request."""
        with self._lock:
            self._seen.append((self._clock(), seconds))

    def quantiles(self, parts: Sequence[float] = QUANTILES) -> list[float] | None:
        """Returns the least latency that so large a part does not exceed; None without requests."""
        oldest = self._clock() - WINDOW_SECONDS
        with self._lock:
            while self._seen and self._seen[0][0] < oldest:
                self._seen.popleft()
            took = sorted(seconds for _, seconds in self._seen)
        if not took:
            return None
        return [took[min(len(took) - 1, int(part * len(took)))] for part in parts]


class Metrics(Collector):
    """All that is counted.

    Attributes:
      queue_lengths: says how many requests wait, by model.
      is_ready: says whether the server takes requests.
    """

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # twice as many lines
        self._registry = CollectorRegistry()
        self._windows: dict[str, Window] = {}
        self.queue_lengths: Callable[[], Mapping[str, int]] = dict
        self.is_ready: Callable[[], bool] = lambda: False
        self._requests = Counter(
            "t2t_requests",
            "Requests for answers, by what they were answered with.",
            ["model", "version", "status"],
            registry=self._registry,
        )
        self._inputs = Counter(
            "t2t_inputs",
            "Inputs that were answered.",
            labelnames=["model"],
            registry=self._registry,
        )
        self._tokens = Counter(
            "t2t_tokens",
            "Words of these inputs, or a fifth of their letters if more.",
            labelnames=["model"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "t2t_request_seconds",
            "From a request to its answer, of those that were answered.",
            buckets=_SECONDS,
            labelnames=["model"],
            registry=self._registry,
        )
        self._batches = Histogram(
            "t2t_batch_inputs",
            "Inputs that were answered together.",
            buckets=_SIZES,
            labelnames=["model"],
            registry=self._registry,
        )
        self._waits = Histogram(
            "t2t_queue_seconds",
            "What the oldest request of a batch has waited.",
            buckets=_SECONDS,
            labelnames=["model"],
            registry=self._registry,
        )
        self._loads = Counter(
            "t2t_loads",
            "Models that were loaded while the server ran, or could not be.",
            ["model", "result"],
            registry=self._registry,
        )
        self._loaded = Gauge(
            "t2t_loaded_timestamp_seconds",
            "When a version was loaded.",
            ["model", "version"],
            registry=self._registry,
        )
        self._registry.register(self)

    def request(self, model: str, version: str, status: int) -> None:
        """Counts a request for answers; both names are empty if there is no such model."""
        self._requests.labels(model, version, str(status)).inc()

    def answered(self, model: str, inputs: int, tokens: int, seconds: float) -> None:
        """Counts what was answered."""
        self._inputs.labels(model).inc(inputs)
        self._tokens.labels(model).inc(tokens)
        self._seconds.labels(model).observe(seconds)
        self._windows.setdefault(model, Window()).add(seconds)

    def batch(self, model: str, inputs: int, seconds: float) -> None:
        """Counts a batch, and what its oldest request has waited."""
        self._batches.labels(model).observe(inputs)
        self._waits.labels(model).observe(seconds)

    def loaded(self, model: str, version: str) -> None:
        """Notes that a version was loaded."""
        self._loaded.labels(model, version).set_to_current_time()

    def unloaded(self, model: str, version: str) -> None:
        """Forgets a version."""
        self._loaded.remove(model, version)

    def reload(self, model: str, result: str) -> None:
        """Counts a version that was loaded meanwhile ("loaded") or could not be ("failed")."""
        self._loads.labels(model, result).inc()

    def collect(self) -> Iterable[Metric]:
        """Yields what is looked up when it is asked for."""
        yield from self._looked_up()

    def _looked_up(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily("t2t_queue_length", "Requests that wait.", labels=["model"])
        for model, length in self.queue_lengths().items():
            waiting.add_metric([model], length)
        yield waiting
        yield GaugeMetricFamily(
            "t2t_ready", "Whether the server takes requests.", value=float(self.is_ready())
        )
        latency = GaugeMetricFamily(
            "t2t_request_seconds_quantile",
            "What so large a part of the last five minutes' requests did not exceed.",
            labels=["model", "quantile"],
        )
        for model, window in list(self._windows.items()):
            for part, seconds in zip(QUANTILES, window.quantiles() or (), strict=False):
                latency.add_metric([model, str(part)], seconds)
        yield latency

    def text(self) -> bytes:
        """Returns all as Prometheus reads it."""
        return generate_latest(self._registry)
