"""Gradients of a step summed in a fixed order: equal to the last bit for any number of processes.

The N micro-batches of a step are the leaves of a binary tree.  The node (d, r) is the sum of the
leaves r, r + 2^d, r + 2 * 2^d, ... below N, and its children are (d + 1, r) and (d + 1, r + 2^d).
Rank r of w takes every w-th batch, so that of w = 1, 2, 4, ... processes each computes one whole
subtree alone.  For other w it computes several.  Then each process gets a slice of all subtrees'
sums (all-to-all), adds the slices in the order of the tree, and all share the results (all-gather):
for one subtree each, this is as much traffic as that of a ring all-reduce.

In memory are the sums of at most log2(N) + 1 subtrees of each process, because it computes its
micro-batches in the order of the tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from t2t_torch.errors import HParamsError

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.hparam import HParams

Node = tuple[int, int]
"""(depth d, first leaf r): the sum of the leaves r, r + 2^d, ..."""

_BUFFER = 1 << 24  # elements exchanged at once
_FLAG = "--deterministic_world"


def check(hparams: HParams) -> None:
    """Checks that hyperparameters go with a fixed order of sums.

    Raises:
      HParamsError: the weights are sharded; the batches of an evaluation depend on the number of
        processes; or the step has another number of micro-batches, too.
    """
    remedy = f" does not go with {_FLAG}: leave one of them out."
    hparams.refuse(["shard_weights", "stream_length"], remedy)
    if hparams.optimizer_multistep_accumulate_steps > 1:
        hparams.refuse(
            ["optimizer_multistep_accumulate_steps"],
            f": {_FLAG} is the number of micro-batches of a step of all processes. Leave the "
            "hyperparameter out, or set it to 0.",
        )


def leaves_of(node: Node, count: int) -> range:
    """Returns the leaves of a node of a tree of `count` leaves, ascending."""
    return range(node[1], count, 1 << node[0])


def in_order(count: int, node: Node = (0, 0)) -> Iterator[int]:
    """Yields the leaves below a node in the order of the tree, left before right."""
    for child in _children(node, count):
        yield from in_order(count, child)
    if len(leaves_of(node, count)) == 1:
        yield node[1]


def subtrees(owned: set[int], count: int, node: Node = (0, 0)) -> Iterator[Node]:
    """Yields the largest subtrees whose leaves are all in `owned`, left before right."""
    if owned.issuperset(leaves_of(node, count)):
        yield node
        return
    for child in _children(node, count):
        yield from subtrees(owned, count, child)


def _children(node: Node, count: int) -> list[Node]:
    depth, first = node
    if len(leaves_of(node, count)) == 1:
        return []
    return [(depth + 1, first), (depth + 1, first + (1 << depth))]


def add(sums: dict[Node, list[Tensor]], node: Node, values: list[Tensor]) -> None:
    """Adds the values of a node to a partial tree; sums that become complete are joined in place.

    Args:
      sums: values of the complete subtrees; changed.
      node: a node none of whose leaves is in `sums`.
      values: its values, which may be changed.
    """
    depth, first = node
    while depth:
        half = 1 << (depth - 1)
        other = sums.pop((depth, first ^ half), None)
        if other is None:
            break
        torch._foreach_add_(values, other)  # of two numbers: the order does not matter
        depth, first = depth - 1, first % half
    sums[depth, first] = values


class OrderedSum:
    """Sums of the gradients and totals of a step's micro-batches, in a fixed order.

    Args:
      model: the model of each process; not wrapped.
      count: micro-batches of a step, N; not less than the number of processes.
      start: global batch with which this process group begins; rank r takes r, r + w, ... from it.
      world: the training processes.
    """

    def __init__(self, model: nn.Module, count: int, start: int, world: World) -> None:
        self._named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        stored = model.state_dict(keep_vars=True).items()
        self._buffers = [one for one in stored if not isinstance(one[1], nn.Parameter)]
        self._count, self._start, self._world = count, start, world
        self._place = {leaf: place for place, leaf in enumerate(in_order(count))}

    def begin(self, batches: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        """Begins a step, or begins it again; returns its batches in the order of the tree.

        Args:
          batches: (number of the global batch, batch) of this process's micro-batches.
        """
        size, number = self._world.size, batches[0][0]
        first = self._first = number - (number - self._start) % self._count
        self._owned = [
            {j for j in range(self._count) if (first + j - self._start) % size == rank}
            for rank in range(size)
        ]
        self._sums: dict[Node, list[Tensor]] = {}
        self._used = torch.zeros(len(self._named), dtype=torch.int32, device=self._world.device)
        self._totals = torch.zeros(self._count, 4, dtype=torch.float64, device=self._world.device)
        self._totals[sorted(self._owned[self._world.rank])] = torch.nan  # until they are added
        self._versions = [buffer._version for _, buffer in self._buffers]
        return sorted(batches, key=lambda one: self._place[one[0] - first])

    def add(self, number: int, totals: Tensor) -> None:
        """Adds the gradients of a micro-batch, which the parameters hold, and clears them.

        Args:
          number: number of the global batch.
          totals: totals of the micro-batch, [4].

        Raises:
          HParamsError: a gradient is sparse; or the pass changed a buffer of the model.
        """
        values = []
        for index, (name, parameter) in enumerate(self._named):
            gradient, parameter.grad = parameter.grad, None
            if gradient is not None and gradient.is_sparse:
                raise HParamsError(f"{_FLAG}: the gradient of {name} is sparse. Make it dense.")
            self._used[index] |= gradient is not None
            # Not left out: 0 + -0.0 is 0, in any number of processes.
            values.append(torch.zeros_like(parameter) if gradient is None else gradient)
        leaf = number - self._first
        self._totals[leaf] = totals
        depth = max(leaf.bit_length(), (self._count - leaf - 1).bit_length())
        add(self._sums, (depth, leaf), values)
        versions = zip(self._buffers, self._versions, strict=True)
        if changed := [name for (name, buffer), before in versions if buffer._version != before]:
            raise HParamsError(
                f"{_FLAG}: a pass changes the model's buffer {changed[0]}, which then depends on "
                "the batches of one process (as statistics of BatchNorm). Choose a model without "
                "it, or leave the flag out."
            )

    @torch.no_grad()
    def finish(self) -> Tensor:
        """Sets the gradients of all processes' micro-batches; collective.

        A parameter that no micro-batch used keeps no gradient.

        Returns:
          The totals of the step, [4]; NaN if a process has not added all of its micro-batches.
        """
        totals = self._world.sum(self._totals).sum(0)  # zeros are added to each row
        self._world.sum(self._used)
        in_use = [i for i, used in enumerate(self._used.tolist()) if used]
        parameters = [self._named[i][1] for i in in_use]
        sums = {node: [values[i] for i in in_use] for node, values in self._sums.items()}
        self._sums = {}
        if self._world.size == 1:
            results = sums.get((0, 0), [torch.zeros_like(p) for p in parameters])
        else:
            results = self._exchange(parameters, sums)
        for parameter, gradient in zip(parameters, results, strict=True):
            parameter.grad = gradient
        return totals

    def _exchange(
        self, parameters: list[nn.Parameter], sums: dict[Node, list[Tensor]]
    ) -> list[Tensor]:
        """Returns the sums of the whole tree, of the shapes of the parameters."""
        nodes = [list(subtrees(owned, self._count)) for owned in self._owned]
        results: dict[int, Tensor] = {}
        for places in _buffers(parameters):
            sizes = [parameters[i].numel() for i in places]
            like = parameters[places[0]]
            size, each = self._world.size, -(-sum(sizes) // self._world.size)
            sent = like.new_zeros(size, max(map(len, nodes)), each)
            for index, node in enumerate(nodes[self._world.rank]):
                if node in sums:
                    flat = torch.cat([sums[node][i].flatten() for i in places])
                    padding = flat.new_zeros(size * each - len(flat))
                    sent[:, index] = torch.cat([flat, padding]).view(size, each)
            received = torch.empty_like(sent)
            dist.all_to_all_single(received, sent)
            tree: dict[Node, list[Tensor]] = {}
            for rank, of_rank in enumerate(nodes):
                for index, node in enumerate(of_rank):
                    add(tree, node, [received[rank, index]])
            parts = [torch.empty_like(received[0, 0]) for _ in range(size)]
            dist.all_gather(parts, tree[0, 0][0].contiguous())
            flat = torch.cat(parts)[: sum(sizes)]
            for i, part in zip(places, torch.split(flat, sizes), strict=True):
                results[i] = part.view_as(parameters[i]).clone()
        return [results[i] for i in range(len(parameters))]


def _buffers(parameters: list[nn.Parameter]) -> Iterator[list[int]]:
    """Yields the places of parameters of one type with at most `_BUFFER` elements, or of one."""
    places: list[int] = []
    by_type = sorted(range(len(parameters)), key=lambda i: str(parameters[i].dtype))
    for i in by_type:
        filled = sum(parameters[j].numel() for j in places) + parameters[i].numel()
        if places and (filled > _BUFFER or parameters[places[0]].dtype != parameters[i].dtype):
            yield places
            places = []
        places.append(i)
    if places:
        yield places
