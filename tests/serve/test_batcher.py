"""Requests are put together, and each keeps its own answer and its own fault."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from t2t_torch.errors import DataError
from t2t_torch.runtime.prediction import InputError
from t2t_torch.runtime.session import CancellationToken
from t2t_torch.serve.limits import HTTPError, ServerLimits
from t2t_torch.serve.repository import Batcher, Job, Retired


class Slow:
    """A model that answers texts in capitals, when it may; it notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.begun = threading.Semaphore(0)
        self.may = threading.Semaphore(0)

    def __call__(self, samples: Sequence[Any], stop: CancellationToken) -> list[Any]:
        texts = [sample["inputs"] for sample in samples]
        self.asked.append(texts)
        self.begun.release()
        self.may.acquire(timeout=10)
        for number, text in enumerate(texts):
            if text.startswith("poison"):
                raise InputError(number, f"{text!r} is poison.")
            if text.startswith("odd"):
                raise DataError(f"{text!r} is odd")
            if text.startswith("bug"):
                raise ZeroDivisionError(text)
        return [text.upper() for text in texts]


@pytest.fixture
def model() -> Slow:
    return Slow()


@pytest.fixture
def batcher(model: Slow) -> Iterator[Callable[..., Batcher]]:
    made: list[Batcher] = []

    def start(threads: int = 1, **limits: Any) -> Batcher:
        made.append(
            Batcher(model, ServerLimits(**{"batch_delay_ms": 0.0, **limits}), threads=threads)
        )
        return made[-1]

    yield start
    for _ in range(100):
        model.may.release()
    for one in made:
        one.close()


def submit(batcher: Batcher, *texts: str, ask: Any = None) -> Job:
    return batcher.submit([{"inputs": text} for text in texts], ask)


async def begun(model: Slow) -> None:
    assert await asyncio.to_thread(model.begun.acquire, timeout=10)


async def busy(batcher: Batcher, model: Slow) -> Job:
    """Lets the model begin with a request, so that others come meanwhile."""
    job = submit(batcher, "first")
    await begun(model)
    return job


def test_what_comes_while_the_model_is_busy_is_asked_at_once(batcher, model: Slow) -> None:
    async def run() -> list[Any]:
        queue = batcher()
        jobs = [await busy(queue, model), *(submit(queue, *texts) for texts in ("a", "bc", "d"))]
        assert len(queue) == 3
        model.may.release(2)
        return await asyncio.gather(*(job.answers for job in jobs))

    assert asyncio.run(run()) == [["FIRST"], ["A"], ["B", "C"], ["D"]]
    assert model.asked == [["first"], ["a", "b", "c", "d"]]


@pytest.mark.parametrize(
    ("limits", "batches"),
    [
        ({"max_batch_inputs": 3}, [["a", "b", "c"], ["d", "e f g h i j"]]),
        ({"max_batch_tokens": 4}, [["a", "b", "c", "d"], ["e f g h i j"]]),
        ({"max_batch_tokens": 1}, [["a"], ["b", "c"], ["d"], ["e f g h i j"]]),
    ],
)
def test_a_batch_has_bounds_but_takes_a_request_whole(
    batcher, model: Slow, limits: dict[str, int], batches: list[list[str]]
) -> None:
    async def run() -> None:
        queue = batcher(**limits)
        jobs = [await busy(queue, model)]
        jobs += [submit(queue, *texts) for texts in (["a"], ["b", "c"], ["d"], ["e f g h i j"])]
        model.may.release(9)
        await asyncio.gather(*(job.answers for job in jobs))

    asyncio.run(run())
    assert model.asked[1:] == batches


def test_an_idle_model_is_asked_at_once_and_a_busy_one_waits_for_more(batcher, model: Slow) -> None:
    async def run() -> None:
        queue = batcher(batch_delay_ms=60_000.0, max_batch_inputs=3)
        first = await busy(queue, model)  # it would wait a minute
        model.may.release(9)
        second = submit(queue, "a")
        while not first.answers.done():
            await asyncio.sleep(0)
        third = submit(queue, "b", "c")  # the batch is full
        await asyncio.gather(second.answers, third.answers)

    asyncio.run(run())
    assert model.asked[0] == ["first"]
    assert sorted(text for batch in model.asked[1:] for text in batch) == ["a", "b", "c"]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_poisoned_input_fails_its_own_request_alone(batcher, model: Slow, place: int) -> None:
    async def run() -> list[Any]:
        queue = batcher()
        jobs = [await busy(queue, model)]
        texts = [["a"], ["b", "c"], ["d"]]
        texts.insert(place, ["e", "poison"])
        jobs += [submit(queue, *each) for each in texts]
        model.may.release(9)
        return await asyncio.gather(*(job.answers for job in jobs), return_exceptions=True)

    _, *found = asyncio.run(run())
    error = found.pop(place)
    assert found == [["A"], ["B", "C"], ["D"]]
    assert isinstance(error, InputError)
    assert (error.number, error.why) == (1, "'poison' is poison.")
    assert len(model.asked) == 6  # together, then each by itself


