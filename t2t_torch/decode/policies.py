"""Rules of beam search of several libraries: length penalties, what ends, and when to stop.

Each is a set of functions of tensors over one `Beam`, without branches on values, so that exported
graphs contain them, too.  How the libraries differ:

| | candidates of a step | a hypothesis that ends | the search of a row ends |
|---|---|---|---|
| tensor2tensor | 2 K | is kept if it is among the K best ended | when no active one can win |
| fairseq | 2 K | is kept if it is among the first K candidates | with K ended |
| huggingface | 2 K | likewise, if it is also among the K best ended | see `early_stopping` |
| opennmt | K | leaves its place empty | when the best candidate ends |
| sockeye | K | stays in the beam with its score | when all K have ended, or the first |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from t2t_torch.decode.beam import NO_SCORE, Beam, Candidates, gather_ids, pad_one
from t2t_torch.decode.hparam import SearchHParams
from t2t_torch.text.encoder import EOS, PAD

_DEAD = NO_SCORE / 2  # an empty place has less


@dataclass(frozen=True)
class BeamPolicy:
    """Rules of tensor2tensor, utils/beam_search.py; base class of the others.

    Attributes:
      alpha: exponent of the length penalty ((offset + n) / scale) ** alpha of n ids.
      offset: its offset; 5 in Wu et al. 2016, section 7, equation 14.
      scale: its scale; 6 there.
      stop_early: True to finish a row when its best hypothesis is certain, instead of all K.
      per_place: continuations considered per place.  2 suffice to keep K unfinished hypotheses in
        any case; with 1 and a beam of 1 the search is greedy.
      force_eos: True if only `EOS` may be chosen at the limit; else hypotheses end there without.
        Not read by tensor2tensor's rules, which keep hypotheses at the limit only if none ended.
    """

    alpha: float = 0.0
    offset: float = 5.0
    scale: float = 6.0
    stop_early: bool = True
    per_place: int = 2
    force_eos: bool = True

    def penalty(self, length: Tensor) -> Tensor:
        """Returns the divisor of the log-probability of hypotheses with `length` ids."""
        return torch.pow((self.offset + length) / self.scale, self.alpha)

    def divisor(self, length: Tensor, limits: Tensor) -> Tensor:
        """Returns the divisor of the log-probabilities in each row of a beam.

        Args:
          length: ids of the hypotheses, [].
          limits: maximum number of ids of each row, [R].

        Returns:
          [] or [R, 1].
        """
        return self.penalty(length)

    def log_probs(self, logits: Tensor, length: int | Tensor, limits: Tensor) -> Tensor:
        """Returns the log-probabilities of the next ids, minus infinity where one is excluded.

        Args:
          logits: [N, V].
          length: ids so far, without the first `PAD`.
          limits: maximum number of ids, [N].
        """
        return logits.float().log_softmax(-1)

    def done(self, beam: Beam, length: int | Tensor) -> Tensor:
        """Returns [R] True for rows at their limit or whose active hypotheses cannot enter the
        result.

        An active hypothesis can at best keep its log-probability and reach the limit, where the
        penalty is largest.
        """
        best_possible = beam.alive_log_probs[:, 0] / self.penalty(beam.limits.float())
        to_beat = beam.ended_scores[:, 0 if self.stop_early else -1]
        return (to_beat > best_possible) | (beam.limits <= length)

    def grow(self, beam: Beam, candidates: Candidates, eos: int = EOS) -> tuple[Beam, Tensor]:
        """Returns the beam one id later, and parents [R, K]: the places that active ones continue.

        Args:
          beam: beam before the step.
          candidates: best continuations.
          eos: the id that ends a hypothesis.
        """
        beam_size = beam.alive_log_probs.size(1)
        ends = candidates.ids == eos
        ids = _continued(beam, candidates)
        alive_scores = candidates.scores + ends * NO_SCORE
        alive = alive_scores.sort(dim=-1, descending=True, stable=True).indices[:, :beam_size]
        # An ended hypothesis is never continued, not even in a vocabulary too small for other
        # continuations, where T2T continues it.
        alive_log_probs = candidates.log_probs + ends * NO_SCORE
        grown = beam._replace(
            alive_ids=gather_ids(ids, alive), alive_log_probs=alive_log_probs.gather(1, alive)
        )
        grown = _with_ended(grown, beam, ids, candidates.scores + ~ends * NO_SCORE)
        return grown, candidates.parents.gather(1, alive)


class _PeerPolicy(BeamPolicy):
    """Rules in common: `PAD` is never chosen, and all hypotheses end at the limit."""

    def log_probs(self, logits: Tensor, length: int | Tensor, limits: Tensor) -> Tensor:
        """Returns the log-probabilities of the next ids; see `BeamPolicy`."""
        ids = torch.arange(logits.size(-1), device=logits.device)
        excluded = ids == PAD
        if self.force_eos:
            excluded = excluded | ((ids != EOS) & (limits <= length + 1)[:, None])
        return logits.float().log_softmax(-1).masked_fill(excluded, -torch.inf)

    def _ends(self, beam: Beam, candidates: Candidates, eos: int) -> Tensor:
        """Returns the candidates that end.  [R, C] bool."""
        ends = candidates.ids == eos
        at_limit = beam.limits <= beam.alive_ids.size(-1)
        return ends if self.force_eos else ends | at_limit.unsqueeze(1)


class FairseqPolicy(_PeerPolicy):
    """Rules of fairseq's `SequenceGenerator`."""

    def log_probs(self, logits: Tensor, length: int | Tensor, limits: Tensor) -> Tensor:
        """Returns the log-probabilities of the next ids; no output is empty."""
        ids = torch.arange(logits.size(-1), device=logits.device)
        first = torch.as_tensor(length, device=logits.device) == 0
        log_probs = super().log_probs(logits, length, limits)
        excluded = (ids == EOS) & first & (limits > 1)[:, None]
        return log_probs.masked_fill(excluded, -torch.inf)

    def done(self, beam: Beam, length: int | Tensor) -> Tensor:
        """Returns [R] True for rows with K ended hypotheses, or at their limit."""
        return (beam.ended_scores[:, -1] > _DEAD) | (beam.limits <= length)

    def grow(self, beam: Beam, candidates: Candidates, eos: int = EOS) -> tuple[Beam, Tensor]:
        """Returns the beam one id later, and parents; see `BeamPolicy`."""
        missing = beam.alive_log_probs.size(1) - (beam.ended_scores > _DEAD).sum(1, keepdim=True)
        return self._grown(beam, candidates, eos, missing)

    def _grown(
        self, beam: Beam, candidates: Candidates, eos: int, most: Tensor | None
    ) -> tuple[Beam, Tensor]:
        """Returns the beam one id later; `most` is the number of ended ones to keep, [R, 1]."""
        beam_size = beam.alive_log_probs.size(1)
        ends = self._ends(beam, candidates, eos)
        rank = torch.arange(ends.size(1), device=ends.device)
        ended = ends & (rank < beam_size) & (candidates.log_probs > _DEAD)
        if most is not None:
            ended = ended & (ended.to(torch.int64).cumsum(1) <= most)
        # The first K candidates that do not end become active.
        alive = (ends * ends.size(1) + rank).sort(dim=1).indices[:, :beam_size]
        log_probs = candidates.log_probs.masked_fill(ends, -torch.inf).gather(1, alive)
        ids = _continued(beam, candidates)
        grown = beam._replace(alive_ids=gather_ids(ids, alive), alive_log_probs=log_probs)
        grown = _with_ended(grown, beam, ids, torch.where(ended, candidates.scores, 2 * NO_SCORE))
        return grown, candidates.parents.gather(1, alive)


