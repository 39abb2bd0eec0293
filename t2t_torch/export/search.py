"""Beam search in an ONNX graph: its networks, decode state, attention and Loop.

Sentences that are done leave the loop, so that each step is of those alone that go on.  (A loop
within a loop, where only every now and then some leave, was slower for one sentence.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import onnx
import torch
from torch import Tensor, nn

from t2t_torch.decode.beam import (
    Beam,
    candidates_of,
    first_beam,
    force,
    grow,
    is_done,
    result_of,
    without_prefix,
)
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.word_alignment import asked_layers, watched_layers
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import ExportError
from t2t_torch.export.graph import Graph
from t2t_torch.export.network import NamedNetwork, exported, frozen, replace_lstms
from t2t_torch.layers.attention import KeyValueCache
from t2t_torch.model import T2TModel
from t2t_torch.text.encoder import EOS, PAD

# A decode's state as tensors by name, and back: what a graph's loop hands from step to step.


_FIXED = (bool, int, float, str, type(None))


def tensors_of(state: Any, name: str = "state") -> dict[str, Tensor]:
    """Returns all tensors of a state by their place in it: "state.caches.0.keys".

    Args:
      state: of a model; made of data classes, named tuples, lists and tuples.
      name: of the whole.

    Raises:
      ExportError: something in it is of another kind; names it.
    """
    if isinstance(state, Tensor):
        return {name: state}
    if isinstance(state, _FIXED):
        return {}
    if isinstance(state, KeyValueCache):
        whole = state.length == state.keys.size(0)  # as in a graph
        filled = (state.keys, state.values) if whole else state.filled
        return dict(zip((f"{name}.keys", f"{name}.values"), filled, strict=True))
    return {
        place: tensor
        for key, part in _parts(state, name)
        for place, tensor in tensors_of(part, f"{name}.{key}").items()
    }


def with_tensors(state: Any, tensors: Mapping[str, Tensor], name: str = "state") -> Any:
    """Returns a state of the same form, with other tensors; see `tensors_of`."""
    if isinstance(state, Tensor):
        return tensors[name]
    if isinstance(state, _FIXED):
        return state
    if isinstance(state, KeyValueCache):
        keys, values = tensors[f"{name}.keys"], tensors[f"{name}.values"]
        return KeyValueCache(keys, values, keys.size(0))
    parts = {key: with_tensors(part, tensors, f"{name}.{key}") for key, part in _parts(state, name)}
    if dataclasses.is_dataclass(state) and not isinstance(state, type):
        return dataclasses.replace(state, **parts)
    if hasattr(state, "_fields"):
        return type(state)(**parts)
    return type(state)(parts.values())


def _parts(state: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yields what a state is made of, by name."""
    if dataclasses.is_dataclass(state) and not isinstance(state, type):
        yield from ((field.name, getattr(state, field.name)) for field in dataclasses.fields(state))
    elif isinstance(state, tuple) and hasattr(state, "_fields"):
        yield from zip(state._fields, state, strict=True)
    elif isinstance(state, list | tuple):
        yield from ((str(number), part) for number, part in enumerate(state))
    else:
        raise ExportError(
            f"{name} of a decode's state is a {type(state).__name__}, where tensors in data "
            "classes, named tuples, lists and tuples were expected: a graph hands on tensors alone."
        )


class Axes(NamedTuple):
    """What the axes of a tensor of a state stand for.

    Attributes:
      rows: the axis of rows, K of them for each sentence; None if there is none.
      batch: the axis of sentences, for a tensor that all hypotheses of a sentence read.
      varying: other axes whose sizes vary, as that of time does.
    """

    rows: int | None
    batch: int | None
    varying: tuple[int, ...]


