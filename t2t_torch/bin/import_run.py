"""Imports a trained model of another library as a run directory.

    t2t-import --source=old_run --output_dir=run
    t2t-import --source=old_run --output_dir=run --verify=inputs.txt --expect=outputs.txt
    t2t-import --source=old_run --output_dir=run --pairs=pairs.tsv
    t2t-import --from=tensor2tensor --source=old_run --data_dir=old_data --output_dir=run

    t2t-import --from=pytext --source=config.json --output_dir=imported

t2t-decoder, t2t-eval, t2t-trainer, t2t-exporter and t2t-server then use the run as any other.
Nothing is written unless every weight has its place and, with --verify, every output is equal.  Of
PyText a configuration is imported, as a file for --config of all commands.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from t2t_torch.bin import flags as shared
from t2t_torch.errors import UsageError
from t2t_torch.settings import Settings, hp

if TYPE_CHECKING:
    from t2t_torch.interop.importer import ImportReport


class ImportFlags(Settings):
    """Flags of `t2t-import`."""

    from_: str = hp("", "Library of the run; default: detected from its files.")
    source: str | None = hp(None, "Run directory of the other library.", path=True)
    output_dir: str | None = hp(None, "New run directory.", path=True)
    data_dir: str | None = hp(
        None, "Directory of the old vocabularies; default: the run, or where it says.", path=True
    )
    problem: str = hp("", "Name of the problem; default: that of the old run.")
    model: str = hp("", "Name of the other library's model, if its files do not name it.")
    hparams_set: str = hp(
        "", "tensor2tensor's set of hyperparameters; default: hparams.json, or that of its flags."
    )
    hparams: str = hp("", "Changes to the old hyperparameters, by their old names: name=value,...")
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
    verify: str | None = hp(None, "File of inputs, one per line, to verify with.", path=True)
    expect: str | None = hp(
        None, "File of the outputs that the old model gives for --verify, line by line.", path=True
    )
    pairs: str | None = hp(
        None,
        "File of inputs and targets, separated by tabs: their loss is reported, where old outputs "
        "are missing.",
        path=True,
    )
    allow_differences: int = hp(0, "Number of outputs that may differ.", low=0)


FLAGS = shared.CommandFlags(
    "t2t-import", ImportFlags, common=("problem", "data_dir", "output_dir", *shared.CODE_FLAGS)
)
_flag = FLAGS.value_of


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return shared.run_main(_run, FLAGS, __doc__, argv)


def _run() -> int:
    with shared.phase("importing"):
        report = run()
    print(report)
    if not shared.is_called_from_python():
        print("\nNext:")
        files = sorted(report.path.glob("run*.json"))
        for number, file in enumerate(files, 1):
            if number == 1:
                print(f"  t2t-datagen --config={file} --data_dir=data")
            output = "run" if len(files) == 1 else f"run{number}"
            print(f"  t2t-trainer --config={file} --data_dir=data --output_dir={output}")
        if not files:
            print(f"  t2t-decoder --output_dir={report.path} --decode_interactive")
    return 0


def run() -> ImportReport:
    """Imports with the values of the flags; returns the report."""
    shared.require(FLAGS, "source", "output_dir")
    if bool(_flag("verify")) != bool(_flag("expect")):
        raise UsageError("--verify and --expect go together: give inputs and their outputs.")
    if _flag("allow_differences") and not _flag("verify"):
        raise UsageError("--allow_differences belongs to --verify and --expect. Leave it out.")
    if _flag("pairs") and _flag("verify"):
        raise UsageError("--pairs and --verify are two ways to verify. Give one of them.")
    from t2t_torch.interop.importer import ImportOptions, Verification, import_run

    options = ImportOptions(
        problem=_flag("problem") or "",
        model=_flag("model"),
        hparams_set=_flag("hparams_set"),
        hparams=_flag("hparams"),
        data_dir=Path(_flag("data_dir")) if _flag("data_dir") else None,
        labels=tuple(_flag("labels")),
        kind=_flag("kind"),
        checkpoint=_flag("checkpoint"),
        subwords=tuple(_flag("subwords")),
        decode_hparams=_flag("decode_hparams"),
    )
    verification: Verification | Path | None = None
    if _flag("pairs"):
        verification = Path(_flag("pairs"))
    elif _flag("verify"):
        allowed = _flag("allow_differences")
        verification = Verification(Path(_flag("verify")), Path(_flag("expect")), allowed)
    return import_run(
        _flag("source"),
        _flag("output_dir"),
        library=_flag("from"),
        options=options,
        verification=verification,
    )


if __name__ == "__main__":
    sys.exit(main())
