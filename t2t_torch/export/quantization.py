"""Weights of eight bits, where they answer as well and faster."""

from __future__ import annotations

import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
import torch
from torch import Tensor

from t2t_torch.data.shards import Ragged, Shards, value_dtype
from t2t_torch.errors import ExportError
from t2t_torch.export.verification import stored, text_of
from t2t_torch.features import Feature, Features
from t2t_torch.loss import Loss
from t2t_torch.metrics.evaluation import Evaluation
from t2t_torch.metrics.metric import lower_is_better
from t2t_torch.mode import Split
from t2t_torch.model import Output
from t2t_torch.pipeline.reader import padded
from t2t_torch.runtime.session import onnx_runtime

if TYPE_CHECKING:
    from t2t_torch.decode.label_predictor import LabelPredictor
    from t2t_torch.runtime.prediction import Prediction
    from t2t_torch.runtime.session import Artifact


POINTS = 0.005
"""What a metric may lose: half a point of a hundred; of an error its share."""

_ROUNDS = 5


class Times(NamedTuple):
    """Seconds of the processor for all rows, one after another, the least of several rounds.

    Attributes:
      before: of the artifact as it was.
      after: of the quantized one.
    """

    before: float
    after: float


def quantize(network: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a network with weights of eight bits, scaled by channel; what is computed is, too.

    Matrix products, convolutions and LSTMs are quantized, and vectors that are looked up; inputs of
    products and convolutions are, as they come (Zafrir et al. 2019, "Q8BERT", arXiv:1910.06188,
    section 2, quantize weights and inputs of layers in this way).

    Args:
      network: numbers in, numbers out; onnx crashes when it infers the shapes of strings.

    Raises:
      ExportError: nothing in it can be quantized.
    """
    onnx_runtime()  # is silent from its first import on
    from onnxruntime.quantization import QuantType, quantize_dynamic

    plain = onnx.ModelProto()
    plain.CopyFrom(network)
    _part_turned_weights(plain.graph)
    # What is known of shapes is stale once a Gemm has become a MatMul of turned weights.
    del plain.graph.value_info[:]
    level = logging.root.level
    logging.disable(logging.WARNING)
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target = Path(folder, "quantized.onnx")
            quantize_dynamic(
                plain,
                target,
                per_channel=True,
                weight_type=QuantType.QInt8,
                reduce_range=True,  # 7 bits: products of 8 saturate on processors without VNNI
                extra_options={"EnableSubgraph": True},
            )
            found = onnx.load(target)
    finally:
        logging.disable(logging.NOTSET)
        logging.root.setLevel(level)
    before, after = ({node.op_type for node in one.graph.node} for one in (network, found))
    if before == after:
        raise ExportError(
            f"nothing of this model can be quantized: its operators are {', '.join(sorted(before))}"
            ". Leave --quantize out."
        )
    return found


def _part_turned_weights(graph: onnx.GraphProto) -> None:
    """Gives each Gemm a weight of its own: onnxruntime turns it where it stands, for all readers.

    Vectors of words that are the weights of the softmax, too, are looked up as well.
    """
    weights = {one.name: one for one in graph.initializer}
    for number, node in enumerate(graph.node):
        if node.op_type == "Gemm" and node.input[1] in weights:
            own = graph.initializer.add()
            own.CopyFrom(weights[node.input[1]])
            own.name = node.input[1] = f"{node.input[1]}.of.{number}"


def check_quality(before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """Checks that metrics are about as good as they were.

    Args:
      before: by name.
      after: of the quantized graph.

    Raises:
      ExportError: one is worse by more than `POINTS`; names all of them.
    """
    worse = []
    for name, value in before.items():
        loss = value - after[name]
        if lower_is_better(name):
            loss = -loss / max(abs(value), 1e-12)
        if not loss <= POINTS:
            worse.append(f"{name}: {value:.4f} -> {after[name]:.4f}")
    if worse:
        told = "\n  ".join(worse)
        raise ExportError(
            f"with int8 the model loses more than {POINTS:.1%} of\n  {told}\nover the rows that "
            "were verified. Nothing was written. Leave --quantize out, or ask more rows if these "
            "are few: --verify_rows=2000"
        )


def check_faster(before: Artifact, after: Artifact, inputs: Sequence[Any]) -> Times:
    """Measures both on inputs, one at a time, by turns, and checks that the second is faster.

    Args:
      before: of one thread.
      after: of one thread, too.
      inputs: that both can answer.

    Raises:
      ExportError: it is not.
    """
    first, second = [], []
    for _ in range(_ROUNDS):
        first.append(_seconds(before, inputs))
        second.append(_seconds(after, inputs))
    times = Times(min(first), min(second))
    if times.after >= times.before:
        count = len(inputs)
        raise ExportError(
            f"with int8 the model is not faster: {times.after / count * 1e3:.2f} ms an input, and "
            f"{times.before / count * 1e3:.2f} ms without, over {count} rows, one at a time, in "
            "one thread. Nothing was written. Leave --quantize out: small layers gain nothing."
        )
    return times


def _seconds(answerer: Callable[[Sequence[Any]], Any], inputs: Sequence[Any]) -> float:
    # Of this thread alone, as it is the only one: not what else the machine does meanwhile.
    start = time.thread_time()
    for one in inputs:
        answerer([one])
    return time.thread_time() - start


# How good answers are: what `t2t-eval` reports, of answers that a model or an artifact gave.


_CERTAIN = 30.0  # a logit beside which the others, 0, are nothing
_OF_ALL_PROBABILITIES = ("neg_log_perplexity",)
"""Metrics that read more than which label is the likeliest."""


def metrics_of(
    predictor: LabelPredictor,
    data_dir: Path,
    numbers: Sequence[int],
    answers: Sequence[Prediction],
    split: Split = Split.EVAL,
) -> dict[str, float]:
    """Returns the problem's metrics over some rows, by the names that `t2t-eval` has for them.

    Those that read the probability of every label are left out: an answer does not have it of tags.

    Args:
      predictor: knows the problem and its features.
      data_dir: of the generated data.
      numbers: of rows of the split; they rise.
      answers: as many.
      split: whose rows.
    """
    features, problem = predictor.features, predictor.problem
    shards = Shards.open(data_dir, problem.dataset_name, split)
    batch = {
        name: _right(feature, stored(shards, features.columns[name], numbers))
        for name, feature in {**features.targets, **features.notes}.items()
    }
    logits = {}
    for name, feature in features.targets.items():
        values = [answer.values[name] for answer in answers]
        if feature.selects_words:
            contexts = _contexts(features, feature, shards, numbers)
            logits[name] = _of_spans(contexts, values, batch[name].tolist())
            continue
        modality: Any = predictor.model.modalities[name]
        scores = [answer.scores.get(name) for answer in answers]
        logits[name] = modality.answer_logits(feature, values, scores, batch[name])
    metrics = {
        name: [one for one in problem.metrics_of(name) if one not in _OF_ALL_PROBABILITIES]
        for name in features.targets
    }
    evaluation = Evaluation(features.targets, metrics, problem.full_name, features.notes)
    nothing = Loss(torch.zeros(()), torch.zeros(()))
    evaluation.update(Output(logits, dict.fromkeys(features.targets, nothing)), batch)
    found = evaluation.result()
    del found["loss"]
    return found


def _right(feature: Feature, rows: Sequence[Any]) -> Tensor:
    ragged = Ragged.from_lists(rows, value_dtype(feature.arrow_type))
    return torch.from_numpy(padded(feature, ragged))


def _contexts(
    features: Features, feature: Feature, shards: Shards, numbers: Sequence[int]
) -> list[list[str]]:
    """Returns the words of the texts of which parts are answers."""
    of = str(feature.refers_to)
    words = features.all[of]
    rows = stored(shards, features.columns[of], numbers)
    return [text_of(words, ids).split(" ") for ids in rows]


def _of_spans(
    contexts: Sequence[Sequence[str]], values: Sequence[str], right: Sequence[Sequence[int]]
) -> Tensor:
    """Returns logits of the words that answers are of.  [B, 1 + W, 2].

    Of the places where an answer's text stands it is the one nearest to the right answer, as texts
    are what is measured (Rajpurkar et al. 2016, arXiv:1606.05250, section 6.1).

    Args:
      contexts: of each row the words, which were given with spaces between.
      values: the answers, parts of these texts.
      right: of each row the first and last word of the right answer; -1 of none.
    """
    logits = torch.zeros(len(contexts), 1 + max(map(len, contexts)), 2)
    for row, (words, value) in enumerate(zip(contexts, values, strict=True)):
        first, last = _span_of(words, value, right[row][0]) if value else (-1, -1)
        logits[row, 1 + first, 0] = logits[row, 1 + last, 1] = _CERTAIN
    return logits


def _span_of(words: Sequence[str], value: str, near: int) -> tuple[int, int]:
    """Returns the first and the last word of a part of a text, of several that nearest to a word.

    Whole words go before parts of words.
    """
    text = " ".join(words)
    starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
    found, place = [], text.find(value)
    while place >= 0:
        ends = np.searchsorted(starts, [place, place + len(value) - 1], side="right") - 1
        first, last = (int(end) for end in ends)
        is_part = " ".join(words[first : last + 1]) != value
        found.append((is_part, abs(first - near), first, last))
        place = text.find(value, place + 1)
    return min(found)[2:]
