"""What answers with labels, tags or numbers, on its way to an artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from t2t_torch.artifact.session import Artifact
from t2t_torch.artifact.signature import Signature
from t2t_torch.compute.precision import in_float32
from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.decode.loading import Loaded
from t2t_torch.export.answer_graph import add_answers
from t2t_torch.export.context_windows import ContextWindows, windows_of
from t2t_torch.export.graph import Graph
from t2t_torch.export.quality import metrics_of
from t2t_torch.export.quantization import quantize
from t2t_torch.export.signature import signature_of
from t2t_torch.export.subject import Subject
from t2t_torch.export.text_graph import encode
from t2t_torch.export.tracing import network_of
from t2t_torch.export.verification import Row, Verified, rows_of, verify


class LabelSubject(Subject):
    """A model whose answers a `LabelPredictor` gives.

    Args:
      loaded: the model; it computes in float32 from now on.

    Attributes:
      predictor: what the artifact is compared with.

    Raises:
      ExportError: a field or feature cannot stand in a graph; names it.
    """

    def __init__(self, loaded: Loaded) -> None:
        model = in_float32(loaded.model)
        self.predictor = LabelPredictor(model, loaded.problem, loaded.features, loaded.info)
        graph = Graph("fields")  # what cannot be is refused at once, not when all is traced
        self._encode(graph, windows_of(graph, loaded.problem))

    def _encode(self, graph: Graph, windows: ContextWindows | None) -> dict[str, str]:
        predictor = self.predictor
        given = predictor.problem, predictor.features, predictor.limits
        return encode(graph, *given, windows=windows)

    def rows(self, data_dir: Path, count: int) -> list[Row]:
        """See `Subject.rows`."""
        return rows_of(self.predictor, data_dir, count)

    def network(self, rows: Sequence[Row]) -> onnx.ModelProto:
        """Returns the network by itself: numbers in, numbers out."""
        return network_of(self.predictor, rows)

    def quantized(self, network: onnx.ModelProto) -> onnx.ModelProto:
        """See `Subject.quantized`."""
        return quantize(network)

    def graph(self, network: onnx.ModelProto) -> Graph:
        """See `Subject.graph`."""
        graph = Graph(self.predictor.problem.full_name)
        windows = windows_of(graph, self.predictor.problem)
        found = graph.inline(network, self._encode(graph, windows))
        add_answers(graph, self.predictor.features, found, windows)
        return graph

    def signature(self, chosen: str, *, needs_extensions: bool) -> Signature:
        """See `Subject.signature`."""
        return signature_of(self.predictor, chosen, needs_extensions=needs_extensions)

    def verify(self, artifact: Artifact, rows: Sequence[Row]) -> Verified:
        """See `Subject.verify`."""
        return verify(self.predictor, artifact, rows)

    def metrics(self, data_dir: Path, found: Mapping[int, Any]) -> dict[str, float]:
        """See `Subject.metrics`."""
        return metrics_of(self.predictor, data_dir, list(found), list(found.values()))
