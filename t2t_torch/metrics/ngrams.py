"""BLEU and ROUGE of teacher-forced predictions.

Each prediction is conditioned on the correct preceding ids, so these scores say little about free
generation: use the scores of decodes, `metrics/text_scores.py`.  tensor2tensor reports them as
`approx_bleu_score` etc., over subwords and with padding as tokens; here padding is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from t2t_torch.features import Text
from t2t_torch.metrics.alignment import common_lengths
from t2t_torch.metrics.bleu import SIZE, bleu_counts, bleu_of, ngrams
from t2t_torch.metrics.metric import Metric, Sums, counted, is_of
from t2t_torch.registry import register_metric

_TINY = 1e-8  # tensor2tensor's, added to the denominator of a harmonic mean
_TINY_L = 1e-12  # the same in ROUGE-L


@register_metric("teacher_forced_bleu")
@register_metric("approx_bleu_score")
class TeacherForcedBleu(Metric):
    """BLEU of the most likely ids against the correct ones, over ids.  Not comparable to BLEU."""

    of = (Text,)
    size = SIZE

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the n-gram counts.  [B, T, V], [B, T]."""
        pairs = _pairs(logits, targets, counted(self.feature, targets))
        sums = torch.zeros(SIZE, dtype=torch.float64)
        for guessed, right in pairs:
            sums += torch.tensor(bleu_counts(guessed, right), dtype=torch.float64)
        return sums

    def result(self, sums: Tensor) -> float:
        """Returns the score, 0 to 1."""
        return bleu_of(sums.tolist())


@register_metric("teacher_forced_rouge_2")
@register_metric("rouge_2_fscore")
@is_of(Text)
def teacher_forced_rouge_2(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the summed F1 of distinct bigrams per text, and the texts.  Not comparable to ROUGE.

    A text of fewer than two ids has 0.
    """
    total = 0.0
    for guessed, right in _pairs(logits, targets, counted):
        ours, theirs = set(ngrams(guessed, 2)), set(ngrams(right, 2))
        common = len(ours & theirs)
        precision, recall = common / max(len(ours), 1), common / max(len(theirs), 1)
        total += 2 * precision * recall / (precision + recall + _TINY)
    return torch.tensor(total, dtype=torch.float64), torch.tensor(len(targets))


@register_metric("teacher_forced_rouge_l")
@register_metric("rouge_L_fscore")
@is_of(Text)
def teacher_forced_rouge_l(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the summed F of longest common subsequences per text, and the texts.

    Not comparable to ROUGE.
    """
    lengths = counted.sum(-1)
    common = common_lengths(logits.argmax(-1), lengths, targets, lengths)
    return rouge_l(common, lengths, lengths).sum(), lengths.new_tensor(len(targets))


def rouge_l(common: Tensor, output: Tensor, reference: Tensor) -> Tensor:
    """Returns ROUGE-L of pairs, with tensor2tensor's recall weight.  Lin 2004, section 3.

    Args:
      common: length of the longest common subsequence, [N].
      output: lengths, [N].
      reference: lengths, [N].

    Returns:
      [N] float64.
    """
    recall = common.double() / reference.clamp(min=1)
    precision = common.double() / output.clamp(min=1)
    beta = (precision / (recall + _TINY_L)).square()
    return (1 + beta) * recall * precision / (recall + beta * precision + _TINY_L)


def _pairs(
    logits: Tensor, targets: Tensor, counted: Tensor
) -> Iterator[tuple[list[int], list[int]]]:
    """Yields the most likely and the correct ids of each text, without padding."""
    rows = logits.argmax(-1).tolist(), targets.tolist(), counted.tolist()
    for guessed, right, counts in zip(*rows, strict=True):
        places = [i for i, there in enumerate(counts) if there]
        yield [guessed[i] for i in places], [right[i] for i in places]
