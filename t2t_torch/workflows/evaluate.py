"""Evaluation of a run, of several as an ensemble, or of a trial, without changing them."""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import t2t_torch
from t2t_torch.errors import CheckpointError, UsageError
from t2t_torch.files import check_target, copy_regular
from t2t_torch.mode import Split
from t2t_torch.reporter import Reporter, output, phase
from t2t_torch.settings import hp, hp_path, require
from t2t_torch.signals import SignalStop, StopRequest, raise_if_stopped
from t2t_torch.train.run_config import RunConfig
from t2t_torch.train.stopping import short_names
from t2t_torch.trust import running
from t2t_torch.workflows import context
from t2t_torch.workflows.generate import unknown_line

if TYPE_CHECKING:
    from t2t_torch.decode.evaluation import EvaluationFiles
    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.distributed.process_group import World
    from t2t_torch.problem import Problem
    from t2t_torch.run.checkpoint import Checkpoint
    from t2t_torch.run.directory import RunDirectory
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.problem_task import LearningTask
    from t2t_torch.workflows.run_kind import RunKind


class EvaluateSettings(context.TrainedSettings):
    """Evaluates a checkpoint of a run without changing the run.

        t2t-eval --output_dir=run
        t2t-eval --output_dir=run --checkpoint_path=best --eval_use_test_set
        t2t-eval --output_dir=run --checkpoint_path=6000 --output_json=eval.json
        t2t-eval --output_dir=run --output=eval    # eval/results.json, eval/rows.tsv
        t2t-eval --output_dir=run --data=new.csv   # a labelled file, without t2t-datagen

    Problem, model, hyperparameters, vocabularies and, unless --data_dir is given, the data come
    from the run.  If the run keeps an average of its weights, the average is evaluated.  For a
    trial, evaluates its validation loader:
        t2t-eval --output_dir=run_of_a_trial
    Several processes:  torchrun --nproc-per-node=2 -m t2t_torch.bin.eval ...
    """

    problem: str | None = hp(
        None, "Problem to evaluate, of runs of several problems; otherwise checked against the run."
    )
    hparams: str = hp(
        "", "Changes to hyperparameters that may differ from training; batch_size may not."
    )
    data_dir: str | None = context.DATA_DIR
    eval_metrics: tuple[str, ...] = context.EVAL_METRICS
    data: str | None = hp_path(
        "Labelled file to evaluate, read as the declaration of the run says, in place of a split "
        "of generated data."
    )
    eval_steps: int = hp(0, "Number of batches; 0: the whole split.", low=0)
    worker_gpu: int = hp(1, "Device: 1: a GPU if available; 0: the CPU.", low=0, high=1)
    output_json: str | None = hp_path("JSON file of the results; -: standard output.")
    output: str | None = hp_path(
        "Folder, or file ending in .tsv or .json, of the results and of each row with target,"
        " prediction and probabilities."
    )
    decode_hparams: str = hp("", "Decoding settings for --output, as in t2t-decoder.")


def evaluate(
    settings: EvaluateSettings, *, reporter: Reporter | None = None, stop: StopRequest | None = None
) -> dict[str, Any] | None:
    """Evaluates a run; reports the results and writes the requested files.

    Args:
      settings: what is evaluated, and how.
      reporter: where the results are reported; None: to the current one.
      stop: request to stop.

    Returns:
      The results as JSON values; None in processes of torchrun other than the first, and after a
      request to stop.

    Raises:
      T2TError: a setting does not fit, or the run cannot be evaluated.
    """
    from t2t_torch.workflows.run_kind import check_read, kind_of

    stop = StopRequest() if stop is None else stop
    with running(settings, reporter):
        require(settings, "output_dir")
        runs = settings.runs
        kind = kind_of(runs)
        check_read(kind, "evaluate", settings, runs)
        with _with_data(settings, kind) as settings:
            return _evaluate(settings, kind, stop)


