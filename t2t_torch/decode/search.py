"""Beam search and sampling over a model's `step`, and the constraints that both apply.

The rules are those of `policies.py`, tensor2tensor's by default, with one difference: a row whose
result is certain leaves the batch at once.  A row's result depends on that row alone, and the work
shrinks with every finished row.  docs/how_to/from_tensor2tensor.md describes the consequences.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from t2t_torch.decode.beam import (
    NO_SCORE,
    Beam,
    Candidates,
    Hypotheses,
    assemble,
    best_of,
    candidates_of,
    first_beam,
    force,
)
from t2t_torch.decode.constraints import (
    Constraints,
    Coverage,
    DecodeRequest,
    Diversity,
    DiversityPenalty,
    ForbiddenPhrases,
    LogitsProcessor,
    MinimumLength,
    PartialOutputs,
    Phrases,
    RepeatedNgrams,
    add_taken,
)
from t2t_torch.decode.hparam import SearchHParams
from t2t_torch.decode.policies import BeamPolicy
from t2t_torch.errors import DecodeError
from t2t_torch.model import State
from t2t_torch.pipeline.plan import uniform
from t2t_torch.text.encoder import EOS, PAD

Step = Callable[[Tensor, Any], tuple[Tensor, Any]]
"""(ids [rows] int64, state) -> (logits [rows, V], state): a model's `step`."""


