"""Work on every checkpoint of a run: averages, translations of a file, and their scores."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from t2t_torch import atomic_files, files, reporter, trust
from t2t_torch.errors import CheckpointError, DataError, UsageError
from t2t_torch.run import storage
from t2t_torch.settings import Settings, hp, hp_path, require
from t2t_torch.workflows.context import CHECKED, check_is_of_run, decoding_of_run
from t2t_torch.workflows.decode import DECODED_PROBLEM

if TYPE_CHECKING:
    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.metrics.text_scores import ScoreEvents, Translation
    from t2t_torch.run.checkpoint import Checkpoint
    from t2t_torch.run.checkpoint_directory import CheckpointDirectory
    from t2t_torch.workflows.decode_checkpoints import CheckpointDecoder


class AveragingSettings(Settings):
    """Averages the weights of a run's checkpoints, for decoding and evaluation.

        t2t-avg-all --model_dir=run --output_dir=avg              each with the 7 before it
        t2t-avg-all --model_dir=run --output_dir=avg --best=5     the five best
        t2t-avg-all --model_dir=run --output_dir=avg --steps=8000,9000,10000
        t2t-decoder --output_dir=avg --decode_from_file=in.txt

    The output directory can be used by t2t-decoder and t2t-trainer --schedule=evaluate.  To
    continue training from an average, start a new run with --warm_start_from.
    """

    model_dir: str | None = hp_path("Run directory of t2t-trainer.")
    output_dir: str | None = hp_path(
        "Directory of the averaged checkpoints; must differ from the run's."
    )
    n: int = hp(8, "Number of checkpoints per average: each one and its predecessors.", low=1)
    best: int = hp(
        0,
        "Number of best checkpoints, by evaluation, in a single average; 0: one average per "
        "checkpoint.",
        low=0,
    )
    steps: tuple[str, ...] = hp((), "One average of the checkpoints of these steps.")
    min_steps: int = hp(0, "Least step of a checkpoint; earlier ones are skipped.", low=0)
    wait_minutes: int = hp(0, "Minutes to wait for another checkpoint; 0: no wait.", low=0)


@trust.workflow
def average_all(settings: AveragingSettings) -> None:
    """Averages the checkpoints of a run, and writes them to the output directory."""
    require(settings, "model_dir", "output_dir")
    if settings.best and settings.steps:
        raise UsageError("--best and --steps: give one of them.")
    if any(not step.isdecimal() for step in settings.steps):
        raise UsageError(f"--steps={','.join(settings.steps)}: expected numbers of steps.")

    from safetensors import SafetensorError

    from t2t_torch.run.checkpoint_directory import CheckpointDirectory
    from t2t_torch.run.directory import RunDirectory

    run, target = RunDirectory(str(settings.model_dir)), RunDirectory(str(settings.output_dir))
    if run.path.resolve() == target.path.resolve():
        raise UsageError("--output_dir: expected another directory than --model_dir.")
    task, source = run.task(), CheckpointDirectory(run.path)
    if target.exists:
        target.check_is_of(task)
    target.lock()
    try:
        written = 0
        for group in _groups(settings, source):
            try:
                _average(group, run.path, target.path, is_first=not written)
            except (CheckpointError, OSError, SafetensorError):
                deleted = [one for one in group if not one.path.is_dir()]
                if not deleted or settings.steps or settings.best:
                    raise
                paths = ", ".join(str(one.path) for one in deleted)
                reporter.message(f"warning: {paths} was deleted before it was averaged")
                continue
            written += 1
    finally:
        target.unlock()
    if not written:
        there = [checkpoint.step for checkpoint in source.list()]
        raise CheckpointError(
            f"'{run.path}' has too few whole checkpoints for an average of {settings.n}: {there}. "
            "Give a smaller --n; t2t-trainer --keep_checkpoint_max says how many are kept."
        )


def _average(group: Sequence[Checkpoint], run: Path, target: Path, *, is_first: bool) -> None:
    """Writes the mean of some checkpoints and prints its path.

    Raises:
      CheckpointError: a checkpoint is corrupt, or a trainer has deleted it.
      OSError, SafetensorError: a trainer has deleted a checkpoint.
    """
    from t2t_torch.run.checkpoint import MANIFEST
    from t2t_torch.run.checkpoint_directory import CheckpointDirectory, time_of
    from t2t_torch.run.warm_start import average_checkpoints

    time = time_of(max(group))
    copied = _copy_run(run, target, group[-1]) if is_first else []
    try:
        averaged = average_checkpoints(group, CheckpointDirectory(target))
    except BaseException:
        for file in copied:  # a run directory without a checkpoint is none
            file.unlink(missing_ok=True)
        raise
    storage.set_time(averaged.path / MANIFEST, time)
    steps = ", ".join(f"{checkpoint.step:,}" for checkpoint in sorted(group))
    reporter.output(f"{averaged.path}: the mean of steps {steps}")


def _groups(
    settings: AveragingSettings, source: CheckpointDirectory
) -> Iterator[Sequence[Checkpoint]]:
    """Yields the checkpoints of each average.

    Raises:
      CheckpointError: a requested checkpoint is missing or corrupt, or none was evaluated.
    """
    from t2t_torch.run.checkpoint_directory import follow_checkpoints

    if settings.steps:
        yield [source.at(int(step)) for step in dict.fromkeys(settings.steps)]
    elif settings.best:
        best = source.best_ones(settings.best)
        if len(best) < settings.best:
            raise CheckpointError(
                f"'{source.path}' has {len(best)} checkpoints that were evaluated; "
                f"--best={settings.best}. t2t-trainer --keep_checkpoint_best says how many "
                "of the best are kept."
            )
        yield best
    else:
        last: list[Checkpoint] = []
        for checkpoint in follow_checkpoints(source, settings.min_steps, settings.wait_minutes):
            last = [*last, checkpoint][-settings.n :]
            # A trainer beside this may have deleted some since.
            last = [one for one in last if one.path.is_dir()]
            if len(last) == settings.n:
                yield last


def _copy_run(run: Path, target: Path, checkpoint: Checkpoint) -> Sequence[Path]:
    """Copies settings, vocabularies, code and declarations of a run; returns the new files."""
    from t2t_torch.run.checksums import FILE, read_checked, renewed, settings_files
    from t2t_torch.run.code import copies_in, copy_code

    own = [name for name in settings_files(run) if name != "config.json"]
    names = [*own, *checkpoint.manifest().get("vocabularies", {}), "task.json"]
    new = [target / name for name in (*names, FILE) if not (target / name).exists()]
    # Of the copied files, vocabularies are checked by the checkpoints' manifests.
    texts = {name: read_checked(run, name) for name in (*own, "task.json")}
    with renewed(target, {**texts, **copies_in(run)}):
        for name in names:
            with atomic_files.staged(target / name) as file:
                files.copy_regular(run / name, file)
                shutil.copystat(run / name, file)  # t2t-bleu reads when the training started
        copy_code(run, target)
    return new


_UNFINISHED = ".unfinished"
_OF_SEARCH = ("beam_size", "alpha")


class TranslationSettings(trust.CodeSettings):
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
    model_dir: str | None = hp_path("Run directory of t2t-trainer, or of t2t-avg-all.")
    source: str | None = hp_path("File of inputs, one per line.")
    translations_dir: str = hp_path("Directory of the output files.", "translations")
    beam_size: int = hp(4, "Hypotheses kept per input.")
    alpha: float = hp(0.6, "Exponent of the length penalty.")
    decode_hparams: str = hp("", 'Further decoding settings: "extra_length=50".')
    min_steps: int = hp(0, "Least step of a checkpoint; earlier ones are skipped.", low=0)
    wait_minutes: int = hp(0, "Minutes to wait for another checkpoint; 0: no wait.", low=0)


@trust.workflow
def translate_all(settings: TranslationSettings) -> None:
    """Decodes a file with every checkpoint of a run."""
    require(settings, "model_dir", "source")
    hparams = _hparams(settings)

    from t2t_torch.run.checkpoint_directory import CheckpointDirectory, follow_checkpoints
    from t2t_torch.run.directory import RunDirectory
    from t2t_torch.train.memory import keep_freed_memory
    from t2t_torch.workflows.decode_checkpoints import CheckpointDecoder

    keep_freed_memory()
    run, source = RunDirectory(str(settings.model_dir)), Path(str(settings.source))
    task = run.task()
    check_is_of_run(settings, task, run.path, ("model", "hparams_set"))
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
    changes = [settings.decode_hparams] if settings.decode_hparams else []
    named = [item.partition("=")[0].strip() for item in settings.decode_hparams.split(",")]
    for name in _OF_SEARCH:
        if name not in settings.given:
            continue
        if name in named:
            raise UsageError(f"--{name} and --decode_hparams={name}=...: give one of them.")
        changes.append(f"{name}={getattr(settings, name)}")
    hparams = decoding_of_run(str(settings.model_dir), ",".join(changes))
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
        there = files.read_json(file)
    except FileNotFoundError:
        return
    except ValueError as error:
        raise DataError(f"{file} is damaged: {error}. Give another --translations_dir.") from None
    if differ := [name for name in made_of if there.get(name) != made_of[name]]:
        raise UsageError(
            f"'{file.parent}' holds outputs of another {' and '.join(differ)} ({file.name} lists "
            "which). Give another --translations_dir, so that the files of one can be compared."
        )


def _describe(file: Path, made_of: Mapping[str, Any], run: Path) -> None:
    """Writes the description of a folder's files, with the time at which training started."""
    from t2t_torch.metrics.text_scores import start_of

    (file.parent / _UNFINISHED).mkdir(parents=True, exist_ok=True)
    if file.exists():
        return
    with atomic_files.staged(file) as temporary:
        temporary.write_text(json.dumps(made_of, indent=2) + "\n", encoding="utf-8")
        started = start_of(run)
        os.utime(temporary, (started, started))


