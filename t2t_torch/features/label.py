"""Features of labels: classes, tags, answer spans, positions of documents."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from t2t_torch.errors import DataError
from t2t_torch.features.feature import (
    IGNORED,
    UNKNOWN,
    Feature,
    Features,
    GraphOutput,
    OutputKind,
    OutputSpec,
    Row,
    ranked,
)
from t2t_torch.text.encoder import ClassLabelEncoder
from t2t_torch.text.tags import scheme_of

if TYPE_CHECKING:
    from t2t_torch.export.graph import Graph

_SUM_TOLERANCE = 1e-3  # tolerance of the sum of probabilities
_LABEL_COLUMNS = ("", "_probability", "_probabilities")
_PER_LABEL = tuple(f"{name}_per_label" for name in ("precision", "recall", "f1", "support"))
_MAX_SOFT_LABELS = 5  # number of labels of a distribution in reports


def _named_in_graph(graph: Graph, labels: Sequence[str], numbers: str) -> str:
    """Adds the conversion of ids to labels to a graph.  [...] int64 -> [...] string."""
    return graph.add("Gather", graph.constant(list(labels)), numbers)


class _Classes(Feature):
    """Base class of features with named classes.

    Attributes:
      encoder: converts between labels and ids from 0.
      output_kind: form of a predicted value.
    """

    encoder: ClassLabelEncoder
    output_kind: ClassVar[OutputKind]
    table_columns: ClassVar[tuple[str, ...]] = _LABEL_COLUMNS

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes, in the order of their ids."""
        return self.encoder.labels

    def output_spec(self, name: str, features: Features) -> OutputSpec:
        """Returns the classes."""
        return OutputSpec(name, self.output_kind, self.labels)

    def named_scores(self, scores: Sequence[float]) -> Mapping[str, float] | Sequence[float]:
        """Returns the score of each label, highest first."""
        return ranked(self.labels, scores)


class _OneClass(_Classes):
    """Base class of features with one class for each example."""

    arrow_type: ClassVar[str] = "list<int32>"
    shape: ClassVar[tuple[int | None, ...]] = ()
    padding: ClassVar[int] = IGNORED

    def decode_graph(self, name: str, outputs: Mapping[str, str], graph: Graph) -> GraphOutput:
        """Returns the name of the class.  [B] string."""
        only = graph.add("Squeeze", outputs[f"{name}.numbers"], [1])
        return _named_in_graph(graph, self.labels, only), "string", ()

    def line(self, value: Any) -> str:
        """Returns the value as it is, on one line."""
        return " ".join(str(value).splitlines())


class _OneLabel(_Classes):
    """Base class of features of which each item is one label, `UNKNOWN` if that may be."""

    classifies: ClassVar[bool] = True

    allow_unknown: bool

    @property
    def vocab_size(self) -> int:
        """The number of labels."""
        return self.encoder.vocab_size

    @property
    def lowest_id(self) -> int:
        """`UNKNOWN`, if it may be."""
        return UNKNOWN if self.allow_unknown else 0


@dataclass(frozen=True)
class ClassLabel(_OneLabel, _OneClass):
    """A class label; `[B]` in a batch.

    Attributes:
      encoder: converts between labels and ids from 0.
      allow_unknown: True to encode unknown labels, such as those of evaluation data only, as
        `UNKNOWN`; False: they are an error.
    """

    output_kind: ClassVar[OutputKind] = "class"
    label_metrics: ClassVar[tuple[str, ...]] = _PER_LABEL

    encoder: ClassLabelEncoder
    allow_unknown: bool = False

    def encode(self, value: Any) -> list[int]:
        """Returns the id of a label."""
        return [self.encoder.encode(str(value), allow_unknown=self.allow_unknown)]

    def decode(self, ids: Iterable[int]) -> str | None:
        """Returns the label; None if it is unknown."""
        identity = next(int(i) for i in ids)
        return None if identity < 0 else self.encoder.decode(identity)

    def describe_value(self, value: Any) -> str:
        """Returns the label."""
        return "(unknown)" if value is None else str(value)