@contextlib.contextmanager
def _with_data(settings: EvaluateSettings, kind: RunKind) -> Iterator[EvaluateSettings]:
    """Yields the settings with the data folder of the run, or of the samples of `--data`."""
    if not settings.data:
        yield kind.with_data(settings)
        return
    for name in ("data_dir", "eval_use_test_set"):
        if settings.is_changed(name):
            raise UsageError(f"--data is evaluated in place of --{name}. Give one of them.")
    from t2t_torch.run.directory import RunDirectory

    directory = RunDirectory(settings.runs[0])
    problem = kind.problem(directory)
    if problem is not None and settings.problem:  # one of several
        problem = {one.full_name: one for one in problem.components}.get(settings.problem, problem)
    with _data_of_file(problem, Path(settings.data), directory.path) as folder:
        yield settings.replace(data_dir=folder)


@contextlib.contextmanager
def _data_of_file(problem: Problem | None, file: Path, run: Path) -> Iterator[str]:
    """Yields a data folder with the samples of a file, in their order, as the dev split.

    Rows that do not fit are skipped and reported, and so are labels that the run does not know.

    Args:
      problem: the problem; its declaration says how the file is read.
      file: the file.
      run: the run directory, with the vocabularies.

    Raises:
      DataError: no row of the file fits the declaration.
      UsageError: the problem is not declared.
    """
    from t2t_torch.data.generate import generate_data
    from t2t_torch.declaration.problem import DeclaredProblem, format_like, problem_of

    if not isinstance(problem, DeclaredProblem):
        raise UsageError(
            f"--data={file}: this run has no declaration that says how a file is read. Generate its"
            " data with t2t-datagen, and give --data_dir."
        )
    columns = [one for column in problem.sample_maker.columns.values() for one in column.column]

    def fits(_: str, row: Mapping[str, Any]) -> bool:
        return {*columns} <= {*row, *map(str, range(-len(row), 0))}

    name, options = format_like(problem, file, fits)
    path = str(file.resolve())
    content = json.loads(problem.said)
    content |= {"files": {"train": path, "eval": path}, "format": name, "options": options}
    kind: Any = type(problem_of(content, problem.declared_in))
    vocab_files = problem.vocab_files

    class LabelledFile(kind):  # type: ignore[misc]
        """The problem of the run with the rows of one file."""

        shards = {Split.EVAL: 1}  # noqa: RUF012
        keeps_order = True
        kept_vocab_files = vocab_files

        def prepare(self, tmp_dir: Path) -> None: ...

        def build_vocab(self, data_dir: Path, tmp_dir: Path) -> None: ...

    with tempfile.TemporaryDirectory() as folder:
        made = LabelledFile()
        for one in filter(lambda one: (run / one).is_file(), vocab_files):
            copy_regular(run / one, Path(folder, one))
        options = {"num_processes": 1, "on_bad_record": "skip", "progress": False}
        with phase(f"reading {file}"):
            manifest = generate_data(made, folder, file.parent, **options)
        entry = manifest.splits[Split.EVAL.value]
        output(f"{file}: {entry.rows:,} rows, {entry.skipped:,} skipped")
        if made.bad_records.listed:
            output(f"The first that was skipped: {made.bad_records.listed[0]}")
        for feature, count in entry.unknown.items():
            output(unknown_line(str(file), feature, count, entry.unknown_labels.get(feature, ())))
        yield folder


def metrics_of(values: Mapping[str, Any]) -> dict[str, float]:
    """Evaluates a run with the values of a call; returns the metrics by name, NaN if undefined.

    Raises:
      KeyboardInterrupt: Ctrl-C ended the evaluation.
      SystemExit: another signal did.
      T2TError: see `evaluate`.
    """
    stop = SignalStop()
    with context.called(EvaluateSettings, "t2t-eval", values) as settings:
        results = evaluate(settings, stop=stop)
    raise_if_stopped(stop.signal)
    metrics: dict[str, float | None] = results["metrics"] if results else {}
    names = short_names(metrics)
    return {names[name]: math.nan if v is None else v for name, v in metrics.items()}


