"""Which document of which query an example is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from t2t_torch.errors import DataError
from t2t_torch.features.feature import Feature


@dataclass(frozen=True)
class Place(Feature):
    """The numbers of a query and of one of its documents, both from 0; `[B, 2]` in a batch.

    A note, by which metrics put the documents of a query together again, whatever batches they were
    in.

    Attributes:
      queries: of a split at most.
      documents: of a query at most.
    """

    queries: int
    documents: int

    @property
    def arrow_type(self) -> str:
        """A list of two 32-bit integers."""
        return "list<int32>"

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Two numbers."""
        return (2,)

    @property
    def source(self) -> str:
        """The field "place"."""
        return "place"

    def encode(self, value: Any) -> list[int]:
        """Returns both numbers.

        Raises:
          DataError: there are more queries or documents than said.
        """
        query, document = (int(number) for number in value)
        if not (0 <= query < self.queries and 0 <= document < self.documents):
            raise DataError(
                f"document {document} of query {query}, counted from 0: the problem says that "
                f"there are {self.queries} queries of {self.documents} documents at most. Raise "
                "its max_queries or max_documents."
            )
        return [query, document]

    def decode(self, ids: Iterable[int]) -> list[int]:
        """Returns both numbers."""
        return [int(number) for number in ids]
