"""Edit distances and longest common subsequences, and metrics based on them."""

from __future__ import annotations

import torch
from torch import Tensor

from t2t_torch.features import Tags, Text
from t2t_torch.metrics.metric import Metric, Sums, counted, is_error, is_of
from t2t_torch.registry import register_metric


def edit_distances(output: Tensor, output_lengths: Tensor, to: Tensor, lengths: Tensor) -> Tensor:
    """Returns the Levenshtein distance between each pair of rows.

    Args:
      output: ids, [N, S].
      output_lengths: length of each row, [N].
      to: ids, [N, T].
      lengths: length of each row, [N].

    Returns:
      [N] int64.
    """
    places = torch.arange(to.size(1) + 1, device=to.device)
    row = places.expand(len(to), -1)  # [N, T + 1]: from the first i ids to the first j
    for i in range(output.size(1)):
        differs = (to != output[:, i : i + 1]).long()
        best = torch.minimum(row[:, 1:] + 1, row[:, :-1] + differs)
        best = torch.cat([torch.full_like(row[:, :1], i + 1), best], 1)
        # An insertion costs one: the minimum over all earlier columns plus their distance.
        best = (best - places).cummin(1).values + places
        row = torch.where((i < output_lengths)[:, None], best, row)
    return row.gather(1, lengths[:, None]).squeeze(1)


def common_lengths(output: Tensor, output_lengths: Tensor, to: Tensor, lengths: Tensor) -> Tensor:
    """Returns the length of the longest common subsequence of each pair of rows.

    Arguments and shapes are those of `edit_distances`.
    """
    row = torch.zeros(len(to), to.size(1) + 1, dtype=torch.int64, device=to.device)
    for i in range(output.size(1)):
        same = (to == output[:, i : i + 1]).long()
        best = torch.maximum(row[:, 1:], row[:, :-1] + same)
        best = torch.cat([row[:, :1], best], 1).cummax(1).values
        row = torch.where((i < output_lengths)[:, None], best, row)
    return row.gather(1, lengths[:, None]).squeeze(1)


def padded_ids(
    outputs: list[list[str]], references: list[list[str]]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the arguments of `edit_distances` and `common_lengths` for lists of words."""
    ids: dict[str, int] = {}
    sides = []
    for texts in (outputs, references):
        width = max(map(len, texts), default=0)
        rows = [[ids.setdefault(word, len(ids)) for word in words] for words in texts]
        padded = [row + [-1] * (width - len(row)) for row in rows]
        sides.append(torch.tensor(padded, dtype=torch.int64).view(len(texts), width))
        sides.append(torch.tensor([len(row) for row in rows], dtype=torch.int64))
    output, output_lengths, to, lengths = sides
    return output, output_lengths, to, lengths


def word_errors(outputs: list[list[str]], references: list[list[str]]) -> tuple[int, int]:
    """Returns the edits between lists of words, summed over pairs, and the reference words."""
    sides = padded_ids(outputs, references)
    return int(edit_distances(*sides).sum()), int(sides[-1].sum())


@register_metric("edit_distance")
@is_error
@is_of(Text, Tags)
def edit_distance(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the edits between the most likely and the correct ids, and the number of correct ids.

    Teacher forced.
    """
    lengths = counted.sum(-1)
    return edit_distances(logits.argmax(-1), lengths, targets, lengths).sum(), lengths.sum()


@register_metric("word_error_rate")
class WordErrorRate(Metric):
    """Word error rate; words are separated by spaces.  Teacher forced, except for CTC.

    It is above 1 if there are more edits than words.
    """

    of = (Text,)
    lower_is_better = True

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the edits and the reference units: words.  [B, T, V], [B, T]."""
        likeliest = logits.argmax(-1)  # see `CtcModality.readable`
        if likeliest.size(1) == targets.size(1):  # teacher forced
            likeliest = likeliest.where(counted(self.feature, targets), self.feature.padding)
        sides = []
        for rows in (likeliest.tolist(), targets.tolist()):
            texts = [self.feature.decode(ids) for ids in rows]
            whole = [text if isinstance(text, str) else " ".join(text) for text in texts]
            sides.append([self.units(text) for text in whole])
        return torch.tensor(word_errors(*sides), dtype=torch.float64)

    def units(self, text: str) -> list[str]:
        """Returns what is compared of a text."""
        return text.split()


@register_metric("character_error_rate")
class CharacterErrorRate(WordErrorRate):
    """Character error rate; spaces at the ends do not count.  Teacher forced, except for CTC."""

    def units(self, text: str) -> list[str]:
        """Returns the characters."""
        return list(text.strip())
