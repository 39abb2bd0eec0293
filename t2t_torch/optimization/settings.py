"""Which settings of the optimizer and the schedule are read, and the refusal of those that are not.

What reads a setting says so beside its definition: optimizers with `@reads(...)`, the factors of a
learning rate with `@factor(...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.hparam import OptimizationHParams
from t2t_torch.optimization.learning_rate import factor_names
from t2t_torch.optimization.learning_rate_factor import FACTORS, LEGACY_DECAYS, Factor

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams

_Made = TypeVar("_Made", bound=Callable[..., Any])

_ALWAYS = frozenset(
    {
        "learning_rate_layer_decay",
        "learning_rate_minimum",
        "learning_rate_scales",
        "learning_rate_schedule",
        "optimizer_multistep_accumulate_steps",
        "optimizer_zero_grads",
    }
)
"""What the loop itself reads."""

_Condition = tuple[str, object]


def reads(*names: str, **only_if: _Condition) -> Callable[[_Made], _Made]:
    """Declares which settings an optimizer reads; `@register_optimizer` stands above it.

    Args:
      names: that it reads in any case.
      only_if: name=(other name, value): it is read where the other has that value.
    """

    def declare(made: _Made) -> _Made:
        made.reads = {**dict.fromkeys(names), **only_if}  # type: ignore[attr-defined]
        return made

    return declare


def check_settings(hparams: HParams, before: HParams | None = None) -> None:
    """Refuses what a user has set for an optimizer or a schedule that does not read it.

    What a named set says is left alone: sets are made from each other, and carry what their
    parents needed.  So is what a run that goes on was begun with.

    Args:
      hparams: that know who set each field.
      before: those of the run that goes on.

    Raises:
      HParamsError: for each setting, what does not read it, and what would.
    """
    nobodys = {"default", "code", "hparams.json", *registry.list_names("hparams")}
    faults = [
        _fault(hparams, name)
        for name in OptimizationHParams.model_fields
        if hparams.provenance[name] not in nobodys
        and (before is None or getattr(before, name) != getattr(hparams, name))
        and not _is_read(hparams, name)
    ]
    if faults:
        raise HParamsError("\n".join(faults))


def _is_read(hparams: HParams, name: str) -> bool:
    if name in _ALWAYS:
        return True
    if name == "swa_every":
        return hparams.swa_start_step > 0
    if name.startswith("optimizer_"):
        declared = _declared(hparams.optimizer)
        # An optimizer of a user's that declares nothing may read anything.
        return declared is None or (name in declared and _holds(hparams, declared[name]))
    if name.startswith("learning_rate"):
        chosen = [FACTORS[factor] for factor in factor_names(hparams)]
        if hparams.learning_rate_minimum is not None and name == "learning_rate_warmup_steps":
            return True
        return any(name in factor.reads for factor in _with_decays(hparams, chosen))
    return True


def _with_decays(hparams: HParams, chosen: Iterable[Factor]) -> Iterator[Factor]:
    for factor in chosen:
        yield factor
        if factor is FACTORS["legacy"]:
            yield LEGACY_DECAYS[hparams.learning_rate_decay_scheme]


def _declared(optimizer: str) -> Mapping[str, _Condition | None] | None:
    declared: Mapping[str, _Condition | None] | None = getattr(
        registry.optimizer(optimizer), "reads", None
    )
    return declared


def _holds(hparams: HParams, condition: _Condition | None) -> bool:
    return condition is None or getattr(hparams, condition[0]) == condition[1]


def _fault(hparams: HParams, name: str) -> str:
    value = getattr(hparams, name)
    if name == "swa_every":
        return f"swa_every={value} is read by nothing: swa_start_step is 0, so there is no mean."
    if name.startswith("optimizer_"):
        chosen = f"optimizer={hparams.optimizer}"
        readers = f"optimizer={', '.join(_optimizers_that_read(name))}"
    else:
        chosen = f"learning_rate_schedule={hparams.learning_rate_schedule}"
        if "legacy" in factor_names(hparams):
            chosen += f" with learning_rate_decay_scheme={hparams.learning_rate_decay_scheme}"
        readers = f"a learning_rate_schedule with {', '.join(_factors_that_read(name))}"
    return (
        f"{name}={value} is read by nothing: {chosen} does not read it; {readers} would. "
        "Leave it out, or choose one of these."
    )


def _optimizers_that_read(name: str) -> Iterator[str]:
    for optimizer in registry.list_names("optimizer"):
        declared = _declared(optimizer) or {}
        if name in declared:
            condition = declared[name]
            yield f"{optimizer} ({condition[0]}={condition[1]})" if condition else optimizer


def _factors_that_read(name: str) -> Iterator[str]:
    yield from (factor for factor, made in FACTORS.items() if name in made.reads)
    schemes = [scheme for scheme, made in LEGACY_DECAYS.items() if name in made.reads]
    if schemes:
        yield f"legacy (learning_rate_decay_scheme={'|'.join(schemes)})"
