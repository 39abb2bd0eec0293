"""An artifact as a model that is served; no torch is loaded for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from t2t_torch.artifact.session import NO_ATTENTION, Artifact
from t2t_torch.artifact.signature import Signature
from t2t_torch.artifact.stop import Stop
from t2t_torch.serve.limits import MOST_WEIGHTS
from t2t_torch.serve.model import Found, InputField, Model, OutputTarget, Sample
from t2t_torch.serve.trial_model import trial_model


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

    def ask(samples: Sequence[Sample], stop: Stop) -> Sequence[Found]:
        return artifact.predict(given_of(samples), stop=stop, alignments=False)

    def attend(samples: Sequence[Sample], stop: Stop) -> Sequence[Found]:
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
    return dataclasses.replace(model, told=ask(model.examples[:1], Stop())[0])


def _why_no_attention(signature: Signature) -> str:
    """Returns why an artifact that tells no attention does not; ends a sentence."""
    if any(target.kind == "text" for target in signature.targets):
        return f"{NO_ATTENTION}; or serve the run itself (t2t-server --output_dir=RUN)"
    return "it writes no text"


def _is_text(sample: Sample, field: str) -> bool:
    return bool(field) and isinstance(sample[field], str)
