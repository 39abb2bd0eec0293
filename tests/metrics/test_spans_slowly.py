"""Spans of random tags agree with the rules of the script conlleval, word by word."""

import random

import pytest
import torch

from t2t_torch.features import IGNORED, Tags
from t2t_torch.metrics.metric import metric_of
from t2t_torch.text.encoder import ClassLabelEncoder
from t2t_torch.text.tags import scheme_of

LABELS = ("O", "B-a", "I-a", "B-b", "I-b", "E-a", "S-b")


def ends(before, after):
    """Whether a span ends between two tags: conlleval's endOfChunk."""
    (p, kind), (q, other) = before, after
    if p in ("B", "I") and q in ("B", "S", "O"):
        return True
    return p in ("E", "S") or (p != "O" and kind != other)


def starts(before, after):
    """Whether a span starts between two tags: conlleval's startOfChunk."""
    (p, kind), (q, other) = before, after
    if q in ("B", "S"):
        return True
    return q != "O" and (p in ("O", "E", "S") or kind != other)


def slowly(tags):
    """Returns the spans: first word, last word, kind."""
    split = [("O", ""), *(tuple(tag.split("-")) if "-" in tag else ("O", "") for tag in tags)]
    split.append(("O", ""))
    found, open_since = [], None
    for place in range(1, len(split)):
        before, after = split[place - 1], split[place]
        if open_since is not None and ends(before, after):
            found.append((open_since, place - 2, before[1]))
            open_since = None
        if starts(before, after):
            open_since = place - 1
    return found


@pytest.mark.parametrize("labels", [LABELS[:3], LABELS[:5], LABELS])
def test_the_spans_and_f1_of_random_tags_are_conllevals(labels):
    drawn = random.Random(0)

    def tag():
        return drawn.randrange(len(labels))

    targets = [[tag() for _ in range(drawn.randint(1, 9))] for _ in range(300)]
    guesses = [[drawn.choice([right, tag()]) for right in row] for row in targets]
    right = found = there = 0
    for guess, row in zip(guesses, targets, strict=True):
        ours, theirs = (slowly([labels[tag] for tag in one]) for one in (guess, row))
        assert [
            tuple(span) for span in scheme_of(labels).spans([labels[tag] for tag in row])
        ] == theirs
        right, found, there = (
            right + len(set(ours) & set(theirs)),
            found + len(ours),
            there + len(theirs),
        )
    metric = metric_of("span_f1", Tags(ClassLabelEncoder(labels)))
    padded = torch.tensor([row + [IGNORED] * (9 - len(row)) for row in targets])
    best = torch.tensor([row + [0] * (9 - len(row)) for row in guesses])
    logits = torch.nn.functional.one_hot(best, len(labels)).float()
    result = metric.result(metric.update(logits, padded))
    assert result == pytest.approx(2 * right / (found + there))
