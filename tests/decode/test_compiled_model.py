"""A compiled step finds what the plain one does, by few programs."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch._dynamo.utils import counters

from t2t_torch import registry
from t2t_torch.decode import compiled_model
from t2t_torch.decode.compiled_model import CompiledModel, FixedRows, places_for
from t2t_torch.decode.hparam import DecodeHParams, parse_decode_hparams
from t2t_torch.decode.predictor import Predictor
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import HParamsError
from t2t_torch.features import Features, Text
from t2t_torch.text.encoder import IntegerEncoder
from tests.decode.conftest import golden_predictor

PLAIN = DecodeHParams(extra_length=36, force_decode_length=True)
TEXTS = ["1 2 3", "5", "4 4 2 6 1 7 3 2 1 5", "2 3", "6 5 4 3 2 1", "", "7 7"]
SETS = {
    "lstm_seq2seq": "lstm_seq2seq_tiny",
    "lstm_seq2seq_attention": "lstm_seq2seq_attention_tiny",
    "lstm_lm": "lstm_lm_tiny",
    "transformer_lm": "transformer_lm_tiny",
}


def untrained(name: str) -> Predictor:
    """A small model with random weights."""
    text = Text(IntegerEncoder(18))
    inputs = {} if name.endswith("_lm") else {"inputs": text}
    features = Features(inputs=inputs, targets={"targets": text})
    torch.manual_seed(3)
    sizes = {"hidden_size": 16, "embedding_size": 16, "num_hidden_layers": 2}
    hparams = registry.hparams(SETS[name])
    known = {key: value for key, value in sizes.items() if key in type(hparams).model_fields}
    model = registry.model(name)(hparams.replace(**known), features)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return Predictor(model, registry.problem("tiny_algo"), features)


def of(name: str) -> Predictor:
    """The golden model of that name, or an untrained one."""
    return untrained(name) if name in SETS else golden_predictor(name)


def compiled(predictor: Predictor, monkeypatch: pytest.MonkeyPatch, *, fixed: bool) -> Predictor:
    """A predictor of the same model whose programs are not handed to a compiler."""
    monkeypatch.setattr(compiled_model, "_BACKEND", "eager")
    torch._dynamo.reset()
    counters.clear()
    made = Predictor(predictor.model, predictor.problem, predictor.features)
    made._compiled = CompiledModel(made.model, fixed=fixed)
    return made


def check_same(plain: Predictor, other: Predictor, hparams: DecodeHParams) -> None:
    """All texts are equal, and all scores to 1e-5."""
    expected = plain.predict(TEXTS, hparams)
    for one, found in zip(
        expected, other.predict(TEXTS, hparams.replace(compile=True)), strict=True
    ):
        assert [h.ids for h in found.hypotheses] == [h.ids for h in one.hypotheses]
        for a, b in zip(found.hypotheses, one.hypotheses, strict=True):
            assert a.score == pytest.approx(b.score, rel=1e-6, abs=1e-5)


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "fixed"),
    [
        ("lstm_seq2seq_attention", False),
        ("transformer_lm", True),
        *(
            pytest.param(name, fixed, marks=pytest.mark.slow)
            for name in ("relative", "prepend_masked", *SETS)
            for fixed in (False, True)
            if (name, fixed) not in (("lstm_seq2seq_attention", False), ("transformer_lm", True))
        ),
    ],
)
def test_it_finds_what_the_plain_step_does_by_few_programs(
    name: str, fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = of(name)
    other = compiled(plain, monkeypatch, fixed=fixed)
    check_same(plain, other, PLAIN.replace(return_beams=True))
    few = counters["stats"]["unique_graphs"]
    assert 1 <= few <= 4
    # Other numbers of rows, lengths and positions need hardly any more.
    other.predict(TEXTS[:5] * 2, PLAIN.replace(extra_length=5, compile=True))
    assert counters["stats"]["unique_graphs"] <= few + 1


@pytest.mark.slow
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize(
    "asked",
    [
        {"beam_size": 1, "alpha": 0.0},
        {"coverage_penalty": 0.2},
        {"num_beam_groups": 2, "no_repeat_ngram_size": 2},
        {"sampling_method": "random", "num_decodes": 2, "beam_size": 4},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_so_it_does_whatever_is_asked_of_the_search(
    predictor: Predictor, asked: dict[str, object], fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hparams = PLAIN.replace(extra_length=10, **asked)
    check_same(predictor, compiled(predictor, monkeypatch, fixed=fixed), hparams)


@pytest.mark.slow
@pytest.mark.parametrize("fixed", [False, True])
def test_several_models_as_one_are_compiled_together(
    predictor: Predictor, fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Ensemble([predictor.model, predictor.model])
    plain = Predictor(both, predictor.problem, predictor.features)
    check_same(plain, compiled(plain, monkeypatch, fixed=fixed), PLAIN)


def test_a_step_that_cannot_be_compiled_is_refused_by_its_name(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Talking(type(predictor.model)):
        def step(self, ids, state):
            torch._dynamo.graph_break()
            return super().step(ids, state)

    plain = golden_predictor("v3")
    plain.model.__class__ = Talking
    other = compiled(plain, monkeypatch, fixed=False)
    with pytest.raises(HParamsError, match="compile=true: the step of Talking cannot be compiled"):
        other.predict(["1 2"], PLAIN.replace(compile=True))


def test_parsers_labels_and_scores_do_not_read_it() -> None:
    hparams = parse_decode_hparams("compile=true")
    assert hparams.compile
    for check in (hparams.check_of_trees, hparams.check_of_labels, hparams.check_of_scores):
        with pytest.raises(HParamsError, match="compile"):
            check()


@dataclasses.dataclass
class Numbers:
    """A state that tells which rows it has, and how often it was copied."""

    rows: torch.Tensor

    def expand(self, hypotheses: int) -> Numbers:
        return Numbers(self.rows.repeat_interleave(hypotheses))

    def reorder(self, index: torch.Tensor) -> Numbers:
        return Numbers(self.rows[index])


def test_rows_stay_at_their_places_until_half_of_them_are_empty() -> None:
    sizes = []

    def step(ids: torch.Tensor, state: Numbers) -> tuple[torch.Tensor, Numbers]:
        sizes.append(len(ids))
        return torch.stack([ids, state.rows], 1), state

    assert [places_for(n) for n in (1, 8, 9, 16, 17)] == [8, 8, 16, 16, 32]
    state = FixedRows(Numbers(torch.arange(11)), 11, torch.device("cpu")).expand(2)
    rows = torch.arange(22)
    kept = torch.tensor([0, 2, 3, 4, 5, 6, 7, 9, 10])
    for now in (torch.arange(11), kept, kept[[0, 2, 5, 7, 8]], kept[[5]]):
        expected = torch.stack([now, now], 1).flip(1).flatten()  # hypotheses change places
        places = torch.searchsorted(rows[::2].contiguous(), now * 2) if len(rows) < 22 else now
        index = torch.stack([places * 2 + 1, places * 2], 1).flatten()
        state = state.reorder(index)
        found, state = state.step(step, step, expected + 100)
        assert found[:, 0].tolist() == (expected + 100).tolist()
        assert found[:, 1].tolist() == expected.tolist()
        rows = torch.stack([now * 2, now * 2 + 1], 1).flatten()
    assert sizes == [32, 32, 16, 16]
