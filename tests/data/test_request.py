"""What is said when the data that is there was made with other settings."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from t2t_torch.data.generate import generate_data
from t2t_torch.errors import DataError
from t2t_torch.text.encoder import WordCutter

from .counting import counting

ASKED: list[tuple[dict[str, Any], str]] = [
    ({"max_cases": 60}, "--max_cases=60"),
    ({"on_bad_record": "skip"}, "--on_bad_record=skip"),
    ({"seed": 7, "max_cases": 60}, "--max_cases=60 --random_seed=7"),
]
ARGUMENTS = {"max_cases": "max_cases", "on_bad_record": "on_bad_record", "random_seed": "seed"}


def generate(tmp_path, problem=None, **options):
    where = tmp_path / "data", tmp_path / "raw"
    return generate_data(problem or counting(), *where, progress=False, **options)


@pytest.mark.parametrize(("options", "flags"), ASKED)
def test_the_flags_that_ask_for_what_is_there_are_told(options, flags, tmp_path):
    made = generate(tmp_path, **options)
    with pytest.raises(DataError, match="with other settings") as refused:
        generate(tmp_path)
    told = str(refused.value).partition("Take it as it is, by  ")[2].partition("\n")[0]
    assert sorted(shlex.split(told)) == sorted(flags.split())
    said = dict(flag.removeprefix("--").split("=") for flag in told.split())
    again = {ARGUMENTS[k]: int(v) if v.isdecimal() else v for k, v in said.items()}
    assert generate(tmp_path, **again) == made


def test_the_usual_policy_is_told_where_the_other_is_asked_for(tmp_path):
    generate(tmp_path)
    with pytest.raises(DataError, match=r"by  --on_bad_record=fail\nOr keep it and choose"):
        generate(tmp_path, on_bad_record="skip")


def test_no_flag_is_told_where_the_problem_differs(tmp_path):
    other = counting()
    other.setting_names = ("vocab",)
    generate(tmp_path, max_cases=60)
    with pytest.raises(DataError, match=r"\nKeep it and choose another") as refused:
        generate(tmp_path, other)
    assert "max_cases: there 60" in str(refused.value)
    assert "Take it" not in str(refused.value)


def test_texts_that_were_cut_otherwise_are_refused_with_what_differs(tmp_path):
    made = generate(tmp_path, counting(cutters={"inputs": WordCutter()}))
    assert generate(tmp_path, counting(cutters={"inputs": WordCutter()})) == made
    with pytest.raises(DataError, match="with other settings") as refused:
        generate(tmp_path, counting(cutters={"inputs": WordCutter(splits_glued=True)}))
    assert "\n  cutters.inputs.splits_glued: there False, requested True\n" in str(refused.value)
    with pytest.raises(DataError, match=r"cutters: there \{.*\}, requested None"):
        generate(tmp_path)
