"""Steps of every model without a GPU: none reads a value of a tensor, or leaves its device.

On the device `meta` tensors have no contents: reading one (`.item()`, `.tolist()`, a mask as an
index), copying to the CPU and mixing it with a tensor of the CPU is an error.  On the CPU, whose
kernels differ, the lines that read values are looked for.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from t2t_torch import registry, testing
from t2t_torch.distributed import network
from t2t_torch.distributed.process_group import ONE_PROCESS
from t2t_torch.model import T2TModel
from t2t_torch.pipeline.collate import random_batch

OF_A_CPU = {
    "modalities/text.py: _present",
    "models/electra.py: _samples",
    "layers/ngrams.py: _trimmed",
}
"""Functions that read values on a CPU alone."""
PACKED = {"layers/recurrent.py: _run": "pack_padded_sequence takes lengths of the CPU"}
WAITING = {
    "lstm_encoder": PACKED,
    "lstm_seq2seq": PACKED,
    "lstm_seq2seq_attention": PACKED,
    "lstm_seq2seq_attention_bidirectional_encoder": PACKED,
    "lstm_seq2seq_bidirectional_encoder": PACKED,
    "pretrained_lm": {
        f"layers/pretrained.py: {function}": "transformers looks whether a mask has padding"
        for function in ("logits", "begin", "step")
    },
    "rnng": {
        "layers/tree.py: structure_of": "the structure of trees is computed with numpy",
        "models/rnng.py: _push": "composes only the rows that reduce",
    },
    "seqnn": {
        "models/text_classifier.py: body": "words of utterances are selected by a mask",
        "the backward pass": "of that mask",
        "models/text_classifier.py: _turns": "the number of utterances is a size of the tensors",
    },
    "transformer_ctc": {
        "modalities/speech.py: ctc_losses": "torch's CTC loss knows no tensors without contents"
    },
}
"""Functions in which a GPU is waited for, by model, and why."""
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "equal")


OF_VALUES = {
    "linear": "trims n-grams, on a CPU alone",
    "rnng": "composes only the rows that reduce",
}
"""Models whose calls depend on the values of a batch, and why."""


class Calls(TorchDispatchMode):
    """Records the calls of torch's kernels with the shapes of their results, and the devices."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, list[torch.Size]]] = []
        self.devices: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        made = function(*args, **(kwargs or {}))
        results = [one for one in tree_leaves(made) if isinstance(one, torch.Tensor)]
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        self.calls.append((function.name(), [one.shape for one in results]))
        self.devices |= {one.device.type for one in [*results, *given]}
        return made


def place_of(frames: Iterable[traceback.FrameSummary]) -> str:
    """Returns the file and the function of the package that was called last."""
    own = [one for one in frames if "/t2t_torch/" in one.filename]
    if not own:
        return "the backward pass"
    last = own[-1]
    return f"{last.filename.rpartition('t2t_torch/')[2]}: {last.name}"


class Watch(TorchDispatchMode):
    """Lists the functions of the package that read values of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, None] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        name = function.name().removeprefix("aten::").partition(".")[0]
        masks = args[1] if name in ("index", "index_put", "index_put_") else ()
        if name in WAITS or any(one is not None and one.dtype == torch.bool for one in masks):
            self.places[place_of(traceback.extract_stack())] = None
        return function(*args, **(kwargs or {}))


def train(model: T2TModel, batch: dict[str, torch.Tensor]) -> None:
    losses = model.train()(batch).losses
    torch.stack([loss.sum / loss.weight for loss in losses.values()]).sum().backward()


def decode(model: T2TModel, batch: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        state = model.eval().encode(batch)
        last = torch.zeros(len(batch["targets"]), dtype=torch.int64, device=batch["targets"].device)
        for _ in range(3):
            logits, state = model.step(last, state)
            last = logits.argmax(-1)


CASES = [
    (name, number)
    for name in registry.list_names("model")
    for number, _ in enumerate(testing.features_for(registry.model(name)))
]


def steps_of(name: str, number: int) -> Iterator[tuple[Any, T2TModel, dict[str, torch.Tensor]]]:
    """Yields the steps of a model, each with a model and a batch."""
    model_class = registry.model(name)
    features = list(testing.features_for(model_class))[number]
    for step in (train, decode):
        model = model_class(testing.small(model_class.HParams()), features)
        if step is train or (model.searches and model_class.step is not T2TModel.step):
            yield step, model, random_batch(features)


@pytest.mark.sample(15)
@pytest.mark.parametrize(("name", "number"), CASES)
def test_steps_run_on_tensors_without_contents(name, number, monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)  # `meta` has none
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    for step, model, batch in steps_of(name, number):
        model.to("meta")
        batch = {key: value.to("meta") for key, value in batch.items()}
        try:
            with Calls() as calls:
                step(model, batch)
            assert calls.devices == {"meta"}  # a graph of CUDA copies nothing from the host
        # torch's, of a value that is not there
        except (NotImplementedError, RuntimeError) as error:
            message = f"{step.__name__}: {error}"
            assert "meta" in str(error).lower(), message
            place = place_of(traceback.extract_tb(error.__traceback__))
            assert place in WAITING.get(name, {}), message


@pytest.mark.sample(15)
@pytest.mark.parametrize(("name", "number"), CASES)
def test_steps_read_no_values(name, number):
    for step, model, batch in steps_of(name, number):
        with Watch() as watch:
            step(model, batch)
        assert {*watch.places} <= OF_A_CPU | {*WAITING.get(name, {})}, step.__name__


@pytest.mark.sample(15)
@pytest.mark.parametrize(("name", "number"), CASES)
def test_batches_of_equal_shapes_call_the_same_kernels(name, number):
    """As CUDA graphs need it: what is recorded with one batch is replayed with another."""
    features = list(testing.features_for(registry.model(name)))[number]
    for step, model, _ in steps_of(name, number):
        found = []
        for seed in (1, 2):
            model.zero_grad()
            with Calls() as calls:
                step(model, random_batch(features, seed=seed))
            found.append(calls.calls)
        assert found[0] == found[1] or name in OF_VALUES, step.__name__


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch, of itself, while it compiles
@pytest.mark.parametrize(("name", "number"), CASES)
def test_layers_compile_whole_and_once(name, number, monkeypatch):
    """A break of the graph is an error (`fullgraph`); a known shape is not compiled again."""
    # Traced and decomposed as by inductor, also the backward pass, and run by torch's own kernels.
    monkeypatch.setattr(network, "_BACKEND", "aot_eager_decomp_partition")
    torch._dynamo.reset()
    model_class = registry.model(name)
    features = list(testing.features_for(model_class))[number]
    hparams = testing.small(model_class.HParams()).replace(compile=True, pad_batch=True)
    model = model_class(hparams, features)
    network.network(model, hparams, ONE_PROCESS)
    if not network.compiled_layers(model):
        pytest.skip("it has no layers to compile")
    batch = random_batch(features)
    train(model, batch)
    graphs = counters["stats"]["unique_graphs"]
    train(model, batch)
    assert counters["stats"]["unique_graphs"] == graphs