@dataclass(frozen=True)
class HuggingFacePolicy(FairseqPolicy):
    """Rules of transformers' `generate`, version 5.

    Attributes:
      new_ids: of a language model, the maximum number of ids after the prompt; the prompt does not
        count as length.  0: there is no prompt.
      early_stopping: "true": a row ends with K ended hypotheses; "false": when the best active one
        is no better than the worst of K ended ones at its present length; "never": at the greatest
        possible length.
    """

    early_stopping: Literal["true", "false", "never"] = "false"
    new_ids: int = 0

    def divisor(self, length: Tensor, limits: Tensor) -> Tensor:
        """Returns the divisor of the log-probabilities in each row; see `BeamPolicy`."""
        return self.penalty(self._counted(length, limits).clamp(min=1)).view(-1, 1)

    def _counted(self, length: Tensor, limits: Tensor) -> Tensor:
        """Returns the number of ids of each row that count as length.  [R]."""
        prompt = limits - self.new_ids if self.new_ids else torch.zeros_like(limits)
        return length - prompt.float()

    def log_probs(self, logits: Tensor, length: int | Tensor, limits: Tensor) -> Tensor:
        """Returns the log-probabilities of the next ids; the allowed ones sum to 1."""
        return _PeerPolicy.log_probs(self, logits, length, limits).log_softmax(-1)

    def done(self, beam: Beam, length: int | Tensor) -> Tensor:
        """Returns [R] True for rows that end by `early_stopping`, or at their limit."""
        if self.early_stopping == "true":
            return super().done(beam, length)
        lengths = beam.limits.float()
        if self.early_stopping == "false":
            lengths = torch.zeros_like(lengths) + length
        counted = self._counted(lengths, beam.limits)
        best_possible = beam.alive_log_probs[:, 0] / self.penalty(counted.clamp(min=1))
        return (best_possible <= beam.ended_scores[:, -1]) | (beam.limits <= length)

    def grow(self, beam: Beam, candidates: Candidates, eos: int = EOS) -> tuple[Beam, Tensor]:
        """Returns the beam one id later, and parents; see `BeamPolicy`."""
        return self._grown(beam, candidates, eos, None)


