"""What was found for an input that is answered with a text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """One answer to an input.

    Attributes:
      text: what the ids mean.
      ids: what the model made, the end symbol left out.
      score: log-probability (nats), over the length penalty if the beam is wider than 1.
      mended: whether the ids build no tree as they stand; false of texts.
      alignment: with `write_alignments`, which word of the input each word of the output comes
        from: pairs of their numbers, from 0.
    """

    text: str
    ids: tuple[int, ...]
    score: float
    mended: bool = False
    alignment: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Attention:
    """What each word of an output looks at in the input.

    Attributes:
      read: words of the input, as the vocabulary writes them.
      written: words of the output.
      weights: of each word that is written, to each that is read; what they lack to 1 goes to the
        input's end symbol.
    """

    read: tuple[str, ...]
    written: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Prediction:
    """What was found for one input.

    Attributes:
      hypotheses: at least one, best first; more than one only with `return_beams`, or where
        `num_decodes` are drawn, in the order of their numbers.
      attention: of the best hypothesis, where it was asked for.
    """

    hypotheses: tuple[Hypothesis, ...]
    attention: Attention | None = None

    @property
    def value(self) -> str:
        """The best hypothesis's text, by the name that an `Answer` has for what was found."""
        return self.text

    @property
    def text(self) -> str:
        """The best hypothesis's text."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """The best hypothesis's score."""
        return self.hypotheses[0].score