class EvaluationResult(NamedTuple):
    """Results of an evaluation.

    Attributes:
      task: name of the evaluated task.
      model: name of the model, or class name; of an ensemble, the number of runs.
      step: step of the evaluated checkpoint.
      checkpoint: its path; of an ensemble, the runs.
      metrics: scalar metrics.
      loaded: arguments of `decode.loading.load`: a run directory or several, and a checkpoint.
      dtype: number type of the evaluation; None: that of training.
    """

    task: str
    model: str
    step: int | str
    checkpoint: str
    metrics: Mapping[str, float]
    loaded: tuple[Any, str | None]
    dtype: str | None = None


def _evaluate(
    settings: EvaluateSettings, kind: RunKind, stop: StopRequest
) -> dict[str, Any] | None:
    """Evaluates a run, or several as an ensemble; see `evaluate`."""
    from t2t_torch.run.directory import RunDirectory

    is_ensemble = len(settings.runs) > 1
    names = ("model", "hparams_set") if is_ensemble else context.RUN_FLAGS
    directories = [RunDirectory(settings.runs[0])]
    if is_ensemble:
        from t2t_torch.decode.evaluation import run_of

        directories = [run_of(run) for run in settings.runs]
    for directory in directories:
        context.check_is_of_run(settings, directory.task(), directory.path, names)
    if is_ensemble and settings.hparams:
        raise UsageError(
            f"--hparams={settings.hparams}: several runs are evaluated with their own. Leave it "
            "out, or give one run."
        )
    target = context.file_to_write(settings, "output_json", stdout=True)
    decoding = context.decoding_of_run(settings.runs[0], settings.decode_hparams)
    files = _files(settings)
    if is_ensemble:
        evaluated: EvaluationResult | None = _evaluated_ensemble(settings, decoding)
    else:
        evaluated = _evaluated(settings, kind, stop)
    if evaluated is None or stop:
        return None  # the rows may take long
    results = _results(settings, evaluated)
    _report(results, target)
    if files is not None:
        problems = () if is_ensemble else kind.problem_names(directories[0])
        with phase("predicting each row"):
            _write(settings, files, results, evaluated, problems, decoding)
    return results


def _evaluated(
    settings: EvaluateSettings, kind: RunKind, stop: StopRequest
) -> EvaluationResult | None:
    """Evaluates a checkpoint of a run, in all processes; None in those that do not lead."""
    from t2t_torch.distributed.precision import warn_if_slow
    from t2t_torch.distributed.process_group import join_world
    from t2t_torch.run.directory import RunDirectory
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.random_state import restored_generators

    directory = RunDirectory(settings.runs[0])
    config = RunConfig(eval_steps=settings.eval_steps, eval_split=settings.split)
    with join_world(use_gpu=settings.worker_gpu > 0) as world, restored_generators(), stop:
        task: Any = kind.task(settings, directory, world)
        with Estimator(task, directory, config, world=world, stop=stop, reports=False) as estimator:
            checkpoint = _restored(estimator, settings.checkpoint_path)
            if world.leads:
                warn_if_slow(task.hparams, world.device)
            metrics = dict(estimator.evaluate())
            if estimator.signal:  # of any process
                stop.request(estimator.signal)
            if not world.leads:
                return None
            model = directory.task().model or type(estimator.model).__name__
            path, dtype = str(checkpoint.path), task.hparams.activation_dtype
            loaded = settings.output_dir, path
            return EvaluationResult(task.name, model, checkpoint.step, path, metrics, loaded, dtype)


def _files(settings: EvaluateSettings) -> EvaluationFiles | None:
    """Returns the files of `--output`, checked; None without it.

    Raises:
      UsageError: a file cannot be written, or not all rows are evaluated.
    """
    from t2t_torch.decode.evaluation import EvaluationFiles

    if not settings.output:
        if settings.decode_hparams:
            raise UsageError("--decode_hparams: texts are decoded for --output alone. Give it.")
        return None
    if settings.eval_steps:
        raise UsageError(
            f"--output writes every row of the split, --eval_steps={settings.eval_steps} evaluates "
            "some. Leave one of them out."
        )
    files = EvaluationFiles.of(settings.output)
    for path in files:
        check_target(path, flag="--output")
    return files


