"""An artifact as a model that is served; no torch is loaded for it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.runtime.nesting import put_together
from t2t_torch.runtime.prediction import InputError, Prediction
from t2t_torch.runtime.session import NO_ATTENTION, Artifact, CancellationToken, TensorArtifact
from t2t_torch.runtime.signature import Signature
from t2t_torch.serve.limits import MOST_WEIGHTS, NO_INPUT, HTTPError
from t2t_torch.serve.model import InputField, Model, Nested, OutputTarget, Sample

# An artifact of a trial as a model that is served: tensors, or its nested inputs as JSON.


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

    def ask(samples: Sequence[Sample], stop: CancellationToken) -> Sequence[Prediction]:
        return [Prediction(one) for one in artifact.predict(samples, stop=stop)]

    def read(number: int, given: Any) -> Sample:
        try:
            return artifact.arrays(number, _unwrapped(given, signature.nesting["inputs"]))
        except InputError as error:
            raise HTTPError(NO_INPUT, str(error)) from None

    def tell(found: Prediction) -> dict[str, Any]:
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


def artifact_model(name: str, version: str, path: Path, threads: int) -> Model:
    """Loads an artifact, which answers its own examples first.

    Args:
      name: what it is asked by.
      version: the same; "" is the step of its checkpoint.
      path: of the artifact.
      threads: of onnxruntime.

    Raises:
      ArtifactError: it is damaged or newer than this version, onnxruntime is missing, or it does
        not answer its examples as it did when it was exported.
    """
    if Signature.read(path).nesting:
        return trial_model(name, version, path, threads)
    artifact = Artifact(path, threads=threads)
    signature = artifact.signature
    alone = artifact.fields[0] if len(artifact.fields) == 1 else ""

    def given_of(samples: Sequence[Sample]) -> list[Any]:
        # What writes texts takes them as they are.
        return [one[alone] if _is_text(one, alone) else one for one in samples]

    def ask(samples: Sequence[Sample], stop: CancellationToken) -> Sequence[Prediction]:
        return artifact.predict(given_of(samples), stop=stop, alignments=False)

    def attend(samples: Sequence[Sample], stop: CancellationToken) -> Sequence[Prediction]:
        return artifact.attend(given_of(samples), stop=stop, most=MOST_WEIGHTS)

    examples = artifact.examples
    model = Model(
        name=name,
        version=version or str(signature.step),
        problem=signature.problem,
        learner=signature.model,
        platform="onnxruntime_onnx",
        fields=[
            InputField(one.name, one.kind, one.size, shape=one.shape, of=one.of)
            for one in signature.fields
        ],
        targets=[
            OutputTarget(one.name, one.kind, tuple(one.labels), one.of, one.size)
            for one in signature.targets
        ],
        ask=ask,
        attend=attend if artifact.tells_attention else None,
        why_no_attention=_why_no_attention(signature),
        examples=[example["input"] for example in examples],
        is_shared=True,
    )
    if not examples:
        return model
    return dataclasses.replace(model, told=ask(model.examples[:1], CancellationToken())[0])


def _why_no_attention(signature: Signature) -> str:
    """Returns why an artifact that tells no attention does not; ends a sentence."""
    if any(target.kind == "text" for target in signature.targets):
        return f"{NO_ATTENTION}; or serve the run itself (t2t-server --output_dir=RUN)"
    return "it writes no text"


def _is_text(sample: Sample, field: str) -> bool:
    return bool(field) and isinstance(sample[field], str)
