"""Parameter groups: frozen weights, steps of unfreezing and factors of the learning rate."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from t2t_torch.errors import HParamsError, listed
from t2t_torch.features.feature import select_generated
from t2t_torch.layers.lora import is_adapter
from t2t_torch.layers.pretrained import PretrainedNetwork
from t2t_torch.model import T2TModel

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


_LAYER = re.compile(r"(.*?)\.(\d+)\.")


def freeze(model: nn.Module, hparams: HParams) -> None:
    """Freezes the weights that match `freeze`: sets `requires_grad` to False.

    Patterns that begin with `!` except weights; with such patterns alone all others are frozen.
    With `lora_rank` all weights are frozen except adapters, the modalities of targets that are no
    texts, layers on top of a pretrained network, and weights that are excepted.  Must be called
    before the model is wrapped for several processes.

    Raises:
      HParamsError: a pattern is not a regular expression or matches nothing, or all weights are
        frozen.
    """
    frozen: set[int] = set()
    kept: set[int] = set()
    for pattern in hparams.freeze:
        is_kept = pattern.startswith("!")
        matching = _matching(model, pattern[is_kept:], f"freeze={pattern}")
        (kept if is_kept else frozen).update(matching)
    if hparams.lora_rank:
        new = {id(part) for name, part in model.named_parameters() if is_adapter(name)}
        for part in model.modules():
            if isinstance(part, T2TModel):  # the modalities of targets that are no texts
                texts = select_generated(part.features.targets)
                heads = [part.modality(one) for one in part.features.targets.keys() - texts.keys()]
                new.update(id(one) for head in heads for one in head.parameters())
        networks = [part for part in model.modules() if isinstance(part, PretrainedNetwork)]
        if networks:  # all other layers are new
            inside = {id(weight) for one in networks for weight in one.body.parameters()}
            new.update(set(map(id, model.parameters())) - inside)
        frozen.update(set(map(id, model.parameters())) - new)
    elif kept and not frozen:
        frozen.update(map(id, model.parameters()))
    for parameter in model.parameters():
        if id(parameter) in frozen - kept:
            parameter.requires_grad_(False)
    if frozen and not any(parameter.requires_grad for parameter in model.parameters()):
        raise HParamsError(
            f"freeze=[{','.join(hparams.freeze)}] leaves no weight to train. Name fewer."
        )


def check_loaded(
    model: nn.Module, hparams: HParams, names: Iterable[str], rows: Iterable[tuple[str, str]] = ()
) -> list[str]:
    """Checks that with adapters all weights that a warm start has not loaded are trained.

    Args:
      model: model of a new run.
      hparams: hyperparameters; weights are frozen as they set it.
      names: names of the tensors that were not loaded.
      rows: name of each tensor whose rows were matched by token, and their counts.

    Returns:
      Warnings of rows of new tokens that are not trained.

    Raises:
      HParamsError: a weight would stay as it was drawn at random.
    """
    if not hparams.lora_rank:
        return []
    freeze(model, hparams)
    here = dict(model.named_parameters(remove_duplicate=False))
    if random := [name for name in names if name in here and not here[name].requires_grad]:
        raise HParamsError(
            f"lora_rank={hparams.lora_rank} freezes weights that the warm start has not loaded: "
            f"{listed(random)}. They would stay random. Train them, too: --hparams=freeze="
            f"[!{random[0].rpartition('.')[0]}]; or rename those of the source with "
            "--warm_start_patterns."
        )
    new = (name for name, counts in rows if re.search("[1-9][0-9,]* (from|new)", counts))
    frozen = [name for name in new if name in here and not here[name].requires_grad]
    return [
        f"warning: {name} is frozen, and has rows of new tokens, which stay as they begin. Train "
        f"it:  --hparams='freeze=[!{name}]'"
        for name in frozen
    ]


def parameter_groups(model: nn.Module, hparams: HParams) -> list[dict[str, Any]]:
    """Returns torch's parameter groups of the trained weights, in the order of the model.

    In addition to `params`, pairs of name and parameter, each group has
      lr_scale: factor of the learning rate.
      unfreeze_step: number of steps before its weights are trained.

    Raises:
      HParamsError: see `freeze`; or a factor or step is invalid, or there is no stack of layers.
    """
    freeze(model, hparams)
    scales = _rules(model, "learning_rate_scales", hparams.learning_rate_scales)
    unfrozen = _rules(model, "unfreeze_schedule", hparams.unfreeze_schedule)
    decay, every = hparams.learning_rate_layer_decay, hparams.unfreeze_every
    depths: dict[int, int] = {}
    if decay != 1.0:
        depths = _depths(model, f"learning_rate_layer_decay={decay}", "learning_rate_scales")
    if every:
        depths = _depths(model, f"unfreeze_every={every}", "unfreeze_schedule")
    groups: dict[tuple[float, int], list[tuple[str, nn.Parameter]]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        depth = depths.get(id(parameter), -1)
        scale = _first(scales, parameter, 1.0) * decay ** max(depth, 0)
        unfreeze_step = int(_first(unfrozen, parameter, every * (depth + 1)))
        groups.setdefault((scale, unfreeze_step), []).append((name, parameter))
    if not any(scale and not unfreeze_step for scale, unfreeze_step in groups):
        raise HParamsError(
            "learning_rate_scales, unfreeze_schedule and unfreeze_every leave nothing to train at "
            "the first step; name fewer weights."
        )
    return [
        {"params": pairs, "lr_scale": scale, "unfreeze_step": unfreeze_step}
        for (scale, unfreeze_step), pairs in groups.items()
    ]


class PlainOptimizer(torch.optim.Optimizer):
    """Base class of optimizers of this library, which take no closure."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Updates all parameters that have gradients."""
        if closure is not None:
            raise NotImplementedError(f"{type(self).__name__} takes no closure.")
        for group in self.param_groups:
            self.update(group, [p for p in group["params"] if p.grad is not None])

    def update(self, group: dict[str, Any], parameters: list[Any]) -> None:
        """Updates the parameters of a group that have gradients; there may be none."""
        raise NotImplementedError