@dataclasses.dataclass(frozen=True)
class SearchConstraints:
    """The constraints of one search; an instance serves one search.

    Scores stay the model's own: banned ids are left out, and the others do not gain probability.
    Only `coverage` changes the score of a hypothesis, at its end.

    Attributes:
      bans: bans on next ids.
      constraints: required phrases.
      coverage: penalty for words of the input without attention.
      diversity: groups of the beam that are penalized for similarity.
    """

    bans: tuple[LogitsProcessor, ...] = ()
    constraints: Constraints | None = None
    coverage: Coverage | None = None
    diversity: Diversity | None = None

    @property
    def groups(self) -> int:
        """The number of groups of a beam, each a row of the search."""
        return self.diversity.groups if self.diversity is not None else 1

    @property
    def is_empty(self) -> bool:
        """True if there are none."""
        return not self.bans and not self.tells_places_apart

    @property
    def tells_places_apart(self) -> bool:
        """True if the hypotheses of a row may differ in more than their ids."""
        return (self.constraints, self.coverage, self.diversity) != (None, None, None)

    def begin(self, beam: Beam, state: Any, step: Step) -> tuple[Beam, Any, Step]:
        """Returns beam, state and step in the form that the constraints need.

        Raises:
          HParamsError: coverage is requested for a model without attention.
        """
        if self.diversity is not None:
            beam = self.diversity.divided(beam)
        coverage = self.coverage
        if coverage is None:
            return beam if self.is_empty else _without_dead(beam), state, step

        def watched(ids: Tensor, state: Any) -> tuple[Tensor, Any]:
            logits, state = step(ids, state)
            coverage.add(state.attended)
            return logits, state

        return _without_dead(beam), coverage.begin(state), watched

    def reorder(self, index: Tensor) -> None:
        """Selects the hypotheses with these indices, [R', K / G], as for the state."""
        if self.coverage is not None:
            self.coverage.reorder(index.flatten())
        if self.diversity is not None:
            self.diversity.reorder(index)

    def done(self, beam: Beam, length: int, policy: BeamPolicy) -> Tensor:
        """Returns the finished rows, [R] bool: groups of an input finish together."""
        if self.diversity is None:
            return policy.done(beam, length)
        likeliest_first = beam.alive_log_probs.sort(dim=1, descending=True).values
        beam = beam._replace(alive_log_probs=likeliest_first)
        return self.diversity.all_done(policy.done(beam, length))

    def united(self, beam: Beam) -> Beam:
        """Returns a beam as in a search without constraints: one row per input."""
        return beam if self.diversity is None else self.diversity.united(beam)

    def grow(
        self, logits: Tensor, beam: Beam, length: int, policy: BeamPolicy, eos: int
    ) -> tuple[Beam, Tensor]:
        """Returns the beam one id later, and parents [R, K]: the place that each continues.

        Args:
          logits: [R * K, V]; or as in `candidates_of` if not `tells_places_apart`.
          beam: previous beam.
          length: ids so far, without the first `PAD`.
          policy: rules of the search.
          eos: see `beam_search`.
        """
        if self.is_empty:
            return policy.grow(beam, candidates_of(logits, beam, length, policy), eos)
        if not self.tells_places_apart:
            width = len(logits) // len(beam.rows)
            ids = beam.alive_ids[:, :width, 1:].flatten(0, 1)
            rows = beam.rows.repeat_interleave(width, 0)

            def forbid(scores: Tensor, part: slice) -> None:
                self.forbid(scores, PartialOutputs(ids[part], rows[part]))

            best = candidates_of(logits, beam, length, policy, forbid)
            grown, parents = policy.grow(beam, best)
            return _without_dead(grown), parents
        beam_size, diversity = beam.alive_ids.size(1), self.diversity
        limits = beam.limits.repeat_interleave(beam_size * self.groups, 0)
        log_probs = policy.log_probs(logits, length, limits)
        log_probs = torch.unflatten(log_probs, 0, (-1, self.groups, beam_size))
        if diversity is None:
            best = self._best(log_probs.flatten(0, 2), beam, 0, length, policy)
            grown, parents = policy.grow(beam, best)
            return _without_dead(grown), parents
        taken = log_probs.new_zeros(log_probs.size(0), log_probs.size(-1))
        groups, places, added = [], [], []
        for number in range(self.groups):
            part, scores = diversity.group(beam, number), log_probs[:, number].flatten(0, 1)
            less = diversity.less(taken, beam, number)
            best = self._best(scores, part, number, length, policy, less)
            grown, parents = policy.grow(part, best)
            groups.append(_without_dead(grown))
            places.append(parents)
            added.append(diversity.strength * taken.gather(1, grown.alive_ids[:, :, -1]))
            add_taken(taken, groups[-1])
        diversity.keep(added)
        return diversity.together(groups), torch.stack(places, 1).flatten(0, 1)

    def forbid(self, scores: Tensor, written: PartialOutputs) -> None:
        """Sets banned ids to minus infinity; if all are banned, the end symbol stays allowed.

        Args:
          scores: [N, V], changed in place.
          written: outputs so far.
        """
        ends = scores[:, EOS].clone()
        for ban in self.bans:
            ban.forbid(scores, written)
        if not all(isinstance(ban, MinimumLength) for ban in self.bans):  # it allows all words
            _let_end(scores, ends)

    def _best(
        self,
        log_probs: Tensor,
        beam: Beam,
        number: int,
        length: int,
        policy: BeamPolicy,
        less: DiversityPenalty | None = None,
    ) -> Candidates:
        """Returns the continuations of a group, which may be the whole beam."""
        ids, beam_size = beam.alive_ids[:, :, 1:].flatten(0, 1), beam.alive_ids.size(1)
        rows = beam.rows.repeat_interleave(beam_size, 0)
        progress = None
        if self.constraints is None:
            self.forbid(log_probs, PartialOutputs(ids, rows))
        else:
            progress, original = self.constraints.progress(ids, rows), log_probs.clone()
            for ban in self.bans:
                ban.forbid(log_probs, PartialOutputs(ids, rows, progress.wanted))
            room = (beam.limits - length - 1).repeat_interleave(beam_size, 0)
            self.constraints.restrict(log_probs, progress, room, original)
            _let_end(log_probs, original[:, EOS])
        scores, chosen_from = log_probs, beam
        if less is not None:  # penalties of those that do not end
            scores = (
                torch.unflatten(log_probs, 0, beam.alive_log_probs.shape) - less.ids[:, None]
            ).flatten(0, 1)
            chosen_from = beam._replace(alive_log_probs=beam.alive_log_probs - less.places)
        if self.constraints is not None and progress is not None:
            best = self.constraints.candidates(scores, progress, chosen_from, length, policy)
        else:
            best = best_of(scores, chosen_from, length, policy)
        if less is not None:
            index = best.parents * log_probs.size(-1) + best.ids
            own = log_probs.view(len(beam.rows), -1).gather(1, index)
            own = own + beam.alive_log_probs.gather(1, best.parents)
            own = own.masked_fill(torch.isneginf(best.log_probs), -torch.inf)
            ended = own / policy.divisor(own.new_full((), length + 1.0), beam.limits)
            ended = torch.where(best.ids == EOS, ended, best.scores)
            best = best._replace(log_probs=own, scores=ended)
        if self.coverage is not None:
            of_places = self.coverage.penalty().view(-1, self.groups, beam_size)[:, number]
            ends = (best.ids == EOS) * of_places.gather(1, best.parents)
            best = best._replace(scores=best.scores + ends)
        return best


