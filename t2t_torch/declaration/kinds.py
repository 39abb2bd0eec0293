"""The kinds of problem that can be declared: their family, and the fields of their samples."""

from __future__ import annotations

import enum
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from t2t_torch.problem import Problem

MIXTURE = "mixture"
"""The kind that names other problems, and has no files of its own."""


class Value(enum.Enum):
    """What a field of a sample holds."""

    TEXT = "a text"
    ANY_TEXT = "a text, also an empty one"
    TEXTS = "a list of texts"
    WORDS = "a list of words"
    TAGS = "a list of tags, one for each word"
    LABEL = "a label"
    LABELS = "a list of labels"
    NUMBERS = "a number, or a list of numbers"
    ANSWERS = "answers, each a part of the context"
    TREE = "a bracketed tree"
    IMAGE = "a picture"
    PROBABILITIES = "a probability for each label"
    GAZETTEER = "for each word, labels and their weights"


@dataclass(frozen=True)
class Kind:
    """A kind of problem.

    Attributes:
      family: the module in `families/` (or the package) and the class, with a colon between.
      fields: of a sample, and what each holds.
      group: the fields whose equality keeps rows in one split, when some are held out.
      settings: the class attributes that "settings" of a declaration may set.
      optional: the fields that need no column.
    """

    family: str
    fields: Mapping[str, Value]
    group: tuple[str, ...]
    settings: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    def family_class(self) -> type[Problem]:
        """Imports the family."""
        module, _, name = self.family.partition(":")
        return cast("type[Problem]", getattr(importlib.import_module(module), name))


_ROOM = "t2t_torch.families"
_VOCABULARY = ("max_samples_for_vocab", "min_word_count", "oov_token")
_INPUTS = ("inputs",)
_WORD = (*_VOCABULARY, "gazetteer_width")
_TEXT_TO_LABEL = {"inputs": Value.TEXT, "targets": Value.LABEL}
_PAIR = {"first": Value.TEXT, "second": Value.TEXT}

KINDS: Mapping[str, Kind] = {
    "text2text": Kind(
        "t2t_torch.text_problem:Text2TextProblem",
        {"inputs": Value.TEXT, "targets": Value.TEXT},
        _INPUTS,
        _VOCABULARY,
    ),
    "text2self": Kind(
        "t2t_torch.text_problem:Text2SelfProblem",
        {"targets": Value.ANY_TEXT},
        ("targets",),
        (*_VOCABULARY, "chop_length"),
    ),
    "text2class": Kind(
        f"{_ROOM}.text2class:Text2ClassProblem", _TEXT_TO_LABEL, _INPUTS, _VOCABULARY
    ),
    "text2multilabel": Kind(
        f"{_ROOM}.text2multilabel:Text2MultiLabelProblem",
        {"inputs": Value.TEXT, "targets": Value.LABELS},
        _INPUTS,
        _VOCABULARY,
    ),
    "textpair2class": Kind(
        f"{_ROOM}.textpair:TextPair2ClassProblem",
        {**_PAIR, "targets": Value.LABEL},
        ("first", "second"),
        _VOCABULARY,
    ),
    "textpair2real": Kind(
        f"{_ROOM}.textpair:TextPair2RealProblem",
        {**_PAIR, "targets": Value.NUMBERS},
        ("first", "second"),
        (*_VOCABULARY, "target_size", "raw_targets"),
    ),
    "text2real": Kind(
        f"{_ROOM}.text2real:Text2RealProblem",
        {"inputs": Value.TEXT, "targets": Value.NUMBERS},
        _INPUTS,
        (*_VOCABULARY, "target_size", "raw_targets"),
    ),
    "text2tags": Kind(
        f"{_ROOM}.text2tags:Text2TagsProblem",
        {"inputs": Value.WORDS, "targets": Value.TAGS},
        _INPUTS,
        _WORD,
    ),
    "intentslot": Kind(
        f"{_ROOM}.intentslot:IntentSlotProblem",
        {"inputs": Value.WORDS, "intent": Value.LABEL, "slots": Value.TAGS},
        _INPUTS,
        _WORD,
    ),
    "pairranking": Kind(
        f"{_ROOM}.ranking:PairRankingProblem",
        {"query": Value.TEXT, "positive": Value.TEXT, "negative": Value.TEXT},
        ("query",),
        _VOCABULARY,
    ),
    "queryrelevance": Kind(
        f"{_ROOM}.ranking:QueryRelevanceProblem",
        {"query": Value.TEXT, "document": Value.TEXT, "targets": Value.LABEL},
        ("query",),
        (*_VOCABULARY, "max_queries", "max_documents"),
    ),
    "spanqa": Kind(
        f"{_ROOM}.spanqa:SpanQAProblem",
        {"question": Value.TEXT, "context": Value.TEXT, "answers": Value.ANSWERS},
        ("context",),
        (*_WORD, "max_context", "context_stride"),
    ),
    "text2tree": Kind(
        f"{_ROOM}.text2tree:Text2TreeProblem",
        {"inputs": Value.WORDS, "targets": Value.TREE},
        _INPUTS,
        _WORD,
        optional=("inputs",),
    ),
    "multiturn2class": Kind(
        f"{_ROOM}.multiturn2class:MultiTurn2ClassProblem",
        {"inputs": Value.TEXTS, "targets": Value.LABEL},
        _INPUTS,
        (*_VOCABULARY, "max_turns"),
    ),
    "image2class": Kind(
        f"{_ROOM}.image2class:Image2ClassProblem",
        {"inputs": Value.IMAGE, "targets": Value.LABEL},
        _INPUTS,
        ("height", "width", "channels"),
    ),
    "questioncontext2text": Kind(
        f"{_ROOM}.questioncontext2text:QuestionContext2TextProblem",
        {"inputs": Value.TEXT, "context": Value.TEXT, "targets": Value.TEXT},
        ("context",),
        _VOCABULARY,
    ),
}
"""By what a declaration says as "kind"."""

USUAL_COLUMNS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("bio", "intentslot"): {"inputs": "words", "intent": "label", "slots": "tags"},
    ("bio", "text2tags"): {"inputs": "words", "targets": "tags"},
    ("bio", "text2class"): {"inputs": "words", "targets": "label"},
    ("conllu", "text2tags"): {"inputs": "form", "targets": "upos"},
    ("lines", "text2self"): {"targets": "text"},
    ("trees", "text2tree"): {"inputs": "words", "targets": "tree"},
    ("idx", "image2class"): {"inputs": "image", "targets": "label"},
}
"""By format and kind, where the fields are when "fields" does not say; else in columns of the
fields' own names."""
