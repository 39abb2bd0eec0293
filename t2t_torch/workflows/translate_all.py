"""Decoding of a file with every checkpoint of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch.errors import CheckpointError, DataError, UsageError
from t2t_torch.files import read_json
from t2t_torch.reporter import message, output
from t2t_torch.settings import hp, require
from t2t_torch.trust import CodeSettings, workflow
from t2t_torch.workflows.context import CHECKED, check_is_of_run
from t2t_torch.workflows.decode import DECODED_PROBLEM

if TYPE_CHECKING:
    from t2t_torch.checkpoint.checkpoint import Checkpoint
    from t2t_torch.checkpoint.directory import CheckpointDirectory
    from t2t_torch.decode.checkpoints import CheckpointDecoder
    from t2t_torch.decode.hparam import DecodeHParams


_UNFINISHED = ".unfinished"
_OF_SEARCH = ("beam_size", "alpha")


class TranslationSettings(CodeSettings):
    """Decodes a file with every checkpoint of a run, also with those of a running training.

        t2t-translate-all --model_dir=run --source=in.txt --translations_dir=translations
        t2t-translate-all --model_dir=run --source=in.txt --wait_minutes=60
        t2t-bleu --translations_dir=translations --reference=right.txt

    Writes a file <problem>-<step> with the time of each checkpoint.  Existing files are not decoded
    again, so an interrupted command resumes.  --model_dir may also be a directory of t2t-avg-all.
    """

    problem: str | None = DECODED_PROBLEM
    model: str | None = CHECKED
    hparams_set: str | None = CHECKED
    model_dir: str | None = hp(None, "Run directory of t2t-trainer, or of t2t-avg-all.", path=True)
    source: str | None = hp(None, "File of inputs, one per line.", path=True)
    translations_dir: str = hp("translations", "Directory of the output files.", path=True)
    beam_size: int = hp(4, "Hypotheses kept per input.")
    alpha: float = hp(0.6, "Exponent of the length penalty.")
    decode_hparams: str = hp("", 'Further decoding settings: "extra_length=50".')
    min_steps: int = hp(0, "Least step of a checkpoint; earlier ones are skipped.", low=0)
    wait_minutes: int = hp(0, "Minutes to wait for another checkpoint; 0: no wait.", low=0)


@workflow
def translate_all(settings: TranslationSettings) -> None:
    """Decodes a file with every checkpoint of a run."""
    require(settings, "model_dir", "source")
    hparams = _hparams(settings)

    from t2t_torch.checkpoint.directory import CheckpointDirectory, follow_checkpoints
    from t2t_torch.decode.checkpoints import CheckpointDecoder
    from t2t_torch.train.memory import keep_freed_memory
    from t2t_torch.train.run_directory import RunDirectory

    keep_freed_memory()
    run, source = RunDirectory(str(settings.model_dir)), Path(str(settings.source))
    task = run.task()
    check_is_of_run(settings, task, str(run.path))
    name = settings.problem or task.problem
    folder = Path(settings.translations_dir)
    description, made_of = folder / f"{name}-decode.json", _made_of(source, run.path, hparams)
    _check_is_of(description, made_of)
    decoder = CheckpointDecoder(
        run.path,
        folder,
        hparams,
        source=source,
        target=folder / _UNFINISHED / name,
        problem=name if name != task.problem else None,
    )
    decoder.check()
    directory, decoded = CheckpointDirectory(run.path), 0
    for checkpoint in follow_checkpoints(directory, settings.min_steps, settings.wait_minutes):
        if not decoded:
            _describe(description, made_of, run.path)
        _decode(decoder, directory, checkpoint, folder / f"{name}-{checkpoint.step}")
        decoded += 1
    if not decoded:
        there = [checkpoint.step for checkpoint in directory.list()]
        raise CheckpointError(
            f"'{run.path}' has no whole checkpoint of step {settings.min_steps:,} or later: "
            f"{there}. --wait_minutes says how long to wait for one."
        )


def _hparams(settings: TranslationSettings) -> DecodeHParams:
    """Returns the decoding hparams.

    Raises:
      HParamsError: a setting is invalid.
      UsageError: a setting is given twice, or does not apply to this command.
    """
    from t2t_torch.decode.hparam import parse_decode_hparams
    from t2t_torch.loading import decode_defaults

    changes = [settings.decode_hparams] if settings.decode_hparams else []
    named = [item.partition("=")[0].strip() for item in settings.decode_hparams.split(",")]
    for name in _OF_SEARCH:
        if name not in settings.given:
            continue
        if name in named:
            raise UsageError(f"--{name} and --decode_hparams={name}=...: give one of them.")
        changes.append(f"{name}={getattr(settings, name)}")
    defaults = decode_defaults(str(settings.model_dir))
    hparams = parse_decode_hparams(",".join(changes), defaults=defaults)
    hparams.check_of_checkpoints("t2t-translate-all")
    hparams.check_of_files("--source")
    return hparams


def _made_of(source: Path, run: Path, hparams: DecodeHParams) -> dict[str, Any]:
    """Returns the description of a folder's files: the run, the inputs, the settings.

    Raises:
      DataError: the source cannot be read.
    """
    from t2t_torch.decode.files import read_inputs
    from t2t_torch.decode.journal import digest

    changed = {name: getattr(hparams, name) for name in type(hparams).model_fields}
    changed = {name: value for name, value in changed.items() if hparams.is_changed(name)}
    lines = read_inputs(source, hparams.separator)
    return {
        "run": str(run.resolve()),
        "source": digest(lines),
        "lines": len(lines),
        "decode_hparams": changed,
    }


def _check_is_of(file: Path, made_of: Mapping[str, Any]) -> None:
    """Checks that an existing folder has the same description.

    Raises:
      DataError: the description is damaged.
      UsageError: the descriptions differ.
    """
    try:
        there = read_json(file)
    except FileNotFoundError:
        return
    except ValueError as error:
        raise DataError(f"{file} is damaged: {error}. Give another --translations_dir.") from None
    differ = [name for name in made_of if there.get(name) != made_of[name]]
    if differ:
        raise UsageError(
            f"'{file.parent}' holds outputs of another {' and '.join(differ)} ({file.name} lists "
            "which). Give another --translations_dir, so that the files of one can be compared."
        )


def _describe(file: Path, made_of: Mapping[str, Any], run: Path) -> None:
    """Writes the description of a folder's files, with the time at which training started."""
    from t2t_torch.files import staged
    from t2t_torch.metrics.text_scores import start_of

    (file.parent / _UNFINISHED).mkdir(parents=True, exist_ok=True)
    if file.exists():
        return
    with staged(file) as temporary:
        temporary.write_text(json.dumps(made_of, indent=2) + "\n", encoding="utf-8")
        started = start_of(run)
        os.utime(temporary, (started, started))


def _decode(
    decoder: CheckpointDecoder, directory: CheckpointDirectory, checkpoint: Checkpoint, out: Path
) -> None:
    """Decodes with a checkpoint unless its file exists; reports the result."""
    from t2t_torch.checkpoint.directory import time_of
    from t2t_torch.checkpoint.storage import set_time
    from t2t_torch.files import sync

    if out.exists():
        output(f"{out} is there")
        return

    def decode(one: Checkpoint) -> None:
        target = decoder(one).target
        set_time(target, time_of(one))
        target.replace(out)
        sync(out.parent)

    if directory.deleted_during(decode, checkpoint):
        message(f"warning: {checkpoint.path} was deleted before it was decoded")
        return
    output(f"{out} decoded")
