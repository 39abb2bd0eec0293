"""A kind of feature of your own, in one file: calendar dates, read and predicted.

    t2t-datagen --t2t_usr_dir=examples/my_usr_dir --problem=invoice_due_date --data_dir=data
    t2t-trainer --t2t_usr_dir=examples/my_usr_dir --problem=invoice_due_date --data_dir=data \
        --model=transformer_encoder --hparams_set=encoder_due_date --output_dir=run

`Date` is the feature, `DateModality` embeds and predicts it, `days_off` measures it.
docs/how_to/add_a_feature.md explains the parts.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.export import GraphOutput, decode_graph, encode_graph
from t2t_torch.features import ClassLabel, Feature, Features, InputSpec, Text
from t2t_torch.hparam import HParams
from t2t_torch.loss import Loss
from t2t_torch.metrics.metric import Metric, quotient, sums_of
from t2t_torch.modality import BatchPrediction, Modality
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.registry import register_hparams, register_metric, register_problem
from t2t_torch.reports import summarize
from t2t_torch.text.encoder import ByteEncoder

_MONTHS_AND_DAYS = (
    "(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|1[0-9]|2[0-9])"
)
_MONTHS, _DAYS = 12, 31
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # days of the months


@dataclass(frozen=True)
class Date(Feature):
    """A calendar date, in JSON "2026-11-23"; year, month and day, `[B, 3]` in a batch.

    Attributes:
      first_year: the earliest year.
      last_year: the latest year.
    """

    first_year: int = 2000
    last_year: int = 2050

    # The kind of target whose place a date can take in a model: one prediction for an example.
    produced_like: ClassVar[type[Feature]] = ClassLabel

    @property
    def arrow_type(self) -> str:
        """A list of 32-bit integers."""
        return "list<int32>"

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Year, month, day."""
        return (3,)

    def encode(self, value: Any) -> list[int]:
        """Returns year, month and day of a `date` or an ISO 8601 string.

        Raises:
          DataError: it is no date, or the year is out of range.
        """
        try:
            date = value if isinstance(value, datetime.date) else _parsed(value)
        except (TypeError, ValueError):
            raise DataError(
                f"{value!r} is no date: expected year, month and day as in 2026-11-23."
            ) from None
        if not self.first_year <= date.year <= self.last_year:
            raise DataError(
                f"{value!r} is not between {self.first_year} and {self.last_year}. Give the "
                "problem's Date other years, then t2t-datagen --overwrite."
            )
        return [date.year, date.month, date.day]

    def decode(self, ids: Iterable[Any]) -> str:
        """Returns the date as ISO 8601."""
        year, month, day = map(int, ids)
        return f"{year:04}-{month:02}-{day:02}"

    # JSON: a date is given as a text; what it answers is a value of a kind of its own.

    def input_spec(self, name: str, features: Features) -> InputSpec:
        """Returns a text."""
        return InputSpec(name, "text")

    def example(self, *, as_list: bool) -> str:
        """Returns a date."""
        return f"{self.last_year:04}-01-31"


# The data report.


@summarize.register
def summarize_dates(feature: Date, rows: Iterable[Any]) -> dict[str, float | str]:
    """Returns the earliest and the latest date, and the share of weekends."""
    dates = sorted(feature.decode(row) for row in rows)
    weekends = sum(datetime.date.fromisoformat(one).weekday() > 4 for one in dates)
    return {"earliest": dates[0], "latest": dates[-1], "weekends": weekends / len(dates)}


# Export: the same as `encode` and `decode`, as operators of an ONNX graph.


@encode_graph.register(Date)
def encode_date(feature: Date, name: str, inputs: Any) -> Any:
    """Adds the input, a string, and the operators that split it into year, month and day."""
    graph, texts = inputs.graph, inputs.input(name, "string", [])
    first, last = feature.first_year, feature.last_year
    years = "|".join(map(str, range(first, last + 1)))
    is_date = texts.RegexFullMatch(pattern=f"({years})-({_MONTHS_AND_DAYS})")
    message = f"{name}: no date from {first} to {last} such as 2026-11-23"
    texts = graph.require(is_date.all(), message, texts)
    parts, _ = graph.several(2, "StringSplit", texts, delimiter="-")
    return parts.integers().Reshape([-1, 3])


@decode_graph.register(Date)
def decode_date(feature: Date, name: str, outputs: Mapping[str, Any], graph: Any) -> GraphOutput:
    """Adds the operators that join the names of year, month and day."""
    years = [f"{year:04}-" for year in range(feature.first_year, feature.last_year + 1)]
    months = [f"{month:02}-" for month in range(1, _MONTHS + 1)]
    days = [f"{day:02}" for day in range(1, _DAYS + 1)]
    numbers, parts = outputs[f"{name}.numbers"], []
    for place, (names, first) in enumerate(((years, feature.first_year), (months, 1), (days, 1))):
        number = numbers.Gather(place, axis=1) - first
        parts.append(graph.constant(names).Gather(number))
    return parts[0].StringConcat(parts[1]).StringConcat(parts[2]), "string", ()


def _parsed(value: str) -> datetime.date:
    date = datetime.date.fromisoformat(value)
    if date.isoformat() != value:  # newer Pythons also read 20261123
        raise ValueError
    return date