def _add_metrics(settings: EvaluateSettings, task: LearningTask, decoding: DecodeHParams) -> None:
    """Adds the metrics of label tables and of `--eval_metrics` to a task.

    Raises:
      HParamsError: `--decode_hparams` contains settings that the rows of `--output` do not use.
    """
    from t2t_torch.decode.evaluation import check_rows
    from t2t_torch.metrics import label_metrics
    from t2t_torch.train.experiment import add_metrics

    if settings.output:
        check_rows(decoding, {name: one.features for name, one in task.tasks.items()})
    add_metrics(task, settings.eval_metrics, label_metrics)


def _write(
    settings: EvaluateSettings,
    files: EvaluationFiles,
    results: dict[str, Any],
    evaluated: EvaluationResult,
    problems: Iterable[str],
    how: DecodeHParams,
) -> None:
    """Writes the results and the rows.

    Args:
      settings: the settings.
      files: files to write.
      results: reported results.
      evaluated: what was evaluated.
      problems: problems of a run of several.
      how: decoding hparams.
    """
    from t2t_torch.decode.evaluation import EvaluatedRows, confusion, write_results, write_rows
    from t2t_torch.decode.loading import load
    from t2t_torch.metrics.text_scores import score
    from t2t_torch.reports.section import Table, aligned
    from t2t_torch.reports.slices import sections_of_slices

    device = None if settings.worker_gpu else "cpu"
    data_dir, split = Path(str(settings.data_dir)), Split(results["split"])
    write_results(files.results, results)  # rows may take long
    results["confusion"], results["text_scores"], results["slices"] = {}, {}, {}
    for problem in problems or (None,):
        part = problem or (settings.problem if len(settings.runs) > 1 else None)
        predictor = load(*evaluated.loaded, problem=part, hparams=how, device=device)
        rows = EvaluatedRows(predictor, data_dir, split, how, activation_dtype=evaluated.dtype)
        path = files.rows_of(problem)
        count = write_rows(path, rows)
        output(f"{count:,} {'row' if count == 1 else 'rows'} written to {path}")
        prefix = "" if problem is None else f"{problem}/"
        for target, counts in rows.confusion.items():
            results["confusion"][prefix + target] = confusion(counts)
        for target, slices in rows.slices.items():
            results["slices"][prefix + target] = slices.worst()
        for target, texts in rows.texts.items():
            scores = score(*zip(*texts, strict=True)) if texts else {}
            results["text_scores"][prefix + target] = {
                which: {"value": one.value, "signature": one.signature}
                for which, one in scores.items()
            }
            output("\n".join(f"  {one.line}" for one in scores.values()))
    for section in sections_of_slices(results):
        (table,) = section.blocks
        assert isinstance(table, Table)
        lines = aligned([table.head, *table.rows], table.words)  # type: ignore[list-item]
        output("\n".join(["", f"{section.title}:", *(f"  {line}" for line in lines)]))
    write_results(files.results, results)
    output(f"results written to {files.results}")


def _evaluated_ensemble(settings: EvaluateSettings, decoding: DecodeHParams) -> EvaluationResult:
    """Evaluates several runs as an ensemble, in this process."""
    from t2t_torch.decode.evaluation import evaluate_ensemble, run_of
    from t2t_torch.decode.loading import registered

    runs = settings.runs
    first, data_dir, split = run_of(runs[0]), Path(str(settings.data_dir)), settings.split
    problem = registered(first, first.task())[0]
    context.verify_data(settings.verify_data, data_dir, problem, split)
    metrics = evaluate_ensemble(
        runs,
        data_dir,
        split,
        settings.checkpoint_path,
        problem=settings.problem,
        limit=settings.eval_steps,
        device=None if settings.worker_gpu else "cpu",
        prepare=lambda task: _add_metrics(settings, task, decoding),
    )
    name = next(iter(metrics.keys() - {"loss"})).partition("/")[0].removeprefix("metrics-")
    checkpoint, model = settings.checkpoint_path, f"{len(runs)} runs as one"
    step = checkpoint or "best or newest"
    return EvaluationResult(name, model, step, ", ".join(runs), metrics, (runs, checkpoint))