def as_groups(parameters: Iterable[Any]) -> list[dict[str, Any]]:
    """Returns arguments of torch's optimizers as groups whose `params` are lists.

    Args:
      parameters: parameters, pairs of name and parameter, or groups.
    """
    entries = list(parameters)
    groups = entries if entries and isinstance(entries[0], dict) else [{"params": entries}]
    return [{**group, "params": list(group["params"])} for group in groups]


def decaying(parameters: Iterable[Any], rate: float) -> list[dict[str, Any]]:
    """Returns groups in which matrices have `weight_decay=rate` and vectors 0.

    Vectors are biases and the gains of norms, which cause no overfitting.

    Args:
      parameters: see `as_groups`.
      rate: rate of the weight decay.
    """
    groups = []
    for group in as_groups(parameters):
        matrices = [entry for entry in group["params"] if _parameter(entry).ndim > 1]
        vectors = [entry for entry in group["params"] if _parameter(entry).ndim <= 1]
        for params, decay in ((matrices, rate), (vectors, 0.0)):
            if params:
                groups.append({**group, "params": params, "weight_decay": decay})
    return groups


def are_sharded(groups: Iterable[dict[str, Any]]) -> bool:
    """Returns True if parameters are sharded, which some of torch's fused optimizers reject."""
    return any(isinstance(_parameter(p), DTensor) for group in groups for p in group["params"])


def _parameter(entry: Any) -> Tensor:
    """Returns the parameter of a group's entry, which may be a pair of name and parameter."""
    parameter: Tensor = entry[1] if isinstance(entry, tuple) else entry
    return parameter


def _matching(model: nn.Module, pattern: str, setting: str) -> set[int]:
    """Returns the ids of the parameters with a name that matches a pattern."""
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise HParamsError(f"{setting}: {pattern!r} is no regular expression: {error}.") from error
    # A parameter that is shared has several names.
    names = dict(model.named_parameters(remove_duplicate=False))
    ids = {id(parameter) for name, parameter in names.items() if expression.search(name)}
    if not ids:
        parts = {".".join(name.split(".")[:n]) for name in names for n in range(1, 9)}
        near = difflib.get_close_matches(pattern, sorted(parts), n=3, cutoff=0.5)
        near = near or sorted({name.split(".")[0] for name in names})
        raise HParamsError(
            f"{setting}: no weight of the model has {pattern!r} in its name. "
            f"Near: {', '.join(near)}."
        )
    return ids


def _rules(model: nn.Module, setting: str, entries: Iterable[str]) -> list[tuple[set[int], float]]:
    """Returns the ids of the parameters and the number of each "pattern=number" entry."""
    rules = []
    for entry in entries:
        pattern, _, written = entry.rpartition("=")
        kind = int if setting == "unfreeze_schedule" else float
        try:
            number = kind(written)
        except ValueError:
            number = -1
        if not pattern or number < 0 or not math.isfinite(number):
            what = "step" if kind is int else "factor"
            raise HParamsError(
                f"{setting}: {entry!r} should be pattern={what}, the {what} at least 0."
            )
        rules.append((_matching(model, pattern, f"{setting}: {entry}"), number))
    return rules


def _first(rules: list[tuple[set[int], float]], parameter: Tensor, default: float) -> float:
    return next((number for ids, number in rules if id(parameter) in ids), default)


def _depths(model: nn.Module, setting: str, instead: str) -> dict[int, int]:
    """Returns the number of layers above each parameter of a layer, and of the embeddings.

    Layers are the elements of numbered lists, `encoder.0.attention...`.  Depths are counted from
    the top of each list; embeddings are below the longest list: the `bottom` of the modalities,
    tables, and what is in a module with a table and without layers.  Other parameters, such as
    those of heads, have none.
    """
    layers: dict[int, tuple[str, int]] = {}
    for name, parameter in model.named_parameters():
        if match := _LAYER.match(name):
            layers[id(parameter)] = match[1], int(match[2])
    if not layers:
        raise HParamsError(
            f"{setting}: the model has no numbered layers, as 'encoder.0...'. Use {instead}."
        )
    tops: dict[str, int] = {}
    for stack, number in layers.values():
        tops[stack] = max(tops.get(stack, 0), number)
    depths = {key: tops[stack] - number for key, (stack, number) in layers.items()}
    below = max(tops.values()) + 1
    bottoms = set()
    for module in model.modules():
        own = set(map(id, module.parameters()))
        parts = [module, *module.children()]
        if own.isdisjoint(layers) and any(isinstance(part, nn.Embedding) for part in parts):
            bottoms |= own
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in bottoms or "bottom" in name.split("."):
            depths.setdefault(id(parameter), below)
    return depths
