"""From a file to a served model: declares, generates, trains, evaluates, exports, reports."""

from __future__ import annotations

import csv
import dataclasses
import functools
import itertools
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch import registry
from t2t_torch.atomic_files import write_text
from t2t_torch.errors import T2TError, UsageError
from t2t_torch.export.settings import ExportSettings
from t2t_torch.files import read_json, read_lines, read_text
from t2t_torch.reporter import Reporter, message, output
from t2t_torch.settings import Settings, hp, hp_path, require
from t2t_torch.signals import StopRequest
from t2t_torch.trust import running
from t2t_torch.workflows.evaluate import EvaluateSettings, evaluate
from t2t_torch.workflows.generate import (
    DeclareSettings,
    GenerateSettings,
    declare,
    generate,
    pretrained_name,
)
from t2t_torch.workflows.latency import LatencySettings, measure_latency
from t2t_torch.workflows.leaderboard import Leaderboard
from t2t_torch.workflows.run import export
from t2t_torch.workflows.train import train
from t2t_torch.workflows.train_settings import TrainSettings

if TYPE_CHECKING:
    from t2t_torch.problem import Problem
    from t2t_torch.reports.section import Section


class QuickSettings(Settings):
    """From a file to a served model: declares, generates, trains, evaluates and exports.

        t2t-quick reviews.csv
        t2t-quick reviews.csv --minutes=3 --output_dir=reviews
        t2t-quick my_problem.json    # a declaration, as of t2t-datagen --declare_to

    Runs the other commands, and prints each of them.  Model, hparams set and steps are chosen by
    the kind and the size of the data.  All files are in --output_dir: the declaration, which you
    can edit, data, run, evaluation, artifact and report.html.  Run it again to resume.
    """

    output_dir: str | None = hp_path(
        "Directory of everything that is written; default: the file's name."
    )
    random_seed: int | None = hp(None, "Random seed of the training.")
    file: str | None = hp_path(
        "File or folder of data, or a declaration (.json); also without --file=."
    )
    merge_labels: bool = hp(False, "Merges labels that differ only by case or blanks.")
    minutes: float = hp(10.0, "Minutes of training at most, evaluations not counted.", low=0.01)
    latency_ms: float = hp(
        0.0,
        "Median latency of an input at most, in PyTorch on one thread; a better model that is "
        "slower is distilled into one that is fast enough.  0: any.",
        low=0.0,
    )
    pretrained: str | None = hp_path(
        "Folder of a pretrained model, as save_pretrained of transformers writes it, to begin with."
    )
    yes: bool = hp(False, "Take the first problem where several are as likely.")
    declare_choice: int = hp(
        0,
        "Number of the problem to learn, of those that are listed where several are as likely.",
        low=0,
    )


_SCORES = {"bleu": "BLEU", "chrf": "chrF"}  # of decoded texts
_EXAMINED = 5000  # training rows among which wrong labels are looked for, in half a minute
_ROWS = 8  # of each kind of sample on the report
_OF_DATA = ("lengths", "labels", "numbers", "duplicates")  # sections on the report
_HIDDEN = ("_probabilities", "_is_right", "_scores")  # columns of rows.tsv


def quick(
    settings: QuickSettings,
    *,
    reporter: Reporter | None = None,
    stop: StopRequest | None = None,
    ask: Callable[[Sequence[str]], int] | None = None,
) -> int:
    """Makes a served model of a file of data; resumes what was interrupted.

    Args:
      settings: the file, and where and how long.
      reporter: where progress and results are reported; None: to the current one.
      stop: request to stop.
      ask: returns the number of one of several problems that are as likely; None: an error.

    Returns:
      The number of the signal that stopped it; 0 if it is complete.

    Raises:
      T2TError: a setting does not fit, or a step has failed.
    """
    with running(settings, reporter):
        from t2t_torch.declaration.files import single_archive

        require(settings, "file")
        file = single_archive(Path(str(settings.file)))
        if not file.exists():
            raise UsageError(f"there is no file or folder {file}.")
        name = file.name.partition(".")[0] or "quick"
        folder = Path(settings.output_dir or f"{name}_quick")
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"--output_dir={folder} is a file; name a new folder.")
        _check_source(file, folder)
        from t2t_torch.run.directory import training_lock

        try:
            with training_lock(folder / "quick.lock"):
                _Quick(settings, file, folder, StopRequest() if stop is None else stop, ask).run()
        except _StepStoppedError as stopped:
            return stopped.number
        return 0


