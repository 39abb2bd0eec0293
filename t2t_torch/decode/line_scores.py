"""How likely a model finds given texts: `t2t-decoder --score_file`.

tensor2tensor's `score_file`: a line is a text of a language model, or an input and an output with a
tab between them.  What is written is the log-probability of a line, and not the loss of a token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from t2t_torch.data.ragged import Ragged, value_dtype
from t2t_torch.decode.predictor import Predictor
from t2t_torch.decode.target import check_target, open_target
from t2t_torch.decode.tree_predictor import TreePredictor
from t2t_torch.errors import DataError, DecodeError
from t2t_torch.features import Feature
from t2t_torch.pipeline.collate import padded
from t2t_torch.text.encoder import PAD
from t2t_torch.text.lines import read_lines

_Row: TypeAlias = Mapping[str, Sequence[Any]]  # ids, by feature


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
    lines = list(read_lines(source))  # which names the file itself
    try:
        found = score_lines(predictor, lines)
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
      DataError: a line is no pair where a pair is asked for, has no ids, or its output is no tree
        over the words where a tree is asked for; names it.
    """
    features = predictor.features
    (target,) = features.targets
    rows = _rows(predictor, lines, target)
    lengths = [max(len(row[target]), len(row[predictor.field])) for row in rows]
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


def _rows(predictor: Predictor, lines: Sequence[str], target: str) -> list[_Row]:
    """Returns the ids of each line, by the names of features."""
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(_row(predictor, line, target))
        except (DataError, DecodeError) as error:
            raise DataError(f"line {number}: {str(error).removesuffix('.')}.") from None
    return rows


def _row(predictor: Predictor, line: str, target: str) -> _Row:
    features = predictor.features
    if not features.has_inputs:
        return {target: _ids(predictor, line, target)}
    given, tab, output = line.partition("\t")
    if not tab or "\t" in output:
        raise DataError(f"expected an input and an output with a tab between, not {line!r}.")
    if isinstance(predictor, TreePredictor):
        return predictor.with_tree(given, output)
    (read,) = predictor.encode([given])
    return {predictor.field: read, target: _ids(predictor, output, target)}


def _ids(predictor: Predictor, text: str, target: str) -> Sequence[int]:
    feature = predictor.features.targets[target]
    cut = predictor.problem.cutters.get(feature.source or target)
    return feature.encode(cut(text) if cut else text)


@torch.inference_mode()
def _score_batch(predictor: Predictor, rows: Sequence[_Row], target: str) -> list[LineScore]:
    device = next(predictor.model.parameters()).device
    features = predictor.features.all
    batch = {n: _padded(features[n], [row[n] for row in rows]).to(device) for n in rows[0]}
    ids = batch[target]
    with predictor.autocast(predictor.hparams, device):
        logits = predictor.model(batch).logits[target]
    counted = ids != PAD
    of_ids = logits.float().log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)
    sums = torch.where(counted, of_ids, 0.0).double().sum(1)
    pairs = zip(sums.tolist(), counted.sum(1).tolist(), strict=True)
    return [LineScore(value, tokens) for value, tokens in pairs]


def _padded(feature: Feature, rows: Sequence[Sequence[Any]]) -> Tensor:
    ragged = Ragged.from_lists(rows, value_dtype(feature.arrow_type))
    return torch.from_numpy(padded(feature, ragged))
