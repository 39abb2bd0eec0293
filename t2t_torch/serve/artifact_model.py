"""Served models from artifacts; does not import torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.features import InputSpec, OutputSpec
from t2t_torch.runtime.nesting import put_together
from t2t_torch.runtime.prediction import InputError, Prediction
from t2t_torch.runtime.session import (
    NO_ATTENTION,
    Artifact,
    CancellationToken,
    TensorArtifact,
    open_artifact,
)
from t2t_torch.serve.limits import MAX_ATTENTION_WEIGHTS, NoInput
from t2t_torch.serve.model import Sample, ServedModel

INPUT, OUTPUT = "input", "output"
"""Names of the field and the target with the nested input and output of a trial."""

_SHORT = 400  # maximum characters of an example on the web page


def artifact_model(name: str, version: str, path: Path, threads: int) -> ServedModel:
    """Loads an artifact and checks its examples.

    Args:
      name: name in requests.
      version: version in requests; "" is the step of its checkpoint.
      path: folder of the artifact.
      threads: number of onnxruntime threads.

    Raises:
      ArtifactError: the artifact is damaged, newer than this version or predicts its examples
        differently than at export, or onnxruntime is missing.
    """
    artifact = open_artifact(path, threads=threads)
    if isinstance(artifact, TensorArtifact):
        return _TensorModel(name, version, artifact)
    return _ArtifactModel(name, version, artifact)


class _OnnxModel(ServedModel):
    """A model computed by onnxruntime."""

    is_shared = True

    def __init__(
        self, name: str, version: str, artifact: Artifact | TensorArtifact, examples: Sequence[Any]
    ) -> None:
        signature = artifact.signature
        super().__init__(
            name,
            version or str(signature.step),
            signature.problem,
            signature.model,
            "onnxruntime_onnx",
            signature.fields,
            signature.targets,
            examples,
            signature.column_names,
            signature.column_forms,
        )


class _ArtifactModel(_OnnxModel):
    """An artifact of a run."""

    def __init__(self, name: str, version: str, artifact: Artifact) -> None:
        super().__init__(name, version, artifact, [one["input"] for one in artifact.examples])
        self._artifact = artifact
        if artifact.tells_attention:
            self.why_no_attention = ""
        elif any(target.kind == "text" for target in self.targets):
            own = "serve the run itself (t2t-server --output_dir=RUN)"
            self.why_no_attention = f"{NO_ATTENTION}; or {own}"
        if self.examples:
            self.first = self.predict(self.examples[:1], CancellationToken())[0]

    def predict(self, samples: Sequence[Sample], token: CancellationToken) -> Sequence[Prediction]:
        """See `ServedModel.predict`."""
        return self._artifact.predict(samples, stop=token, alignments=False)

    def attend(self, samples: Sequence[Sample], token: CancellationToken) -> Sequence[Prediction]:
        """See `ServedModel.attend`."""
        return self._artifact.attend(samples, stop=token, most=MAX_ATTENTION_WEIGHTS)


class _TensorModel(_OnnxModel):
    """An artifact of a trial: tensors, or its nested inputs and outputs as JSON."""

    why_no_attention = "it is of a trial, and answers with numbers"
    json_fields = (InputSpec(INPUT, "value"),)
    json_targets = (OutputSpec(OUTPUT, "value"),)

    def __init__(self, name: str, version: str, artifact: TensorArtifact) -> None:
        inputs = (one["input"] for one in artifact.examples)
        examples = [{INPUT: value} for value in inputs if len(json.dumps(value)) <= _SHORT]
        super().__init__(name, version, artifact, examples)
        self._artifact = artifact

    def predict(self, samples: Sequence[Sample], token: CancellationToken) -> Sequence[Prediction]:
        """See `ServedModel.predict`."""
        return [Prediction(one) for one in self._artifact.predict_arrays(samples, stop=token)]

    def sample(self, number: int, value: Any) -> Sample:
        """See `ServedModel.sample`; raises HTTPError if the input has another nesting."""
        try:
            nesting = self._artifact.signature.nesting["inputs"]
            return self._artifact.arrays(number, _unwrapped(value, nesting))
        except InputError as error:
            raise NoInput(str(error)) from None

    def record(self, sample: Sample, prediction: Prediction, best: int = 0) -> dict[str, Any]:
        """See `ServedModel.record`."""
        nesting = self._artifact.signature.nesting["outputs"]
        return {OUTPUT: {"value": put_together(nesting, prediction.values.__getitem__, plain=True)}}


def _unwrapped(value: Any, nesting: Any) -> Any:
    """Returns the value of the only field if the input is wrapped in it, as by the web page."""
    if not (isinstance(value, Mapping) and set(value) == {INPUT}):
        return value
    inner, own = value[INPUT], nesting is not None and list(nesting.get("dict", ())) == [INPUT]
    if own and not (isinstance(inner, Mapping) and set(inner) == {INPUT}):
        return value
    return inner