def _let_end(scores: Tensor, ends: Tensor) -> None:
    """Restores the end symbol's score, [N], where all ids are banned.  Changes `scores` [N, V]."""
    nothing = torch.isneginf(scores.amax(1))
    scores[:, EOS] = torch.where(nothing, ends, scores[:, EOS])


def _without_dead(beam: Beam) -> Beam:
    """Keeps placeholder hypotheses from becoming active."""
    dead = beam.alive_log_probs <= NO_SCORE / 2
    return beam._replace(alive_log_probs=beam.alive_log_probs.masked_fill(dead, -torch.inf))


def rules_of(
    hparams: SearchHParams,
    inputs: Sequence[Sequence[int]],
    device: torch.device,
    *,
    go_on: bool = False,
) -> SearchConstraints:
    """Returns the constraints of a batch, for search or sampling.

    Args:
      hparams: settings for all outputs.
      inputs: the ids of each input; a `DecodeRequest` if its output has constraints.
      device: device of the tensors.
      go_on: True if inputs are prefixes, for language models.
    """
    requests = [ids if isinstance(ids, DecodeRequest) else DecodeRequest(ids) for ids in inputs]
    bans: list[LogitsProcessor] = []
    if hparams.no_repeat_ngram_size:
        bans.append(RepeatedNgrams(hparams.no_repeat_ngram_size))
    if any(request.forbidden for request in requests):
        bans.append(ForbiddenPhrases(Phrases.of([each.forbidden for each in requests], device)))
    least = [hparams.least_length(0 if go_on else len(ids)) for ids in inputs]
    if any(least):
        prefix_lengths = [len(ids) if go_on else 0 for ids in inputs]
        lengths = [a + b for a, b in zip(least, prefix_lengths, strict=True)]
        bans.append(MinimumLength(torch.tensor(lengths, device=device)))
    constraints = coverage = diversity = None
    if any(request.constraints for request in requests):
        constraints = Constraints(Phrases.of([each.constraints for each in requests], device))
    if hparams.coverage_penalty:
        coverage = Coverage(hparams.coverage_penalty)
    if hparams.num_beam_groups > 1:
        diversity = Diversity(hparams.num_beam_groups, hparams.diversity_strength)
    return SearchConstraints(tuple(bans), constraints, coverage, diversity)


def beam_search(
    step: Step,
    state: State,
    *,
    max_lengths: Tensor,
    beam_size: int,
    policy: BeamPolicy | None = None,
    prefix: Tensor | None = None,
    eos: int = EOS,
    rules: SearchConstraints | None = None,
) -> Hypotheses:
    """Searches for the most probable sequences.

    Args:
      step: one step of the model; at the first step every id is PAD.
      state: the model's state of B rows, one per input.
      max_lengths: [B] int64, the most ids of each row, end symbol and prefix included.
      beam_size: K, hypotheses kept per row.
      policy: rules of the search; default: tensor2tensor's, without a length penalty.
      prefix: [B, P] int64, ids that each row must begin with, padded with PAD.  They count as
        length and add nothing to the log-probability.
      eos: the id that ends a hypothesis, except inside a prefix; `EOS` if there are constraints.
      rules: constraints, created for this search; None for none.

    Returns:
      Hypotheses of the B rows, in order; DecodeError if the logits are not finite numbers.
    """
    policy, rules = policy or BeamPolicy(), rules or SearchConstraints()
    if prefix is None:
        prefix = max_lengths.new_zeros(max_lengths.size(0), 0)
    prefix_lengths = (prefix != PAD).sum(1)  # [B]
    length = int(prefix_lengths.min()) if prefix.numel() else 0  # common length of the prefixes
    forced = prefix[:, :length]
    beam, state, step, places = _begin(step, state, max_lengths, forced, beam_size, rules)
    beam_size = beam.alive_ids.size(1)  # with groups, of each group
    parents = torch.arange(beam_size, device=prefix.device).expand(len(beam.rows), -1)
    done_beams = []
    while True:
        done = rules.done(beam, length, policy)
        going = (~done).nonzero().flatten()  # the only device synchronization in a step
        if leaving := going.numel() < done.numel():
            done_beams.append(beam.select(done.nonzero().flatten()))
            beam = beam.select(going)
        if not going.numel():
            return assemble(list(map(rules.united, done_beams)), prefix_lengths)
        if leaving or places > 1:
            index = going.unsqueeze(1) * places + parents[going, :places]  # [R', K or 1]
            rules.reorder(index)
            state = state.reorder(index.flatten())
        logits, state = step(beam.alive_ids[:, :places, -1].flatten(), state)
        if places < beam_size:  # the hypotheses of a row differ from here on
            if logits.size(-1) < policy.per_place * beam_size:  # too few continuations of one
                logits = logits.repeat_interleave(beam_size, 0)
            state, places = state.expand(beam_size), beam_size
        grown, parents = rules.grow(logits, beam, length, policy, eos)
        if length < prefix.size(1):
            grown, parents = force(beam, grown, parents, prefix[beam.rows, length])
        beam, length = grown, length + 1


