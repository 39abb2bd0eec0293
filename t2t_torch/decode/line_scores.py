"""How likely a model finds given texts: `t2t-decoder --score_file`.

tensor2tensor's `score_file`: a line is a text of a language model, or an input and an output with a
tab between them.  What is written is the log-probability of a line, and not the loss of a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from t2t_torch.decode.predictor import Predictor
from t2t_torch.decode.target import check_target, open_target
from t2t_torch.errors import DataError
from t2t_torch.text.encoder import PAD
from t2t_torch.text.lines import read_lines


class LineScore(NamedTuple):
    """What a model finds of a text.

    Attributes:
      log_probability: nats, the end symbol counted.
      tokens: of the text, the end symbol counted.
    """

    log_probability: float
    tokens: int


def score_file(predictor: Predictor, source: Path, target: Path) -> list[LineScore]:
    """Writes the log-probability of each line of a file, in their order.

    The target appears whole or not at all.

    Raises:
      DataError: the source cannot be read, or a line is no pair where a pair is asked for.
      UsageError: the target cannot be written, or is the source.
    """
    check_target(target, source)
    try:
        found = score_lines(predictor, list(read_lines(source)))
    except DataError as error:
        raise DataError(f"{source}: {error}") from None
    with open_target(target) as stream:
        stream.writelines(f"{score.log_probability:.6f}\n" for score in found)
    return found


def score_lines(predictor: Predictor, lines: Sequence[str]) -> list[LineScore]:
    """Returns how likely each line is, in their order, whatever else is scored.

    Args:
      predictor: of a language model, or of a model that writes texts from texts.
      lines: texts; or inputs and outputs, with a tab between.

    Raises:
      DataError: a line is no pair where a pair is asked for, or has no ids.
    """
    features = predictor.features
    (target,) = features.targets
    rows = _rows(predictor, lines, target)
    lengths = [max(map(len, row.values())) for row in rows]
    order = sorted(range(len(rows)), key=lambda i: -lengths[i])
    found: dict[int, LineScore] = {}
    start = 0
    while start < len(order):
        hparams = predictor.hparams
        size = hparams.batch_size or max(1, hparams.batch_tokens // lengths[order[start]])
        chosen = order[start : start + size]
        scores = _score_batch(predictor, [rows[i] for i in chosen], target)
        found.update(zip(chosen, scores, strict=True))
        start += size
    return [found[i] for i in range(len(rows))]


def _rows(predictor: Predictor, lines: Sequence[str], target: str) -> list[dict[str, list[int]]]:
    """Returns the ids of each line, by the names of features."""
    features = predictor.features
    encoder = features.targets[target]
    if not features.has_inputs:
        return [{target: [int(i) for i in encoder.encode(line)]} for line in lines]
    rows = []
    for number, line in enumerate(lines, start=1):
        given, tab, output = line.partition("\t")
        if not tab or "\t" in output:
            raise DataError(
                f"line {number} is {line!r}: expected an input and an output with a tab between."
            )
        (read,) = predictor.encode([given])
        rows.append({predictor.field: read, target: [int(i) for i in encoder.encode(output)]})
    return rows


@torch.inference_mode()
def _score_batch(
    predictor: Predictor, rows: Sequence[dict[str, list[int]]], target: str
) -> list[LineScore]:
    device = next(predictor.model.parameters()).device
    batch = {name: _padded([row[name] for row in rows]).to(device) for name in rows[0]}
    ids = batch[target]
    with predictor.autocast(predictor.hparams, device):
        logits = predictor.model(batch).logits[target]
    counted = ids != PAD
    of_ids = logits.float().log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)
    sums = torch.where(counted, of_ids, 0.0).double().sum(1)
    pairs = zip(sums.tolist(), counted.sum(1).tolist(), strict=True)
    return [LineScore(value, tokens) for value, tokens in pairs]


def _padded(rows: Sequence[list[int]]) -> Tensor:
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD)
