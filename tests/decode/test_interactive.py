"""The interactive prompt."""

from __future__ import annotations

from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.interactive import Prompt
from t2t_torch.decode.predictor import Predictor

SHORT = DecodeHParams(extra_length=4, beam_size=2)


def answers(predictor: Predictor, *lines: str) -> list[str]:
    said: list[str] = []
    Prompt(predictor, SHORT, said.append).run([f"{line}\n" for line in lines])
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
