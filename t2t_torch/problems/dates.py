"""Natural-language dates to ISO 8601: the quickstart problem, generated on the fly."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from t2t_torch.mode import Split
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import Text2TextProblem, VocabType

# Listed here because strftime depends on the locale.
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_NINETEEN_WORDS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"),
    *("tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth"),
    *("seventeenth", "eighteenth", "nineteenth"),
)
_DAY_WORDS = (
    *_NINETEEN_WORDS,
    "twentieth",
    *(f"twenty-{word}" for word in _NINETEEN_WORDS[:9]),
    "thirtieth",
    "thirty-first",
)
_SUFFIXES = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}

_FORMS = (
    "the {word} of {month}, {year}",
    "the {word} of {month} {year}",
    "{weekday}, the {word} of {month}, {year}",
    "the {word} day of {month} in the year {year}",
    "{month} the {word}, {year}",
    "{month} {ordinal}, {year}",
    "{month} {day}, {year}",
    "{month} {day} {year}",
    "{day} {month} {year}",
    "{day:02} {month} {year}",
    "{ordinal} {month} {year}",
    "{ordinal} of {month}, {year}",
    "the {ordinal} of {month}, {year}",
    "{weekday}, {day} {month} {year}",
    "{weekday}, {month} {day}, {year}",
    "{weekday} the {ordinal} of {month}, {year}",
    "{short_weekday} {day} {short_month} {year}",
    "{short_weekday}, {short_month} {ordinal}, {year}",
    "{day}-{short_month}-{year}",
    "{short_month} {day}, {year}",
)


def _written(date: datetime.date, form: str) -> str:
    """Returns the date in one of the known English formats."""
    month, weekday = _MONTHS[date.month - 1], _WEEKDAYS[date.weekday()]
    return form.format(
        year=date.year,
        month=month,
        short_month=month[:3],
        day=date.day,
        ordinal=f"{date.day}{_SUFFIXES.get(date.day, 'th')}",
        word=_DAY_WORDS[date.day - 1],
        weekday=weekday,
        short_weekday=weekday[:3],
    )


@register_problem("dates_to_iso")
class DatesToIso(Text2TextProblem):
    """English dates of 1900 to 2099 to ISO 8601: "the third of May, 2009" to "2009-05-03".

    The splits share no dates: no date in evaluation data is in the training data in any format.

    Attributes:
      forms_per_date: number of formats, of twenty, for each training date.
      num_held_out: number of dates in each of the EVAL and TEST splits, in one format each.
    """

    vocab_type = VocabType.CHARACTER
    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 4, Split.EVAL: 1, Split.TEST: 1}
    first_year: ClassVar[int] = 1900
    last_year: ClassVar[int] = 2099
    forms_per_date: ClassVar[int] = 2
    num_held_out: ClassVar[int] = 1000
    suggested_flags = "--model=transformer --hparams_set=transformer_dates --train_steps=1500"
    setting_names = (
        *Text2TextProblem.setting_names,
        "first_year",
        "last_year",
        "forms_per_date",
        "num_held_out",
    )

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields samples; `tmp_dir` is unused."""
        draw = random.Random(f"{self.name} {split.value}")
        num_forms = self.forms_per_date if split is Split.TRAIN else 1
        for date in self.dates(split):
            for form in draw.sample(_FORMS, num_forms):
                yield {"inputs": _written(date, form), "targets": date.isoformat()}

    def dates(self, split: Split) -> list[datetime.date]:
        """Returns the dates of a split, in random order."""
        first = datetime.date(self.first_year, 1, 1).toordinal()
        last = datetime.date(self.last_year, 12, 31).toordinal()
        dates = [datetime.date.fromordinal(day) for day in range(first, last + 1)]
        random.Random(f"{self.name} split").shuffle(dates)
        start = {Split.EVAL: 0, Split.TEST: 1, Split.TRAIN: 2}[split] * self.num_held_out
        return dates[start:] if split is Split.TRAIN else dates[start : start + self.num_held_out]
