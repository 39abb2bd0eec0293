"""Weights of eight bits, also where a matrix has two readers."""

from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from t2t_torch.export.graph import IR_VERSION
from t2t_torch.export.quantization import quantize


def test_a_table_that_is_looked_up_and_multiplied_with_stays_right_for_both() -> None:
    """As the vectors of words that are the weights of the softmax, too."""
    generator = np.random.default_rng(0)
    table = generator.normal(size=(9, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["vectors"]),
        helper.make_node("Gemm", ["vectors", "table"], ["logits"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "tied",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 9])],
        [numpy_helper.from_array(table, "table")],
    )
    opset = [helper.make_opsetid("", 20)]
    network = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)
    session = onnxruntime.InferenceSession(quantize(network).SerializeToString())
    ids = np.arange(9)
    (found,) = session.run(None, {"ids": ids})
    np.testing.assert_allclose(found, table @ table.T, atol=0.1)
