"""Proposals to learn the structure of sentences: tags of words, intents with slots, trees."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from t2t_torch.declaration.columns import LABEL_NAMES, FileColumns, Inspected, aligned, determined
from t2t_torch.declaration.proposal import Proposal
from t2t_torch.declaration.proposers.classes import targets
from t2t_torch.errors import listed
from t2t_torch.registry import register_proposer
from t2t_torch.runtime.prediction import WRITTEN_LIST

_TAG_NAMES = "tag tags ner pos upos label labels iob bio slots chunk"
_WORD_NAMES = "word words token tokens form"
_MAX_TAGS = 300
_WITH_LABELS = 2  # columns of tags that are learnt with labels
_SURE = 0.95  # fraction of rows with as many tags as words


class Tagged(NamedTuple):
    """Words with tags.

    Attributes:
      words: the column of words.
      tags: the column of tags.
      score: how well they fit.
      doubts: warnings, as sentences.
    """

    words: Inspected
    tags: Inspected
    score: float
    doubts: list[str]

    @property
    def fields(self) -> tuple[Any, Any]:
        """The columns in JSON form."""
        return _column(self.words), _column(self.tags)


def _column(one: Inspected) -> Any:
    return {"column": one.name, "split": WRITTEN_LIST} if one.written_list else one.name


def tagged(table: FileColumns) -> list[Tagged]:
    """Returns the pairs of columns that are words and tags: as many in each row, and fewer kinds.

    Words in a string are used only if their tags have a scheme such as B-PER, or few kinds that
    repeat: any two texts of one word have as many words.
    """
    columns = [one for one in table if one.vocabulary]
    largest = max((len(one.vocabulary) for one in columns), default=0)
    found = []
    for words in [one for one in columns if len(one.vocabulary) * 3 > largest]:
        for tags in columns:
            kinds, tokens = len(tags.vocabulary), len(words.vocabulary)
            if words is tags or kinds > tokens - (not tags.is_named(_TAG_NAMES)):
                continue
            if kinds > _MAX_TAGS or (score := _fit(words, tags)) <= 0:
                continue
            found.append(Tagged(words, tags, score, []))
    return found


def _fit(words: Inspected, tags: Inspected) -> float:
    """Returns how well two columns fit as words and tags."""
    listed = words.is_listed and tags.is_listed
    kinds, tokens = len(tags.vocabulary), len(words.vocabulary)
    if kinds < 2 or tags.is_tree or words.is_tree or _are_numbers(words):
        return 0.0
    if not listed:
        lengths = {len(row) for row in tags.tokens if row is not None}
        few = kinds * 4 <= tags.vocabulary.total() and kinds * 3 <= tokens and kinds <= 60
        if len(lengths) < 3 or not (tags.has_scheme or (few and not tags.repeats)):
            return 0.0
    if aligned(words, tags) < _SURE or _with_blanks(words) * 20 > words.vocabulary.total():
        return 0.0
    score = 0.85 + 0.08 * tags.has_scheme + 0.09 * tags.is_named(_TAG_NAMES)
    score += 0.03 * words.is_named(_WORD_NAMES) - 0.2 * _are_numbers(tags)
    score += 0.15 * (determined(words, tags) - 0.85)
    # Of several columns, the words are those of the most kinds, the tags those of the fewest.
    return score - 0.15 * math.log(kinds) / math.log(tokens) + 0.01 * math.log10(tokens)


def _with_blanks(words: Inspected) -> int:
    return sum(n for token, n in words.vocabulary.items() if " " in token)


def _are_numbers(one: Inspected) -> bool:
    return all(token.isdecimal() for token in one.vocabulary)


def _ranked(table: FileColumns) -> list[Tagged]:
    """Returns words with tags, the best first; later columns first unless they are inner tags."""
    found = tagged(table)
    if not found:
        return []
    order = {name: n for n, name in enumerate(table.columns)}
    schemes = [one for one in found if one.tags.has_scheme]
    best_words = max(
        found,
        key=lambda one: (
            one.words.is_list,
            one.words.is_named(_WORD_NAMES),
            len(one.words.vocabulary),
            -order[one.words.name],
        ),
    )
    made = []
    for one in found:
        others = [
            other.tags for other in found if other.words is one.words and other.tags is not one.tags
        ]
        score = one.score - 0.2 * (one.words is not best_words.words)
        score += 0.02 * order[one.tags.name] / len(order)
        if one.tags.has_scheme and any(_is_inner(one.tags, other) for other in others):
            score -= 0.2
        if schemes and not one.tags.has_scheme and not one.tags.is_named(_TAG_NAMES):
            score -= 0.1
        doubts = []
        if others and one.words is best_words.words:
            named = listed(repr(other.name) for other in others)
            doubts.append(
                f"the words are in column {one.words.name!r} and the tags in {one.tags.name!r}; "
                f"the tags could also be {named}."
            )
        if count := _with_blanks(one.words):
            doubts.append(f"blanks in {count:,} words of {one.words.name!r} become '_'.")
        if _are_numbers(one.tags):
            doubts.append(
                f"the tags of {one.tags.name!r} are numbers, so no spans can be scored; names of "
                "the tags, such as B-PER, would be better."
            )
        made.append(one._replace(score=min(1.0, score), doubts=doubts))
    return sorted(made, key=lambda one: -one.score)


def _is_inner(one: Inspected, other: Inspected) -> bool:
    """Returns whether tags are those of spans within the spans of another column."""
    if not other.has_scheme or not one.vocabulary.keys() <= other.vocabulary.keys():
        return False
    return one.vocabulary["O"] > other.vocabulary["O"]


@register_proposer("text2tags")
def propose_tags(table: FileColumns) -> Iterator[Proposal]:
    """Proposes a tag for each word, also with the label of each sentence ("intentslot")."""
    for number, one in enumerate(_ranked(table)):
        inputs, tags = one.fields
        reason = f"{one.tags.name!r} has as many tags as {one.words.name!r} has words"
        fields, meaning = {"inputs": inputs, "targets": tags}, f"the tags {one.tags.name!r}"
        yield Proposal("text2tags", fields, one.score, meaning, [reason], one.doubts)
        for label, fit in targets(table, "label") if number < _WITH_LABELS else ():
            if label.is_number and not label.is_named(LABEL_NAMES):
                continue  # a count
            fields = {"inputs": inputs, "intent": label.name, "slots": tags}
            score = one.score * (0.5 + 0.5 * fit)
            meaning = f"the intent {label.name!r} and the tags {one.tags.name!r}"
            yield Proposal("intentslot", fields, score, meaning, [reason], one.doubts)


@register_proposer("text2tree")
def propose_trees(table: FileColumns) -> Iterator[Proposal]:
    """Proposes the tree of a sentence, whose words are its leaves."""
    names = list(table.columns)
    trees = [one for one in table if one.is_tree]
    of_texts = [one for one in table if one.text > 0.5 and not one.is_tree]
    for one in trees:
        name = one.name
        if name.isdecimal() and name == names[-1]:
            name = "-1"  # the last, also in files with other columns before it
        derived = one.name in table.derived and len(of_texts) > 1
        score = 0.5 if derived or table.best("label", 0.5) else 0.95
        doubt = f"{one.name!r} is used as the trees; the words are those of the trees."
        meaning = f"the trees {one.name!r}"
        yield Proposal("text2tree", {"targets": name}, score, meaning, (), [doubt])
