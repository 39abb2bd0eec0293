"""Exports a run to one ONNX graph, from raw inputs to predictions, and verifies it.

    t2t-exporter --output_dir=run --export_dir=artifact
    t2t-exporter --output_dir=run --export_dir=artifact --checkpoint=average:8
    t2t-exporter --output_dir=run --export_dir=artifact --quantize=int8
    t2t-exporter --output_dir=run1,run2 --export_dir=artifact
    t2t-exporter --output_dir=run --export_dir=weights --format=safetensors
    t2t-exporter --output_dir=run_of_a_trial --export_dir=artifact

The outputs of the model and of the artifact are compared on rows of the dev split, or of the
validation loader of a trial; of a run whose data is gone, on synthetic inputs.  If they differ,
nothing is written.  In Python,
t2t_torch.load("artifact") loads it with onnxruntime and without torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch.bin import flags as shared
from t2t_torch.errors import UsageError
from t2t_torch.settings import Settings, hp
from t2t_torch.train.stopping import ending_on_signals

if TYPE_CHECKING:
    from t2t_torch.export.exporter import Exporter
    from t2t_torch.export.request import Request


class ExporterOptions(Settings):
    """Flags of `t2t-exporter`."""

    output_dir: str | None = hp(
        None,
        "Run directory of t2t-trainer; several, separated by commas, form an ensemble that "
        "averages probabilities.",
        path=True,
    )
    data_dir: str | None = hp(
        None,
        "Directory of the generated data; its dev split verifies the artifact. Default: that "
        "of the run; if that is gone, synthetic inputs verify it.",
        path=True,
    )
    problem: str | None = hp(
        None, "Problem to export, of a run of several problems; default: the run's own."
    )
    export_dir: str | None = hp(
        None,
        "Directory of the artifact; must not exist or be empty. Created with its parent folders.",
        path=True,
    )
    checkpoint: str | None = hp(
        None,
        "Checkpoint: best, latest, a step, or average:8 (the mean weights of the newest "
        "eight); default: the best evaluated one, or the latest if none was evaluated.",
    )
    checkpoint_path: str | None = hp(
        None, "A ckpt-<step> folder, a step, or 'best', as in t2t-decoder.", path=True
    )
    format: str = hp(
        "onnx",
        "Format: onnx: a graph from raw inputs to predictions; torch: a program of "
        "torch.export; safetensors: the weights; ctranslate2: a transformer for CTranslate2.",
    )
    quantize: str = hp(
        "",
        "Quantization; int8: 8-bit weights, if metrics lose at most half a point and it is "
        "faster. ctranslate2 has further values.",
    )
    decode_hparams: str = hp(
        "",
        'Decoding settings of the graph: "beam_size=4,alpha=0.6"; listed by t2t-decoder '
        "--help_decode_hparams.",
    )
    verify_rows: int = hp(200, "Maximum number of dev rows to compare.", low=0)
    overwrite: bool = hp(False, "Replaces an existing artifact, of the same problem.")
    allow_other_problem: bool = hp(False, "With --overwrite also replaces one of another problem.")


FLAGS = shared.CommandFlags(
    "t2t-exporter",
    ExporterOptions,
    common=("problem", "data_dir", "output_dir", *shared.CODE_FLAGS),
)
_flag = FLAGS.value_of


_NO_ROWS = (
    "--{} is not read by --format=safetensors: its weights are compared bit by bit, without data. "
    "Leave it out."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return shared.run_main(_run, FLAGS, __doc__, argv)


def _run() -> int:
    with ending_on_signals(), shared.phase("exporting and verifying"):
        print(export())
    return 0


def export() -> str:
    """Exports the run of the flags; returns a summary."""
    from t2t_torch.loading import decode_defaults, trial_of

    shared.require(FLAGS, "output_dir", "export_dir")
    if _flag("checkpoint") and _flag("checkpoint_path"):
        raise UsageError("--checkpoint and --checkpoint_path: give one of them.")
    is_trial = any(map(trial_of, _flag("output_dir").split(",")))
    if is_trial:
        _check_of_trial()
    else:
        _check_flags()
    from t2t_torch.decode.hparam import parse_decode_hparams
    from t2t_torch.export.request import Request

    first, *others = [Path(run) for run in _flag("output_dir").split(",")]
    request = Request(
        run_dir=first,
        export_dir=Path(_flag("export_dir")),
        data_dir=Path(_flag("data_dir")) if _flag("data_dir") else None,
        checkpoint=_flag("checkpoint") or _flag("checkpoint_path"),
        problem=_flag("problem"),
        quantize=_flag("quantize"),
        verify_rows=_flag("verify_rows"),
        overwrite=_flag("overwrite"),
        allow_other_problem=_flag("allow_other_problem"),
        form=_flag("format"),
        others=tuple(others),
        decode_hparams=parse_decode_hparams(
            _flag("decode_hparams"),
            defaults=decode_defaults(first) if _flag("format") == "onnx" else "",
            to_write=False,
        ),
    )
    request.check()
    return str(_exporter(request, is_trial=is_trial).export(request))


def _exporter(request: Request, *, is_trial: bool) -> type[Exporter]:
    """Returns the exporter of a format; raises UsageError if trials do not support it."""
    if is_trial:
        from t2t_torch.trial import exporter as trial

        trial.check_options(request)
        return trial.TrialWeightsExporter if request.form == "safetensors" else trial.TrialExporter
    if request.form == "ctranslate2":
        from t2t_torch.interop import ctranslate2

        if request.quantize and request.quantize not in ctranslate2.QUANTIZATIONS:
            raise UsageError(
                f"--quantize={request.quantize}: CTranslate2 has "
                f"{', '.join(ctranslate2.QUANTIZATIONS)}; or leave it out."
            )
        return ctranslate2.CTranslate2Exporter
    if request.form == "torch":
        from t2t_torch.export.torch_package import TorchExporter

        return TorchExporter
    from t2t_torch.export import exporter

    return exporter.WeightsExporter if request.form == "safetensors" else exporter.OnnxExporter


def _check_of_trial() -> None:
    """Raises UsageError if a flag is given that does not apply to a trial."""
    if FLAGS["data_dir"].present:
        raise UsageError(
            "--data_dir is for a run of a problem: a trial's artifact is verified on its own "
            "validation loader. Leave it out."
        )
    if FLAGS["verify_rows"].present and _flag("format") == "safetensors":
        raise UsageError(_NO_ROWS.format("verify_rows"))


def _check_flags() -> None:
    """Raises UsageError if the format does not use a given flag, or needs a missing one."""
    form = _flag("format")
    if FLAGS["decode_hparams"].present and form != "onnx":
        raise UsageError(
            f"--decode_hparams is not for --format={form}, in which there is no search. Leave it "
            "out, or export a graph: --format=onnx"
        )
    if form != "safetensors":
        _take_data_dir(is_needed=bool(_flag("quantize")) or form == "ctranslate2")
        return
    unread = [name for name in ("data_dir", "verify_rows") if FLAGS[name].present]
    if unread:
        raise UsageError(_NO_ROWS.format(unread[0]))


def _take_data_dir(*, is_needed: bool) -> None:
    """Sets `--data_dir` to that of the run; leaves it out if it is gone and not needed."""
    try:
        shared.take_data_dir_of_run(FLAGS)
    except UsageError:
        if is_needed:
            raise
        run = _flag("output_dir")
        print(
            f"warning: the data of '{run}' is not where it was, and --data_dir is not given: the "
            "artifact is verified on synthetic inputs alone",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sys.exit(main())
