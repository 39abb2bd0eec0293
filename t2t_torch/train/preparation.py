"""Passes before the first step, which change neither weights nor the position in the data."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from t2t_torch.distributed import network
from t2t_torch.loss import total_loss

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.train.estimator import TrainState
    from t2t_torch.train.task import Batch


@contextlib.contextmanager
def _unchanged_buffers(model: nn.Module) -> Iterator[None]:
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    yield
    for buffer, before in buffers:
        buffer.copy_(before)


def _pass(run: TrainState, batch: Batch) -> None:
    """Runs the network forward and backward, and drops the gradients."""
    on_device = run.task.batches.to_device(batch, run.device)
    with run.precision.autocast():
        loss = total_loss(run.network(on_device))
    loss.sum.backward()  # type: ignore[no-untyped-call]
    run.optimizer.zero_grad()


def order_buckets(run: TrainState) -> None:
    """Lets DistributedDataParallel order its buckets, which it does after its first pass.

    The order of the sums of more than two gradients depends on it: without this, the first step
    after a resume would differ in its last bits from that of an uninterrupted run.

    Args:
      run: a new, unused training state.
    """
    is_bucketed = isinstance(run.network, DistributedDataParallel)
    if run.processes > 2 and is_bucketed:
        run.network.train()
        with _unchanged_buffers(run.model):
            _pass(run, next(run.source.one_of_each_shape()))


def compile_shapes(
    run: TrainState, world: World, stop: object = False, say: Callable[[str], None] = print
) -> None:
    """Runs the network forward and backward once for each batch shape of the data.

    Weights, buffers and the position in the data do not change.  Afterwards no layer is compiled
    any more: a batch of another shape, for example a split one, runs uncompiled.  Does nothing if
    no layer is compiled.

    Args:
      run: a new, unused training state.
      world: the training processes; all stop if one of them does.
      stop: true once a signal was received; checked before each shape, which may take half a
        minute.
      say: prints the duration.
    """
    layers = network.compiled_layers(run.model)
    if not layers:
        return
    started, shapes = time.monotonic(), 0
    run.network.train()
    with _unchanged_buffers(run.model):
        for batch in run.source.one_of_each_shape():
            if world.maximum(int(bool(stop))):
                break
            _pass(run, batch)
            shapes += 1
        else:
            for layer in layers:
                layer.close()
    say(f"compiled {shapes} shapes of a batch in {time.monotonic() - started:.0f} s")
