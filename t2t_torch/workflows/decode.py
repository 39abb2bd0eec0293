"""Decoding of a file, of a data set, of typed inputs, or of a trial's data; scores of lines."""

from __future__ import annotations

import io
import math
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch.errors import UsageError
from t2t_torch.executor import RunnerSettings, map_ranks
from t2t_torch.files import check_target, is_replaced, is_stream
from t2t_torch.reporter import Reporter, output
from t2t_torch.settings import hp, hp_path, require
from t2t_torch.trust import running
from t2t_torch.workflows import context

if TYPE_CHECKING:
    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.decode.label_predictor import LabelPredictor
    from t2t_torch.decode.predictor import Predictor


DECODED_PROBLEM = hp(
    None, "Problem to decode, of a run of several problems; default: the run's own."
)


class DecodeSettings(context.TrainedSettings, RunnerSettings):
    """Decodes with a trained model: a file, a data set, or typed inputs.

        t2t-decoder --output_dir=run --decode_from_file=in.txt --decode_to_file=out.txt
        t2t-decoder --output_dir=run --decode_from_file=new.csv --decode_to_file=answered.csv
        t2t-decoder --output_dir=run --data_dir=data
        t2t-decoder --output_dir=run --decode_interactive
        t2t-decoder --output_dir=run --score_file=lines.txt

    Problem, model, hyperparameters and vocabularies come from the run directory.
    For a run of a trial, decodes its validation loader, or arrays:
        t2t-decoder --output_dir=run --decode_to_file=out.npz
        t2t-decoder --output_dir=run --decode_from_file=in.jsonl --decode_to_file=out.jsonl
    """

    problem: str | None = DECODED_PROBLEM
    data_dir: str | None = hp_path(
        "Directory of the generated data; only needed to decode a data set."
    )
    decode_from_file: str | None = hp_path(
        "File of inputs, one per line; or a table, .csv, .tsv, .xlsx, .parquet."
    )
    decode_to_file: str | None = hp_path(
        "File of outputs, one per input, in the same order; default: next to the inputs."
    )
    decode_reference: str | None = hp_path(
        "File of reference outputs, for BLEU and chrF with the signatures of sacreBLEU."
    )
    score_file: str | None = hp_path(
        "File of texts, or of inputs and outputs with a tab between: writes the log-probability "
        "(nats) of each line, to --decode_to_file or beside it."
    )
    decode_hparams: str = hp("", 'Decoding settings: "beam_size=4,alpha=0.6".')
    decode_shards: int = hp(
        1,
        "Parts that inputs are decoded in: --decode_hparams=shard_id=N decodes one; without it "
        "those that are not there yet are decoded, and all are joined. With --runner each is one "
        "of its tasks.",
        low=1,
        high=100000,
    )
    decode_interactive: bool = hp(False, "Decodes lines typed in the terminal.")
    help_decode_hparams: bool = hp(False, "Lists the settings of --decode_hparams and exits.")


def decode(settings: DecodeSettings, *, reporter: Reporter | None = None) -> None:
    """Decodes as the settings say; writes the outputs and reports what was done.

    Args:
      settings: what is decoded, and how.
      reporter: where the results are reported; None: to the current one.

    Raises:
      T2TError: a setting does not fit, or the run or the inputs cannot be read.
    """
    from t2t_torch.workflows.run_kind import check_read, kind_of

    with running(settings, reporter):
        if settings.checkpoint_path != "best" and not settings.output_dir:
            path = settings.checkpoint_path
            run = str(Path(path).resolve().parent) if path else ""
            settings = settings.replace(output_dir=run)
        hparams = _decode_hparams(settings)
        if settings.help_decode_hparams:
            output(hparams.describe().removesuffix("\n"))
            return
        require(settings, "output_dir")
        kind = kind_of(settings.runs)
        check_read(kind, "decode", settings, settings.runs)
        kind.decode(settings, hparams)


def decode_problem(settings: DecodeSettings, hparams: DecodeHParams) -> None:
    """Decodes with runs of problems: a file, a data set, or typed inputs; or scores lines."""
    _check_settings(settings, hparams)
    if settings.score_file:
        hparams.check_of_scores()
        _score_file(settings, hparams)
    elif settings.decode_interactive:
        hparams.check_of_prompt()
        _interact(settings, hparams)
    elif settings.decode_from_file:
        hparams.check_of_files("--decode_from_file")
        _decode_file(settings, hparams)
    else:
        _decode_dataset(settings, hparams)


_WHOLE = {"shards": 1, "shard_id": -1, "shards_start_offset": 0, "shard_google_format": False}


def _decode_hparams(settings: DecodeSettings) -> DecodeHParams:
    """Returns the decoding hparams: those of the run, changed by the settings.

    Scores of lines read no search, and have none of the run.

    Raises:
      HParamsError: a decoding setting is unknown or out of bounds.
      UsageError: the number of shards is given twice.
    """
    from t2t_torch.decode.hparam import parse_decode_hparams

    changes = settings.decode_hparams
    if settings.decode_shards != 1:
        if any(item.partition("=")[0].strip() == "shards" for item in changes.split(",")):
            raise UsageError("--decode_shards and --decode_hparams=shards=...: give one of them.")
        changes = f"shards={settings.decode_shards},{changes}".removesuffix(",")
    if settings.output_dir and not settings.score_file:
        return context.decoding_of_run(settings.runs[0], changes)
    return parse_decode_hparams(changes)


