"""Beam search in an ONNX graph: its networks, decode state, attention and Loop.

Finished sentences leave the loop, so each step computes only the unfinished ones.  (A nested loop,
which removes them only occasionally, was slower for one sentence.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import onnx
import torch
from torch import Tensor, nn

from t2t_torch.decode.beam import Beam, candidates_of, first_beam, force, result_of, without_prefix
from t2t_torch.decode.hparam import ROUNDING, DecodeHParams
from t2t_torch.decode.policies import policy_of
from t2t_torch.decode.word_alignment import asked_layers, watched_layers
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import ExportError
from t2t_torch.export.graph import LINE, Graph, Proxy, Shape, loop, true_places
from t2t_torch.export.network import NamedNetwork, exported, frozen, replace_lstms
from t2t_torch.layers.attention import KeyValueCache
from t2t_torch.model import T2TModel
from t2t_torch.text.encoder import EOS, PAD

_FIXED = (bool, int, float, str, type(None))


def map_tensors(state: Any, change: Callable[[str, Tensor], Tensor], name: str = "state") -> Any:
    """Returns a state of the same structure with changed tensors.

    Args:
      state: state of a model, nested data classes, named tuples, lists and tuples.
      change: function from the path of a tensor, "state.caches.0.keys", and the tensor.
      name: name of the state.

    Raises:
      ExportError: a part has an unsupported type; names it.
    """

    def changed(key: object, part: Any) -> Any:
        return map_tensors(part, change, f"{name}.{key}")

    if isinstance(state, Tensor):
        return change(name, state)
    if isinstance(state, _FIXED):
        return state
    if isinstance(state, KeyValueCache):
        whole = state.length == state.keys.size(0)  # same as in a graph
        filled = (state.keys, state.values) if whole else state.filled
        keys, values = map(changed, ("keys", "values"), filled)
        return KeyValueCache(keys, values, keys.size(0), state.block)
    if dataclasses.is_dataclass(state) and not isinstance(state, type):
        names = [field.name for field in dataclasses.fields(state)]
        return dataclasses.replace(state, **{n: changed(n, getattr(state, n)) for n in names})
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*map(changed, state._fields, state))
    if isinstance(state, list | tuple):
        return type(state)(changed(number, part) for number, part in enumerate(state))
    raise ExportError(
        f"{name} of a decode's state is a {type(state).__name__}, where tensors in data "
        "classes, named tuples, lists and tuples were expected: a graph hands on tensors alone."
    )


def tensors_of(state: Any) -> dict[str, Tensor]:
    """Returns all tensors of a state by path; see `map_tensors`."""
    tensors: dict[str, Tensor] = {}
    map_tensors(state, tensors.setdefault)
    return tensors


def with_tensors(state: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Returns a state with the same structure and other tensors; see `tensors_of`."""
    return map_tensors(state, lambda name, tensor: tensors[name])


class Axes(NamedTuple):
    """Roles of the axes of a state's tensor.

    Attributes:
      rows: axis of rows, K per sentence; None if there is none.
      batch: axis of sentences, for a tensor shared by all hypotheses of a sentence.
      varying: other dynamic axes, such as time.
    """

    rows: int | None
    batch: int | None
    varying: tuple[int, ...]


