"""Evaluation of ensembles, of single rows, of labels, and the scores of given texts."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from t2t_torch import registry
from t2t_torch.atomic_files import write_text
from t2t_torch.data.shards import Ragged, Shards
from t2t_torch.data.vocabulary_builder import vocab_files_in
from t2t_torch.decode import label_predictor, outputs
from t2t_torch.decode.hparam import OF_TREES, READ_BY_SCORES, DecodeHParams, SearchHParams
from t2t_torch.decode.loading import load
from t2t_torch.decode.predictor import Predictor, batches_by_length, padded_rows
from t2t_torch.decode.tree_predictor import AnnotatedSentence, TreePredictor
from t2t_torch.distributed.precision import autocast
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import DataError, DecodeError, UsageError
from t2t_torch.features import Feature, Features
from t2t_torch.features.feature import (
    find_alignments,
    select_labels,
    select_sequences,
    select_texts,
)
from t2t_torch.files import check_target, open_target, read_lines
from t2t_torch.modality import Modality
from t2t_torch.mode import Split
from t2t_torch.pipeline.collate import Batch, padded
from t2t_torch.pipeline.plan import Batching
from t2t_torch.pipeline.reader import Examples, RowReader
from t2t_torch.problem import Problem
from t2t_torch.reports.section import aligned
from t2t_torch.reports.slices import Slices
from t2t_torch.run.directory import RunDirectory
from t2t_torch.run.storage import step_of
from t2t_torch.runtime.prediction import BEST, prediction_record
from t2t_torch.runtime.session import batches_of
from t2t_torch.text.encoder import PAD
from t2t_torch.train.multi_model import model_choices
from t2t_torch.train.problem_data import longest_row
from t2t_torch.train.problem_task import ProblemTask


@torch.inference_mode()
def evaluate_ensemble(
    runs: Sequence[str | Path],
    data_dir: Path,
    split: Split,
    checkpoint: str | None = None,
    *,
    problem: str | None = None,
    limit: int = 0,
    device: str | None = None,
    prepare: Callable[[ProblemTask], None] | None = None,
) -> dict[str, float]:
    """Returns the metrics of an ensemble of runs, with the names of a single run's metrics.

    Batches are formed with the settings of the first run.

    Args:
      runs: run directories.
      data_dir: directory of the generated data.
      split: split to evaluate.
      checkpoint: checkpoint of each run; by default the best, or the newest; see `loading.load`.
      problem: the problem to evaluate, for runs of several problems.
      limit: number of batches; 0 for all.
      device: device to compute on; None: chosen by `loading.load`.
      prepare: called with the task before the evaluation.
    """
    predictor = load(runs, checkpoint, problem=problem, device=device)
    model = predictor.model
    task = _task_of(runs[0], predictor, data_dir)
    if prepare is not None:
        prepare(task)
    evaluator = task.evaluator()
    batches = task.eval_batches(split, rank=0, world_size=1)
    where = next(model.parameters()).device
    for batch in itertools.islice(batches, limit or None):
        on_device = task.batches.to_device(batch, where)
        with autocast(model.hparams.activation_dtype, where):
            output = model(on_device)
        evaluator.update(output, on_device)
    return evaluator.result()


@torch.inference_mode()
def losses_of_mixtures(
    runs: Sequence[str | Path], mixtures: Sequence[Sequence[int]], data_dir: Path, split: Split
) -> npt.NDArray[np.float64]:
    """Returns the loss of several ensembles of the same runs, summed over every few rows.

    Each run is computed once.

    Args:
      runs: run directories.
      mixtures: the members of each ensemble, as indices of runs; see `Ensemble`.
      data_dir: directory of the generated data.
      split: split to evaluate.

    Returns:
      [len(mixtures), groups of rows].

    Raises:
      HParamsError: the runs form no ensemble.
    """
    predictor = load(runs)
    model: Any = predictor.model
    models = list(model.models) if len(runs) > 1 else [model]
    task, where = _task_of(runs[0], predictor, data_dir), next(models[0].parameters()).device
    modalities = [Ensemble([models[i] for i in one]).modalities for one in mixtures]
    losses: list[Any] = []
    for batch in task.eval_batches(split, rank=0, world_size=1):
        on_device = task.batches.to_device(batch, where)
        with autocast(predictor.model.hparams.activation_dtype, where):
            logits = [model.logits(on_device) for model in models]
        for name in modalities[0]:
            targets, weights = on_device[name], models[0].example_weights(name, on_device)
            for mixture, own in zip(mixtures, modalities, strict=True):
                mean = own[name].mean([logits[i][name] for i in mixture])
                losses.append(_summed(own[name], mean, targets, weights))
    count = len(mixtures)
    return np.stack([np.concatenate(losses[i::count]) for i in range(count)])


def _summed(
    modality: Modality, logits: Tensor, targets: Tensor, weights: Tensor | None
) -> npt.NDArray[np.float64]:
    """Returns the loss of every few rows of a batch."""
    found = []
    for start in range(0, len(targets), _ROWS_OF_LOSS):
        rows = slice(start, start + _ROWS_OF_LOSS)
        own = None if weights is None else weights[rows]
        found.append(float(modality.loss(logits[rows], targets[rows], own).sum))
    return np.array(found)


def _task_of(
    run: str | Path, predictor: Predictor | label_predictor.LabelPredictor, data_dir: Path
) -> ProblemTask:
    """Returns the task that forms the batches of a run, whose vocabularies fit the data."""
    directory, requested, model = run_of(run), predictor.problem, predictor.model
    names = vocab_files_in(requested, Path(data_dir), directory.path)
    directory.check_vocabularies(names, data_dir)
    kind = registry.model(directory.task().model)
    (chosen,) = model_choices([requested.full_name], kind, model.hparams).values()
    return ProblemTask(
        requested, chosen.model, model.hparams, data_dir=data_dir, vocab_dir=directory.path
    )


def run_of(path: str | Path) -> RunDirectory:
    """Returns the run of an ensemble member: a run directory, or a `ckpt-<step>` folder in one."""
    folder = Path(path).resolve()
    return RunDirectory(folder if step_of(folder) is None else folder.parent)


_ROWS_OF_LOSS = 16  # whose loss is summed, for the noise of a difference
_CHUNK = 2048  # rows read at a time, sorted by length, and written in their original order
_BATCH_TOKENS = 8192
_OF_SEVERAL = ("return_beams", "num_decodes")
_READ_OF_TEXTS = (*(n for n in SearchHParams.model_fields if n not in _OF_SEVERAL), *READ_BY_SCORES)
_READ_OF_LABELS = ("num_labels",)


def check_rows(hparams: DecodeHParams, problems: Mapping[str, Features]) -> None:
    """Checks that all changed settings are read by the evaluation of some problem's rows.

    One output of a text is reported per row, so settings for several outputs are not read.

    Args:
      hparams: settings of `EvaluatedRows`.
      problems: features of each problem, by problem name.

    Raises:
      HParamsError: a setting is not read; the message names it.
    """
    read: dict[str, None] = {}
    for features in problems.values():
        if not features.is_generative:
            read |= dict.fromkeys(_READ_OF_LABELS)
        elif features.has_inputs:  # a language model's texts are scored, not decoded
            read |= dict.fromkeys(_READ_OF_TEXTS)
            own = map(outputs.search_settings, features.targets.values())
            read |= dict.fromkeys(itertools.chain.from_iterable(own))
    hparams.check_read(tuple(read), f"--output of {', '.join(problems)}")


class EvaluatedRow(NamedTuple):
    """A row of a split with its predictions.

    Attributes:
      problem: full name of the row's problem.
      number: number of the row in its split, from 0; for a text that is cut in pieces, of the
        piece.
      inputs: input values that the model reads, by name.
      right: the correct value of each target.
      records: the prediction of each target, as returned by `outputs.target_record`.  A text also
        has the `loss` of the correct text (nats, summed over its tokens); it has no `value` in a
        problem without inputs.
    """

    problem: str
    number: int
    inputs: Mapping[str, Any]
    right: Mapping[str, Any]
    records: Mapping[str, Mapping[str, Any]]

    def is_right(self, target: str) -> bool | None:
        """True if the prediction is correct; None for numbers and where there is no prediction."""
        value, right = self.records[target].get("value"), self.right[target]
        if isinstance(right, float | dict) or (
            isinstance(right, list) and right and isinstance(right[0], float)
        ):
            return None
        return None if value is None and isinstance(right, str) else bool(value == right)


class EvaluatedRows:
    """Iterates over the rows of a split with their predictions, truncated as in evaluation.

    Labels, tags, numbers and spans are predicted directly; texts are decoded.

    Args:
      predictor: a model with any kind of target.
      data_dir: directory of the generated data.
      split: split to evaluate.
      hparams: settings for decoding texts and the number of labels to report.
      activation_dtype: type for all computation except decoding, as for metrics; None: as trained.

    Attributes:
      confusion: for each target that is a class or tags, the count of each pair (correct label,
        predicted label) in the rows iterated over so far.
      slices: for each target with verdicts, the counts of the slices of the rows so far.
      texts: for each target that is a decoded text, the pairs (decoded text, correct text) of the
        rows iterated over so far.

    Raises:
      DataError: the data does not exist.
    """

    def __init__(
        self,
        predictor: Predictor | label_predictor.LabelPredictor,
        data_dir: Path,
        split: Split,
        hparams: DecodeHParams | None = None,
        *,
        activation_dtype: str | None = None,
    ) -> None:
        self._predictor = predictor
        self._dtype = activation_dtype or predictor.model.hparams.activation_dtype
        self._hparams = hparams or DecodeHParams()
        # Without the settings that only other targets read.  Not replaced by their defaults: a
        # setting that is set is one that must be read.
        own = map(outputs.search_settings, predictor.features.targets.values())
        others = {*_READ_OF_LABELS, *OF_TREES}.difference(*own)
        given = {n for n, source in self._hparams.provenance.items() if source != "default"}
        self._search = DecodeHParams().replace(
            **{name: getattr(self._hparams, name) for name in given - others}
        )
        problem = predictor.problem
        self._parts: list[tuple[Problem, Features, Shards]] = []
        for part in problem.components:
            features = predictor.features if part is problem else part.features(data_dir)
            self._parts.append((part, features, Shards.open(data_dir, part.dataset_name, split)))
        targets = predictor.features.targets
        self.confusion: dict[str, Counter[tuple[str | None, str | None]]] = {
            name: Counter() for name in select_labels(targets)
        }
        self.slices = {n: Slices() for n, one in targets.items() if outputs.has_verdict(one)}
        is_decoded = isinstance(predictor, Predictor) and not isinstance(predictor, TreePredictor)
        self.texts: dict[str, list[tuple[str, str]]] = {
            name: []
            for name in select_texts(targets)
            if is_decoded and predictor.features.has_inputs
        }

    @property
    def header(self) -> list[str]:
        """The column names of `cells`: the row, its inputs, and for each target the correct value,
        the prediction, its probability, and whether it is correct.
        """
        features = self._predictor.features
        header = ["problem", "row"] if len(self._parts) > 1 else ["row"]
        header += _reported(features)
        texts = select_texts(features.targets)
        for name, feature in features.targets.items():
            header.append(name)
            if features.has_inputs or name not in texts:
                header += [f"{name}_found{column}" for column in outputs.table_columns(feature)]
                header += [f"{name}_is_right"] if outputs.has_verdict(feature) else []
            if name in texts:
                header.append(f"{name}_loss")
        return header

    def cells(self, row: EvaluatedRow) -> list[Any]:
        """Returns a row's values in the order of `header`."""
        features = self._predictor.features
        cells: list[Any] = [row.problem, row.number] if len(self._parts) > 1 else [row.number]
        cells += [
            outputs.table_value(features.inputs[name], row.inputs[name])
            for name in _reported(features)
        ]
        texts = select_texts(features.targets)
        for name, feature in features.targets.items():
            cells.append(outputs.table_value(feature, row.right[name]))
            if features.has_inputs or name not in texts:
                cells += outputs.table_cells(feature, row.records[name])
                cells += [row.is_right(name)] if outputs.has_verdict(feature) else []
            if name in texts:
                cells.append(row.records[name].get("loss"))
        return cells

    def __iter__(self) -> Iterator[EvaluatedRow]:
        """Yields the rows in the order of the split."""
        hparams = self._predictor.model.hparams
        for part, features, shards in self._parts:
            longest = longest_row(shards.manifest, features, hparams)
            batching = Batching.of(part, hparams, longest_row=longest)
            examples = Examples.of(shards, features, batching, bound=batching.bound)
            lengths = np.max(list(examples.lengths.values()), axis=0)
            extra = {n: one for n, one in features.kept.items() if n in shards.features}
            of_extra = RowReader(shards, extra, {name: name for name in extra}) if extra else None
            readers = examples.reader, of_extra
            for start in range(0, len(lengths), _CHUNK):
                numbers = np.arange(start, min(start + _CHUNK, len(lengths)))
                for row in self._chunk(part, features, readers, numbers, lengths[numbers]):
                    self._count(row)
                    yield row

    def _chunk(
        self,
        part: Problem,
        features: Features,
        readers: tuple[RowReader, RowReader | None],
        numbers: Any,
        lengths: Any,
    ) -> list[EvaluatedRow]:
        """Returns the rows with these numbers, in order."""
        evaluated: dict[int, EvaluatedRow] = {}
        ids: dict[int, list[int]] = {}
        trees: dict[int, list[int]] = {}
        target = next(iter(features.targets))
        feature: Any = features.targets[target]
        for places in batches_of(lengths.tolist(), _BATCH_TOKENS, _BATCH_TOKENS):
            self._predictor.before_batch()
            rows = np.sort(numbers[places])
            reader, of_kept = readers
            read = reader.read(rows)
            batch = {
                name: torch.from_numpy(padded(feature, read[name]))
                for name, feature in reader.features.items()
            }
            read = {**read, **(of_kept.read(rows) if of_kept else {})}
            for row in self._read(part, features, rows.tolist(), batch):
                evaluated[row.number] = row
            if isinstance(self._predictor, Predictor) and features.has_inputs:
                for i, number in enumerate(rows.tolist()):
                    ids[number] = _ids(self._predictor, read, i)
                    trees[number] = ids_of(feature, batch[target][i])
        if ids:
            assert isinstance(self._predictor, Predictor)
            order = sorted(ids)
            decoded = self._predictor.predict_ids([ids[number] for number in order], self._search)
            for place, prediction in decoded:
                number = order[place]
                row = evaluated[number]
                record = {**row.records[target], **prediction_record(prediction)}
                evaluated[number] = row._replace(records={target: record})
        if isinstance(self._predictor, TreePredictor):
            for number, sentence in ids.items():
                assert isinstance(sentence, AnnotatedSentence)
                tree, row = self._predictor.over(trees[number], sentence), evaluated[number]
                words = {feature.of: sentence.words} if feature.of in row.inputs else {}
                inputs = {**row.inputs, **words}
                evaluated[number] = row._replace(inputs=inputs, right={target: tree})
        return [evaluated[number] for number in sorted(evaluated)]

    @torch.inference_mode()
    def _read(
        self, part: Problem, features: Features, numbers: Sequence[int], batch: Batch
    ) -> Iterator[EvaluatedRow]:
        """Yields the rows of a batch, without the decoded texts."""
        model: Any = self._predictor.model
        device = next(model.parameters()).device
        on_device = {name: values.to(device) for name, values in batch.items()}
        inputs = {
            name: values for name, values in on_device.items() if name not in features.targets
        }
        predictions: dict[str, Any] = {}
        texts = select_texts(features.targets)
        with autocast(self._dtype, device):
            output = model.logits(on_device if texts else inputs)
        for name, logits in output.items():
            modality = model.modalities[name]
            if name in texts:  # of one row each: outputs of CTC are of frames, not of ids
                pairs = zip(logits, on_device[name], strict=True)
                predictions[name] = [
                    float(modality.loss(row[None], right[None]).sum) for row, right in pairs
                ]
            else:
                predictions[name] = modality.predict(logits).rows()
        for i, number in enumerate(numbers):
            values, row = values_of(features, batch, i), {n: g[i] for n, g in predictions.items()}
            count = self._hparams.num_labels
            yield evaluated(part.full_name, features, number, values, row, count)

    def _count(self, row: EvaluatedRow) -> None:
        for name, slices in self.slices.items():
            if (is_right := row.is_right(name)) is not None:
                slices.add(row.inputs, row.right[name], is_right=is_right)
        for name, counts in self.confusion.items():
            right, value = row.right[name], row.records[name]["value"]
            pairs = zip(right, value, strict=True) if isinstance(right, list) else [(right, value)]
            counts.update(pairs)
        for name, texts in self.texts.items():
            texts.append((row.records[name]["value"], row.right[name]))


