"""A question and a text, to the part of the text that answers it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from t2t_torch.errors import DataError
from t2t_torch.families.word import WordProblem
from t2t_torch.features import Features, Span, Words

_WORD = re.compile(r"\w+|[^\w\s]")  # a word, or one mark of punctuation


class Token(NamedTuple):
    """A word of a text and its place there, in characters; `end` is exclusive."""

    text: str
    start: int
    end: int


def tokens_of(text: str) -> list[Token]:
    """Cuts a text into words and punctuation marks, spaces left out."""
    return [Token(match[0], *match.span()) for match in _WORD.finditer(text)]


class SpanQAProblem(WordProblem):
    """A question and a text, to the part of the text that answers it, as in SQuAD.

    `generate_samples` yields {"question": str, "context": str, "answers": [{"text": str, "start":
    int}, ...]}: the answers' first characters in the context; no answer is an empty list.  A text
    of more than `max_context` words becomes several examples that overlap; those that do not hold
    the first of the answers have none.

    Attributes:
      max_context: words of a text in one example.
      context_stride: words from one window to the next.
    """

    text_fields = ("question", "context")
    words_field = "context"
    metrics = ("answer_exact_match", "answer_f1")
    approx_vocab_size = 2**15
    max_context: ClassVar[int] = 384
    context_stride: ClassVar[int] = 256
    setting_names = (*WordProblem.setting_names, "max_context", "context_stride")

    def examples_of(self, sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields one example for each window of the context."""
        others = {k: v for k, v in sample.items() if k not in ("question", "context", "answers")}
        question = [token.text for token in tokens_of(sample["question"])]
        context = tokens_of(sample["context"])
        if not question or not context:
            raise DataError(f"a question or a context without a word: {sample!r}.")
        span = _span(context, sample)
        start = 0
        while True:
            window = context[start : start + self.max_context]
            yield {
                **others,
                "question": question,
                "context": [token.text for token in window],
                "targets": _within(span, start, len(window)),
            }
            if start + self.max_context >= len(context):
                break
            start += self.context_stride

    def inputs_of(self, sample: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the words of question and context; of a long context the first window."""
        question = [token.text for token in tokens_of(sample["question"])]
        context = [token.text for token in tokens_of(sample["context"])]
        return {**sample, "question": question, "context": context[: self.max_context]}

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
