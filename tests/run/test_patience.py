"""How long a save that fails is tried again."""

from __future__ import annotations

import threading
import time

import pytest

from t2t_torch.run.storage import RetryPolicy


def pauses(patience):
    return [patience.after(tries) for tries in (1, 2, 3, 4)]


def test_there_are_three_pauses_each_longer_than_the_one_before():
    assert pauses(RetryPolicy(lambda: False)) == [1.0, 5.0, 25.0, None]


def test_after_a_signal_they_are_less_than_five_seconds_in_all():
    hurried = pauses(RetryPolicy(lambda: True))
    assert hurried[2:] == [None, None]
    assert sum(hurried[:2]) < 5


def give_up(patience, signal):
    patience.give_up()


def replace(patience, signal):
    patience.is_replaced = True


def hurry(patience, signal):
    signal.append(15)


@pytest.mark.parametrize(
    ("shorten", "expected"),
    [(give_up, [None] * 4), (replace, [None] * 4), (hurry, [1.0, 3.0, None, None])],
)
def test_a_pause_under_way_ends_when_there_is_a_reason(shorten, expected):
    signal, requested = [], threading.Event()

    def is_hurried():
        result = bool(signal)
        requested.set()
        return result

    patience = RetryPolicy(is_hurried)
    waiting = threading.Thread(target=patience.wait, args=(600.0,))
    waiting.start()
    assert requested.wait(30)  # else the pause might begin after the reason
    shorten(patience, signal)
    waiting.join(30)
    assert not waiting.is_alive()
    assert pauses(patience) == expected


def test_without_a_reason_it_waits_to_its_end():
    start = time.monotonic()
    RetryPolicy(lambda: False).wait(0.25)
    assert time.monotonic() - start >= 0.25


def test_who_is_hurried_already_waits_too():
    start = time.monotonic()
    RetryPolicy(lambda: True).wait(0.25)
    assert time.monotonic() - start >= 0.25
