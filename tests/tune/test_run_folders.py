"""Runs are gone on with by the search that they are of."""

from __future__ import annotations

from t2t_torch.tune.shared_search import claim_runs, trial_directory


def test_runs_of_another_search_are_set_aside(tmp_path) -> None:
    assert claim_runs(tmp_path, "one") is None
    trial_directory(tmp_path, 0).mkdir()
    assert claim_runs(tmp_path, "one") is None
    assert trial_directory(tmp_path, 0).is_dir()
    assert claim_runs(tmp_path, "two") == tmp_path / "trials.before-1"
    assert (tmp_path / "trials.before-1" / "0").is_dir()
    assert not trial_directory(tmp_path, 0).exists()
    assert claim_runs(tmp_path, "three") == tmp_path / "trials.before-2"


def test_runs_without_a_mark_are_those_of_a_search_without_an_id(tmp_path) -> None:
    trial_directory(tmp_path, 3).mkdir(parents=True)
    assert claim_runs(tmp_path, "") is None
    assert trial_directory(tmp_path, 3).is_dir()
    assert claim_runs(tmp_path, "new") is not None
