"""A question and a text, to the part of the text that answers it."""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from t2t_torch.errors import DataError
from t2t_torch.families.word import WordProblem
from t2t_torch.features import Features, Span, Words
from t2t_torch.problem import Found

IDEOGRAPHS = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)
"""Ideographs and kana, as a class has them: written without spaces between words, so each is a word
of its own."""

_JOINERS = "\u200c\u200d"  # within words of Persian and of the scripts of India
_PLACES_OF_MARKS = (range(0x300, 0x20000), range(0xE0100, 0xE01F0))


class Token(NamedTuple):
    """A word of a text and its place there, in characters; `end` is exclusive."""

    text: str
    start: int
    end: int


def tokens_of(text: str) -> list[Token]:
    """Cuts a text into words and punctuation marks, spaces left out.

    Combining marks, as the vowel signs of Hindi, belong to the word that they stand in.  Chinese
    characters and kana are a word each.
    """
    return [Token(match[0], *match.span()) for match in token_pattern().finditer(text)]


@functools.cache
def token_pattern() -> re.Pattern[str]:
    """Returns what `tokens_of` finds: a word, or one mark of punctuation."""
    ideograph, mark = f"[{IDEOGRAPHS}]", f"[{marks()}]"
    return re.compile(rf"{ideograph}{mark}*|(?:[^\W{IDEOGRAPHS}]|{mark})+|[^\w\s]")


@functools.cache
def marks() -> str:
    """Returns the characters that belong to the word that they stand in, as a class has them."""
    characters = map(chr, itertools.chain(*_PLACES_OF_MARKS))
    found = (one for one in characters if unicodedata.category(one).startswith("M"))
    return "".join(found) + _JOINERS


class SpanQAProblem(WordProblem):
    """A question and a text, to the part of the text that answers it, as in SQuAD.

    `generate_samples` yields {"question": str, "context": str, "answers": [{"text": str, "start":
    int}, ...]}: the answers' first characters in the context; no answer is an empty list.  A text
    of more than `max_context` words becomes several examples that overlap; those that do not hold
    the first of the answers have none.  Of several answers only the first is learnt and measured.

    A long text is answered from all of its windows: with the most probable answer that is found in
    one of them, as it stands in the text; "" if none is found.

    Attributes:
      max_context: words of a text in one example.
      context_stride: words from one window to the next.
    """

    text_fields = ("question", "context")
    words_field = "context"
    metrics = ("answer_exact_match", "answer_f1")
    suggested_flags = "--model=span_qa --hparams_set=span_qa_base"
    approx_vocab_size = 2**15
    max_context: ClassVar[int] = 384
    context_stride: ClassVar[int] = 256
    setting_names = (*WordProblem.setting_names, "max_context", "context_stride")

    def examples_of(self, sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields one example for each window of the context."""
        others = {k: v for k, v in sample.items() if k not in ("question", "context", "answers")}
        span = _span(tokens_of(sample["context"]), sample)
        for number, window in enumerate(self.inputs_of(sample)):
            start = number * self.context_stride
            inside = _within(span, start, len(window["context"]))
            words = {field: window[field] for field in ("question", "context")}
            yield {**others, **words, "targets": inside}

    def inputs_of(self, sample: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Returns the words of question and context, for each window of the context."""
        for field in ("question", "context"):
            if not isinstance(sample[field], str):
                raise DataError(f"{field} is {sample[field]!r}, where a text was expected.")
        question = [token.text for token in tokens_of(sample["question"])]
        context = [token.text for token in tokens_of(sample["context"])]
        if not question or not context:
            raise DataError(f"a question or a context without a word: {dict(sample)!r}.")
        beyond = max(0, len(context) - self.max_context)
        windows = -(-beyond // self.context_stride) + 1
        starts = (number * self.context_stride for number in range(windows))
        cut = (context[start : start + self.max_context] for start in starts)
        return [{**sample, "question": question, "context": window} for window in cut]

    def answer_of(self, target: str, found: Sequence[Found], sample: Mapping[str, Any]) -> Found:
        """Returns the most probable answer of all windows, as it stands in the context.

        Where no window has one it is "", as probable as in the window that is least sure of it.
        """
        sure = [one.probability or 0.0 for one in found]
        there = [number for number, one in enumerate(found) if one.value is not None]
        if not there:
            return Found("", min(sure))
        best = max(there, key=sure.__getitem__)
        first, last = (place + best * self.context_stride for place in found[best].value)
        tokens = tokens_of(sample["context"])
        return Found(sample["context"][tokens[first].start : tokens[last].end], sure[best])

    def stored_features(self, directory: Path) -> Features:
        """Returns the question, the context with what belongs to its words, and the answer."""
        inputs = {"question": Words(self.encoder(directory)), **self.words(directory)}
        notes = self.word_notes(directory)
        return Features(inputs, {"targets": Span(self.words_field)}, notes=notes)


def _span(context: Sequence[Token], sample: Mapping[str, Any]) -> tuple[int, int] | None:
    """The first and the last word of the first answer; None if there is none."""
    if not sample["answers"]:
        return None
    answer = sample["answers"][0]
    start = int(answer["start"])
    end = start + len(answer["text"])
    if sample["context"][start:end] != answer["text"]:
        raise DataError(
            f"the answer {answer['text']!r} is not at character {start} of its context, where "
            f"{sample['context'][start:end]!r} stands. Mend answer_start."
        )
    touched = [i for i, token in enumerate(context) if token.start < end and token.end > start]
    if not touched:
        raise DataError(f"the answer {answer['text']!r} has no word in it.")
    return touched[0], touched[-1]


def _within(span: tuple[int, int] | None, start: int, length: int) -> tuple[int, int] | None:
    if span is None or span[0] < start or span[1] >= start + length:
        return None
    return span[0] - start, span[1] - start
