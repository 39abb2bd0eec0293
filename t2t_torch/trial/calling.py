"""Calls of what a user wrote, with as many arguments as it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from t2t_torch.errors import TrialError

ACCEPTED: dict[str, tuple[tuple[str, ...], ...]] = {
    "download_data": (("experiment_config", "hparams"), ()),
    "make_data_loaders": (
        ("experiment_config", "hparams"),
        ("experiment_config", "hparams", "download_data_dir"),
        (),
    ),
    "__init__": (("hparams",), ()),
    "build_model": (("hparams",), ()),
    "losses": (("predictions", "labels"),),
    "optimizer": (("model",), ("model", "hparams")),
    "batch_size": ((), ("hparams",)),
    "validation_metrics": (("predictions", "labels", "losses"), ("predictions", "labels")),
    "training_metrics": (("predictions", "labels", "losses"), ("predictions", "labels")),
    "create_lr_scheduler": (("optimizer",),),
    "train_batch": (("batch", "model", "epoch_idx", "batch_idx"),),
    "evaluate_batch": (("batch", "model"), ("batch", "model", "batch_idx")),
    "evaluate_full_dataset": (("data_loader", "model"),),
}
"""What each of them may take, `self` left out; the longest is what callers hand over."""

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def call(function: Callable[..., Any], *arguments: Any, what: str) -> Any:
    """Calls a user's function with the first of the arguments, as many as it takes.

    An argument that it could do without is handed over only where it has the name that it has
    among the accepted signatures: a `lr=0.1` of the user's own stays what it is.

    Args:
      function: a function, a bound method or a class.
      arguments: all that there are for the longest of the accepted signatures.
      what: its name in `ACCEPTED`.

    Returns:
      What it returns.

    Raises:
      TrialError: it takes another number of arguments.  What it raises itself passes through.
    """
    return function(*arguments[: arity(function, what)])


def arity(function: Callable[..., Any], what: str) -> int:
    """Returns how many arguments a user's function is to be given.

    Raises:
      TrialError: none of the accepted signatures fits.
    """
    accepted = {len(names): names for names in ACCEPTED[what]}
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C
        return max(accepted)
    by_place = [parameter for parameter in parameters if parameter.kind in _BY_PLACE]
    needed = sum(parameter.default is parameter.empty for parameter in by_place)
    takes_any = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    by_name = [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    ]
    fitting = [
        count
        for count, names in accepted.items()
        if needed <= count
        and not by_name
        and (
            takes_any
            or names[needed:] == tuple(parameter.name for parameter in by_place[needed:count])
        )
    ]
    if not fitting:
        name = getattr(function, "__qualname__", what)
        taken = ", ".join(str(parameter) for parameter in parameters)
        shown = " or ".join(f"{what}({', '.join(names)})" for names in ACCEPTED[what])
        raise TrialError(f"{name} takes ({taken}). Accepted is {shown}, self left out.")
    return max(fitting)
