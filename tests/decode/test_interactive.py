"""The interactive prompt."""

from __future__ import annotations

import pytest

from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.interactive import HELP, TextPrompt
from t2t_torch.decode.predictor import Predictor

SHORT = DecodeHParams(extra_length=4, beam_size=2)


def answers(predictor: Predictor, *lines: str) -> list[str]:
    said: list[str] = []
    TextPrompt(predictor, SHORT, said.append).run([f"{line}\n" for line in lines])
    return [text.removesuffix("> ") for text in said[1:]]


def test_a_line_is_answered_with_its_output(predictor: Predictor) -> None:
    expected = predictor.predict(["5 6 7"], SHORT)[0].text
    assert answers(predictor, "5 6 7", "q", "8") == [f"{expected}\n"]


def test_ns_shows_the_best_outputs_with_their_scores(predictor: Predictor) -> None:
    told, answer, _ = answers(predictor, "ns=3", "5 6 7")
    hparams = SHORT.replace(beam_size=3, return_beams=True)
    found = predictor.predict(["5 6 7"], hparams)[0].hypotheses
    assert "3 of a beam of 3" in told
    assert answer.splitlines() == [f"{one.score:8.2f}  {one.text}" for one in found]


def test_dl_sets_how_much_longer_an_output_may_be(predictor: Predictor) -> None:
    _, answer, _ = answers(predictor, "dl=0", "5")
    assert answer.strip() == predictor.predict(["5"], SHORT.replace(extra_length=0))[0].text


def test_a_line_that_cannot_be_decoded_does_not_end_the_conversation(predictor: Predictor) -> None:
    wrong, right, _ = answers(predictor, "house", "5")
    assert wrong.startswith("error: ")
    assert "house" in wrong
    assert not right.startswith("error")


@pytest.mark.parametrize(
    "line", ["ns=abc", "ns = 1.5", "dl=-1", "ns=", "it=x", "xx=3", "help", "?", "quit"]
)
def test_what_is_meant_as_a_command_is_answered_with_the_commands(
    predictor: Predictor, line: str
) -> None:
    told, answer, _ = answers(predictor, line, "5")
    assert told == f"{HELP}\n"
    assert answer == f"{predictor.predict(['5'], SHORT)[0].text}\n"


@pytest.mark.parametrize("line", ["ns=51", "ns=999999999", "dl=999999999", "ns=" + "9" * 5000])
def test_a_number_that_is_too_large_changes_nothing(predictor: Predictor, line: str) -> None:
    told, answer, _ = answers(predictor, line, "5")
    assert told.startswith("error: ") or told == f"{HELP}\n"
    assert answer == f"{predictor.predict(['5'], SHORT)[0].text}\n"


def test_bytes_that_are_no_text_are_told(predictor: Predictor) -> None:
    told, _, _ = answers(predictor, b"5 \xff".decode(errors="surrogateescape"), "5")
    assert "not UTF-8" in told


def test_groups_stay_of_one_size(predictor: Predictor) -> None:
    said: list[str] = []
    hparams = SHORT.replace(num_beam_groups=2)
    TextPrompt(predictor, hparams, said.append).run(["ns=3", "5 6 7", "ns=999", "5 6 7"])
    told, answer, refused, again, _ = (text.removesuffix("> ") for text in said[1:])
    assert told == "showing 3 of a beam of 4\n" and 1 < answer.count("\n") <= 3
    assert refused.startswith("error: ") and again == answer