def _check_settings(settings: DecodeSettings, hparams: DecodeHParams) -> None:
    """Raises UsageError if settings do not fit each other."""
    ways = ("score_file", "decode_interactive", "decode_from_file")
    given = [f"--{name}" for name in ways if getattr(settings, name)]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)}: give one of them.")
    if hparams.shards > 1 and (settings.score_file or settings.decode_interactive):
        raise UsageError(f"{given[0]} is done in one part: leave --decode_shards and shards= out.")
    has_parts = settings.decode_from_file and settings.decode_shards > 1 and hparams.shard_id < 0
    if settings.has_runner() and not has_parts:
        raise UsageError(
            "--runner decodes the parts of a file: give --decode_from_file and --decode_shards, "
            "the number of parts from 2 on, without shard_id."
        )
    if settings.decode_reference and not settings.decode_from_file:
        raise UsageError(
            "--decode_reference belongs to --decode_from_file; a data set has its own targets."
        )


def _load(settings: DecodeSettings, hparams: DecodeHParams) -> Predictor | LabelPredictor:
    from t2t_torch.decode.loading import load
    from t2t_torch.distributed.precision import warn_if_slow
    from t2t_torch.run.directory import RunDirectory
    from t2t_torch.train.memory import keep_freed_memory

    keep_freed_memory()
    runs = settings.runs
    task = RunDirectory(runs[0]).task()
    # `load` checks the problem.
    context.check_is_of_run(settings, task, runs[0], ("model", "hparams_set"))
    problem = settings.problem if settings.problem != task.problem else None
    several: Any = runs if len(runs) > 1 else runs[0]
    predictor = load(several, settings.checkpoint_path, problem=problem, hparams=hparams)
    device = next(predictor.model.parameters()).device
    warn_if_slow(predictor.model.hparams, device, hparams.activation_dtype)
    return predictor


def _generating(settings: DecodeSettings, hparams: DecodeHParams) -> Predictor:
    """Loads a model that generates text.

    Raises:
      UsageError: the model has other outputs.
    """
    from t2t_torch.decode.predictor import Predictor

    predictor = _load(settings, hparams)
    if not isinstance(predictor, Predictor):
        raise UsageError(
            f"'{settings.output_dir}' has learnt to give {', '.join(predictor.features.targets)}, "
            "not texts: give its inputs, one a line, with --decode_from_file; what it finds in the "
            "data is written by  t2t-eval --output=FOLDER"
        )
    return predictor


def _decode_file(settings: DecodeSettings, hparams: DecodeHParams) -> None:
    from t2t_torch.decode import files
    from t2t_torch.decode.journal import Shard, part_of, shard_of
    from t2t_torch.decode.outputs import report_file
    from t2t_torch.metrics import text_scores

    given, references = Path(str(settings.decode_from_file)), None
    reference = Path(settings.decode_reference) if settings.decode_reference else None
    target = Path(settings.decode_to_file) if settings.decode_to_file else None
    shard = shard_of(hparams)
    source = part_of(given, hparams)
    if source != given:  # cut before: a file like any other
        target = target and shard.name(target, hparams)
        reference = reference and part_of(reference, hparams)
        hparams, shard = hparams.replace(**_WHOLE), Shard()
    read = [path for path in (source, reference) if path is not None]
    # Looked at first: an hour of decoding should not be for nothing.
    if target:
        check_target(shard.name(target, hparams), *read)
    if reference is not None:
        references = files.read_inputs(reference, hparams.separator)
        inputs = files.read_inputs(source, hparams.separator)
        text_scores.check_counts(len(inputs), len(references), f"--decode_reference={reference}")
        references = references[shard.rows(len(references))]
    predictor = _load(settings, hparams)
    path = files.output_name(predictor, source, target, hparams, shard)
    check_target(path, *read)
    if settings.runner and is_replaced(path):
        _decode_parts(settings, predictor, source, path)
    decoded = files.decode_file(predictor, source, target, hparams)
    summary = str(decoded)
    if settings.runner:  # the parts are joined
        summary = f"{len(decoded.predictions):,} inputs in {hparams.shards:,} tasks"
        shutil.rmtree(_ranks(path))
        for part in (Shard(rank, hparams.shards) for rank in range(hparams.shards)):
            files.output_name(predictor, source, target, hparams, part).unlink(missing_ok=True)
    report_file(f"{summary}: {path}", path)
    if references is not None:
        best = hparams.replace(return_beams=False, write_beam_scores=False)
        lines = files.output_lines(predictor, decoded.predictions, best)
        names = text_scores.scores_of(predictor.features)
        report_file(text_scores.table(lines, references, names), path)


def _ranks(path: Path) -> Path:
    return path.with_name(f"{path.name}.ranks").resolve()


