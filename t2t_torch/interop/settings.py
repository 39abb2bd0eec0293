"""Settings of an import of a trained model of another library."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from t2t_torch.settings import hp, hp_path
from t2t_torch.trust import CodeSettings


class ImportSettings(CodeSettings):
    """Imports a trained model of another library as a run directory.

        t2t-import --source=old_run --output_dir=run
        t2t-import --source=old_run --output_dir=run --verify=inputs.txt --expect=outputs.txt
        t2t-import --source=old_run --output_dir=run --pairs=pairs.tsv
        t2t-import --from=tensor2tensor --source=old_run --data_dir=old_data --output_dir=run

        t2t-import --from=pytext --source=config.json --output_dir=imported

    t2t-decoder, t2t-eval, t2t-trainer, t2t-exporter and t2t-server then use the run as any other.
    Nothing is written unless every weight has its place and, with --verify, every output is equal.
    Of PyText a configuration is imported, as a file for --config of all commands.
    """

    from_: str = hp("", "Library of the run; default: detected from its files.")
    source: str | None = hp_path("Run directory of the other library.")
    output_dir: str | None = hp_path("New run directory.")
    problem: str = hp("", "Name of the problem; default: that of the old run.")
    model: str = hp("", "Name of the other library's model, if its files do not name it.")
    hparams_set: str = hp(
        "", "tensor2tensor's set of hyperparameters; default: hparams.json, or that of its flags."
    )
    hparams: str = hp("", "Changes to the old hyperparameters, by their old names: name=value,...")
    data_dir: str | None = hp_path(
        "Directory of the old vocabularies; default: the run, or where it says."
    )
    labels: tuple[str, ...] = hp(
        (), "Names of the classes, in the order of their numbers; default: the numbers."
    )
    kind: Literal["", "text2class", "textpair2class"] = hp(
        "", "Kind of the problem of an encoder such as BERT; default: text2class."
    )
    checkpoint: str = hp("", "Name or step of the checkpoint; default: the newest, or the best.")
    subwords: tuple[str, ...] = hp(
        (),
        "Subword models of inputs and targets, sentencepiece models or BPE codes: INPUTS,TARGETS, "
        "or one file for both; default: those beside the checkpoint.",
    )
    decode_hparams: str = hp(
        "", 'Decoding settings of the new run: "beam_size=4,alpha=0.6"; default: the old ones.'
    )
    verify: str | None = hp_path("File of inputs, one per line, to verify with.")
    expect: str | None = hp_path(
        "File of the outputs that the old model gives for --verify, line by line."
    )
    pairs: str | None = hp_path(
        "File of inputs and targets, separated by tabs: their loss is reported, where old outputs "
        "are missing."
    )
    allow_differences: int = hp(0, "Number of outputs that may differ.", low=0)

    @property
    def data_folder(self) -> Path | None:
        """The folder of the old vocabularies; None: the source itself, or where it says."""
        return Path(self.data_dir) if self.data_dir else None