def axes_of(
    name: str, shape: tuple[int, ...], others: tuple[tuple[int, ...], ...], batches: tuple[int, int]
) -> Axes:
    """Returns the roles of a tensor's axes, inferred from changes of its shape.

    Args:
      name: name of the tensor, for error messages.
      shape: shape with `batches[0]` sentences.
      others: shapes with `batches[1]` sentences, one step later, and with longer inputs.
      batches: two numbers of sentences, neither a multiple of the other.

    Raises:
      ExportError: the number of dimensions varies, or a size depends on the batch otherwise.
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


BATCHES = (2, 3)
"""Number of sentences of the examples; 1 would be fixed in the graph."""

STEPS = 3
"""Number of steps after which the state is used as the example of a step."""

_LONGER = 2  # additional input ids of one example


class StateProbe:
    """A model's state after a few steps.

    Args:
      model: generative model.
      hypotheses: number of hypotheses per sentence.
      batch_of: function from (rows, minimum ids per row) to an example batch.

    Attributes:
      hypotheses: number of hypotheses per sentence.
      state: state after some steps, for its structure.
      tensors: tensors of the state by name.
      axes: roles of the axes of each tensor.
      carried: names of the tensors that a step changes.
      kept: names of the other tensors.
    """

    def __init__(
        self, model: Any, hypotheses: int, batch_of: Callable[[int, int], dict[str, Tensor]]
    ) -> None:
        self.hypotheses = hypotheses
        few, many = BATCHES
        after = self._after(model, batch_of(few, STEPS), STEPS)
        self.tensors = tensors_of(after)
        self.state = with_tensors(after, self.tensors)
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
        rows = torch.arange(few * hypotheses)
        _, after = model.step(torch.zeros_like(rows), self.state)
        reordered = tensors_of(after.reorder(rows))
        self.carried = [name for name in self.axes if reordered[name] is not self.tensors[name]]
        self.kept = [name for name in self.axes if name not in self.carried]

    def _after(self, model: Any, batch: dict[str, Tensor], steps: int) -> Any:
        state = model.encode(batch).expand(self.hypotheses)
        rows = len(next(iter(batch.values()))) * self.hypotheses
        for _ in range(steps):
            _, state = model.step(torch.full((rows,), EOS), state)
        return state

    @property
    def example(self) -> dict[str, Tensor]:
        """The tensors in the layout of a graph's step."""
        return {name: self.split(name, tensor) for name, tensor in self.tensors.items()}

    @property
    def varying(self) -> dict[str, tuple[int, ...]]:
        """The dynamic axes of each tensor of `example`."""
        varying = {}
        for name, (rows, batch, others) in self.axes.items():
            of_batch = [axis for axis in (rows, batch) if axis is not None]
            behind = [axis + (rows is not None and axis > rows) for axis in others]
            varying[name] = tuple(sorted([*of_batch, *behind]))
        return varying

    @property
    def sentences(self) -> dict[str, int]:
        """The axis of sentences of each tensor of `example` that has one."""
        either = {n: a.batch if a.rows is None else a.rows for n, a in self.axes.items()}
        return {name: axis for name, axis in either.items() if axis is not None}

    def state_of(self, tensors: dict[str, Tensor]) -> Any:
        """Returns the state from its split tensors by name; ignores other entries."""
        return with_tensors(
            self.state, {name: self.joined(name, tensors[name]) for name in self.axes}
        )

    def split(self, name: str, tensor: Tensor) -> Tensor:
        """Returns a tensor with the axis of rows split into sentences and hypotheses."""
        axis = self.axes[name].rows
        if axis is None:
            return tensor
        rows = tensor.size(axis) // self.hypotheses
        shape = (*tensor.shape[:axis], rows, self.hypotheses, *tensor.shape[axis + 1 :])
        # ONNX cannot reshape empty tensors, such as an initial cache.
        return tensor.reshape(shape) if tensor.numel() else tensor.new_zeros(shape)

    def changed(self, state: Any) -> dict[str, Tensor]:
        """Returns the split tensors of a state that a step changes, with the prefix "next."."""
        after = tensors_of(state)
        return {f"next.{name}": self.split(name, after[name]) for name in self.carried}

    def joined(self, name: str, tensor: Tensor) -> Tensor:
        """Inverse of `split`."""
        axis = self.axes[name].rows
        return tensor if axis is None else tensor.flatten(axis, axis + 1)