def axes_of(
    name: str, shape: tuple[int, ...], others: tuple[tuple[int, ...], ...], batches: tuple[int, int]
) -> Axes:
    """Returns what the axes of a tensor are, by how its shape varies.

    Args:
      name: of the tensor, for errors.
      shape: of it with `batches[0]` sentences.
      others: with `batches[1]` sentences; a step later; with longer inputs.
      batches: two numbers of sentences, neither a multiple of the other.

    Raises:
      ExportError: the number of dimensions varies, or a size with the batch in another way.
    """
    if any(len(other) != len(shape) for other in others):
        raise ExportError(f"{name} of a decode's state has not always as many axes: {shape}.")
    wider, *longer = others
    rows = batch = None
    for axis, (size, more) in enumerate(zip(shape, wider, strict=True)):
        if size == more:
            continue
        if size * batches[1] != more * batches[0] or rows is not None or batch is not None:
            raise ExportError(
                f"axis {axis} of {name} of a decode's state has {size} places for {batches[0]} "
                f"sentences and {more} for {batches[1]}: one axis that grows as they do was "
                "expected."
            )
        if size == batches[0]:
            batch = axis
        else:
            rows = axis
    varying = tuple(
        axis
        for axis, size in enumerate(shape)
        if axis not in (rows, batch) and any(other[axis] != size for other in longer)
    )
    return Axes(rows, batch, varying)


# What a model's state looks like, found by taking a few steps.


BATCHES = (2, 3)
"""Sentences of the examples; 1 would become part of the graph."""

STEPS = 3
"""After which the state is as a step's example."""

_LONGER = 2  # ids by which the inputs of one example are longer


class StateProbe:
    """A model's state after a few steps.

    Args:
      model: that generates.
      hypotheses: of each sentence.
      batch_of: gives an example of so many rows, each of so many ids at least.

    Attributes:
      hypotheses: as given.
      state: after some steps, for its form.
      tensors: of it.
      axes: of each of them.
      carried: the names of those that a step changes.
      kept: those of the others.
    """

    def __init__(
        self, model: Any, hypotheses: int, batch_of: Callable[[int, int], dict[str, Tensor]]
    ) -> None:
        self.hypotheses = hypotheses
        few, many = BATCHES
        self.state = self._after(model, batch_of(few, STEPS), STEPS)
        self.tensors = tensors_of(self.state)
        others = [
            self._after(model, batch_of(many, STEPS), STEPS),
            self._after(model, batch_of(few, STEPS), STEPS + 1),
            self._after(model, batch_of(few, STEPS + _LONGER), STEPS),
        ]
        shapes = [
            {name: tuple(tensor.shape) for name, tensor in tensors_of(state).items()}
            for state in others
        ]
        self.axes = {
            name: axes_of(name, tuple(tensor.shape), tuple(each[name] for each in shapes), BATCHES)
            for name, tensor in self.tensors.items()
        }
        given = with_tensors(self.state, self.tensors)
        rows = torch.arange(few * hypotheses)
        _, after = model.step(torch.zeros_like(rows), given)
        found = tensors_of(after.reorder(rows))
        self.carried = [name for name in self.axes if found[name] is not self.tensors[name]]
        self.kept = [name for name in self.axes if name not in self.carried]

    def _after(self, model: Any, batch: dict[str, Tensor], steps: int) -> Any:
        state = model.encode(batch).expand(self.hypotheses)
        rows = len(next(iter(batch.values()))) * self.hypotheses
        for _ in range(steps):
            _, state = model.step(torch.full((rows,), EOS), state)
        return state

    @property
    def example(self) -> dict[str, Tensor]:
        """The tensors as a step of a graph is given them."""
        return {name: self.split(name, tensor) for name, tensor in self.tensors.items()}

    @property
    def varying(self) -> dict[str, tuple[int, ...]]:
        """Of each tensor of `example` the axes whose sizes vary."""
        return {name: self._varying(axes) for name, axes in self.axes.items()}

    @property
    def sentences(self) -> dict[str, int]:
        """Of each tensor of `example` the axis of sentences, where it has one."""
        either = {n: a.batch if a.rows is None else a.rows for n, a in self.axes.items()}
        return {name: axis for name, axis in either.items() if axis is not None}

    def state_of(self, given: dict[str, Tensor]) -> Any:
        """Returns the state whose split tensors are given, among others, by name."""
        return with_tensors(
            self.state, {name: self.joined(name, given[name]) for name in self.axes}
        )

    def split(self, name: str, tensor: Tensor) -> Tensor:
        """Returns a tensor whose rows have two axes, of sentences and of their hypotheses."""
        axis = self.axes[name].rows
        if axis is None:
            return tensor
        rows = tensor.size(axis) // self.hypotheses
        shape = (*tensor.shape[:axis], rows, self.hypotheses, *tensor.shape[axis + 1 :])
        # ONNX cannot reshape what has no elements, as a cache has none at first.
        return tensor.reshape(shape) if tensor.numel() else tensor.new_zeros(shape)

    def joined(self, name: str, tensor: Tensor) -> Tensor:
        """Undoes `split`."""
        axis = self.axes[name].rows
        return tensor if axis is None else tensor.flatten(axis, axis + 1)

    @staticmethod
    def _varying(axes: Axes) -> tuple[int, ...]:
        of_batch = [axis for axis in (axes.rows, axes.batch) if axis is not None]
        behind = [axis + (axes.rows is not None and axis > axes.rows) for axis in axes.varying]
        return tuple(sorted([*of_batch, *behind]))


