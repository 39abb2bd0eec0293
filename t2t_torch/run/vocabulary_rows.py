"""Rows of a model's tensors that belong to ids of texts, taken from a run by token.

A module says by `rows_by_id` which of its tensors have a row for each id; an `nn.Embedding` need
not.  Other tensors are recognized by a size that has changed with that of the vocabulary.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch import registry
from t2t_torch.declaration.problem import problem_of
from t2t_torch.errors import RegistryError, T2TError, listed
from t2t_torch.hparam import recorded_beside
from t2t_torch.layers.pretrained import PretrainedNetwork
from t2t_torch.run.code import open_code, read_declarations
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.run.storage import step_of
from t2t_torch.text.encoder import NUM_RESERVED, TextEncoder
from t2t_torch.text.pretrained import Architecture
from t2t_torch.text.vocabulary_growth import RowSources, row_sources

_OF_FEATURE = re.compile(r"(?:(.*)\.)?modalities\.([^.]+)\.")


class VocabularyRows:
    """The tensors of a model that have rows for ids of texts, and those rows in a source.

    Args:
      model: model with features; another one has no such tensors.
      source: what it starts from: a run, a checkpoint or a file in one.
    """

    def __init__(self, model: nn.Module, source: Path) -> None:
        self._model, self._source = model, source
        self._modules = [
            one for one in model.modules() if _encoders(getattr(one, "features", None))
        ]
        self._old: dict[str, TextEncoder] = {}
        self._faults: list[str] = []
        try:
            self._old = _source_encoders(source) if self._modules else {}
        except T2TError as error:
            self._faults.append(
                f"rows of {source} are taken in the order of ids, not by token: {error}"
            )
        self._compare = functools.lru_cache(None)(row_sources)
        self._networks: dict[str, PretrainedNetwork] = {}
        self._declared: dict[str, bool] = {}  # whether there may be rows after the vocabulary
        for name, module in model.named_modules():
            is_table = isinstance(module, nn.Embedding) and not name.startswith((*self._networks,))
            names: Any = getattr(module, "rows_by_id", ("weight",) if is_table else ())
            if isinstance(module, PretrainedNetwork):
                self._networks[f"{name}."] = module
            is_own = not isinstance(module, PretrainedNetwork)
            self._declared |= dict.fromkeys((f"{name}.{one}".lstrip(".") for one in names), is_own)

    def take(self, name: str, old_name: str, theirs: Tensor, ours: Tensor) -> tuple[Tensor, str]:
        """Returns a tensor of the source with its rows in the order of the model's ids.

        Args:
          name: name of the tensor in the model.
          old_name: its name in the source.
          theirs: the source's.
          ours: the model's.

        Returns:
          The tensor, and the number of rows of each origin as text; the source's own and "" if it
          has no rows of ids, or the vocabularies have the same tokens.
        """
        fitting: dict[RowSources | None, tuple[int, int]] = {}
        orders = self._orders(name)
        if theirs.dim() == ours.dim() and theirs.is_floating_point():
            for old, new, found in self._pairs(name, old_name):
                sizes = old.vocab_size, new.vocab_size
                if orders:
                    sizes = max(orders[0]) + 1, max(orders[1]) + 1
                if fit := self._fit(name, theirs, ours, sizes):
                    fitting[found] = fit
        best = [found for found, fit in fitting.items() if fit[0] == min(fitting.values())[0]]
        if len(best) != 1 or (best[0] is None and theirs.shape == ours.shape):
            return theirs, ""
        found, at = best[0], fitting[best[0]][1]
        if found is None:  # the tables differ in what follows the same tokens
            count, taken = min(theirs.size(at), ours.size(at)), ours.clone()
            taken.narrow(at, 0, count).copy_(theirs.narrow(at, 0, count))
            return taken, f"{count:,} by token"
        rows, target = theirs.movedim(at, 0), ours.movedim(at, 0)
        places = orders or (range(len(rows)), range(len(target)))
        taken = _taken(rows, found, *places, len(target)).movedim(0, at).contiguous()
        return taken, (
            f"{found.matched:,} by token, {found.composed:,} from pieces, {found.averaged:,} from "
            f"the mean, {found.dropped:,} dropped"
        )

    def doubts(self, tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Returns why the vocabularies are unknown, and which tensors may have rows of ids.

        Args:
          tensors: tensors by name that were taken as they are.
        """
        unsure = [
            name
            for name, tensor in tensors.items()
            for old, new, found in self._pairs(name, name)
            if found and tensor.dim() and len(tensor) == old.vocab_size == new.vocab_size
        ]
        if not unsure:
            return tuple(self._faults)
        return (
            f"{listed(dict.fromkeys(unsure))}: as many rows as a vocabulary whose tokens have "
            "changed, loaded in the order of the source. If they are of ids, name them in "
            "`rows_by_id` of their module, or leave them out: "
            f"--warm_start_patterns='!{unsure[0]}'",
        )

    def _pairs(
        self, name: str, old_name: str
    ) -> Iterator[tuple[TextEncoder, TextEncoder, RowSources | None]]:
        """Yields the vocabularies that the rows of a tensor may be of, in the source and here."""
        if not self._old:
            return
        match, before = _OF_FEATURE.match(name), _OF_FEATURE.match(old_name)
        keys: list[str] = []
        if before is not None:
            problem = (before[1] or "").rpartition(".")[2]
            keys = [f"{problem}/{before[2]}", before[2]]
        part = self._model.get_submodule(match[1] or "") if match else None
        for module in [part] if match else self._modules:
            for feature, new in _encoders(getattr(module, "features", None)).items():
                if match is None or feature == match[2]:
                    known = [self._old[key] for key in (*keys, feature) if key in self._old][:1]
                    for old in known or dict.fromkeys(self._old.values()):
                        yield old, new, self._compare(old, new)

    def _orders(self, name: str) -> tuple[Sequence[int], Sequence[int]] | None:
        """Returns the row of each old and new id, for a tensor of a pretrained model."""
        for prefix, network in self._networks.items():
            if name.startswith(prefix):
                described = recorded_beside(self._source).get("pretrained_architecture")
                order = network.order.tolist()
                return Architecture.parse(described).order if described else order, order
        return None

    def _fit(
        self, name: str, theirs: Tensor, ours: Tensor, sizes: tuple[int, int]
    ) -> tuple[int, int] | None:
        """Returns the number of rows after vocabularies of two sizes, and the dimension of ids.

        None if no dimension is that of the ids.
        """
        may_be_padded = self._declared.get(name)
        shapes = list(zip(theirs.shape, ours.shape, strict=True))
        for at, (before, now) in enumerate(shapes):
            is_like = (before, now) == sizes and (may_be_padded is not None or before != now)
            if may_be_padded and at == 0:
                is_like = before >= sizes[0] and now >= sizes[1]
            if is_like and all(a == b for a, b in shapes[:at] + shapes[at + 1 :]):
                return before + now - sum(sizes), at
        return None