def evaluated(
    problem: str,
    features: Features,
    number: int,
    values: Mapping[str, Any],
    predictions: Mapping[str, Any],
    num_labels: int = BEST,
) -> EvaluatedRow:
    """Returns a row with its predictions.

    Args:
      problem: full name of the problem.
      features: features of the problem.
      number: number of the row.
      values: value of each target and of each input to report; see `values_of`.
      predictions: for each target the `RowPrediction` of its modality; for a text the loss.
      num_labels: number of labels whose probabilities are recorded.
    """
    values = dict(values)
    records: dict[str, Mapping[str, Any]] = {}
    texts, of_words = select_texts(features.targets), find_alignments(features.targets)
    for name, feature in features.targets.items():
        if name in texts:
            records[name] = {"loss": predictions[name]}
            continue
        words = None if feature.refers_to is None else values[feature.refers_to]
        tags = len(values[name]) if name in of_words else None
        prediction = label_predictor.prediction_of(name, feature, predictions[name], tags)
        spelled = outputs.spell(feature, prediction.value, words or "")
        prediction = dataclasses.replace(prediction, values={name: spelled})
        values[name] = outputs.spell(feature, values[name], words or "")
        own = [*(words or ()), *["?"] * (tags or 0)][:tags] if tags is not None else None
        records[name] = outputs.target_record(name, feature, prediction, own, num_labels)
    inputs = {name: values[name] for name in _reported(features)}
    right = {name: values[name] for name in features.targets}
    return EvaluatedRow(problem, number, inputs, right, records)


