"""Runs of a user's `PyTorchTrial`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch.errors import UsageError
from t2t_torch.registry import register_run_kind
from t2t_torch.workflows.run_kind import RunKind, RunPaths, calling

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.run.directory import RunDirectory
    from t2t_torch.trial.task import TrialTask
    from t2t_torch.workflows.evaluate import EvaluateSettings
    from t2t_torch.workflows.search_settings import SearchSettings
    from t2t_torch.workflows.train_settings import TrainSettings


_OF_A_PROBLEM = ("problem", "model", "hparams_set", "data_dir", "eval_use_test_set")


@register_run_kind("trial")
class TrialRun(RunKind):
    """A model that the code of a `PyTorchTrial` has trained."""

    title = "a trial"
    unread = {  # noqa: RUF012  as the base class declares it
        "train": (
            *_OF_A_PROBLEM,
            *("tmp_dir", "generate_data", "eval_metrics", "teacher", "dry_run", "help_hparams"),
            *("print_config", "loader_workers", "reduce_lr_on_plateau_factor", "decode_hparams"),
            *("decode_from_file", "decode_to_file", "decode_reference", "decode_problem"),
            *("train_epochs", "verify_data", "deterministic_world", "keep_global_batch"),
            *("digest_every", "export_best"),
        ),
        "evaluate": (*_OF_A_PROBLEM, "hparams", "eval_metrics", "output", "decode_hparams"),
        "decode": (
            *_OF_A_PROBLEM,
            *("decode_reference", "score_file", "decode_hparams", "decode_shards"),
            *("decode_interactive", "runner", "runner_option"),
        ),
        "search": (
            *("problem", "model", "hparams_set", "hparams", "hparams_range", "ranges"),
            "data_dir",
        ),
        "export": ("data_dir", "problem", "quantize", "decode_hparams"),
    }
    needed_by_search = ("config",)
    exporters = {  # noqa: RUF012
        "onnx": "t2t_torch.trial.exporter:TrialExporter",
        "safetensors": "t2t_torch.trial.exporter:TrialWeightsExporter",
    }
    train = calling("t2t_torch.trial.training:train")
    decode = calling("t2t_torch.trial.predictor:decode")
    requested_search = calling("t2t_torch.trial.search:requested_search")
    recorded_of_search = calling("t2t_torch.trial.search:recorded_of_search")
    check_search = calling("t2t_torch.trial.search:check_search")

    def is_requested(self, settings: TrainSettings | SearchSettings) -> bool:
        """See `RunKind.is_requested`."""
        return bool(settings.trial)

    def hparams(self, directory: RunDirectory) -> dict[str, Any]:
        """See `RunKind.hparams`; nested as in the experiment's configuration."""
        from t2t_torch.trial.experiment import RunRecord

        return RunRecord.read(directory.path).hparams

    def task(self, settings: EvaluateSettings, directory: RunDirectory, world: World) -> TrialTask:
        """See `RunKind.task`."""
        from t2t_torch.trial.predictor import open_task

        return open_task(directory.path, world)

    def predictor(self, path: RunPaths, checkpoint: Any, **given: Any) -> Any:
        """See `RunKind.predictor`."""
        from t2t_torch.trial.predictor import load_trial

        device = given.pop("device")
        if unread := [f"{name}={value!r}" for name, value in given.items() if value is not None]:
            raise UsageError(
                f"'{path}' is a run of a trial, which does not read {', '.join(unread)}. Leave it "
                "out."
            )
        if not isinstance(path, str | Path):
            raise UsageError(
                f"{path}: an ensemble needs runs of problems; give one run of a trial."
            )
        return load_trial(path, checkpoint, device=device)