def _check_source(file: Path, folder: Path) -> None:
    """Records the file that a folder belongs to.

    Raises:
      UsageError: the folder belongs to another file, or cannot be written.
    """
    record, source = folder / "source.txt", str(file.resolve())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not record.exists():
            record.write_text(f"{source}\n", encoding="utf-8")
        known = read_text(record).strip()
        if known != source and Path(known).name == file.name and not Path(known).exists():
            output(f"{known}, which {folder} was made of, is gone: {source} is used.")
            record.write_text(f"{source}\n", encoding="utf-8")
            known = source
    except OSError as error:
        raise UsageError(f"--output_dir={folder} cannot be written: {error.strerror}.") from None
    if known != source:
        raise UsageError(f"{folder} belongs to {known}: give another --output_dir.")


class _StepStoppedError(Exception):
    """A step was stopped by a signal."""

    def __init__(self, number: int) -> None:
        self.number = number


@dataclasses.dataclass
class _Quick:
    """The steps of one file, in their order.

    Attributes:
      settings: the settings.
      file: data, or a declaration.
      folder: folder of everything that is written.
      stop: request to stop.
      ask: returns the number of one of several problems.
      commands: the commands that were run.
    """

    settings: QuickSettings
    file: Path
    folder: Path
    stop: StopRequest
    ask: Callable[[Sequence[str]], int] | None = None
    commands: list[str] = dataclasses.field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.data = self.folder / "data"
        self.train = self.evaluated = self.folder / "run"

    def run(self) -> None:
        """Runs all steps, and writes the report.

        Raises:
          _StepStoppedError: a signal stopped it; if it has trained, the best model so far is
            evaluated and exported before.
        """
        from t2t_torch.data.manifest import Manifest

        declaration = self._declared()
        name = str(read_json(declaration)["problem"])
        registry.import_usr_dir(declaration.parent)
        self._generate(name, declaration)
        name = pretrained_name(name) if self.settings.pretrained else name
        stopped: _StepStoppedError | None = None
        try:
            metrics = self._train(name, declaration.parent)
        except _StepStoppedError as error:
            stopped, metrics = error, {}
        runs, artifact = self._runs(), self.folder / "artifact"
        if not runs and stopped is not None:
            raise stopped
        has_test = "test" in Manifest.load(self.data, registry.problem(name).dataset_name).splits
        board = self.leaderboard()
        knows_dev = board is not None and board.trained_again and not self.settings.latency_ms
        measured = board.best if board is not None and knows_dev else runs
        self.evaluated = Path(measured[0]) if measured else self.train
        joined, stop = ",".join(runs), StopRequest()
        evaluated: dict[str, Any] = {"output": str(self.folder / "evaluation"), **metrics}
        if has_test:
            evaluated["eval_use_test_set"] = True
        evaluation = EvaluateSettings(
            output_dir=joined if has_test else ",".join(measured),
            data_dir=str(self.data),
            **evaluated,
        )
        self._call("t2t-eval", evaluation, lambda: evaluate(evaluation, stop=stop), stop)
        exported = ExportSettings(output_dir=joined, export_dir=str(artifact), overwrite=True)
        self._call("t2t-exporter", exported, lambda: export(exported), stop)
        if stopped is not None:
            output(f"\nThe best model so far:  {artifact}")
            raise stopped
        timed = LatencySettings(
            artifact=str(artifact),
            json_=str(self.folder / "latency.json"),
            rows=200,
            passes=1,
            warm_up=50,
            **({"output_dir": joined} if len(runs) == 1 else {}),
        )
        self._call("t2t-latency", timed, lambda: measure_latency(timed), stop)
        report = self.folder / "report.html"
        _write_report(report, self, name)
        output(f"\nReport:  {report}")
        warnings = _warnings(registry.problem(name), self)
        for warning in warnings:
            output(f"{warning}.")
        output("To serve it all the same:" if warnings else "Serve it:")
        output(f"  {shlex.join(['t2t-server', f'--artifact={artifact}'])}")
        output(f"or in Python:  t2t_torch.load({str(artifact)!r})")

    def _runs(self) -> list[str]:
        """Returns the run to evaluate, or those of an ensemble; none if nothing is evaluated."""
        board, limit = self.leaderboard(), self.settings.latency_ms
        if board is not None and board.members and limit:
            from t2t_torch.workflows.race import distill

            run = distill(board, limit, self.data, self.stop)
            if run is None:
                raise _StepStoppedError(self.stop.signal)
            return [run]
        if board is not None and (len(board.result) != 1 or not self.train.exists()):
            return board.result
        return [str(self.train)] if (self.train / "latest.json").exists() else []

    def leaderboard(self) -> Leaderboard | None:
        """Returns the leaderboard of the race; None if a single model was trained."""
        from t2t_torch.workflows.race import race_folder

        return Leaderboard.read(race_folder(self.train))

    def _call(
        self,
        command: str,
        settings: Settings,
        step: Callable[[], Any],
        stop: StopRequest | None = None,
    ) -> None:
        """Reports the command of a step, and runs it.

        Args:
          command: name of the command.
          settings: its settings.
          step: runs it.
          stop: request to stop this step; None: that of all steps.

        Raises:
          T2TError: the step failed; the message says how to resume.
          _StoppedError: a signal stopped it.
        """
        line = shlex.join([command, *settings.arguments()])
        self.commands.append(line)
        output(f"\n$ {line}")
        try:
            step()
            number = (self.stop if stop is None else stop).signal
        except KeyboardInterrupt:
            number = signal.SIGINT
        except SystemExit as ended:
            number = int(ended.code or 0) - 128
        except T2TError as error:
            if command == "t2t-datagen" and isinstance(error, UsageError):
                raise  # the file is not at fault
            again = f"{command} has ended with an error. Run t2t-quick again to resume."
            if command == "t2t-datagen":
                again = f"{self.file} was refused. Correct it, and run t2t-quick again."
            error.args = (f"{error}\nt2t-quick: {again}",)
            raise
        if number:
            name = signal.Signals(number).name
            message(
                f"t2t-quick: stopped by {name} during {command}. Run t2t-quick again to resume."
            )
            raise _StepStoppedError(number)

    def _declared(self) -> Path:
        """Returns the declaration; writes it if the file is data."""
        if self.file.suffix == ".json" and registry.json_declaration(self.file):
            return self.file
        # The name of the problem: lower case, digits and underscores.
        letters = self.file.name.partition(".")[0].lower()
        name = "".join(one if one.isalnum() else "_" for one in letters).strip("_")
        name = name if name and not name[0].isdigit() else f"data_{name}"
        target = self.folder / "problem" / f"{name}.json"
        if target.exists():
            output(f"{target} is there already, and is used. Delete it to declare the data again.")
        else:
            choice = self.settings.declare_choice or int(self.settings.yes)
            chosen = {"declare_choice": choice} if choice > 1 else {}
            drafted = DeclareSettings(declare=str(self.file), declare_to=str(target), **chosen)
            step = functools.partial(declare, self.file, target, choice, self.ask)
            self._call("t2t-datagen", drafted, step)
        return target

    def _generate(self, name: str, declaration: Path) -> None:
        from t2t_torch.declaration.files import detect_files

        raw = detect_files(self.file).folder if self.file.is_dir() else self.file.parent
        settings = GenerateSettings(
            t2t_usr_dir=(str(declaration.parent),),
            problem=name,
            data_dir=str(self.data),
            tmp_dir=str(raw),
            on_bad_record="skip",
            **({"merge_labels": True} if self.settings.merge_labels else {}),
            **({"pretrained": self.settings.pretrained} if self.settings.pretrained else {}),
        )
        self._call("t2t-datagen", settings, lambda: generate(settings))

    def _train(self, name: str, usr_dir: Path) -> dict[str, Any]:
        """Trains; returns the settings of an evaluation with the same metrics."""
        from t2t_torch.train.recommendation import AUTO, recommend

        values: dict[str, Any] = {"data_dir": str(self.data), "output_dir": str(self.train)}
        if self.leaderboard() is None or not self.train.exists():  # else the race is over
            values["train_seconds"] = max(1, round(60 * self.settings.minutes))
        metrics = recommend(name, self.data).settings.get("eval_metrics", ())
        if not (self.train / "task.json").exists():  # else the run knows the rest
            values |= {
                "problem": name,
                "model": AUTO,
                "hparams_set": AUTO,
                "eval_steps": 0,
                "keep_checkpoint_best": 1,
                "keep_checkpoint_max": 2,
                "t2t_usr_dir": (str(usr_dir),),
            }
            if self.settings.pretrained:
                values["hparams"] = f"pretrained={self.settings.pretrained}"
            if self.settings.random_seed is not None:
                values["random_seed"] = self.settings.random_seed
        settings = TrainSettings(**values)
        self._call("t2t-trainer", settings, lambda: train(settings, stop=self.stop))
        return {"eval_metrics": metrics} if metrics else {}


