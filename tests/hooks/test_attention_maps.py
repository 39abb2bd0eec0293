from __future__ import annotations

import contextlib
import sys

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from t2t_torch import registry, testing
from t2t_torch.errors import UsageError
from t2t_torch.hooks import attention_maps
from t2t_torch.hooks.attention_maps import AttentionMaps
from t2t_torch.layers.attention import CrossAttention, SelfAttention, distances
from t2t_torch.layers.pooling import AttentionPooling
from t2t_torch.models.transformer import Transformer

pytest.importorskip("matplotlib")

LAYERS = {
    f"{side}.{layer}.{kind}"
    for side, kinds in (("encoder", ["attention"]), ("decoder", ["attention", "memory_attention"]))
    for kind in kinds
    for layer in (0, 1)
}


@pytest.fixture
def drawn(monkeypatch):
    """What `heat_maps` is given, by title."""
    from matplotlib.figure import Figure

    result = {}

    def draw(matrices, *, title, **kwargs):
        result[title] = {"matrices": matrices, **kwargs}
        return Figure()

    monkeypatch.setattr(attention_maps, "heat_maps", draw)
    return result


@pytest.mark.slow
def test_each_layer_has_a_figure_at_each_evaluation(train):
    folder = train(hooks=("attention_maps",))
    files = {path.stem for path in (folder / "figures" / "attention").glob("*.png")}
    assert files == LAYERS
    result = EventAccumulator(str(folder / "eval"), size_guidance={"images": 0}).Reload()
    for layer in LAYERS:
        assert [one.step for one in result.Images(f"attention/{layer}")] == [2, 4]


def test_rows_and_columns_are_the_tokens_of_one_sentence(train, drawn):
    train(hooks=("attention_maps",), train_steps=2)
    encoder = drawn["encoder.0.attention, step 2"]
    decoder = drawn["decoder.1.attention, step 2"]
    memory = drawn["decoder.1.memory_attention, step 2"]
    inputs, targets = encoder["rows"], decoder["rows"]
    assert inputs == encoder["columns"] == memory["columns"]
    assert inputs[-1] == targets[-1] == "<EOS>"
    assert targets[:-1] == inputs[-2::-1], "the problem reverses its inputs"
    assert len(set(targets)) == 3
    assert memory["rows"] == targets
    assert decoder["columns"] == ["·", *targets[:-1]], "what was read before"
    assert (memory["axes"], encoder["axes"]) == (("targets", "inputs"), ("inputs", "inputs"))


def test_weights_add_up_to_one_and_a_decoder_does_not_look_ahead(train, drawn):
    train(hooks=("attention_maps",), train_steps=2)
    for title, figure in drawn.items():
        for matrix in map(torch.from_numpy, figure["matrices"]):
            assert matrix.shape == (len(figure["rows"]), len(figure["columns"]))
            torch.testing.assert_close(matrix.sum(1), torch.ones(len(matrix)))
            if title.startswith("decoder.0.attention"):
                assert not matrix.triu(1).any()


def test_the_hops_of_a_pooling_are_the_rows_of_one_map():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = AttentionPooling(8, 4, hops=3)

        def forward(self, x):
            return self.attention(x, torch.tensor([[True, True, True, True, False]]))

    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(1, 5, 8)
    with torch.no_grad():
        expected = model(x).weights
        result = attention_maps._weights(model, x)
    assert result.keys() == {"attention"}
    assert torch.equal(result["attention"], expected)
    assert (expected.sum(-1) - 1).abs().max() < 1e-6


@pytest.mark.parametrize("furthest", [0, 2])
@pytest.mark.parametrize("causal", [True, False])
def test_the_weights_are_those_that_the_layer_mixes_by(causal, furthest):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.own = SelfAttention(8, 2, 0.0, furthest)
            self.other = CrossAttention(8, 2, 0.0)

        def forward(self, x):
            memory = self.other.remember(x[:, :3])
            mask = torch.tensor([True, True, False]).view(1, 1, 1, 3)
            return self.own(x, causal=causal), self.other(x, memory, mask)

    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(1, 5, 8)
    with torch.no_grad():
        result = attention_maps._weights(model, x)
        own, other = model(x)
        v = model.own._project(x)[2]
        mixed = result["own"] @ v[0]  # [N, T, D]
        if furthest:
            mixed = mixed + model.own.relative.mixed(result["own"], distances(5, 5, x.device))
        joined = mixed.transpose(0, 1).flatten(1)  # [T, N * D]
        torch.testing.assert_close(model.own.output(joined), own[0])
        v = model.other.remember(x[:, :3])[1]
        mixed = (result["other"] @ v[0]).transpose(0, 1).flatten(1)
        torch.testing.assert_close(model.other.output(mixed), other[0])
    assert not result["other"][..., 2].any()
    assert not any(module._forward_pre_hooks for module in model.modules()), "all are taken off"


@pytest.mark.slow
def test_maps_of_local_attention_are_of_all_positions():
    hparams = registry.hparams("transformer_tiny_local")
    model = Transformer(hparams, testing.text_features()).eval()
    ids = torch.randint(2, 6, (1, 40))
    found = attention_maps._weights(model, {"inputs": ids, "targets": ids})
    weights = found["encoder.0.attention"]
    assert weights.shape == (hparams.num_heads, 40, 40)
    assert not weights[:, 0, 20:].any() and weights[:, 30, 28:31].all()
    assert found["decoder.0.attention"].shape == (hparams.num_heads, 40, 40)


def test_a_run_with_the_hook_ends_as_one_without(make_run):
    ends = []
    for hooks in ((), ("attention_maps",)):
        with make_run(hooks=hooks, local_eval_frequency=1) as estimator:
            estimator.train(1)
            estimator.evaluate()
            estimator.train(2)
            ends.append([parameter.clone() for parameter in estimator.model.parameters()])
        for path in sorted(estimator.directory.path.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    for with_hook, without in zip(*ends, strict=True):
        assert torch.equal(with_hook, without)


def test_a_missing_matplotlib_is_named_before_the_first_step(make_run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"--hooks=attention_maps .*pip install '\.\[plots\]'"):
        make_run(hooks=("attention_maps",))


def test_a_model_without_attention_is_refused_before_the_first_step(make_run):
    with make_run() as estimator:
        estimator._model = nn.Linear(1, 1)
        with pytest.raises(UsageError, match="Linear has no layer of attention"):
            AttentionMaps().begin(estimator)


def test_the_weights_are_the_averages_where_there_is_an_average(make_run, drawn):
    with make_run(hooks=("attention_maps",), local_eval_frequency=1) as estimator:
        estimator.train(1)

        class Average:
            @contextlib.contextmanager
            def applied(self, model):
                """Weights of nothing: every head looks everywhere alike."""
                retained = {name: value.clone() for name, value in model.state_dict().items()}
                for parameter in model.parameters():
                    parameter.zero_()
                yield
                model.load_state_dict(retained)

        object.__setattr__(estimator.run, "average", Average())
        estimator.evaluate()
    (matrix, _) = drawn["encoder.0.attention, step 1"]["matrices"]
    torch.testing.assert_close(torch.from_numpy(matrix), torch.full(matrix.shape, 1 / len(matrix)))
