"""Quantization to int8, checked for quality and speed."""

from __future__ import annotations

import logging
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
import torch
from torch import Tensor

from t2t_torch.data.shards import Shards
from t2t_torch.decode.predictor import padded_rows
from t2t_torch.errors import ExportError
from t2t_torch.export.answers import span_targets
from t2t_torch.export.network import quiet
from t2t_torch.export.verification import stored, text_of
from t2t_torch.loss import Loss
from t2t_torch.metrics.evaluation import Evaluation
from t2t_torch.metrics.metric import lower_is_better
from t2t_torch.mode import Split
from t2t_torch.model import Output
from t2t_torch.problem import metric_names
from t2t_torch.runtime.session import onnx_runtime

if TYPE_CHECKING:
    from t2t_torch.decode.label_predictor import LabelPredictor
    from t2t_torch.runtime.prediction import Prediction
    from t2t_torch.runtime.session import Artifact


POINTS = 0.005
"""Maximum loss of a metric: half a percentage point; for an error relative to its value."""

_ROUNDS = 5


class Times(NamedTuple):
    """CPU seconds for all rows one by one, the minimum of several rounds.

    Attributes:
      before: time of the original artifact.
      after: time of the quantized artifact.
    """

    before: float
    after: float


def quantize(network: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a network with int8 weights, scaled per channel, and int8 activations.

    The weights of matrix products, convolutions, LSTMs and embeddings are quantized; the inputs of
    products and convolutions are quantized dynamically (Zafrir et al. 2019, "Q8BERT",
    arXiv:1910.06188, section 2, quantizes weights and inputs of layers in this way).

    Args:
      network: network on numbers only; onnx crashes when it infers the shapes of strings.

    Raises:
      ExportError: no part of the network can be quantized.
    """
    onnx_runtime()  # disables telemetry before the first import
    from onnxruntime.quantization import QuantType, quantize_dynamic

    plain = onnx.ModelProto()
    plain.CopyFrom(network)
    _part_turned_weights(plain.graph)
    # Inferred shapes are stale once a Gemm is replaced with a MatMul of transposed weights.
    del plain.graph.value_info[:]
    level = logging.root.level
    try:
        with quiet(), tempfile.TemporaryDirectory() as folder:
            target = Path(folder, "quantized.onnx")
            quantize_dynamic(
                plain,
                target,
                per_channel=True,
                weight_type=QuantType.QInt8,
                reduce_range=True,  # 7 bits: products of 8 saturate on processors without VNNI
                extra_options={"EnableSubgraph": True},
            )
            model = onnx.load(target)
    finally:
        logging.root.setLevel(level)
    before, after = ({node.op_type for node in one.graph.node} for one in (network, model))
    if before == after:
        raise ExportError(
            f"nothing of this model can be quantized: its operators are {', '.join(sorted(before))}"
            ". Leave --quantize out."
        )
    return model


def _part_turned_weights(graph: onnx.GraphProto) -> None:
    """Copies the weight of each Gemm: onnxruntime transposes it in place, for all its users.

    Embeddings shared with the softmax are also used for lookups.
    """
    weights = {one.name: one for one in graph.initializer}
    for number, node in enumerate(graph.node):
        if node.op_type == "Gemm" and node.input[1] in weights:
            own = graph.initializer.add()
            own.CopyFrom(weights[node.input[1]])
            own.name = node.input[1] = f"{node.input[1]}.of.{number}"


def check_quality(before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """Checks that metrics did not get worse by more than `POINTS`.

    Args:
      before: metrics of the original graph by name.
      after: metrics of the quantized graph.

    Raises:
      ExportError: metrics are worse by more than `POINTS`; names all of them.
    """
    worse = []
    for name, value in before.items():
        loss = value - after[name]
        if lower_is_better(name):
            loss = -loss / max(abs(value), 1e-12)
        if not loss <= POINTS:
            worse.append(f"{name}: {value:.4f} -> {after[name]:.4f}")
    if worse:
        message = "\n  ".join(worse)
        raise ExportError(
            f"with int8 the model loses more than {POINTS:.1%} of\n  {message}\nover the rows that "
            "were verified. Nothing was written. Leave --quantize out, or ask more rows if these "
            "are few: --verify_rows=2000"
        )


def check_faster(before: Artifact, after: Artifact, inputs: Sequence[Any]) -> Times:
    """Measures two artifacts alternately on single inputs, and checks that the second is faster.

    Args:
      before: original artifact with one thread.
      after: quantized artifact with one thread.
      inputs: valid inputs of both.

    Raises:
      ExportError: the second is not faster.
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
    # CPU time of the only thread, which excludes other load on the machine.
    start = time.thread_time()
    for one in inputs:
        answerer([one])
    return time.thread_time() - start


_CERTAIN = 30.0  # logit of a certain label; the others are 0
_OF_ALL_PROBABILITIES = ("neg_log_perplexity",)
"""Metrics that need more than the most probable label."""


def metrics_of(
    predictor: LabelPredictor, data_dir: Path, numbers: Sequence[int], answers: Sequence[Prediction]
) -> dict[str, float]:
    """Returns the problem's metrics over rows, by the names that `t2t-eval` uses.

    Metrics that need the probability of every label are omitted: predictions of tags lack it.

    Args:
      predictor: predictor with the problem and its features.
      data_dir: folder of the generated data.
      numbers: ascending row indices in the dev split.
      answers: predictions, one per row.
    """
    features, problem = predictor.features, predictor.problem
    shards = Shards.open(data_dir, problem.dataset_name, Split.EVAL)
    batch = {}
    for name, feature in {**features.targets, **features.notes}.items():
        batch[name] = padded_rows(feature, stored(shards, features.columns[name], numbers))
    logits, spans = {}, span_targets(features)
    for name, feature in features.targets.items():
        values = [answer.values[name] for answer in answers]
        if name in spans:
            of = str(feature.refers_to)
            rows = stored(shards, features.columns[of], numbers)
            contexts = [text_of(features.all[of], ids).split(" ") for ids in rows]
            logits[name] = _of_spans(contexts, values, batch[name].tolist())
            continue
        modality: Any = predictor.model.modalities[name]
        scores = [answer.scores.get(name) for answer in answers]
        logits[name] = modality.answer_logits(feature, values, scores, batch[name])
    metrics = {
        name: [one for one in metric_names(problem, name) if one not in _OF_ALL_PROBABILITIES]
        for name in features.targets
    }
    evaluation = Evaluation(features.targets, metrics, problem.full_name, features.notes)
    nothing = Loss(torch.zeros(()), torch.zeros(()))
    evaluation.update(Output(logits, dict.fromkeys(features.targets, nothing)), batch)
    result = evaluation.result()
    del result["loss"]
    return result


def _of_spans(
    contexts: Sequence[Sequence[str]], values: Sequence[str], right: Sequence[Sequence[int]]
) -> Tensor:
    """Returns logits of the spans of answers.  [B, 1 + W, 2].

    If the text of an answer occurs several times, the occurrence nearest to the correct answer
    counts, because the metrics compare texts (Rajpurkar et al. 2016, arXiv:1606.05250,
    section 6.1).

    Args:
      contexts: words of each row, which are joined with spaces in the input.
      values: predicted answers, parts of these texts.
      right: first and last word of the correct answer of each row; -1 for no answer.
    """
    logits = torch.zeros(len(contexts), 1 + max(map(len, contexts)), 2)
    for row, (words, value) in enumerate(zip(contexts, values, strict=True)):
        first, last = _span_of(words, value, right[row][0]) if value else (-1, -1)
        logits[row, 1 + first, 0] = logits[row, 1 + last, 1] = _CERTAIN
    return logits


def _span_of(words: Sequence[str], value: str, near: int) -> tuple[int, int]:
    """Returns the first and last word of a part of a text: the occurrence nearest to a word.

    Occurrences of whole words are preferred.
    """
    text = " ".join(words)
    starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
    spans = []
    for match in re.finditer(f"(?={re.escape(value)})", text):  # also those that overlap
        places = [match.start(), match.start() + len(value) - 1]
        first, last = (np.searchsorted(starts, places, side="right") - 1).tolist()
        is_part = " ".join(words[first : last + 1]) != value
        spans.append((is_part, abs(first - near), first, last))
    return min(spans)[2:]