def _decode(
    decoder: CheckpointDecoder, directory: CheckpointDirectory, checkpoint: Checkpoint, out: Path
) -> None:
    """Decodes with a checkpoint unless its file exists; reports the result."""
    from t2t_torch.run.checkpoint_directory import time_of

    if out.exists():
        reporter.output(f"{out} is there")
        return

    def decode(one: Checkpoint) -> None:
        target = decoder(one).target
        storage.set_time(target, time_of(one))
        target.replace(out)
        atomic_files.sync(out.parent)

    if directory.deleted_during(decode, checkpoint):
        reporter.message(f"warning: {checkpoint.path} was deleted before it was decoded")
        return
    reporter.output(f"{out} decoded")


class BleuSettings(Settings):
    """Scores outputs against a file of references, line by line.

        t2t-bleu --translation=out.txt --reference=right.txt
        t2t-bleu --translation=out.txt --reference=right.txt --scores=rouge_2,word_error_rate
        t2t-bleu --translations_dir=translations --reference=right.txt --wait_minutes=60

    Prints the BLEU scores of tensor2tensor and of sacreBLEU with their signatures.  In a folder
    that t2t-translate-all writes to, each new file is scored, and BLEU_cased and BLEU_uncased are
    written to TensorBoard with the step and the time of the checkpoint.
    """

    translation: str | None = hp_path("File of outputs, one per line; may be gzipped.")
    translations_dir: str | None = hp_path(
        "Directory of translations named <anything>-<step>, as written by t2t-translate-all."
    )
    reference: str | None = hp_path("File of reference outputs, with the same number of lines.")
    event_dir: str | None = hp_path(
        "Directory of the TensorBoard events; default: --translations_dir."
    )
    bleu_variant: Literal["both", "cased", "uncased"] = hp(
        "both", "Cased BLEU, uncased BLEU or both, if --scores is not given."
    )
    bleu_tokenize: str = hp(
        "intl", "How sacreBLEU cuts lines into words: 13a, intl, char, zh, flores200, none."
    )
    scores: tuple[str, ...] = hp(
        (),
        "What to print instead: bleu, bleu_uncased, t2t_bleu, t2t_bleu_uncased, chrf, ter, "
        "rouge_1, rouge_2, rouge_l, word_error_rate, character_error_rate, exact_match.",
    )
    tag_suffix: str = hp("", "Suffix of the event tags, such as _beam1 for BLEU_cased_beam1.")
    min_steps: int = hp(
        -1,
        "Files of fewer steps are left out; -1: those up to last_evaluated_step.txt in "
        "--event_dir.",
        low=-1,
    )
    wait_minutes: int = hp(0, "Minutes to wait for another file; 0: no wait.", low=0)
    report_zero: bool | None = hp(
        None,
        "A score of 0 at step 0, at the time of the folder's oldest file, where training began; "
        "by default where nothing was scored before.",
    )

    @property
    def names(self) -> Sequence[str]:
        """Names of the scores."""
        return self.scores or _BLEU[self.bleu_variant]


