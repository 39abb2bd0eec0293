"""Scale, computed: efficiency on many ranks, and memory of a rank, from formulas alone.

    python benchmarks/scale_model.py --cpu_seconds=0.1

A step is the computation, and that part of the exchange that it does not cover:

- DDP: 2(n-1)/n of the gradient's bytes, 2(n-1) messages one after another for each bucket of 25
  MiB.  The last backward pass (2/3 of a micro-batch) covers all buckets but the last.
- FSDP: 3(n-1)/n (gloo: 4) for each micro-batch, 3(n-1) messages a layer; all but those of one
  layer are covered.
- ordered (--deterministic_world): 2(n-1)/n in buffers of 2^24 elements, after the backward pass.

The totals of each step take 2(n-1) messages more, and no step is shorter than the 2(n-1) small
messages of `Agreement`.  All are rings; NCCL's trees wait for fewer messages.
Where 8 GPUs are a node, they reduce within it (NVLink), and each exchanges an eighth with other
nodes; the all-to-all of `ordered` exchanges all.  Nothing here is measured but --cpu_seconds; the
seconds of a GPU follow from an assumed MFU.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from typing import TYPE_CHECKING, Any

import torch
from report import print_header, print_table
from training_gpu import operations

from t2t_torch import registry
from t2t_torch.distributed.network import layers_of
from t2t_torch.features import Features, Text
from t2t_torch.text.encoder import IntegerEncoder

if TYPE_CHECKING:
    from torch import nn

VOCAB, TOKENS, LENGTH, PEAK = 32_768, 25_600, 64, 989e12
RANKS = (8, 64, 256, 1024)
BUCKET, BUFFER, FLOAT = 25 * 2**20, 4 * 2**24, 4  # bytes: of DDP, of ordered_sum.py, of a weight
BILLION = {"hidden_size": 2048, "filter_size": 8192, "num_hidden_layers": 8, "num_heads": 32}
_BACKWARD = 2 / 3


@dataclasses.dataclass(frozen=True)
class Link:
    """Bytes/s and seconds of a message between nodes and, where a node has several ranks, in it.

    `small` is the seconds of a message of gloo from rank to rank, by TCP, the mean of all.
    """

    name: str
    bandwidth: float
    latency: float
    small: float
    ranks: int = 1  # of a node, each with a link of its own
    within: float = math.inf

    def exchange(self, sent: float, messages: float, n: int, *, joined: bool = True) -> float:
        """Returns seconds, for `sent` bytes times (n-1)/n in n-1 times so many messages.

        Args:
          sent: bytes.
          messages: that follow one another, for each other node.
          n: ranks.
          joined: True if the ranks of a node send their parts of it to other nodes.
        """
        nodes = max(n // self.ranks, 1)
        inside = sent * (1 - 1 / self.ranks) / self.within
        parts = self.ranks if joined else 1
        between = sent / parts * (1 - 1 / nodes) / self.bandwidth
        return inside + between + messages * (nodes - 1) * self.latency


LINKS = (
    Link("1 Gbit/s", 125e6, 50e-6, 50e-6),
    Link("25 Gbit/s", 3.125e9, 30e-6, 30e-6),
    Link("8 x NVLink, 400 Gbit/s each", 50e9, 5e-6, 15e-6, 8, 450e9),
)


@dataclasses.dataclass(frozen=True)
class Job:
    """A training: seconds and bytes of the gradients of a micro-batch, layers, micro-batches.

    `sharded` is how many times (n-1)/n of the bytes FSDP sends: gloo's reduce-scatter is an
    all-reduce, so 4 instead of 3.
    """

    name: str
    seconds: float
    size: int
    layers: int
    sharded: int = 3
    micro: int = 1

    def efficiency(self, way: str, link: Link, n: int) -> float:
        """Returns the share of a step of n ranks that is computation.

        Args:
          way: DDP, ordered or FSDP.
          link: between the ranks.
          n: ranks.
        """
        compute = self.micro * self.seconds
        if way == "FSDP":
            whole = link.exchange(self.sharded * self.size, 3 * (self.layers + 1), n)
            late = self.micro * max(whole / (self.layers + 1), whole - self.seconds)
        elif way == "DDP":
            buckets = math.ceil(self.size / BUCKET)
            whole = link.exchange(2 * self.size, 2 * buckets, n)
            late = max(whole / buckets, whole - _BACKWARD * self.seconds)
        else:
            buffers = math.ceil(self.size / BUFFER)
            late = link.exchange(self.size, buffers, n, joined=False)
            late += link.exchange(self.size, buffers, n)
        step = compute + late + link.exchange(0.0, 2, n)
        return compute / max(step, 2 * (n - 1) * link.small)


def model_of(name: str, **changes: object) -> tuple[nn.Module, Any]:
    """Returns a Transformer without memory for its weights, and its hparams."""
    hparams = registry.hparams(name).replace(shared_embedding_and_softmax_weights=True, **changes)
    text = Text(IntegerEncoder(VOCAB - 2))
    features = Features({"inputs": text}, {"targets": text})
    with torch.device("meta"):
        return registry.model("transformer")(hparams, features), hparams


def main() -> None:
    """Prints the computed tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpu_seconds", type=float, required=True, help="of scale.py's step")
    parser.add_argument("--cpu_weights", type=int, default=3_690_496, help="of scale.py's model")
    parser.add_argument("--mfu", default="0.24,0.37", help="assumed: of base, of big")
    flags = parser.parse_args()
    print_header()
    jobs = [Job("CPU, small", flags.cpu_seconds, FLOAT * flags.cpu_weights, 4, 4)]
    mfu = dict(zip(("base", "big"), map(float, flags.mfu.split(",")), strict=True))
    memory = []
    for name in ("base", "big", "billion"):
        changes = BILLION if name == "billion" else {}
        model, hparams = model_of(f"transformer_{name if name in mfu else 'big'}", **changes)
        weights = sum(p.numel() for p in model.parameters())
        layers = [sum(p.numel() for p in layer.parameters()) for layer in layers_of(model)]
        if name in mfu:
            work = operations(model, hparams, TOKENS, LENGTH, VOCAB)
            seconds = work / (mfu[name] * PEAK)
            print(f"{name}: {weights:,} weights, {work:.3g} operations, {1e3 * seconds:.1f} ms")
            jobs.append(Job(f"H100, {name}", seconds, FLOAT * weights, len(layers)))
        passing = FLOAT * (2 * (weights - sum(layers)) + 3 * max(layers))
        for n in (1, 8, 64, 512):
            held, full = 4 * FLOAT * weights / n, 4 * FLOAT * weights
            transient = passing if n > 1 else 0
            row = [full, held, transient, held + transient]
            figures = [f"{value / 1e9:.2f}" for value in row]
            memory.append([f"{name}, {weights:,} weights, n = {n}", *figures])
    print()
    jobs += [dataclasses.replace(job, name=f"{job.name}, 16 micro", micro=16) for job in jobs]
    rows = [
        [f"{job.name}, {way}, {link.name}"]
        + [f"{100 * job.efficiency(way, link, n):.1f} %" for n in RANKS]
        for job in jobs
        for way in ("DDP", "ordered", "FSDP")
        for link in (LINKS[:2] if job.name.startswith("CPU") else LINKS)
    ]
    print_table(["efficiency", *(f"{n:,} ranks" for n in RANKS)], rows)
    print_table(["GB", "DDP", "FSDP holds", "in a pass", "FSDP, sum"], memory)


if __name__ == "__main__":
    main()