class OpenNMTPolicy(_PeerPolicy):
    """Rules of OpenNMT-py's `BeamSearch`."""

    def done(self, beam: Beam, length: int | Tensor) -> Tensor:
        """Returns [R] True for rows whose best candidate ended, or at their limit.

        With all K hypotheses to return, a row needs as many that ended.
        """
        enough = beam.ended_scores[:, 0 if self.stop_early else -1] > _DEAD
        best_ended = beam.alive_log_probs[:, 0] <= _DEAD
        return (best_ended & enough) | (beam.limits <= length)

    def grow(self, beam: Beam, candidates: Candidates, eos: int = EOS) -> tuple[Beam, Tensor]:
        """Returns the beam one id later, and parents; see `BeamPolicy`."""
        ids = _continued(beam, candidates)
        lives = candidates.log_probs > _DEAD
        ends = self._ends(beam, candidates, eos)
        log_probs = candidates.log_probs.masked_fill(ends, -torch.inf)
        scores = torch.where(ends & lives, candidates.scores, 2 * NO_SCORE)
        grown = beam._replace(alive_ids=ids, alive_log_probs=log_probs)
        return _with_ended(grown, beam, ids, scores), candidates.parents


@dataclass(frozen=True)
class SockeyePolicy(_PeerPolicy):
    """Rules of Sockeye 3's beam search.

    The score of an ended hypothesis competes with the log-probabilities of active ones for a place.

    Attributes:
      stop_at_first: True to end a row with its first ended hypothesis; the result is the best one,
        ended or not.
    """

    stop_at_first: bool = False

    def done(self, beam: Beam, length: int | Tensor) -> Tensor:
        """Returns [R] True for rows without active hypotheses, or at their limit."""
        all_ended = beam.alive_log_probs.amax(1) <= _DEAD
        if self.stop_at_first:
            all_ended = beam.ended_scores[:, 0] > _DEAD
        return all_ended | (beam.limits <= length)

    def grow(self, beam: Beam, candidates: Candidates, eos: int = EOS) -> tuple[Beam, Tensor]:
        """Returns the beam one id later, and parents; see `BeamPolicy`."""
        beam_size = beam.alive_log_probs.size(1)
        ids = _continued(beam, candidates)
        before = beam.ended_scores.masked_fill(beam.ended_scores <= _DEAD, -torch.inf)
        together = torch.cat([candidates.log_probs, before], 1)
        order = together.sort(dim=1, descending=True, stable=True).indices
        kept = order.argsort(dim=1) < beam_size  # the best K of both
        kept_new, kept_before = torch.split(kept, [candidates.ids.size(1), beam_size], 1)
        ends = self._ends(beam, candidates, eos) & (candidates.log_probs > _DEAD)
        going = kept_new & ~ends
        log_probs = candidates.log_probs.masked_fill(~going, -torch.inf)
        scores = torch.where(kept_new & ends, candidates.scores, 2 * NO_SCORE)
        if self.stop_at_first:  # the others compete with it as they are
            stops = (kept_new & ends).any(1, keepdim=True)
            scores = torch.where(stops & going, candidates.log_probs, scores)
        before = torch.where(kept_before, beam.ended_scores, 2 * NO_SCORE)
        grown = beam._replace(alive_ids=ids, alive_log_probs=log_probs)
        return _with_ended(grown, beam._replace(ended_scores=before), ids, scores), (
            candidates.parents
        )