def values_of(features: Features, batch: Batch, row: int) -> dict[str, Any]:
    """Returns the values of the targets and of the inputs to report of a row of a batch."""
    names = (*_reported(features), *features.targets)
    sequences = select_sequences(features.all)
    values = {}
    for name in names:
        feature, numbers = features.all[name], batch[name][row]
        ids = ids_of(feature, numbers) if name in sequences else numbers.flatten().tolist()
        values[name] = feature.decode(ids)
    return values


def _reported(features: Features) -> list[str]:
    """Returns the names of the inputs to report: no images, sounds or annotations of words."""
    return [name for name, feature in features.inputs.items() if outputs.is_in_table(feature)]


def _ids(predictor: Predictor, read: Mapping[str, Ragged], row: int) -> list[int]:
    """Returns the ids of a row's input, as read by `Predictor.predict_ids`."""

    def numbers(name: str) -> list[Any]:
        # Not from the batch, where padding (0) may be a valid number, for example a position.
        ids: list[Any] = read[name].between(row, row + 1).values.tolist()
        return ids

    if isinstance(predictor, TreePredictor):
        annotations = [name for name in predictor.features.kept if name in read]
        return predictor.stored({name: numbers(name) for name in (*predictor.given, *annotations)})
    return numbers(predictor.field)


