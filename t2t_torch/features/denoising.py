"""Restoring a corrupted text: how models are pretrained on texts without labels.

Any problem with one text is such a problem, too, under another name, on the same data:

- `NAME_masked`: some tokens are hidden, and the model gives each of them; Devlin et al. 2019,
  arXiv:1810.04805, with whole words as in Cui et al. 2019, arXiv:1906.08101.
- `NAME_spans`: spans are replaced by one mark each, and the model writes all spans after their
  marks; Raffel et al. 2020, arXiv:1910.10683.
- `NAME_noised`: spans are replaced by marks that are all alike, sentences are permuted, and the
  model writes the whole text; Lewis et al. 2020, arXiv:1910.13461.

A text is corrupted each time that it is read.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError, HParamsError, UsageError
from t2t_torch.features.feature import ExampleChange, Features
from t2t_torch.features.label import Tags
from t2t_torch.features.text import Text, TreeFeature
from t2t_torch.text.encoder import EOS, NUM_RESERVED, PAD, TextEncoder

if TYPE_CHECKING:
    from t2t_torch.hparam import NoiseHParams

Ids = npt.NDArray[Any]

_MASKS = ("[MASK]", "<mask>")


@dataclass(frozen=True)
class MaskedTokens(Text):
    """The hidden tokens of a text, `PAD` at all others; as long as the text."""

    produced_like: ClassVar[type[Tags]] = Tags
    add_eos: bool = False
    of: str = "inputs"

    @property
    def aligned_to(self) -> str:
        """The text."""
        return self.of


def corrupted(features: Features, kind: str) -> Features:
    """Returns the features of a problem of restoring a text.

    Args:
      features: features with one text.
      kind: "masked", "spans" or "noised".

    Raises:
      UsageError: there is no text, or there are several.
    """
    texts = {
        name: feature
        for name, feature in {**features.inputs, **features.targets}.items()
        if isinstance(feature, Text) and not isinstance(feature, TreeFeature)
    }
    if len(texts) != 1:
        raise UsageError(
            f"_{kind} restores the only text of a problem, and the texts of this one are "
            f"{', '.join(texts) or 'none'}. Name a problem with one text, such as a language model."
        )
    ((name, text),) = texts.items()
    noise = _KINDS[kind]
    text = replace(text, num_marks=0 if _known_marks(text.encoder, noise) else noise.num_marks)
    both = dict.fromkeys(("inputs", "targets"), features.columns[name])
    return Features({"inputs": text}, {"targets": noise.target(text)}, stored_as=both)


def check_read(hparams: NoiseHParams, kind: str) -> None:
    """Raises HParamsError if settings are set that a problem does not read.

    Args:
      hparams: the settings.
      kind: "masked", "spans" or "noised"; "" for any other problem.
    """
    fields, own = type(hparams).model_fields, _KINDS[kind].reads if kind else ()
    for name in dict.fromkeys(name for noise in _KINDS.values() for name in noise.reads):
        value = getattr(hparams, name)
        if name not in own and value != fields[name].default:
            readers = (f"_{other}" for other, noise in _KINDS.items() if name in noise.reads)
            raise HParamsError(
                f"{name}={value}: only problems whose names end in {' or '.join(readers)} read it. "
                "Leave it out, or name such a problem."
            )


@dataclass(frozen=True)
class Corruption(ExampleChange):
    """Corruption of texts; see `corrupted`.

    Attributes:
      kind: "masked", "spans" or "noised".
      hparams: the settings.
    """

    kind: str
    hparams: NoiseHParams

    def of(self, features: Features) -> Callable[..., Mapping[str, Any]]:
        """Returns the function that is called as `Problem.preprocess_example`."""
        random, kept = self.hparams.mask_random_share, self.hparams.mask_kept_share
        if random + kept > 1:
            raise HParamsError(
                f"mask_random_share={random} and mask_kept_share={kept} are more than 1 together."
            )
        text: Any = features.inputs["inputs"]
        first, noise = text.encoder.vocab_size, _KINDS[self.kind]
        marks = _known_marks(text.encoder, noise) or [*range(first, first + text.num_marks)]
        return noise(text.encoder, marks, self.hparams)


def _known_marks(encoder: TextEncoder, noise: type[_Noise]) -> list[int]:
    """Returns the ids that the vocabulary of a pretrained model has for marks; [] without any."""
    tokens = list(getattr(encoder, "tokens", ()))
    silent: frozenset[int] = getattr(encoder, "silent", frozenset())  # others are words
    special = {tokens[number]: number for number in silent}
    return [special[name] for name in noise.names if name in special][: noise.num_marks]


class _Noise(ABC):
    """Base class of the functions that corrupt examples.

    Args:
      encoder: encoder of the texts.
      marks: ids in place of what is hidden.
      hparams: the settings.

    Attributes:
      density: default of `noise_density`.
      reads: settings that it reads.
      names: names of marks in vocabularies of pretrained models.
      num_marks: number of marks.
    """

    density: ClassVar[float] = 0.15
    reads: ClassVar[tuple[str, ...]] = ()
    names: ClassVar[tuple[str, ...]] = _MASKS
    num_marks: ClassVar[int] = 1

    def __init__(self, encoder: TextEncoder, marks: list[int], hparams: NoiseHParams) -> None:
        self.encoder, self.marks, self.hparams = encoder, marks, hparams

    def __call__(
        self, example: Mapping[str, Ids], mode: Any, rng: np.random.Generator
    ) -> dict[str, Ids]:
        """Returns the corrupted text, and the targets; the text keeps its `EOS`, if any."""
        ids = example["inputs"]
        size = len(ids) - int(len(ids) > 0 and ids[-1] == EOS)
        inputs, targets = self.corrupt(ids[:size], rng)
        return {
            "inputs": np.concatenate([inputs, ids[size:]]),
            "targets": np.concatenate([targets, self.ending(ids[size:])]),
        }

    @abstractmethod
    def corrupt(self, ids: Ids, rng: np.random.Generator) -> tuple[Ids, Ids]:
        """Returns the inputs and the targets of a text, both without `EOS`."""

    @classmethod
    def target(cls, text: Text) -> Text:
        """Returns the feature of what is restored of a text."""
        return text

    def ending(self, end: Ids) -> Ids:
        """Returns the end of the targets, given that of the text: its `EOS`, or nothing."""
        return end

    def count(self, length: int) -> int:
        """Returns the number of tokens that are hidden of a text of `length` >= 1."""
        return min(max(1, round(length * (self.hparams.noise_density or self.density))), length)


class _MaskNoise(_Noise):
    """Hides tokens, of whole words; the model gives each of them."""

    reads = ("noise_density", "mask_whole_words", "mask_random_share", "mask_kept_share")

    @classmethod
    def target(cls, text: Text) -> Text:
        """Returns the feature of the hidden tokens."""
        return MaskedTokens(text.encoder, num_marks=text.num_marks)

    def __init__(self, encoder: TextEncoder, marks: list[int], hparams: NoiseHParams) -> None:
        super().__init__(encoder, marks, hparams)
        self._borders = word_borders(encoder) if hparams.mask_whole_words else None
        special = [*getattr(encoder, "silent", ()), *encoder.unknown_ids]
        self._words = np.setdiff1d(np.arange(NUM_RESERVED, encoder.vocab_size), special)

    def corrupt(self, ids: Ids, rng: np.random.Generator) -> tuple[Ids, Ids]:
        """Returns the ids with marks, random ids and some hidden ids kept; the hidden ids."""
        word = np.arange(len(ids))
        if self._borders is not None and len(ids):
            begins, ends = self._borders
            word = np.cumsum([True, *(ends[ids[:-1]] & begins[ids[1:]])]) - 1
        sizes = np.bincount(word).tolist()
        order = rng.permutation(len(sizes)).tolist()
        left, chosen = self.count(len(ids)) if len(ids) else 0, []
        for number in order:  # words that fit; one at least
            if sizes[number] <= left:
                chosen.append(number)
                left -= sizes[number]
        is_hidden = np.isin(word, chosen or order[:1])
        drawn, kept = rng.random(len(ids)), self.hparams.mask_kept_share
        random = self.hparams.mask_random_share
        others = rng.choice(self._words, len(ids))
        shown = np.where(drawn < kept, ids, np.where(drawn < kept + random, others, self.marks[0]))
        return np.where(is_hidden, shown, ids), np.where(is_hidden, ids, PAD)

    def ending(self, end: Ids) -> Ids:
        """Returns nothing to be restored at `EOS`."""
        return np.full_like(end, PAD)


class _SpanNoise(_Noise):
    """Replaces spans by marks; the model writes each mark and its span.

    Texts of one or two tokens are left as they are.
    """

    reads = ("noise_density", "mean_span_length")
    num_marks = 100  # as T5 has
    names = tuple(f"<extra_id_{number}>" for number in range(100))

    def corrupt(self, ids: Ids, rng: np.random.Generator) -> tuple[Ids, Ids]:
        """Returns the rest of the text with marks, and the spans after their marks."""
        hidden = self.count(len(ids)) if len(ids) else 0
        count = max(1, round(hidden / self.hparams.mean_span_length))
        count = min(count, len(ids) - hidden - 1, len(self.marks))
        if count < 1:  # the targets would be longer than the text
            return ids, ids
        shown = _parts(len(ids) - hidden + 2, count + 1, rng)
        gaps = np.cumsum(shown)[:-1] - 1  # a text may begin and end with a span
        return _with_marks(ids, gaps, _parts(hidden, count, rng), self.marks)

    def ending(self, end: Ids) -> Ids:
        """Returns `EOS`: a model stops after the last span."""
        return np.array([EOS])


class _TextNoise(_Noise):
    """Permutes sentences and replaces spans by marks; the model writes the text."""

    density: ClassVar[float] = 0.3
    reads = ("noise_density", "mean_span_length", "permute_sentences")

    def __init__(self, encoder: TextEncoder, marks: list[int], hparams: NoiseHParams) -> None:
        super().__init__(encoder, marks, hparams)
        texts = (encoder.decode([number]).rstrip() for number in range(encoder.vocab_size))
        self._ends = np.array([text.endswith(tuple(".!?\u3002")) for text in texts])

    def corrupt(self, ids: Ids, rng: np.random.Generator) -> tuple[Ids, Ids]:
        """Returns the corrupted text, and the text."""
        text = ids
        if self.hparams.permute_sentences:
            sentences = np.split(ids, np.flatnonzero(self._ends[ids[:-1]]) + 1)
            text = np.concatenate([sentences[i] for i in rng.permutation(len(sentences))])
        hidden = self.count(len(ids)) if len(ids) else 0
        sizes: list[int] = []
        while sum(sizes) < hidden:
            size = int(rng.poisson(self.hparams.mean_span_length))
            sizes.append(min(size, hidden - sum(sizes)))
        # A span of no tokens is a mark that hides nothing; the text does not become longer.
        sizes = sorted(sizes, reverse=True)[: min(hidden, len(ids) - hidden + 1)]
        gaps = np.sort(rng.choice(len(ids) - sum(sizes) + 1, len(sizes), replace=False))
        marks = self.marks * len(sizes)
        return _with_marks(text, gaps, rng.permutation(sizes).astype(int), marks)[0], ids


_KINDS: Mapping[str, type[_Noise]]
_KINDS = {"masked": _MaskNoise, "spans": _SpanNoise, "noised": _TextNoise}


def _with_marks(ids: Ids, gaps: Ids, sizes: Ids, marks: Sequence[int]) -> tuple[Ids, Ids]:
    """Returns a text with marks in place of spans, and the spans after their marks.

    Args:
      ids: the text.
      gaps: number of shown ids before each span.
      sizes: number of ids of each span.
      marks: mark of each span, and more.
    """
    starts = gaps + np.cumsum(sizes) - sizes
    inputs: list[Any] = []
    spans: list[Any] = []
    end = 0
    for mark, start, size in zip(marks, starts, sizes, strict=False):
        inputs += [ids[end:start], [mark]]
        spans += [[mark], ids[start : start + size]]
        end = start + size
    return np.concatenate([*inputs, ids[end:]]).astype(ids.dtype), np.concatenate([ids[:0], *spans])


def _parts(total: int, count: int, rng: np.random.Generator) -> Ids:
    """Returns a random division of `total` into `count` numbers >= 1."""
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff([0, *cuts, total])


def word_borders(encoder: TextEncoder) -> tuple[Ids, Ids]:
    """Returns which ids begin a word and which end one, judged by decoded pairs of ids.

    Between two ids a word ends and another begins if the first one ends a word and the second one
    begins one.  In some vocabularies the first says so and in others the second: each id is tried
    beside ids of common words, and others.

    Returns:
      Two masks, [vocab_size] bool each.
    """
    ids = range(NUM_RESERVED, encoder.vocab_size)
    beside = [*ids[:: len(ids) // 3 or 1]]
    with contextlib.suppress(DataError):  # a word is not in the vocabulary
        beside = [*dict.fromkeys((*encoder.encode("of the"), *beside))][:8]

    def is_border(first: int, second: int) -> bool:
        text, both = encoder.decode([first]), encoder.decode([first, second])
        after = both[len(text) :] if both.startswith(text) else both.strip()
        return bool(after[:1].isspace()) if both.startswith(text) else " " in after

    begins = [any(is_border(other, number) for other in beside) for number in ids]
    ends = [any(is_border(number, other) for other in beside) for number in ids]
    none = [False] * NUM_RESERVED
    return np.array([*none, *begins]), np.array([*none, *ends])
