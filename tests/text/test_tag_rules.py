"""Schemes of tags: how they are recognized, their spans, and which tags may follow which."""

import random

import pytest
import torch

from t2t_torch.features import Tags
from t2t_torch.metrics.metric import metric_of
from t2t_torch.text.encoder import ClassLabelEncoder
from t2t_torch.text.tags import scheme_of


def allowed(labels):
    """The pairs that may stand side by side; ^ and $ are the ends of a sentence."""
    rules = scheme_of(labels).rules(labels)
    pairs = {f"^ {b}" for b, may in zip(labels, rules.starts, strict=True) if may}
    pairs |= {f"{a} $" for a, may in zip(labels, rules.ends, strict=True) if may}
    for a, row in zip(labels, rules.follows, strict=True):
        pairs |= {f"{a} {b}" for b, may in zip(labels, row, strict=True) if may}
    return pairs


def test_in_iob2_what_goes_on_stands_after_its_own_kind_alone():
    found = allowed(["O", "B-x", "I-x", "B-y"])
    assert {pair for pair in found if pair.endswith("I-x")} == {"B-x I-x", "I-x I-x"}
    assert {"^ O", "^ B-x", "O B-y", "I-x B-y", "B-x $", "I-x O", "B-x B-x"} <= found


def test_in_iobes_what_is_open_is_closed():
    found = allowed(["O", "B-x", "I-x", "E-x", "S-x"])
    assert {pair for pair in found if pair.startswith("B-x")} == {"B-x I-x", "B-x E-x"}
    assert {pair for pair in found if pair.endswith("$")} == {"O $", "E-x $", "S-x $"}
    assert {"S-x S-x", "E-x B-x", "O S-x"} <= found and "O E-x" not in found


def test_tags_without_spans_and_kinds_without_a_beginning_are_free():
    labels = ["NOUN", "VERB", "I-x", "B-"]
    assert len(allowed(labels)) == len(labels) ** 2 + 2 * len(labels)


FORMS = {
    "IOBES": ("BIES", "{letter}-{kind}"),
    "BMES": ("BMES", "{letter}-{kind}"),
    "BMEWO": ("BMEW", "{letter}-{kind}"),
    "BILOU": ("BILU", "{letter}-{kind}"),
    "BIEOU": ("BIEU", "{letter}-{kind}"),
    "BILOU with _": ("BILU", "{letter}_{kind}"),
    "BMES last": ("BMES", "{kind}-{letter}"),
    "IOBES last with _": ("BIES", "{kind}_{letter}"),
    "small letters": ("bies", "{letter}-{kind}"),
}


def written(form, spans, length):
    """The tags of spans (first, last, kind), by hand."""
    letters, pattern = FORMS[form]
    tags = ["o" if letters.islower() else "O"] * length
    for first, last, kind in spans:
        for place in range(first, last + 1):
            role = 3 if first == last else 0 if place == first else 2 if place == last else 1
            tags[place] = pattern.format(letter=letters[role], kind=kind)
    return tags


def drawn_sentences(count=60):
    drawn = random.Random(3)
    for _ in range(count):
        length, spans, place = drawn.randint(4, 12), [], 0
        while place < length:
            last = min(length - 1, place + drawn.randint(0, 3))
            if drawn.random() < 0.6:
                spans.append((place, last, drawn.choice(["PER", "ORG-2", "a.b"])))
            place = last + 1
        yield spans, length


@pytest.mark.parametrize("form", FORMS)
def test_each_scheme_is_recognized_by_its_labels_alone_and_means_the_same_as_iobes(form):
    sentences = list(drawn_sentences())
    labels = sorted({tag for spans, n in sentences for tag in written(form, spans, n)})
    same = sorted({tag for spans, n in sentences for tag in written("IOBES", spans, n)})
    scheme = scheme_of(labels)
    assert set(scheme.letters) == set(FORMS[form][0])
    for spans, length in sentences:
        tags = written(form, spans, length)
        assert [tuple(span) for span in scheme.spans(tags)] == spans
        for a, b in zip(["^", *tags], [*tags, "$"], strict=True):
            assert f"{a} {b}" in allowed(labels)
    assert len(allowed(labels)) == len(allowed(same))  # and as many transitions are forbidden


