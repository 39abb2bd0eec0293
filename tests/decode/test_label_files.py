"""Lines in, lines out, of a model that labels."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from t2t_torch.decode import files
from t2t_torch.decode.files import decode_file, example_line, form_of, input_of
from t2t_torch.decode.hparam import DecodeHParams, parse_decode_hparams
from t2t_torch.decode.interactive import LabelPrompt
from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.errors import DataError, HParamsError
from t2t_torch.features import (
    Choice,
    ClassLabel,
    Feature,
    Features,
    Gazetteer,
    Image,
    MultiLabel,
    Real,
    Span,
    Tags,
    Text,
    Turns,
    WordReal,
    Words,
)
from t2t_torch.features.word import WordLabel
from t2t_torch.hparam import DataHParams, HParams
from t2t_torch.model import T2TModel
from t2t_torch.problem import Problem, RequestInput
from t2t_torch.runtime.prediction import InputError
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder

TEXT, WORDS, TURNS = Text(ByteEncoder()), Words(ByteEncoder()), Turns(ByteEncoder())
LABELS = ClassLabelEncoder(["x", "y"])


class NoModel:
    """What a predictor needs of a model to read and encode its inputs."""

    hparams = HParams()

    def eval(self) -> NoModel:
        return self


class AsItIs:
    """What a predictor needs of a problem for the same."""

    full_name = "a_problem"
    request_inputs: ClassVar[dict[str, Any]] = {}
    batch_size_means_tokens = True
    batch_size_multiplier = 1
    most_growth = 1.0
    chop_length = 0
    column_names: ClassVar[dict[str, str]] = {}
    column_forms: ClassVar[dict[str, Any]] = {}

    def preprocessing(self, hparams: DataHParams) -> None:
        return None

    def max_length(self, hparams: DataHParams) -> int:
        return hparams.batch_size

    def inputs_of(self, sample: Any) -> Sequence[Any]:
        return [sample]


def predictor(targets: dict[str, Feature] | None = None, **inputs: Feature) -> LabelPredictor:
    features = Features(inputs, targets or {"targets": ClassLabel(LABELS)})
    model: T2TModel = NoModel()  # type: ignore[assignment]
    problem: Problem = AsItIs()  # type: ignore[assignment]
    return LabelPredictor(model, problem, features)


@pytest.mark.parametrize(
    ("feature", "line", "expected"),
    [
        (TEXT, "my bill", "my bill"),
        (TEXT, '["my", "bill"]', '["my", "bill"]'),
        (TEXT, '"my bill"', '"my bill"'),
        (TEXT, "{odd", "{odd"),
        (TEXT, '{"inputs": "a\\nb"}', {"inputs": "a\nb"}),
        (WORDS, "my bill", "my bill"),
        (WORDS, '["my", "bill"]', {"inputs": ["my", "bill"]}),
        (WORDS, "[ laughs ] no", "[ laughs ] no"),
        (TURNS, '["hello", "I am off"]', {"inputs": ["hello", "I am off"]}),
        (TURNS, '{"inputs": ["hello"], "id": 3}', {"inputs": ["hello"], "id": 3}),
    ],
)
def test_a_line_of_one_field(feature: Feature, line: str, expected: Any) -> None:
    assert input_of(predictor(inputs=feature), line, "f, line 1") == expected


def test_a_line_of_several_fields_is_an_object_of_all() -> None:
    made = predictor(first=TEXT, second=WORDS)
    whole = {"first": "a", "second": ["b"]}
    assert input_of(made, json.dumps(whole), "f, line 1") == whole
    told = r'f, line 7 is no JSON object. .* \{"first": "...", "second": \["...", "..."\]\}'
    with pytest.raises(DataError, match=told):
        input_of(made, "a b", "f, line 7")


def test_an_object_without_the_field_is_refused_with_the_line_and_the_keys() -> None:
    told = r'f, line 2: the JSON object has no inputs, but text, id.* \{"inputs": "..."\}'
    with pytest.raises(DataError, match=told):
        input_of(predictor(inputs=TEXT), '{"text": "a", "id": 1}', "f, line 2")


def test_a_line_that_cannot_be_encoded_is_named_counted_from_one(tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text('["hello"]\nhello\n')
    told = rf'{source}, line 2: .*one text, where a list .*Write a line as .*\["...", "..."\]'
    with pytest.raises(DataError, match=told):
        decode_file(predictor(inputs=TURNS), source, None, DecodeHParams())
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


@pytest.mark.parametrize(
    ("feature", "value", "line"),
    [
        (ClassLabel(LABELS), "x", "x"),
        (Choice(("positive", "negative")), "negative", "negative"),
        (Span("inputs"), "from\nhere", "from here"),
        (Span("inputs"), "", ""),
        (Tags(LABELS), ["x", "y"], "x y"),
        (Tags(LABELS), [], ""),
        (Tags(ClassLabelEncoder(["x", "y z"])), ["x"], '["x"]'),
        (MultiLabel(LABELS), ["x"], '["x"]'),
        (MultiLabel(LABELS), [], "[]"),
        (Real(2), [0.5, 1.0], "[0.5, 1.0]"),
    ],
)
def test_a_kind_of_target_has_one_form(feature: Feature, value: Any, line: str) -> None:
    assert form_of(predictor({"targets": feature}, inputs=WORDS))(value) == line


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"inputs": "fly', "line 2 is no JSON, at character 12"),
        ("7", "line 2 is no JSON object: 7. Write"),
        ('{"inputs": {"a": 1}}', "line 2: {'a': 1} is no text and no list of words. Write"),
        ('{"inputs": 7}', "line 2: 7 is no text and no list of words. Write"),
        ('["fly", 3]', "line 2: 3 among ['fly', 3] is no word: a text was expected. Write"),
        (r'"\ud800"', "line 2 has half a character"),
    ],
)
def test_each_line_of_a_file_called_jsonl_is_json(tmp_path: Path, line: str, why: str) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(f'"fly"\n{line}\n')
    with pytest.raises(DataError, match=re.escape(why)):
        decode_file(predictor(inputs=WORDS), source, None, DecodeHParams())


def test_an_empty_line_of_json_is_an_empty_text() -> None:
    assert input_of(predictor(inputs=TEXT), "", "f, line 1", is_json=True) == ""
    assert input_of(predictor(inputs=TEXT), '"a b"', "f, line 1", is_json=True) == "a b"


@pytest.mark.parametrize("turns", [[1, 2], [None], [["red"]], 7, {"a": 1}])
def test_what_are_no_texts_is_told_in_words(turns: Any) -> None:
    with pytest.raises(InputError, match=r"is no (text|list of texts)\.$"):
        predictor(inputs=TURNS).predict([{"inputs": turns}])


def of_words() -> dict[str, Feature]:
    """Words with all that may be given of each."""
    return {
        "inputs": WORDS,
        "inputs_pos": WordLabel("inputs", LABELS, field="pos"),
        "gazetteer": Gazetteer("inputs", LABELS),
        "word_dense": WordReal("inputs", 2),
        "age": Real(),
    }


GIVEN = {
    "inputs": ["a", "b"],
    "pos": ["x", "x"],
    "gazetteer": [{"x": 1.0}, {}],
    "word_dense": [[0.5, 0.5], [0.5, 0.5]],
    "age": 0.5,
}


@pytest.mark.parametrize("field", ["pos", "gazetteer", "word_dense"])
@pytest.mark.parametrize("entries", [1, 3])
def test_what_is_given_of_words_has_an_entry_for_each(field: str, entries: int) -> None:
    longer = (GIVEN[field] * 2)[:entries]  # type: ignore[index, operator]
    with pytest.raises(InputError, match=f"2 words and {entries} {field}, where one for each"):
        predictor(**of_words()).predict([{**GIVEN, field: longer}])


def test_the_example_of_an_error_could_be_given(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"inputs": "a b"}\n')
    made = predictor(**of_words())
    with pytest.raises(DataError) as caught:
        decode_file(made, source, None, DecodeHParams())
    example = json.loads(str(caught.value).partition("such as ")[2].removesuffix("."))
    assert example == {**GIVEN, "inputs": ["...", "..."]}
    for field, feature in made.kinds.items():
        assert list(feature.encode(example[field]))


@pytest.mark.parametrize("asked", ["beam_size=9", "beam_size=4", "sampling_method=random"])
def test_what_only_texts_read_is_refused(tmp_path: Path, asked: str) -> None:
    hparams = parse_decode_hparams(f"{asked},num_labels=2")
    told = rf"does not read {asked.partition('=')[0]}\. It reads output_format, num_labels"
    with pytest.raises(HParamsError, match=told):
        decode_file(predictor(inputs=TEXT), tmp_path / "in.txt", None, hparams)
    with pytest.raises(HParamsError, match=told):
        LabelPrompt(predictor(inputs=TEXT), hparams, print)


@pytest.mark.parametrize("line", ["ns=abc", "ns=3", "dl=1", "help", "quit", "?"])
def test_what_is_meant_as_a_command_is_answered_with_the_commands(line: str) -> None:
    said: list[str] = []
    LabelPrompt(predictor(inputs=TURNS), DecodeHParams(), said.append).run([line, "[7]", "q"])
    asked, told, wrong = said
    assert told == asked
    assert 'JSON such as {"inputs": ["...", "..."]}' in told
    assert wrong.startswith("error: 7 among [7] is no text. Write a line")


def test_several_targets_are_an_object() -> None:
    made = predictor({"intent": ClassLabel(LABELS), "slots": Tags(LABELS)}, inputs=WORDS)
    value = {"intent": "x", "slots": ["ü"]}
    assert form_of(made)(value) == '{"intent": "x", "slots": ["ü"]}'


def test_an_example_tells_only_of_fields_that_are_read() -> None:
    made = predictor(inputs=TEXT)
    asked = {"inputs": RequestInput("Ann", "a name"), "day": RequestInput("today", "a day")}
    made.problem = type("Other", (AsItIs,), {"request_inputs": asked})()
    assert example_line(made) == '{"inputs": "Ann"}, where inputs is a name'


def test_a_line_for_a_picture_is_a_path_beside_the_list(tmp_path: Path) -> None:
    predictor: Any = SimpleNamespace(
        kinds={"inputs": Image(2, 2, 1), "note": Text(ByteEncoder())},
        columns=SimpleNamespace(
            sample_of=lambda one: {"inputs": one, "note": "a"} if isinstance(one, str) else one
        ),
    )
    source, path = tmp_path / "list.txt", tmp_path / "a.png"
    path.write_bytes(b"")
    found = files._with_files(predictor, "a.png", source, "list.txt, line 1")
    assert found == {"inputs": path, "note": "a"}
    pixels = {"inputs": [[0, 1], [2, 3]], "note": "a"}
    assert files._with_files(predictor, pixels, source, "list.txt, line 2") == pixels
    for line, why in (("", "an empty line"), ("b.png", "b.png is not there"), (".", "no file")):
        with pytest.raises(DataError, match=f"list.txt, line 3: .*{why}"):
            files._with_files(predictor, line, source, "list.txt, line 3")