def ids_of(feature: Feature, numbers: Tensor) -> list[int]:
    """Returns the numbers of a sequence without padding."""
    is_real = (numbers != feature.padding).view(len(numbers), -1).any(-1)
    return [int(number) for number in numbers[is_real].flatten().tolist()]


_COLUMNS = ("precision", "recall", "f1", "support")
_PER_LABEL = re.compile(
    r"metrics-(?P<problem>.+?)/(?P<target>[^/]+)/(?P<span>span_)?"
    r"(?P<column>precision|recall|f1|support)_per_label/(?P<label>.*)"
)
_SHOWN = 40  # labels in a table on the console
_UNKNOWN = "(unknown)"

LabelTable = dict[str, dict[str, float]]
"""By label: precision, recall, f1 and support."""


class EvaluationFiles(NamedTuple):
    """Output files of `--output`.

    Attributes:
      results: JSON file of the results.
      rows: tab-separated file of the rows.
    """

    results: Path
    rows: Path

    @classmethod
    def of(cls, output: str) -> EvaluationFiles:
        """Returns the files for a folder (`results.json` and `rows.tsv`) or a file name.

        Args:
          output: a folder, or a name that ends in .json or .tsv; the other file shares its stem.

        Raises:
          UsageError: the name has another ending, and no folder of that name exists.
        """
        path = Path(output)
        if path.suffix in (".json", ".tsv") and not path.is_dir():
            return cls(path.with_suffix(".json"), path.with_suffix(".tsv"))
        if path.suffix and not path.is_dir() and not output.endswith("/"):
            raise UsageError(
                f"--output={output}: expected a folder, or a file that ends in .json or .tsv. If "
                f"it is to be a folder:  --output={output}/"
            )
        return cls(path / "results.json", path / "rows.tsv")

    def rows_of(self, problem: str | None) -> Path:
        """Returns the file for the rows of one of several problems; None for the only problem."""
        return self.rows if problem is None else self.rows.with_suffix(f".{problem}.tsv")


