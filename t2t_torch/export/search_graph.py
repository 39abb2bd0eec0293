"""A beam search in a graph: the networks of a search, the second of them in a loop.

Sentences that are done leave the loop, so that each step is of those alone that go on.  (A loop
within a loop, where only every now and then some leave, was slower for one sentence.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from t2t_torch.export.graph import Graph
from t2t_torch.export.search_network import BEAM, SearchNetworks


class Found(NamedTuple):
    """What a search finds.

    Attributes:
      ids: [B, n, T] int64.
      scores: [B, n] float32.
      begun: the state before the first step, by name.
    """

    ids: str
    scores: str
    begun: Mapping[str, str]


def add_search(graph: Graph, networks: SearchNetworks, given: Mapping[str, str]) -> Found:
    """Adds a search and returns what it finds.

    Args:
      graph: that the operators are added to.
      networks: of the search.
      given: the features that the model reads, by name.
    """
    begun = graph.inline(networks.first, given)
    loop = _Loop(networks)
    values = {name: begun[name] for name in loop.names if name in begun}
    prompt = {"prompt": next(iter(given.values()))} if "prompt" in loop.kinds else {}
    found = loop.add(graph, {**values, **prompt}, begun["going"])
    result = graph.inline(networks.result, {**found, **prompt})
    return Found(result["ids"], result["scores"], begun)


class _Loop:
    """The loop over a search's steps.

    Args:
      networks: of the search.

    Attributes:
      names: of all that a step is given but its number.
      kinds: of each of them, the type of its tensor.
    """

    def __init__(self, networks: SearchNetworks) -> None:
        self._networks = networks
        inputs = networks.step.graph.input
        self.kinds = {one.name: one.type.tensor_type for one in inputs}
        self.names = [name for name in self.kinds if name != "length"]

    def add(self, graph: Graph, values: Mapping[str, str], going: str) -> dict[str, str]:
        """Adds the loop and returns the beam of all sentences, by name.

        Args:
          graph: that the operators are added to.
          values: what the first step is given, by name.
          going: which sentences have a step to do, [B] bool.
        """
        rows = _numbers(graph, going)
        body = graph.body("step")
        number = body.input("number", "int64", [])
        body.input("more", "bool", [])
        now = {name: self._input(body, name) for name in self.names}
        its_rows = body.input("rows", "int64", [None])
        found = {name: self._input(body, name) for name in BEAM}
        after = body.inline(self._networks.step, {"length": number, **now})
        now |= {name: after[f"next.{name}"] for name in (*BEAM, *self._networks.carried)}
        place = body.add("Unsqueeze", its_rows, body.constant([1]))
        for name in BEAM:
            if name.endswith("ids"):  # they have grown by one
                found[name] = body.add("Pad", found[name], body.constant([0] * 5 + [1]))
            found[name] = body.add("ScatterND", found[name], place, now[name])
        left = _numbers(body, after["going"])
        body.output("more", _are_any(body, left), "bool", [])
        for name in self.names:
            self._output(body, name, self._of_sentences(body, name, now[name], left))
        body.output("rows", body.add("Gather", its_rows, left), "int64", [None])
        for name in BEAM:
            self._output(body, name, found[name])
        begun = [self._of_sentences(graph, name, values[name], rows) for name in self.names]
        begun += [rows, *(values[name] for name in BEAM)]
        ends = graph.several(len(begun), "Loop", "", _are_any(graph, rows), *begun, body=body)
        return dict(zip(BEAM, ends[-len(BEAM) :], strict=True))

    def _of_sentences(self, graph: Graph, name: str, value: str, left: str) -> str:
        """Returns what a step is given of some sentences alone, whose numbers are `left`, [R]."""
        networks = self._networks
        axis = networks.axes.get(name) if name in (*networks.carried, *networks.kept) else 0
        return value if axis is None else graph.add("Gather", value, left, axis=axis)

    def _input(self, graph: Graph, name: str) -> str:
        kind = self.kinds[name]
        return graph.input(name, kind.elem_type, [None] * len(kind.shape.dim))

    def _output(self, graph: Graph, name: str, value: str) -> None:
        kind = self.kinds[name]
        graph.output(name, value, kind.elem_type, [None] * len(kind.shape.dim))


def _numbers(graph: Graph, flags: str) -> str:
    """Returns the places of those that are true.  [R] bool -> [R'] int64."""
    return graph.add("Squeeze", graph.add("NonZero", flags), graph.constant([0]))


def _are_any(graph: Graph, numbers: str) -> str:
    """Returns whether there is one.  [R] -> [] bool."""
    return graph.add("Greater", graph.add("Size", numbers), graph.constant(0))
