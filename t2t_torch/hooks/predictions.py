"""Predictions of each evaluation for the page of a run: confusion, label counts, samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from t2t_torch.atomic_files import staged
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.outputs import cell, table_value
from t2t_torch.decode.predictor import Predictor, do_nothing
from t2t_torch.errors import T2TError
from t2t_torch.features import Feature, Features
from t2t_torch.features.feature import select_labels, select_sequences, select_texts
from t2t_torch.modality import RowPrediction
from t2t_torch.model import T2TModel
from t2t_torch.registry import register_hook
from t2t_torch.reports.baseline import read_baselines
from t2t_torch.reports.section import label_text
from t2t_torch.train.problem_task import ProblemTask
from t2t_torch.train.run_page import PREDICTIONS_NAME
from t2t_torch.train.task import Hook

if TYPE_CHECKING:
    from t2t_torch.decode.evaluation import EvaluatedRow
    from t2t_torch.mode import Split
    from t2t_torch.model import Output
    from t2t_torch.train.estimator import Estimator


_MOST_CLASSES = 1500  # of a target whose pairs are counted: 18 MB
_BATCHES = 32  # from which rows are taken, spread over the evaluation
_ROWS = 16  # of each of these batches
_SAMPLES = 6  # of right and of wrong rows each
_DECODED = 6  # texts
_LONGEST_DECODED = 60  # tokens of their inputs
_LONGEST = 600  # characters of a value


@register_hook
class Predictions(Hook):
    """Writes `predictions.json` in the run directory; every run has this hook.

    It holds, of the newest evaluation: for classes and tags the counts of (reference, prediction)
    pairs, for multiple labels the counts of each, for numbers some pairs of values, and sample rows
    with references and predictions.  Of texts six short ones are decoded greedily.  Counts are of
    all processes, samples of the leading one.
    """

    in_banner = False

    def __init__(self) -> None:
        self._recorder: _Recorder | None = None
        self._stop: Callable[[], None] = do_nothing  # removes the forward hook

    def before_evaluation(self, estimator: Estimator, split: Split) -> None:
        """Starts recording."""
        self._stop()  # a previous evaluation may have been interrupted by a signal
        self._recorder = None
        task, model = estimator.task, estimator.model
        if isinstance(task, ProblemTask) and isinstance(model, T2TModel):
            self._recorder = _Recorder(task, model, estimator.world.device)
            self._stop = model.register_forward_hook(self._recorder.add).remove

    def after_evaluation(
        self, estimator: Estimator, split: Split, metrics: Mapping[str, float]
    ) -> None:
        """Writes the file."""
        self._stop()
        if self._recorder is None:
            return
        for counts in self._recorder.counts.values():
            counts.copy_(estimator.world.sum(counts.double()))  # every process sends float64
        directory = estimator.directory
        if not estimator.world.leads or not directory.exists:
            return
        if estimator.world.size == 1:  # sharded weights need all processes
            with estimator.averaged():
                self._recorder.decode()
        content = {
            "step": estimator.state.step,
            "split": split.value,
            "baselines": _baselines(estimator.task),
            **self._recorder.content(),
        }
        path = directory.path / PREDICTIONS_NAME
        with estimator.summary.surviving(PREDICTIONS_NAME), staged(path) as temporary:
            temporary.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")

    def end(self, estimator: Estimator) -> None:
        """Removes the forward hook from the model."""
        self._stop()


def _baselines(task: Any) -> dict[str, dict[str, float]]:
    """Returns the values of trivial methods by metric and method, for the curves."""
    levels: dict[str, dict[str, float]] = {}
    for one in read_baselines(task.problem, task.data_dir):
        name = f"metrics-{task.name}/{one.target}/{one.metric}"
        levels.setdefault(name, {})[one.method] = one.value
    return levels


class _Recorder:
    """Counts and samples of one evaluation.

    Args:
      task: task of one problem.
      model: model that is evaluated.
      device: device of the model.

    Attributes:
      counts: int64; for classes and tags [C * C + 1], references first, the last for positions
        without a known reference; for multiple labels [3, C]: right, predicted, in the reference.
    """

    def __init__(self, task: ProblemTask, model: T2TModel, device: torch.device) -> None:
        self._task, self._model = task, model
        self._features: Features = task.features
        self.counts: dict[str, Tensor] = {}
        self._classes = select_labels(self._features.all)
        for name, feature in self._features.targets.items():
            classes = len(feature.labels)
            size = (classes**2 + 1,) if name in self._classes else (3, classes)
            spec = feature.output_spec(name, self._features)
            counted = name in self._classes or spec.kind == "multilabel"
            if counted and 1 < classes <= _MOST_CLASSES:
                self.counts[name] = torch.zeros(size, dtype=torch.int64, device=device)
        self._batches = 0
        self._stride = 1
        self._kept: list[list[EvaluatedRow]] = []
        self._texts: list[list[tuple[list[int], str, str]]] = []
        self._decoded: list[list[str]] = []

    def add(self, model: nn.Module, args: tuple[Any, ...], output: Output) -> None:
        """Adds a batch; a forward hook."""
        (batch,) = args
        for name, counts in self.counts.items():
            _count(counts, batch[name], output.logits[name])
        if self._batches % self._stride == 0:
            self._keep(batch, output)
        self._batches += 1

    def _keep(self, batch: Mapping[str, Tensor], output: Output) -> None:
        """Keeps rows of a batch; of ever fewer batches, so that all parts of a split are there."""
        from t2t_torch.decode.evaluation import evaluated, ids_of, values_of

        features, rows = self._features, len(next(iter(batch.values())))
        if not features.has_inputs:
            return
        first = {name: tensor[:_ROWS].cpu() for name, tensor in batch.items()}
        if features.is_generative:
            (source, *others), (target, *_) = features.inputs, features.targets
            if source not in select_texts(features.inputs) or others:
                return
            kept = []
            for row in range(min(rows, _ROWS)):
                ids = ids_of(features.all[source], first[source][row])
                if len(ids) <= _LONGEST_DECODED:
                    values = values_of(features, first, row)
                    kept.append((ids, _shown(values[source]), _shown(values[target])))
            self._texts.append(kept)
        elif not select_texts(features.targets):
            predictions = {
                name: _predictions(self._model, name, output.logits[name][:_ROWS])
                for name in features.targets
            }
            self._kept.append(
                [
                    evaluated(
                        self._task.name,
                        features,
                        row,
                        values_of(features, first, row),
                        {name: of[row] for name, of in predictions.items()},
                    )
                    for row in range(min(rows, _ROWS))
                ]
            )
        if len(self._kept) + len(self._texts) > _BATCHES:
            self._kept, self._texts = self._kept[::2], self._texts[::2]
            self._stride *= 2

    def decode(self) -> None:
        """Decodes some of the texts; a model without `encode` and `step` is too slow for it."""
        texts = _spread([text for batch in self._texts for text in batch], _DECODED)
        if not texts or type(self._model).step is T2TModel.step:
            return
        try:
            predictor = Predictor(self._model, self._task.problem, self._features)
            settings = DecodeHParams(beam_size=1, extra_length=20)
            found = dict(predictor.predict_ids([ids for ids, *_ in texts], settings))
            for place, (_, given, reference) in enumerate(texts):
                text = _shown(found[place].hypotheses[0].text)
                self._decoded.append([given, reference, text or "(empty)"])
        except T2TError:  # a model that decodes otherwise, for example trees
            self._decoded = []

    def content(self) -> dict[str, Any]:
        """Returns the record, in JSON form."""
        rows = [row for batch in self._kept for row in batch]
        targets = {
            name: self._target(name, feature, rows)
            for name, feature in self._features.targets.items()
        }
        return {"targets": targets, "samples": self._samples(rows)}

    def _target(self, name: str, feature: Feature, rows: Sequence[EvaluatedRow]) -> dict[str, Any]:
        if name not in self.counts:
            pairs = [(row.right[name], row.records[name].get("value")) for row in rows]
            points = [
                (float(right[0]), float(value[0]))
                for right, value in pairs
                if isinstance(right, list) and isinstance(value, list)
                if len(right) == len(value) == 1 and isinstance(right[0], int | float)
            ]
            return {"points": points}
        labels, counts = list(feature.labels), self.counts[name].cpu()
        if counts.dim() == 2:
            return {"labels": labels, "of_labels": counts.tolist()}
        table = counts[:-1].view(len(labels), len(labels))
        return {
            "labels": labels,
            "is_sequence": name in select_sequences(self._features.targets),
            "pairs": [[*pair, int(table[pair[0], pair[1]])] for pair in table.nonzero().tolist()],
        }

    def _samples(self, rows: Sequence[EvaluatedRow]) -> dict[str, Any]:
        """Returns wrong and right rows, spread over the evaluation; of numbers, any."""
        targets = list(self._features.targets)
        if self._decoded:
            source = next(iter(self._features.inputs))
            return {"head": [source, *targets, f"{targets[0]}: prediction"], "rows": self._decoded}
        if not rows:
            return {"head": [], "rows": []}
        verdicts = [[row.is_right(name) for name in targets] for row in rows]
        wrong = [row for row, of in zip(rows, verdicts, strict=True) if False in of]
        right = [row for row, of in zip(rows, verdicts, strict=True) if False not in of]
        known = any(verdict is not None for of in verdicts for verdict in of)
        chosen = [(row, "wrong") for row in _spread(wrong, _SAMPLES)]
        chosen += [(row, "right" if known else "") for row in _spread(right, _SAMPLES)]
        cells = []
        for row, verdict in chosen:
            values = [self._cell(name, value) for name, value in row.inputs.items()]
            for name in targets:
                value = row.records[name].get("value")
                values += [self._cell(name, row.right[name]), self._cell(name, value)]
            cells.append([verdict, *values])
        pairs = [column for name in targets for column in (name, f"{name}: prediction")]
        return {"head": ["", *rows[0].inputs, *pairs], "rows": cells}

    def _cell(self, name: str, value: Any) -> str:
        shown = _shown(None if value is None else table_value(self._features.all[name], value))
        return label_text(shown) if name in self._classes and value is not None else shown


def _count(counts: Tensor, targets: Tensor, logits: Tensor) -> None:
    """Adds a batch to the counts, without synchronization."""
    if counts.dim() == 2:
        there, found = targets > 0, logits > 0
        parts = [there & found, found, there]
        counts += torch.stack([part.flatten(0, -2).sum(0) for part in parts])
        return
    classes, other = logits.size(-1), len(counts) - 1
    pairs = torch.where(targets >= 0, targets * classes + logits.argmax(-1), other).flatten()
    counts.scatter_add_(0, pairs.clamp(max=other), torch.ones_like(pairs))


def _predictions(model: T2TModel, name: str, logits: Tensor) -> list[RowPrediction]:
    targets = model.features.targets
    # `readable` logits, not those of a CRF.
    if name in select_labels(targets) and name in select_sequences(targets):
        return [RowPrediction(row, None, None) for row in logits.argmax(-1).tolist()]
    return list(model.modality(name).predict(logits).rows())


def _shown(value: Any) -> str:
    are_texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
    text = " ".join(value) if are_texts else cell(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def _spread(values: Sequence[Any], most: int) -> list[Any]:
    """Returns at most `most` values from all parts of a sequence."""
    places = {place * len(values) // most for place in range(most)} if values else set()
    return [values[place] for place in sorted(places)]