def test_faults_that_tell_no_input_are_found_one_by_one(batcher, model: Slow) -> None:
    async def run() -> list[Any]:
        queue = batcher()
        jobs = [await busy(queue, model)]
        jobs += [submit(queue, text) for text in ("a", "odd", "b", "bug", "poison")]
        model.may.release(99)
        return await asyncio.gather(*(job.answers for job in jobs), return_exceptions=True)

    _, first, odd, second, bug, poison = asyncio.run(run())
    assert (first, second) == (["A"], ["B"])
    assert [type(one) for one in (odd, bug, poison)] == [DataError, ZeroDivisionError, InputError]


def test_bad_requests_cost_the_others_one_more_computation(batcher, model: Slow) -> None:
    async def run() -> list[Any]:
        queue = batcher()
        jobs = [await busy(queue, model)]
        jobs += [submit(queue, text) for number in range(8) for text in ("a", f"poison {number}")]
        model.may.release(99)
        return await asyncio.gather(*(job.answers for job in jobs), return_exceptions=True)

    _, *found = asyncio.run(run())
    assert found[::2] == [["A"]] * 8
    assert all(isinstance(error, InputError) for error in found[1::2])
    assert sum(map(len, model.asked[1:])) == 2 * len(found)


def test_a_full_queue_refuses_and_dropped_requests_make_room(batcher, model: Slow) -> None:
    async def run() -> None:
        queue = batcher(max_queue=2)
        await busy(queue, model)
        dropped, kept = submit(queue, "a"), submit(queue, "b")
        with pytest.raises(HTTPError, match=r"2 requests wait for this model") as refused:
            submit(queue, "c")
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
        dropped.drop()
        last = submit(queue, "d")
        model.may.release(9)
        assert await asyncio.gather(kept.answers, last.answers) == [["B"], ["D"]]

    asyncio.run(run())
    assert model.asked == [["first"], ["b", "d"]]


def test_a_closed_batcher_answers_what_waits_and_takes_no_more(batcher, model: Slow) -> None:
    async def run() -> list[Any]:
        queue = batcher(batch_delay_ms=60_000.0)
        jobs = [await busy(queue, model), submit(queue, "a")]
        model.may.release(9)
        await asyncio.to_thread(queue.close)
        with pytest.raises(Retired):
            submit(queue, "b")
        return await asyncio.gather(*(job.answers for job in jobs))

    assert asyncio.run(run()) == [["FIRST"], ["A"]]


def test_batches_are_observed(model: Slow) -> None:
    seen: list[int] = []

    def observe(inputs: int, seconds: float) -> None:
        assert seconds >= 0
        seen.append(inputs)

    queue = Batcher(model, ServerLimits(), observe)
    model.may.release()

    async def run() -> None:
        await submit(queue, "a", "b").answers

    asyncio.run(run())
    queue.close()
    assert seen == [2]


def test_two_threads_compute_two_batches_at_once(batcher, model: Slow) -> None:
    async def run() -> list[Any]:
        queue = batcher(threads=2)
        jobs = [await busy(queue, model), submit(queue, "second")]
        await begun(model)  # though the first is not answered
        jobs += [submit(queue, text) for text in ("a", "b", "poison")]
        assert len(queue) == 3
        model.may.release(9)
        return await asyncio.gather(*(job.answers for job in jobs), return_exceptions=True)

    *found, error = asyncio.run(run())
    assert found == [["FIRST"], ["SECOND"], ["A"], ["B"]]
    assert isinstance(error, InputError)
    assert model.asked[:3] == [["first"], ["second"], ["a", "b", "poison"]]


def test_what_one_thread_waits_for_another_may_take(batcher, model: Slow) -> None:
    async def run() -> list[Any]:
        queue = batcher(threads=2, batch_delay_ms=60_000.0, max_batch_inputs=3)
        jobs = [await busy(queue, model), submit(queue, "second")]
        await begun(model)
        jobs.append(submit(queue, "a"))
        model.may.release(2)  # both are free, and wait for more
        while not all(job.answers.done() for job in jobs[:2]):
            await asyncio.sleep(0)
        jobs.append(submit(queue, "b", "c"))
        await begun(model)
        while not queue._idle:  # the other finds that there is nothing more to wait for
            await asyncio.sleep(0)
        jobs.append(submit(queue, "d"))
        model.may.release(9)
        return await asyncio.gather(*(job.answers for job in jobs))

    assert asyncio.run(run()) == [["FIRST"], ["SECOND"], ["A"], ["B", "C"], ["D"]]
    assert model.asked[2:] == [["a", "b", "c"], ["d"]]