# What reads a finished output once more, and tells what each of its ids attends to.


class AttentionNetwork(NamedTuple):
    """One step of reading an output.

    Attributes:
      step: "ids" [B, n] that are read and the state in; "attention" [B, n, S] while they are, and
        those tensors of the state that change, as "next." and their names, out.
      carried: the names of the latter.
      kept: those of the others, which a step reads.
      axes: by tensor of the state that a search begins with, its axis of hypotheses, of which the
        first alone is read; of those that are read as they are there is none.
      read: whether an id is asked while it is read, not while it is written.
    """

    step: onnx.ModelProto
    carried: Sequence[str]
    kept: Sequence[str]
    axes: Mapping[str, int]
    read: bool


def export_attention(
    model: Any,
    hparams: DecodeHParams,
    searched: StateProbe,
    batch_of: Callable[[int, int], dict[str, Tensor]],
) -> AttentionNetwork:
    """Returns the network that reads outputs, for batches of any size and any lengths.

    Args:
      model: frozen; one that attends to its inputs, or several as one.
      hparams: of the decode.
      searched: the state of a search with it.
      batch_of: gives an example of so many rows, each of so many ids at least.

    Raises:
      HParamsError: there is no such layer.
      ExportError: the model holds operations that depend on the batch, or that ONNX does not have.
    """
    all_told = hparams.return_beams or hparams.beam_size == 1
    read = hparams.alignment_step == "read"
    layers = asked_layers(model, hparams.alignment_layer, read=read)
    probe = searched
    if not all_told:
        with torch.no_grad():
            probe = StateProbe(model, 1, batch_of)
    ids = torch.full((BATCHES[0], probe.hypotheses), EOS)
    step = exported(
        type(model).__name__,
        _Reading(model, layers, probe),
        {"ids": ids, **probe.example},
        {"ids": (0,), **probe.varying},
    )
    rows = {name: axes.rows for name, axes in searched.axes.items()}
    places = {} if all_told else {name: axis + 1 for name, axis in rows.items() if axis is not None}
    return AttentionNetwork(step, probe.carried, probe.kept, places, read)


