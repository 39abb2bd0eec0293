"""Some sentences and what the model makes of them, for people to read while it learns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from t2t_torch.data.staging import staged
from t2t_torch.summary.summary import Summary

NAME = "decode_samples.json"
_MOST = 8
_LONGEST = 600  # characters that are shown of a text


class DecodeSample(NamedTuple):
    """A sentence, what it should become, and what it became.

    Attributes:
      inputs: what was decoded.
      reference: what is right; None where nobody has said.
      decode: what the model made of it.
    """

    inputs: str
    reference: str | None
    decode: str


def choose_samples(
    inputs: Sequence[str],
    decodes: Sequence[str],
    references: Sequence[str] | None = None,
    most: int = _MOST,
) -> list[DecodeSample]:
    """Returns samples from all over a file; of the same file always the same lines.

    Args:
      inputs: what was decoded.
      decodes: as many.
      references: as many, or None.
      most: how many samples.
    """
    count = min(len(inputs), len(decodes))
    places = sorted({place * count // most for place in range(most)}) if count else []
    return [
        DecodeSample(inputs[i], references[i] if references else None, decodes[i]) for i in places
    ]


def show_samples(
    summary: Summary, directory: Path, samples: Sequence[DecodeSample], step: int
) -> None:
    """Puts samples in TensorBoard, and the newest where the run's page finds them.

    A disk that fails is told of and ends nothing.

    Args:
      summary: of the run.
      directory: of the run.
      samples: what is shown.
      step: optimizer steps done.
    """
    summary.text("decodes", as_markdown(samples), step)
    if summary.leads:
        told = {"step": step, "samples": [sample._asdict() for sample in samples]}
        with summary.surviving(NAME), staged(directory / NAME) as temporary:
            temporary.write_text(json.dumps(told, ensure_ascii=False), encoding="utf-8")


def read_samples(directory: Path) -> tuple[int, list[DecodeSample]]:
    """Returns the step of the newest samples and the samples; none are there before the first."""
    try:
        told = json.loads((directory / NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0, []
    return told["step"], [DecodeSample(**sample) for sample in told["samples"]]


def as_markdown(samples: Sequence[DecodeSample]) -> str:
    """Returns a table."""
    rows = ["| inputs | reference | decode |", "|---|---|---|"]
    rows += [f"| {' | '.join(_cell(text or '') for text in sample)} |" for sample in samples]
    return "\n".join(rows)


def _cell(text: str) -> str:
    """Returns a text such that Markdown takes no letter of it for a mark."""
    text = " ".join(text[:_LONGEST].split())
    marked = "".join(f"\\{letter}" if letter in "\\`*_{}[]()#+!|~-" else letter for letter in text)
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
