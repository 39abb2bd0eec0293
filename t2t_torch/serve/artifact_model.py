"""An artifact as a model that is served; no torch is loaded for it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.artifact.answer import Answer
from t2t_torch.artifact.prediction import Prediction
from t2t_torch.artifact.session import NO_ATTENTION, Artifact
from t2t_torch.artifact.signature import EXAMPLES, Signature, Target
from t2t_torch.artifact.stop import Stop
from t2t_torch.errors import ArtifactError
from t2t_torch.serve.limits import MOST_WEIGHTS
from t2t_torch.serve.model import Found, InputField, Model, OutputTarget, Sample
from t2t_torch.serve.trial_model import trial_model
from t2t_torch.text.lines import read_lines

_TIE = 1e-5  # of scores, relative: either of two texts might be the best
_CLOSE = 1e-3  # of numbers; the exporter compares more exactly, here another version may compute


def artifact_model(name: str, version: str, path: Path, threads: int) -> Model:
    """Loads an artifact, and lets it answer its own examples.

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

    examples = _examples(path)
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
    found = ask(model.examples, Stop())
    for number, (example, its) in enumerate(zip(examples, found, strict=True)):
        _check(path, number, signature.targets, example, its)
    return dataclasses.replace(model, told=found[0])


def _why_no_attention(signature: Signature) -> str:
    """Returns why an artifact that tells no attention does not; ends a sentence."""
    if any(target.kind == "text" for target in signature.targets):
        return f"{NO_ATTENTION}; or serve the run itself (t2t-server --output_dir=RUN)"
    return "it writes no text"


def _is_text(sample: Sample, field: str) -> bool:
    return bool(field) and isinstance(sample[field], str)


def _examples(path: Path) -> list[dict[str, Any]]:
    file = path / EXAMPLES
    if not file.exists():
        return []
    try:
        return [json.loads(line) for line in read_lines(file)]
    except ValueError as error:
        raise ArtifactError(f"{file} is damaged: {error}. Export the run again.") from None


def _check(
    path: Path, number: int, targets: Sequence[Target], example: Mapping[str, Any], found: Found
) -> None:
    """Raises ArtifactError if an example is not answered as it was."""
    for name, its, expected in _compared(targets, example["answer"], found):
        if not _same(its, expected):
            raise ArtifactError(
                f"'{path}' does not answer its example {number} as it did when it was exported: "
                f"{name!r} is {its!r}, and was {expected!r}. Export the run again with the "
                "onnxruntime that is installed here."
            )


def _compared(
    targets: Sequence[Target], answer: Mapping[str, Any], found: Found
) -> Iterator[tuple[str, Any, Any]]:
    """Yields what was found and what was expected, with its name."""
    if not isinstance(found, Prediction):
        for target in targets:
            if target.name in answer["values"] and not _is_another_span(target, answer, found):
                yield target.name, found.values[target.name], answer["values"][target.name]
        return
    name, best, its = targets[0].name, answer["hypotheses"][0], found.hypotheses[0]
    is_tie = math.isclose(its.score, best["score"], rel_tol=_TIE)
    if list(its.ids) == best["ids"] or not is_tie:
        yield name, its.text, best["text"]
    yield f"{name}_scores", its.score, best["score"]


def _is_another_span(target: Target, answer: Mapping[str, Any], found: Answer) -> bool:
    """Whether another part of a text was found that is as probable."""
    if target.kind != "span" or found.values[target.name] == answer["values"][target.name]:
        return False
    before = answer["probabilities"][target.name]
    return math.isclose(found.probabilities[target.name], before, rel_tol=_TIE)


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=_CLOSE, abs_tol=_CLOSE)
    if isinstance(expected, Mapping):
        return all(_same(found[key], value) for key, value in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    return bool(found == expected)
