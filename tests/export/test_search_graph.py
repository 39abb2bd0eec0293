"""A search in a graph finds what `beam_search` finds, whatever the batch."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import pytest
import torch

from t2t_torch import registry
from t2t_torch.decode.beam import NO_SCORE
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.predictor import Predictor
from t2t_torch.ensemble import Ensemble
from t2t_torch.export.attention import add_attention
from t2t_torch.export.graph import Graph
from t2t_torch.export.search import Search, add_search, export_search
from t2t_torch.runtime.feeds import aligned, attention_names
from t2t_torch.runtime.prediction import Prediction
from t2t_torch.testing import small, text_features
from t2t_torch.text.encoder import TokenEncoder

QUICK: dict[str, dict[str, Any]] = {"transformer": {"num_hidden_layers": 1}}
"""A model that writes, and its changed hyperparameters."""

SLOW: dict[str, dict[str, Any]] = {
    "lstm_lm": {},
    "transformer_lm": {},
    "lstm_seq2seq": {},
    "lstm_seq2seq_attention": {"num_heads": 2},
    "universal_transformer": {"recurrence_type": "act", "act_type": "global"},
    "evolved_transformer": {},
    "transformer_moe": {},
    "transformer:moe": {"ffn_layer": "moe", "moe_num_experts": 3},
    "transformer:rotary": {"pos": "rotary", "norm_type": "rms", "num_key_value_heads": 1},
    "transformer:alibi": {"pos": "alibi", "qk_norm": True, "ffn_gated": True},
}
"""The same, with a suffix where a model has several kinds."""

SEARCHES = {
    "beam": DecodeHParams(extra_length=9),
    "greedy": DecodeHParams(beam_size=1, extra_length=9),
    "n-best": DecodeHParams(
        beam_size=3, return_beams=True, extra_length=7, force_decode_length=True
    ),
    "nothing": DecodeHParams(extra_length=0, force_decode_length=True),
}


class _Made(NamedTuple):
    predictor: Predictor
    session: Any


def model_of(name: str, seed: int = 0, **changes: Any) -> Any:
    """A small model with random weights, large ones, so that its outputs are different."""
    torch.manual_seed(seed)
    changes = {**QUICK, **SLOW}[name] | changes
    name = name.partition(":")[0]
    model_class = registry.model(name)
    hparams = small(registry.hparams(f"{name}_tiny")).replace(**changes)
    model = model_class(
        hparams, text_features(has_inputs=model_class.texts[1] > 0 and "_lm" not in name)
    )
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(3.0)
    return model.eval()


@functools.cache
def made(name: str, search: str, members: int = 1) -> _Made:
    # The moe of seed 0 ends every text at once.
    models = [model_of(name, seed + (name == "transformer:moe")) for seed in range(members)]
    model = models[0] if members == 1 else Ensemble(models)
    hparams, features = SEARCHES[search], models[0].features
    problem = registry.problem("dates_to_iso")
    predictor = Predictor(model, problem, features, hparams)
    given = "inputs" if features.has_inputs else "targets"

    def batch_of(rows: int, length: int) -> dict[str, torch.Tensor]:
        return {given: torch.arange(rows * length).view(rows, length) % 5 + 2}

    networks = export_search(
        model, Search(features.has_inputs, predictor.vocab_size, hparams), batch_of
    )
    graph = Graph("search")
    found = add_search(graph, networks, {given: graph.input(given, "int64", ["b", "s"])})
    graph.output("ids", found.ids, "int64", ["b", None, None])
    graph.output("scores", found.scores, "float32", ["b", None])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(graph.model().SerializeToString(), options)
    return _Made(predictor, session)


def found_by(session: Any, rows: list[list[int]]) -> list[list[tuple[list[int], float]]]:
    """What a graph finds in ids: of each row the hypotheses with their scores."""
    ids = np.zeros((len(rows), max(1, *map(len, rows))), np.int64)
    for row, given in zip(ids, rows, strict=True):
        row[: len(given)] = given
    (name,) = [one.name for one in session.get_inputs()]
    found, scores = session.run(["ids", "scores"], {name: ids})
    return [
        [(_content(one), score) for one, score in zip(*row, strict=True) if score > NO_SCORE]
        for row in zip(found.tolist(), scores.tolist(), strict=True)
    ]


def _content(ids: list[int]) -> list[int]:
    ids = ids[: ids.index(1)] if 1 in ids else ids
    while ids and not ids[-1]:
        ids.pop()
    return ids


def expected_of(predictor: Predictor, rows: list[list[int]]) -> list[Prediction]:
    found = dict(predictor.predict_ids(rows))
    return [found[number] for number in range(len(rows))]


def rows_for(predictor: Predictor) -> list[list[int]]:
    """Rows of ids of many lengths; a prompt may be empty."""
    generator = torch.Generator().manual_seed(1)
    ends = [1] if predictor.features.has_inputs else []
    return [
        [*torch.randint(2, predictor.vocab_size, (length,), generator=generator).tolist(), *ends]
        for length in (0, 1, 7, 3, 2, 11, 1, 30)
    ]


def check(name: str, search: str, members: int = 1) -> None:
    predictor, session = made(name, search, members)
    rows = rows_for(predictor)
    expected = expected_of(predictor, rows)
    alone = [found_by(session, [row])[0] for row in rows]
    together = found_by(session, rows)
    outputs = set()
    for one, *several in zip(expected, alone, together, strict=True):
        for found in several:
            assert [ids for ids, _ in found] == [list(h.ids) for h in one.hypotheses]
            scores = [h.score for h in one.hypotheses]
            assert [score for _, score in found] == pytest.approx(scores, abs=1e-4, rel=1e-4)
        outputs.add(one.hypotheses[0].ids)
    assert len(outputs) > 2  # else nothing was searched for


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_graph_finds_what_the_search_finds(name: str) -> None:
    check(name, "beam")


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_a_graph_finds_what_the_search_of_other_models_finds(name: str) -> None:
    check(name, "beam")


@pytest.mark.slow
@pytest.mark.parametrize("search", ["greedy", "n-best"])
@pytest.mark.parametrize("name", ["lstm_lm", "transformer"])
def test_a_graph_searches_as_it_is_told(name: str, search: str) -> None:
    check(name, search)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm_lm", "transformer"])
def test_a_graph_may_write_nothing(name: str) -> None:
    predictor, session = made(name, "nothing")
    rows = rows_for(predictor)
    for several in (rows, *([row] for row in rows)):
        expected = [[((), 0.0)]] * len(several)
        found = found_by(session, several)
        assert [[(tuple(ids), score) for ids, score in one] for one in found] == expected
        told = expected_of(predictor, several)
        assert [[(h.ids, h.score) for h in one.hypotheses] for one in told] == expected


@pytest.mark.slow
def test_a_graph_of_several_models_finds_what_they_find_together() -> None:
    check("lstm_lm", "beam", members=2)


ATTENTIONS: list[tuple[int, dict[str, Any]]] = [
    (1, {"beam_size": 3, "return_beams": True, "alignment_step": "read"}),
    (2, {"beam_size": 2, "alignment_layer": 2}),
]
"""How many models, and how they search."""


def graph_of(model: Any, predictor: Predictor, hparams: DecodeHParams) -> Graph:
    """From ids to what their words are attended to by."""

    def batch_of(rows: int, length: int) -> dict[str, torch.Tensor]:
        return {"inputs": torch.arange(rows * length).view(rows, length) % 5 + 2}

    size = predictor.vocab_size
    networks = export_search(model, Search(True, size, hparams), batch_of)
    assert networks.attention is not None
    graph = Graph("attention")
    read = graph.input("inputs", "int64", ["b", "s"])
    ids, _, begun = add_search(graph, networks, {"inputs": read})
    numbers = TokenEncoder([str(number) for number in range(size - 2)])
    wanted = graph.optional("wanted", True)
    told = add_attention(graph, networks.attention, begun, (read, ids), (numbers, numbers), wanted)
    forms = (("float32", 4), ("string", 2), ("string", 3))
    for name, value, (dtype, rank) in zip(attention_names("t"), told, forms, strict=True):
        graph.output(name, value, dtype, ["b", *[None] * (rank - 1)])
    return graph


@pytest.mark.slow
@pytest.mark.parametrize(("members", "search"), ATTENTIONS, ids=["n-best", "two models"])
def test_a_graph_looks_where_the_model_looks(members: int, search: dict[str, Any]) -> None:
    models = [model_of("transformer", seed, num_decoder_layers=2) for seed in range(members)]
    model = models[0] if members == 1 else Ensemble(models)
    hparams = DecodeHParams(extra_length=9, write_alignments=True, **search)
    predictor = Predictor(model, registry.problem("dates_to_iso"), models[0].features, hparams)
    graph = graph_of(model, predictor, hparams)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(graph.model().SerializeToString(), options)
    rows = rows_for(predictor)
    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for row, given in zip(ids, rows, strict=True):
        row[: len(given)] = given
    outputs = dict(zip(attention_names("t"), session.run(None, {"inputs": ids}), strict=True))
    predictions = dict(predictor.predict_ids(rows))
    expected = [predictions[number] for number in range(len(rows))]
    found, aligner = aligned("t", outputs, expected, attends=True), predictor.aligner()
    for given, right, one in zip(rows, expected, found, strict=True):
        assert [h.alignment for h in one.hypotheses] == [h.alignment for h in right.hypotheses]
        attention = aligner.attend(given, right).attention
        assert (one.attention.read, one.attention.written) == (attention.read, attention.written)
        for weights, its in zip(one.attention.weights, attention.weights, strict=True):
            assert weights == pytest.approx(its, abs=1e-5)
    assert sum(len(one.attention.written) > 2 for one in found) > 1
    nothing = session.run(None, {"inputs": ids, "wanted": np.array(False)})
    assert [value.size for value in nothing] == [0, 0, 0]