def _continued(beam: Beam, candidates: Candidates) -> Tensor:
    """Returns the ids of candidates.  [R, C, t + 1]."""
    before = gather_ids(beam.alive_ids, candidates.parents)
    return torch.cat([before, candidates.ids.unsqueeze(-1)], -1)


def _with_ended(grown: Beam, beam: Beam, ids: Tensor, scores: Tensor) -> Beam:
    """Returns a beam with the K best of its ended hypotheses and of new ones.

    Args:
      grown: beam after the step.
      beam: beam before the step.
      ids: ids of the candidates, [R, C, t + 1].
      scores: their scores, [R, C]; `NO_SCORE` or less for those that did not end.
    """
    beam_size = beam.ended_scores.size(1)
    all_scores = torch.cat([beam.ended_scores, scores], 1)
    all_scores, order = all_scores.sort(dim=-1, descending=True, stable=True)
    all_ids = torch.cat([pad_one(beam.ended_ids), ids], 1)  # [R, K + C, t + 1]
    return grown._replace(
        ended_ids=gather_ids(all_ids, order[:, :beam_size]), ended_scores=all_scores[:, :beam_size]
    )


def policy_of(hparams: SearchHParams, *, go_on: bool = False) -> BeamPolicy:
    """Returns the rules of the decoding settings.

    Args:
      hparams: decoding settings.
      go_on: True if inputs are prompts, for language models.
    """
    alone = hparams.beam_size == 1
    both: dict[str, Any] = {
        "alpha": 0.0 if alone else hparams.alpha,
        "offset": hparams.length_offset,
        "scale": hparams.length_scale,
        "stop_early": not hparams.return_beams,
        "force_eos": hparams.force_eos,
        "per_place": 1 if alone or hparams.search_rules in ("opennmt", "sockeye") else 2,
    }
    if hparams.search_rules == "sockeye":
        return SockeyePolicy(**both, stop_at_first=hparams.early_stopping == "true")
    if hparams.search_rules == "huggingface":
        new_ids = hparams.extra_length if go_on else 0
        return HuggingFacePolicy(**both, early_stopping=hparams.early_stopping, new_ids=new_ids)
    kinds = {"opennmt": OpenNMTPolicy, "fairseq": FairseqPolicy}
    return kinds.get(hparams.search_rules, BeamPolicy)(**both)
