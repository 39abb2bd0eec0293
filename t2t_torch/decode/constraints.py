"""Constraints on generated text: required and banned phrases, coverage, diversity, requests.

Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation for Neural
Machine Translation", NAACL, arXiv:1804.06609.  Banks that have too little leave their places to the
others, as each gives one hypothesis in turn.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.decode.beam import NO_SCORE, Beam, Candidates, length_penalty, likeliest_of
from t2t_torch.decode.hparam import SearchHParams
from t2t_torch.errors import DataError, HParamsError
from t2t_torch.features import Text
from t2t_torch.layers.attention import Attended, Attending
from t2t_torch.text.encoder import EOS, PAD

# Phrases, as ids, that are looked for in hypotheses.


NOTHING = -1
"""Stands where there is no id."""


class Phrase(NamedTuple):
    """A word or phrase that a text may have.

    Attributes:
      inside: its ids after other words.
      first: its ids where a text begins with it; empty if they are the same.
    """

    inside: tuple[int, ...]
    first: tuple[int, ...] = ()


class Phrases(NamedTuple):
    """Phrases of each row: P / 2 at most, first as they are inside a text, then as it begins.

    Attributes:
      ids: [B, P, L] int64, PAD after them.
      lengths: [B, P] int64, 0 where there is none.
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
                for place, found in ((number, phrase.inside), (most + number, phrase.first)):
                    ids[row, place, : len(found)] = torch.tensor(found, dtype=torch.int64)
                    lengths[row, place] = len(found)
        return cls(ids.to(device), lengths.to(device))

    @property
    def _only_first(self) -> Tensor:
        """Which only stand where a text begins.  [P, 1] bool."""
        places = torch.arange(self.lengths.size(1), device=self.lengths.device)
        return (places >= self.lengths.size(1) // 2).unsqueeze(1)

    def select(self, rows: Tensor) -> Phrases:
        """Returns the phrases of rows of these numbers.  [N] integers."""
        return Phrases(self.ids.index_select(0, rows), self.lengths.index_select(0, rows))

    def begun(self, written: Tensor) -> Tensor:
        """Returns how much of each phrase stands at the end of what is written.

        Args:
          written: [B, t] ids.

        Returns:
          [B, P, L] bool: at j, whether the last j ids are the first j of the phrase, which is
          longer than that.
        """
        longest = self.ids.size(-1)
        padded = F.pad(written, (longest, 0), value=NOTHING)
        found = [torch.ones_like(self.lengths, dtype=torch.bool)]
        for count in range(1, longest):
            found.append((padded[:, None, -count:] == self.ids[:, :, :count]).all(-1))
        places = torch.arange(longest, device=written.device)
        ends_here = torch.stack(found[:longest], -1) & (places < self.lengths.unsqueeze(-1))
        return ends_here & (~self._only_first | (places == written.size(1)))

    def within(self, written: Tensor) -> Tensor:
        """Returns whether each phrase stands somewhere in what is written.

        [B, t] -> [B, P] bool, False where there is no phrase.
        """
        longest = self.ids.size(-1)
        windows = F.pad(written, (longest, 0), value=NOTHING).unfold(1, longest, 1)  # [B, t+1, L]
        # A window is compared from its end on: what is longer than the phrase does not count.
        places = torch.arange(longest, device=written.device) - longest + self.lengths[..., None]
        last = self.ids.gather(-1, places.clamp(min=0))[:, :, None]  # [B, P, 1, L]
        alike = (windows[:, None] == last) | (places < 0)[:, :, None]
        found = alike.all(-1)  # [B, P, t + 1], by where it ends
        ends = torch.arange(found.size(-1), device=found.device)
        found &= ~self._only_first | (ends == self.lengths.unsqueeze(-1))
        return found.any(-1) & (self.lengths > 0)

    def last(self) -> Tensor:
        """Returns the last id of each phrase; of none PAD.  [B, P]."""
        return self.ids.gather(-1, (self.lengths - 1).clamp(min=0).unsqueeze(-1)).squeeze(-1)


class Progress(NamedTuple):
    """How far hypotheses are with their phrases, C of each of N at most; see `Phrases`.

    Attributes:
      phrases: of each hypothesis, P = 2 C: as they are inside a text, then as it begins.
      met: [N, C] which are written.
      begun: [N, P, L] at j: whether the last j ids are the phrase's first j, and it is longer.
      needed: [N] ids that are enough for what is left.
      wanted: [N, P] the next id of each phrase that is left; -1 where there is none.
      urgent: [N, P] those of `wanted` with which fewer are needed.
    """

    phrases: Phrases
    met: Tensor
    begun: Tensor
    needed: Tensor
    wanted: Tensor
    urgent: Tensor


class Constraints:
    """Phrases that each row has to have; a row without any is searched as without this.

    A phrase is met wherever its ids stand side by side.  A hypothesis ends only when all are; the
    hypotheses of a row are kept in banks by the ids of phrases that they have, and each bank gives
    its best in turn, the furthest first.  When no more ids are left in a row than its phrases need,
    nothing else is written.

    Args:
      phrases: of each row of the batch, each at least one id.
    """

    def __init__(self, phrases: Phrases) -> None:
        self._phrases = phrases

    def progress(self, ids: Tensor, rows: Tensor) -> Progress:
        """Returns how far hypotheses are.  ids [N, t] and the row [N] of each."""
        phrases = self._phrases.select(rows)
        inside, first = phrases.lengths.chunk(2, 1)  # [N, C] each
        met, begun = _either(phrases.within(ids)), phrases.begun(ids)
        left = ~met & (inside > 0)
        furthest = _furthest(begun)  # [N, P]
        # What has another form where a text begins takes that one there, and only there.
        goes_on = left if ids.size(1) else left & (first == 0)
        possible = torch.cat([goes_on, left & begun.chunk(2, 1)[1].any(-1)], 1)
        saved = torch.cat([inside, inside], 1) - phrases.lengths + furthest
        most = saved.masked_fill(~possible, -_NEVER).amax(1)
        following = phrases.ids.gather(-1, furthest.unsqueeze(-1)).squeeze(-1)
        return Progress(
            phrases,
            met,
            begun,
            needed=((inside * left).sum(1) - most).masked_fill(~left.any(1), 0),
            wanted=torch.where(possible, following, NOTHING),
            urgent=possible & (saved == most.unsqueeze(1)),
        )

    def restrict(self, scores: Tensor, progress: Progress, room: Tensor, given: Tensor) -> None:
        """Puts minus infinity where an id would leave a phrase out; see `LogitsProcessor`.

        Args:
          scores: [N, V], which is changed.
          progress: of the hypotheses.
          room: [N] ids that may still be written before the end symbol.
          given: [N, V] the scores before anything was forbidden, which is what phrases keep where
            all else is.
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
        scores.copy_(torch.where(stuck.unsqueeze(1) & urgent, given, scores))

    def candidates(
        self, scores: Tensor, progress: Progress, beam: Beam, length: int, alpha: float
    ) -> Candidates:
        """Returns K continuations that go on and K that end, [R, 2 K]; see `candidates_of`.

        Args:
          scores: [N, V] log-probabilities, minus infinity of what may not follow.
          progress: of the N = R * K hypotheses.
          beam: of R rows.
          length: ids so far.
          alpha: exponent of the length penalty.
        """
        num_rows, beam_size = beam.alive_log_probs.shape
        width = min(scores.size(1), 2 * beam_size + progress.wanted.size(1))
        ids = _with_wanted(scores, progress.wanted, width)  # [N, W]
        needed = _needed_after(progress, ids).view(num_rows, -1)
        found = scores.gather(1, ids).view(num_rows, beam_size, width)
        found = found + beam.alive_log_probs.unsqueeze(-1)
        penalty = length_penalty(found.new_full((), length + 1.0), alpha)
        ids, found = ids.view(num_rows, -1), found.flatten(1) / penalty
        # By bank, what may not be last; then by score; then as they stand.
        possible = ~torch.isneginf(found)
        bank = torch.where(possible, needed, needed.max() + 1)
        order = found.sort(dim=1, descending=True, stable=True).indices
        order = order.gather(1, bank.gather(1, order).sort(dim=1, stable=True).indices)
        ends, bank = (ids == EOS).gather(1, order), bank.gather(1, order)
        possible, by_place = possible.gather(1, order), found.gather(1, order)
        turn = _place_in_bank(bank, possible & ~ends)
        # Of what ends, as much is looked at as in any search: the best 2 K, here of a bank.
        seen = ends & (_place_in_bank(bank, possible) < 2 * beam_size)
        going = torch.where(possible & ~ends, turn * (needed.max() + 2) + bank, _NEVER)
        chosen = [going.sort(dim=1, stable=True).indices[:, :beam_size]]
        scored = torch.where(seen, by_place, -torch.inf)
        chosen.append(scored.sort(dim=1, descending=True, stable=True).indices[:, :beam_size])
        kept = torch.where(torch.cat([going < _NEVER, seen], 1), 1, 0)
        kept = kept.gather(1, torch.cat([chosen[0], chosen[1] + ids.size(1)], 1)).bool()
        order = order.gather(1, torch.cat(chosen, 1))
        best = torch.where(kept, found.gather(1, order), -torch.inf)
        return Candidates(order // width, ids.gather(1, order), best * penalty, best)


_NEVER = 2**40  # above any turn


def _furthest(begun: Tensor) -> Tensor:
    """The most ids of each phrase that have just been written.  [N, ..., L] -> [N, ...]."""
    return (begun * torch.arange(begun.size(-1), device=begun.device)).amax(-1)


def _with_wanted(scores: Tensor, wanted: Tensor, width: int) -> Tensor:
    """The likeliest ids, the wanted ones among them, from the lowest on.  [N, V] -> [N, width]."""
    raised = F.pad(scores, (0, 1))
    places = torch.where(wanted == NOTHING, scores.size(1), wanted)
    more = scores.gather(1, wanted.clamp(min=0)) + _FIRST
    raised = raised.scatter(1, places, more)[:, :-1]
    return likeliest_of(raised, width)


_FIRST = 1e5  # more than log-probabilities differ


def _needed_after(progress: Progress, ids: Tensor) -> Tensor:
    """What is needed after one more id.  [N, W] -> [N, W]."""
    phrases = progress.phrases
    inside = phrases.lengths.chunk(2, 1)[0].unsqueeze(1)  # [N, 1, C]
    longer = progress.begun.unsqueeze(1) & (phrases.ids.unsqueeze(1) == ids[:, :, None, None])
    counts = torch.arange(1, longer.size(-1) + 1, device=ids.device)  # ids of the phrase then
    lengths = phrases.lengths[:, None, :, None]
    met_now = _either((longer & (counts == lengths)).any(-1).flatten(0, 1))
    met = progress.met.unsqueeze(1) | met_now.unflatten(0, ids.shape)  # [N, W, C]
    left = ~met & (inside > 0)
    partly = longer & (counts < lengths)
    saved = torch.cat([inside, inside], -1).unsqueeze(-1) - lengths + counts
    saved = (saved * partly).amax(-1) * torch.cat([left, left], -1)  # at least 0
    return (inside * left).sum(-1) - saved.amax(-1)


def _either(found: Tensor) -> Tensor:
    """Whether a phrase is there in one of its forms.  [N, P] -> [N, C]."""
    inside, first = found.chunk(2, 1)
    return inside | first


def _place_in_bank(bank: Tensor, counted: Tensor) -> Tensor:
    """How many of those that count stand before each in its bank.  [R, M], banks side by side."""
    before = counted.long().cumsum(1) - counted.long()
    first = F.pad(bank[:, 1:] != bank[:, :-1], (1, 0), value=True)
    places = torch.arange(bank.size(1), device=bank.device)
    start = torch.where(first, places, 0).cummax(1).values
    return before - before.gather(1, start)


# What may not be written next: bans on ids, for search and for drawing.
#
# Each has `forbid`, which puts minus infinity where an id may not follow.  A score of what is found
# stays the model's own: nothing is made likelier where something is forbidden.


class Written(NamedTuple):
    """What is written so far.

    Attributes:
      ids: [N, t] int64, with what was given to begin with.
      rows: [N] the row of the batch that each belongs to.
      wanted: [N, P] ids that may follow although they repeat something; None: there are none.
    """

    ids: Tensor
    rows: Tensor
    wanted: Tensor | None = None


class LogitsProcessor(Protocol):
    """Says what may not follow."""

    def forbid(self, scores: Tensor, written: Written) -> None:
        """Puts minus infinity where an id may not follow.  `scores` [N, V] is changed."""


@dataclasses.dataclass(frozen=True)
class MinimumLength:
    """No end before a length is reached, and nothing that is no text in its place.

    Attributes:
      lengths: [B] ids that each row has at least, its beginning and the end symbol counted.
    """

    lengths: Tensor

    def forbid(self, scores: Tensor, written: Written) -> None:
        """Forbids `EOS` and `PAD`; see `LogitsProcessor`."""
        early = written.ids.size(1) + 1 < self.lengths[written.rows]
        for identity in (PAD, EOS):
            scores[:, identity].masked_fill_(early, -torch.inf)


@dataclasses.dataclass(frozen=True)
class RepeatedNgrams:
    """Nothing that would make n ids follow each other a second time.  Paulus et al. 2018, 2.5.

    Attributes:
      size: n.
    """

    size: int

    def forbid(self, scores: Tensor, written: Written) -> None:
        """Forbids what ended the same n-1 ids before, but never `EOS`; see `LogitsProcessor`."""
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
    """Words and phrases that may not be written.

    Attributes:
      phrases: of each row.
    """

    phrases: Phrases

    def forbid(self, scores: Tensor, written: Written) -> None:
        """Forbids the last id of a phrase after all that come before it; see `LogitsProcessor`."""
        phrases = self.phrases.select(written.rows)
        before = (phrases.lengths - 1).clamp(min=0).unsqueeze(-1)
        about_to = phrases.begun(written.ids).gather(-1, before).squeeze(-1)
        _forbid_where(scores, phrases.last(), about_to & (phrases.lengths > 0))


def _forbid_where(scores: Tensor, ids: Tensor, forbidden: Tensor) -> None:
    """Puts minus infinity at ids, [N, C], where they are forbidden, [N, C] bool."""
    most = torch.where(forbidden, -torch.inf, torch.inf).to(scores.dtype)
    scores.scatter_reduce_(1, ids, most, "amin")


# How much of the input a hypothesis has attended to.
#
# Wu et al. 2016, "Google's Neural Machine Translation System", arXiv:1609.08144, section 7,
# equation 14.


_LEAST = 1e-30  # of what a word was attended to, so that its logarithm is a number


class Coverage:
    """Adds up what hypotheses attend to, and says what is taken off their scores for the rest.

    Used for one search.

    Args:
      beta: how much it counts; 0.2 is what Wu et al. found best.
    """

    def __init__(self, beta: float) -> None:
        self.beta = beta
        self._sums: Tensor | None = None  # [R, S]
        self._mask: Tensor | None = None  # [R, S]

    def begin(self, state: Any) -> Any:
        """Returns a state whose steps tell what they attend to.

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
        """Adds what the last step attended to."""
        assert attended is not None, "the state is watched"
        weights = attended.weights.float()
        self._sums = weights if self._sums is None else self._sums + weights
        self._mask = attended.mask

    def reorder(self, index: Tensor) -> None:
        """Keeps the hypotheses of these numbers, in this order."""
        if self._sums is not None:
            self._sums = self._sums.index_select(0, index)

    def penalty(self) -> Tensor:
        """Returns what is added to the score of each hypothesis if it ends here: [R], not above 0.

        beta * sum over the input of log(min(attention to it so far, 1)).
        """
        assert self._sums is not None and self._mask is not None, "at least one step is done"
        logarithms = self._sums.clamp(_LEAST, 1.0).log()
        return self.beta * (logarithms * self._mask).sum(-1)


# Groups of hypotheses that keep away from each other.
#
# Vijayakumar et al. 2018, "Diverse Beam Search for Improved Description of Complex Scenes", AAAI,
# arXiv:1610.02424: with the Hamming distance.


class DiversityPenalty(NamedTuple):
    """What is taken off log-probabilities where a group chooses.

    Attributes:
      places: [R, K / G] off those of its hypotheses.
      ids: [R, V] off those of the next id.
    """

    places: Tensor
    ids: Tensor


class Diversity:
    """A beam of K hypotheses as G beams of K / G, of which each is a row of the search.

    The groups of an input stand side by side.  An id counts as less likely in a group for each
    living hypothesis of the groups before it that takes the same id in the same step; as in the
    authors' program a hypothesis bears that to its end, but only in the choice of what is gone on
    with: scores are the model's own.

    Used for one search.

    Args:
      groups: G, a divisor of K.
      strength: what each such hypothesis takes off a log-probability (nats).
    """

    def __init__(self, groups: int, strength: float) -> None:
        self.groups = groups
        self.strength = strength
        self._before: Tensor | None = None  # [R * G, K / G] what hypotheses bear
        self._added: Tensor | None = None  # [R * G, K / G] what was added in the last step

    def divided(self, beam: Beam) -> Beam:
        """Returns the beam of B rows as one of B * G."""
        return Beam(*(field.repeat_interleave(self.groups, 0) for field in beam))

    def group(self, beam: Beam, number: int) -> Beam:
        """Returns one group of each input."""
        return Beam(*(field[number :: self.groups] for field in beam))

    def together(self, groups: list[Beam]) -> Beam:
        """Returns the groups side by side again; undoes `group`."""
        return Beam(*(torch.stack(fields, 1).flatten(0, 1) for fields in zip(*groups, strict=True)))

    def all_done(self, done: Tensor) -> Tensor:
        """Returns for each group whether all of its input are done.  [R * G] bool."""
        return done.view(-1, self.groups).all(1).repeat_interleave(self.groups)

    def united(self, beam: Beam) -> Beam:
        """Returns the groups of each input as one beam, best first; undoes `divided`."""
        rows, limits = (field[:: self.groups] for field in (beam.rows, beam.limits))
        found = []
        for ids, scores in (
            (beam.alive_ids, beam.alive_log_probs),
            (beam.ended_ids, beam.ended_scores),
        ):
            scores, order = scores.reshape(len(rows), -1).sort(dim=1, descending=True, stable=True)
            ids = ids.reshape(len(rows), -1, ids.size(-1))
            index = order.unsqueeze(-1).expand_as(ids)
            found += [ids.gather(1, index), scores]
        return Beam(rows, limits, *found)

    def less(self, taken: Tensor, beam: Beam, number: int) -> DiversityPenalty:
        """Returns what a group's choice goes by.

        Args:
          taken: [R, V] how often the groups before it took each id in this step.
          beam: of all groups.
          number: of the group.
        """
        if self._before is None:
            self._before = torch.zeros_like(beam.alive_log_probs)
        return DiversityPenalty(self._before[number :: self.groups], self.strength * taken)

    def keep(self, added: list[Tensor]) -> None:
        """Keeps what each group's hypotheses, as they are chosen now, bear more than before."""
        self._added = torch.stack(added, 1).flatten(0, 1)

    def reorder(self, index: Tensor) -> None:
        """Keeps the hypotheses of these numbers.  [R', K / G] into R * (K / G) of the last step."""
        if self._before is None or self._added is None:
            return
        kept = index[:, 0] // index.size(1)
        self._before = self._before.flatten()[index] + self._added.index_select(0, kept)
        self._added = None


def add_taken(taken: Tensor, grown: Beam) -> None:
    """Counts the ids that living hypotheses took last, [R, V] of each row."""
    lives = (grown.alive_log_probs > NO_SCORE / 2).to(taken.dtype)
    taken.scatter_add_(1, grown.alive_ids[:, :, -1], lives)


# What may be asked of the output of one input, beside the input itself.


PREFIX, CONSTRAINTS, FORBIDDEN = "targets_prefix", "constraints", "forbidden"
"""The keys of an input that is a mapping; of the first a text, of the others lists of texts."""


class Request(list[int]):
    """The ids of an input, with what is asked of its output.

    Attributes:
      prefix: ids that it begins with.
      constraints: phrases that stand in it.
      forbidden: phrases that do not.
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
    """What is asked of an output, as texts."""

    prefix: str = ""
    constraints: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()


def asks(given: Any, field: str) -> bool:
    """Whether an input is a mapping that asks something of its output.

    Args:
      given: a text or a mapping.
      field: the name of the text in it.
    """
    keys = {PREFIX, CONSTRAINTS, FORBIDDEN} - {field}
    return isinstance(given, Mapping) and not keys.isdisjoint(given)


def read_wishes(given: Any, field: str) -> tuple[str, GenerationConstraints | None]:
    """Returns the text of an input and what is asked of its output, if anything.

    Args:
      given: a text, or a mapping with the text and, as far as something is asked, `targets_prefix`
        (a text), `constraints` and `forbidden` (lists of texts).  Other keys are left alone.
      field: the name of the text in it.

    Raises:
      DataError: it has no text, or something else where texts are expected.
    """
    if not isinstance(given, Mapping):
        return given, None
    text = given.get(field)
    if not isinstance(text, str):
        raise DataError(f'expected a mapping with a text, {{"{field}": "..."}}, but it is {given}')
    if not asks(given, field):
        return text, None
    prefix = given.get(PREFIX, "")
    if not isinstance(prefix, str):
        raise DataError(f"{PREFIX!r} is {prefix!r}, where a text was expected.")
    wishes = GenerationConstraints(
        prefix.strip(), _texts(given, CONSTRAINTS), _texts(given, FORBIDDEN)
    )
    return text, wishes if any(wishes) else None


def _texts(given: Mapping[str, Any], key: str) -> tuple[str, ...]:
    found = given.get(key, [])
    if not isinstance(found, list | tuple) or not all(isinstance(one, str) for one in found):
        raise DataError(f'{key!r} is {found!r}, where a list of texts was expected: ["..."].')
    if any(not one.strip() for one in found):
        raise DataError(f"{key!r} has an empty text. Expected words or phrases.")
    return tuple(dict.fromkeys(one.strip() for one in found))


class RequestMaker:
    """Makes requests of inputs that ask something of their outputs.

    Args:
      feature: of the outputs.
      hparams: how they are searched for.
      cut: cuts a text into words as the problem cuts its targets; None: texts stay as they are.
      goes_on: the name of the text that a language model goes on with; None if there are inputs.
    """

    def __init__(
        self,
        feature: Text,
        hparams: SearchHParams,
        *,
        cut: Callable[[str], str] | None = None,
        goes_on: str | None = None,
    ) -> None:
        self._feature = feature
        self._hparams = hparams
        self._cut = cut or str
        self._goes_on = goes_on

    def request(self, ids: Sequence[int], wishes: GenerationConstraints) -> Request:
        """Returns the ids of an input with what is asked of its output.

        Args:
          ids: of the input.
          wishes: as texts.

        Raises:
          DataError: a text has no ids in the vocabulary, what has to be written is forbidden or
            too long, or a search of this kind cannot find it.
        """
        if wishes.prefix and self._goes_on is not None:
            raise DataError(
                f"{PREFIX!r} is {wishes.prefix!r}, but a language model's input is itself how its "
                f"output begins. Put it at the end of {self._goes_on!r}."
            )
        constraints = {text: self._phrase(text) for text in wishes.constraints}
        forbidden = {text: self._phrase(text) for text in wishes.forbidden}
        prefix = list(self._ids(wishes.prefix)) if wishes.prefix else []
        for out, never in forbidden.items():
            if _stands_in(never.inside, prefix) or _begins(never.first, prefix):
                raise DataError(f"{wishes.prefix!r} is given, but {out!r} in it is forbidden.")
            for text, phrase in constraints.items():
                if _stands_in(never.inside, phrase.inside) or _begins(never.first, phrase.first):
                    raise DataError(f"{text!r} has to be written, but {out!r} in it is forbidden.")
        request = Request(ids, prefix, list(constraints.values()), list(forbidden.values()))
        self._check(request)
        return request

    def _check(self, request: Request) -> None:
        hparams = self._hparams
        if request.constraints and (hparams.draws or hparams.beam_size == 1):
            asked = "sampling_method=random" if hparams.draws else "beam_size=1"
            raise DataError(
                f"{CONSTRAINTS!r} needs a beam of hypotheses to find where they stand, but here is "
                f"{asked}. Expected a beam_size of at least 2, better more than they have tokens."
            )
        has_inputs = self._goes_on is None
        longest = [max(map(len, phrase)) for phrase in request.constraints]
        needed = len(request.prefix) + sum(longest) + 1
        limit = hparams.limit(len(request), has_inputs=has_inputs)
        limit -= 0 if has_inputs else len(request)
        if needed > limit:
            raise DataError(
                f"what is asked of the output has {needed} tokens, its end counted, and the output "
                f"at most {limit}. Ask for less, or raise extra_length or max_length_ratio."
            )

    def _phrase(self, text: str) -> Phrase:
        """The ids of a word or phrase, after other words and where a text begins."""
        first = self._ids(text)
        words = self._cut(text).split()
        after = self._feature.encoder.encode_words([words[0], *words])[1:]
        inside = tuple(itertools.chain.from_iterable(after))
        return Phrase(inside, () if inside == first else first)

    def _ids(self, text: str) -> tuple[int, ...]:
        """The ids of a text, without the end symbol."""
        text, feature = self._cut(text), self._feature
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
