"""Which tags may follow which."""

from t2t_torch.text.tags import tag_rules


def allowed(labels):
    """The pairs that may stand side by side; ^ and $ are the ends of a sentence."""
    rules = tag_rules(labels)
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
