"""A small artifact with every kind of field and of target, made by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from t2t_torch.features import InputSpec, OutputSpec
from t2t_torch.runtime.signature import FILE, MODEL, FileChecksum, Signature

WORDS = ["", "go", "to", "oslo"]
TAGS = ["O", "B-city", "I-city"]
KINDS = ["stay", "go"]
FIELDS = (
    InputSpec("inputs", "words", longest=6, tagged=True),
    InputSpec("pos", "labels", of="inputs"),
    InputSpec("note", "text"),
    InputSpec("dense", "numbers", "float32", size=2),
)
TARGETS = (
    OutputSpec("slots", "tags", TAGS, of="inputs"),
    OutputSpec("intent", "class", KINDS),
    OutputSpec("topics", "multilabel", KINDS),
    OutputSpec("doubled", "numbers", size=2),
)


def graph() -> onnx.ModelProto:
    """A graph that tags "oslo" as a city, finds the intent "go" in "go", and doubles numbers."""
    scores = np.array([[0, 0, 0], [2, 0, 0], [3, 0, 1], [0, 4, 0], [1, 0, 0]], np.float32)
    wishes = np.array([[0, 0], [0, 3], [0, 0], [0, 0], [1, 0]], np.float32)
    constants: dict[str, Any] = {
        "scores_of_words": scores,
        "wishes_of_words": wishes,
        "tags": np.array(TAGS, object),
        "kinds": np.array(KINDS, object),
        "nothing": np.array("", object),
        "known": np.array(["yes"], object),
        "two": np.array(2, np.float32),
        "half": np.array(0.5, np.float32),
        "last": np.array([-1], np.int64),
        "words_axis": np.array([1], np.int64),
    }
    node = helper.make_node
    cut = {"domain": "com.microsoft", "mark": 0, "mincharnum": 1, "pad_value": ""}
    nodes = [
        # A column more: a batch of empty texts has no words at all.
        node("Equal", ["inputs", "inputs"], ["yes"]),
        node("Where", ["yes", "nothing", "nothing"], ["nothing_each"]),
        node("Unsqueeze", ["nothing_each", "words_axis"], ["one_more"]),
        node("Tokenizer", ["inputs"], ["cut"], separators=["[ \\t\\r\\n]+"], **cut),
        node("Concat", ["cut", "one_more"], ["words"], axis=1),
        node("Tokenizer", ["pos"], ["labels"], separators=[" "], **cut),
        node("LabelEncoder", ["words"], ["ids"], domain="ai.onnx.ml", keys_strings=WORDS,
             values_int64s=[0, 1, 2, 3], default_int64=4),
        node("Gather", ["scores_of_words", "ids"], ["logits"]),
        node("Softmax", ["logits"], ["chances"]),
        node("ReduceMax", ["chances", "last"], ["slots_scores"], keepdims=0),
        node("ArgMax", ["logits"], ["best"], axis=-1, keepdims=0),
        node("Gather", ["tags", "best"], ["named"]),
        node("Equal", ["words", "nothing"], ["is_beyond"]),
        node("Where", ["is_beyond", "nothing", "named"], ["slots"]),
        node("Gather", ["wishes_of_words", "ids"], ["wishes"]),
        node("ReduceSum", ["wishes", "words_axis"], ["wish"], keepdims=0),
        node("Softmax", ["wish"], ["intent_scores"]),
        node("ReduceMax", ["intent_scores", "last"], ["intent_probability"], keepdims=0),
        node("ArgMax", ["wish"], ["wished"], axis=-1, keepdims=0),
        node("Gather", ["kinds", "wished"], ["intent"]),
        node("Identity", ["intent_scores"], ["topics_scores"]),
        node("Greater", ["topics_scores", "half"], ["topics"]),
        node("Mul", ["dense", "two"], ["doubled"]),
        # Fails where a label is Z.
        node("LabelEncoder", ["labels"], ["row"], domain="ai.onnx.ml", keys_strings=["Z"],
             values_int64s=[1], default_int64=0),
        node("Gather", ["known", "row"], ["pos_found"], name="pos: label Z is not known"),
        node("Identity", ["note"], ["note_found"]),
    ]  # fmt: skip
    text, number = TensorProto.STRING, TensorProto.FLOAT
    outputs = {
        "slots": (text, ["B", "W"]),
        "slots_scores": (number, ["B", "W"]),
        "intent": (text, ["B"]),
        "intent_scores": (number, ["B", 2]),
        "intent_probability": (number, ["B"]),
        "topics": (TensorProto.BOOL, ["B", 2]),
        "topics_scores": (number, ["B", 2]),
        "doubled": (number, ["B", 2]),
        "pos_found": (text, ["B", "P"]),
        "note_found": (text, ["B"]),
    }
    made = helper.make_graph(
        nodes,
        "made",
        [
            *(helper.make_tensor_value_info(n, text, ["B"]) for n in ("inputs", "pos", "note")),
            helper.make_tensor_value_info("dense", number, ["B", 2]),
        ],
        [helper.make_tensor_value_info(name, *how) for name, how in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    domains = {"": 20, "ai.onnx.ml": 4, "com.microsoft": 1}
    opsets = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
    return helper.make_model(made, opset_imports=opsets, ir_version=10)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Writes the artifact; what is given is changed in its signature."""

    def write(**changes: Any) -> Path:
        folder = tmp_path / "artifact"
        folder.mkdir(exist_ok=True)
        onnx.save(graph(), folder / MODEL)
        told: dict[str, Any] = {
            "problem": "made_by_hand",
            "model": "none",
            "step": 3,
            "checkpoint": "step 3",
            "created": "2026-01-01T00:00:00+00:00",
            "fields": FIELDS,
            "targets": TARGETS,
            "needs_extensions": False,
            "quantized": "",
            "opset": 20,
            "made_with": {"onnxruntime": "1.20"},
            "files": {MODEL: FileChecksum.of(folder / MODEL)},
        }
        (folder / FILE).write_text(Signature(**{**told, **changes}).to_json(), encoding="utf-8")
        return folder

    return write


@pytest.fixture
def folder(make: Callable[..., Path]) -> Path:
    """The artifact."""
    return make()
