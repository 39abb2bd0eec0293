"""A network in ONNX guesses what the model guesses, whatever the batch."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from t2t_torch import registry
from t2t_torch.errors import ExportError
from t2t_torch.export import network as tracing
from t2t_torch.export.exporter import check_exportable
from t2t_torch.export.network import export_network, lstm_layer, replace_lstms
from t2t_torch.features import Turns
from t2t_torch.layers.recurrent import LSTM, Memory
from t2t_torch.testing import features_for, random_batch, small

LABELLING = {"fasttext": 0, "bilstm_tagger": 0, "transformer_encoder": -1}
"""A model, and which of its kinds of features."""

OTHERS = {
    "basic_fc_relu": -1,
    "bilstm_attention_classifier": 0,
    "bilstm_slot_attention_tagger": 0,
    "bsequential_cnn_tagger": 0,
    "joint_bilstm": -1,
    "joint_cnn": -1,
    "linear": 3,  # two texts
    "linear_crf": 0,
    "pretrained_encoder": 0,
    "pair_classifier": 0,
    "pairwise_ranker": -1,
    "resnet": -1,
    "shake_shake": -1,
    "span_qa": 0,
    "lstm_encoder": 0,
    "text_cnn": 0,
    "transformer_regressor": 0,
    "universal_transformer_encoder": 0,
    "vit": -1,
}
"""As `LABELLING`: what of these is new beside those takes time alone."""

SETS = {"basic_fc_relu": "basic_fc_small", "resnet": "resnet_mnist"}
"""Sets of models whose first set by name does not fit."""

REFUSED = {"seqnn": r"Seqnn cannot be exported: .*data-dependent"}
"""A model that labels and has no graph, and what is said of it."""

RESTORES = ["electra"]
"""Models that predict nothing of a text: `check_exportable` refuses their problems."""

WRITING = """
    attention_lm attention_lm_moe evolved_transformer imagetransformer lstm_lm lstm_seq2seq
    lstm_seq2seq_attention lstm_seq2seq_attention_bidirectional_encoder
    lstm_seq2seq_bidirectional_encoder pretrained_lm pretrained_seq2seq rnng transformer
    transformer_ctc transformer_lm
    transformer_memory transformer_moe transformer_scorer universal_transformer
