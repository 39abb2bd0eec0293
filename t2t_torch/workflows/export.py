"""Export of a run to an artifact, which is verified."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch.errors import UsageError
from t2t_torch.export.settings import ExportSettings
from t2t_torch.reporter import Reporter, message, output, phase
from t2t_torch.settings import require
from t2t_torch.trust import running
from t2t_torch.workflows.context import data_dir_of_run

if TYPE_CHECKING:
    from t2t_torch.export.exporter import Exporter


def export(settings: ExportSettings, *, reporter: Reporter | None = None) -> Path:
    """Exports a run, several as an ensemble, or a trial, and verifies the artifact.

    Args:
      settings: what is exported, and in which format.
      reporter: where a summary is reported; None: to the current one.

    Returns:
      The folder of the artifact.

    Raises:
      T2TError: a setting does not fit, or the model cannot be exported; nothing is written.
    """
    from t2t_torch.decode.hparam import parse_decode_hparams, with_defaults
    from t2t_torch.run.directory import RunDirectory
    from t2t_torch.workflows.run_kind import check_read, kind_of

    with running(settings, reporter), phase("exporting and verifying"):
        require(settings, "output_dir", "export_dir")
        if settings.checkpoint and settings.checkpoint_path:
            raise UsageError("--checkpoint and --checkpoint_path: give one of them.")
        kind = kind_of(settings.runs)
        check_read(kind, "export", settings, settings.runs)
        exporter, settings = kind.exporter(settings)
        defaults = RunDirectory(settings.run_dir).decode_hparams if exporter.searches else ""
        decoding = with_defaults(settings.decode_hparams, defaults)
        parse_decode_hparams(decoding, to_write=False)  # checks it before minutes of work
        settings = settings.replace(decode_hparams=decoding)
        from t2t_torch.train.random_state import restored_generators

        with restored_generators():
            output(str(exporter.export(settings)))
        return settings.folder


def with_data(settings: ExportSettings, exporter: type[Exporter]) -> ExportSettings:
    """Returns settings with the data directory of the run, on which the artifact is verified.

    Raises:
      UsageError: the format needs data that is not there.
    """
    if not exporter.reads_data:
        return settings
    try:
        data_dir = data_dir_of_run(str(settings.output_dir), settings.data_dir)
        return settings.replace(data_dir=data_dir)
    except UsageError:
        if settings.quantize or exporter.needs_data:
            raise
        message(
            f"warning: the data of '{settings.output_dir}' is not where it was, and --data_dir is "
            "not given: the artifact is verified on synthetic inputs alone"
        )
        return settings
