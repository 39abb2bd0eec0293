"""What was found so far is kept, whatever ends the process, and nothing else is taken for it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from t2t_torch.decode.journal import (
    digest,
    digest_of_weights,
    journal_of,
    journal_path,
    journal_record,
    prediction_of,
)
from t2t_torch.errors import DecodeError, UsageError
from t2t_torch.runtime.prediction import Hypothesis, Prediction

MADE_OF = {"beam_size": 4, "inputs": "sha256:00"}


class EndedError(Exception):
    """What ends a decoding."""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out.txt"


def end_after(target: Path, *batches: list[tuple[int, Any]], made_of: Any = MADE_OF) -> None:
    """Leaves the journal of a decoding that was ended after some batches."""
    with pytest.raises(EndedError), journal_of(target, made_of) as journal:
        for batch in batches:
            journal.add(batch)
        raise EndedError


def found_in(target: Path, made_of: Any = MADE_OF) -> dict[int, Any]:
    with pytest.raises(EndedError), journal_of(target, made_of) as journal:
        found = dict(journal.predictions)
        raise EndedError
    return found


def test_what_was_found_is_there_after_an_end_and_gone_after_the_last_one(target: Path) -> None:
    end_after(target, [(2, ["a", 0.1]), (0, ["b\n\ud800", -0.25])], [(1, None)])
    end_after(target, [(3, {"x": [1.5, None]})])
    expected = {2: ["a", 0.1], 0: ["b\n\ud800", -0.25], 1: None, 3: {"x": [1.5, None]}}
    assert found_in(target) == expected
    with journal_of(target, MADE_OF) as journal:
        assert journal.predictions == expected
    assert not list(target.parent.iterdir())


def test_what_has_found_nothing_leaves_nothing_behind(target: Path) -> None:
    end_after(target)
    assert not list(target.parent.iterdir())


@pytest.mark.parametrize("left", [0, 1, -1, "half"])
def test_a_line_that_is_cut_off_is_found_anew(target: Path, left: Any) -> None:
    end_after(target, [(0, "first")])
    path = journal_path(target)
    whole = path.read_bytes()
    end_after(target, [(1, "second")])
    added = path.read_bytes()[len(whole) :]
    path.write_bytes(whole + added[: len(added) // 2 if left == "half" else left])
    assert found_in(target) == {0: "first"}
    end_after(target, [(1, "again")])
    assert found_in(target) == {0: "first", 1: "again"}


def test_a_damaged_line_ends_what_is_read(target: Path) -> None:
    end_after(target, [(0, "first")], [(1, "second")], [(2, "third")])
    path = journal_path(target)
    path.write_bytes(path.read_bytes().replace(b"second", b"sec0nd"))
    assert found_in(target) == {0: "first"}


@pytest.mark.parametrize("content", [b"", b"journal of t2", b"\0" * 100, b"journal of t2t_torch\n"])
def test_what_a_power_cut_leaves_of_a_first_line_is_begun_anew(
    target: Path, content: bytes
) -> None:
    journal_path(target).write_bytes(content)
    end_after(target, [(0, "first")])
    assert found_in(target) == {0: "first"}


@pytest.mark.parametrize("content", [b"my own notes\n", b"\n\n", b"journal of a journey\n"])
def test_a_file_that_is_no_journal_is_left_as_it_is(target: Path, content: bytes) -> None:
    journal_path(target).write_bytes(content)
    with pytest.raises(UsageError, match=r"out\.txt\.part is in the way"):
        found_in(target)
    assert journal_path(target).read_bytes() == content


def test_another_decoding_is_told_and_nothing_of_it_is_taken(target: Path, capsys) -> None:
    end_after(target, [(0, "first")])
    assert found_in(target, {"beam_size": 2, "inputs": "sha256:11", "alpha": 1.0}) == {}
    told = "is of beam_size=4 (now 2), other inputs, alpha=None (now 1.0): all inputs are decoded "
    assert capsys.readouterr().err == f"{journal_path(target)} {told}again\n"


def test_a_part_that_was_decoded_otherwise_is_refused(target: Path) -> None:
    end_after(target, [(0, "first")])
    with (
        pytest.raises(UsageError, match=r"beam_size=4 \(now 2\)\. Give the settings"),
        journal_of(target, {**MADE_OF, "beam_size": 2}, same=True),
    ):
        pass
    assert found_in(target) == {0: "first"}


def test_two_at_once_are_refused_with_the_process_that_is_there(target: Path) -> None:
    with journal_of(target, MADE_OF) as journal:
        journal.add([(0, "first")])
        told = rf"another process \(process {os.getpid()} on .*\) decodes to {target}"
        with pytest.raises(UsageError, match=told), journal_of(target, MADE_OF):
            pass
        journal.add([(1, "second")])
    assert not journal_path(target).exists()


def test_a_link_has_the_journal_of_the_file_it_leads_to(target: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(target)
    assert journal_path(link) == journal_path(target)


def test_a_full_disk_is_told_and_what_was_found_before_is_there(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with (
        pytest.raises(
            DecodeError, match=r"No space left on device\. It holds the predictions for 1 inputs"
        ),
        journal_of(target, MADE_OF) as journal,
    ):
        journal.add([(0, "first")])
        monkeypatch.setattr(os, "fsync", full)
        journal.add([(1, "second")])
    monkeypatch.undo()
    assert found_in(target).items() >= {0: "first"}.items()


def test_a_prediction_is_kept_to_the_last_bit(target: Path) -> None:
    one = Hypothesis("a\tb\u2028", (5, 6), -1.0 / 3.0, repaired=True, alignment=((0, 1), (2, 0)))
    prediction = Prediction.of_texts("targets", (one, Hypothesis("", (), -float("inf"))))
    end_after(target, [(0, journal_record(prediction))])
    assert prediction_of("targets", found_in(target)[0]) == prediction


def test_digests_differ_where_the_values_do() -> None:
    assert digest(["a", "b"]) == digest(iter(["a", "b"])) != digest(["ab"]) != digest(["b", "a"])
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).bfloat16()
    before = digest_of_weights(model)
    assert digest_of_weights(model) == before
    with torch.no_grad():
        model[0].bias[1] += 1.0
    assert digest_of_weights(model) != before


def test_a_file_that_goes_while_it_is_looked_at_is_begun_anew(target: Path, monkeypatch) -> None:
    fstat, path = os.fstat, journal_path(target)
    looked: list[int] = []

    def look(descriptor: int) -> os.stat_result:
        looked.append(1)
        if len(looked) == 1:  # whoever held the lock deletes it just now
            path.unlink()
        return fstat(descriptor)

    monkeypatch.setattr(os, "fstat", look)
    with journal_of(target, MADE_OF) as journal:
        journal.add([(0, "a")])
        assert path.exists()
    assert len(looked) == 2
