"""What a server takes, and how it puts requests together."""

from __future__ import annotations

from dataclasses import dataclass

MOST_WEIGHTS = 100_000
"""Pairs of a word that is read and one that is written, of which a request is told the attention:
as JSON a megabyte."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a server, and of each of its models.

    Attributes:
      body_bytes: of a request's body.
      inputs: of a request.
      characters: of all texts of an input.
      seconds: from a request's first byte to its answer.
      queue: requests that wait for a model; further ones are refused.
      batch_inputs: that a model is asked at once.
      batch_tokens: of a batch, about; a request that has more is a batch by itself.  Models put
        inputs of like lengths together themselves, so padding does not count.
      batches: that a model computes at once, if several threads may ask it; each has a thread of
        its own, and onnxruntime's others are shared by all.
      delay: seconds that a request waits for others, if it has come while the model was busy.
      header_seconds: that a request's line and headers may take.
    """

    body_bytes: int = 1 << 20
    inputs: int = 64
    characters: int = 10_000
    seconds: float = 30.0
    queue: int = 256
    batch_inputs: int = 64
    batch_tokens: int = 1024
    batches: int = 2
    delay: float = 0.002
    header_seconds: float = 10.0
