"""The learning rate, and checks of settings that optimizers and schedules do not read.

The learning rate is a product of registered schedules, as tensor2tensor computes it:
`learning_rate_schedule="constant*linear_warmup*rsqrt_decay"` multiplies three factors, each a
schedule registered by `@register_schedule`: a function of (hparams, train_steps) that returns a
`Schedule`.  Update number s (from 0) uses rate(s).

Every setting of training that a user has set has to be read.  Optimizers and schedules declare the
settings that they read with `@reads(...)`.  Settings of other groups that depend on another setting
are listed here; `train/problem_task.py` has those of the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.hparam import OptimizationHParams

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


Schedule = Callable[[float], float]
"""The learning rate, or a factor of it, as a function of the optimizer steps already done."""


def learning_rate(hparams: HParams, train_steps: int) -> Schedule:
    """Returns the learning rate as a function of the number of optimizer steps done.

    Args:
      hparams: the optimization group, and `hidden_size`.
      train_steps: last step of the run; some factors end there.

    Raises:
      HParamsError: a factor or decay scheme is unknown, or does not fit the others.
    """
    factors = [_factor(name, hparams, train_steps) for name in factor_names(hparams)]
    floor = hparams.learning_rate_minimum

    def rate(step: float) -> float:
        value = math.prod(factor(step) for factor in factors)
        # tensor2tensor declares the minimum and reads it nowhere. A floor under the warm-up, which
        # begins at zero, is not what anyone means by it.
        if floor is not None and step >= hparams.learning_rate_warmup_steps:
            value = max(value, floor)
        return value

    return rate


FITTED = "--train_steps"
"""Source of a warm-up that was fitted to the length of a run."""

_SHORT_RUN = 2  # A run of fewer than so many warm-ups gets a shorter one,
_PARTS = 3  # which is one of so many parts of the run.


def fit_warm_up(hparams: HParams, train_steps: int, before: HParams | None = None) -> HParams:
    """Returns hparams whose warm-up fits a short run; it reaches the same learning rate.

    The warm-up of a set becomes a third of the run if it is longer than half of it.  One that the
    user has set is never changed.

    Args:
      hparams: hyperparameters.
      train_steps: last step of the run; 0: unknown.
      before: hyperparameters of the run to resume, whose fitted warm-up is kept.
    """
    name, rate = "learning_rate_warmup_steps", "learning_rate_constant"
    sets = {"default", "code", *registry.list_names("hparams")}
    if hparams.provenance[name] not in sets:
        return hparams
    if before is not None:
        fields = (name, rate, "learning_rate")
        fitted = [field for field in fields if before.provenance[field] == FITTED]
        kept = {field: getattr(before, field) for field in fitted}
        return hparams.replace(**kept).signed(FITTED) if kept else hparams
    is_long = not 0 < train_steps < _SHORT_RUN * hparams.learning_rate_warmup_steps
    if is_long or not is_read(hparams, name):
        return hparams
    changes: dict[str, Any] = {name: max(1, train_steps // _PARTS)}
    # These fall as 1 / sqrt(step) from the warm-up on: a shorter one would have a higher peak.
    falls = "rsqrt_decay" in hparams.learning_rate_schedule
    noam = (
        "legacy" in hparams.learning_rate_schedule and "noam" in hparams.learning_rate_decay_scheme
    )
    if falls or noam:
        field = rate if falls else "learning_rate"
        if hparams.provenance[field] in sets:
            factor = math.sqrt(changes[name] / hparams.learning_rate_warmup_steps)
            changes[field] = float(f"{getattr(hparams, field) * factor:.3g}")
    return hparams.replace(**changes).signed(FITTED)


def factor_names(hparams: HParams) -> list[str]:
    """Returns the names of the factors in `learning_rate_schedule`; possibly none.

    Raises:
      HParamsError: one is not registered.
    """
    names = [name.strip() for name in hparams.learning_rate_schedule.split("*") if name.strip()]
    known = registry.list_names("schedule")
    for name in names:
        if name not in known:
            raise HParamsError(
                f"learning_rate_schedule='{hparams.learning_rate_schedule}': there is no factor "
                f"'{name}'. Factors, to be joined by '*': {', '.join(known)}. Your own is found "
                "with --t2t_usr_dir, under @register_schedule."
            )
    return names


def _factor(name: str, hparams: HParams, train_steps: int) -> Schedule:
    make = registry.schedule(name)
    factor = make(hparams, train_steps)
    if not callable(factor):
        raise HParamsError(
            f"learning_rate_schedule='{hparams.learning_rate_schedule}': {make.__module__}."
            f"{make.__qualname__}(hparams, train_steps) returned {factor!r}; a function of the "
            "steps done was expected."
        )
    schedule: Schedule = factor
    return schedule


def steps_after_warmup(hparams: HParams) -> Schedule:
    """Returns the function that counts the steps after `learning_rate_warmup_steps`."""
    warmup = hparams.learning_rate_warmup_steps
    return lambda step: max(0.0, step - warmup)


def check_end(name: str, hparams: HParams, train_steps: int) -> None:
    """Checks that a schedule from the end of the warm-up to the end of the run has steps.

    Raises:
      HParamsError: the run ends before the warm-up does.
    """
    if train_steps <= hparams.learning_rate_warmup_steps:
        raise HParamsError(
            f"{name} decays from learning_rate_warmup_steps="
            f"{hparams.learning_rate_warmup_steps} to the last step of the run, {train_steps}, "
            f"which must be greater. Set --hparams=learning_rate_warmup_steps={train_steps // 10}, "
            "or increase --train_steps or --train_epochs."
        )


_Function = TypeVar("_Function", bound=Callable[..., Any])

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
"""Settings that the training loop reads."""

_Condition = tuple[str, object]


class _Need(NamedTuple):
    """Condition under which a setting is read: it holds for one of some other settings."""

    settings: Sequence[str]
    holds: Callable[[Any], bool]
    description: str


_FLOAT16 = _Need(["activation_dtype"], lambda dtype: dtype == "float16", "activation_dtype=float16")
_BUCKETS = _Need(["use_fixed_batch_size"], lambda fixed: not fixed, "use_fixed_batch_size=False")
_NEEDS: dict[str, tuple[_Need, ...]] = {
    "initializer_gain": (
        _Need(["initializer"], lambda chosen: chosen != "xavier", "an initializer but xavier"),
    ),
    "length_bucket_step": (_BUCKETS,),
    **dict.fromkeys(
        ("lora_alpha", "lora_dropout", "lora_targets"),
        (_Need(["lora_rank"], bool, "lora_rank=R, else there are no adapters"),),
    ),
    "min_length_bucket": (_BUCKETS,),
    "mixed_precision_optimizer_init_loss_scale": (
        _FLOAT16,
        _Need(
            ["mixed_precision_optimizer_loss_scaler"],
            lambda scaler: scaler != "none",
            "mixed_precision_optimizer_loss_scaler=exponential",
        ),
    ),
    "mixed_precision_optimizer_loss_scaler": (_FLOAT16,),
    "swa_every": (
        _Need(["swa_start_step", "swa_patience"], bool, "swa_start_step=N, else there is no mean"),
    ),
}
"""Settings of any group that are read only under conditions on others."""


def reads(*names: str, **only_if: _Condition) -> Callable[[_Function], _Function]:
    """Declares the settings that an optimizer or a schedule reads; stands below `@register_...`.

    Args:
      names: settings that are always read; for a schedule also "train_steps", if it depends on the
        last step of the run.
      only_if: name=(other name, value): read if the other setting has that value.
    """

    def declare(function: _Function) -> _Function:
        function.reads = {**dict.fromkeys(names), **only_if}  # type: ignore[attr-defined]
        return function

    return declare


def check_settings(hparams: HParams, before: HParams | None = None) -> None:
    """Checks that every setting given by a user is read, for example by the optimizer.

    Values of named sets are not checked, since sets inherit values that only their parents need,
    nor are the values with which a resumed run was started.

    Args:
      hparams: hyperparameters, which record the source of each field.
      before: hyperparameters of the run that is resumed.

    Raises:
      HParamsError: settings are not read; the message names their readers.
    """
    default_sources = {"default", "code", "hparams.json", FITTED, *registry.list_names("hparams")}
    sources = hparams.provenance
    faults = [
        _fault(hparams, name)
        for name in {**OptimizationHParams.model_fields, **_NEEDS}
        if sources[name] not in default_sources
        and (before is None or getattr(before, name) != getattr(hparams, name))
        and not is_read(hparams, name)
    ]
    faults += _still(hparams, default_sources, before)
    if faults:
        raise HParamsError("\n".join(faults))


def _still(hparams: HParams, default_sources: set[str], before: HParams | None) -> Iterator[str]:
    """Yields an error if a user has chosen an exponential decay with a rate of 1.

    Without any such setting by the user, the defaults are those of tensor2tensor.
    """
    chosen = any(
        hparams.provenance[name] not in default_sources
        and (before is None or getattr(before, name) != getattr(hparams, name))
        for name in ["learning_rate_schedule", *sorted(_declared("schedule", "exp_decay") or ())]
        if name != "learning_rate_warmup_steps"
    )
    if chosen and hparams.learning_rate_decay_rate == 1.0 and "exp_decay" in factor_names(hparams):
        yield (
            "exp_decay multiplies the rate by learning_rate_decay_rate every "
            f"learning_rate_decay_steps={hparams.learning_rate_decay_steps}, and that rate is 1: "
            "it never decays. Set learning_rate_decay_rate, for example to 0.5."
        )


def _unmet(hparams: HParams, name: str) -> list[str]:
    return [
        need.description
        for need in _NEEDS.get(name, ())
        if not any(need.holds(getattr(hparams, setting)) for setting in need.settings)
    ]


def is_read(hparams: HParams, name: str) -> bool:
    """Returns True if the chosen optimizer, schedule and conditions read a setting."""
    if name in _ALWAYS:
        return True
    if name in _NEEDS:
        usual = type(hparams).model_fields[name].default
        return getattr(hparams, name) == usual or not _unmet(hparams, name)
    if name.startswith("optimizer_"):
        return _reads(hparams, "optimizer", hparams.optimizer, name)
    if name.startswith("learning_rate"):
        if hparams.learning_rate_minimum is not None and name == "learning_rate_warmup_steps":
            return True
        factors = factor_names(hparams)
        return any(_reads(hparams, "schedule", factor, name) for factor in factors)
    return True


def reads_train_steps(schedule: str) -> bool:
    """Returns True if a registered schedule depends on the last step of the run."""
    return "train_steps" in (_declared("schedule", schedule) or ())


def _declared(kind: str, name: str) -> Mapping[str, _Condition | None] | None:
    """Returns the settings read by a registered optimizer or schedule; None if not declared."""
    entry: object = getattr(registry, kind)(name)
    declared: Mapping[str, _Condition | None] | None = getattr(entry, "reads", None)
    return declared


def _reads(hparams: HParams, kind: str, entry: str, name: str) -> bool:
    declared = _declared(kind, entry)
    if declared is None:  # a user's that declares nothing may read anything
        return True
    condition = declared.get(name)
    return name in declared and (
        condition is None or getattr(hparams, condition[0]) == condition[1]
    )


def _fault(hparams: HParams, name: str) -> str:
    value = getattr(hparams, name)
    if name in _NEEDS:
        needed = " and ".join(_unmet(hparams, name))
        return f"{name}={value} is read by nothing: it needs {needed}. Set that, or leave it out."
    if name.startswith("optimizer_"):
        chosen = f"optimizer={hparams.optimizer}"
        readers = f"optimizer={', '.join(_readers('optimizer', name))}"
    else:
        chosen = f"learning_rate_schedule={hparams.learning_rate_schedule}"
        if "legacy" in factor_names(hparams):
            chosen += f" with learning_rate_decay_scheme={hparams.learning_rate_decay_scheme}"
        readers = f"a learning_rate_schedule with {', '.join(_readers('schedule', name))}"
    return (
        f"{name}={value} is read by nothing: {chosen} does not read it; {readers} would. "
        "Leave it out, or choose one of these."
    )


def _readers(kind: str, name: str) -> Iterator[str]:
    """Yields the optimizers or schedules that read a setting, with their conditions."""
    for entry in registry.list_names(kind):
        declared = _declared(kind, entry) or {}
        if name in declared:
            condition = declared[name]
            yield f"{entry} ({condition[0]}={condition[1]})" if condition else entry
