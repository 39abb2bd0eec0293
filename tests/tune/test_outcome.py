"""What a search leaves in its folder, and says of it."""

from __future__ import annotations

import dataclasses

import pytest
from planted_search import planted_search

from t2t_torch.errors import T2TError
from t2t_torch.tune.shared_search import trial_directory
from t2t_torch.tune.tuner import check_any_value, write_outcome


@pytest.fixture
def record(tmp_path):
    """A search in a folder; no trial was trained here."""
    search = planted_search(trials=8, axes=2, over=True)
    trials = tuple(
        dataclasses.replace(one, output_dir=trial_directory(tmp_path, one.number))
        for one in search.trials
    )
    return dataclasses.replace(search, output_dir=tmp_path, trials=trials)


def test_the_best_run_is_linked_to_where_it_is_here(record, tmp_path) -> None:
    record.best.output_dir.mkdir(parents=True)
    assert str(tmp_path / "best") in write_outcome(record, lambda trial: "")[-1]
    assert (tmp_path / "best").resolve() == record.best.output_dir
    record.best.output_dir.rmdir()
    line = write_outcome(record, lambda trial: f"there:/{trial}")[-1]
    number = record.best.number
    assert line == f"The best run, trials/{number}, is not here. It was trained in there:/{number}"
    assert not (tmp_path / "best").is_symlink()
    assert "another --output_dir" in write_outcome(record, lambda trial: "")[-1]


def test_a_search_that_has_found_nothing_says_why(record) -> None:
    check_any_value(record)
    errors = ["a", "b", "b", "", "b", "c", "c", "a"]
    trials = tuple(
        dataclasses.replace(one, value=None, state="failed", error=error)
        for one, error in zip(record.trials, errors, strict=True)
    )
    with pytest.raises(T2TError, match=r"3 of 8 ended so: b\n.*trials/1/tuner.log"):
        check_any_value(dataclasses.replace(record, trials=trials))
