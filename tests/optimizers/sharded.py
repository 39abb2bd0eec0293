"""Trains a small net as one of the processes that torchrun started, and alone; the leader writes
how far apart the weights end, and the gradients' norms, by optimizer.

    torchrun --nproc-per-node=2 tests/optimizers/sharded.py differences.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from t2t_torch import registry
from t2t_torch.distributed import process_group
from t2t_torch.distributed.process_group import join_world
from t2t_torch.hparam import HParams
from t2t_torch.optim.gradient import GradientFinisher, WeightAverage
from t2t_torch.optim.parameter_groups import parameter_groups

ROWS = 8


class Net(nn.Module):
    """Two layers and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])
        self.modalities = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, 6] -> [B, 5]."""
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.modalities(x)


def train(name: str, *, shard: bool) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Does three steps; returns the gradients' norms and the whole averaged weights."""
    torch.manual_seed(0)
    model, size, rank = Net(), dist.get_world_size(), dist.get_rank()
    hparams = HParams().parse(f"optimizer={name},weight_decay=0.1,clip_grad_norm=0.5,ema_decay=0.9")
    if shard:
        mesh = process_group.hold_mesh(init_device_mesh("cpu", (size,)))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = registry.optimizer(name)(parameter_groups(model, hparams), hparams)
    finish = GradientFinisher.of(hparams, model, optimizer)
    average = WeightAverage.of(hparams, model)
    assert average is not None
    norms = []
    for step in range(3):
        rows = torch.randn(ROWS, 6, generator=torch.Generator().manual_seed(step))
        mine = rows.chunk(size)[rank] if shard else rows
        model(mine).square().sum().backward()
        norms.append(float(finish(torch.tensor(float(ROWS)), size if shard else 1)))
        for group in optimizer.param_groups:
            group["lr"], group["updates"] = 0.01, step
        if all(group.get("fused") for group in optimizer.param_groups):
            optimizer.found_inf = torch.tensor(0.0)
        optimizer.step()
        optimizer.zero_grad()
        average.update(model, step + 1)
    with average.applied(model):
        weights = {n: p.full_tensor() if shard else p for n, p in model.named_parameters()}
        return norms, {name: weight.detach().clone() for name, weight in weights.items()}


def main(file: Path) -> None:
    """Writes {optimizer: [difference of norms, of weights]}."""
    differences = {}
    with join_world(use_gpu=False) as world:
        for name in registry.list_names("optimizer"):
            norms, weights = train(name, shard=False)
            other_norms, others = train(name, shard=True)
            differences[name] = [
                max(abs(a - b) for a, b in zip(norms, other_norms, strict=True)),
                max(float((weights[n] - others[n]).abs().max()) for n in weights),
            ]
        if world.leads:
            file.write_text(json.dumps(differences))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
