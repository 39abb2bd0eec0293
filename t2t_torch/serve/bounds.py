"""Whether what is asked is within a server's limits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from t2t_torch.serve.limits import Limits
from t2t_torch.serve.model import Extent, InputField, Model, Sample, extent_of
from t2t_torch.serve.protocol import RequestInput
from t2t_torch.serve.refusal import TOO_LARGE, Refusal

_EACH = 3  # elements of a word, at most: a gazetteer has a mapping, a label and a weight


def check_size(count: int, limits: Limits) -> None:
    """Raises Refusal if a request has too many inputs."""
    if count > limits.inputs:
        raise Refusal(
            TOO_LARGE,
            f"the request has {count:,} inputs, and {limits.inputs} are taken at once. Put "
            "them into several requests.",
        )


def check_tensors(tensors: Sequence[RequestInput], limits: Limits) -> None:
    """Raises Refusal if tensors, which may have no elements yet, are of too many inputs."""
    check_size(max((tensor.shape[0] for tensor in tensors if tensor.shape), default=0), limits)


def check_lengths(texts: Sequence[str], limits: Limits) -> None:
    """Raises Refusal if a text, of one input each, is too long by itself."""
    for number, text in enumerate(texts):
        _check_length(number, len(text), limits)


def extents_of(model: Model, samples: Sequence[Sample], limits: Limits) -> list[Extent]:
    """Returns how large inputs are.

    Args:
      model: that they are put to.
      samples: the inputs.
      limits: of their characters, and so of their elements.

    Raises:
      Refusal: one is too large.
    """
    most = sum(_elements(field, limits.characters) for field in model.fields)
    found = []
    for number, sample in enumerate(samples):
        extent = extent_of(sample, most)
        if extent is None:
            raise Refusal(
                TOO_LARGE,
                f"input {number} has more than {most:,} elements in its lists and objects, which "
                f"is all that is taken with {limits.characters:,} characters. Cut it.",
            )
        _check_length(number, sum(map(len, extent.texts)), limits)
        found.append(extent)
    return found


def _check_length(number: int, length: int, limits: Limits) -> None:
    if length > limits.characters:
        raise Refusal(
            TOO_LARGE,
            f"input {number} has {length:,} characters, and {limits.characters:,} are taken. "
            "Cut it.",
        )


def _elements(field: InputField, characters: int) -> int:
    """Returns how many elements a field may have in all its lists and mappings.

    No word has less than a character, so there are no more of them; a picture's and numbers of
    words have their own size.
    """
    if field.kind == "image":
        return _EACH * (math.prod(field.shape) + characters)
    return _EACH * characters + field.size * (characters if field.kind == "word_numbers" else 1)
