"""Scores of outputs: each with what it was counted with."""

from __future__ import annotations

import pytest

from t2t_torch.bin.commands import bleu
from t2t_torch.errors import DataError, UsageError
from t2t_torch.metrics.metric import lower_is_better
from t2t_torch.metrics.text_scores import SCORES, score, table

LINES = ["the cat sat on the mat .", "a dog runs in the park ."]
WORSE = ["the cat sat on a rug .", "a Dog runs in the park"]
TREES, WORSE_TREES = ([f"(S {line})" for line in lines] for lines in (LINES, WORSE))


def test_bleu_is_sacrebleu_with_its_signature() -> None:
    line, signature = table(LINES, LINES, ["bleu"]).splitlines()
    assert line.startswith("BLEU = 100.00")
    assert "tok:13a" in signature
    assert "version:" in signature
    assert not table(LINES, LINES[::-1], ["bleu"]).startswith("BLEU = 100.00")


@pytest.mark.parametrize("name", SCORES)
def test_what_is_right_has_the_best_score_and_what_is_worse_a_worse_one(name: str) -> None:
    right, worse = (score(lines, TREES, [name])[name].value for lines in (TREES, WORSE_TREES))
    if lower_is_better(f"decode/{name}"):
        assert 0.0 == right < worse
    else:
        assert right == pytest.approx(100.0 if right > 1 else 1.0)
        assert worse < right


@pytest.mark.parametrize("name", SCORES)
def test_no_two_scores_have_one_signature(name: str) -> None:
    found = score(TREES, TREES, list(SCORES))
    others = [one.signature for other, one in found.items() if other != name]
    assert found[name].signature not in others


def test_words_may_be_cut_in_several_ways() -> None:
    cased, signature, _ = score(["A-b"], ["a-b"], ["bleu_uncased"], tokenize="char")["bleu_uncased"]
    assert (cased, "tok:char" in signature, "case:lc" in signature) == (0.0, True, True)  # 3 < 4
    assert score(["A-bc"], ["a-bc"], ["bleu_uncased"], tokenize="char")["bleu_uncased"].value == (
        pytest.approx(100.0)
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("exact_match", 1 / 3),
        ("word_error_rate", 3 / 7),
        ("rouge_1", (4 / 6 + 1 + 0) / 3),
        ("rouge_2", (2 / 4 + 1 + 0) / 3),
        ("rouge_l", (4 / 6 + 1 + 0) / 3),
    ],
)
def test_lines_are_compared_by_their_words(name: str, expected: float) -> None:
    outputs, references = ["a b x", "so it is", ""], ["A, b! c", "so it is", "no"]
    if name == "word_error_rate":
        outputs, references = ["A, b! x", "so is", ""], ["A, b! c", "so it is", "no"]
    assert score(outputs, references, [name])[name].value == pytest.approx(expected)


def test_of_nothing_all_scores_are_zero_and_say_so() -> None:
    assert {one.value for one in score([], [], list(SCORES)).values()} == {0.0}
    assert "nothing to score" in table([], [])


def test_references_of_another_number_are_refused() -> None:
    with pytest.raises(DataError, match="1 lines, but there are 2 outputs"):
        score(["a", "b"], ["a"])


def test_a_score_or_a_tokenizer_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="no score 'blue'; scores are bleu, "):
        score(["a"], ["a"], ["blue"])
    with pytest.raises(UsageError, match="no tokenizer '13b'; there are 13a, "):
        score(["a"], ["a"], tokenize="13b")


@pytest.fixture
def files(tmp_path):
    for name, lines in (("out.txt", WORSE), ("right.txt", LINES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return [f"--translation={tmp_path / 'out.txt'}", f"--reference={tmp_path / 'right.txt'}"]


def test_the_command_prints_what_tensor2tensor_prints_and_a_signature_for_each(files, capsys):
    assert bleu.main(files) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(" =")[0] for line in printed[::2]] == [
        "BLEU_uncased",
        "BLEU_cased",
        "BLEU",
        "BLEU",
    ]
    assert all("case:" in signature for signature in printed[1::2])
    assert bleu.main([*files, "--bleu_variant=cased", "--bleu_tokenize=13a"]) == 0
    assert "tok:13a" in capsys.readouterr().out.splitlines()[-1]


def test_the_command_prints_other_scores(files, capsys) -> None:
    assert bleu.main([*files, "--scores=ter,exact_match"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("TER = ")
    assert printed[2] == "exact match = 0.0000 (0 of 2)"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--reference=x"], "--translation"),
        (["--translation={none}", "--reference={none}"], "none"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(flags, message, tmp_path, capsys) -> None:
    assert bleu.main([flag.format(none=tmp_path / "none") for flag in flags]) == 2
    assert message in capsys.readouterr().err