class AttentionNetwork(NamedTuple):
    """One step of the pass that computes the attention of an output.

    Attributes:
      step: network with the inputs "ids" [B, n] and the state; its outputs are "attention"
        [B, n, S] and the changed tensors of the state with the prefix "next.".
      carried: names of the changed tensors.
      kept: names of the other tensors that a step uses.
      axes: axis of hypotheses by tensor of the search's initial state, of which only the first is
        used; tensors that are used unchanged have no entry.
      read: True if the attention of an id is taken when it is read, not when it is predicted.
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
    """Returns the network for the attention of outputs, for batches of any size and lengths.

    Args:
      model: frozen model with attention to its inputs, or an ensemble.
      hparams: decode hyperparameters.
      searched: state of a search with the model.
      batch_of: function from (rows, minimum ids per row) to an example batch.

    Raises:
      HParamsError: there is no such layer.
      ExportError: the model has operations that depend on the batch, or that ONNX lacks.
    """
    has_all_beams = hparams.return_beams or hparams.beam_size == 1
    read = hparams.alignment_step == "read"
    layers = asked_layers(model, hparams.alignment_layer, read=read)
    probe = searched
    if not has_all_beams:
        with torch.no_grad():
            probe = StateProbe(model, 1, batch_of)
    ids = torch.full((BATCHES[0], probe.hypotheses), EOS)
    step = exported(
        type(model).__name__,
        NamedNetwork(["ids", *probe.axes], model, partial(_read, layers, probe)),
        {"ids": ids, **probe.example},
        {"ids": (0,), **probe.varying},
    )
    rows = {name: axes.rows for name, axes in searched.axes.items()}
    places = (
        {} if has_all_beams else {name: axis + 1 for name, axis in rows.items() if axis is not None}
    )
    return AttentionNetwork(step, probe.carried, probe.kept, places, read)


def _read(
    layers: Sequence[nn.Module], probe: StateProbe, model: Any, inputs: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Returns the outputs of `AttentionNetwork.step`."""
    with watched_layers(layers) as seen:
        _, state = model.step(inputs["ids"].flatten(), probe.state_of(inputs))
    weights = [each.float().mean(1) for each in seen]  # [B, n, S]
    return {"attention": torch.stack(weights).mean(0), **probe.changed(state)}


BEAM = ("alive_ids", "alive_log_probs", "ended_ids", "ended_scores")
"""Loop-carried tensors of a beam."""


class Search(NamedTuple):
    """Settings of a search.

    Attributes:
      has_inputs: True if the model has inputs; otherwise it continues a prompt.
      vocab_size: number of output ids.
      hparams: decode hyperparameters.
    """

    has_inputs: bool
    vocab_size: int
    hparams: DecodeHParams

    @property
    def outputs(self) -> int:
        """The number of returned hypotheses."""
        return self.hparams.beam_size if self.hparams.return_beams else 1