def label_tables(metrics: Mapping[str, float]) -> tuple[dict[str, LabelTable], dict[str, float]]:
    """Returns the tables of labels among an evaluation's results, and the other results.

    Tables are named after the target, with the problem's name before it if there are several.
    """
    matches = [match for name in metrics if (match := _PER_LABEL.fullmatch(name))]
    several = len({match["problem"] for match in matches}) > 1
    tables: dict[str, LabelTable] = {}
    names: dict[str, list[str]] = {}
    for match in matches:
        target = f"{match['problem']}/{match['target']}" if several else match["target"]
        name = f"{target} (spans)" if match["span"] else target
        row = tables.setdefault(name, {}).setdefault(match["label"], {})
        row[match["column"]] = metrics[match.string]
        names.setdefault(name, []).append(match.string)
    whole = {
        name: table
        for name, table in tables.items()
        if all(len(row) == len(_COLUMNS) for row in table.values())
    }
    taken = {one for name in whole for one in names[name]}
    return whole, {name: value for name, value in metrics.items() if name not in taken}


def format_tables(tables: Mapping[str, LabelTable]) -> Iterator[str]:
    """Yields the lines of tables of labels, the labels with most examples first."""
    for name, table in tables.items():
        ranked = sorted(table, key=lambda label: -table[label]["support"])
        rows = [
            [
                label,
                *(f"{table[label][column]:.4f}" for column in _COLUMNS[:3]),
                f"{round(table[label]['support']):,}",
            ]
            for label in ranked[:_SHOWN]
        ]
        yield ""
        yield f"{name}:"
        yield from (f"  {line}" for line in aligned([("label", *_COLUMNS), *rows]))
        if len(ranked) > _SHOWN:
            yield f"  ... and {len(ranked) - _SHOWN} labels with fewer examples"


