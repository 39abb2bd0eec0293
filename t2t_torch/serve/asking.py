"""From a request's inputs to answers: limits, the queue, time, and who does not wait any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect, Request

from t2t_torch.artifact.answer import InputError
from t2t_torch.artifact.prediction import Prediction
from t2t_torch.artifact.stop import Stopped
from t2t_torch.errors import T2TError
from t2t_torch.serve.batcher import Job, Retired
from t2t_torch.serve.limits import MOST_WEIGHTS, Limits
from t2t_torch.serve.model import Found, Model, Sample
from t2t_torch.serve.refusal import NO_INPUT, Refusal, unavailable
from t2t_torch.serve.repository import Repository

_TRIES = 3  # a model may be replaced while it is asked, hardly thrice


def check_attention(found: Sequence[Found]) -> None:
    """Raises Refusal if what was found has more attention than a request is told."""
    told = (one.attention for one in found if isinstance(one, Prediction) and one.attention)
    weights = sum(len(one.read) * len(one.written) for one in told)
    if weights > MOST_WEIGHTS:
        raise Refusal(
            NO_INPUT,
            f"the inputs have {weights:,} pairs of a word that is read and one that is written, "
            f"and attention is told of {MOST_WEIGHTS:,} in a request. Ask without attention, or "
            "less at once.",
        )


class Asked(NamedTuple):
    """What was asked, and what was found.

    Attributes:
      model: that has answered.
      samples: as this model reads them.
      found: as many.
    """

    model: Model
    samples: Sequence[Sample]
    found: Sequence[Found]


async def ask(
    request: Request,
    repository: Repository,
    place: tuple[str | None, str | None],
    samples_of: Callable[[Model], Sequence[Sample]],
    limits: Limits,
    *,
    attention: bool = False,
) -> Asked:
    """Returns what a model finds for inputs.

    Args:
      request: its body was read; it is looked at whether its sender still waits.
      repository: where another version may take the model's place meanwhile: then this one is
        asked, if no version was named, or if it has the name.
      place: the model's name and its version; see `Repository.get`.
      samples_of: returns what a model reads in the request; none is not asked.
      limits: of time.
      attention: whether the answers tell what their words look at.

    Raises:
      ClientDisconnect: who has asked is gone.
      Refusal: there is no such model, an input cannot be encoded, the queue is full, it took too
        long, or there is more attention than is told.
    """
    for _ in range(_TRIES):
        served = repository.get(*place)
        samples = samples_of(served.model)
        if not samples:
            return Asked(served.model, samples, [])
        try:
            job = served.batcher.submit(samples, served.model.attend if attention else None)
        except Retired:
            continue
        found = await _wait(request, job, limits)
        check_attention(found)
        return Asked(served.model, samples, found)
    raise unavailable("the model is replaced again and again. Try again later.")


async def _wait(request: Request, job: Job, limits: Limits) -> Sequence[Found]:
    left = limits.seconds - (time.monotonic() - request.scope["told_at"])
    gone = asyncio.ensure_future(_is_gone(request))
    either: set[asyncio.Future[Any]] = {job.answers, gone}
    try:
        await asyncio.wait(either, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
        if job.answers.done():
            return _answers(job.answers)
        if gone.done():
            raise ClientDisconnect
        raise unavailable(
            f"it was not answered within {limits.seconds:g} seconds. Try again later, or with less."
        )
    finally:
        gone.cancel()
        if not job.answers.done():
            job.drop()


def _answers(answers: asyncio.Future[Sequence[Found]]) -> Sequence[Found]:
    try:
        return answers.result()
    except Stopped:
        raise unavailable("the server ends. Ask another one.") from None
    except InputError as error:
        raise Refusal(NO_INPUT, str(error)) from None
    except T2TError as error:
        raise Refusal(NO_INPUT, f"this cannot be answered: {error}") from None


async def _is_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
