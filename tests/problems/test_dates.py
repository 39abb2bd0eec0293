from __future__ import annotations

import datetime
from pathlib import Path

from t2t_torch.mode import Split
from t2t_torch.problems.dates import _FORMS, DatesToIso, _written

THIRD_OF_MAY = datetime.date(2009, 5, 3)


def test_a_date_is_written_as_english_speakers_do() -> None:
    forms = {_written(THIRD_OF_MAY, form) for form in _FORMS}
    assert {
        "the third of May, 2009",
        "May 3rd, 2009",
        "3 May 2009",
        "Sunday, 3 May 2009",
        "03 May 2009",
        "Sun 3 May 2009",
        "May the third, 2009",
    } <= forms


def test_each_form_is_written_differently() -> None:
    date = datetime.date(2009, 11, 3)  # neither its month nor its weekday is its own abbreviation
    assert len({_written(date, form) for form in _FORMS}) == len(_FORMS)


def test_days_have_their_words_and_endings() -> None:
    def day(number: int) -> str:
        return _written(datetime.date(1999, 12, number), "{ordinal} {word}")

    assert [day(n) for n in (1, 2, 3, 4, 11, 12, 13)] == [
        *("1st first", "2nd second", "3rd third", "4th fourth"),
        *("11th eleventh", "12th twelfth", "13th thirteenth"),
    ]
    assert [day(n) for n in (20, 21, 22, 23, 30, 31)] == [
        *("20th twentieth", "21st twenty-first", "22nd twenty-second"),
        *("23rd twenty-third", "30th thirtieth", "31st thirty-first"),
    ]


def test_no_date_is_in_two_splits_and_all_are_in_one() -> None:
    train, dev, test = (set(DatesToIso().dates(s)) for s in (Split.TRAIN, Split.EVAL, Split.TEST))
    assert (len(dev), len(test)) == (1000, 1000)
    assert not dev & test
    assert not train & (dev | test)
    everything = train | dev | test
    first, last = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
    assert (min(everything), max(everything)) == (first, last)
    assert len(everything) == (last - first).days + 1


def test_samples_are_the_same_every_time_and_fit_a_byte_model(tmp_path: Path) -> None:
    problem = DatesToIso()
    samples = list(problem.generate_samples(tmp_path, Split.EVAL))
    assert samples == list(problem.generate_samples(tmp_path, Split.EVAL))
    assert {len(sample["targets"]) for sample in samples} == {len("2009-05-03")}
    assert max(len(sample["inputs"]) for sample in samples) <= len(
        "the twenty-seventh day of September in the year 1999"
    )
    assert problem.features(tmp_path).inputs["inputs"].vocab_size == 258


def test_a_training_date_comes_in_two_different_forms(tmp_path: Path) -> None:
    samples = DatesToIso().generate_samples(tmp_path, Split.TRAIN)
    first, second = next(samples), next(samples)
    assert first["targets"] == second["targets"]
    assert first["inputs"] != second["inputs"]
