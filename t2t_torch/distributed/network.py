"""The network that is trained: layers compiled or checkpointed, and all processes together."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from t2t_torch.distributed import process_group
from t2t_torch.errors import HParamsError
from t2t_torch.layers.recurrent import CarriedMemory

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.hparam import HParams


# A layer whose activations are not kept for the backward pass.


class CheckpointedLayer:
    """The forward pass of a layer, done again in the backward pass, with the same dropout.

    Attributes:
      inner: what is run: the layer's own pass, or its compiled one.

    Args:
      layer: whose `forward` it stands for.
    """

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer
        self.inner = layer.forward

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Runs the layer; nothing is recomputed in evaluation."""
        if self._layer.training and torch.is_grad_enabled():
            return checkpoint(self.inner, *inputs, use_reentrant=False, **named)
        return self.inner(*inputs, **named)


# A layer that torch compiles, once for each shape that it is given before the first step.


_BACKEND = "inductor"  # torch's own, and its default
_MANY = 10_000  # programs of one function; torch gives up after 8 by default


class CompiledLayer:
    """The forward pass of a layer, compiled for shapes that stay the same.

    All layers of a class share their programs.  `close` ends the warm-up: other shapes run as they
    would without it from then on, so that no step waits for a compiler.

    Args:
      layer: whose `forward` it stands for.
    """

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer
        self._forward = layer.forward
        self._compiled = torch.compile(
            layer.forward, dynamic=False, fullgraph=True, backend=_BACKEND
        )
        self._known: set[tuple[object, ...]] = set()
        self._open = True

    def __call__(self, *inputs: Any) -> Any:
        """Runs the layer; evaluation, and unknown shapes after the warm-up, are not compiled."""
        if not (self._layer.training and torch.is_grad_enabled()):
            return self._forward(*inputs)
        signature = tuple(
            (each.shape, each.dtype) if isinstance(each, torch.Tensor) else each for each in inputs
        )
        if self._open:
            self._known.add(signature)
        elif signature not in self._known:
            return self._forward(*inputs)
        return self._compiled(*inputs)

    def close(self) -> None:
        """Compiles nothing more."""
        self._open = False


def check_compiler(device: torch.device) -> None:
    """Checks that torch can compile, and lets it compile as many shapes as there are.

    Raises:
      HParamsError: a compiler is missing.
    """
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        raise HParamsError(
            "compile=True needs a C++ compiler, and there is no g++ on the PATH. Install it "
            "(apt-get install g++), or leave compile=False."
        )
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        if not has_triton():
            raise HParamsError(
                "compile=True on a GPU needs Triton: pip install triton. Or leave compile=False."
            )
    torch._dynamo.config.recompile_limit = _MANY
    torch._dynamo.config.accumulated_recompile_limit = _MANY


# Their slots are of their weights' shapes, so that a checkpoint's are sharded alike, and their
# products are not rounded to bfloat16 (tests/optimizers/test_sharded_weights.py).
_FOR_PARTS = (
    "adam",
    "true_adam",
    "multistep_adam",
    "adam_w",
    "adagrad",
    "lamb",
    "momentum",
    "radam",
    "rms_prop",
    "sgd",
)

_BUFFER = 1 << 24  # numbers that are averaged at once


def network(model: nn.Module, hparams: HParams, world: World) -> nn.Module:
    """Returns the model as it is trained.

    Its layers (the members of its ModuleLists) are compiled and checkpointed where hparams say so:
    that holds for training alone, and changes neither names nor values of weights.  The backward
    pass averages gradients over all processes.

    Args:
      model: on its device, with its weights.  With `shard_weights` its parameters become DTensors:
        make the optimizer afterwards.
      hparams: compile, activation_checkpointing, shard_weights.
      world: the processes that train together.

    Raises:
      HParamsError: compile without fixed shapes or without a compiler; shard_weights with an
        optimizer that needs full weights.
    """
    _prepare_layers(model, hparams, world.device)
    if world.size == 1:
        return model
    if hparams.shard_weights:
        _check_optimizer(hparams)
        mesh = process_group.hold_mesh(init_device_mesh(world.device.type, (world.size,)))
        for layer in layers_of(model):
            fully_shard(layer, mesh=mesh)
        # The rest of it, too, is sharded again after a pass: between passes every parameter is
        # what the optimizer and the average of the weights know.
        fully_shard(model, mesh=mesh, reshard_after_forward=True)
        return model
    # Gradients of a bucket are summed while the backward pass makes the next ones.
    wrapped = DistributedDataParallel(
        model,
        device_ids=[world.device] if world.device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        # Of several problems a process's batches may be of one: others' weights have no gradient.
        find_unused_parameters=getattr(model, "has_unused", False),
    )
    # Else each pass would send the buffers, and a process that makes more of them than others, as
    # its memory has run out, would meet their gradients: see share_buffers.  (By its property: the
    # argument's name is another from torch 2.13 on, and the old one warns.)
    wrapped.broadcast_buffers = False
    return wrapped


