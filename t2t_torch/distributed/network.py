"""Training network: compiled or checkpointed layers, and data-parallel processes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from t2t_torch.distributed import ordered_sum, process_group
from t2t_torch.errors import HParamsError
from t2t_torch.layers.recurrent import CarriedMemory
from t2t_torch.loss import total_loss

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.hparam import HParams


class CheckpointedLayer:
    """Forward pass of a layer, recomputed in the backward pass with the same dropout.

    Attributes:
      inner: the wrapped function: the layer's own forward pass, or the compiled one.

    Args:
      layer: the layer whose `forward` is replaced.
    """

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer
        self.inner = layer.forward

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Runs the layer; without recomputation in evaluation."""
        if self._layer.training and torch.is_grad_enabled():
            return checkpoint(self.inner, *inputs, use_reentrant=False, **named)
        return self.inner(*inputs, **named)


_BACKEND = "inductor"  # torch's default
_MANY = 10_000  # compiled variants per function; torch's default limit is 8


class CompiledLayer:
    """Forward pass of a layer, compiled for a fixed set of shapes.

    All layers of a class share their compiled code.  After `close`, unknown shapes run
    uncompiled, so no step waits for the compiler.

    Args:
      layer: the layer whose `forward` is replaced.
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
        """Runs the layer; uncompiled in evaluation, and for unknown shapes after `close`."""
        if not (self._layer.training and torch.is_grad_enabled()):
            return self._forward(*inputs)
        signature = tuple(
            (each.shape, each.dtype) if isinstance(each, torch.Tensor) else each
            for each in tree_leaves(inputs)
        )
        if self._open:
            self._known.add(signature)
        elif signature not in self._known:
            return self._forward(*inputs)
        return self._compiled(*inputs)

    def close(self) -> None:
        """Stops compiling new shapes."""
        self._open = False


def check_compiler(device: torch.device) -> None:
    """Checks that torch can compile, and raises its limit on the number of shapes.

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


# Their state has the shapes of the weights, so checkpoints are sharded alike, and their products
# are not rounded to bfloat16 (tests/optimizers/test_sharded_weights.py).
_FOR_PARTS = "adam true_adam multistep_adam adam_w adagrad lamb momentum radam rms_prop sgd".split()

_BUFFER = 1 << 24  # elements averaged at once


def network(
    objective: nn.Module, hparams: HParams, world: World, *, in_order: bool = False
) -> nn.Module:
    """Returns the network for training: an objective whose gradients are averaged.

    Layers (the members of ModuleLists) are compiled and checkpointed if the hparams say so; this
    affects training only, and neither names nor values of weights.  The backward pass averages
    gradients over all processes.

    Args:
      objective: computes the losses of a model, or is a model that does; on its device, with its
        weights.  With `shard_weights` parameters become DTensors: create the optimizer afterwards.
      hparams: compile, activation_checkpointing, shard_weights.
      world: the group of training processes.
      in_order: True if gradients are summed after the backward pass: see `ordered_sum`.

    Raises:
      HParamsError: compile without fixed shapes or without a compiler; shard_weights with an
        optimizer that needs full weights.
    """
    _prepare_layers(objective, hparams, world.device)
    if in_order:
        ordered_sum.check(hparams)
        return replicate(objective, world)
    if world.size == 1:
        return objective
    if hparams.shard_weights:
        if hparams.optimizer not in _FOR_PARTS:
            raise HParamsError(
                f"optimizer={hparams.optimizer} does not update parts of a weight, which is all "
                "that a process has with shard_weights=True. Those that do: "
                f"{', '.join(_FOR_PARTS)}. Set one of them, or shard_weights=False."
            )
        mesh = process_group.hold_mesh(init_device_mesh(world.device.type, (world.size,)))
        for layer in layers_of(objective):
            fully_shard(layer, mesh=mesh)
        # The root is resharded after each pass, too: between passes the optimizer and the weight
        # average must see sharded parameters.
        fully_shard(objective, mesh=mesh, reshard_after_forward=True)
        return objective
    # Overlaps the reduction of gradient buckets with the backward pass.
    wrapped = DistributedDataParallel(
        objective,
        device_ids=[world.device] if world.device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        # With several problems a batch may belong to one: the other weights get no gradient.
        find_unused_parameters=getattr(objective, "has_unused", False),
    )
    # Otherwise each pass would broadcast the buffers, and a process that runs more passes after an
    # out-of-memory error would mix them up with gradients: see share_buffers.  (Set as a property,
    # because the argument is renamed in torch 2.13 and the old name warns.)
    wrapped.broadcast_buffers = False
    return wrapped


def replicate(model: nn.Module, world: World) -> nn.Module:
    """Returns the model with the leader's weights in all processes, not wrapped.

    For a model whose gradients are averaged after the backward pass: `average_gradients`.
    """
    if world.size > 1:
        for parameter in model.parameters():
            dist.broadcast(parameter.data, src=0)
    return model


