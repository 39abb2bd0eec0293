"""The checks that users run on their own folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from t2t_torch import testing

SHELF = '''
"""Problems of a user."""

from t2t_torch.problem_types.mixture import MixtureProblem
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import Text2SelfProblem, VocabType


@register_problem
class OwnLines(Text2SelfProblem):
    """Lines of a file, and their characters."""

    vocab_type = VocabType.SYMBOL

    def generate_samples(self, tmp_dir, split):
        for line in (tmp_dir / "lines.txt").read_text().splitlines():
            yield {"targets": line}


@register_problem
class OwnMixture(MixtureProblem):
    """The lines alone."""

    problem_names = ("own_lines",)
    mixing_schedule = "step @0 1"
'''


def test_raw_files_stay_as_they_are_and_nothing_is_kept_for_the_next_time(
    tmp_path: Path,
    own_registry: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shelf, raw = tmp_path / "checked_shelf", tmp_path / "raw"
    shelf.mkdir()
    raw.mkdir()
    (shelf / "own_lines.py").write_text(SHELF)
    flags = [f"--t2t_usr_dir={shelf}", f"--tmp_dir={raw}"]
    monkeypatch.setattr(sys, "argv", ["testing", *flags])
    for line in ("abc", "xyz"):  # an alphabet of the first time would not do for the second
        (raw / "lines.txt").write_text(f"{line}\n")
        assert testing.main() == 0
    assert [path.name for path in raw.iterdir()] == ["lines.txt"]
    out = capsys.readouterr().out
    assert out.count("ok      problem own_lines") == out.count("ok      problem own_mixture") == 2
