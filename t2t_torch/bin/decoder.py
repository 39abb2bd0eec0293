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

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch.bin import flags as shared
from t2t_torch.bin.flags import check_is_of_run, keep_freed_memory
from t2t_torch.errors import UsageError
from t2t_torch.settings import Settings, hp

if TYPE_CHECKING:
    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.decode.label_predictor import LabelPredictor
    from t2t_torch.decode.predictor import Predictor


_WHOLE = {
    "shards": 1,
    "shard_id": -1,
    "shards_start_offset": 0,
    "shard_google_format": False,
}


class DecoderOptions(Settings):
    """Flags of `t2t-decoder`."""

    output_dir: str | None = hp(
        None,
        "Run directory of t2t-trainer; several, separated by commas, form an ensemble that "
        "averages probabilities, or log-probabilities for texts.",
        path=True,
    )
    data_dir: str | None = hp(
        None, "Directory of the generated data; only needed to decode a data set.", path=True
    )
    problem: str | None = hp(
        None, "Problem to decode, of a run of several problems; default: the run's own."
    )
    model: str | None = hp(None, "Checked against the run if given; not needed.")
    hparams_set: str | None = hp(None, "Checked against the run if given; not needed.")
    checkpoint_path: str | None = hp(
        None,
        "Checkpoint: a ckpt-<step> folder, a step, 'best' or 'latest'; default: the best "
        "evaluated one, or the latest if none was evaluated.",
        path=True,
    )
    decode_from_file: str | None = hp(
        None, "File of inputs, one per line; or a table, .csv, .tsv, .xlsx, .parquet.", path=True
    )
    decode_to_file: str | None = hp(
        None,
        "File of outputs, one per input, in the same order; default: next to the inputs.",
        path=True,
    )
    decode_reference: str | None = hp(
        None,
        "File of reference outputs, for BLEU and chrF with the signatures of sacreBLEU.",
        path=True,
    )
    score_file: str | None = hp(
        None,
        "File of texts, or of inputs and outputs with a tab between: writes the log-probability "
        "(nats) of each line, to --decode_to_file or beside it.",
        path=True,
    )
    decode_hparams: str = hp("", 'Decoding settings: "beam_size=4,alpha=0.6".')
    decode_shards: int = hp(
        1,
        "Parts that inputs are decoded in: --decode_hparams=shard_id=N decodes one; without it "
        "those that are not there yet are decoded, and all are joined.",
        low=1,
        high=100000,
    )
    decode_interactive: bool = hp(False, "Decodes lines typed in the terminal.")
    eval_use_test_set: bool = hp(
        False, "Decodes the test split of a data set instead of the dev split."
    )
    help_decode_hparams: bool = hp(False, "Lists the settings of --decode_hparams and exits.")


FLAGS = shared.CommandFlags(
    "t2t-decoder",
    DecoderOptions,
    common=(*shared.RUN_FLAGS, "data_dir", "output_dir", *shared.CODE_FLAGS, "verify_data"),
)
_flag = FLAGS.value_of


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return shared.run_main(_run, FLAGS, __doc__, argv)


def _run() -> int:
    from t2t_torch.decode.hparam import parse_decode_hparams
    from t2t_torch.loading import trial_of

    hparams = parse_decode_hparams(_settings(), defaults=_defaults())
    if _flag("help_decode_hparams"):
        print(hparams.describe(), end="")
        return 0
    if _flag("output_dir") and any(map(trial_of, _flag("output_dir").split(","))):
        return _decode_trial()
    _check_flags(hparams)
    if _flag("score_file"):
        _score_file(hparams)
    elif _flag("decode_interactive"):
        _interact(hparams)
    elif _flag("decode_from_file"):
        _decode_file(hparams)
    else:
        _decode_dataset(hparams)
    return 0


def _settings() -> str:
    """Returns `--decode_hparams` including `--decode_shards`."""
    settings: str = _flag("decode_hparams")
    if _flag("decode_shards") == 1:
        return settings
    if any(item.partition("=")[0].strip() == "shards" for item in settings.split(",")):
        raise UsageError("--decode_shards and --decode_hparams=shards=...: give one of them.")
    return f"shards={_flag('decode_shards')},{settings}".removesuffix(",")


def _defaults() -> str:
    """Returns the decoding settings of the run; none for scores, which read no search."""
    from t2t_torch.loading import decode_defaults

    run, checkpoint = _flag("output_dir"), _flag("checkpoint_path")
    if not run and checkpoint:
        run = str(Path(checkpoint).resolve().parent)
    return "" if _flag("score_file") or not run else decode_defaults(run.split(",")[0])


