"""Verification of an artifact against its model, row by row."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch

from t2t_torch.data.shards import Shards
from t2t_torch.errors import DataError, ExportError
from t2t_torch.export.answers import span_targets
from t2t_torch.features import (
    Audio,
    Feature,
    Features,
    Gazetteer,
    Image,
    Real,
    Text,
    WordLabel,
    WordReal,
)
from t2t_torch.features.feature import find_alignments, select_texts
from t2t_torch.features.real import scale
from t2t_torch.features.text import words_of
from t2t_torch.features.word import UNKNOWN_LABEL, OfWords
from t2t_torch.modalities.label import MAX_WORDS
from t2t_torch.mode import Split
from t2t_torch.pipeline.reader import LengthLimits, restore
from t2t_torch.problem import Problem
from t2t_torch.problem_types.words import SpanQAProblem, tokens_of
from t2t_torch.reports.column_statistics import StoredColumn
from t2t_torch.runtime.prediction import Prediction
from t2t_torch.text.encoder import NUM_RESERVED

if TYPE_CHECKING:
    from t2t_torch.decode.label_predictor import LabelPredictor
    from t2t_torch.decode.predictor import Predictor
    from t2t_torch.export.quantization import Times
    from t2t_torch.runtime.signature import Signature


TIE = 1e-4
"""Tolerance of log-probabilities (nats): sums of rounded numbers differ by as much."""


def is_a_tie(
    predictor: LabelPredictor, sample: Mapping[str, Any], expected: Prediction, actual: Prediction
) -> bool:
    """Returns True if predictions differ only in spans that are equally probable to the model.

    Repetitive texts and overlapping windows of a text have such spans.

    Args:
      predictor: predictor of the model.
      sample: the input.
      expected: prediction of the model.
      actual: prediction to compare.
    """
    if not isinstance(predictor.problem, SpanQAProblem):
        return False
    differing = [name for name, value in expected.values.items() if value != actual.values[name]]
    if not set(differing) <= set(span_targets(predictor.features)):
        return False
    for name in differing:
        one, other = expected.values[name], actual.values[name]
        chances = _best_spans(predictor, predictor.problem, name, sample)
        if not {one, other} <= chances.keys():
            return False
        if one and other and abs(chances[one] - chances[other]) > TIE:
            return False
        if abs(math.exp(chances[other]) - actual.probabilities[name]) > TIE:
            return False
    return True


def _best_spans(
    predictor: LabelPredictor, problem: SpanQAProblem, name: str, sample: Mapping[str, Any]
) -> dict[str, float]:
    """Returns the answers that the model can return, with their log-probabilities; "" is none.

    They are the spans that are the best of a window of the text, but for `TIE`.
    """
    with torch.inference_mode():
        logits = predictor.model.logits(predictor.batch_of([sample]))[name]
        chances = logits.float().log_softmax(1)  # of first and last words, [windows, 1 + W, 2]
    first, last = chances.unbind(-1)
    none = first[:, 0] + last[:, 0]
    scores = first[:, 1:, None] + last[:, None, 1:]
    allowed = torch.ones(scores.shape[1:], dtype=torch.bool).triu().tril(MAX_WORDS - 1)
    scores = scores.masked_fill(~allowed, -math.inf)
    best = scores.amax((1, 2))
    spans = scores >= (torch.maximum(best, none) - TIE)[:, None, None]
    context, tokens = sample["context"], tokens_of(sample["context"])
    found: dict[str, float] = {}
    for window, *places in spans.nonzero().tolist():
        start, end = (window * problem.context_stride + place for place in places)
        if end < len(tokens):
            text = context[tokens[start].start : tokens[end].end]
            found[text] = max(found.get(text, -math.inf), float(scores[window, *places]))
    if bool((best <= none + TIE).all()):
        found[""] = float(none.min())
    return found


def text_of(feature: Any, numbers: Sequence[int]) -> str:
    """Returns words as a text that `problem_types.words.tokens_of` splits into the same number.

    The symbol for unknown words would be split into several, so it is replaced with different words
    that are not in the vocabulary.

    Args:
      feature: feature of words.
      numbers: ids of the words.
    """
    words, encoder = feature.decode(numbers), feature.encoder
    known = set(getattr(encoder, "tokens", ()))
    signs = {encoder.decode([number]) for number in encoder.unknown_ids}
    for place, word in enumerate(words):
        if word in signs:
            words[place] = next(
                name for i in range(len(known) + 1) if (name := f"w{place}w{i}") not in known
            )
    return " ".join(words)


TOLERANCE = 1e-4
"""Tolerance of scores; of numbers relative to magnitude or standard deviation, at least 1."""

MOST_TIES = 0.05
"""Maximum fraction of rows with ties: rounding changes a few."""

_RANDOM_ROWS = 100  # without data
_SHORTEST_TEXT = 3  # tokens of a random text
_LONG = 300  # words of the longest synthetic text, unless the model's limit is lower
_LONGEST = 2_500

_ODD = {
    "an empty text": "",
    "white space alone": " \t \r\n ",
    "an emoji": "😀",
    "emojis and accents": "😀 👍🏽 👩‍👩‍👧 nai\u0308ve Ünïcödé ß İstanbul ǅ ﬁ ΣΑΣ",
    "scripts": "日本語 שלום עולם привет 한국어 हिन्दी ٣٤ ０１ Ⅳ ½ ²",
    "signs": "don't (3.14, 1,000) x_y <br /> \\n C++ #tag @me http://a.b/c?d=e&f \"q\" 'tis it's’",
    "spaces of all kinds": "a\u00a0b \u2003c\u3000 d\te\u200bf \x0b g\x0ch \x85i \u2028j \x1ck",
    "a word of 300 letters": "a" * 300,
}


class RowSource(NamedTuple):
    """Specification for which rows are created, if not a `LabelPredictor`.

    Attributes:
      problem: the problem of the rows.
      features: the features of the problem.
      kinds: a feature for each field of an input, by field.
      limits: the lengths to which inputs are truncated.
    """

    problem: Problem
    features: Features
    kinds: Mapping[str, Feature]
    limits: LengthLimits


_SHOWN = 1000  # greatest number of characters of a text in a message


class VerificationRow(NamedTuple):
    """An input for the comparison of model and artifact.

    Attributes:
      name: name in messages: "row 17 of the dev split".
      sample: values by field.
      number: index in the split; -1 for a synthetic input.
    """

    name: str
    sample: Mapping[str, Any]
    number: int = -1

    @property
    def shown(self) -> str:
        """The sample as JSON, for messages; long values, such as sounds, are cut."""
        cut = {
            name: f"{value[:_SHOWN]}..."
            if isinstance(value, str) and len(value) > _SHOWN
            else value
            for name, value in self.sample.items()
        }
        return json.dumps(cut, ensure_ascii=False)


_EXAMPLES = 20  # number of examples of an artifact
_ODD_EXAMPLES = 5  # number of synthetic ones among them


class Verified(NamedTuple):
    """Result of the comparison of an artifact with its model.

    Attributes:
      rows: the inputs.
      answers: predictions of the artifact by row index; without rows that both reject.
      difference: maximum difference of a score.
      ties: number of rows with different texts or spans of equal scores.
      attention: maximum difference of an attention weight; None without attention.
      looks: number of words with a different alignment because of equal attention weights.
      metrics: metrics on the rows of the data, before and after quantization.
      times: seconds before and after quantization; None without quantization.
    """

    rows: Sequence[VerificationRow]
    answers: Mapping[int, Any]
    difference: float
    ties: int = 0
    attention: float | None = None
    looks: int = 0
    metrics: Mapping[str, tuple[float, float]] = {}
    times: Times | None = None

    def examples(self) -> list[dict[str, Any]]:
        """Returns some inputs with their predictions."""
        odd = [place for place in self.answers if self.rows[place].number < 0][:_ODD_EXAMPLES]
        usual = [place for place in self.answers if self.rows[place].number >= 0]
        return [
            {"input": self.rows[place].sample, "answer": dataclasses.asdict(self.answers[place])}
            for place in (*usual[: _EXAMPLES - len(odd)], *odd)
        ]

    def lines(self, signature: Signature) -> list[str]:
        """Returns the lines that the command prints."""
        rows = len(self.rows)
        own = sum(row.number >= 0 for row in self.rows)
        lines = [
            f"  verified  {rows} rows ({own} of the dev split, {rows - own} synthetic), each alone "
            f"and with the others: the same values, scores within {self.difference:.1e}"
        ]
        if self.ties:
            lines.append(f"            {self.ties} of them other texts of equal scores")
        if self.attention is not None:
            ties = f", but of {self.looks} words of equal weights" if self.looks else ""
            lines.append(
                f"            the same alignments{ties}, attention within {self.attention:.1e}"
            )
        label = f"  {signature.quantized:10}"
        for name, (before, after) in self.metrics.items():
            lines.append(f"{label}{name} {before:.4f} -> {after:.4f}")
        if self.times is not None:
            before, after = (seconds / own * 1e3 for seconds in self.times)
            lines.append(
                f"{label}{before:.2f} -> {after:.2f} ms an input, one at a time, one thread"
            )
        return lines


def rows_of(
    predictor: LabelPredictor | RowSource,
    data_dir: Path | None,
    count: int,
    split: Split = Split.EVAL,
) -> list[VerificationRow]:
    """Returns rows spread evenly over a split as inputs, followed by synthetic ones.

    Stored ids are decoded to text, so unknown words appear as the vocabulary's symbol for them.
    Without data all rows are synthetic, with texts of random entries of the vocabulary.

    Args:
      predictor: specification of the inputs.
      data_dir: folder of the generated data; None if there is none.
      count: maximum number of rows.
      split: the split.

    Raises:
      DataError: there is no such data, or it has no rows.
    """
    if data_dir is None:
        rows = [_random_row(predictor, number) for number in range(min(count, _RANDOM_ROWS))]
        return [*rows, *_odd_rows(predictor, rows[0].sample)]
    shards = Shards.open(data_dir, predictor.problem.dataset_name, split)
    total = shards.num_rows
    if not total:
        raise DataError(f"the {split.value} split of {predictor.problem.full_name} has no rows.")
    numbers = np.unique(np.linspace(0, total - 1, min(count, total)).astype(int)).tolist()
    features = predictor.features
    names = {
        field: next(name for name, one in features.all.items() if one is kind)
        for field, kind in predictor.kinds.items()
    }
    columns = {
        name: stored(shards, features.columns[name], numbers)
        for name in dict.fromkeys((*names.values(), *features.given))
    }
    # Spans refer to the raw text, which the problem itself splits into words.
    whole = bool(span_targets(features))
    texts = select_texts(predictor.kinds)
    rows = []
    for place, number in enumerate(numbers):
        row = {name: values[place] for name, values in columns.items()}
        sample = {}
        for field, feature in predictor.kinds.items():
            value = restore(feature, names[field], features, row)
            if whole and field in texts and isinstance(value, list):
                value = text_of(feature, row[names[field]])
            sample[field] = value
        rows.append(VerificationRow(f"row {number} of the {split.value} split", sample, number))
    return [*rows, *_odd_rows(predictor, rows[0].sample)]


def _random_row(predictor: LabelPredictor | RowSource, number: int) -> VerificationRow:
    """Returns an input of random texts, and of examples of other values."""
    rng = np.random.default_rng(number)
    sample = {name: random_value(kind, number, rng) for name, kind in predictor.kinds.items()}
    texts = {name: _text(sample[name]) for name in select_texts(predictor.kinds)}
    return VerificationRow(
        f"random row {number}", {**sample, **_of_words(predictor, sample, texts)}
    )


@functools.singledispatch
def random_value(feature: Feature, number: int, rng: np.random.Generator) -> Any:
    """Returns a value of a feature: an unusual one, if it has any, or its example.

    Args:
      feature: the feature.
      number: number of the row.
      rng: source of random numbers.
    """
    unusual = list(unusual_values(feature).values())
    return unusual[number % len(unusual)] if unusual else feature.example(as_list=True)


@random_value.register(Text)
def _random_text(feature: Text, number: int, rng: np.random.Generator) -> str:
    size = _SHORTEST_TEXT + number % 20
    ids = rng.integers(NUM_RESERVED, feature.vocab_size, size=size).tolist()
    value = feature.decode(ids)
    text = value if isinstance(value, str) else text_of(feature, ids)
    return "".join(letter for letter in text if letter.isprintable())


@random_value.register(Real)
def _random_numbers(feature: Real, number: int, rng: np.random.Generator) -> Any:
    return rng.random(feature.size).tolist() if feature.size > 1 else feature.example(as_list=True)


random_value.register(OfWords, lambda feature, number, rng: feature.example(as_list=True))


@functools.singledispatch
def unusual_values(feature: Feature) -> dict[str, Any]:
    """Returns edge cases by description, with which exported graphs are tested.

    For a feature with an entry for each word they are values of one word.
    """
    return {}


@unusual_values.register(Image)
def _unusual_images(feature: Image) -> dict[str, Any]:
    named = {"a dark picture": 0, "a bright picture": 255}
    shape = feature.height, feature.width, feature.channels
    return {name: np.full(shape, pixel).tolist() for name, pixel in named.items()}


@unusual_values.register(Audio)
def _unusual_sounds(feature: Audio) -> dict[str, Any]:
    return {
        "a very short sound": [0.5, -0.5],
        "silence": [0.0] * (feature.samples_per_frame + 1),
        "a loud sound": [1.0, -1.0] * feature.samples_per_frame,
    }


unusual_values.register(WordLabel, lambda feature: {"unknown": UNKNOWN_LABEL})


@unusual_values.register(WordReal)
def _unusual_word_numbers(feature: WordReal) -> dict[str, Any]:
    signs = [-1e4 * (-1) ** place for place in range(feature.size)]
    return {"zeros": [0.0] * feature.size, "large": signs}


@unusual_values.register(Gazetteer)
def _unusual_entries(feature: Gazetteer) -> dict[str, Any]:
    labels = feature.encoder.labels
    return {
        "alike": dict.fromkeys([UNKNOWN_LABEL, *reversed(labels[: feature.width + 2])], 0.5),
        "none": {},
        "unknown": {UNKNOWN_LABEL: 1.0},
        "signs": {labels[-1]: -2.0, labels[0]: 0.0},
    }


def stored(shards: Shards, column: str, numbers: Sequence[int]) -> list[Any]:
    """Returns the stored numbers of rows of a column."""
    rows = StoredColumn(shards.column(column))
    return [rows.row(number) for number in numbers]


def _odd_rows(
    predictor: LabelPredictor | RowSource, sample: Mapping[str, Any]
) -> Iterator[VerificationRow]:
    """Yields inputs with unusual texts, and with variants of the texts of a row."""
    of_words = find_alignments(predictor.kinds)
    for name, kind in predictor.kinds.items():
        for how, value in unusual_values(kind).items() if name not in of_words else ():
            yield VerificationRow(how, {**sample, name: value})
    text_fields = list(select_texts(predictor.kinds))
    if not text_fields:
        return
    usual = {name: _text(sample[name]) for name in text_fields}
    longest = [n for n in predictor.limits.by_feature.values() if n <= _LONGEST]
    sizes = {f"{size} words": size for size in (_LONG, *longest, *(n + 1 for n in longest))}
    texts = {name: dict.fromkeys(text_fields, text) for name, text in _ODD.items()}
    texts["capitals"] = {name: text.upper() for name, text in usual.items()}
    texts["titles"] = {name: text.title() for name, text in usual.items()}
    texts["glued signs"] = {name: text.replace(" ", ",") + "!?" for name, text in usual.items()}
    for how, size in sizes.items():
        words = {name: itertools.cycle(text.split() or ["word"]) for name, text in usual.items()}
        texts[how] = {n: " ".join(itertools.islice(some, size)) for n, some in words.items()}
    for how, of_fields in texts.items():
        yield VerificationRow(
            how, {**sample, **of_fields, **_of_words(predictor, sample, of_fields)}
        )


def _of_words(
    predictor: LabelPredictor | RowSource, sample: Mapping[str, Any], texts: Mapping[str, str]
) -> dict[str, list[Any]]:
    """Returns one label, entry or list of numbers per word: those of a row repeated, with unusual
    ones in between.
    """
    values = {}
    for field, name in find_alignments(predictor.kinds).items():
        of = predictor.features.sources[name]
        tokenizer = predictor.kinds[of].input_spec(of, predictor.features).tokenizer
        count = len(words_of(texts[of], tokenizer))
        several = [*sample[field], *unusual_values(predictor.kinds[field]).values()]
        values[field] = list(itertools.islice(itertools.cycle(several), count))
    return values


def _text(value: Any) -> str:
    return value if isinstance(value, str) else " ".join(value)


class Gap(NamedTuple):
    """The difference between a prediction of an artifact and that of its model.

    Attributes:
      score: maximum difference of a score.
      is_tie: True if the values differ but are equally good.
      weight: maximum difference of an attention weight.
      looks: number of words with a different alignment because of equal attention weights.
    """

    score: float = 0.0
    is_tie: bool = False
    weight: float = 0.0
    looks: int = 0


class Comparison(ABC):
    """Compares the predictions of an artifact with those of its model, row by row.

    Attributes:
      fault: verb phrase for the error of an artifact that rejects an input of the model.
      ties: the same for ties.
      ties_of_data: True if only ties of rows of the data count: synthetic rows are repetitive.
      attends: True if attention is compared, too.
    """

    fault: ClassVar[str]
    ties: ClassVar[str]
    ties_of_data: ClassVar[bool] = False
    attends: bool = False

    @abstractmethod
    def input_of(self, row: VerificationRow) -> Any:
        """Returns the input of a row."""

    @abstractmethod
    def expected(self, rows: Sequence[VerificationRow]) -> Sequence[Prediction | DataError]:
        """Returns the predictions of the model."""

    @abstractmethod
    def gap(self, row: VerificationRow, expected: Prediction, actual: Prediction) -> Gap | str:
        """Returns the difference, or the fault of predictions that differ too much."""

    def check_ties(self, rows: Sequence[VerificationRow], ties: Set[int]) -> None:
        """Raises ExportError if there are too many ties; `ties` are the indices of rows."""
        own = [place for place, row in enumerate(rows) if row.number >= 0 or not self.ties_of_data]
        tied = [place for place in own if place in ties]
        if len(tied) > MOST_TIES * len(own):
            first = rows[tied[0]]
            raise ExportError(
                f"{self.ties} for {len(tied)} of {len(own)} rows, where rounding "
                f"changes a few; the first is {first.name}: {first.shown}. Nothing was written. "
                "Train longer: a model that has learnt nothing has many."
            )

    def describe(self, answer: Prediction | DataError) -> str:
        """Returns a prediction or an error for a message."""
        if isinstance(answer, DataError):
            return f"refused: {getattr(answer, 'why', answer)}"
        if not answer.hypotheses:
            return str(answer)
        texts = "; ".join(f"{one.text!r} ({one.score:.6f})" for one in answer.hypotheses)
        return texts if answer.attention is None else f"{texts}; the first with {answer.attention}"


def verify_rows(comparison: Comparison, artifact: Any, rows: Sequence[VerificationRow]) -> Verified:
    """Compares an artifact with its model: each row alone, and all rows in batches.

    Args:
      comparison: comparison of the two.
      artifact: exported model: object with `predict`, and `attend` if attention is compared.
      rows: the inputs; of a `TextComparison` their samples have one field.

    Raises:
      ExportError: they differ; contains the first such row and both predictions.
    """
    ask = artifact.attend if comparison.attends else artifact.predict
    expected = comparison.expected(rows)
    answers: dict[int, Prediction] = {}
    gaps: dict[int, list[Gap]] = {}

    def compare(place: int, actual: Prediction | DataError, how: str) -> None:
        right = expected[place]
        gap: Gap | str = comparison.fault
        if isinstance(right, DataError) and isinstance(actual, DataError):
            gap = Gap()
        elif isinstance(right, Prediction) and isinstance(actual, Prediction):
            gap = comparison.gap(rows[place], right, actual)
        if isinstance(gap, str):
            raise ExportError(
                f"the artifact does not {gap}, run {how}: {rows[place].name}\n"
                f"  input:    {rows[place].shown}\n"
                f"  model:    {comparison.describe(right)}\n"
                f"  artifact: {comparison.describe(actual)}\n"
                "Nothing was written. This is a fault of the export: please report it with the run."
            )
        gaps.setdefault(place, []).append(gap)

    for place, row in enumerate(rows):
        actual = prediction_of(ask, comparison.input_of(row))
        compare(place, actual, "alone")
        if isinstance(actual, Prediction):
            answers[place] = actual
    together = ask([comparison.input_of(rows[place]) for place in answers])
    for place, actual in zip(answers, together, strict=True):
        compare(place, actual, f"in a batch of {len(answers)}")
    ties = {place for place, row_gaps in gaps.items() if any(gap.is_tie for gap in row_gaps)}
    comparison.check_ties(rows, ties)
    score = max((gap.score for row_gaps in gaps.values() for gap in row_gaps), default=0.0)
    if not comparison.attends:
        return Verified(rows, answers, score, len(ties))
    weight = max((gap.weight for row_gaps in gaps.values() for gap in row_gaps), default=0.0)
    looks = sum(max(gap.looks for gap in row_gaps) for row_gaps in gaps.values())
    plain = {place: dataclasses.replace(one, attention=None) for place, one in answers.items()}
    return Verified(rows, plain, score, len(ties), weight, looks)


def prediction_of(ask: Callable[[list[Any]], Any], value: Any) -> Prediction | DataError:
    """Returns the prediction of one input, or the error with which it is rejected."""
    try:
        (prediction,) = ask([value])
    except DataError as error:
        return error
    return prediction  # type: ignore[no-any-return]


class LabelComparison(Comparison):
    """Compares labels, numbers and text spans.

    Args:
      predictor: the model in float32.
    """

    fault = "answer as the model does"
    ties = "the artifact finds other parts of texts, equally probable,"
    ties_of_data = True

    def __init__(self, predictor: LabelPredictor) -> None:
        self._predictor = predictor
        targets = predictor.features.targets.items()
        self._stds = {name: max(scale(target)[1], default=0.0) for name, target in targets}

    def input_of(self, row: VerificationRow) -> Any:
        """See `Comparison.input_of`."""
        return row.sample

    def expected(self, rows: Sequence[VerificationRow]) -> Sequence[Prediction | DataError]:
        """See `Comparison.expected`."""
        return [prediction_of(self._predictor.predict, row.sample) for row in rows]

    def gap(self, row: VerificationRow, expected: Prediction, actual: Prediction) -> Gap | str:
        """See `Comparison.gap`."""
        is_tie = expected.values != actual.values and is_a_tie(
            self._predictor, row.sample, expected, actual
        )
        gap = _gap(expected, actual, self._stds, spans_tie=is_tie)
        return Gap(gap, is_tie) if gap <= TOLERANCE else self.fault


def _gap(
    expected: Prediction, actual: Prediction, stds: Mapping[str, float], *, spans_tie: bool
) -> float:
    """Returns the maximum difference of a score or number; infinity if other values differ.

    Args:
      expected: prediction of the model.
      actual: prediction of the artifact.
      stds: standard deviations of numbers, by target.
      spans_tie: True if targets with other values are equally probable spans.
    """
    if expected.values.keys() != actual.values.keys():
        return math.inf
    gaps = [0.0]
    tied = set()
    for name, value in expected.values.items():
        if spans_tie and value != actual.values[name]:
            tied.add(name)
        elif not _is_a_tie(name, expected, actual):
            gaps.append(_value_gap(value, actual.values[name], stds.get(name, 0.0)))
    for name in ("probabilities", "scores"):
        parts = getattr(expected, name), getattr(actual, name)
        gaps.append(difference(*({n: part[n] for n in part if n not in tied} for part in parts)))
    return max(gaps)


def _is_a_tie(name: str, expected: Prediction, actual: Prediction) -> bool:
    """Returns True if both predictions have equal scores for both of their labels.

    Only for classes and choices: tags and sets of labels must be equal.
    """
    one, other = expected.values[name], actual.values[name]
    if one == other or not (isinstance(one, str) and isinstance(other, str)):
        return False
    for scores in (expected.scores.get(name), actual.scores.get(name)):
        if not isinstance(scores, Mapping) or not {one, other} <= scores.keys():
            return False
        if not abs(scores[one] - scores[other]) <= TOLERANCE:
            return False
    return True


def _value_gap(expected: Any, actual: Any, std: float) -> float:
    """Returns the difference of numbers, relative to magnitudes above 1; for labels 0 or infinity.

    The rounding error of standardized numbers scales with their standard deviation, also near 0.
    """
    is_numbers = isinstance(expected, list) and expected and isinstance(expected[0], float)
    scale = max(1.0, std, *map(abs, expected)) if is_numbers else 1.0
    return difference(expected, actual) / scale


def difference(expected: Any, actual: Any) -> float:
    """Returns the maximum difference of the floats in lists and mappings.

    It is infinity if anything else differs, or if a difference is not a number.
    """
    if isinstance(expected, Mapping):
        if not isinstance(actual, Mapping) or expected.keys() != actual.keys():
            return math.inf
        expected, actual = list(expected.values()), [actual[name] for name in expected]
    if isinstance(expected, list | tuple):
        if not isinstance(actual, list | tuple) or len(expected) != len(actual):
            return math.inf
        return max(map(difference, expected, actual), default=0.0)
    both = isinstance(expected, float | int) and isinstance(actual, float | int)
    if both and float in (type(expected), type(actual)):
        gap = abs(expected - actual)
        return math.inf if math.isnan(gap) else gap
    return 0.0 if expected == actual else math.inf


SCORE_TIE = 1e-5
"""Relative tolerance of the scores of texts: sums of rounded numbers differ by as much."""

WEIGHT_TIE = 1e-5
"""Tolerance of attention weights: sums of rounded numbers differ by as much."""


class TextComparison(Comparison):
    """Compares texts, their scores, and their attention if it is exported.

    Args:
      predictor: the model in float32.
    """

    fault = "write what the model writes"
    ties = "the artifact writes other texts of equal scores"

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self.attends = bool(predictor.hparams.write_alignments)
        self._aligner = predictor.aligner() if self.attends else None

    def input_of(self, row: VerificationRow) -> str:
        """See `Comparison.input_of`."""
        (text,) = row.sample.values()
        return str(text)

    def expected(self, rows: Sequence[VerificationRow]) -> Sequence[Prediction | DataError]:
        """See `Comparison.expected`."""
        texts, predict = [self.input_of(row) for row in rows], self._predictor.predict
        predictions: Sequence[Prediction | DataError]
        try:
            predictions = [*predict(texts)]
        except DataError:
            predictions = [prediction_of(predict, text) for text in texts]
        return [
            one if isinstance(one, DataError) else self._attended(text, one)
            for text, one in zip(texts, predictions, strict=True)
        ]

    def _attended(self, text: str, prediction: Prediction) -> Prediction:
        """Returns the model's prediction with the attention of the best hypothesis, if exported."""
        if self._aligner is None:
            return prediction
        (ids,) = self._predictor.encode([text])
        return self._aligner.attend(ids, prediction)

    def gap(self, row: VerificationRow, expected: Prediction, actual: Prediction) -> Gap | str:
        """See `Comparison.gap`."""
        pairs = list(zip(expected.hypotheses, actual.hypotheses, strict=False))
        gaps = [abs(e.score - f.score) / max(1.0, abs(e.score)) for e, f in pairs]
        score = math.inf if any(map(math.isnan, gaps)) else max(gaps, default=0.0)
        same = all(e.text == f.text and e.ids == f.ids for e, f in pairs)
        as_many = len(expected.hypotheses) == len(actual.hypotheses)
        if not as_many or score > (TOLERANCE if same else SCORE_TIE):
            return self.fault
        if not self.attends or not same:
            return Gap(score, not same)
        weight, ties = self.attention_gap(self.input_of(row), expected, actual)
        if weight > TOLERANCE:
            return "look where the model looks"
        return Gap(score, False, weight, ties)

    def attention_gap(
        self, text: str, expected: Prediction, actual: Prediction
    ) -> tuple[float, int]:
        """Returns the difference between the artifact's and the model's attention.

        Args:
          text: the input.
          expected: prediction of the model with attention.
          actual: prediction of the artifact with the same texts.

        Returns:
          The maximum difference of a weight, infinity if the words or an alignment differ; and the
          number of words with a different alignment because of equal weights.
        """
        pair = (expected.attention, actual.attention)
        gap, ties = difference(*(one and dataclasses.astuple(one) for one in pair)), 0
        for one, other in zip(expected.hypotheses, actual.hypotheses, strict=True):
            if one.alignment == other.alignment:
                continue
            alone = dataclasses.replace(expected, hypotheses=(one,))
            whole = self._attended(text, alone).attention
            assert whole is not None
            if len(one.alignment) != len(other.alignment):
                return math.inf, ties
            for (i, j), (h, k) in zip(one.alignment, other.alignment, strict=True):
                if j != k or abs(whole.weights[j][i] - whole.weights[j][h]) > WEIGHT_TIE:
                    return math.inf, ties
                ties += i != h
        return gap, ties