class DateModality(Modality):
    """Dates: one vector in, `[B, 1, H]`; distributions of year, month and day out.

    The loss is the sum of three cross entropies.

    Args:
      feature: the years.
      hparams: hidden_size.
      is_target: whether it is predicted.
    """

    serves = Date
    loss_reads = ()

    def __init__(self, feature: Date, hparams: HParams, *, is_target: bool) -> None:
        super().__init__()
        self.first_year = feature.first_year
        self.sizes = [feature.last_year - feature.first_year + 1, _MONTHS, _DAYS]
        self.bottom = None if is_target else DateEmbedding(feature, self.sizes, hparams.hidden_size)
        if is_target:
            self.top = nn.Linear(hparams.hidden_size, sum(self.sizes))

    @classmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> DateModality:
        """Makes it for an input or a target."""
        return cls(feature, hparams, is_target=is_target)

    def mask(self, values: Tensor) -> Tensor:
        """Returns True for each example.  [B, 3] -> [B, 1] bool."""
        return torch.ones(values.size(0), 1, dtype=torch.bool, device=values.device)

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Loss:
        """Returns the cross entropy of year, month and day; see `Modality.loss`."""
        counted = self.item_weights(targets, weights)
        indices = (targets - targets.new_tensor([self.first_year, 1, 1])).long()
        parts = logits.float().split(self.sizes, -1)
        losses = [
            nn.functional.cross_entropy(part, indices[:, place], reduction="none")
            for place, part in enumerate(parts)
        ]
        return Loss((torch.stack(losses).sum(0) * counted).sum(), counted.sum())

    def predict(self, logits: Tensor) -> BatchPrediction:
        """Returns the most probable year, month and day that make a date, with its probability."""
        years, months, days = (part.softmax(-1) for part in logits.float().split(self.sizes, -1))
        year, month = years.argmax(-1) + self.first_year, months.argmax(-1)
        leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0)) & (month == 1)
        length = torch.tensor(_LENGTHS, device=logits.device)[month] + leap.long()
        exists = torch.arange(_DAYS, device=logits.device) < length[:, None]
        chance, day = days.masked_fill(~exists, -1.0).max(-1)
        probability = years.amax(-1) * months.amax(-1) * chance
        return BatchPrediction(torch.stack([year, month + 1, day + 1], -1), probability)


class DateEmbedding(nn.Module):
    """The sum of the vectors of year, month and day.

    Args:
      feature: the years.
      sizes: numbers of years, months and days.
      hidden_size: H.
    """

    def __init__(self, feature: Date, sizes: Sequence[int], hidden_size: int) -> None:
        super().__init__()
        self.first_year = feature.first_year
        self.tables = nn.ModuleList(nn.Embedding(size, hidden_size) for size in sizes)

    def forward(self, dates: Tensor) -> Tensor:
        """[B, 3] -> [B, 1, H]."""
        indices = (dates.long() - torch.tensor([self.first_year, 1, 1], device=dates.device)).T
        vectors = [table(index) for table, index in zip(self.tables, indices, strict=True)]
        return torch.stack(vectors).sum(0)[:, None]


@register_metric("days_off")
class DaysOff(Metric):
    """The mean distance of predicted and right dates in days."""

    of = (Date,)
    lower_is_better = True

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the sum of the distances and the number of examples."""
        feature: Any = self.feature
        modality = DateModality(feature, HParams(hidden_size=1), is_target=True)
        found = modality.predict(logits).numbers
        off = (_day_numbers(found) - _day_numbers(targets)).abs().sum()
        return sums_of(off, off.new_tensor(len(targets)))

    def result(self, sums: Tensor) -> float:
        """Returns the mean."""
        return quotient(sums)


def _day_numbers(dates: Tensor) -> Tensor:
    """Returns the number of each date since a fixed one.  [B, 3] -> [B]."""
    rows: list[list[int]] = dates.tolist()
    return torch.tensor([float(datetime.date(*row).toordinal()) for row in rows])


_TERMS = {
    "due on receipt": 0,
    "within 7 days": 7,
    "payable in two weeks": 14,
    "net 30 days": 30,
    "30 days net": 30,
    "60 days end of contract": 60,
}


@register_problem
class InvoiceDueDate(Problem):
    """When an invoice is due, given its date and its terms of payment.

    Attributes:
      num_samples: of each split.
    """

    metrics = ("days_off",)
    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1}
    num_samples: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 20_000, Split.EVAL: 500}
    suggested_flags = "--model=transformer_encoder --hparams_set=encoder_due_date"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields synthetic invoices; `tmp_dir` is not read."""
        draw = random.Random(f"{self.name} {split.value}")
        for _ in range(self.num_samples[split]):
            date = datetime.date(2024, 1, 1) + datetime.timedelta(draw.randrange(1000))
            terms = draw.choice(list(_TERMS))
            due = date + datetime.timedelta(_TERMS[terms])
            yield {"inputs": terms, "date": date.isoformat(), "targets": due.isoformat()}

    def stored_features(self, directory: Path) -> Features:
        """Returns the terms, the invoice's date, and the date when it is due."""
        date = Date(2024, 2027)
        return Features({"inputs": Text(ByteEncoder()), "date": date}, {"targets": date})


@register_hparams
def encoder_due_date() -> HParams:
    """A small Transformer encoder."""
    return registry.hparams("transformer_encoder_small").replace(
        hidden_size=64, filter_size=256, num_hidden_layers=1, batch_size=256
    )
