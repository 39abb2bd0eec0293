"""Settings of an export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch.settings import hp
from t2t_torch.trust import CodeSettings

if TYPE_CHECKING:
    from t2t_torch.decode.hparam import DecodeHParams


class ExportSettings(CodeSettings):
    """Exports a run to one ONNX graph, from raw inputs to predictions, and verifies it.

        t2t-exporter --output_dir=run --export_dir=artifact
        t2t-exporter --output_dir=run --export_dir=artifact --checkpoint=average:8
        t2t-exporter --output_dir=run --export_dir=artifact --quantize=int8
        t2t-exporter --output_dir=run1,run2 --export_dir=artifact
        t2t-exporter --output_dir=run --export_dir=weights --format=safetensors
        t2t-exporter --output_dir=run_of_a_trial --export_dir=artifact

    The outputs of the model and of the artifact are compared on rows of the dev split, or of the
    validation loader of a trial; of a run whose data is gone, on synthetic inputs.  If they differ,
    nothing is written.  In Python, t2t_torch.load("artifact") loads it with onnxruntime and without
    torch.
    """

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
        "torch.export; safetensors: the weights; adapter: the trained weights of a run with "
        "lora_rank or freeze alone; ctranslate2: a transformer for CTranslate2; huggingface: a "
        "pretrained model for transformers.",
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

    @property
    def runs(self) -> tuple[Path, ...]:
        """All runs, or `ckpt-<step>` folders in them."""
        return tuple(map(Path, str(self.output_dir).split(",")))

    @property
    def run_dir(self) -> Path:
        """The run, or the first of several."""
        return self.runs[0]

    @property
    def folder(self) -> Path:
        """The folder of the artifact."""
        return Path(str(self.export_dir))

    @property
    def data_folder(self) -> Path | None:
        """The folder of the generated data; None: only synthetic inputs verify the artifact."""
        return Path(self.data_dir) if self.data_dir else None

    @property
    def chosen_checkpoint(self) -> str | None:
        """The checkpoint, given in one way or the other."""
        return self.checkpoint or self.checkpoint_path

    @property
    def decoding(self) -> DecodeHParams:
        """The decoding settings of a model that generates texts.

        Raises:
          HParamsError: a name is unknown, or a value is not possible.
        """
        from t2t_torch.decode.hparam import parse_decode_hparams

        return parse_decode_hparams(self.decode_hparams, to_write=False)
