"""Constraints on generated text: required and banned phrases, coverage, diversity, requests.

Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation for Neural
Machine Translation", NAACL, arXiv:1804.06609.  Banks with too few hypotheses leave their places to
the others, because the banks give one hypothesis each in turn.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.decode.beam import NO_SCORE, Beam, Candidates, likeliest_of
from t2t_torch.decode.hparam import SearchHParams
from t2t_torch.decode.policies import BeamPolicy
from t2t_torch.errors import DataError, HParamsError
from t2t_torch.features import Text
from t2t_torch.layers.attention import Attended, Attending
from t2t_torch.text.encoder import EOS, PAD

NOTHING = -1
"""Placeholder for no id."""


class Phrase(NamedTuple):
    """A word or phrase that a text may contain.

    Attributes:
      inside: its ids after other words.
      first: its ids at the beginning of a text; empty if they are the same.
    """

    inside: tuple[int, ...]
    first: tuple[int, ...] = ()


class Phrases(NamedTuple):
    """Phrases of each row: up to P / 2 forms for inside a text, then as many for its beginning.

    Attributes:
      ids: [B, P, L] int64, padded with PAD.
      lengths: [B, P] int64, 0 for no phrase.
    """

    ids: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, rows: Sequence[Sequence[Phrase]], device: torch.device) -> Phrases:
        """Returns the phrases of each row."""
        most = max((len(phrases) for phrases in rows), default=0)
        every = [ids for phrases in rows for phrase in phrases for ids in phrase]
        ids = torch.full((len(rows), 2 * most, max(map(len, every), default=0)), PAD)
        lengths = torch.zeros(len(rows), 2 * most, dtype=torch.int64)
        for row, phrases in enumerate(rows):
            for number, phrase in enumerate(phrases):
                for place, matches in ((number, phrase.inside), (most + number, phrase.first)):
                    ids[row, place, : len(matches)] = torch.tensor(matches, dtype=torch.int64)
                    lengths[row, place] = len(matches)
        return cls(ids.to(device), lengths.to(device))

    @property
    def _only_first(self) -> Tensor:
        """The phrases that occur only at the beginning of a text, [P, 1] bool."""
        places = torch.arange(self.lengths.size(1), device=self.lengths.device)
        return (places >= self.lengths.size(1) // 2).unsqueeze(1)

    def select(self, rows: Tensor) -> Phrases:
        """Returns the phrases of the rows with these indices, [N] integers."""
        return Phrases(self.ids.index_select(0, rows), self.lengths.index_select(0, rows))

    def started(self, written: Tensor) -> Tensor:
        """Returns the matches of phrase prefixes at the end of the output.

        Args:
          written: [B, t] ids.

        Returns:
          [B, P, L] bool: at j, True if the last j ids are the first j of the phrase and the
            phrase is longer.
        """
        longest = self.ids.size(-1)
        padded = F.pad(written, (longest, 0), value=NOTHING)
        matches = [torch.ones_like(self.lengths, dtype=torch.bool)]
        for count in range(1, longest):
            matches.append((padded[:, None, -count:] == self.ids[:, :, :count]).all(-1))
        places = torch.arange(longest, device=written.device)
        ends_here = torch.stack(matches[:longest], -1) & (places < self.lengths.unsqueeze(-1))
        return ends_here & (~self._only_first | (places == written.size(1)))

    def within(self, written: Tensor) -> Tensor:
        """Returns True for each phrase that occurs in the output.

        [B, t] -> [B, P] bool, False for no phrase.
        """
        longest = self.ids.size(-1)
        windows = F.pad(written, (longest, 0), value=NOTHING).unfold(1, longest, 1)  # [B, t+1, L]
        # A window is compared from its end; positions beyond the phrase's length do not count.
        places = torch.arange(longest, device=written.device) - longest + self.lengths[..., None]
        last = self.ids.gather(-1, places.clamp(min=0))[:, :, None]  # [B, P, 1, L]
        alike = (windows[:, None] == last) | (places < 0)[:, :, None]
        matches = alike.all(-1)  # [B, P, t + 1], by end position
        ends = torch.arange(matches.size(-1), device=matches.device)
        matches &= ~self._only_first | (ends == self.lengths.unsqueeze(-1))
        return matches.any(-1) & (self.lengths > 0)


class PhraseProgress(NamedTuple):
    """Progress of N hypotheses through their phrases, up to C each; see `Phrases`.

    Attributes:
      phrases: phrases of each hypothesis, P = 2 C: forms for inside a text, then for its beginning.
      met: [N, C] bool, phrases that are written.
      started: [N, P, L] bool, at j: the last j ids are the phrase's first j, and the phrase is
        longer.
      needed: [N] ids that suffice for the remaining phrases.
      wanted: [N, P] next id of each remaining phrase; -1 for none.
      urgent: [N, P] bool, ids in `wanted` that reduce `needed`.
    """

    phrases: Phrases
    met: Tensor
    started: Tensor
    needed: Tensor
    wanted: Tensor
    urgent: Tensor


class Constraints:
    """Phrases that each output must contain; rows without phrases are searched as usual.

    A phrase is met wherever its ids occur consecutively.  A hypothesis ends only when all phrases
    are met.  The hypotheses of a row are kept in banks by the number of phrase ids that they
    contain, and the banks give their best in turn, the most complete first.  When a row has no more
    ids left than its phrases need, nothing else is written.

    Args:
      phrases: phrases of each row of the batch, each with at least one id.
    """

    def __init__(self, phrases: Phrases) -> None:
        self._phrases = phrases

    def progress(self, ids: Tensor, rows: Tensor) -> PhraseProgress:
        """Returns the progress of hypotheses with ids [N, t] in rows [N]."""
        phrases = self._phrases.select(rows)
        inside, first = phrases.lengths.chunk(2, 1)  # [N, C] each
        met, started = _either(phrases.within(ids)), phrases.started(ids)
        left = ~met & (inside > 0)
        lengths = torch.arange(started.size(-1), device=started.device)
        furthest = (started * lengths).amax(-1)  # of the longest match, [N, P]
        # A phrase with another form for the beginning of a text takes it there, and only there.
        goes_on = left if ids.size(1) else left & (first == 0)
        possible = torch.cat([goes_on, left & started.chunk(2, 1)[1].any(-1)], 1)
        saved = torch.cat([inside, inside], 1) - phrases.lengths + furthest
        most = saved.masked_fill(~possible, -_NEVER).amax(1)
        following = phrases.ids.gather(-1, furthest.unsqueeze(-1)).squeeze(-1)
        return PhraseProgress(
            phrases,
            met,
            started,
            needed=((inside * left).sum(1) - most).masked_fill(~left.any(1), 0),
            wanted=torch.where(possible, following, NOTHING),
            urgent=possible & (saved == most.unsqueeze(1)),
        )

    def restrict(
        self, scores: Tensor, progress: PhraseProgress, room: Tensor, original: Tensor
    ) -> None:
        """Sets ids that would leave a phrase out to minus infinity; see `LogitsProcessor`.

        Args:
          scores: [N, V], changed in place.
          progress: progress of the hypotheses.
          remaining: [N] ids that may still be written before the end symbol.
          original: [N, V] scores before ids were banned; the ids of phrases keep these if
            everything else is banned.
        """
        goes_on = progress.needed > 0
        for identity in (PAD, EOS):
            scores[:, identity].masked_fill_(goes_on, -torch.inf)
        places = torch.where(progress.urgent, progress.wanted, scores.size(1))
        urgent = F.pad(torch.zeros_like(scores, dtype=torch.bool), (0, 1))
        urgent = urgent.scatter_(1, places, value=True)[:, :-1]
        pressed = goes_on & (progress.needed >= room)
        scores.masked_fill_(pressed.unsqueeze(1) & ~urgent, -torch.inf)
        stuck = goes_on & torch.isneginf(scores.amax(1))
        scores.copy_(torch.where(stuck.unsqueeze(1) & urgent, original, scores))

    def candidates(
        self, scores: Tensor, progress: PhraseProgress, beam: Beam, length: int, policy: BeamPolicy
    ) -> Candidates:
        """Returns K continuations that do not end and K that end, [R, 2 K]; see `candidates_of`.

        Args:
          scores: [N, V] log-probabilities, minus infinity for banned ids.
          progress: progress of the N = R * K hypotheses.
          beam: beam of R rows.
          length: number of ids so far.
          policy: rules of the search.
        """
        num_rows, beam_size = beam.alive_log_probs.shape
        width = min(scores.size(1), 2 * beam_size + progress.wanted.size(1))
        # The most probable ids and the wanted ids, ascending.  [N, V] -> [N, W].
        raised = F.pad(scores, (0, 1))
        places = torch.where(progress.wanted == NOTHING, scores.size(1), progress.wanted)
        more = scores.gather(1, progress.wanted.clamp(min=0)) + _FIRST
        raised = raised.scatter(1, places, more)[:, :-1]
        ids = likeliest_of(raised, width)
        needed = _needed_after(progress, ids).view(num_rows, -1)
        candidate_scores = scores.gather(1, ids).view(num_rows, beam_size, width)
        candidate_scores = candidate_scores + beam.alive_log_probs.unsqueeze(-1)
        penalty = policy.divisor(candidate_scores.new_full((), length + 1.0), beam.limits)
        ids, candidate_scores = ids.view(num_rows, -1), candidate_scores.flatten(1) / penalty
        # Sort by bank, impossible ones last; then by score; then by index.
        possible = ~torch.isneginf(candidate_scores)
        bank = torch.where(possible, needed, needed.max() + 1)
        order = candidate_scores.sort(dim=1, descending=True, stable=True).indices
        order = order.gather(1, bank.gather(1, order).sort(dim=1, stable=True).indices)
        ends, bank = (ids == EOS).gather(1, order), bank.gather(1, order)
        possible, by_place = possible.gather(1, order), candidate_scores.gather(1, order)
        turn = _place_in_bank(bank, possible & ~ends)
        # Consider as many ending hypotheses as in any search: the best 2 K, here of each bank.
        seen = ends & (_place_in_bank(bank, possible) < 2 * beam_size)
        going = torch.where(possible & ~ends, turn * (needed.max() + 2) + bank, _NEVER)
        chosen = [going.sort(dim=1, stable=True).indices[:, :beam_size]]
        scored = torch.where(seen, by_place, -torch.inf)
        chosen.append(scored.sort(dim=1, descending=True, stable=True).indices[:, :beam_size])
        keep = torch.where(torch.cat([going < _NEVER, seen], 1), 1, 0)
        keep = keep.gather(1, torch.cat([chosen[0], chosen[1] + ids.size(1)], 1)).bool()
        order = order.gather(1, torch.cat(chosen, 1))
        best = torch.where(keep, candidate_scores.gather(1, order), -torch.inf)
        return Candidates(order // width, ids.gather(1, order), best * penalty, best)


_NEVER = 2**40  # larger than any turn


_FIRST = 1e5  # larger than any difference of log-probabilities


def _needed_after(progress: PhraseProgress, ids: Tensor) -> Tensor:
    """Returns the number of ids still needed after each next id.  [N, W] -> [N, W]."""
    phrases = progress.phrases
    inside = phrases.lengths.chunk(2, 1)[0].unsqueeze(1)  # [N, 1, C]
    longer = progress.started.unsqueeze(1) & (phrases.ids.unsqueeze(1) == ids[:, :, None, None])
    counts = torch.arange(1, longer.size(-1) + 1, device=ids.device)  # ids matched then
    lengths = phrases.lengths[:, None, :, None]
    met_now = _either((longer & (counts == lengths)).any(-1).flatten(0, 1))
    met = progress.met.unsqueeze(1) | torch.unflatten(met_now, 0, ids.shape)  # [N, W, C]
    left = ~met & (inside > 0)
    partly = longer & (counts < lengths)
    saved = torch.cat([inside, inside], -1).unsqueeze(-1) - lengths + counts
    saved = (saved * partly).amax(-1) * torch.cat([left, left], -1)  # at least 0
    return (inside * left).sum(-1) - saved.amax(-1)


def _either(matches: Tensor) -> Tensor:
    """Returns True for each phrase that is present in one of its forms.  [N, P] -> [N, C]."""
    inside, first = matches.chunk(2, 1)
    return inside | first


def _place_in_bank(bank: Tensor, counted: Tensor) -> Tensor:
    """Returns how many counted entries precede each in its bank.  [R, M], banks contiguous."""
    before = counted.long().cumsum(1) - counted.long()
    first = F.pad(bank[:, 1:] != bank[:, :-1], (1, 0), value=True)
    places = torch.arange(bank.size(1), device=bank.device)
    start = torch.where(first, places, 0).cummax(1).values
    return before - before.gather(1, start)


class PartialOutputs(NamedTuple):
    """Outputs so far.

    Attributes:
      ids: [N, t] int64, with the given prefix.
      rows: [N] row of the batch for each output.
      wanted: [N, P] ids that are allowed although they repeat something; None: there are none.
    """

    ids: Tensor
    rows: Tensor
    wanted: Tensor | None = None


class LogitsProcessor(Protocol):
    """Bans ids from the next step.

    Banned ids get minus infinity.  The scores of outputs stay the model's own: probabilities are
    not renormalized after a ban.
    """

    def forbid(self, scores: Tensor, written: PartialOutputs) -> None:
        """Sets banned ids to minus infinity.  `scores` [N, V] is changed in place."""


@dataclasses.dataclass(frozen=True)
class MinimumLength:
    """Minimum length: bans the end symbol, and padding in its place, below a length.

    Attributes:
      lengths: [B] minimum number of ids in each row, with its prefix and the end symbol.
    """

    lengths: Tensor

    def forbid(self, scores: Tensor, written: PartialOutputs) -> None:
        """Bans `EOS` and `PAD`; see `LogitsProcessor`."""
        early = written.ids.size(1) + 1 < self.lengths[written.rows]
        for identity in (PAD, EOS):
            scores[:, identity].masked_fill_(early, -torch.inf)


@dataclasses.dataclass(frozen=True)
class RepeatedNgrams:
    """Bans ids that would repeat an n-gram.  Paulus et al. 2018, 2.5.

    Attributes:
      size: n.
    """

    size: int

    def forbid(self, scores: Tensor, written: PartialOutputs) -> None:
        """Bans ids that followed the same n-1 ids, but never `EOS`; see `LogitsProcessor`."""
        ids, size = written.ids, self.size
        if ids.size(1) < size:
            return
        windows = ids.unfold(1, size, 1)  # [N, t - n + 1, n]
        last = ids[:, None, ids.size(1) - size + 1 :]
        ended = windows[:, :, -1]
        repeats = (windows[:, :, :-1] == last).all(-1) & (ended != EOS)
        if written.wanted is not None:
            repeats &= (ended.unsqueeze(-1) != written.wanted.unsqueeze(1)).all(-1)
        _forbid_where(scores, ended, repeats)


@dataclasses.dataclass(frozen=True)
class ForbiddenPhrases:
    """Banned words and phrases.

    Attributes:
      phrases: banned phrases of each row.
    """

    phrases: Phrases

    def forbid(self, scores: Tensor, written: PartialOutputs) -> None:
        """Bans the last id of a phrase after all of its other ids; see `LogitsProcessor`."""
        phrases = self.phrases.select(written.rows)
        before = (phrases.lengths - 1).clamp(min=0).unsqueeze(-1)
        about_to = phrases.started(written.ids).gather(-1, before).squeeze(-1)
        last = phrases.ids.gather(-1, before).squeeze(-1)  # PAD for no phrase
        _forbid_where(scores, last, about_to & (phrases.lengths > 0))


def _forbid_where(scores: Tensor, ids: Tensor, forbidden: Tensor) -> None:
    """Sets ids, [N, C], to minus infinity where `forbidden`, [N, C] bool, is True."""
    most = torch.where(forbidden, -torch.inf, torch.inf).to(scores.dtype)
    scores.scatter_reduce_(1, ids, most, "amin")


_LEAST = 1e-30  # minimum attention, which keeps the logarithm finite


@dataclasses.dataclass
class Coverage:
    """Sums the attention of hypotheses and returns the coverage penalty of their scores.

    An instance serves one search.

    Wu et al. 2016, "Google's Neural Machine Translation System", arXiv:1609.08144, section 7,
    equation 14.

    Attributes:
      beta: weight of the penalty; Wu et al. report 0.2 as best.
    """

    beta: float
    _sums: Tensor | None = None  # [R, S]
    _mask: Tensor | None = None  # [R, S]

    def begin(self, state: Any) -> Any:
        """Returns a state whose steps return their attention.

        Raises:
          HParamsError: the model has no attention to its input.
        """
        watched = state.watched() if isinstance(state, Attending) else None
        if watched is None:
            raise HParamsError(
                f"coverage_penalty={self.beta}: the model does not attend to its input word by "
                "word, so nothing is known of what it has covered. Expected a transformer with an "
                "encoder or lstm_seq2seq_attention; set coverage_penalty=0."
            )
        return watched

    def add(self, attended: Attended | None) -> None:
        """Adds the attention of the last step."""
        assert attended is not None, "the state is watched"
        weights = attended.weights.float()
        self._sums = weights if self._sums is None else self._sums + weights
        self._mask = attended.mask

    def reorder(self, index: Tensor) -> None:
        """Selects the hypotheses with these indices, in this order."""
        if self._sums is not None:
            self._sums = self._sums.index_select(0, index)

    def penalty(self) -> Tensor:
        """Returns the score penalty of each hypothesis if it ends now: [R], at most 0.

        beta * sum over the input of log(min(attention to it so far, 1)).
        """
        assert self._sums is not None and self._mask is not None, "at least one step is done"
        logarithms = self._sums.clamp(_LEAST, 1.0).log()
        return self.beta * (logarithms * self._mask).sum(-1)


class DiversityPenalty(NamedTuple):
    """Penalties on log-probabilities in the choice of a group.

    Attributes:
      places: [R, K / G] penalties of the group's hypotheses.
      ids: [R, V] penalties of the next id.
    """

    places: Tensor
    ids: Tensor


@dataclasses.dataclass
class Diversity:
    """A beam of K hypotheses divided into G beams of K / G, each a row of the search.

    The groups of an input are contiguous.  In each step an id is penalized in a group for each
    active hypothesis of the preceding groups that takes the same id.  As in the authors' program a
    hypothesis keeps its penalties to the end, but they only affect which hypotheses are continued:
    scores are the model's own.

    An instance serves one search.

    Vijayakumar et al. 2018, "Diverse Beam Search for Improved Description of Complex Scenes", AAAI,
    arXiv:1610.02424: with the Hamming distance.

    Attributes:
      groups: G, a divisor of K.
      strength: penalty for each such hypothesis (nats).
    """

    groups: int
    strength: float
    _before: Tensor | None = None  # [R * G, K / G] accumulated penalties
    _added: Tensor | None = None  # [R * G, K / G] penalties of the last step

    def divided(self, beam: Beam) -> Beam:
        """Returns a beam of B rows as one of B * G."""
        return Beam(*(field.repeat_interleave(self.groups, 0) for field in beam))

    def group(self, beam: Beam, number: int) -> Beam:
        """Returns the group with this number of each input."""
        return Beam(*(field[number :: self.groups] for field in beam))

    def together(self, groups: list[Beam]) -> Beam:
        """Concatenates the groups; undoes `group`."""
        return Beam(*(torch.stack(fields, 1).flatten(0, 1) for fields in zip(*groups, strict=True)))

    def all_done(self, done: Tensor) -> Tensor:
        """Returns True for each group if all groups of its input are done.  [R * G] bool."""
        return done.view(-1, self.groups).all(1).repeat_interleave(self.groups, 0)

    def united(self, beam: Beam) -> Beam:
        """Returns the groups of each input as one beam, best first; undoes `divided`."""
        rows, limits = (field[:: self.groups] for field in (beam.rows, beam.limits))
        beams = []
        for ids, scores in (
            (beam.alive_ids, beam.alive_log_probs),
            (beam.ended_ids, beam.ended_scores),
        ):
            scores, order = scores.reshape(len(rows), -1).sort(dim=1, descending=True, stable=True)
            ids = ids.reshape(len(rows), -1, ids.size(-1))
            beams += [ids.gather(1, order.unsqueeze(-1).expand_as(ids)), scores]
        return Beam(rows, limits, *beams)

    def less(self, taken: Tensor, beam: Beam, number: int) -> DiversityPenalty:
        """Returns the penalties for a group's choice.

        Args:
          taken: [R, V] number of times the preceding groups took each id in this step.
          beam: the beam of all groups.
          number: number of the group.
        """
        if self._before is None:
            self._before = torch.zeros_like(beam.alive_log_probs)
        return DiversityPenalty(self._before[number :: self.groups], self.strength * taken)

    def keep(self, added: list[Tensor]) -> None:
        """Stores the penalties that the chosen hypotheses of each group received in this step."""
        self._added = torch.stack(added, 1).flatten(0, 1)

    def reorder(self, index: Tensor) -> None:
        """Selects hypotheses by index: [R', K / G] indices into R * (K / G) of the last step."""
        if self._before is None or self._added is None:
            return
        rows = index[:, 0] // index.size(1)
        self._before = self._before.flatten()[index] + self._added.index_select(0, rows)
        self._added = None


def add_taken(taken: Tensor, grown: Beam) -> None:
    """Counts the last ids of active hypotheses, [R, V], in place."""
    lives = (grown.alive_log_probs > NO_SCORE / 2).to(taken.dtype)
    taken.scatter_add_(1, grown.alive_ids[:, :, -1], lives)


PREFIX, CONSTRAINTS, FORBIDDEN = "targets_prefix", "constraints", "forbidden"
"""Keys of an input mapping; the first contains a text, the others lists of texts."""


class DecodeRequest(list[int]):
    """The ids of an input, with constraints on its output.

    Attributes:
      prefix: ids that the output begins with.
      constraints: phrases that the output contains.
      forbidden: phrases that the output does not contain.
    """

    def __init__(
        self,
        ids: Iterable[int],
        prefix: Sequence[int] = (),
        constraints: Sequence[Phrase] = (),
        forbidden: Sequence[Phrase] = (),
    ) -> None:
        super().__init__(ids)
        self.prefix = tuple(prefix)
        self.constraints = tuple(constraints)
        self.forbidden = tuple(forbidden)


class GenerationConstraints(NamedTuple):
    """Constraints on an output, as texts."""

    prefix: str = ""
    constraints: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()


def asks(value: Any, field: str) -> bool:
    """True if an input is a mapping with constraints on its output.

    Args:
      value: a text or a mapping.
      field: name of the text in the mapping.
    """
    keys = {PREFIX, CONSTRAINTS, FORBIDDEN} - {field}
    return isinstance(value, Mapping) and not keys.isdisjoint(value)


def read_constraints(value: Any, field: str) -> tuple[str, GenerationConstraints | None]:
    """Returns the text of an input and the constraints on its output; None if there are none.

    Args:
      value: a text, or a mapping with the text and, optionally, `targets_prefix` (a text),
        `constraints` and `forbidden` (lists of texts).  Other keys are ignored.
      field: name of the text in the mapping.

    Raises:
      DataError: the text is missing, or a constraint is not a text or a list of texts.
    """
    if not isinstance(value, Mapping):
        return value, None
    text = value.get(field)
    if not isinstance(text, str):
        raise DataError(f'expected a mapping with a text, {{"{field}": "..."}}, but it is {value}')
    if not asks(value, field):
        return text, None
    prefix = value.get(PREFIX, "")
    if not isinstance(prefix, str):
        raise DataError(f"{PREFIX!r} is {prefix!r}, where a text was expected.")
    constraints = GenerationConstraints(
        prefix.strip(), _texts(value, CONSTRAINTS), _texts(value, FORBIDDEN)
    )
    return text, constraints if any(constraints) else None


def _texts(record: Mapping[str, Any], key: str) -> tuple[str, ...]:
    texts = record.get(key, [])
    if not isinstance(texts, list | tuple) or not all(isinstance(one, str) for one in texts):
        raise DataError(f'{key!r} is {texts!r}, where a list of texts was expected: ["..."].')
    if any(not one.strip() for one in texts):
        raise DataError(f"{key!r} has an empty text. Expected words or phrases.")
    return tuple(dict.fromkeys(one.strip() for one in texts))


@dataclasses.dataclass(frozen=True)
class RequestMaker:
    """Creates requests from inputs with constraints on their outputs.

    Attributes:
      feature: feature of the outputs.
      hparams: search settings.
      cut: splits a text into words like the problem's targets.
      goes_on: name of the text that a language model continues; None if there are inputs.
    """

    feature: Text
    hparams: SearchHParams
    cut: Callable[[str], str]
    goes_on: str | None

    def request(self, ids: Sequence[int], given: GenerationConstraints) -> DecodeRequest:
        """Returns the ids of an input with the constraints on its output.

        Args:
          ids: ids of the input.
          given: constraints as texts.

        Raises:
          DataError: a text has no ids in the vocabulary, a required phrase is forbidden or too
            long, or this search method does not support the constraints.
        """
        if given.prefix and self.goes_on is not None:
            raise DataError(
                f"{PREFIX!r} is {given.prefix!r}, but a language model's input is itself how its "
                f"output begins. Put it at the end of {self.goes_on!r}."
            )
        constraints = {text: self._phrase(text) for text in given.constraints}
        forbidden = {text: self._phrase(text) for text in given.forbidden}
        prefix = list(self._ids(given.prefix)) if given.prefix else []
        for out, never in forbidden.items():
            if _stands_in(never.inside, prefix) or _begins(never.first, prefix):
                raise DataError(f"{given.prefix!r} is given, but {out!r} in it is forbidden.")
            for text, phrase in constraints.items():
                if _stands_in(never.inside, phrase.inside) or _begins(never.first, phrase.first):
                    raise DataError(f"{text!r} has to be written, but {out!r} in it is forbidden.")
        request = DecodeRequest(ids, prefix, list(constraints.values()), list(forbidden.values()))
        self._check(request)
        return request

    def _check(self, request: DecodeRequest) -> None:
        hparams = self.hparams
        if request.constraints and (hparams.draws or hparams.beam_size == 1):
            setting = "sampling_method=random" if hparams.draws else "beam_size=1"
            raise DataError(
                f"{CONSTRAINTS!r} needs a beam of hypotheses to find where they stand, but here is "
                f"{setting}. Expected a beam_size of at least 2, better more than they have tokens."
            )
        has_inputs = self.goes_on is None
        longest = [max(map(len, phrase)) for phrase in request.constraints]
        needed = len(request.prefix) + sum(longest) + 1
        limit = hparams.limit(len(request), has_inputs=has_inputs)
        limit -= 0 if has_inputs else len(request)
        if needed > limit:
            raise DataError(
                f"the required output has {needed} tokens, its end included, and the output "
                f"at most {limit}. Ask for less, or raise extra_length or max_length_ratio."
            )

    def _phrase(self, text: str) -> Phrase:
        """Returns the ids of a word or phrase, after other words and at the beginning of a text."""
        first = self._ids(text)
        words = self.cut(text).split()
        after = self.feature.encoder.encode_words([words[0], *words])[1:]
        inside = tuple(itertools.chain.from_iterable(after))
        return Phrase(inside, () if inside == first else first)

    def _ids(self, text: str) -> tuple[int, ...]:
        """Returns the ids of a text, without the end symbol."""
        text, feature = self.cut(text), self.feature
        (ids,) = feature.encode_batch([text])
        ids = [identity for identity in ids if identity != EOS]
        unknown = feature.encoder.unknown_ids.intersection(ids)
        if not ids or (unknown and feature.decode(ids) != text):
            raise DataError(
                f"{text!r} cannot be written with the vocabulary of the outputs: read back it is "
                f"{feature.decode(ids)!r}. Leave it out, or write it as the training data does."
            )
        return tuple(ids)


def _begins(part: Sequence[int], whole: Sequence[int]) -> bool:
    return bool(part) and list(whole[: len(part)]) == list(part)


def _stands_in(part: Sequence[int], whole: Sequence[int]) -> bool:
    size = len(part)
    return any(list(whole[at : at + size]) == list(part) for at in range(len(whole) - size + 1))