def _check_flags(hparams: DecodeHParams) -> None:
    path = _flag("checkpoint_path")
    if path and path != "best" and not _flag("output_dir"):
        FLAGS["output_dir"].value = str(Path(path).resolve().parent)
    shared.require(FLAGS, "output_dir")
    given = [
        f"--{name}"
        for name in ("score_file", "decode_interactive", "decode_from_file")
        if _flag(name)
    ]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)}: give one of them.")
    if hparams.shards > 1 and (_flag("score_file") or _flag("decode_interactive")):
        raise UsageError(f"{given[0]} is done in one part: leave --decode_shards and shards= out.")
    if _flag("score_file"):
        hparams.check_of_scores()
    elif _flag("decode_interactive"):
        hparams.check_of_prompt()
    elif _flag("decode_from_file"):
        hparams.check_of_files("--decode_from_file")
    if _flag("decode_reference") and not _flag("decode_from_file"):
        raise UsageError(
            "--decode_reference belongs to --decode_from_file; a data set has its own targets."
        )


def _load(hparams: DecodeHParams) -> Predictor | LabelPredictor:
    from t2t_torch.decode.loading import load
    from t2t_torch.distributed.precision import warn_if_slow
    from t2t_torch.train.run_directory import RunDirectory

    keep_freed_memory()

    runs = _runs()
    task = RunDirectory(runs[0]).task()
    check_is_of_run(FLAGS, task, runs[0])
    problem = _flag("problem") if _flag("problem") != task.problem else None
    several: Any = runs if len(runs) > 1 else runs[0]
    predictor = load(several, _flag("checkpoint_path"), problem=problem, hparams=hparams)
    device = next(predictor.model.parameters()).device
    warn_if_slow(predictor.model.hparams, device, hparams.activation_dtype)
    return predictor


def _runs() -> list[str]:
    """Returns the run directory, or those of an ensemble."""
    return [str(Path(run).expanduser()) for run in _flag("output_dir").split(",")]


def _generating(hparams: DecodeHParams) -> Predictor:
    """Loads a model that generates text.

    Raises:
      UsageError: the model has other outputs.
    """
    from t2t_torch.decode.predictor import Predictor

    predictor = _load(hparams)
    if not isinstance(predictor, Predictor):
        raise UsageError(
            f"'{_flag('output_dir')}' has learnt to give {', '.join(predictor.features.targets)}, "
            "not texts: give its inputs, one a line, with --decode_from_file; what it finds in the "
            "data is written by  t2t-eval --output=FOLDER"
        )
    return predictor


def _decode_file(hparams: DecodeHParams) -> None:
    from t2t_torch.decode import files
    from t2t_torch.decode.outputs import (
        decodes_name,
        name_of_shard,
        one_line,
        part_of,
        rows_of_shard,
        shard_of,
    )
    from t2t_torch.decode.predictor import Predictor
    from t2t_torch.files import check_target, goes_to_stdout
    from t2t_torch.metrics import text_scores

    given, references = Path(_flag("decode_from_file")), None
    reference = Path(_flag("decode_reference")) if _flag("decode_reference") else None
    target = Path(_flag("decode_to_file")) if _flag("decode_to_file") else None
    shard = shard_of(hparams)
    source = part_of(given, hparams)
    if source != given:  # cut before: a file like any other
        target = target and name_of_shard(target, hparams, shard)
        reference = reference and part_of(reference, hparams)
        hparams, shard = hparams.replace(**_WHOLE), None
    read = [path for path in (source, reference) if path is not None]
    # Looked at first: an hour of decoding should not be for nothing.
    if target:
        check_target(name_of_shard(target, hparams, shard), *read)
    if reference is not None:
        references = files.read_inputs(reference, hparams.separator)
        inputs = files.read_inputs(source, hparams.separator)
        text_scores.check_counts(len(inputs), len(references), f"--decode_reference={reference}")
        references = references[rows_of_shard(hparams, len(references))]
    predictor = _load(hparams)
    if not isinstance(predictor, Predictor):
        lines = files.label_file(predictor, source, str(target) if target else None, hparams)
        path = target or Path()
        names = text_scores.scores_of(predictor.features)
    else:
        path = decodes_name(source, predictor, hparams, shard)
        if target:
            path = name_of_shard(target, hparams, shard)
        check_target(path, *read)
        decoded = files.decode_file(predictor, source, target or None, hparams)
        report = sys.stderr if goes_to_stdout(path) else sys.stdout
        print(f"{decoded}: {path}", file=report)
        best = hparams.replace(return_beams=False, write_beam_scores=False)
        lines = [one_line(prediction, best) for prediction in decoded.predictions]
        names = text_scores.scores_of(predictor.features)
    if references is not None:
        report = sys.stderr if goes_to_stdout(path) else sys.stdout
        print(text_scores.table(lines, references, names), file=report)


