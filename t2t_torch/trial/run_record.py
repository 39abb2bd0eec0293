"""What a run of a trial is a run of (`experiment.json`), and what may change when it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pydantic

from t2t_torch.errors import CheckpointError
from t2t_torch.train.checksums import how_to_restore, read_checked
from t2t_torch.trial.experiment_config import ExperimentConfig

NAME = "experiment.json"
"""The file's, in the run directory and in each checkpoint."""

_MAY_CHANGE = ExperimentConfig.of_clusters | frozenset(
    "name description labels searcher min_validation_period min_checkpoint_period entrypoint "
    "entrypoints checkpoint_policy save_trial_best save_trial_latest save_experiment_best "
    "max_restarts perform_initial_validation resources batches_per_step records_per_epoch "
    "data".split()
)
"""Keys of a configuration on which neither the weights nor the order of the data depend; and
`data`, which says where it lies: data of another size or order is refused when it is opened."""

_SOURCE = "searcher.source_checkpoint"


class RunRecord(pydantic.BaseModel, frozen=True, extra="forbid"):
    """What a run of a trial is a run of.

    Attributes:
      trial: where its code is, as `--trial` names it, absolute.
      config: the configuration, as it was written.
      hparams: the chosen hyperparameters, nested.
      version: of t2t_torch.
    """

    trial: str
    config: dict[str, Any]
    hparams: dict[str, Any]
    version: str = ""

    @classmethod
    def read(cls, directory: Path) -> RunRecord:
        """Reads that of a run.

        Raises:
          CheckpointError: there is none, or it is damaged.
        """
        path = directory / NAME
        try:
            return cls.model_validate_json(read_checked(directory, NAME))
        except FileNotFoundError:
            mend = how_to_restore(directory, NAME)
            raise CheckpointError(f"{path} is missing. {mend}") from None
        except (OSError, ValueError) as error:
            mend = how_to_restore(directory, NAME)
            raise CheckpointError(f"{path} is damaged: {error}. {mend}") from error

    @property
    def text(self) -> str:
        """What stands in the file."""
        return self.model_dump_json(indent=2) + "\n"

    def changes(self, other: RunRecord) -> list[str]:
        """Returns "name: old -> new" of what another one changes of this run.

        The trial's code may have been moved.

        Raises:
          CheckpointError: it changes what the checkpoints depend on; all is listed.
        """
        before, now = _flat(self), _flat(other)
        changed = [k for k in {**before, **now} if before.get(k) != now.get(k)]
        told = [f"{k}: {_shown(before.get(k))} -> {_shown(now.get(k))}" for k in sorted(changed)]
        refused = [line for line in told if line.split(".")[0].split(":")[0] not in _MAY_CHANGE]
        if now.get(_SOURCE) is not None:  # of which the weights are taken at the beginning alone
            refused += [line for line in told if line.startswith(f"{_SOURCE}:")]
        if refused:
            raise CheckpointError(
                f"this output_dir was begun with another configuration: {'; '.join(refused)}. Go "
                "on with what it was begun with (give neither --config nor --hparams), or train in "
                "another --output_dir."
            )
        moved = [f"trial: {self.trial} -> {other.trial}"] if self.trial != other.trial else []
        return [*moved, *told]


def _flat(record: RunRecord) -> dict[str, Any]:
    """Returns all that decides how a run trains, by dotted names, with defaults."""
    config = ExperimentConfig.from_dict(record.config).resolved(record.hparams)
    found: dict[str, Any] = {}
    _flatten("", config, found)
    return found


def _flatten(prefix: str, value: Any, found: dict[str, Any]) -> None:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            _flatten(f"{prefix}.{key}" if prefix else str(key), item, found)
    else:
        found[prefix] = json.loads(json.dumps(value, default=str))


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value)