""".split()
"""Models that write one token after another: no pass through their network is an answer."""


def kinds_of(name):
    """The features that a model is made for, but what is written."""
    return [
        features
        for features in features_for(registry.model(name))
        if not any(target.generates for target in features.targets.values())
    ]


def made(name, which, **changes):
    """A small model with random weights, and the names of what it is given."""
    model_class = registry.model(name)
    sets = (one for one in registry.list_names("hparams") if one.startswith(name))
    first = SETS.get(name) or next(sets)
    torch.manual_seed(0)
    features = kinds_of(name)[which]
    known = {n: v for n, v in changes.items() if n in model_class.HParams.model_fields}
    known |= {"loss": ""}  # of training; a set may name one of another kind of target
    model = model_class(small(registry.hparams(first)).replace(**known), features).eval()
    for parameter in model.parameters():
        if not parameter.any():  # tables of n-grams
            nn.init.normal_(parameter)
    alone = {name for name, note in features.notes.items() if note.aligned_to is None}
    return model, [n for n in features.all if n not in features.targets and n not in alone]


def batch_of(model, given, **settings):
    found = random_batch(model.features, **settings)
    return {name: found[name] for name in given}


def expected(model, batch):
    """What the model itself guesses, as `export_network` names it."""
    found = {}
    with torch.no_grad():
        for name, hidden in model.hidden_states(batch).items():
            modality = model.modalities[name]
            guesses = modality.predict(modality.logits(hidden))
            parts = {**guesses._asdict(), "mask": hidden.mask}
            found |= {f"{name}.{part}": its for part, its in parts.items() if its is not None}
    return found


@functools.cache
def exported(name, which):
    """A model, what it is given, its graph, and what the model guessed before it was made."""
    model, given = made(name, which)
    batch = batch_of(model, given)
    before = expected(model, batch)
    return model, given, export_network(model, batch), before


def run(session, batch):
    names = [one.name for one in session.get_outputs()]
    given = {one.name for one in session.get_inputs()}
    values = session.run(None, {n: v.numpy() for n, v in batch.items() if n in given})
    return dict(zip(names, map(torch.from_numpy, values), strict=True))


def check_agrees(model, given, session):
    for rows, seed in ((1, 1), (4, 2), (7, 3)):
        batch = batch_of(model, given, rows=rows, seed=seed)
        found = run(session, batch)
        wanted = expected(model, batch)
        assert found.keys() == wanted.keys()
        for name, values in wanted.items():
            target = name.partition(".")[0]
            mask = wanted.get(f"{target}.mask")
            here = found[name]
            if mask is not None and values.shape[:2] == mask.shape:  # padding has no guess
                here, values = here[mask], values[mask]
            torch.testing.assert_close(here.double(), values.double(), atol=1e-5, rtol=1e-5)


@pytest.mark.sample(1)
@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "which"),
    [*LABELLING.items(), *(pytest.param(*each, marks=pytest.mark.slow) for each in OTHERS.items())],
)
def test_the_graph_guesses_what_the_model_does(name, which):
    model, given, network, _ = exported(name, which)
    check_agrees(model, given, onnxruntime.InferenceSession(network.SerializeToString()))


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"tag_decoder": "softmax", "tag_constraints": "decode"}])
def test_tags_by_a_softmax_keep_their_rules(settings):
    model, given = made("bilstm_tagger", 0, **settings)
    network = export_network(model, batch_of(model, given))
    check_agrees(model, given, onnxruntime.InferenceSession(network.SerializeToString()))


@pytest.mark.slow
def test_layers_of_lstm_are_operators_of_onnx_and_the_model_stays_as_it_was():
    model, given, network, before = exported("bilstm_tagger", LABELLING["bilstm_tagger"])
    operators = [node.op_type for node in network.graph.node]
    assert operators.count("LSTM") == model.hparams.num_hidden_layers
    onnx.checker.check_model(network)
    assert any(isinstance(module, LSTM) for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())
    after = expected(model, batch_of(model, given))
    assert all(torch.equal(before[name], after[name]) for name in before)


class _ReadsItsSize(nn.Module):
    def forward(self, x):
        return x * len(x)


@pytest.mark.slow
def test_a_size_that_became_a_number_is_refused():
    model, given = made("text_cnn", 0)
    model.dropout = _ReadsItsSize()
    with pytest.raises(ExportError, match=r"axis 0 of 'inputs' would always be 3"):
        export_network(model, batch_of(model, given))


@pytest.mark.parametrize(("name", "why"), REFUSED.items())
def test_a_model_whose_sizes_depend_on_what_it_reads_is_refused(name, why):
    model, given = made(name, 0)
    with pytest.raises(ExportError, match=why):
        export_network(model, batch_of(model, given))


def test_every_model_of_the_shelf_is_exported_or_refused_or_writes():
    labelling = [*LABELLING, *OTHERS, *REFUSED, *RESTORES]
    assert sorted([*labelling, *WRITING]) == list(registry.list_names("model"))
    for names, writes in ((labelling, False), (WRITING, True)):
        for name in names:
            kinds = features_for(registry.model(name))
            targets = [target for one in kinds for target in one.targets.values()]
            assert {target.generates for target in targets} == {writes}, name


@pytest.mark.parametrize(("name", "why"), [("rnng", "[Tt]ree")])
def test_an_answer_that_no_graph_gives_is_refused_with_the_reason(name, why):
    features = next(features_for(registry.model(name)))
    loaded = SimpleNamespace(
        features=features,
        info=SimpleNamespace(task=SimpleNamespace(model=name)),
        model=SimpleNamespace(searches=True),
        problem=SimpleNamespace(full_name="asked", corruption=""),
    )
    with pytest.raises(ExportError, match=f"(?s){why}.*t2t-decoder"):
        check_exportable(loaded)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "which"),
    [
        (name, which)
        for name, usual in {**LABELLING, **OTHERS}.items()
        for which, kind in enumerate(kinds_of(name))
        if which != usual % len(kinds_of(name)) and not isinstance(kind.inputs.get("inputs"), Turns)
    ],
)
def test_the_graph_of_every_other_kind_of_target_guesses_what_the_model_does(name, which):
    test_the_graph_guesses_what_the_model_does(name, which)


def run_lstm(holder, inputs):
    """The outputs of an LSTM, and its state after the last positions, from a given state."""
    state = Memory(inputs["hidden"], inputs["cell"]) if "hidden" in inputs else None
    if state is None:
        return {"outputs": holder["lstm"](inputs["x"], inputs["mask"])}
    outputs, after = holder["lstm"].run(inputs["x"], inputs["mask"], state)
    outputs = outputs * inputs["mask"][..., None]
    return {"outputs": outputs, "after_hidden": after.hidden, "after_cell": after.cell}


def check_in_onnx(lstm, lengths, **state):
    """Compares an LSTM with the operation that stands for it, as ONNX computes it."""
    x, mask = torch.randn(4, 6, 5), torch.arange(6) < torch.tensor(lengths)[:, None]
    given = {"x": x, "mask": mask, **state}
    run = tracing.NamedNetwork(given, nn.ModuleDict({"lstm": lstm.eval()}), run_lstm)
    with torch.no_grad():
        wanted = run(*given.values())
    replace_lstms(run)
    axes = {"x": (0, 1), "mask": (0, 1), "hidden": (1,), "cell": (1,)}
    graph = tracing.exported("lstm", run, given, {name: axes[name] for name in given})
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    feeds = {name: value.numpy() for name, value in given.items()}
    for name, found in zip(wanted, session.run(list(wanted), feeds), strict=True):
        torch.testing.assert_close(torch.from_numpy(found), wanted[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_operation_is_what_the_layer_does(bidirectional):
    torch.manual_seed(0)
    check_in_onnx(LSTM(5, 7, 2, bidirectional=bidirectional), [6, 3, 1, 0])


@pytest.mark.parametrize("layers", [1, 2])
def test_the_operation_goes_on_from_a_memory_and_ends_at_each_rows_last_position(layers):
    torch.manual_seed(0)
    state = {name: torch.randn(layers, 4, 7) for name in ("hidden", "cell")}
    check_in_onnx(LSTM(5, 7, layers), [6, 3, 1, 2], **state)


def test_the_operation_passes_torchs_own_checks():
    torch.manual_seed(0)
    given = (torch.randn(3, 4, 5), torch.tensor([4, 2, 1], dtype=torch.int32))
    weights = (torch.randn(2, 28, 5), torch.randn(2, 28, 7), torch.randn(2, 56))
    memory = (torch.randn(2, 3, 7), torch.randn(2, 3, 7))
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(lstm_layer, (*given, *weights, *memory), test_utils=checks)


def test_a_text_of_one_word_has_no_ngrams_in_a_graph():
    model, given, network, _ = exported("fasttext", 0)
    batch = batch_of(model, given, rows=2)
    batch["inputs"] = batch["inputs"][:, :1]
    session = onnxruntime.InferenceSession(network.SerializeToString())
    found = run(session, batch)
    for name, wanted in expected(model, batch).items():
        torch.testing.assert_close(found[name], wanted, msg=name)