class _Reading(NamedNetwork):
    def __init__(self, model: nn.Module, layers: Sequence[nn.Module], probe: StateProbe) -> None:
        super().__init__(["ids", *probe.axes])
        self.model: Any = model
        self._layers = layers
        self._probe = probe

    def found(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        with watched_layers(self._layers) as seen:
            _, state = self.model.step(given["ids"].flatten(), self._probe.state_of(given))
        after = tensors_of(state)
        weights = [each.float().mean(1) for each in seen]  # [B, n, S]
        return {
            "attention": torch.stack(weights).mean(0),
            **{
                f"next.{name}": self._probe.split(name, after[name]) for name in self._probe.carried
            },
        }


# A beam search as three networks: what begins it, one step of it, and what it has found.


BEAM = ("alive_ids", "alive_log_probs", "ended_ids", "ended_scores")
"""What of a beam is handed from step to step."""


class Search(NamedTuple):
    """What is searched for, and how.

    Attributes:
      has_inputs: whether there is something to read; else a prompt to go on with.
      vocab_size: ids that an output is made of.
      hparams: of the decode.
    """

    has_inputs: bool
    vocab_size: int
    hparams: DecodeHParams

    @property
    def alpha(self) -> float:
        """Exponent of the length penalty; greedy search has none."""
        return 0.0 if self.hparams.beam_size == 1 else self.hparams.alpha

    @property
    def outputs(self) -> int:
        """How many hypotheses are told."""
        return self.hparams.beam_size if self.hparams.return_beams else 1


class SearchNetworks(NamedTuple):
    """The three, and one that reads what was found once more.

    Attributes:
      first: features in; "limits" [B], the beam, the state, and which sentences have a step to do,
        "going" [B] bool, out.
      step: "length" [], "limits" and, of a language model, "prompt", the beam and the state in;
        "going" and those of them that change, as "next." and their names, out.
      result: the beam and of a language model the prompt in; "ids" [B, n, T] and "scores" [B, n]
        out.
      carried: the names of tensors of the state that change from step to step.
      kept: those of the others, which a step reads.
      axes: by tensor of the state its axis of sentences; there is none of those without.
      attention: what tells the attention of what was found; None if it is not asked for.
    """

    first: onnx.ModelProto
    step: onnx.ModelProto
    result: onnx.ModelProto
    carried: Sequence[str]
    kept: Sequence[str]
    axes: Mapping[str, int]
    attention: AttentionNetwork | None = None


def export_search(
    model: T2TModel | Ensemble, search: Search, batch_of: Callable[[int, int], dict[str, Tensor]]
) -> SearchNetworks:
    """Returns the networks of a search with a model, for batches of any size and any lengths.

    Args:
      model: that generates; it stays as it is.
      search: how.
      batch_of: gives an example of so many rows, each of so many ids at least.

    Raises:
      ExportError: the model holds operations that depend on the batch, or that ONNX does not have.
    """
    model = frozen(model)
    replace_lstms(model)
    hypotheses = search.hparams.beam_size
    example = batch_of(BATCHES[0], STEPS)
    with torch.no_grad():
        probe = StateProbe(model, hypotheses, batch_of)
    first = _First(model, search, list(example), probe)
    step = _Step(model, search, probe)
    begun = _beam_example(hypotheses)
    axes = {name: (0, 2) if value.dim() == 3 else (0,) for name, value in begun.items()}
    prompt = {} if search.has_inputs else {"prompt": next(iter(example.values()))}
    of_prompt = dict.fromkeys(prompt, (0, 1))
    limits = {"limits": torch.full((BATCHES[0],), 100)}
    name = type(model).__name__
    return SearchNetworks(
        exported(name, first, example, dict.fromkeys(example, (0, 1))),
        exported(
            name,
            step,
            {"length": torch.tensor(STEPS), **limits, **prompt, **begun, **probe.example},
            {"limits": (0,), **of_prompt, **axes, **probe.varying},
        ),
        exported(name, _Result(search), {**begun, **prompt}, {**axes, **of_prompt}),
        probe.carried,
        probe.kept,
        probe.sentences,
        export_attention(model, search.hparams, probe, batch_of)
        if search.hparams.write_alignments
        else None,
    )


def _beam_example(hypotheses: int) -> dict[str, Tensor]:
    """Returns a beam after some steps, by name."""
    ids = torch.ones(BATCHES[0], hypotheses, STEPS + 1, dtype=torch.int64)
    scores = torch.zeros(BATCHES[0], hypotheses)
    return dict(zip(BEAM, (ids, scores, ids.clone(), scores.clone()), strict=True))


class _First(NamedNetwork):
    def __init__(
        self, model: nn.Module, search: Search, names: list[str], probe: StateProbe
    ) -> None:
        super().__init__(names)
        self.model: Any = model
        self._search = search
        self._split = probe.split

    def found(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        hparams = self._search.hparams
        ids = next(iter(given.values()))  # [B, S]
        limits = torch.full_like(ids[:, 0], hparams.extra_length)
        if not (hparams.force_decode_length and self._search.has_inputs):
            limits = limits + (ids != PAD).sum(1)
        state = self.model.encode(given).expand(hparams.beam_size)
        tensors = {name: self._split(name, each) for name, each in tensors_of(state).items()}
        beam = first_beam(limits, ids[:, :0], hparams.beam_size)
        going = limits > 0
        begun = {name: getattr(beam, name).clone() for name in BEAM}
        return {"limits": limits, "going": going, **begun, **tensors}


class _Step(NamedNetwork):
    def __init__(self, model: nn.Module, search: Search, probe: StateProbe) -> None:
        prompt = () if search.has_inputs else ("prompt",)
        super().__init__(["length", "limits", *prompt, *BEAM, *probe.axes])
        self.model: Any = model
        self._search = search
        self._probe = probe

    def found(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        search, hparams = self._search, self._search.hparams
        length, limits = given["length"], given["limits"]
        batch, hypotheses = limits.size(0), hparams.beam_size
        state = self._probe.state_of(given)
        numbers = torch.arange(batch, device=limits.device)
        beam = Beam(numbers, limits, *(given[name] for name in BEAM))
        logits, state = self.model.step(beam.alive_ids[:, :, -1].flatten(), state)
        logits = logits[:, : search.vocab_size]
        count = 1 if hypotheses == 1 else 2
        candidates = candidates_of(logits, beam, length, search.alpha, count)
        grown, parents = grow(beam, candidates, EOS)
        ids = numbers.new_full((batch,), PAD)
        if not search.has_inputs:
            ids = _at(given["prompt"], length)
            grown, parents = force(beam, grown, parents, ids)
        state = state.reorder((numbers.unsqueeze(1) * hypotheses + parents).flatten())
        stop_early = not hparams.return_beams
        going = ~is_done(grown, length + 1, search.alpha, stop_early=stop_early)
        after = tensors_of(state)
        return {
            "going": going,
            **{f"next.{name}": getattr(grown, name) for name in BEAM},
            **{
                f"next.{name}": self._probe.split(name, after[name]) for name in self._probe.carried
            },
        }


class _Result(NamedNetwork):
    def __init__(self, search: Search) -> None:
        super().__init__([*BEAM, *(() if search.has_inputs else ("prompt",))])
        self._search = search

    def found(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        nothing = given["alive_ids"][:, 0, 0]
        beam = Beam(nothing, nothing, *(given[name] for name in BEAM))
        ids, scores = result_of(beam)
        before = (given["prompt"] != PAD).sum(1) if "prompt" in given else nothing * 0
        count = self._search.outputs
        return {
            "ids": without_prefix(ids, before)[:, :count, :-1],
            "scores": scores[:, :count].float(),
        }


def _at(prompt: Tensor, length: Tensor) -> Tensor:
    """Returns the id of each prompt at a place, `PAD` behind its end.  [B, P] -> [B]."""
    last = prompt.size(1) - 1
    place = length.clamp(max=last).view(1, 1).expand(prompt.size(0), 1)
    found = prompt.gather(1, place).squeeze(1)
    return torch.where(length <= last, found, PAD)


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
        place = body.add("Unsqueeze", its_rows, [1])
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
    return graph.add("Squeeze", graph.add("NonZero", flags), [0])


def _are_any(graph: Graph, numbers: str) -> str:
    """Returns whether there is one.  [R] -> [] bool."""
    return graph.add("Greater", graph.add("Size", numbers), 0)