class SearchNetworks(NamedTuple):
    """The three networks of a search, and one for the attention of its results.

    Attributes:
      first: inputs: features; outputs: "limits" [B], the beam, the state, and "going" [B] bool, the
        unfinished sentences.
      step: inputs: "length" [], "limits", for a language model "prompt", the beam and the state;
        outputs: "going" and the changed tensors with the prefix "next.".
      result: inputs: the beam, for a language model the prompt; outputs: "ids" [B, n, T] and
        "scores" [B, n].
      carried: names of the state's tensors that a step changes.
      kept: names of the other tensors that a step uses.
      axes: axis of sentences by tensor of the state; tensors without one have no entry.
      attention: network for the attention of the results; None if it is not requested.
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
    """Returns the networks of a search with a model, for batches of any size and lengths.

    Args:
      model: generative model; it is not modified.
      search: settings of the search.
      batch_of: function from (rows, minimum ids per row) to an example batch.

    Raises:
      ExportError: the model has operations that depend on the batch, or that ONNX lacks.
    """
    model = frozen(model)
    replace_lstms(model)
    hypotheses = search.hparams.beam_size
    example = batch_of(BATCHES[0], STEPS)
    with torch.no_grad():
        probe = StateProbe(model, hypotheses, batch_of)
    # The tensors of a beam after some steps, by name.
    ids = torch.ones(BATCHES[0], hypotheses, STEPS + 1, dtype=torch.int64)
    scores = torch.zeros(BATCHES[0], hypotheses)
    beam_inputs = dict(zip(BEAM, (ids, scores, ids.clone(), scores.clone()), strict=True))
    axes = {name: (0, 2) if value.dim() == 3 else (0,) for name, value in beam_inputs.items()}
    prompt = {} if search.has_inputs else {"prompt": next(iter(example.values()))}
    of_prompt = dict.fromkeys(prompt, (0, 1))
    limits = {"length": torch.tensor(STEPS), "limits": torch.full((BATCHES[0],), 100)}
    step_inputs = {**limits, **prompt, **beam_inputs, **probe.example}
    varying = {"limits": (0,), **of_prompt, **axes, **probe.varying}

    def network(function: Any, inputs: dict[str, Tensor], varying: Any, own: Any) -> Any:
        return exported(type(model).__name__, NamedNetwork(inputs, own, function), inputs, varying)

    return SearchNetworks(
        network(partial(_begin, search, probe), example, dict.fromkeys(example, (0, 1)), model),
        network(partial(_advance, search, probe), step_inputs, varying, model),
        network(partial(_finish, search), {**beam_inputs, **prompt}, {**axes, **of_prompt}, None),
        probe.carried,
        probe.kept,
        probe.sentences,
        export_attention(model, search.hparams, probe, batch_of)
        if search.hparams.write_alignments
        else None,
    )


def _begin(
    search: Search, probe: StateProbe, model: Any, inputs: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Returns the outputs of `SearchNetworks.first`."""
    hparams = search.hparams
    ids = next(iter(inputs.values()))  # [B, S]
    lengths = (ids != PAD).sum(1)
    if search.has_inputs:
        limits = torch.full_like(lengths, hparams.extra_length)
        if ratio := hparams.input_length_factor:
            limits = (lengths * ratio + hparams.extra_length + ROUNDING).floor().long()
        if hparams.max_length:
            limits = limits.clamp(max=hparams.max_length)
    else:
        limits = lengths + hparams.extra_length
    state = model.encode(inputs).expand(hparams.beam_size)
    tensors = {name: probe.split(name, each) for name, each in tensors_of(state).items()}
    beam = first_beam(limits, ids[:, :0], hparams.beam_size)
    going = limits > 0
    initial = {name: getattr(beam, name).clone() for name in BEAM}
    return {"limits": limits, "going": going, **initial, **tensors}


