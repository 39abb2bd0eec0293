"""An artifact of a trial as a model that is served: tensors, or its nested inputs as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.artifact.answer import Answer, InputError
from t2t_torch.artifact.nesting import put_together
from t2t_torch.artifact.stop import Stop
from t2t_torch.artifact.tensor_session import TensorArtifact
from t2t_torch.serve.model import Found, InputField, Model, Nested, OutputTarget, Sample
from t2t_torch.serve.refusal import NO_INPUT, Refusal

INPUT, OUTPUT = "input", "output"
"""The field and the target as which predict has the whole of inputs and outputs."""

_SHORT = 400  # characters of an example that a page offers


def trial_model(name: str, version: str, path: Path, threads: int) -> Model:
    """Loads an artifact of a trial, which answers its own examples first.

    Args:
      name: what it is asked by.
      version: the same; "" is the step of its checkpoint.
      path: of the artifact.
      threads: of onnxruntime.

    Raises:
      ArtifactError: it is damaged or newer than this version, onnxruntime is missing, or it does
        not answer its examples as it did when it was exported.
    """
    artifact = TensorArtifact(path, threads=threads)
    signature = artifact.signature

    def ask(samples: Sequence[Sample], stop: Stop) -> Sequence[Found]:
        return [Answer(one, {}) for one in artifact.predict(samples, stop=stop)]

    def read(number: int, given: Any) -> Sample:
        try:
            return artifact.arrays(number, _unwrapped(given, signature.nesting["inputs"]))
        except InputError as error:
            raise Refusal(NO_INPUT, str(error)) from None

    def tell(found: Answer) -> dict[str, Any]:
        value = put_together(
            signature.nesting["outputs"], lambda leaf: found.values[leaf].tolist(), plain=True
        )
        return {OUTPUT: {"value": value}}

    examples = artifact.examples
    return Model(
        name=name,
        version=version or str(signature.step),
        problem=signature.problem,
        learner=signature.model,
        platform="onnxruntime_onnx",
        fields=[
            InputField(one.name, one.kind, dtype=one.dtype, shape=one.shape)
            for one in signature.fields
        ],
        targets=[
            OutputTarget(one.name, one.kind, dtype=one.dtype, shape=one.shape)
            for one in signature.targets
        ],
        ask=ask,
        examples=[
            {INPUT: one["input"]} for one in examples if len(json.dumps(one["input"])) <= _SHORT
        ],
        why_no_attention="it is of a trial, and answers with numbers",
        nested=Nested(read, tell, [InputField(INPUT, "value")], [OutputTarget(OUTPUT, "value")]),
        is_shared=True,
    )


def _unwrapped(given: Any, nesting: Any) -> Any:
    """Returns what is given as the only field, as a page gives it; else what is given itself."""
    wrapped = isinstance(given, Mapping) and set(given) == {INPUT}
    if not wrapped:
        return given
    inner, own = given[INPUT], nesting is not None and list(nesting.get("dict", ())) == [INPUT]
    if own and not (isinstance(inner, Mapping) and set(inner) == {INPUT}):
        return given
    return inner
