"""A beam search as three networks: what begins it, one step of it, and what it has found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from t2t_torch.export.attention_network import AttentionNetwork, export_attention
from t2t_torch.export.decode_state import tensors_of
from t2t_torch.export.lstm import replace_lstms
from t2t_torch.export.network import NamedNetwork, exported, frozen
from t2t_torch.export.state_probe import BATCHES, STEPS, StateProbe
from t2t_torch.model import T2TModel
from t2t_torch.text.encoder import EOS, PAD

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
