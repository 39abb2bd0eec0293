"""Evaluation passes that all processes make together."""

import threading
from types import SimpleNamespace

import pytest

from t2t_torch.train.task import in_step

SIZE, BATCHES = 2, 10


class Together:
    """Threads that stand for processes: the greatest of what all hand in."""

    def __init__(self):
        self._barrier = threading.Barrier(SIZE, timeout=300)
        self._words = [0] * SIZE

    def of(self, rank):
        def maximum(word):
            self._words[rank] = word
            self._barrier.wait()
            found = max(self._words)
            self._barrier.wait()
            return found

        return SimpleNamespace(maximum=maximum)


class Asked:
    """A signal comes after so many batches."""

    def __init__(self, after):
        self.left = after

    def __bool__(self):
        return self.left <= 0


def passes(batches, signal_after):
    """The passes of each process, (batch, whether it counts)."""
    together, made = Together(), [[] for _ in range(SIZE)]
    run = SimpleNamespace(is_sharded=True)

    def evaluate(rank):
        stop = Asked(signal_after[rank])
        for batch, counts in in_step(range(batches[rank]), run, together.of(rank), stop):
            made[rank].append((batch, counts))
            stop.left -= 1

    threads = [threading.Thread(target=evaluate, args=(rank,)) for rank in range(SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    return made


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_that_one_process_got_ends_the_evaluation_of_all_at_once(rank):
    after = [BATCHES * 2] * SIZE
    after[rank] = 2
    assert list(map(len, passes([BATCHES] * SIZE, after))) == [2, 2]


def test_who_has_fewer_batches_makes_one_again_that_does_not_count():
    one, other = passes([3, 1], [BATCHES] * SIZE)
    assert one == [(0, True), (1, True), (2, True)]
    assert other == [(0, True), (0, False), (0, False)]