def _advance(
    search: Search, probe: StateProbe, model: Any, inputs: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Returns the outputs of `SearchNetworks.step`."""
    hparams, length, limits = search.hparams, inputs["length"], inputs["limits"]
    batch, hypotheses = limits.size(0), hparams.beam_size
    state = probe.state_of(inputs)
    numbers = torch.arange(batch, device=limits.device)
    beam = Beam(numbers, limits, *(inputs[name] for name in BEAM))
    logits, state = model.step(beam.alive_ids[:, :, -1].flatten(), state)
    logits = logits[:, : search.vocab_size]
    policy = policy_of(hparams, go_on=not search.has_inputs)
    candidates = candidates_of(logits, beam, length, policy)
    grown, parents = policy.grow(beam, candidates)
    ids = numbers.new_full((batch,), PAD)
    if not search.has_inputs:
        ids = _at(inputs["prompt"], length)
        grown, parents = force(beam, grown, parents, ids)
    state = state.reorder((numbers.unsqueeze(1) * hypotheses + parents).flatten())
    going = ~policy.done(grown, length + 1)
    after = {f"next.{name}": getattr(grown, name) for name in BEAM}
    return {"going": going, **after, **probe.changed(state)}


def _finish(search: Search, model: None, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the outputs of `SearchNetworks.result`."""
    nothing = inputs["alive_ids"][:, 0, 0]
    beam = Beam(nothing, nothing, *(inputs[name] for name in BEAM))
    ids, scores = result_of(beam)
    before = (inputs["prompt"] != PAD).sum(1) if "prompt" in inputs else nothing * 0
    count = search.outputs
    return {"ids": without_prefix(ids, before)[:, :count, :-1], "scores": scores[:, :count].float()}


def _at(prompt: Tensor, length: Tensor) -> Tensor:
    """Returns the id of each prompt at a position, `PAD` after its end.  [B, P] -> [B]."""
    last = prompt.size(1) - 1
    place = length.clamp(max=last).view(1, 1).expand(prompt.size(0), 1)
    ids = prompt.gather(1, place).squeeze(1)
    return torch.where(length <= last, ids, PAD)


class SearchResult(NamedTuple):
    """Result of a search in a graph.

    Attributes:
      ids: [B, n, T] int64.
      scores: [B, n] float32.
      initial: initial state by name.
    """

    ids: Proxy
    scores: Proxy
    initial: Mapping[str, Proxy]


def add_search(graph: Graph, networks: SearchNetworks, inputs: Mapping[str, Proxy]) -> SearchResult:
    """Adds a search and returns its result.

    Args:
      graph: graph to which operators are added.
      networks: networks of the search.
      inputs: features of the model by name.
    """
    initial = graph.inline(networks.first, inputs)
    kinds = kinds_of(networks.step)
    prompt = {"prompt": next(iter(inputs.values()))} if "prompt" in kinds else {}
    names = [name for name in kinds if name != "length"]
    values, rows = {**initial, **prompt}, true_places(initial["going"])

    def step(body: Graph, number: Proxy, *state: Proxy) -> tuple[Proxy, ...]:
        now, (its_rows, *beam) = dict(zip(names, state, strict=False)), state[len(names) :]
        after = body.inline(networks.step, {"length": number, **now})
        now |= {name: after[f"next.{name}"] for name in (*BEAM, *networks.carried)}
        for place, name in enumerate(BEAM):
            if name.endswith("ids"):  # one id longer
                beam[place] = beam[place].Pad([0] * 5 + [1])
            beam[place] = beam[place].ScatterND(its_rows.Unsqueeze([1]), now[name])
        left = true_places(after["going"])
        return left.Size() > 0, *_of_sentences(networks, now, left), its_rows[left], *beam

    ends = loop(
        graph,
        step,
        *_of_sentences(networks, {name: values[name] for name in names}, rows),
        rows,
        *(values[name] for name in BEAM),
        kinds=[*(kinds[name] for name in names), LINE, *(kinds[name] for name in BEAM)],
        first=rows.Size() > 0,
    )
    final = dict(zip(BEAM, ends[-len(BEAM) :], strict=True))
    result = graph.inline(networks.result, {**final, **prompt})
    return SearchResult(result["ids"], result["scores"], initial)


def kinds_of(model: onnx.ModelProto) -> dict[str, tuple[int, Shape]]:
    """Returns the dtype and the shape of each input of a model by name; all sizes are dynamic."""
    types = {one.name: one.type.tensor_type for one in model.graph.input}
    return {name: (one.elem_type, [None] * len(one.shape.dim)) for name, one in types.items()}


def _of_sentences(
    networks: SearchNetworks, inputs: Mapping[str, Proxy], left: Proxy
) -> Iterator[Proxy]:
    """Yields inputs of a step for the sentences with the indices `left`, [R]."""
    for name, value in inputs.items():
        of_state = name in (*networks.carried, *networks.kept)
        axis = networks.axes.get(name) if of_state else 0
        yield value if axis is None else value.Gather(left, axis=axis)
