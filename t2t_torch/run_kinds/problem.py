"""Runs of one problem, and of several with a model each."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch import registry
from t2t_torch.errors import RegistryError, UsageError
from t2t_torch.problem_types.multi import MultiProblem
from t2t_torch.registry import register_run_kind
from t2t_torch.reporter import message
from t2t_torch.workflows.context import data_dir_of_run, decoding_of_run
from t2t_torch.workflows.run_kind import RunKind, calling
from t2t_torch.workflows.train_settings import OF_SEARCHES, OF_TRIALS

if TYPE_CHECKING:
    from t2t_torch.export.exporter import Exporter
    from t2t_torch.export.settings import ExportSettings
    from t2t_torch.hparam import HParams
    from t2t_torch.problem import Problem
    from t2t_torch.run.directory import RunDirectory, TaskRecord
    from t2t_torch.serve.repository import ModelSource
    from t2t_torch.signals import StopRequest
    from t2t_torch.train.task import Hook
    from t2t_torch.workflows.evaluate import EvaluateSettings
    from t2t_torch.workflows.search_settings import RequestedSearch, SearchSettings
    from t2t_torch.workflows.serve import ServeSettings
    from t2t_torch.workflows.train_settings import TrainSettings


@register_run_kind("problem")
class ProblemRun(RunKind):
    """A model that was trained on a problem."""

    title = "a problem"
    forms_ensembles = True
    unread = {  # noqa: RUF012  as the base class declares it
        "train": (*OF_TRIALS, *OF_SEARCHES),
        "search": ("config",),
    }
    read_with = {  # noqa: RUF012
        **dict.fromkeys((*OF_TRIALS, "config"), "--trial"),
        **dict.fromkeys(OF_SEARCHES, "--hparams_range"),
    }
    needed_by_search = ("problem", "model", "hparams_set", "data_dir", "train_steps")
    exporters = {  # noqa: RUF012
        "onnx": "t2t_torch.export.exporter:OnnxExporter",
        "torch": "t2t_torch.export.torch_package:TorchExporter",
        "safetensors": "t2t_torch.export.exporter:WeightsExporter",
        "adapter": "t2t_torch.export.adapter:AdapterExporter",
        "ctranslate2": "t2t_torch.interop.ctranslate2:CTranslate2Exporter",
        "huggingface": "t2t_torch.interop.huggingface_export:HuggingFaceExporter",
    }
    predictor = calling("t2t_torch.decode.loading:load")
    task = calling("t2t_torch.workflows.evaluate:task_of_run")
    decode = calling("t2t_torch.workflows.decode:decode_problem")

    def train(self, settings: TrainSettings, callbacks: Sequence[Hook], stop: StopRequest) -> int:
        """See `RunKind.train`."""
        from t2t_torch.workflows.race import race, races
        from t2t_torch.workflows.train import train_problem

        if races(settings, callbacks):
            return race(settings, stop)
        return train_problem(settings, callbacks, stop)

    def hparams(self, directory: RunDirectory) -> HParams:
        """See `RunKind.hparams`."""
        from t2t_torch.decode.loading import registered

        return directory.hparams(registered(directory, directory.task())[1].HParams)

    def problem(self, directory: RunDirectory) -> Problem:
        """See `RunKind.problem`."""
        from t2t_torch.decode.loading import registered

        return registered(directory, directory.task())[0]

    def with_data(self, settings: EvaluateSettings) -> EvaluateSettings:
        """See `RunKind.with_data`."""
        data_dir = data_dir_of_run(str(settings.output_dir), settings.data_dir)
        return settings.replace(data_dir=data_dir)

    def requested_search(
        self, settings: SearchSettings, known_steps: Mapping[str, int]
    ) -> RequestedSearch:
        """See `RunKind.requested_search`."""
        from t2t_torch.workflows.search_settings import search_of_problem

        return search_of_problem(settings)

    def exporter(self, settings: ExportSettings) -> tuple[type[Exporter], ExportSettings]:
        """See `RunKind.exporter`; an artifact is verified on the data of the run."""
        exporter, settings = super().exporter(settings)
        if not exporter.reads_data:
            return exporter, settings
        try:
            data_dir = data_dir_of_run(str(settings.output_dir), settings.data_dir)
            return exporter, settings.replace(data_dir=data_dir)
        except UsageError:
            if settings.quantize or exporter.needs_data:
                raise
            message(
                f"warning: the data of '{settings.output_dir}' is not where it was, and --data_dir "
                "is not given: the artifact is verified on synthetic inputs alone"
            )
            return exporter, settings

    def served_models(self, settings: ServeSettings) -> list[ModelSource]:
        """See `RunKind.served_models`; of several problems each has a model, with its name."""
        from t2t_torch.run.directory import RunDirectory
        from t2t_torch.serve.model import ServedModel
        from t2t_torch.serve.repository import ModelSource
        from t2t_torch.serve.run_model import run_model

        directory = RunDirectory(str(settings.output_dir))
        hparams = decoding_of_run(directory.path, settings.decode_hparams)
        problems = self.problem_names(directory)

        def load(name: str, version: str, path: Path) -> ServedModel:
            return run_model(
                name,
                path,
                checkpoint=settings.checkpoint_path,
                hparams=hparams,
                threads=settings.threads,
                problem=name if problems else None,
            )

        names = problems or (directory.path.resolve().name,)
        return [ModelSource(name, directory.path, load, is_run=True) for name in names]


@register_run_kind("several_problems")
class SeveralProblemsRun(ProblemRun):
    """Models that were trained together on the problems of a `MultiProblem`."""

    title = "several problems"

    def claims(self, record: TaskRecord) -> bool:
        """See `RunKind.claims`."""
        if record.kind_name != "problem":
            return False
        with contextlib.suppress(RegistryError):  # the reader of the run reports it
            return isinstance(registry.problem(record.problem), MultiProblem)
        return False

    def problem_names(self, directory: RunDirectory) -> tuple[str, ...]:
        """See `RunKind.problem_names`."""
        problem = registry.problem(directory.task().problem)
        assert isinstance(problem, MultiProblem)
        return tuple(problem.problem_names)
