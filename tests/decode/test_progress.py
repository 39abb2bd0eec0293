"""What is shown while many inputs are decoded."""

from __future__ import annotations

import sys

import pytest

from t2t_torch.decode.outputs import decode_progress


class Clock:
    """Goes on by ten seconds for each input."""

    now = 0.0

    def __call__(self):
        return self.now


def decode(done, total, error=None):
    clock = Clock()
    with decode_progress(total, clock=clock) as advance:
        for _ in range(done):
            clock.now += 10.0
            advance(1)
        if error is not None:
            raise error


def test_without_a_terminal_a_line_every_half_minute_tells_how_far_it_is(capsys):
    decode(7, 1000)
    assert capsys.readouterr().err.splitlines() == [
        "decoded 3 of 1,000 inputs  0.1/s  2:46:10 left",
        "decoded 6 of 1,000 inputs  0.1/s  2:45:40 left",
    ]


def test_what_takes_no_half_minute_says_nothing(capsys):
    decode(2, 2)
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    decode(2, 4)
    assert "| 2/4 [" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError()])
def test_what_is_broken_off_says_that_nothing_is_written(capsys, error):
    with pytest.raises(type(error)):
        decode(2, 5000, error)
    told = "decoding ended after 2 of 5,000 inputs: nothing of it is written\n"
    assert capsys.readouterr().err == told
