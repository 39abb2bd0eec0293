"""Low-rank adapters of linear maps: the formula, those of `peft`, and which maps have them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from t2t_torch import registry, testing
from t2t_torch.errors import HParamsError
from t2t_torch.hparam import HParams
from t2t_torch.layers.attention import Projections
from t2t_torch.layers.lora import add_adapters, is_adapter, merged


class Halved(nn.Linear):
    """A map with a forward pass of its own, which reads its weight."""

    def forward(self, x):
        return F.linear(x, self.weight / 2, self.bias)


class Body(nn.Module):
    """Layers whose maps are called in all ways."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(6, 6)
        self.layers = nn.ModuleList(
            [nn.ModuleDict({"plain": nn.Linear(6, 8), "fused": Projections(8, [3, 3])})]
        )
        self.layers.append(nn.ModuleDict({"own": Halved(6, 6), "read": nn.Linear(6, 6)}))
        self.table = nn.Embedding(6, 6)

    def forward(self, x):
        one, two = self.layers
        x = torch.cat(one["fused"].split(one["plain"](self.first(x)).tanh()), -1)
        return x @ two["read"].weight.t() + two["own"](x)


def adapted(hparams="", model=None):
    """A model whose adapters are drawn, and its settings."""
    model = model or Body()
    made = HParams().parse("lora_rank=2,lora_alpha=3").parse(hparams)
    add_adapters(model, made)
    return model, made


def draw(model):
    for name, parameter in model.named_parameters():
        if is_adapter(name):
            nn.init.normal_(parameter, std=0.3)


X = torch.linspace(-1, 1, 30).view(5, 6)


def test_a_new_adapter_changes_no_bit_and_no_name():
    before, (model, _) = Body(), adapted()
    assert torch.equal(model(X), before(X))
    names = [name for name, _ in model.named_parameters() if not is_adapter(name)]
    assert names == [name for name, _ in before.named_parameters()]
    assert model.layers[0]["plain"].lora_a.shape == (2, 6)
    assert model.layers[0]["plain"].lora_b.shape == (8, 2)
    assert isinstance(model.layers[0]["fused"], Projections)
    assert not hasattr(model.first, "lora_a")  # in no numbered layer


def test_an_adapted_map_is_that_of_the_paper():
    model, _ = adapted()
    draw(model)
    part = model.layers[0]["plain"]
    own = part._parameters["weight"]
    by_hand = X @ own.t() + part.bias + 3 / 2 * X @ part.lora_a.t() @ part.lora_b.t()
    torch.testing.assert_close(part(X), by_hand)
    torch.testing.assert_close(part.weight, own + 3 / 2 * part.lora_b @ part.lora_a)


def test_merged_weights_compute_what_the_adapters_do_however_a_weight_is_read():
    model, made = adapted()
    draw(model)
    plain = Body()
    plain.load_state_dict(merged(model.state_dict(), made.lora_alpha))
    assert not torch.allclose(model(X), Body()(X), atol=0.1)
    torch.testing.assert_close(plain(X), model(X), rtol=0, atol=1e-6)
    model(X).square().sum().backward()
    assert all(p.grad.any() for name, p in model.named_parameters() if is_adapter(name))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_outputs_and_gradients_are_those_of_peft():
    peft, transformers = (pytest.importorskip(name) for name in ("peft", "transformers"))
    sizes = {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "eos_token_id": None}
    config = transformers.GPT2Config(**sizes, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    torch.manual_seed(0)
    base, ids = transformers.GPT2Model(config).double(), torch.arange(14).view(2, 7)
    ours, made = adapted(model=copy.deepcopy(base))
    settings = peft.LoraConfig(
        r=2, lora_alpha=3, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True
    )
    theirs, pairs = peft.get_peft_model(copy.deepcopy(base), settings), []
    for name, parameter in theirs.named_parameters():
        if "lora_" in name:
            own = name.removeprefix("base_model.model.").replace("A.default.weight", "a")
            own = ours.get_parameter(own.replace("B.default.weight", "b"))
            nn.init.normal_(parameter)
            own.data.copy_(parameter.t())  # W is [inputs, outputs] there
            pairs.append((own, parameter))
    assert len(pairs) == 16
    outputs = [model(input_ids=ids).last_hidden_state for model in (ours, theirs)]
    torch.testing.assert_close(*outputs, rtol=1e-9, atol=1e-9)
    for output in outputs:
        output.square().sum().backward()
    for own, parameter in pairs:
        torch.testing.assert_close(own.grad.t(), parameter.grad, rtol=1e-7, atol=1e-7)
    base.load_state_dict(merged(ours.state_dict(), made.lora_alpha))
    torch.testing.assert_close(base(input_ids=ids).last_hidden_state, outputs[0])


def test_dropout_is_of_the_adapters_input_alone():
    model, _ = adapted("lora_dropout=0.5,lora_targets=[plain]")
    draw(model)
    part = model.layers[0]["plain"]
    assert not torch.equal(part(X), part(X))
    nn.init.zeros_(part.lora_b)
    assert torch.equal(part(X), part(X))
    assert torch.equal(model.eval()(X), model(X))


def test_a_map_that_is_read_but_not_called_has_no_dropout_and_says_so():
    model, _ = adapted("lora_dropout=0.5")
    with pytest.raises(HParamsError, match=r"lora_dropout=0.5: .*AdaptedHalved \[6, 6\]"):
        model.layers[1]["own"](X)
    with pytest.raises(HParamsError, match=r"AdaptedLinear \[6, 6\], and does not call it"):
        model(X)
    model.eval()(X)


def test_patterns_choose_the_maps():
    model, _ = adapted("lora_targets=[first,fused]")
    names = {name.rpartition(".")[0] for name, _ in model.named_parameters() if is_adapter(name)}
    assert names == {"first", "layers.0.fused"}


@pytest.mark.parametrize(
    "hparams, message",
    [
        ("lora_targets=[frst]", r"lora_targets=frst: no linear map .* Linear maps: first, layers"),
        ("lora_targets=[table]", r"lora_targets=table: no linear map"),
        ("lora_targets=[(]", r"lora_targets: '\(' is no regular expression"),
        ("lora_rank=6,lora_targets=[first]", r"lora_rank=6: first has a weight of \[6, 6\]"),
        ("lora_rank=8", r"lora_rank=8: the model has no linear maps in numbered layers.*more than"),
    ],
)
def test_what_cannot_be_adapted_is_refused(hparams, message):
    with pytest.raises(HParamsError, match=message):
        adapted(hparams)


def test_a_weight_that_is_also_an_embedding_is_refused():
    model = Body()
    model.first.weight = model.table.weight
    with pytest.raises(HParamsError, match=r"the weight of first is also that of table"):
        adapted("lora_targets=[first]", model)


@pytest.mark.parametrize("name", ["transformer", "transformer_encoder", "universal_transformer"])
def test_every_adapter_of_a_model_has_a_gradient_and_is_merged(name):
    kind = registry.model(name)
    features = next(testing.features_for(kind))
    made = testing.small(kind.HParams()).replace(lora_rank=2)
    model, batch = kind(made, features), testing.random_batch(features)
    add_adapters(model, made)
    draw(model)
    sum(loss.sum for loss in model.train()(batch).losses.values()).backward()
    assert all(p.grad.any() for name, p in model.named_parameters() if is_adapter(name))
    plain = kind(made, features)
    plain.load_state_dict(merged(model.state_dict(), made.lora_alpha))
    with torch.no_grad():
        found, expected = (one.eval()(batch).logits["targets"] for one in (plain, model))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