_SIDES = ("translation", "reference")
_OF_FOLDER = ("event_dir", "tag_suffix", "min_steps", "wait_minutes", "report_zero")
_BLEU = {
    "cased": ("t2t_bleu", "bleu"),
    "uncased": ("t2t_bleu_uncased", "bleu_uncased"),
    "both": ("t2t_bleu_uncased", "t2t_bleu", "bleu_uncased", "bleu"),
}


@trust.workflow
def compute_bleu(settings: BleuSettings) -> None:
    """Scores a file of outputs, or those in a folder."""
    if settings.translations_dir:
        if settings.translation:
            raise UsageError("--translation and --translations_dir: give one of them.")
        require(settings, "reference")
        _score_folder(settings, Path(settings.translations_dir))
        return
    if unread := [f"--{name}" for name in _OF_FOLDER if settings.is_changed(name)]:
        raise UsageError(f"{', '.join(unread)}: read with --translations_dir alone. Leave it out.")
    require(settings, *_SIDES)
    from t2t_torch.metrics import text_scores

    outputs, references = (_lines(Path(getattr(settings, side))) for side in _SIDES)
    text_scores.check_counts(len(outputs), len(references), f"--reference={settings.reference}")
    names, tokenize = settings.names, settings.bleu_tokenize
    reporter.output(text_scores.table(outputs, references, names, tokenize=tokenize))


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in files.read_lines(path)]