def _score_file(hparams: DecodeHParams) -> None:
    import math

    from t2t_torch.decode import evaluation
    from t2t_torch.files import check_target, goes_to_stdout

    source = Path(_flag("score_file"))
    target = Path(_flag("decode_to_file") or f"{source}.scores")
    check_target(target, source)
    scores = evaluation.score_file(_generating(hparams), source, target)
    total = sum(score.log_probability for score in scores)
    tokens = sum(score.tokens for score in scores)
    summary = "0 lines, nothing to score"
    if scores:
        perplexity = math.exp(min(-total / tokens, 700.0))
        summary = (
            f"{len(scores):,} lines, {tokens:,} tokens: log-probability {total:.4f} nats, "
            f"perplexity {perplexity:.4f}"
        )
    print(
        f"{summary}: {target}",
        file=sys.stderr if goes_to_stdout(target) else sys.stdout,
    )


def _decode_dataset(hparams: DecodeHParams) -> None:
    from t2t_torch.decode import files
    from t2t_torch.decode.outputs import decodes_name, one_line, shard_of
    from t2t_torch.files import check_target, is_stream
    from t2t_torch.metrics import text_scores
    from t2t_torch.mode import Split

    if not _flag("data_dir"):
        raise UsageError(
            "what shall be decoded? Expected one of\n"
            "  --decode_from_file=...   a file of inputs\n"
            "  --decode_interactive     what you type\n"
            "  --data_dir=...           the problem's generated data"
        )
    requested = Path(_flag("decode_to_file")) if _flag("decode_to_file") else None
    if requested is not None:
        if is_stream(requested):
            raise UsageError(
                f"--decode_to_file={requested} is no regular file, and a data set is decoded to "
                "three files. Give a name that theirs begin with."
            )
        check_target(requested)
    predictor = _generating(hparams)
    split = Split.TEST if _flag("eval_use_test_set") else Split.EVAL
    shared.verify_data(FLAGS, predictor.problem, split)
    step = predictor.run.step if predictor.run else 0
    default = Path(_runs()[0], "decodes", f"{split.value}-{step}")
    base = requested or default
    decoded, targets = files.decode_dataset(
        predictor, Path(_flag("data_dir")), split, base, hparams
    )
    print(f"{decoded}: {decodes_name(base, predictor, hparams, shard_of(hparams))}")
    best = hparams.replace(return_beams=False, write_beam_scores=False, identity_output=False)
    outputs = [one_line(prediction, best) for prediction in decoded.predictions]
    right = sum(output == target for output, target in zip(outputs, targets, strict=True))
    print(f"exact match {right / max(1, len(targets)):.4f} ({right:,} of {len(targets):,})")
    if repaired := sum(prediction.hypotheses[0].repaired for prediction in decoded.predictions):
        print(f"repaired, since they were no trees over the words: {repaired:,}")
    print(text_scores.table(outputs, targets, text_scores.scores_of(predictor.features)))


def _interact(hparams: DecodeHParams) -> None:
    from t2t_torch.decode.interactive import LabelPrompt, TextPrompt
    from t2t_torch.decode.predictor import Predictor

    def write(text: str) -> None:
        print(text, end="", flush=True)

    predictor = _load(hparams)
    if isinstance(sys.stdin, io.TextIOWrapper):  # The prompt says which line is not UTF-8.
        sys.stdin.reconfigure(errors="surrogateescape")
    if isinstance(predictor, Predictor):
        TextPrompt(predictor, hparams, write).run(sys.stdin)
    else:
        LabelPrompt(predictor, hparams, write).run(sys.stdin)


_DECODE_FLAGS_OF_PROBLEMS = (
    *("data_dir", "problem", "model", "hparams_set", "decode_reference", "score_file"),
    *("decode_hparams", "decode_shards", "decode_interactive", "eval_use_test_set"),
)


def _decode_trial() -> int:
    """Decodes with a run of a trial; returns the exit code.

    Raises:
      UsageError: a flag applies only to problems, or the suffix of a file is unknown.
    """
    shared.check_is_of_trial(FLAGS, _DECODE_FLAGS_OF_PROBLEMS)
    from t2t_torch.distributed.process_group import World
    from t2t_torch.files import check_target
    from t2t_torch.trial.decoding import TrialDecoder, check_files, device
    from t2t_torch.trial.predictor import OpenedRun

    run_dir = Path(_flag("output_dir")).expanduser()
    given, output = _flag("decode_from_file"), _flag("decode_to_file")
    source = Path(given) if given else None
    if output:
        check_files(source, Path(output))
        check_target(Path(output), *([source] if source else []))
    elif source:
        check_files(source, source)
    opened = OpenedRun.of(run_dir, World(0, 1, device()))
    decoder = TrialDecoder(opened, _flag("checkpoint_path"))
    step = decoder.predictor.chosen.step
    if output:
        target = Path(output)
    elif source:
        target = source.with_name(f"{source.stem}.{opened.task.name}.{step}{source.suffix}")
    else:
        target = run_dir / "decodes" / f"validation-{step}.npz"
    check_target(target, *([source] if source else []))
    count = decoder.decode(source, target)
    what = source or "the validation loader"
    print(f"{count:,} records of {what}, {decoder.predictor.chosen.description}: {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
