"""A transformer in CTranslate2 is the same function; what does not fit is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from t2t_torch import registry
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.loading import Loaded
from t2t_torch.decode.predictor import Predictor, RunInfo
from t2t_torch.errors import ExportError, UsageError
from t2t_torch.features import ClassLabel, Features, Text
from t2t_torch.hparams.transformer import TransformerHParams
from t2t_torch.interop import ctranslate2 as interop
from t2t_torch.interop.ctranslate2 import recipe
from t2t_torch.interop.tensor2tensor_weights import convert_hparams, load_variables
from t2t_torch.models.transformer import Transformer
from t2t_torch.run.directory import TaskRecord
from t2t_torch.text.encoder import NUM_RESERVED, ClassLabelEncoder, IntegerEncoder
from t2t_torch.text.subword import SubwordEncoder

engine = pytest.importorskip("ctranslate2")

GOLDEN = Path(__file__).parents[1] / "golden" / "transformer"
TASK = TaskRecord(problem="tiny_algo", model="transformer", hparams_set="transformer_test")


def small(**changes: Any) -> TransformerHParams:
    return registry.hparams("transformer_test").replace(**changes)


def drawn(hparams: TransformerHParams, read: int = 19, written: int = 19) -> Loaded:
    """A model with weights as they were drawn, norms and all."""
    texts = (Text(IntegerEncoder(size - NUM_RESERVED)) for size in (read, written))
    features = Features({"inputs": next(texts)}, {"targets": next(texts)}, target_space_id=5)
    torch.manual_seed(3)
    model = Transformer(hparams, features).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return Loaded(model, registry.problem("tiny_algo"), features, RunInfo(TASK, 1))


def golden(variant: str) -> Loaded:
    record = json.loads((GOLDEN / variant / "hparams.json").read_text())
    sizes = record["problem_hparams"]["vocab_size"]
    texts = {name: Text(IntegerEncoder(size - NUM_RESERVED)) for name, size in sizes.items()}
    inputs = {name: text for name, text in texts.items() if name == "inputs"}
    space = record["problem_hparams"]["target_space_id"]
    features = Features(inputs, {"targets": texts["targets"]}, target_space_id=space)
    hparams = convert_hparams("transformer", record["hparams"])
    model = Transformer(hparams, features).eval()
    load_variables(model, dict(np.load(GOLDEN / variant / "variables.npz")))
    return Loaded(model, registry.problem("tiny_algo"), features, RunInfo(TASK, 1))


def translator(loaded: Loaded, folder: Path, quantization: str | None = None) -> Any:
    interop.convert(loaded, folder, quantization)
    return engine.Translator(str(folder), intra_threads=1)


def scores(loaded: Loaded, asked: Any, rows: list[tuple[list[int], list[int]]]) -> list[Any]:
    """Pairs of log-probabilities, ours and theirs, of the ids of each output."""
    tokens = [[[str(i) for i in ids[:-1]] for ids in side] for side in zip(*rows, strict=True)]
    found = asked.score_batch(*tokens)
    pairs = []
    for (given, output), theirs in zip(rows, found, strict=True):
        batch = {"inputs": torch.tensor([given]), "targets": torch.tensor([output])}
        with torch.no_grad():
            logits = loaded.model(batch).logits["targets"][0]
        size = loaded.features.targets["targets"].vocab_size
        ours = logits[:, :size].log_softmax(-1)[range(len(output)), output]
        pairs.append((ours, torch.tensor(theirs.log_probs)))
    return pairs


def rows(read: int, written: int) -> list[tuple[list[int], list[int]]]:
    """Inputs and outputs of several lengths; one has a PAD inside."""
    draw = torch.Generator().manual_seed(1)

    def ids(size: int, length: int) -> list[int]:
        return [*torch.randint(2, size, (length,), generator=draw).tolist(), 1]

    made = [(ids(read, length), ids(written, 12 - length)) for length in (1, 4, 7, 11)]
    made[0][1][2] = 0
    return made


@pytest.mark.parametrize("variant", ["v1_postnorm_unshared", "v3", "relative"])
def test_tensor2tensors_models_have_the_same_scores_and_greedy_outputs(
    variant: str, tmp_path: Path
) -> None:
    loaded = golden(variant)
    read, written = (f.vocab_size for f in loaded.features.all.values())
    asked = translator(loaded, tmp_path)
    made = rows(read, written)
    for ours, theirs in scores(loaded, asked, made):
        torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=1e-4)
    predictor = Predictor(loaded.model, loaded.problem, loaded.features)
    how = DecodeHParams(beam_size=1, extra_length=20, force_decode_length=True)
    expected = dict(predictor.predict_ids([given for given, _ in made], how))
    found = asked.translate_batch(
        [[str(i) for i in given[:-1]] for given, _ in made], beam_size=1, max_decoding_length=20
    )
    for number, each in enumerate(found):
        assert [int(i) for i in each.hypotheses[0]] == list(expected[number].hypotheses[0].ids)


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_preprocess_sequence": "none", "layer_postprocess_sequence": "dan"},
        {"use_target_space_embedding": False, "norm_epsilon": 0.1},
        {"multiply_embedding_mode": "none", "pos": "none"},
        {"vocab_divisor": 8},
        {"num_encoder_layers": 1, "num_decoder_layers": 3},
        {"pos": "none", "self_attention_type": "dot_product_relative", "max_relative_position": 3},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_hyperparameters_that_fit_give_the_same_scores(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    loaded = drawn(small(**changes))
    for ours, theirs in scores(loaded, translator(loaded, tmp_path), rows(19, 19)):
        torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=1e-4)


def test_sides_may_have_tables_and_vocabularies_of_their_own(tmp_path: Path) -> None:
    loaded = drawn(small(shared_embedding_and_softmax_weights=False), read=11, written=23)
    for ours, theirs in scores(loaded, translator(loaded, tmp_path), rows(11, 23)):
        torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=1e-4)
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.json",
        "model.bin",
        "source_vocabulary.json",
        "target_vocabulary.json",
    }


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"layer_postprocess_sequence": "dan"}, "layer_postprocess_sequence=dan"),
        ({"layer_postprocess_sequence": "none"}, "layer_postprocess_sequence=none"),
        ({"prepend_mode": "prepend_inputs_full_attention"}, "prepend_mode=prepend_inputs_full"),
        ({"num_hidden_layers": 0}, "no layers"),
        (
            {"self_attention_type": "dot_product_relative", "max_relative_position": 3},
            "pos=timing and relative",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    changes: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=named):
        interop.convert(drawn(small(**changes)), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_language_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="language model"):
        interop.convert(golden("lm"), tmp_path)


def test_a_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    features = Features(
        {"inputs": Text(IntegerEncoder(9))}, {"label": ClassLabel(ClassLabelEncoder(["a", "b"]))}
    )
    kind = registry.model("transformer_encoder")
    model = kind(registry.hparams("transformer_encoder_tiny"), features)
    loaded = Loaded(model, registry.problem("tiny_algo"), features, RunInfo(TASK, 1))
    with pytest.raises(ExportError, match="TransformerEncoder"):
        interop.convert(loaded, tmp_path)


def test_a_weight_that_nothing_reads_is_named(tmp_path: Path) -> None:
    loaded = drawn(small())
    loaded.model.extra = nn.Parameter(torch.zeros(1))
    with pytest.raises(ExportError, match=r"weights that .* has not: extra\."):
        interop.convert(loaded, tmp_path)


def test_quantized_weights_take_less_room_and_score_nearly_as_well(tmp_path: Path) -> None:
    loaded = drawn(small(hidden_size=64, filter_size=128))
    sizes = {}
    for kind in (None, "int8", "float16"):
        folder = tmp_path / str(kind)
        folder.mkdir()
        for ours, theirs in scores(loaded, translator(loaded, folder, kind), rows(19, 19)):
            torch.testing.assert_close(theirs, ours, atol=0.3, rtol=0.1)
        positions = 2 * interop.POSITIONS * 64 * (2 if kind == "float16" else 4)
        sizes[kind] = (folder / "model.bin").stat().st_size - positions
    assert sizes["int8"] < 0.35 * sizes[None]
    assert sizes["float16"] < 0.6 * sizes[None]


def test_the_model_stays_as_it_was_when_it_is_quantized(tmp_path: Path) -> None:
    loaded = drawn(small())
    before = {name: weight.clone() for name, weight in loaded.model.state_dict().items()}
    interop.convert(loaded, tmp_path, "int8")
    for name, weight in loaded.model.state_dict().items():
        assert torch.equal(weight, before[name]), name


def test_an_unknown_quantization_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'int4'; expected one of int8,"):
        interop.convert(drawn(small()), tmp_path, "int4")


def of_subwords(folder: Path) -> Loaded:
    path = folder / "words.subwords"
    text = Text(SubwordEncoder.train(["the cat sat on the mat", "a dog sat"], 300, path))
    features = Features({"inputs": text}, {"targets": text})
    torch.manual_seed(3)
    model = Transformer(small(), features).eval()
    return Loaded(model, _Problem((path.name,)), features, RunInfo(TASK, 1))


class _Problem:
    """What is told of a problem."""

    full_name = "cats"

    def __init__(self, vocab_files: tuple[str, ...]) -> None:
        self.vocab_files = vocab_files


def test_the_recipe_of_a_vocabulary_of_subwords_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = of_subwords(tmp_path)
    interop.convert(loaded, tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(code_of(recipe(loaded)), {})
    asked = engine.Translator(".", intra_threads=1)
    encoder = loaded.features.inputs["inputs"].encoder
    tokens = [encoder.pieces[i] for i in encoder.encode("A text.")]
    (found,) = asked.translate_batch([tokens], beam_size=4)
    ids = [encoder.pieces.index(token) for token in found.hypotheses[0]]
    assert capsys.readouterr().out == f"{encoder.decode(ids)}\n"


def test_the_recipe_of_another_vocabulary_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = registry.problem("dates_to_iso")
    features = problem.features(tmp_path)
    model = Transformer(small(), features).eval()
    loaded = Loaded(model, problem, features, RunInfo(TASK, 1))
    interop.convert(loaded, tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(code_of(recipe(loaded)), {})
    assert capsys.readouterr().out


def code_of(text: str) -> str:
    return text.partition("```python\n")[2].partition("```")[0]