def share_buffers(model: nn.Module, processes: int) -> None:
    """Copies the main process's persistent buffers that may change in training to all processes.

    Examples are BatchNorm statistics; without such buffers nothing is sent.  Buffers that are
    distributed over processes, such as the memory of streams, are merged (`CarriedMemory.share`).
    All processes must call this equally often, which they do at every step and evaluation.

    Args:
      model: the trained model.
      processes: number of training processes.
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
    """Yields the layers of a model: the outermost members of its ModuleLists."""
    for child in model.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        else:
            yield from layers_of(child)


def compiled_layers(model: nn.Module) -> list[CompiledLayer]:
    """Returns the compiled layers of a model."""
    found = []
    for layer in layers_of(model):
        forward: object = layer.forward
        if isinstance(forward, CheckpointedLayer):
            forward = forward.inner
        if isinstance(forward, CompiledLayer):
            found.append(forward)
    return found


def is_sharded(network: nn.Module) -> bool:
    """Returns whether weights are sharded over processes, so that every pass exchanges them."""
    return isinstance(network, FSDPModule)


def exchanges_gradients(network: nn.Module) -> bool:
    """Returns whether the backward pass itself averages gradients over processes."""
    return isinstance(network, DistributedDataParallel) or is_sharded(network)


def average_gradients(model: nn.Module, processes: int) -> None:
    """Averages the gradients of a plain model over processes; all processes must call it.

    A parameter unused in every process keeps no gradient; one unused in some counts as zero there.
    Gradients of the same type are sent together, in buffers of at most `_BUFFER` elements.

    Args:
      model: the model of each process, with its own gradients.
      processes: number of training processes.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    device = parameters[0].device
    known = [  # whether it has a gradient, and whether that has rows, as an Embedding's may
        [p.grad is not None, p.grad is not None and p.grad.is_sparse and p.grad.sparse_dim() == 1]
        for p in parameters
    ]
    used = torch.tensor(known, dtype=torch.int32, device=device)
    dist.all_reduce(used)
    kinds: dict[torch.dtype, list[list[Tensor]]] = {}
    rows: list[tuple[nn.Parameter, Tensor]] = []
    for parameter, (count, sparse) in zip(parameters, used.tolist(), strict=True):
        if not count:
            continue
        if sparse == count:
            in_use = torch.zeros(len(parameter), dtype=torch.int32, device=device)
            if parameter.grad is not None:
                in_use[parameter.grad.coalesce().indices()[0]] = 1
            dist.all_reduce(in_use)
            rows.append((parameter, in_use))  # the rows that any process uses
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
    for parameter, in_use in rows:  # sparse again, as some optimizers require it
        assert parameter.grad is not None
        at, shape = in_use.nonzero().flatten(), parameter.shape
        parameter.grad = torch.sparse_coo_tensor(
            at[None], parameter.grad[at], shape, is_coalesced=True, check_invariants=False
        )


def accumulating(network: nn.Module, *, more: bool) -> AbstractContextManager[None]:
    """Returns a context without gradient exchange if more passes of the step follow.

    Sharded gradients are exchanged in every pass, because full ones would not fit into memory.
    """
    if more and isinstance(network, DistributedDataParallel):
        return network.no_sync()
    return nullcontext()


def prepare(
    run: Any, world: World, stop: object = False, say: Callable[[str], None] = print
) -> None:
    """Runs passes that change neither weights and buffers nor the position in the data.

    One lets DistributedDataParallel order its buckets, as it does after its first pass: the order
    of the sums of more than two gradients depends on it, and the first step after a resume would
    differ in its last bits.  Layers are compiled by one pass for each batch shape of the data.
    Afterwards none is compiled any more: other shapes, as of a split batch, run uncompiled.

    Args:
      run: a new, unused `TrainState`.
      world: the training processes; all stop if one of them does.
      stop: true once a signal was received; checked before each shape, which may take half a
        minute.
      say: prints the duration of the compilation.
    """
    layers = compiled_layers(run.model)
    is_bucketed = isinstance(run.network, DistributedDataParallel) and world.size > 2
    started, shapes = time.monotonic(), 0
    buffers = [(buffer, buffer.clone()) for buffer in run.model.buffers()]
    for batch in run.source.one_of_each_shape() if layers or is_bucketed else ():
        if world.maximum(int(bool(stop))):
            break
        run.network.train()
        on_device = run.task.batches.to_device(batch, run.device)
        with run.precision.autocast():
            loss = total_loss(run.network(on_device))
        loss.sum.backward()  # type: ignore[no-untyped-call]
        run.optimizer.zero_grad()
        shapes += 1
        if not layers:
            break
    else:
        for layer in layers:
            layer.close()
    for buffer, before in buffers:
        buffer.copy_(before)
    if layers:
        say(f"compiled {shapes} shapes of a batch in {time.monotonic() - started:.0f} s")
    elif run.task.hparams.compile:
        say("compile=True has no effect: this model has no layers that torch compiles")


def _prepare_layers(model: nn.Module, hparams: HParams, device: torch.device) -> None:
    if hparams.compile:
        if not hparams.pad_batch:
            raise HParamsError(
                "compile=True compiles once for each shape of a batch, and without pad_batch every "
                "batch has its own. Set --hparams=compile=True,pad_batch=True."
            )
        check_compiler(device)
    for layer in layers_of(model):
        layer.__dict__.pop("forward", None)  # left by an earlier run
        # Dynamo cannot trace recurrent networks, whose kernels torch has already.
        if hparams.compile and not any(isinstance(one, nn.RNNBase) for one in layer.modules()):
            layer.forward = CompiledLayer(layer)
        if hparams.activation_checkpointing:
            layer.forward = CheckpointedLayer(layer)