def _warnings(problem: Problem, quick: _Quick) -> list[str]:
    """Returns a warning for each baseline that the evaluated checkpoint does not exceed on dev."""
    from t2t_torch.reports.baseline import warnings_of
    from t2t_torch.run.metrics_file import MetricsFile

    board, name = quick.leaderboard(), quick.evaluated.resolve().name
    steps = {} if board is None else {one.name: one.step for one in board.standings}
    step = steps.get(name) or read_json(quick.folder / "evaluation" / "results.json")["step"]
    reports = MetricsFile(quick.evaluated).read()
    metrics = [one for one in reports if one["split"] == "dev" and one["step"] == step]
    return warnings_of(problem, quick.data, metrics[-1]) if metrics else []


def _write_report(target: Path, quick: _Quick, name: str) -> None:
    """Writes the page: commands, results, curves, confusion, samples, data, latency."""
    from t2t_torch.reports.baseline import read_baselines
    from t2t_torch.reports.data_report import findings, sections_of
    from t2t_torch.reports.label_errors import write_label_errors
    from t2t_torch.reports.page import PageHead, document
    from t2t_torch.reports.section import Section, Table, command_line, number
    from t2t_torch.reports.slices import sections_of_slices
    from t2t_torch.reports.statistics import statistics_of
    from t2t_torch.train.run_page import curves_of
    from t2t_torch.train.stopping import short_names

    results = read_json(quick.folder / "evaluation" / "results.json")
    names = short_names(results["metrics"])
    metrics = {names[key]: v for key, v in results["metrics"].items() if v is not None}
    last = ("neg_log_perplexity", "loss")  # of least interest
    metrics = dict(
        sorted(metrics.items(), key=lambda item: last.index(item[0]) if item[0] in last else -1)
    )
    metrics = {**_text_scores(results), **metrics}
    split = results["split"]
    rows = [[key, number(value)] for key, value in metrics.items()]
    baselines = read_baselines(registry.problem(name), quick.data)
    rows += [
        [f"dev {one.target} {one.metric}, {one.method}", number(one.value)] for one in baselines
    ]
    meaning = f"Of the best checkpoint, step {results['step']}, on the whole {split} split."
    if (board := quick.leaderboard()) is not None and board.trained_again and split == "dev":
        meaning += " The exported model was trained again, with these rows."
    sections = [
        Section("results", "Results", meaning, [Table(("metric", "value"), rows, frozenset({0}))]),
        *_race(quick.leaderboard()),
        *_confusions(results),
        *sections_of_slices(results),
        *_samples(quick.folder / "evaluation"),
    ]
    curves, plots = curves_of(quick.evaluated)
    statistics = statistics_of(registry.problem(name), quick.data, num_samples=0)
    of_data = [section for section in sections_of(statistics) if section.name in _OF_DATA]
    label_errors = quick.folder / "label_errors.tsv"
    of_data += write_label_errors(registry.problem(name), quick.data, label_errors, _EXAMINED)
    sections += [curves, *of_data, *_latency(quick.folder)]
    lines = [command_line(command) for command in quick.commands]
    sections.append(Section("commands", "Commands", "Each can be run by itself.", lines))
    known = read_json(quick.evaluated / "task.json")
    head = PageHead(
        title=f"{name}: a first model",
        heading=f"{known['model']} on {name}",
        place=str(quick.folder.resolve()),
        tiles=[(number(value), key) for key, value in list(metrics.items())[:4]],
        findings=findings(statistics),
        writer="t2t-quick",
    )
    write_text(target, document(head, sections, plots))