def _taken(
    source: Tensor, found: RowSources, old_rows: Sequence[int], new_rows: Sequence[int], length: int
) -> Tensor:
    """Returns the new rows, of which those after the vocabulary are as the old ones there."""
    size = found.matched + found.dropped
    mean = source[list(old_rows[NUM_RESERVED:size])].mean(0, keepdim=True)
    after = source[size:].mean(0, keepdim=True) if len(source) > size else mean
    extended = torch.cat([source, mean, after])
    places: list[tuple[int, ...]] = [(len(source) + 1,)] * length
    for number in reversed(range(len(found.sources))):  # a row that two ids share is the first's
        own = tuple(old_rows[piece] for piece in found.sources[number])
        places[new_rows[number]] = own or (len(source),)
    taken = extended[[place[0] for place in places]]
    for row, place in enumerate(places):
        if len(place) > 1:
            taken[row] = extended[list(place)].mean(0)
    return taken


def _encoders(features: Any) -> dict[str, TextEncoder]:
    """Returns the encoders of texts, and of parts of texts, by feature."""
    every = getattr(features, "all", {}).items()
    encoders: dict[str, Any] = {name: getattr(its, "encoder", None) for name, its in every}
    return {name: its for name, its in encoders.items() if hasattr(its, "unknown_ids")}


def _source_encoders(source: Path) -> dict[str, TextEncoder]:
    """Returns the encoders of a run by feature; of what is no run of a problem, none.

    Raises:
      T2TError: the problem is unknown, or a vocabulary is missing.
    """
    folders = [one for one in (source, *source.resolve().parents[:2]) if step_of(one) is None]
    run = next((one for one in folders if (one / "task.json").exists()), None)
    task = None if run is None else RunDirectory(run).task()
    if run is None or task is None or not task.problem:
        return {}
    return _encoders(_problem(run, task).features(run))


def _problem(run: Path, task: TaskRecord) -> Any:
    """Returns the problem of a run, as it was declared then."""
    base = registry.parse_problem_name(task.problem).base_name.removesuffix(registry.PRETRAINED)
    declared = read_declarations(run).get(base)
    if declared is not None:
        return registry.problem_view(type(problem_of(declared, Path(f"{base}.json"))), task.problem)
    try:
        return registry.problem(task.problem)
    except RegistryError:
        open_code(run, task)
        return registry.problem(task.problem)
