"""Which searched hyperparameters a trial reads.

A range may hold the settings of several optimizers beside the choice of one, as tensor2tensor's
`basic_range1` does: `optimizer_adam_beta1` is nothing to a trial of sgd.  The trainer refuses what
a user has set and nothing reads; so such a value is not handed to it, and a name that no trial of a
search can read is refused before the search begins.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from t2t_torch.errors import HParamsError
from t2t_torch.optimization.settings import check_settings
from t2t_torch.tune.space import Categorical, Space

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams

_DRAWS = 64  # of a space with choices; each choice of up to a dozen is met almost surely


def unread(hparams: HParams, values: Mapping[str, Any]) -> dict[str, str]:
    """Returns the values of a trial that nothing reads, and why.

    Args:
      hparams: the set that the trial changes.
      values: what it changes.
    """
    try:
        check_settings(hparams.replace(**values).signed("a search"))
    except HParamsError as error:
        # What else is wrong, as a decay that never decays, is the trainer's to refuse.
        told = {line.partition("=")[0]: line for line in str(error).splitlines()}
        return {name: told[name] for name in values if name in told}
    return {}


def read_ones(hparams: HParams, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a trial that are read."""
    left_out = unread(hparams, values)
    return {name: value for name, value in values.items() if name not in left_out}


def check_read(hparams: HParams, space: Space, source: str) -> None:
    """Refuses a space in which a name is read by no trial.

    Args:
      hparams: the set that the trials change.
      space: what is searched.
      source: where the space is from, as in "--hparams_range=basic_range1".

    Raises:
      HParamsError: for each such name, what does not read it, and what would.
    """
    rng = random.Random(0)
    # Only values that are names or switches decide what is read.
    choices = any(
        isinstance(kind, Categorical) and any(isinstance(v, bool | str) for v in kind.values)
        for kind in space.kinds.values()
    )
    never: dict[str, str] = {}
    for draw in range(_DRAWS if choices else 1):
        found = unread(hparams, space.sample(rng))
        never = found if not draw else {n: why for n, why in never.items() if n in found}
        if not never:
            return
    raise HParamsError("\n".join(f"{source}: {why}" for why in never.values()))