@dataclass(frozen=True)
class MultiLabel(_Classes):
    """Any number of class labels, or none; `[B, C]` of 0 and 1 in a batch.

    Attributes:
      encoder: converts between labels and their indices in a row.
      allow_unknown: True to omit unknown labels; False: they are an error.
    """

    is_multilabel: ClassVar[bool] = True
    output_kind: ClassVar[OutputKind] = "multilabel"
    label_metrics: ClassVar[tuple[str, ...]] = _PER_LABEL
    arrow_type: ClassVar[str] = "list<uint8>"

    encoder: ClassLabelEncoder
    allow_unknown: bool = False

    @property
    def shape(self) -> tuple[int | None, ...]:
        """One number for each class."""
        return (self.encoder.vocab_size,)

    def encode(self, value: Any) -> list[int]:
        """Returns 1 at the indices of the labels, 0 elsewhere."""
        if isinstance(value, str):
            raise DataError(f"{value!r} is one label, where a list of labels was expected.")
        row = [0] * self.encoder.vocab_size
        for label in value:
            identity = self.encoder.encode(str(label), allow_unknown=self.allow_unknown)
            if identity != UNKNOWN:
                row[identity] = 1
        return row

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Returns the labels, in the order of the classes."""
        return [label for label, there in zip(self.encoder.labels, ids, strict=True) if there]

    def decode_graph(self, name: str, outputs: Mapping[str, str], graph: Graph) -> GraphOutput:
        """Returns the mask of predicted classes.  [B, C] bool."""
        there = graph.add("Greater", outputs[f"{name}.numbers"], [0])
        return there, "bool", (None,)

    def describe_value(self, value: Any) -> str:
        """Returns the labels, separated by commas."""
        return ", ".join(value) or "(none)"


@dataclass(frozen=True)
class SoftLabel(_Classes):
    """A probability for each class, such as a teacher's; `[B, C]` in a batch.

    Attributes:
      encoder: the classes.
    """

    is_discrete: ClassVar[bool] = False
    output_kind: ClassVar[OutputKind] = "distribution"
    arrow_type: ClassVar[str] = "list<float32>"
    table_columns: ClassVar[tuple[str, ...]] = ("",)
    named_scores = Feature.named_scores

    encoder: ClassLabelEncoder

    @property
    def shape(self) -> tuple[int | None, ...]:
        """One number for each class."""
        return (self.encoder.vocab_size,)

    def encode(self, value: Any) -> list[float]:
        """Returns the probabilities of a mapping by label, or of a list in the order of classes.

        Raises:
          DataError: a label is unknown, or the numbers are not a distribution over the classes.
        """
        row = [0.0] * self.encoder.vocab_size
        if isinstance(value, Mapping):
            for label, probability in value.items():
                row[self.encoder.encode(str(label))] = float(probability)
        else:
            row = [float(probability) for probability in value]
        good = len(row) == self.encoder.vocab_size and min(row) >= 0
        if not good or not math.isclose(sum(row), 1.0, abs_tol=_SUM_TOLERANCE):
            raise DataError(
                f"{value!r} is no distribution over {self.encoder.vocab_size} classes: as many "
                "numbers, none below 0, with the sum 1, were expected."
            )
        return row

    def decode(self, ids: Iterable[float]) -> dict[str, float]:
        """Returns the probability of each label."""
        return dict(zip(self.encoder.labels, map(float, ids), strict=True))

    def decode_graph(self, name: str, outputs: Mapping[str, str], graph: Graph) -> GraphOutput:
        """Returns the distribution.  [B, C] float32."""
        return outputs[f"{name}.numbers"], "float32", (None,)

    def describe_value(self, value: Any) -> str:
        """Returns the most probable labels with their probabilities."""
        top = sorted(value.items(), key=lambda pair: -pair[1])[:_MAX_SOFT_LABELS]
        more = ", …" if len(value) > len(top) else ""
        return ", ".join(f"{label} {probability:.3g}" for label, probability in top) + more


@dataclass(frozen=True)
class Choice(_OneClass):
    """Index of the correct one of several inputs; `[B]` in a batch.

    Attributes:
      candidates: names of the inputs.
    """

    output_kind: ClassVar[OutputKind] = "choice"

    candidates: Sequence[str]

    @property
    def vocab_size(self) -> int:
        """The number of candidates."""
        return len(self.candidates)

    def encode(self, value: Any) -> list[int]:
        """Returns the index of a candidate's name."""
        if value not in self.candidates:
            raise DataError(f"{value!r} is no candidate; those are {list(self.candidates)}.")
        return [list(self.candidates).index(value)]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the candidate's name."""
        return self.candidates[next(int(i) for i in ids)]

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the candidates."""
        return tuple(self.candidates)


# A label for each word.


@dataclass(frozen=True)
class Tags(_OneLabel):
    """A label for each word of a text; `[B, W]` in a batch, padded with `IGNORED`.

    Attributes:
      encoder: converts between labels and ids from 0.
      of: name of the word feature.
      allow_unknown: True to encode unknown labels, such as those of evaluation data only, as
        `UNKNOWN`; False: they are an error.
    """

    is_listed_by_word: ClassVar[bool] = True
    arrow_type: ClassVar[str] = "list<int32>"
    padding: ClassVar[int] = IGNORED
    table_columns: ClassVar[tuple[str, ...]] = (*_LABEL_COLUMNS, "_tagged")
    named_scores = Feature.named_scores

    encoder: ClassLabelEncoder
    of: str = "inputs"
    allow_unknown: bool = False

    @property
    def aligned_to(self) -> str:
        """The feature of words."""
        return self.of

    def encode(self, value: Any) -> list[int]:
        """Returns the ids of a list of labels, or of labels separated by spaces."""
        labels: Sequence[str] = value.split() if isinstance(value, str) else value
        if not labels:
            raise DataError("no labels, where one for each word was expected.")
        encode, unknown = self.encoder.encode, self.allow_unknown
        return [encode(label, allow_unknown=unknown) for label in labels]

    def decode(self, ids: Iterable[int]) -> list[str | None]:
        """Returns the labels; None where one is unknown."""
        known = (int(i) for i in ids)
        return [self.encoder.decode(i) if i >= 0 else None for i in known if i != IGNORED]

    def decode_graph(self, name: str, outputs: Mapping[str, str], graph: Graph) -> GraphOutput:
        """Returns the tags, "" at padding.  [B, W] string."""
        tags = _named_in_graph(graph, self.labels, outputs[f"{name}.numbers"])
        if mask := outputs.get(f"{name}.mask"):
            tags = graph.add("Where", mask, tags, [""])
        return tags, "string", ("words",)

    def output_spec(self, name: str, features: Features) -> OutputSpec:
        """Returns the labels, and the field of the words."""
        return OutputSpec(name, "tags", self.labels, of=features.sources[self.of])

    def table_cells(self, record: Mapping[str, Any]) -> list[Any]:
        """Returns the cells of `table_columns`."""
        return super().table_cells({**record, "tagged": tagged(record["words"], record["value"])})

    def table_value(self, value: Any) -> Any:
        """Returns tags separated by spaces, unless a label contains one."""
        if isinstance(value, str) or value is None or self._has_spaces:
            return value
        return " ".join(tag or "?" for tag in value)

    def line(self, value: Any) -> str | None:
        """Returns tags separated by spaces, unless a label contains one."""
        return None if self._has_spaces else " ".join(value)

    def console_lines(self, record: Mapping[str, Any]) -> list[str]:
        """Returns the words with their tags, and a line for each span that the tags mark."""
        spans = [f"  {span['kind']}: {span['text']}" for span in record.get("spans", [])]
        return [tagged(record["words"], record["value"]), *spans]

    @property
    def label_metrics(self) -> tuple[str, ...]:
        """Metrics of each label, or of each kind of span where tags mark spans."""
        if scheme_of(self.labels).letters:
            return tuple(f"span_{name}" for name in _PER_LABEL)
        return _PER_LABEL

    @property
    def _has_spaces(self) -> bool:
        return any(" " in label for label in self.labels)


def tagged(words: Sequence[str], tags: Sequence[str | None]) -> str:
    """Returns words with their tags, as in "to/O new/B-city york/I-city"."""
    return " ".join(f"{word}/{tag or '?'}" for word, tag in zip(words, tags, strict=True))


# The part of a text that answers a question.


NO_SPAN = -1
"""What stands for both ends where the text has no answer."""


@dataclass(frozen=True)
class Span(Feature):
    """Indices of the first and the last word of an answer; `[B, 2]` in a batch.

    Attributes:
      of: name of the feature of words.
    """

    selects_words: ClassVar[bool] = True
    arrow_type: ClassVar[str] = "list<int32>"
    shape: ClassVar[tuple[int | None, ...]] = (2,)
    text_scores: ClassVar[tuple[str, ...]] = ("squad_exact_match", "squad_f1")

    of: str = "context"

    def encode(self, value: Any) -> list[int]:
        """Returns (first, last) unchanged, or `NO_SPAN` twice for None.

        Raises:
          DataError: the last word is before the first.
        """
        if value is None:
            return [NO_SPAN, NO_SPAN]
        first, last = (int(place) for place in value)
        if not 0 <= first <= last:
            raise DataError(f"{value!r} is no span: first and last word, from 0, were expected.")
        return [first, last]

    def decode(self, ids: Iterable[int]) -> tuple[int, int] | None:
        """Returns (first, last); None if there is no answer."""
        first, last = (int(place) for place in ids)
        return None if first == NO_SPAN else (first, last)

    @property
    def refers_to(self) -> str:
        """The feature of words."""
        return self.of

    def output_spec(self, name: str, features: Features) -> OutputSpec:
        """Returns the field of the text."""
        return OutputSpec(name, "span", of=features.sources[self.of])

    def line(self, value: Any) -> str:
        """Returns the value as it is, on one line."""
        return " ".join(str(value).splitlines())

    def describe(self, name: str, features: Features, row: Row, limit: int) -> str:
        """Returns the words of the span, with their indices."""
        place = self.decode(row[name])
        if place is None:
            return "(no answer)"
        first, last = place
        numbers = f"word {first}" if first == last else f"words {first} to {last}"
        words = features.all[self.of].decode(row[self.of]) if self.of in features.all else None
        if not isinstance(words, list):
            return numbers
        return f"{' '.join(words[first : last + 1])}  ({numbers} of {self.of})"


# Query and document indices of an example.


@dataclass(frozen=True)
class Place(Feature):
    """Indices of a query and of one of its documents, both from 0; `[B, 2]` in a batch.

    An annotation that metrics use to group the documents of a query across batches.

    Attributes:
      queries: maximum number of queries of a split.
      documents: maximum number of documents of a query.
    """

    arrow_type: ClassVar[str] = "list<int32>"
    shape: ClassVar[tuple[int | None, ...]] = (2,)
    source: ClassVar[str] = "place"

    queries: int
    documents: int

    def encode(self, value: Any) -> list[int]:
        """Returns both numbers.

        Raises:
          DataError: there are more queries or documents than the maximum.
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