def _begin(
    step: Step,
    state: Any,
    max_lengths: Tensor,
    prefix: Tensor,
    beam_size: int,
    rules: SearchConstraints,
) -> tuple[Beam, Any, Step, int]:
    """Returns the beam, the state and the step after the common prefix, [B, P].

    The last value is the number of places per row in the state: one until the hypotheses differ;
    constraints may make them differ at once.
    """
    beam = first_beam(max_lengths, prefix, beam_size // rules.groups)
    together = not rules.tells_places_apart
    state = state if together else state.expand(beam_size)
    beam, state, step = rules.begin(beam, state, step)
    read = beam.alive_ids[:, 0] if together else beam.alive_ids.flatten(0, 1)
    for position in range(prefix.size(1)):
        _, state = step(read[:, position], state)
    return beam, state, step, 1 if together else beam.alive_ids.size(1)


@dataclasses.dataclass(frozen=True)
class Sampler:
    """Filters and probabilities for sampling ids.

    Temperature and `sampling_keep_top_k` are tensor2tensor's; `top_p` is nucleus sampling, Holtzman
    et al. 2020, arXiv:1904.09751; `typical_p` is typical sampling, Meister et al. 2022,
    arXiv:2202.00666.  A sample depends only on the seed, its input and its number: its random
    numbers are a hash of these.

    Attributes:
      temperature: divisor of the logits; below 1 probable ids become more probable.
      top_k: number of most probable ids to keep; 0 or less: all.
      top_p: total probability of the most probable ids to keep, after `top_k`; 1: all.
      typical_p: total probability of the ids to keep whose surprise (nats) is closest to the mean;
        1: all.  Meister et al. 2022, arXiv:2202.00666.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    typical_p: float = 1.0

    def kept(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Returns ids, most probable first, and their probabilities: 0 for dropped ids.

        [R, V] -> [R, V] each, the probabilities float64.
        """
        logits = logits.double() / self.temperature
        logits[:, PAD] = -torch.inf
        sorted_logits, ids = logits.sort(dim=-1, descending=True, stable=True)
        probabilities = sorted_logits.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        left_out = before >= self.top_p  # never the first id: nothing precedes it
        if self.top_k > 0:
            left_out[:, self.top_k :] = True
        probabilities = probabilities.masked_fill(left_out, 0.0)
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
        if self.typical_p < 1:
            probabilities = probabilities.masked_fill(self._untypical(probabilities), 0.0)
            probabilities = probabilities / probabilities.sum(-1, keepdim=True)
        return ids, probabilities

    def _untypical(self, probabilities: Tensor) -> Tensor:
        """Returns the ids that `typical_p` drops, [R, V] bool; never the most typical one."""
        surprise = -probabilities.clamp(min=1e-300).log()
        mean = (probabilities * surprise).sum(-1, keepdim=True)
        unlike = (surprise - mean).abs().masked_fill(probabilities == 0, torch.inf)
        order = unlike.sort(dim=-1, stable=True).indices
        ordered = probabilities.gather(-1, order)
        left_out = ordered.cumsum(-1) - ordered >= self.typical_p
        return torch.empty_like(left_out).scatter_(-1, order, left_out)

    def draw(self, logits: Tensor, numbers: Tensor) -> Tensor:
        """Samples an id for each row with its random number in [0, 1).

        [R, V] and [R] -> [R].
        """
        ids, probabilities = self.kept(logits)
        ends = probabilities.cumsum(-1)
        place = (ends <= numbers[:, None]).sum(-1)
        places = torch.arange(ids.size(-1), device=ids.device)
        last = ((probabilities > 0) * places).amax(-1)  # the total may be slightly less than 1
        return ids.gather(1, torch.minimum(place, last)[:, None]).squeeze(1)


def numbers_of(
    seed: int, inputs: Sequence[Sequence[int]], draws: int, length: int, device: torch.device
) -> Tensor:
    """Returns the random numbers for all samples, those of an input contiguous.

    Args:
      seed: seed for all.
      inputs: ids of each input.
      draws: samples per input.
      length: maximum number of ids of an output.
      device: device of the result.

    Returns:
      [inputs * draws, length] float64, in [0, 1).
    """
    rows = []
    for ids in inputs:
        for draw in range(draws):
            text = f"{seed} {draw} {' '.join(map(str, ids))}".encode()
            key = int.from_bytes(hashlib.sha256(text).digest()[:16], "little")
            rows.append(uniform(np.random.Philox(key=key).random_raw(length)))
    return torch.from_numpy(np.stack(rows)).to(device)


def sample(
    step: Step,
    state: Any,
    *,
    max_lengths: Tensor,
    numbers: Tensor,
    sampler: Sampler,
    prefix: Tensor | None = None,
    rules: SearchConstraints | None = None,
) -> Hypotheses:
    """Samples a continuation of each row.  Finished rows leave the batch.

    Args:
      step: one step of the model; the first id is PAD.
      state: the model's state of R rows.
      max_lengths: [R] int64, the most ids of each row, end symbol and prefix included.
      numbers: [R, L], random numbers for the ids after the prefix.
      sampler: filters and probabilities.
      prefix: [R, P] int64, ids that each row begins with, padded with PAD.
      rules: bans; None for none.

    Returns:
      One hypothesis of each row, without its prefix; the score is the model's own log-probability
      (nats) of the sampled ids.

    Raises:
      DecodeError: the model's logits are not finite numbers.
    """
    if prefix is None or not prefix.numel():
        prefix = max_lengths.new_zeros(len(max_lengths), 1)
    rules = rules or SearchConstraints()
    prefix_lengths = (prefix != PAD).sum(1)  # [R]
    longest = int(max_lengths.max())
    drawn = max_lengths.new_zeros(len(max_lengths), max(longest, 1))
    scores = torch.zeros(len(max_lengths), dtype=torch.float64, device=max_lengths.device)
    rows = (max_lengths > 0).nonzero().flatten()
    state = state.expand(1).reorder(rows)
    last, written = torch.full_like(rows, PAD), torch.zeros_like(drawn)
    for position in range(longest):
        logits, state = step(last, state)
        if bool(logits.isnan().any()):
            raise DecodeError("the model's logits are not numbers: decode an earlier checkpoint.")
        inside = position < prefix_lengths[rows]
        place = (position - prefix_lengths[rows]).clamp(min=0)
        allowed = logits.double()  # a copy
        rules.forbid(allowed, PartialOutputs(written[rows, :position], rows))
        ids = sampler.draw(allowed, numbers[rows, place])
        ids = torch.where(inside, prefix[rows, min(position, prefix.size(1) - 1)], ids)
        log_probs = logits.double().log_softmax(-1).gather(1, ids[:, None]).squeeze(1)
        written[rows, position] = ids
        scores[rows] += torch.where(inside, 0.0, log_probs)
        drawn[rows, place] = torch.where(inside, PAD, ids)
        ended = (~inside & (ids == EOS)) | (position + 1 >= max_lengths[rows])
        going = (~ended).nonzero().flatten()
        if not len(going):
            break
        if len(going) < len(rows):
            rows, ids, state = rows[going], ids[going], state.reorder(going)
        last = ids
    return Hypotheses(drawn[:, None], scores.float()[:, None])
