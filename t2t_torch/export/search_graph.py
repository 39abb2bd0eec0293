"""A beam search in a graph: the networks of a search, the second of them in a loop."""

from __future__ import annotations

from collections.abc import Mapping

from t2t_torch.export.graph import Graph
from t2t_torch.export.search_network import BEAM, SearchNetworks


def add_search(graph: Graph, networks: SearchNetworks, given: Mapping[str, str]) -> tuple[str, str]:
    """Adds a search and returns what it finds: ids [B, n, T] int64 and scores [B, n] float32.

    Args:
      graph: that the operators are added to.
      networks: of the search.
      given: the features that the model reads, by name.
    """
    begun = graph.inline(networks.first, given)
    kinds = {one.name: one.type.tensor_type for one in networks.step.graph.input}
    carried = [*BEAM, *networks.carried]
    prompt = {"prompt": next(iter(given.values()))} if "prompt" in kinds else {}
    body = graph.body("step")
    number = body.input("number", "int64", [])
    body.input("more", "bool", [])
    shapes = {name: [None] * len(kinds[name].shape.dim) for name in carried}
    now = {name: body.input(name, kinds[name].elem_type, shapes[name]) for name in carried}
    outer = {name: begun[name] for name in ("limits", *networks.kept)}
    after = body.inline(networks.step, {"length": number, **now, **outer, **prompt})
    body.output("more", after["more"], "bool", [])
    for name in carried:
        body.output(name, after[f"next.{name}"], kinds[name].elem_type, shapes[name])
    steps = ("", begun["more"], *(begun[name] for name in carried))
    ends = dict(zip(carried, graph.several(len(carried), "Loop", *steps, body=body), strict=True))
    found = graph.inline(networks.result, {**{name: ends[name] for name in BEAM}, **prompt})
    return found["ids"], found["scores"]