def _text_scores(results: Mapping[str, Any]) -> dict[str, float]:
    """Returns the scores of decoded texts, by score, and by target if there are several."""
    of_targets = results.get("text_scores") or {}
    several = len(of_targets) > 1
    return {
        f"{target} {_SCORES[name]}" if several else _SCORES[name]: one["value"]
        for target, scores in of_targets.items()
        for name, one in scores.items()
        if name in _SCORES
    }


def _race(board: Leaderboard | None) -> Iterator[Section]:
    from t2t_torch.reports.section import Section, Table

    if board is not None:
        head, *rows = board.table()
        meaning = (
            "Models trained in the time, by their best value on dev; ms: median latency of one "
            "input in PyTorch. Models that were not among the best half were stopped early."
        )
        yield Section("race", "Leaderboard", meaning, [Table(head, rows, frozenset({0, 2, 6}))])


def _confusions(results: dict[str, Any]) -> Iterator[Section]:
    from t2t_torch.reports.section import Section, confusion_blocks

    for target, known in (results.get("confusion") or {}).items():
        labels, counts = known["labels"], known["counts"]
        pairs = [(i, j, count) for i, row in enumerate(counts) for j, count in enumerate(row)]
        meaning = "Rows of the matrix are references, columns are predictions."
        blocks = list(confusion_blocks(labels, pairs))
        yield Section(f"confusion-{target}", f"Confusion of {target}", meaning, blocks)


