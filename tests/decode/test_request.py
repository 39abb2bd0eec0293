"""What is asked of the output of one input, from texts to texts."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from t2t_torch import registry
from t2t_torch.decode.constraints import DecodeRequest, Phrase
from t2t_torch.decode.files import decode_file
from t2t_torch.decode.hparam import DecodeHParams, parse_decode_hparams
from t2t_torch.decode.predictor import Predictor
from t2t_torch.errors import DataError, HParamsError
from t2t_torch.features import Features, Text
from t2t_torch.text.encoder import TokenEncoder

SHORT = DecodeHParams(extra_length=6)
DRAWN = DecodeHParams(sampling_method="random", extra_length=6)


def asked(text: str, **wishes: Any) -> dict[str, Any]:
    return {"inputs": text, **wishes}


def test_an_output_begins_as_it_is_told_to(predictor: Predictor) -> None:
    inputs = [asked("3 4 5", targets_prefix="7 8"), "3 4 5", asked("6", targets_prefix="2")]
    for hparams in (SHORT, SHORT.replace(beam_size=1), DRAWN):
        told, free, other = (found.hypotheses[0] for found in predictor.predict(inputs, hparams))
        assert told.text.startswith("7 8") and told.ids[:2] == (9, 10)
        assert other.text.startswith("2")
        (alone,) = predictor.predict(["3 4 5"], hparams)
        assert free.ids == alone.hypotheses[0].ids
        for given, found in ((inputs[0], told), (inputs[2], other)):
            (alone,) = predictor.predict([given], hparams)
            assert alone.hypotheses[0].ids == found.ids


def test_words_and_phrases_stand_in_the_output(predictor: Predictor) -> None:
    inputs = [
        asked("3 4 5", constraints=["9", "2 8"]),
        asked("3 4 5", forbidden=["3", "4 5"]),
        "3 4 5",
        asked("6", constraints=["7"], forbidden=["2"], targets_prefix="8"),
    ]
    found = predictor.predict(inputs, SHORT)
    texts = [f" {one.text} " for one in found]
    assert " 9 " in texts[0] and " 2 8 " in texts[0]
    assert " 3 " not in texts[1] and " 4 5 " not in texts[1]
    assert " 7 " in texts[3] and " 2 " not in texts[3] and texts[3].startswith(" 8 ")
    for given, one in zip(inputs, found, strict=True):
        alone = predictor.predict([given], SHORT)[0]
        assert alone.hypotheses[0].ids == one.hypotheses[0].ids
        assert alone.score == pytest.approx(one.score, abs=1e-5)


def test_a_language_model_has_what_is_asked(language_model: Predictor) -> None:
    (found,) = language_model.predict([{"targets": "3 4", "constraints": ["7 2"]}], SHORT)
    assert " 7 2 " in f" {found.text} "
    with pytest.raises(DataError, match="is itself how its output begins"):
        language_model.predict([{"targets": "3", "targets_prefix": "4"}], SHORT)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"input": "3"}, "a mapping with a text"),
        (asked("3", targets_prefix=["4"]), "'targets_prefix' is"),
        (asked("3", constraints="4"), "a list of texts was expected"),
        (asked("3", constraints=[4]), "a list of texts was expected"),
        (asked("3", forbidden=["4", " "]), "has an empty text"),
        (asked("3", constraints=["4 5"], forbidden=["5"]), "'4 5' has to be written, but '5'"),
        (asked("3", targets_prefix="4 5", forbidden=["4"]), "'4 5' is given, but '4'"),
        (asked("3", constraints=["4 5 6 7 8 9 10"]), "8 tokens, its end included, and the output"),
        (asked("3", targets_prefix="5 5 5 5 5 5 5 5"), "9 tokens, its end included"),
        (asked("3", constraints=["99999"]), "99999"),
    ],
)
def test_what_cannot_be_asked_is_told(predictor: Predictor, given: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        predictor.predict([given], DecodeHParams(extra_length=5))


@pytest.mark.parametrize("hparams", [DecodeHParams(beam_size=1), DRAWN])
def test_constraints_need_a_beam(predictor: Predictor, hparams: DecodeHParams) -> None:
    with pytest.raises(DataError, match="needs a beam of hypotheses"):
        predictor.predict([asked("3", constraints=["4"])], hparams)


def test_a_word_that_the_vocabulary_does_not_know_is_refused(predictor: Predictor) -> None:
    text = Text(TokenEncoder(["a", "b", "<unk>"], replace_oov="<unk>"))
    features = Features({"inputs": text}, {"targets": text})
    model = registry.model("transformer")(registry.hparams("transformer_test"), features)
    words = Predictor(model, registry.problem("tiny_algo"), features)
    with pytest.raises(DataError, match=r"'a c' cannot be written .* 'a <unk>'"):
        words.encode([asked("a", constraints=["a c"])])
    (request,) = words.encode([asked("a", constraints=["b a"], forbidden=["<unk>"])])
    assert isinstance(request, DecodeRequest)
    assert request.constraints == (Phrase((3, 2)),) and request.forbidden == (Phrase((4,)),)


def test_lines_of_json_ask_for_their_outputs(predictor: Predictor, tmp_path: Path) -> None:
    lines = [asked("3 4", targets_prefix="7"), asked("3 4"), asked("5", constraints=["9 9"])]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.txt"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    decode_file(predictor, source, target, SHORT)
    expected = [found.text for found in predictor.predict(lines, SHORT)]
    assert target.read_text().splitlines() == expected
    source.write_text('{"inputs": "3"}\n{"inputs": "3", "constraints": "4"}\n')
    with pytest.raises(DataError, match=r"in.jsonl:2: 'constraints' is '4'"):
        decode_file(predictor, source, target, SHORT)


def test_lengths_are_parts_of_the_input(predictor: Predictor) -> None:
    texts = ["3 4 5 6", "3", "7 8 9 2 3 4 5"]
    for hparams in (
        DecodeHParams(min_length_ratio=1.5),
        DecodeHParams(min_length_ratio=1.5, beam_size=1),
        DecodeHParams(min_length_ratio=1.5, sampling_method="random"),
    ):
        for text, found in zip(texts, predictor.predict(texts, hparams), strict=True):
            ids = found.hypotheses[0].ids
            assert len(ids) + 1 >= 1.5 * (len(text.split()) + 1) and 0 not in ids
    for text, found in zip(
        texts, predictor.predict(texts, DecodeHParams(max_length_ratio=0.5)), strict=True
    ):
        assert len(found.hypotheses[0].ids) <= max(1, (len(text.split()) + 1) // 2)


def test_a_part_of_ten_is_counted_without_the_error_of_floats() -> None:
    hparams = DecodeHParams(min_length_ratio=0.7, max_length_ratio=0.7)
    assert (hparams.least_length(10), hparams.limit(10)) == (7, 7)
    assert hparams.limit(1) == 1


def test_a_language_model_writes_as_many_as_it_has_to(language_model: Predictor) -> None:
    for hparams in (DecodeHParams(min_length=9, extra_length=12), DRAWN.replace(min_length=4)):
        for found in language_model.predict(["3 4 5", ""], hparams):
            assert len(found.hypotheses[0].ids) + 1 >= hparams.min_length


def test_no_ngram_is_repeated_with_the_prompt_either(language_model: Predictor) -> None:
    hparams = DecodeHParams(no_repeat_ngram_size=2, min_length=9, extra_length=10)
    draws = DRAWN.replace(no_repeat_ngram_size=2, min_length=5)
    for how in (hparams, hparams.replace(beam_size=1), draws):
        for text, found in zip(
            ["3 4 5", "2"], language_model.predict(["3 4 5", "2"], how), strict=True
        ):
            whole = f"{text} {found.text}".split()
            pairs = list(itertools.pairwise(whole))
            assert len(set(pairs)) == len(pairs)


def test_coverage_and_groups_do_not_mix_rows_up(predictor: Predictor) -> None:
    texts = ["3 4 5 6", "3", "7 8 9 2 3 4 5", ""]
    for hparams in (
        SHORT.replace(coverage_penalty=0.4, return_beams=True),
        SHORT.replace(num_beam_groups=2, coverage_penalty=0.4, return_beams=True),
        SHORT.replace(num_beam_groups=4, diversity_strength=1.0, return_beams=True),
    ):
        together = predictor.predict(texts, hparams)
        for text, found in zip(texts, together, strict=True):
            (alone,) = predictor.predict([text], hparams)
            assert [h.ids for h in alone.hypotheses] == [h.ids for h in found.hypotheses]
            assert len({h.ids for h in found.hypotheses}) == len(found.hypotheses)
            assert alone.score == pytest.approx(found.score, abs=1e-5)


@pytest.mark.parametrize(
    "text", ["coverage_penalty=0.2", "min_length_ratio=0.5", "max_length_ratio=2"]
)
def test_a_language_model_refuses_what_is_about_inputs(language_model, text: str) -> None:
    with pytest.raises(HParamsError, match=f"does not read {text.split('=')[0]}"):
        language_model.predict(["3"], parse_decode_hparams(text))
