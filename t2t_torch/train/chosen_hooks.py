"""Which hooks watch a run."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING

from t2t_torch import registry
from t2t_torch.errors import UsageError
from t2t_torch.summary.run_report import RunReport
from t2t_torch.train.hook import Hook

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams
    from t2t_torch.train.run_config import RunConfig


def chosen_hooks(config: RunConfig, hparams: HParams) -> list[Hook]:
    """Makes the hooks that flags and hparams ask for, each once, and the run's page.

    The page comes last: it shows what the others have made.

    Raises:
      RegistryError: a name is not registered.
      UsageError: a hook lacks what it needs, or what is registered is no `Hook`.
    """
    names = list(config.hooks)
    if config.profile:
        names.append("profile")
    if hparams.summarize_grads or hparams.summarize_vars:
        names.append("histograms")
    hooks: list[Hook] = []
    for name in dict.fromkeys(names):
        kind = registry.hook(name)
        hook = kind()
        if not isinstance(hook, Hook):
            code = getattr(inspect.unwrap(kind), "__code__", None)
            file = (
                code.co_filename
                if code
                else getattr(sys.modules.get(kind.__module__), "__file__", kind.__module__)
            )
            raise UsageError(
                f"--hooks={name}: {kind.__qualname__} in {file} is no Hook. Register a subclass of "
                "t2t_torch.train.hook.Hook."
            )
        hooks.append(hook)
    return [*hooks, RunReport()]
