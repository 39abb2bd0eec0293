"""What is asked of a search beyond the likeliest: bans, phrases to have, coverage, diversity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from t2t_torch.decode.bans import Ban, ForbiddenPhrases, MinimumLength, RepeatedNgrams, Written
from t2t_torch.decode.beam import (
    NO_SCORE,
    Beam,
    Candidates,
    best_of,
    candidates_of,
    grow,
    is_done,
    length_penalty,
)
from t2t_torch.decode.constraints import Constraints, Progress
from t2t_torch.decode.coverage import Coverage
from t2t_torch.decode.diversity import Diversity, Less, add_taken
from t2t_torch.decode.phrases import Phrases
from t2t_torch.decode.request import Request
from t2t_torch.decode.search_hparam import SearchHParams
from t2t_torch.text.encoder import EOS

_Step = Callable[[Tensor, Any], tuple[Tensor, Any]]


class Rules:
    """The rules of one search; used once.

    A score stays the model's: what is forbidden is left out, and the others are no likelier for it.
    Only `coverage` adds to it, where a hypothesis ends.

    Args:
      bans: what may not be written.
      constraints: phrases that have to be.
      coverage: what is taken off for words of the input that were not attended to.
      diversity: groups that keep away from each other.
    """

    def __init__(
        self,
        bans: tuple[Ban, ...] = (),
        constraints: Constraints | None = None,
        coverage: Coverage | None = None,
        diversity: Diversity | None = None,
    ) -> None:
        self._bans = bans
        self._constraints = constraints
        self._coverage = coverage
        self._diversity = diversity

    @property
    def groups(self) -> int:
        """Groups that a beam is divided into, each of which is a row of the search."""
        return self._diversity.groups if self._diversity is not None else 1

    @property
    def tells_places_apart(self) -> bool:
        """Whether something but what is written makes the hypotheses of a row differ."""
        asked = (self._constraints, self._coverage, self._diversity)
        return any(one is not None for one in asked)

    def begin(self, beam: Beam, state: Any, step: _Step) -> tuple[Beam, Any, _Step]:
        """Returns beam, state and step as the rules need them.

        Raises:
          HParamsError: coverage is asked of a model without attention.
        """
        if self._diversity is not None:
            beam = self._diversity.divided(beam)
        coverage = self._coverage
        if coverage is None:
            return _without_dead(beam), state, step

        def watched(ids: Tensor, state: Any) -> tuple[Tensor, Any]:
            logits, state = step(ids, state)
            coverage.add(state.attended)
            return logits, state

        return _without_dead(beam), coverage.begin(state), watched

    def reorder(self, index: Tensor) -> None:
        """Keeps the hypotheses of these numbers, [R', K / G], as the state does."""
        if self._coverage is not None:
            self._coverage.reorder(index.flatten())
        if self._diversity is not None:
            self._diversity.reorder(index)

    def done(self, beam: Beam, length: int, alpha: float, *, stop_early: bool) -> Tensor:
        """Returns which rows are done, [R]: groups of an input are together; see `is_done`."""
        if self._diversity is None:
            return is_done(beam, length, alpha, stop_early=stop_early)
        likeliest_first = beam.alive_log_probs.sort(dim=1, descending=True).values
        beam = beam._replace(alive_log_probs=likeliest_first)
        return self._diversity.all_done(is_done(beam, length, alpha, stop_early=stop_early))

    def united(self, beam: Beam) -> Beam:
        """Returns a beam as the search without rules has it: a row of each input."""
        return beam if self._diversity is None else self._diversity.united(beam)

    def grow(
        self, logits: Tensor, beam: Beam, length: int, alpha: float, candidates_per_beam: int
    ) -> tuple[Beam, Tensor]:
        """Returns the beam one id later, and parents [R, K]: the place that each continues.

        Args:
          logits: [R * K, V]; or, if nothing `tells_places_apart`, as `candidates_of` takes them.
          beam: before.
          length: ids so far, the first `PAD` left out.
          alpha: exponent of the length penalty.
          candidates_per_beam: continuations looked at per place.
        """
        if not self.tells_places_apart:
            places = len(logits) // len(beam.rows)
            ids = beam.alive_ids[:, :places, 1:].flatten(0, 1)
            rows = beam.rows.repeat_interleave(places)

            def forbid(scores: Tensor, part: slice) -> None:
                self.forbid(scores, Written(ids[part], rows[part]))

            best = candidates_of(logits, beam, length, alpha, candidates_per_beam, forbid)
            grown, parents = grow(beam, best, EOS)
            return _without_dead(grown), parents
        beam_size, diversity = beam.alive_ids.size(1), self._diversity
        at = _At(length, alpha, candidates_per_beam)
        log_probs = logits.float().log_softmax(-1).unflatten(0, (-1, self.groups, beam_size))
        if diversity is None:
            grown, parents = grow(beam, self._best(log_probs.flatten(0, 2), beam, 0, at), EOS)
            return _without_dead(grown), parents
        taken = log_probs.new_zeros(log_probs.size(0), log_probs.size(-1))
        groups, places, added = [], [], []
        for number in range(self.groups):
            part, found = diversity.group(beam, number), log_probs[:, number].flatten(0, 1)
            best = self._best(found, part, number, at, diversity.less(taken, beam, number))
            grown, parents = grow(part, best, EOS)
            groups.append(_without_dead(grown))
            places.append(parents)
            added.append(diversity.strength * taken.gather(1, grown.alive_ids[:, :, -1]))
            add_taken(taken, groups[-1])
        diversity.keep(added)
        return diversity.together(groups), torch.stack(places, 1).flatten(0, 1)

    def forbid(self, scores: Tensor, written: Written) -> None:
        """Puts minus infinity where an id may not follow; where none may, the end may all the same.

        Args:
          scores: [N, V], which is changed.
          written: so far.
        """
        ends = scores[:, EOS].clone()
        for ban in self._bans:
            ban.forbid(scores, written)
        if not all(isinstance(ban, MinimumLength) for ban in self._bans):  # it leaves all words
            _let_end(scores, ends)

    def _best(
        self, log_probs: Tensor, beam: Beam, number: int, at: _At, less: Less | None = None
    ) -> Candidates:
        """Returns the continuations of a group, which may be all there is."""
        ids, beam_size = beam.alive_ids[:, :, 1:].flatten(0, 1), beam.alive_ids.size(1)
        rows = beam.rows.repeat_interleave(beam_size)
        progress = None
        if self._constraints is None:
            self.forbid(log_probs, Written(ids, rows))
        else:
            progress, given = self._constraints.progress(ids, rows), log_probs.clone()
            for ban in self._bans:
                ban.forbid(log_probs, Written(ids, rows, progress.wanted))
            room = (beam.limits - at.length - 1).repeat_interleave(beam_size)
            self._constraints.restrict(log_probs, progress, room, given)
            _let_end(log_probs, given[:, EOS])
        best = self._chosen(log_probs, beam, progress, at, less)
        if self._coverage is not None:
            of_places = self._coverage.penalty().view(-1, self.groups, beam_size)[:, number]
            ends = (best.ids == EOS) * of_places.gather(1, best.parents)
            best = best._replace(scores=best.scores + ends)
        return best

    def _chosen(
        self,
        log_probs: Tensor,
        beam: Beam,
        progress: Progress | None,
        at: _At,
        less: Less | None,
    ) -> Candidates:
        """Returns the best continuations; what goes on by what they have `less`, if anything."""
        found, chosen_from = log_probs, beam
        if less is not None:
            found = (
                log_probs.unflatten(0, beam.alive_log_probs.shape) - less.ids[:, None]
            ).flatten(0, 1)
            chosen_from = beam._replace(alive_log_probs=beam.alive_log_probs - less.places)
        if self._constraints is not None and progress is not None:
            best = self._constraints.candidates(found, progress, chosen_from, at.length, at.alpha)
        else:
            best = best_of(found, chosen_from, at.length, at.alpha, at.candidates_per_beam)
        if less is None:
            return best
        index = best.parents * log_probs.size(-1) + best.ids
        own = log_probs.view(len(beam.rows), -1).gather(1, index)
        own = own + beam.alive_log_probs.gather(1, best.parents)
        own = own.masked_fill(torch.isneginf(best.log_probs), -torch.inf)
        ended = own / length_penalty(own.new_full((), at.length + 1.0), at.alpha)
        return best._replace(log_probs=own, scores=torch.where(best.ids == EOS, ended, best.scores))


class _At(NamedTuple):
    """Where a search is, and how it scores."""

    length: int
    alpha: float
    candidates_per_beam: int


def _let_end(scores: Tensor, ends: Tensor) -> None:
    """Gives the end its score, [N], where nothing else may follow.  `scores` [N, V] is changed."""
    nothing = torch.isneginf(scores.amax(1))
    scores[:, EOS] = torch.where(nothing, ends, scores[:, EOS])


def _without_dead(beam: Beam) -> Beam:
    """Makes sure that what fills places only to fill them never comes to life."""
    dead = beam.alive_log_probs <= NO_SCORE / 2
    return beam._replace(alive_log_probs=beam.alive_log_probs.masked_fill(dead, -torch.inf))


def rules_of(
    hparams: SearchHParams,
    inputs: Sequence[Sequence[int]],
    device: torch.device,
    *,
    go_on: bool = False,
) -> Rules | None:
    """Returns the rules of the search, or the drawing, for a batch; None if there are none.

    Args:
      hparams: what is asked of all outputs.
      inputs: the ids of each input; a `Request` where something is asked of its output.
      device: where they are needed.
      go_on: whether inputs are beginnings, of language models.
    """
    asked = [ids if isinstance(ids, Request) else Request(ids) for ids in inputs]
    bans: list[Ban] = []
    if hparams.no_repeat_ngram_size:
        bans.append(RepeatedNgrams(hparams.no_repeat_ngram_size))
    if any(request.forbidden for request in asked):
        bans.append(ForbiddenPhrases(Phrases.of([each.forbidden for each in asked], device)))
    least = [hparams.least_length(0 if go_on else len(ids)) for ids in inputs]
    if any(least):
        given = [len(ids) if go_on else 0 for ids in inputs]
        lengths = [a + b for a, b in zip(least, given, strict=True)]
        bans.append(MinimumLength(torch.tensor(lengths, device=device)))
    constraints = coverage = diversity = None
    if any(request.constraints for request in asked):
        constraints = Constraints(Phrases.of([each.constraints for each in asked], device))
    if hparams.coverage_penalty:
        coverage = Coverage(hparams.coverage_penalty)
    if hparams.num_beam_groups > 1:
        diversity = Diversity(hparams.num_beam_groups, hparams.diversity_strength)
    if not bans and constraints is None and coverage is None and diversity is None:
        return None
    return Rules(tuple(bans), constraints, coverage, diversity)
