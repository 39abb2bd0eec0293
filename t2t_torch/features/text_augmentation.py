"""Random changes of training texts: typing errors, case, words, spans, and subwords.

The hparam `text_augmentation` names them, each with a rate or its default, for example
`("typos:0.05", "case")`.  They are made in one order, whatever the order of the names: first those
of the text, then those of its ids.  A changed text is cut to the number of ids that are stored, by
which batches are planned; one of which nothing is left is not changed.

All random numbers are those of the example (`Problem.preprocess_example`).  For that reason other
segmentations are not drawn by sentencepiece, whose generator belongs to the process.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from t2t_torch.errors import HParamsError
from t2t_torch.features.feature import ExampleChange, Features, select_texts
from t2t_torch.features.text import Text
from t2t_torch.mode import Split
from t2t_torch.text.encoder import EOS, TextEncoder

_Rng: TypeAlias = np.random.Generator
_Change: TypeAlias = Callable[..., Any]


def typos(text: str, rng: _Rng, rate: float) -> str:
    """Returns a text with some letters left out, doubled, or exchanged with the next letter.

    Belinkov and Bisk 2018, arXiv:1711.02173.

    Args:
      text: the text.
      rng: generator.
      rate: share of the letters before another one.
    """
    letters = [*text]
    for place in np.flatnonzero(rng.random(len(text)) < rate).tolist():
        if text[place : place + 2].isalpha():
            first, *after = letters[place : place + 2]
            changed = (["", *after], [2 * first, *after], [*after, first])
            letters[place : place + 2] = changed[rng.integers(3)]
    return "".join(letters)


def case(text: str, rng: _Rng, rate: float) -> str:
    """Returns a text with a share of its words in lower case, upper case, or capitalized."""
    forms = (str.lower, str.upper, str.capitalize)
    words = [forms[rng.integers(3)](w) if rng.random() < rate else w for w in text.split(" ")]
    return " ".join(words)


def swap_words(text: str, rng: _Rng, rate: float) -> str:
    """Returns a text with random pairs of words exchanged, of a share `rate` of its words.

    Wei and Zou 2019, arXiv:1901.11196.
    """
    words = text.split(" ")
    for one, other in rng.integers(len(words), size=(rng.binomial(len(words), rate / 2), 2)):
        words[one], words[other] = words[other], words[one]
    return " ".join(words)


def delete_words(text: str, rng: _Rng, rate: float) -> str:
    """Returns a text without a share of its words.  Wei and Zou 2019, arXiv:1901.11196."""
    return " ".join(word for word in text.split(" ") if rng.random() >= rate)


def span_mask(encoder: TextEncoder) -> _Change:
    """Returns a function that hides a share of ids, in spans of three, which may touch.

    Hidden ids become the unknown id; where an encoder has none, or several, they are left out.
    """
    unknown, kept = [*encoder.unknown_ids], [*getattr(encoder, "silent", ())]

    def mask_spans(ids: Any, rng: _Rng, rate: float) -> Any:
        begins = rng.random(len(ids) + 2) < 1.0 - (1.0 - rate) ** (1.0 / 3.0)
        hidden = (np.convolve(begins, np.ones(3), "valid") > 0) & ~np.isin(ids, kept)
        return np.where(hidden, unknown[0], ids) if len(unknown) == 1 else ids[~hidden]

    return mask_spans


def subword_sampler(encoder: TextEncoder) -> _Change:
    """Returns a function that splits a share of subwords into two subwords of the same text.

    It serves the purpose of Kudo 2018, arXiv:1804.10959, and of BPE dropout, Provilkov et al. 2020,
    arXiv:1910.13267, for every vocabulary: all splits of a subword are equally probable.

    Raises:
      HParamsError: no entry of the vocabulary can be split.
    """
    ids_of = {token: number for number, token in enumerate(encoder.tokens) if number > EOS}

    @functools.cache
    def splits(number: int) -> list[Sequence[int]]:
        token, text = encoder.tokens[number], encoder.decode([number])
        both = [(token[:k], mark + token[k:]) for k in range(1, len(token)) for mark in ("", "##")]
        pairs = [(ids_of.get(first, 0), ids_of.get(second, 0)) for first, second in both]
        # Vocabularies mark words in different ways: the text of a pair decides.
        return [pair for pair in pairs if text and all(pair) and encoder.decode(pair) == text]

    if not any(map(splits, range(encoder.vocab_size))):
        raise HParamsError("sample_subwords: the vocabulary has no subwords. Leave it out.")

    def sample_subwords(ids: Any, rng: _Rng, rate: float) -> list[int]:
        parts: list[int] = []
        for one in ids.tolist():
            pairs = splits(one) if rng.random() < rate else []
            parts += pairs[rng.integers(len(pairs))] if pairs else [one]
        return parts

    return sample_subwords


_OF_TEXTS: tuple[_Change, ...] = (case, swap_words, delete_words, typos)
_OF_IDS = {"mask_spans": span_mask, "sample_subwords": subword_sampler}
_RATES = dict.fromkeys(["case", "swap_words", "delete_words", *_OF_IDS], 0.1) | {"typos": 0.02}
"""Default rates; an error in every fiftieth letter is one in about every tenth word."""

_NAME = re.compile(rf"({'|'.join(_RATES)})(?::(0?\.\d+|[01]))?")


class TextChanges(ExampleChange):
    """Random changes of the texts among the inputs, in training.

    Args:
      names: names of changes, such as "case", or with a rate, such as "typos:0.05".

    Raises:
      HParamsError: there is no such change, or its rate is not from 0 to 1.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._rates: dict[str, float] = {}
        for text in names:
            if (match := _NAME.fullmatch(text)) is None:
                raise HParamsError(
                    f"text_augmentation: there is no {text!r}; expected {', '.join(_RATES)}, each "
                    "with a rate from 0 to 1 or without, as in [typos:0.05,case]."
                )
            self._rates[match[1]] = float(match[2] or _RATES[match[1]])

    def of(self, features: Features) -> Callable[..., Mapping[str, Any]]:
        """Returns the function that is called as `Problem.preprocess_example`.

        Raises:
          HParamsError: no input is a text, one has words with places, or a vocabulary does not fit.
        """
        texts, rates = select_texts(features.inputs), self._rates
        places = {one.refers_to for one in features.all.values()}
        encoders = {name: one.encoder for name, one in texts.items() if type(one) is Text}
        closed = [one for one in encoders.values() if not (one.is_lossless or one.unknown_ids)]
        if not texts or closed or len(encoders) < len(texts) or places & texts.keys():
            raise HParamsError(
                "text_augmentation needs inputs that are texts, without tags or spans of words, "
                f"and an id for unknown words; got: {', '.join(texts) or 'no text'}. Leave it out."
            )
        of_texts = [(one, rates[one.__name__]) for one in _OF_TEXTS if one.__name__ in rates]
        makers = [(_OF_IDS[kind], rates[kind]) for kind in _OF_IDS if kind in rates]
        of_ids = {name: [(make(e), rate) for make, rate in makers] for name, e in encoders.items()}

        def change(example: dict[str, Any], mode: Split, rng: _Rng) -> dict[str, Any]:
            for name, encoder in encoders.items() if mode is Split.TRAIN else ():
                ids = example[name]
                size = len(ids) - int(EOS in ids[-1:])
                text = before = encoder.decode(ids[:size])
                for function, rate in of_texts:
                    text = function(text, rng, rate)
                made: Any = ids[:size] if text == before else encoder.encode(text)
                for function, rate in of_ids[name]:
                    made = function(np.array(made), rng, rate) if len(made) else made
                example[name] = np.concatenate([made[:size], ids[size:]]) if len(made) else ids
            return example

        return change
