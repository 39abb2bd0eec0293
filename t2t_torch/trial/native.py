"""What scripts import that started their own experiment on a cluster: `Constant`, `Experiment`.

Such a script is loaded as a trial like any other, as it starts its experiment only where it is run
itself, under `if __name__ == "__main__"`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from t2t_torch.errors import TrialError
from t2t_torch.trial import context


def Constant(value: Any, name: str | None = None) -> Any:
    """Returns a hyperparameter's value: the one that was chosen under its name, else `value`."""
    try:
        chosen = context.get_hyperparameters()
    except TrialError:  # the script is run by itself
        return value
    return chosen.get(name, value) if name else value


class Experiment:
    """An experiment as scripts asked a cluster for it; `create` says how it is run here.

    Args:
      context_directory: where the script's files are.
      trial_def: the trial.
      make_data_loaders_fn: the function that makes its loaders.
      configuration: what stands in experiment.yaml.
    """

    def __init__(
        self,
        context_directory: str | None = None,
        trial_def: type | None = None,
        make_data_loaders_fn: Callable[..., Any] | None = None,
        configuration: dict[str, Any] | None = None,
    ) -> None:
        self.context_directory = context_directory
        self.trial_def = trial_def
        self.make_data_loaders_fn = make_data_loaders_fn
        self.configuration = configuration

    def create(self) -> NoReturn:
        """Says which command runs the experiment.

        Raises:
          TrialError: always, as there is no cluster to start it on.
        """
        spec = self.context_directory or "."
        if self.trial_def is not None:
            try:
                source = inspect.getfile(self.trial_def)
            except (TypeError, OSError):
                source = spec
            spec = f"{Path(source)}:{self.trial_def.__name__}"
        written = json.dumps(self.configuration or {}, default=str)
        raise TrialError(
            "pedl.Experiment(...).create() starts nothing here: there is no cluster. Write the "
            f"configuration to experiment.yaml (JSON is YAML): {written}\nThen run  t2t-trainer "
            f"--trial={spec} --config=experiment.yaml --output_dir=run\nWhat stands under `if "
            "__name__ == '__main__'` does not run then: move what the trial reads from there to "
            "the top of the file."
        )
