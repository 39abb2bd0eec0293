"""The contract of what is exported: a model that answers with labels, or one that writes texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.artifact.session import Artifact
from t2t_torch.artifact.signature import Signature
from t2t_torch.export.graph import Graph
from t2t_torch.export.verification import Row, Verified


class Subject(ABC):
    """A model on its way to an artifact."""

    @abstractmethod
    def rows(self, data_dir: Path, count: int) -> list[Row]:
        """Returns rows of the dev split as inputs, and some that are made up.

        Raises:
          DataError: there is no such data.
        """

    @abstractmethod
    def network(self, rows: Sequence[Row]) -> Any:
        """Returns what of the graph is computed with the model's weights.

        Args:
          rows: some of the data, by which it is traced.

        Raises:
          ExportError: it cannot be a graph.
        """

    @abstractmethod
    def quantized(self, network: Any) -> Any:
        """Returns a network with weights of eight bits."""

    @abstractmethod
    def graph(self, network: Any) -> Graph:
        """Returns the whole graph: fields in, answers out."""

    @abstractmethod
    def signature(self, chosen: str, *, needs_extensions: bool) -> Signature:
        """Returns what the artifact says of itself, without its files.

        Args:
          chosen: how the checkpoint was chosen.
          needs_extensions: whether the graph has operators of onnxruntime-extensions.
        """

    @abstractmethod
    def verify(self, artifact: Artifact, rows: Sequence[Row]) -> Verified:
        """Asks the model and the artifact each row.

        Raises:
          ExportError: they differ; tells the first row that does, and both answers.
        """

    @abstractmethod
    def metrics(self, data_dir: Path, found: Mapping[int, Any]) -> dict[str, float]:
        """Returns how good answers are.

        Args:
          data_dir: of the generated data.
          found: the answer by the row's number in the dev split; the numbers rise.
        """
