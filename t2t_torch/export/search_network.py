"""A beam search as three networks: what begins it, one step of it, and what it has found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from t2t_torch.ensemble import Ensemble
from t2t_torch.export.decode_state import Axes, axes_of, tensors_of, with_tensors
from t2t_torch.export.lstm import replace_lstms
from t2t_torch.export.network import exported, frozen
from t2t_torch.model import T2TModel
from t2t_torch.text.encoder import EOS, PAD

_BATCHES = (2, 3)  # sentences of the examples; 1 would become part of the graph
_STEPS = 3  # after which the state is as a step's example
_LONGER = 2  # ids by which the inputs of one example are longer

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
    """The three.

    Attributes:
      first: features in; "limits" [B], the beam, the state, and whether there is a step to do,
        "more" [], out.
      step: "length" [], "limits" and, of a language model, "prompt", the beam and the state in;
        "more" and those of them that change, as "next." and their names, out.
      result: the beam and of a language model the prompt in; "ids" [B, n, T] and "scores" [B, n]
        out.
      carried: the names of tensors of the state that change from step to step.
      kept: those of the others, which a step reads.
    """

    first: onnx.ModelProto
    step: onnx.ModelProto
    result: onnx.ModelProto
    carried: Sequence[str]
    kept: Sequence[str]


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
    example = batch_of(_BATCHES[0], _STEPS)
    with torch.no_grad():
        probe = _Probe(model, search, batch_of)
    first = _First(model, search, list(example), probe)
    step = _Step(model, search, probe)
    result = _Result(search)
    begun = {name: probe.beam[name] for name in BEAM}
    prompt = {} if search.has_inputs else {"prompt": next(iter(example.values()))}
    limits = {"limits": torch.full((_BATCHES[0],), 100)}
    changing = {name: probe.split(name, probe.tensors[name]) for name in probe.axes}
    name = type(model).__name__
    return SearchNetworks(
        exported(name, first, example, dict.fromkeys(example, (0, 1))),
        exported(
            name,
            step,
            {"length": torch.tensor(_STEPS), **limits, **prompt, **begun, **changing},
            {
                "limits": (0,),
                **dict.fromkeys(prompt, (0, 1)),
                **{key: (0, 2) if value.dim() == 3 else (0,) for key, value in begun.items()},
                **{key: probe.varying(key) for key in changing},
            },
        ),
        exported(
            name,
            result,
            {**begun, **prompt},
            {
                **{key: (0, 2) if value.dim() == 3 else (0,) for key, value in begun.items()},
                **dict.fromkeys(prompt, (0, 1)),
            },
        ),
        probe.carried,
        [key for key in probe.axes if key not in probe.carried],
    )


class _Probe:
    """What a model's state looks like, found by taking a few steps.

    Attributes:
      state: after some steps, for its form.
      tensors: of it.
      axes: of each of them.
      carried: the names of those that a step changes.
      beam: an example of a beam after as many steps, by name.
    """

    def __init__(
        self, model: Any, search: Search, batch_of: Callable[[int, int], dict[str, Tensor]]
    ) -> None:
        self._hypotheses = search.hparams.beam_size
        few, many = _BATCHES
        self.state = self._after(model, batch_of(few, _STEPS), _STEPS)
        self.tensors = tensors_of(self.state)
        others = [
            self._after(model, batch_of(many, _STEPS), _STEPS),
            self._after(model, batch_of(few, _STEPS), _STEPS + 1),
            self._after(model, batch_of(few, _STEPS + _LONGER), _STEPS),
        ]
        shapes = [
            {name: tuple(tensor.shape) for name, tensor in tensors_of(state).items()}
            for state in others
        ]
        self.axes = {
            name: axes_of(name, tuple(tensor.shape), tuple(each[name] for each in shapes), _BATCHES)
            for name, tensor in self.tensors.items()
        }
        given = with_tensors(self.state, self.tensors)
        rows = torch.arange(few * self._hypotheses)
        _, after = model.step(torch.zeros_like(rows), given)
        found = tensors_of(after.reorder(rows))
        self.carried = [name for name in self.axes if found[name] is not self.tensors[name]]
        ids = torch.ones(few, self._hypotheses, _STEPS + 1, dtype=torch.int64)
        scores = torch.zeros(few, self._hypotheses)
        self.beam = dict(zip(BEAM, (ids, scores, ids.clone(), scores.clone()), strict=True))

    def _after(self, model: Any, batch: dict[str, Tensor], steps: int) -> Any:
        state = model.encode(batch).expand(self._hypotheses)
        rows = len(next(iter(batch.values()))) * self._hypotheses
        for _ in range(steps):
            _, state = model.step(torch.full((rows,), EOS), state)
        return state

    def split(self, name: str, tensor: Tensor) -> Tensor:
        """Returns a tensor whose rows have two axes, of sentences and of their hypotheses."""
        axis = self.axes[name].rows
        if axis is None:
            return tensor
        rows = tensor.size(axis) // self._hypotheses
        shape = (*tensor.shape[:axis], rows, self._hypotheses, *tensor.shape[axis + 1 :])
        # ONNX cannot reshape what has no elements, as a cache has none at first.
        return tensor.reshape(shape) if tensor.numel() else tensor.new_zeros(shape)

    def joined(self, name: str, tensor: Tensor) -> Tensor:
        """Undoes `split`."""
        axis = self.axes[name].rows
        return tensor if axis is None else tensor.flatten(axis, axis + 1)

    def varying(self, name: str) -> tuple[int, ...]:
        """Returns the axes of a split tensor whose sizes vary."""
        axes: Axes = self.axes[name]
        of_batch = [axis for axis in (axes.rows, axes.batch) if axis is not None]
        behind = [axis + (axes.rows is not None and axis > axes.rows) for axis in axes.varying]
        return tuple(sorted([*of_batch, *behind]))


class _Network(nn.Module):
    """A network whose inputs have names.  Subclasses define `found`."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        super().__init__()
        self.names = list(names)

    def forward(self, *values: Tensor) -> dict[str, Tensor]:
        """Returns what `found` does."""
        return self.found(dict(zip(self.names, values, strict=True)))

    def found(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the outputs by name, of the inputs by name."""
        raise NotImplementedError


class _First(_Network):
    def __init__(self, model: nn.Module, search: Search, names: list[str], probe: _Probe) -> None:
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
        more = (limits > 0).any()
        begun = {name: getattr(beam, name).clone() for name in BEAM}
        return {"limits": limits, "more": more, **begun, **tensors}


class _Step(_Network):
    def __init__(self, model: nn.Module, search: Search, probe: _Probe) -> None:
        prompt = () if search.has_inputs else ("prompt",)
        super().__init__(["length", "limits", *prompt, *BEAM, *probe.axes])
        self.model: Any = model
        self._search = search
        self._probe = probe

    def found(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        search, hparams = self._search, self._search.hparams
        length, limits = given["length"], given["limits"]
        batch, hypotheses = limits.size(0), hparams.beam_size
        tensors = {name: self._probe.joined(name, given[name]) for name in self._probe.axes}
        state = with_tensors(self._probe.state, tensors)
        numbers = torch.arange(batch, device=limits.device)
        beam = Beam(numbers, limits, *(given[name] for name in BEAM))
        stop_early = not hparams.return_beams
        done = is_done(beam, length, search.alpha, stop_early=stop_early)  # [B]
        logits, state = self.model.step(beam.alive_ids[:, :, -1].flatten(), state)
        logits = logits[:, : search.vocab_size]
        count = 1 if hypotheses == 1 else 2
        candidates = candidates_of(logits, beam, length, search.alpha, count)
        grown, parents = grow(beam, candidates, EOS)
        ids = numbers.new_full((batch,), PAD)
        if not search.has_inputs:
            ids = _at(given["prompt"], length)
            grown, parents = force(beam, grown, parents, ids)
        grown, parents = _frozen(beam, done, grown, parents)
        state = state.reorder((numbers.unsqueeze(1) * hypotheses + parents).flatten())
        more = ~is_done(grown, length + 1, search.alpha, stop_early=stop_early)
        after = tensors_of(state)
        return {
            "more": more.any(),
            **{f"next.{name}": getattr(grown, name) for name in BEAM},
            **{
                f"next.{name}": self._probe.split(name, after[name]) for name in self._probe.carried
            },
        }


class _Result(_Network):
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


def _frozen(beam: Beam, done: Tensor, grown: Beam, parents: Tensor) -> tuple[Beam, Tensor]:
    """Leaves the rows that are done as they are, `PAD` in the new place."""
    row, place = done.view(-1, 1), done.view(-1, 1, 1)
    kept = grown._replace(
        alive_ids=torch.where(place, nn.functional.pad(beam.alive_ids, (0, 1)), grown.alive_ids),
        alive_log_probs=torch.where(row, beam.alive_log_probs, grown.alive_log_probs),
        ended_ids=torch.where(place, nn.functional.pad(beam.ended_ids, (0, 1)), grown.ended_ids),
        ended_scores=torch.where(row, beam.ended_scores, grown.ended_scores),
    )
    places = torch.arange(parents.size(1), device=parents.device)
    return kept, torch.where(row, places, parents)
