"""What is done before the first step of a compiled network: each shape is compiled."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from t2t_torch.compute.network import compiled_layers

if TYPE_CHECKING:
    from t2t_torch.compute.distributed import World
    from t2t_torch.train.learner import Learner


def warm_up(
    run: Learner, world: World, stop: object = False, say: Callable[[str], None] = print
) -> None:
    """Runs the network once forward and backward for each shape that the data's batches have.

    Nothing moves by it: neither weights nor buffers nor the position in the data.  Afterwards no
    layer is compiled any more: a batch of another shape, as one that was split, runs without.
    Does nothing if no layer is compiled.

    Args:
      run: made, not yet used.
      world: the processes that train together; all stop if one of them does.
      stop: true once a signal has come; asked before each shape, as one may take half a minute.
      say: is told how long it took.
    """
    layers = compiled_layers(run.model)
    if not layers:
        return
    started, shapes = time.monotonic(), 0
    buffers = [(buffer, buffer.clone()) for buffer in run.model.buffers()]
    run.model.train()
    for batch in run.source.one_of_each_shape():
        if world.maximum(int(bool(stop))):
            break
        on_device = run.task.to_device(batch, run.device)
        with run.precision.autocast():
            loss = run.task.loss(run.network, on_device)
        loss.sum.backward()  # type: ignore[no-untyped-call]
        run.optimizer.zero_grad()
        shapes += 1
    else:
        for layer in layers:
            layer.close()
    for buffer, before in buffers:
        buffer.copy_(before)
    say(f"compiled {shapes} shapes of a batch in {time.monotonic() - started:.0f} s")