def _score_folder(settings: BleuSettings, folder: Path) -> None:
    """Scores the files of a folder, also new ones.

    Raises:
      DataError: a file and the reference have different numbers of lines.
      UsageError: the folder does not exist after `--wait_minutes`.
    """
    from t2t_torch.metrics.text_scores import ScoreEvents, score, start_of, translations_in

    references = _lines(Path(str(settings.reference)))
    score([], [], settings.names, tokenize=settings.bleu_tokenize)  # checks the names first
    _wait_for(folder, settings.wait_minutes)
    events = ScoreEvents(Path(settings.event_dir or folder), settings.tag_suffix)
    try:
        last = events.last_step() if settings.min_steps < 0 else None
        first = last + 1 if last is not None else max(0, settings.min_steps)
        zero = settings.report_zero if settings.report_zero is not None else first == 0
        scored = 0
        for one in storage.follow(lambda: translations_in(folder, first), settings.wait_minutes):
            if zero and not scored:
                events.write(0, start_of(folder), dict.fromkeys(settings.names, 0.0))
            _score(settings, one, references, events)
            scored += 1
    finally:
        events.close()
    if not scored:
        since = "" if first == 0 else f" of step {first:,} or later"
        reporter.output(f"'{folder}' has no translation{since}: a file named <anything>-<step>.")


def _wait_for(folder: Path, minutes: int) -> None:
    end = time.monotonic() + minutes * 60
    while not folder.is_dir():
        if time.monotonic() >= end:
            raise UsageError(
                f"there is no folder '{folder}'. t2t-translate-all makes one; --wait_minutes says "
                "how long to wait for it."
            )
        time.sleep(storage.POLL_SECONDS)


def _score(
    settings: BleuSettings, one: Translation, references: Sequence[str], events: ScoreEvents
) -> None:
    from t2t_torch.metrics.text_scores import check_counts, score

    outputs = _lines(one.path)
    subject = f"{one.path} cannot be scored: --reference={settings.reference}"
    check_counts(len(outputs), len(references), subject)
    scores = score(outputs, references, settings.names, tokenize=settings.bleu_tokenize)
    events.write(one.step, one.seconds, {name: each.value for name, each in scores.items()})
    events.note(one.step)
    for name, each in scores.items():
        reporter.output(f"step {one.step:,}  {name} {each.value:.4f}  {each.signature}")