def write_results(path: Path, results: Mapping[str, Any]) -> None:
    """Writes results as JSON, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def write_rows(path: Path, rows: EvaluatedRows) -> int:
    """Writes the rows of a split, atomically.  Returns their number."""
    with open_target(path) as stream:
        return outputs.write_table(stream, rows.header, (rows.cells(row) for row in rows))


def confusion(counts: Counter[tuple[str | None, str | None]]) -> dict[str, Any]:
    """Returns the confusion counts of labels, in JSON form.

    Returns:
      `labels`: the labels that are correct or predicted somewhere.  `counts`: a row for each
        correct label, a column for each predicted label.
    """
    named = Counter[tuple[str, str]]()
    for (right, predicted), count in counts.items():
        named[right or _UNKNOWN, predicted or _UNKNOWN] += count
    labels = sorted({label for pair in named for label in pair})
    return {"labels": labels, "counts": [[named[r, f] for f in labels] for r in labels]}


_Row: TypeAlias = Mapping[str, Sequence[Any]]  # ids, by feature


class LineScore(NamedTuple):
    """The score of a text.

    Attributes:
      log_probability: log-probability of the text (nats), end symbol included.
      tokens: number of tokens, end symbol included.
    """

    log_probability: float
    tokens: int


def score_file(predictor: Predictor, source: Path, target: Path) -> list[LineScore]:
    """Writes the log-probability of each line of a file, in order.

    The target is written atomically.

    `t2t-decoder --score_file`.  As for tensor2tensor's `score_file`, a line is a text of a language
    model, or an input and an output with a tab between them.  The log-probability of the line is
    written, not the loss per token.

    Raises:
      DataError: the source cannot be read, or a line is not an input-output pair where needed.
      UsageError: the target cannot be written, or is the source.
    """
    check_target(target, source)
    lines = list(read_lines(source))  # reports a missing file itself
    try:
        scores = score_lines(predictor, lines)
    except DataError as error:
        raise DataError(f"{source}: {error}") from None
    with open_target(target) as stream:
        stream.writelines(f"{score.log_probability:.6f}\n" for score in scores)
    return scores


def score_lines(predictor: Predictor, lines: Sequence[str]) -> list[LineScore]:
    """Returns the score of each line, in order, independent of the other lines.

    Args:
      predictor: predictor of a language model or of a text-to-text model.
      lines: texts; or inputs and outputs, separated by a tab.

    Raises:
      DataError: a line is not an input-output pair where one is needed, has no ids, or its
        output is not a tree over the input words where a tree is needed; the message names the
        line.
    """
    (target,) = predictor.features.targets
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(_row(predictor, line, target))
        except (DataError, DecodeError) as error:
            raise DataError(f"line {number}: {str(error).removesuffix('.')}.") from None
    lengths = [max(len(row[target]), len(row[predictor.field])) for row in rows]
    by_number: dict[int, LineScore] = {}
    for chosen in batches_by_length(lengths, predictor.hparams):
        scores = _score_batch(predictor, [rows[i] for i in chosen], target)
        by_number.update(zip(chosen, scores, strict=True))
    return [by_number[i] for i in range(len(rows))]


def _row(predictor: Predictor, line: str, target: str) -> _Row:
    if not predictor.features.has_inputs:
        return {target: _line_ids(predictor, line, target)}
    text, tab, output = line.partition("\t")
    if not tab or "\t" in output:
        raise DataError(f"expected an input and an output with a tab between, not {line!r}.")
    if isinstance(predictor, TreePredictor):
        return predictor.with_tree(text, output)
    (read,) = predictor.encode([text])
    return {predictor.field: read, target: _line_ids(predictor, output, target)}


def _line_ids(predictor: Predictor, text: str, target: str) -> Sequence[int]:
    feature = predictor.features.targets[target]
    cut = predictor.problem.cutters.get(feature.source or target)
    return feature.encode(cut(text) if cut else text)


@torch.inference_mode()
def _score_batch(predictor: Predictor, rows: Sequence[_Row], target: str) -> list[LineScore]:
    device = next(predictor.model.parameters()).device
    features = predictor.features.all
    batch = {n: padded_rows(features[n], [row[n] for row in rows]).to(device) for n in rows[0]}
    ids = batch[target]
    with predictor.autocast(predictor.hparams, device):
        logits = predictor.model(batch).logits[target]
    counted = ids != PAD
    of_ids = logits.float().log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)
    sums = torch.where(counted, of_ids, 0.0).double().sum(1)
    pairs = zip(sums.tolist(), counted.sum(1).tolist(), strict=True)
    return [LineScore(value, tokens) for value, tokens in pairs]