def test_words_of_chinese_are_spans_of_one_kind():
    scheme = scheme_of(["B", "E", "M", "S"])
    assert [tuple(span) for span in scheme.spans("S B E B M E".split())] == [
        (0, 0, "_"), (1, 2, "_"), (3, 5, "_"),
    ]  # fmt: skip
    assert {pair for pair in allowed("BMES") if pair.startswith("B")} == {"B M", "B E"}


def test_the_tags_outside_of_bmewo_plus_are_no_spans():
    labels = ["BB_O_PER", "MM_O", "EE_O_PER", "WW_O_PER", "B_PER", "M_PER", "E_PER", "W_PER"]
    scheme = scheme_of(labels)
    tags = "BB_O_PER MM_O EE_O_PER B_PER M_PER E_PER W_PER".split()
    assert [tuple(span) for span in scheme.spans(tags)] == [(3, 5, "PER"), (6, 6, "PER")]


@pytest.mark.parametrize(
    "labels",
    [
        ["NOUN", "VERB", "ADJ"],
        ["NN-HL", "NN-TL", "VB"],
        ["N_S", "N_P", "V_S"],
        ["M", "F", "S"],
        ["U-x", "O"],
        ["PER_B", "PER_I", "x"],  # no O and no other kind
        ["B", "M", "S"],  # sizes
        ["B", "E", "S"],
        ["W", "B", "E"],
        ["B", "L"],
        ["b", "e", "s", "l"],
        ["noun-S", "noun-M", "noun-B"],
        ["shirt_S", "shirt_M", "shirt_B"],
        ["N_M", "V_M", "O"],
        ["N_B", "N_I", "V_x", "V_y", "O", "DET"],  # most are left over
        ["B_B", "B_I", "I_B", "I_I"],  # by the first letter, or by the last
    ],
)
def test_other_labels_are_plain_tags_and_nothing_is_forbidden(labels):
    scheme = scheme_of(labels)
    assert not scheme.letters and len(allowed(labels)) == len(labels) ** 2 + 2 * len(labels)
    assert [span.kind for span in scheme.spans(labels)] == [one for one in labels if one != "O"]
    assert ("could be" in str(scheme)) == (labels[0] == "B_B")


@pytest.mark.parametrize("form", ["B-{} I-{}", "B_{} I_{}", "{}-B {}-I", "{}_B {}_I"])
def test_each_form_bears_a_label_of_no_span_and_kinds_without_a_second_word(form):
    begin, inside = form.split()
    labels = [begin.format("PER"), inside.format("PER"), begin.format("LOC"), "O", "X"]
    for known in (labels, [labels[0], labels[2], "O"]):
        found = scheme_of(known).spans([labels[0], labels[0], "O", labels[2]])
        assert [span.kind for span in found] == ["PER", "PER", "LOC"]
    assert [span.kind for span in scheme_of(labels).spans(["X", labels[0], labels[1]])] == [
        "X", "PER",
    ]  # fmt: skip


@pytest.mark.parametrize("letters", ["BI", "BIO", "BIEO", "BIES", "BMES", "BMEWO", "bilou"])
def test_whole_sets_of_letters_are_spans(letters):
    assert {*scheme_of(list(letters)).letters} == {*letters} - {"O", "o"}


def test_only_letters_that_are_there_are_named():
    assert str(scheme_of(["B-PER", "I-ORG", "O"])) == "spans by B-, I-"
    assert str(scheme_of(["B-PER", "I-ORG", "NOUN"])) == "spans by B-, I-"


def test_span_f1_counts_an_entity_of_bmes_once():
    labels = ("B-N", "E-N", "M-N", "O")
    metric = metric_of("span_f1", Tags(ClassLabelEncoder(labels)))
    right = torch.tensor([[0, 2, 2, 1, 3, 0, 1]])
    guess = torch.tensor([[0, 2, 2, 1, 3, 3, 3]])
    logits = torch.nn.functional.one_hot(guess, len(labels)).float()
    assert metric.result(metric.update(logits, right)) == pytest.approx(2 * 1 / (1 + 2))
