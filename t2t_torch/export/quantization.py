"""Weights of eight bits, where they answer as well and faster."""

from __future__ import annotations

import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx

from t2t_torch.artifact.onnx_runtime import onnx_runtime
from t2t_torch.errors import ExportError
from t2t_torch.metrics.metric import lower_is_better

if TYPE_CHECKING:
    from t2t_torch.artifact.session import Artifact

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
