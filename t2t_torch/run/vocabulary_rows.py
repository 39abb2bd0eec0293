"""Rows of a model's tensors that belong to ids, taken from a run by token, or by label.

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
from t2t_torch.layers.crf import CRF
from t2t_torch.layers.pretrained import PretrainedNetwork
from t2t_torch.run.code import open_code, read_declarations
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.run.storage import step_of
from t2t_torch.text.encoder import NUM_RESERVED, TextEncoder
from t2t_torch.text.pretrained import Architecture
from t2t_torch.text.vocabulary_growth import RowSources, row_sources, same_rows

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
            one for one in model.modules() if getattr(getattr(one, "features", None), "all", ())
        ]
        self._old: dict[str, TextEncoder] = {}
        self._old_labels: dict[str, tuple[str, ...]] = {}
        self._faults: list[str] = []
        try:
            if self._modules and (features := _source_features(source)) is not None:
                self._old, self._old_labels = _encoders(features), _labels(features)
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

    def take(
        self, names: Sequence[str], old_name: str, theirs: Tensor, ours: Tensor
    ) -> tuple[Tensor, str]:
        """Returns a tensor of the source with its rows in the order of the model's ids.

        Args:
          names: names of the tensor in the model, one of which the source has.
          old_name: its name in the source.
          theirs: the source's.
          ours: the model's.

        Returns:
          The tensor, and the number of rows of each origin as text; the source's own and "" if it
          has no rows of ids, or the vocabularies have the same tokens.
        """
        if theirs.dim() != ours.dim() or not theirs.is_floating_point():
            return theirs, ""
        if (by_label := self._by_label(names[0], old_name, theirs, ours)) is not None:
            return by_label
        fitting: dict[RowSources, tuple[int, int]] = {}
        orders = self._orders(names[0])
        # A table that several texts share has one order of rows.
        shared = dict.fromkeys((names[0], *filter(_OF_FEATURE.match, names)))
        for name in shared:
            for old, new, found in self._pairs(name, old_name if name == names[0] else name):
                sizes = old.vocab_size, new.vocab_size
                if orders:
                    sizes = max(orders[0]) + 1, max(orders[1]) + 1
                if fit := self._fit(name, theirs, ours, sizes):
                    fitting[found or same_rows(new.vocab_size)] = fit
        best = [found for found, fit in fitting.items() if fit[0] == min(fitting.values())[0]]
        if len(shared) > 1 and len(fitting) > 1:
            self._faults.append(
                f"{names[0]}: several texts share it, whose vocabularies differ: its rows are "
                "taken in the order of ids."
            )
            return theirs, ""
        is_alike = theirs.shape == ours.shape and (orders is None or orders[0] == orders[1])
        if len(best) != 1 or (best[0].is_same and is_alike):
            return theirs, ""
        found, at = best[0], fitting[best[0]][1]
        rows, target = theirs.movedim(at, 0), ours.movedim(at, 0)
        places = orders or (range(len(rows)), range(len(target)))
        taken, after = _taken(rows, found, *places, target)
        return taken.movedim(0, at).contiguous(), (
            f"{found.matched:,} by token, {found.composed:,} from pieces, {found.averaged:,} from "
            f"the mean, {found.dropped:,} dropped" + f", {after:,} after them" * bool(after)
        )

    def _by_label(
        self, name: str, old_name: str, theirs: Tensor, ours: Tensor
    ) -> tuple[Tensor, str] | None:
        """Returns a tensor with a row for each label, by name; None if labels are the same."""
        match, before = _OF_FEATURE.match(name), _OF_FEATURE.match(old_name)
        if match is None or before is None:
            return None
        features = getattr(self._model.get_submodule(match[1] or ""), "features", None)
        problem = (before[1] or "").rpartition(".")[2]
        keys = (f"{problem}/{before[2]}", before[2])
        old = next((self._old_labels[key] for key in keys if key in self._old_labels), ())
        new = _labels(features).get(match[2], ())
        is_chain = isinstance(self._model.get_submodule(name.rpartition(".")[0]), CRF)
        dims = ours.dim() if is_chain else 1
        sizes = ((len(old),) * dims, (len(new),) * dims)
        if old == new or sizes != (theirs.shape[:dims], ours.shape[:dims]):
            return None
        if theirs.shape[dims:] != ours.shape[dims:]:
            return None
        common = [label for label in new if label in old]
        here, there = (torch.tensor([of.index(one) for one in common]) for of in (new, old))
        taken = ours.cpu().clone()
        if dims > 1:
            taken[here[:, None], here] = theirs[there[:, None], there]
        elif common:
            taken[here] = theirs[there]
        counts = len(common), len(new) - len(common), len(old) - len(common)
        return taken, "{:,} by label, {:,} new, {:,} dropped".format(*counts)

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
    source: Tensor,
    found: RowSources,
    old_rows: Sequence[int],
    new_rows: Sequence[int],
    ours: Tensor,
) -> tuple[Tensor, int]:
    """Returns the new rows, and the number of those after the vocabulary that are the old ones."""
    size, count = found.matched + found.dropped, len(found.sources)
    mean = source[list(old_rows[NUM_RESERVED:size])].mean(0, keepdim=True)
    extended = torch.cat([source, mean])
    kept = min(len(source) - size, len(ours) - count)  # marks, and padding of the table
    places: list[tuple[int, ...]] = [(len(source),)] * len(ours)
    places[count : count + kept] = [(size + number,) for number in range(kept)]
    for number, pieces in enumerate(found.sources):  # a row that two ids share is the second's
        places[new_rows[number]] = tuple(old_rows[piece] for piece in pieces) or (len(source),)
    taken = extended[[place[0] for place in places]]
    for row, place in enumerate(places):
        if len(place) > 1:
            taken[row] = extended[list(place)].mean(0)
    return taken, kept


def _encoders(features: Any) -> dict[str, TextEncoder]:
    """Returns the encoders of texts, and of parts of texts, by feature."""
    every = getattr(features, "all", {}).items()
    encoders: dict[str, Any] = {name: getattr(its, "encoder", None) for name, its in every}
    return {name: its for name, its in encoders.items() if hasattr(its, "unknown_ids")}


def _labels(features: Any) -> dict[str, tuple[str, ...]]:
    """Returns the names of labels by feature."""
    every = getattr(features, "all", {}).items()
    return {name: tuple(its.labels) for name, its in every if its.labels}


def _source_features(source: Path) -> Any:
    """Returns the features of a run; of what is no run of a problem, None.

    Raises:
      T2TError: the problem is unknown, or a vocabulary is missing.
    """
    folders = [one for one in (source, *source.resolve().parents[:2]) if step_of(one) is None]
    run = next((one for one in folders if (one / "task.json").exists()), None)
    task = None if run is None else RunDirectory(run).task()
    if run is None or task is None or not task.problem:
        return None
    return _problem(run, task).features(run)


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