def _decode_parts(
    settings: DecodeSettings, predictor: Predictor | LabelPredictor, source: Path, path: Path
) -> None:
    """Decodes the parts of a file as ranks of an executor, which leave journals to be joined.

    All ranks decode with the checkpoint that was loaded here, also if the run is still trained.
    """
    own = {"runner", "runner_option", "decode_shards", "decode_reference", "t2t_usr_dir"}
    given = {name: value for name, value in settings if name in settings.given - own}
    given["output_dir"] = ",".join(str(Path(run).resolve()) for run in settings.runs)
    given["decode_from_file"] = str(source.resolve())
    if settings.decode_to_file:
        given["decode_to_file"] = str(path.resolve())
    step = predictor.run.step if predictor.run and len(settings.runs) == 1 else -1
    loaded = Path(settings.runs[0], f"ckpt-{step}")  # not there: of an exported model
    for folder in (loaded, Path(settings.checkpoint_path or "best").resolve()):
        if folder.name.startswith("ckpt-") and folder.is_dir():
            given["checkpoint_path"] = str(folder.resolve())
    state = source.stat()
    job = {"settings": given, "inputs": [state.st_size, state.st_mtime_ns]}
    with settings.executor() as executor:
        map_ranks(executor, f"{__name__}:decode_rank", job, settings.decode_shards, _ranks(path))


def decode_rank(job: Mapping[str, Any], rank: int, count: int) -> None:
    """Decodes a part in a process of an executor."""
    settings = job["settings"]
    changes = f"{settings.get('decode_hparams', '')},shard_id={rank}".removeprefix(",")
    decode(DecodeSettings(**{**settings, "decode_shards": count, "decode_hparams": changes}))


def _score_file(settings: DecodeSettings, hparams: DecodeHParams) -> None:
    from t2t_torch.decode import evaluation
    from t2t_torch.decode.outputs import report_file

    source = Path(str(settings.score_file))
    target = Path(settings.decode_to_file or f"{source}.scores")
    check_target(target, source)
    scores = evaluation.score_file(_generating(settings, hparams), source, target)
    total = sum(score.log_probability for score in scores)
    tokens = sum(score.tokens for score in scores)
    summary = "0 lines, nothing to score"
    if scores:
        perplexity = math.exp(min(-total / tokens, 700.0))
        summary = (
            f"{len(scores):,} lines, {tokens:,} tokens: log-probability {total:.4f} nats, "
            f"perplexity {perplexity:.4f}"
        )
    report_file(f"{summary}: {target}", target)


def _decode_dataset(settings: DecodeSettings, hparams: DecodeHParams) -> None:
    from t2t_torch.decode import files
    from t2t_torch.decode.journal import shard_of
    from t2t_torch.decode.outputs import decodes_name, one_line
    from t2t_torch.metrics import text_scores

    if not settings.data_dir:
        raise UsageError(
            "what shall be decoded? Expected one of\n"
            "  --decode_from_file=...   a file of inputs\n"
            "  --decode_interactive     what you type\n"
            "  --data_dir=...           the problem's generated data"
        )
    requested = Path(settings.decode_to_file) if settings.decode_to_file else None
    if requested is not None:
        if is_stream(requested):
            raise UsageError(
                f"--decode_to_file={requested} is no regular file, and a data set is decoded to "
                "three files. Give a name that theirs begin with."
            )
        check_target(requested)
    predictor = _generating(settings, hparams)
    data_dir, split = Path(settings.data_dir), settings.split
    context.verify_data(settings.verify_data, data_dir, predictor.problem, split)
    step = predictor.run.step if predictor.run else 0
    base = requested or Path(settings.runs[0], "decodes", f"{split.value}-{step}")
    decoded, targets = files.decode_dataset(predictor, data_dir, split, base, hparams)
    output(f"{decoded}: {decodes_name(base, predictor, hparams, shard_of(hparams))}")
    best = hparams.replace(return_beams=False, write_beam_scores=False, identity_output=False)
    found = [one_line(prediction, best) for prediction in decoded.predictions]
    right = sum(one == target for one, target in zip(found, targets, strict=True))
    output(f"exact match {right / max(1, len(targets)):.4f} ({right:,} of {len(targets):,})")
    if repaired := sum(prediction.hypotheses[0].repaired for prediction in decoded.predictions):
        output(f"repaired, since they were no trees over the words: {repaired:,}")
    output(text_scores.table(found, targets, text_scores.scores_of(predictor.features)))


def _interact(settings: DecodeSettings, hparams: DecodeHParams) -> None:
    from t2t_torch.decode.interactive import LabelPrompt, TextPrompt
    from t2t_torch.decode.predictor import Predictor

    def write(text: str) -> None:
        print(text, end="", flush=True)

    predictor = _load(settings, hparams)
    if isinstance(sys.stdin, io.TextIOWrapper):  # The prompt says which line is not UTF-8.
        sys.stdin.reconfigure(errors="surrogateescape")
    if isinstance(predictor, Predictor):
        TextPrompt(predictor, hparams, write).run(sys.stdin)
    else:
        LabelPrompt(predictor, hparams, write).run(sys.stdin)