def share_buffers(model: nn.Module, processes: int) -> None:
    """Gives all processes the leader's buffers that are saved and may change in training.

    Those of a BatchNorm are such; without any nothing is sent.  What the processes make in parts,
    as the memory of streams, is put together (`CarriedMemory.share`).  All processes must call it
    equally often: each does at every step and evaluation.

    Args:
      model: that is trained.
      processes: that train together.
    """
    if processes == 1:
        return
    for module in model.modules():
        if isinstance(module, CarriedMemory):
            module.share(dist.all_reduce)
            continue
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set:
                dist.broadcast(buffer, src=0)


def layers_of(model: nn.Module) -> Iterator[nn.Module]:
    """Yields the layers of a model: the members of its ModuleLists, outermost ones."""
    for child in model.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        else:
            yield from layers_of(child)


def compiled_layers(model: nn.Module) -> list[CompiledLayer]:
    """Returns what stands for the layers of a model that are compiled."""
    found = []
    for layer in layers_of(model):
        forward: object = layer.forward
        if isinstance(forward, CheckpointedLayer):
            forward = forward.inner
        if isinstance(forward, CompiledLayer):
            found.append(forward)
    return found


def is_sharded(network: nn.Module) -> bool:
    """Whether each process holds a part of the weights: then every pass exchanges them."""
    return isinstance(network, FSDPModule)


def exchanges_gradients(network: nn.Module) -> bool:
    """Whether a backward pass by itself averages gradients over processes."""
    return isinstance(network, DistributedDataParallel | FSDPModule)


def average_gradients(model: nn.Module, processes: int) -> None:
    """Averages the gradients of a plain model over processes; all of them must call it.

    What no process has used has no gradient afterwards either; what some have not used counts as
    zero there.  Gradients of a kind go together, in buffers of at most `_BUFFER` numbers.

    Args:
      model: in each process, with its own gradients.
      processes: that train together.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    device = parameters[0].device
    known = [[p.grad is not None, _is_of_rows(p.grad)] for p in parameters]
    used = torch.tensor(known, dtype=torch.int32, device=device)
    dist.all_reduce(used)
    kinds: dict[torch.dtype, list[list[Tensor]]] = {}
    rows: list[tuple[nn.Parameter, Tensor]] = []
    for parameter, (count, sparse) in zip(parameters, used.tolist(), strict=True):
        if not count:
            continue
        if sparse == count:
            rows.append((parameter, _rows_in_use(parameter)))
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        elif parameter.grad.is_sparse:
            parameter.grad = parameter.grad.to_dense()
        buffers = kinds.setdefault(parameter.dtype, [[]])
        if buffers[-1] and sum(g.numel() for g in buffers[-1]) + parameter.numel() > _BUFFER:
            buffers.append([])
        buffers[-1].append(parameter.grad)
    for gradients in (buffer for buffers in kinds.values() for buffer in buffers):
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        flat /= processes
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))
    for parameter, in_use in rows:  # sparse again, as the optimizer may take no others
        assert parameter.grad is not None
        at, shape = in_use.nonzero().flatten(), parameter.shape
        parameter.grad = torch.sparse_coo_tensor(
            at[None], parameter.grad[at], shape, is_coalesced=True, check_invariants=False
        )


def _is_of_rows(gradient: Tensor | None) -> bool:
    """Whether a gradient is sparse, of whole rows, as that of an Embedding may be."""
    return gradient is not None and gradient.is_sparse and gradient.sparse_dim() == 1


def _rows_in_use(parameter: nn.Parameter) -> Tensor:
    """Returns which rows of a sparse gradient some process has, [rows]."""
    in_use = torch.zeros(len(parameter), dtype=torch.int32, device=parameter.device)
    if parameter.grad is not None:
        in_use[parameter.grad.coalesce().indices()[0]] = 1
    dist.all_reduce(in_use)
    return in_use


def accumulating(network: nn.Module, *, more: bool) -> AbstractContextManager[None]:
    """Returns a context without exchange of gradients if more passes of the step follow.

    Sharded gradients are exchanged in each pass: full ones would not fit.
    """
    if more and isinstance(network, DistributedDataParallel):
        return network.no_sync()
    return nullcontext()


def _check_optimizer(hparams: HParams) -> None:
    if hparams.optimizer not in _FOR_PARTS:
        raise HParamsError(
            f"optimizer={hparams.optimizer} does not update parts of a weight, which is all that a "
            "process has with shard_weights=True. Those that do: "
            f"{', '.join(_FOR_PARTS)}. Set one of them, or shard_weights=False."
        )


def _prepare_layers(model: nn.Module, hparams: HParams, device: torch.device) -> None:
    if hparams.compile:
        if not hparams.pad_batch:
            raise HParamsError(
                "compile=True compiles once for each shape of a batch, and without pad_batch every "
                "batch has its own. Set --hparams=compile=True,pad_batch=True."
            )
        check_compiler(device)
    for layer in layers_of(model):
        layer.__dict__.pop("forward", None)  # of a run before
        if hparams.compile:
            layer.forward = CompiledLayer(layer)
        if hparams.activation_checkpointing:
            layer.forward = CheckpointedLayer(layer)
