"""The network that is trained: the model, its layers compiled or recomputed."""

import itertools
import json

import pytest
import torch
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

from t2t_torch import registry
from t2t_torch.distributed import network as compiled
from t2t_torch.distributed.network import compiled_layers, layers_of, network
from t2t_torch.distributed.process_group import ONE_PROCESS, World
from t2t_torch.errors import HParamsError
from t2t_torch.features import Features, Text
from t2t_torch.testing import random_batch, small, text_features
from t2t_torch.text.encoder import IntegerEncoder

FEW_SHAPES = "pad_batch=True,min_length_bucket=24,length_bucket_step=1.6,max_length=41"
WARNS = pytest.mark.filterwarnings("ignore")  # torch, of itself, while it compiles
COMPILED = f"compile=True,{FEW_SHAPES}"
MORE_SHAPES = COMPILED.replace("bucket=24", "bucket=8")


def trained(make_task, hparams):
    """Returns the loss and the gradients of a batch, with dropout."""
    task = make_task(f"layer_prepostprocess_dropout=0.2,attention_dropout=0.2,{hparams}")
    torch.manual_seed(0)
    model = task.model().train()
    batch = next(iter(task.train_batches(seed=0, start=0, rank=0, world_size=1)))
    torch.manual_seed(1)
    loss = network(model, task.hparams, ONE_PROCESS)(batch).losses["targets"].sum
    loss.backward()
    return loss, {name: p.grad for name, p in model.named_parameters()}


def test_recomputed_layers_give_the_same_gradients_bit_by_bit(make_task):
    loss, gradients = trained(make_task, "")
    again, recomputed = trained(make_task, "activation_checkpointing=True")
    assert torch.equal(loss, again)
    for name, gradient in gradients.items():
        assert torch.equal(gradient, recomputed[name]), name


def kept_for_backward(make_task, hparams):
    """Returns the bytes that a forward pass keeps."""
    retained = {}

    def pack(tensor):
        retained[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    task = make_task(hparams)
    wrapped = network(task.model().train(), task.hparams, ONE_PROCESS)
    batch = next(iter(task.train_batches(seed=0, start=0, rank=0, world_size=1)))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        wrapped(batch)
    return sum(retained.values())


def test_recomputed_layers_keep_less_memory(make_task):
    plain = kept_for_backward(make_task, "")
    assert kept_for_backward(make_task, "activation_checkpointing=True") < 0.5 * plain


def test_names_and_values_of_weights_stay(make_task):
    task = make_task("activation_checkpointing=True")
    model = task.model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    network(model, task.hparams, ONE_PROCESS)
    assert list(model.state_dict()) == list(before)
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)


def test_evaluation_is_as_it_was(make_task):
    task = make_task("activation_checkpointing=True")
    torch.manual_seed(0)
    model = task.model().eval()
    batch = random_batch(text_features())
    batch = {name: ids % 4 for name, ids in batch.items()}
    before = model(batch).logits["targets"]
    after = network(model, task.hparams, ONE_PROCESS)(batch).logits["targets"]
    assert torch.equal(before, after)


def test_a_model_can_be_prepared_again(make_task):
    task = make_task("activation_checkpointing=True")
    model = task.model()
    network(model, task.hparams, ONE_PROCESS)
    network(model, task.hparams.replace(activation_checkpointing=False), ONE_PROCESS)
    assert all("forward" not in layer.__dict__ for layer in layers_of(model))


class Largest(TorchDispatchMode):
    """Remembers the elements of the largest tensor that was made."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.elements = max(self.elements, made.numel())
        return made


def test_all_logits_of_a_large_vocabulary_are_never_held():
    tokens, vocab_size = 600, 32_768
    text = Text(IntegerEncoder(vocab_size - 2))
    hparams = small(registry.hparams("transformer_base")).replace(hidden_size=8)
    model = registry.model("transformer")(hparams, Features({}, {"targets": text})).train()
    batch = {"targets": torch.randint(2, vocab_size, (20, tokens // 20))}
    with Largest() as largest:
        model(batch).losses["targets"].sum.backward()
    assert largest.elements < tokens * vocab_size / 4


def test_compiling_batches_of_any_shape_is_refused(make_task):
    with pytest.raises(HParamsError, match="pad_batch=True"):
        trained(make_task, "compile=True")


def test_a_missing_compiler_is_told_before_training(make_task, monkeypatch):
    monkeypatch.setattr(compiled.shutil, "which", lambda name: None)
    with pytest.raises(HParamsError, match="apt-get install g"):
        trained(make_task, "compile=True,pad_batch=True")


def test_an_optimizer_that_needs_whole_weights_is_refused_parts_of_them(make_task):
    task = make_task("shard_weights=True,optimizer=adafactor")
    with pytest.raises(HParamsError, match="adam_w"):
        network(task.model(), task.hparams, World(0, 2, torch.device("cpu")))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
@WARNS
def test_nothing_is_compiled_after_the_first_step(make_estimator, tmp_path, backend, monkeypatch):
    """Over three epochs, an evaluation and a batch of another shape."""
    monkeypatch.setattr(compiled, "_BACKEND", backend)  # eager: traced, and run as it is
    torch._dynamo.reset()
    before = counters["stats"]["unique_graphs"]
    run = make_estimator("run", MORE_SHAPES, train_steps=40)
    learner = run.begin()
    graphs = counters["stats"]["unique_graphs"]
    shapes = sum(1 for _ in learner.source.one_of_each_shape())
    classes = {type(layer) for layer in layers_of(learner.model)}
    assert graphs - before == shapes * len(classes) >= 6
    run.train(40)
    run.evaluate()
    learner.model.train()
    learner.network({name: ids[:3, :5] for name, ids in learner.next_batches()[0][1].items()})
    assert counters["stats"]["unique_graphs"] == graphs
    assert compiled_layers(learner.model)
    losses = [
        json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    ]
    assert losses


@pytest.mark.slow
@WARNS
def test_a_compiled_run_resumes_bit_by_bit(make_estimator):
    whole = make_estimator("whole", COMPILED, train_steps=10)
    whole.train(10)
    first = make_estimator("parts", COMPILED, train_steps=10)
    first.train(4)
    first.close()
    resumed = make_estimator("parts", COMPILED, train_steps=10)
    resumed.train(10)
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
@WARNS
def test_a_compiled_run_learns_what_another_does(make_estimator):
    off = "layer_prepostprocess_dropout=0,attention_dropout=0,relu_dropout=0"
    plain = make_estimator("plain", f"{off},{FEW_SHAPES}", train_steps=8)
    fast = make_estimator("fast", f"{off},{COMPILED}", train_steps=8)
    plain.train(8)
    fast.train(8)
    for a, b in itertools.zip_longest(plain.model.parameters(), fast.model.parameters()):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)
