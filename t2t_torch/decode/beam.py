"""One step of a beam search, as functions of tensors; `search.py` has the loop.

`policies.py` has the rules by which hypotheses end.  Exported graphs contain these functions,
too: none of them branches on the values of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.errors import DecodeError
from t2t_torch.text.encoder import PAD

if TYPE_CHECKING:
    from t2t_torch.decode.policies import BeamPolicy

_CACHED_ROWS = 128  # rows whose log-probabilities fit into a processor's cache
_BLOCK = 64  # ids
NO_SCORE = -1e7  # the score of an empty place; T2T's -INF, utils/beam_search.py:31


class Hypotheses(NamedTuple):
    """Results of a search, best first.

    Attributes:
      ids: [B, K, L] int64, without the prefix; up to and including the end symbol, padded with PAD.
      scores: [B, K] float32.  For an ended hypothesis: log-probability (nats) over length penalty.
        In a row without ended hypotheses: plain log-probabilities.  An empty place has `NO_SCORE`
        or less.
    """

    ids: Tensor
    scores: Tensor


class Beam(NamedTuple):
    """The active rows of a search: R rows, K places each, t ids so far, including the first PAD."""

    rows: Tensor  # [R] row of the batch
    limits: Tensor  # [R] maximum number of ids, prefix included
    alive_ids: Tensor  # [R, K, t]
    alive_log_probs: Tensor  # [R, K]
    ended_ids: Tensor  # [R, K, t]
    ended_scores: Tensor  # [R, K], best first

    def select(self, index: Tensor) -> Beam:
        """Returns the rows with these indices.  [R'] integers."""
        return Beam(*(field.index_select(0, index) for field in self))


class Candidates(NamedTuple):
    """The best C continuations of each row, best first."""

    parents: Tensor  # [R, C] the place that is continued
    ids: Tensor  # [R, C] the added id
    log_probs: Tensor  # [R, C]
    scores: Tensor  # [R, C]


def first_beam(max_lengths: Tensor, prefix: Tensor, beam_size: int) -> Beam:
    """Returns a beam with one active place per row; the others are too improbable to win."""
    batch_size, device = max_lengths.size(0), max_lengths.device
    ids = torch.cat([prefix.new_full((batch_size, 1), PAD), prefix], 1)
    ids = ids.unsqueeze(1).expand(-1, beam_size, -1)  # [B, K, 1 + P]
    log_probs = torch.full((batch_size, beam_size), NO_SCORE, device=device)
    log_probs[:, 0] = 0.0
    return Beam(
        rows=torch.arange(batch_size, device=device),
        limits=max_lengths,
        alive_ids=ids,
        alive_log_probs=log_probs,
        ended_ids=torch.full_like(ids, PAD),
        ended_scores=torch.full_like(log_probs, NO_SCORE),
    )


def candidates_of(
    logits: Tensor,
    beam: Beam,
    length: int | Tensor,
    policy: BeamPolicy,
    forbid: Callable[[Tensor, slice], None] | None = None,
) -> Candidates:
    """Returns the best `policy.per_place` * K continuations of each row: `best_of`, from logits.

    Args:
      logits: [R * K, V]; or only those of the first place of each row, [R, V], with at least that
        many ids.
      beam: beam before the step.
      length: ids so far, without the first `PAD`.
      policy: rules of the search.
      forbid: sets banned ids to minus infinity; called with log-probabilities of a slice of rows of
        the logits, and the slice.
    """
    beam_size = beam.alive_log_probs.size(1)
    if torch.compiler.is_exporting():
        limits = beam.limits.unsqueeze(1).expand(-1, beam_size).flatten()
        return best_of(policy.log_probs(logits, length, limits), beam, length, policy)
    count = policy.per_place * beam_size
    limits = beam.limits.repeat_interleave(len(logits) // len(beam.limits), 0)
    # On CPU log_softmax and topk together take less time than logsumexp alone (8k vocabulary).
    size = _CACHED_ROWS if logits.device.type == "cpu" else len(logits)
    candidates = []
    for first in range(0, len(logits), size):
        part = slice(first, first + size)
        of_part = policy.log_probs(logits[part], length, limits[part])
        if forbid is not None:
            forbid(of_part, part)
        candidates.append(_highest(of_part, count))
    log_probs, ids = (torch.cat(parts) for parts in zip(*candidates, strict=True))
    return _ranked(log_probs, ids, beam, length, policy)


def best_of(log_probs: Tensor, beam: Beam, length: int | Tensor, policy: BeamPolicy) -> Candidates:
    """Returns the best `policy.per_place` * K continuations of each row.

    Each place provides as many as the row needs in total, so none is missed.  Ties are resolved by
    the lower place, then the lower id, as in tensor2tensor: the candidates are in that order before
    a stable sort.
    """
    count = policy.per_place * beam.alive_log_probs.size(1)
    return _ranked(*_highest(log_probs, count), beam, length, policy)


def _highest(log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns up to `count` highest log-probabilities of each place, and their ids."""
    if count == 1:
        values, ids = log_probs.max(-1, keepdim=True)  # the first one for ties
        return values, ids
    ids = likeliest_of(log_probs, min(count, log_probs.size(-1)))
    return log_probs.gather(-1, ids), ids


def _ranked(
    log_probs: Tensor, ids: Tensor, beam: Beam, length: int | Tensor, policy: BeamPolicy
) -> Candidates:
    """Returns each row's best continuations among those of its places, [R * K, width]."""
    num_rows, width = beam.alive_log_probs.size(0), ids.size(-1)
    count = policy.per_place * beam.alive_log_probs.size(1)
    log_probs = log_probs.view(num_rows, -1, width)  # [R, K or 1, width]
    log_probs = log_probs + beam.alive_log_probs[:, : log_probs.size(1)].unsqueeze(-1)
    lengths = torch.as_tensor(length, dtype=torch.float32, device=log_probs.device)
    penalty = policy.divisor(lengths + 1.0, beam.limits)
    scores = log_probs.flatten(1) / penalty  # [R, K * width]
    scores, order = scores.sort(dim=-1, descending=True, stable=True)
    scores, order = scores[:, :count], order[:, :count]
    return Candidates(
        parents=order // width,
        ids=ids.view(num_rows, -1).gather(1, order),
        log_probs=scores * penalty,
        scores=scores,
    )


def likeliest_of(log_probs: Tensor, count: int) -> Tensor:
    """Returns the ids of the `count` highest; lower ids for ties.  [N, V] -> [N, count], the lowest
    id first.

    `topk` resolves ties arbitrarily.  This matters only where some of them are left out, which is
    rare in float32: ties in those rows are resolved by a second selection by id.
    """
    vocab_size = log_probs.size(-1)
    if torch.compiler.is_exporting():  # ONNX's TopK takes the lower ids for ties
        return log_probs.topk(count, -1).indices.sort(-1).values
    values, ids = _topk(log_probs, min(count + 1, vocab_size))
    chosen = ids[:, :count]
    if count < vocab_size:
        tied = (values[:, -1] == values[:, -2]).nonzero().flatten()
        if tied.numel():
            chosen[tied] = _lowest_of_equals(log_probs[tied], values[tied], chosen[tied])
    return chosen.sort(-1).values


def _topk(log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns `topk` over ids; on a CPU only over the blocks with the highest maxima.

    These contain the highest values.  546 rows of 8,192 take 4 ms instead of 6 on one core.
    """
    rows, vocab_size = log_probs.shape
    number = vocab_size // _BLOCK
    if log_probs.device.type != "cpu" or number < 4 * count:
        values, ids = log_probs.topk(count, -1)
        return values, ids
    blocks = torch.unflatten(log_probs[:, : number * _BLOCK], -1, (number, _BLOCK))
    chosen = blocks.amax(-1).topk(count, -1).indices  # [N, count]
    ids = (chosen.unsqueeze(-1) * _BLOCK + torch.arange(_BLOCK)).flatten(1)
    rest = torch.arange(number * _BLOCK, vocab_size).expand(rows, -1)
    ids = torch.cat([ids, rest], 1)
    values, places = log_probs.gather(-1, ids).topk(count, -1)
    return values, ids.gather(-1, places)


def _lowest_of_equals(log_probs: Tensor, values: Tensor, ids: Tensor) -> Tensor:
    """Returns the ids of the highest values; ties with the last value are resolved by lower ids.

    Args:
      log_probs: [N, V].
      values: [N, C + 1], the highest, best first.
      ids: [N, C], ids of the first C values.

    Returns:
      [N, C].
    """
    above = values[:, :-1] > values[:, -1:]  # [N, C]: these come first
    rows, equals = (log_probs == values[:, -1:]).nonzero(as_tuple=True)  # row by row, ids ascending
    numbers = torch.arange(len(ids), device=ids.device)
    first = torch.searchsorted(rows, numbers) - above.sum(1)
    places = first[:, None] + torch.arange(ids.size(1), device=ids.device)
    return torch.where(above, ids, equals[places.clamp(min=0)])


def force(beam: Beam, grown: Beam, parents: Tensor, ids: Tensor) -> tuple[Beam, Tensor]:
    """Undoes the growth of rows that are still inside their prefix, and appends its next id.

    Args:
      beam: beam before the step.
      grown: beam after the step.
      parents: [R, K], parents of the step.
      ids: [R] next id of each prefix, PAD at its end.
    """
    beam_size = parents.size(1)
    row, place = (ids != PAD).view(-1, 1), (ids != PAD).view(-1, 1, 1)
    forced_ids = torch.cat([beam.alive_ids, ids.view(-1, 1, 1).expand(-1, beam_size, 1)], -1)
    settled = grown._replace(
        alive_ids=torch.where(place, forced_ids, grown.alive_ids),
        alive_log_probs=torch.where(row, beam.alive_log_probs, grown.alive_log_probs),
        ended_ids=torch.where(place, pad_one(beam.ended_ids), grown.ended_ids),
        ended_scores=torch.where(row, beam.ended_scores, grown.ended_scores),
    )
    return settled, torch.where(row, torch.arange(beam_size, device=parents.device), parents)


def gather_ids(ids: Tensor, places: Tensor) -> Tensor:
    """Returns the ids at these places.  [R, K, t] by [R, C] -> [R, C, t]."""
    return ids.gather(1, places.unsqueeze(-1).expand(-1, -1, ids.size(-1)))


def pad_one(ids: Tensor) -> Tensor:
    """Appends PAD.  [R, K, t] -> [R, K, t + 1]."""
    return F.pad(ids, (0, 1), value=PAD)


def assemble(done: list[Beam], prefix_lengths: Tensor) -> Hypotheses:
    """Restores the order of the rows and removes the prefixes.

    Args:
      done: rows that finished together.
      prefix_lengths: [B].
    """
    longest = max(beam.alive_ids.size(-1) for beam in done)
    ids, scores = [], []
    for beam in done:
        result = result_of(beam)
        ids.append(F.pad(result.ids, (0, longest - result.ids.size(-1)), value=PAD))
        scores.append(result.scores)
    back = torch.cat([beam.rows for beam in done]).argsort()
    all_ids, all_scores = torch.cat(ids)[back], torch.cat(scores)[back]
    if bool(all_scores.isnan().any()):
        raise DecodeError(
            "the model's logits are not numbers, so nothing can be decoded: its weights are not "
            "finite.  Decode an earlier checkpoint (--checkpoint_path) and look at the training "
            "loss in the run's metrics.jsonl."
        )
    all_ids = without_prefix(all_ids, prefix_lengths)
    return Hypotheses(all_ids[:, :, : longest - 1 - int(prefix_lengths.min())], all_scores)


def result_of(beam: Beam) -> Hypotheses:
    """Returns the results of rows, with the first PAD and the prefixes."""
    any_ended = beam.ended_scores[:, :1] > NO_SCORE
    return Hypotheses(
        torch.where(any_ended.unsqueeze(-1), beam.ended_ids, beam.alive_ids),
        torch.where(any_ended, beam.ended_scores, beam.alive_log_probs),
    )


def without_prefix(ids: Tensor, prefix_lengths: Tensor) -> Tensor:
    """Removes each row's initial PAD and prefix; pads the end with PAD.

    Args:
      ids: [B, K, t].
      prefix_lengths: [B].

    Returns:
      [B, K, t].
    """
    width = ids.size(-1)
    places = torch.arange(width, device=ids.device) + 1 + prefix_lengths.unsqueeze(1)  # [B, t]
    inside = (places < width).unsqueeze(1)
    places = places.clamp(max=width - 1).unsqueeze(1).expand_as(ids)
    return torch.where(inside, ids.gather(2, places), PAD)