def _samples(evaluation: Path) -> Iterator[Section]:
    from t2t_torch.reports.section import Section, Table

    csv.field_size_limit(2**31 - 1)  # a text may be long
    for file in sorted(evaluation.glob("*.tsv")):
        lines = (f"{line}\n" for line in read_lines(file))
        rows = list(itertools.islice(csv.reader(lines, delimiter="\t"), 2000))
        if len(rows) < 2:
            continue
        places = [i for i, name in enumerate(rows[0]) if not name.endswith(_HIDDEN)]
        flags = [i for i, name in enumerate(rows[0]) if name.endswith("_is_right")]
        wrong = [row for row in rows[1:] if any(row[i] == "0" for i in flags)]
        right = [row for row in rows[1:] if row not in wrong]
        head, words = [rows[0][i] for i in places], frozenset(range(len(places)))
        tables = [
            Table(
                head,
                [
                    [row[i][:300] for i in places]
                    for row in some[:: max(1, len(some) // _ROWS)][:_ROWS]
                ],
                words,
                title,
            )
            for title, some in (("Wrong", wrong), ("Right" if flags else "", right))
            if some
        ]
        yield Section(file.stem, "Samples", f"Every row is in evaluation/{file.name}.", tables)


def _latency(folder: Path) -> Iterator[Section]:
    from t2t_torch.reports.section import Section, Table, number

    file = folder / "latency.json"
    if not file.exists():
        return
    found = read_json(file)["found"]
    names = ("p50", "p90", "p99", "mean")
    rows = [[which, *(number(times[name]) for name in names)] for which, times in found.items()]
    table = Table(("", *names), rows, frozenset({0}))
    yield Section("latency", "Latency", "Milliseconds of single inputs, on one thread.", [table])