def task_of_run(settings: EvaluateSettings, directory: RunDirectory, world: World) -> LearningTask:
    """Returns the task of a run of a problem or of several, with the metrics to report."""
    from t2t_torch.data.vocabulary_builder import vocab_files_in
    from t2t_torch.decode.loading import registered
    from t2t_torch.train.multi_task import task_of

    problem, model = registered(directory, directory.task())
    hparams = directory.hparams(model.HParams).parse(settings.hparams)
    data_dir = Path(str(settings.data_dir))
    with world.leader_first() as leads:
        if leads:
            directory.check_hparams(hparams, trains=False)
            names = vocab_files_in(problem, data_dir, directory.path)
            directory.check_vocabularies(names, data_dir)
            context.verify_data(settings.verify_data, data_dir, problem, settings.split)
    task = task_of(
        problem,
        model,
        hparams,
        data_dir=data_dir,
        vocab_dir=directory.path,
        pin_memory=world.device.type == "cuda",
    )
    _add_metrics(settings, task, context.decoding_of_run(directory.path, settings.decode_hparams))
    return task


def _restored(estimator: Estimator, wanted: str | None) -> Checkpoint:
    """Restores the requested checkpoint; by default the best one, or the newest if none is rated.

    Raises:
      CheckpointError: there is none, or it is corrupt.
    """
    from t2t_torch.decode.loading import BEST, NO_CHECKPOINT, find_checkpoint

    if not wanted and estimator.checkpoints.best() is not None:
        wanted = BEST
    if not wanted:
        newest = estimator.restore_newest()
        if newest is None:
            raise CheckpointError(NO_CHECKPOINT.format(estimator.directory.path))
        return newest
    chosen = find_checkpoint(estimator.directory, wanted)
    chosen.check_vocabularies(estimator.directory.path)
    estimator.restore(chosen)
    return chosen


def _results(settings: EvaluateSettings, evaluated: EvaluationResult) -> dict[str, Any]:
    """Returns the results as JSON values; NaN becomes null, because JSON has no NaN."""
    from t2t_torch.decode.evaluation import label_tables

    tables, plain = label_tables(evaluated.metrics)
    return {
        "problem": evaluated.task,
        "model": evaluated.model,
        "checkpoint": evaluated.checkpoint,
        "step": evaluated.step,
        "split": settings.split.value,
        **({"data": settings.data} if settings.data else {}),
        "batches": settings.eval_steps or "all",
        "version": t2t_torch.__version__,
        "metrics": {name: v if math.isfinite(v) else None for name, v in plain.items()},
        "labels": tables,
    }


def _report(results: dict[str, Any], target: Path | None) -> None:
    from t2t_torch.decode.evaluation import format_tables, write_results

    if str(target) == "-":
        output(json.dumps(results, indent=2))
        return
    step = str(results["step"])
    which = f"step {step}" if step.isdecimal() else f"checkpoints: {step}"
    what = f"{results['problem']}, {results.get('data', results['split'])}, {which}"
    output(f"{what}  ({results['checkpoint']})")
    names = short_names(results["metrics"])
    width = max(map(len, names.values()))
    for name, value in results["metrics"].items():
        output(f"  {names[name]:<{width}}  {'nan' if value is None else format(value, '.6g')}")
    for line in format_tables(results["labels"]):
        output(line)
    if target is not None:
        write_results(target, results)
        output(f"written to {target}")
