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


_NO_ROWS = (
    "--{} is not read by --format=safetensors: its weights are compared bit by bit, without data. "
    "Leave it out."
)


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
    from t2t_torch.loading import decode_defaults, trial_of

    with running(settings, reporter), phase("exporting and verifying"):
        require(settings, "output_dir", "export_dir")
        if settings.checkpoint and settings.checkpoint_path:
            raise UsageError("--checkpoint and --checkpoint_path: give one of them.")
        is_trial = any(map(trial_of, settings.runs))
        if is_trial:
            _check_of_trial(settings)
        else:
            settings = settings.replace(data_dir=_data_dir(settings))
        defaults = decode_defaults(settings.run_dir) if settings.format == "onnx" else ""
        decoding = with_defaults(settings.decode_hparams, defaults)
        parse_decode_hparams(decoding, to_write=False)  # checks it before minutes of work
        settings = settings.replace(decode_hparams=decoding)
        exporter = _exporter(settings, is_trial=is_trial)
        from t2t_torch.train.random_state import restored_generators

        with restored_generators():
            output(str(exporter.export(settings)))
        return settings.folder


def _exporter(settings: ExportSettings, *, is_trial: bool) -> type[Exporter]:
    """Returns the exporter of a format.

    Raises:
      UsageError: a setting is invalid, or trials do not support it.
    """
    from t2t_torch.export.folder import check

    check(settings)
    if is_trial:
        from t2t_torch.trial import exporter as trial

        trial.check_settings(settings)
        is_weights = settings.format == "safetensors"
        return trial.TrialWeightsExporter if is_weights else trial.TrialExporter
    if settings.format == "ctranslate2":
        from t2t_torch.interop import ctranslate2

        if settings.quantize and settings.quantize not in ctranslate2.QUANTIZATIONS:
            raise UsageError(
                f"--quantize={settings.quantize}: CTranslate2 has "
                f"{', '.join(ctranslate2.QUANTIZATIONS)}; or leave it out."
            )
        return ctranslate2.CTranslate2Exporter
    if settings.format == "torch":
        from t2t_torch.export.torch_package import TorchExporter

        return TorchExporter
    from t2t_torch.export import exporter

    is_weights = settings.format == "safetensors"
    return exporter.WeightsExporter if is_weights else exporter.OnnxExporter


def _check_of_trial(settings: ExportSettings) -> None:
    """Raises UsageError if a setting is given that does not apply to a trial."""
    if "data_dir" in settings.given:
        raise UsageError(
            "--data_dir is for a run of a problem: a trial's artifact is verified on its own "
            "validation loader. Leave it out."
        )
    if "verify_rows" in settings.given and settings.format == "safetensors":
        raise UsageError(_NO_ROWS.format("verify_rows"))


def _data_dir(settings: ExportSettings) -> str | None:
    """Returns the data directory; None if the format needs none, or it is gone and not needed.

    Raises:
      UsageError: the format does not use a given setting, or needs a missing one.
    """
    form = settings.format
    if "decode_hparams" in settings.given and form != "onnx":
        raise UsageError(
            f"--decode_hparams is not for --format={form}, in which there is no search. Leave it "
            "out, or export a graph: --format=onnx"
        )
    if form == "safetensors":
        if unread := [name for name in ("data_dir", "verify_rows") if name in settings.given]:
            raise UsageError(_NO_ROWS.format(unread[0]))
        return None
    try:
        return data_dir_of_run(str(settings.output_dir), settings.data_dir)
    except UsageError:
        if settings.quantize or form == "ctranslate2":
            raise
        message(
            f"warning: the data of '{settings.output_dir}' is not where it was, and --data_dir is "
            "not given: the artifact is verified on synthetic inputs alone"
        )
        return None