def test_closing_ends_all_threads(batcher, model: Slow) -> None:
    async def run() -> list[Any]:
        queue = batcher(threads=3)
        jobs = [await busy(queue, model), submit(queue, "a")]
        await begun(model)
        model.may.release(9)
        await asyncio.to_thread(queue.close)
        assert not any(thread.is_alive() for thread in queue._threads)
        return await asyncio.gather(*(job.answers for job in jobs))

    assert asyncio.run(run()) == [["FIRST"], ["A"]]


def test_what_asks_something_else_is_asked_together_after_the_others_are_answered(
    batcher, model: Slow
) -> None:
    other = Slow()

    async def run() -> list[Any]:
        queue = batcher()
        jobs = [await busy(queue, model)]
        jobs += [submit(queue, "a", ask=other), submit(queue, "b"), submit(queue, "c", ask=other)]
        model.may.release(2)
        assert await jobs[2].answers == ["B"]
        await begun(other)
        other.may.release()
        return await asyncio.gather(*(job.answers for job in jobs))

    assert asyncio.run(run()) == [["FIRST"], ["A"], ["B"], ["C"]]
    assert (model.asked[1:], other.asked) == ([["b"]], [["a", "c"]])


def test_a_fault_of_what_asks_something_else_is_its_own(batcher, model: Slow) -> None:
    other = Slow()
    other.may.release(9)

    async def run() -> list[Any]:
        queue = batcher()
        jobs = [await busy(queue, model)]
        for text, ask in (("poison", other), ("b", None), ("c", other)):
            jobs.append(submit(queue, text, ask=ask))
        model.may.release(9)
        return await asyncio.gather(*(job.answers for job in jobs), return_exceptions=True)

    _, fault, *found = asyncio.run(run())
    assert isinstance(fault, InputError)
    assert found == [["B"], ["C"]]
    assert other.asked == [["poison", "c"], ["poison"], ["c"]]
    assert model.asked[1:] == [["b"]]


def test_after_a_fault_each_is_answered_when_it_is_done(batcher, model: Slow) -> None:
    async def run() -> None:
        queue = batcher()
        jobs = [await busy(queue, model), submit(queue, "poison"), submit(queue, "a")]
        model.may.release(3)  # of three: the first, both together, "poison"
        with pytest.raises(InputError):
            await jobs[1].answers
        model.may.release()
        assert await jobs[2].answers == ["A"]

    asyncio.run(run())


def test_what_is_dropped_while_others_are_waited_for_is_not_computed(batcher, model: Slow) -> None:
    async def run() -> None:
        queue = batcher(batch_delay_ms=60_000.0, max_batch_inputs=4)
        first = await busy(queue, model)
        gone, kept = submit(queue, "gone", "gone"), submit(queue, "a")
        model.may.release(9)
        await first.answers
        gone.drop()  # the thread waits for a fourth input
        last = submit(queue, "b", "c")
        assert not last.answers.done()
        full = submit(queue, "d")
        await asyncio.gather(*(job.answers for job in (kept, last, full)))

    asyncio.run(run())
    assert model.asked == [["first"], ["a", "b", "c", "d"]]


def test_two_inputs_that_are_longer_than_a_batch_are_not_computed_at_once(
    batcher, model: Slow
) -> None:
    def long(number: int) -> str:
        return f"long{number} of five words and more"

    async def run() -> list[Any]:
        queue = batcher(threads=2, max_batch_tokens=5)
        jobs = [submit(queue, long(0))]
        await begun(model)
        jobs += [submit(queue, long(1)), submit(queue, "short")]
        await begun(model)
        assert model.asked == [[long(0)], ["short"]]
        jobs.append(submit(queue, "next"))
        model.may.release(9)
        return await asyncio.gather(*(job.answers for job in jobs))

    found = asyncio.run(run())
    assert found == [[long(0).upper()], [long(1).upper()], ["SHORT"], ["NEXT"]]


def test_a_closed_batcher_answers_long_inputs_that_wait_for_each_other(
    batcher, model: Slow
) -> None:
    async def run() -> list[Any]:
        queue = batcher(threads=2, max_batch_tokens=1)
        jobs = [submit(queue, "two words")]
        await begun(model)
        jobs += [submit(queue, "three more words"), submit(queue, "four words to come")]
        closing = asyncio.create_task(asyncio.to_thread(queue.close))
        model.may.release(9)
        await closing
        return await asyncio.gather(*(job.answers for job in jobs))

    assert asyncio.run(run()) == [["TWO WORDS"], ["THREE MORE WORDS"], ["FOUR WORDS TO COME"]]
