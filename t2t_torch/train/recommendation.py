"""Recommended first training of a problem: model, hparams set, steps and evaluations.

`t2t-datagen` prints it as the next command, `t2t-quick` runs it, and `t2t-trainer --model=auto
--hparams_set=auto` takes it.  docs/how_to/training.md lists the choices and their measurements.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch import registry
from t2t_torch.errors import RegistryError

if TYPE_CHECKING:
    from t2t_torch.data.manifest import Manifest
    from t2t_torch.hparam import HParams
    from t2t_torch.problem import Problem
    from t2t_torch.reports.column_statistics import TagFaults

AUTO = "auto"
"""Value of `--model` and `--hparams_set` that takes the recommendation."""

AGAIN = "again"
"""Entry of a portfolio: the recommended training for twice as many steps, with another seed."""

_EPOCHS = 20
_EPOCHS_OF_LINEAR_MODELS = 2  # with many rows: more overfit, docs/reference/results.md
_EPOCHS_OF_PRETRAINED_MODELS = 4  # Devlin et al. 2019, arXiv:1810.04805, section A.3: 2 to 4
_FEWEST_STEPS, _MOST_STEPS = 300, 50_000
_FEWEST_STEPS_OF_TEXTS = 2000
_PATIENCE = 3  # evaluations
_FEWEST_STEPS_OF_AN_EVALUATION, _MOST_STEPS_OF_AN_EVALUATION = 25, 1000
_EVALUATIONS = 30  # of a run, at most
_STEP_SECONDS = 0.005  # of a step, beside its matrix products
_LAYERS_SECONDS = 0.04  # of a step of hidden layers, whose operations are many and small
_UNSURE = 3.0  # factor: of six kinds of model a step took 0.4 to 1.8 times the estimate
_SHARE_OF_PEAK = 0.4  # of the speed of a large matrix product that training reaches
_PRODUCTS = 6  # floating point operations for each weight and token: forward, and twice backward


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """A first training.

    Attributes:
      model: name of the model.
      hparams_set: name of the set.
      hparams: changes to the set; may be empty.
      train_steps: steps at which the run ends at the latest; 0: unknown.
      evaluation_steps: steps from one evaluation to the next, about an epoch; 0: unknown.
      metric: short name of the metric to watch.
      patience: evaluations without improvement after which the run ends; 0: never.
      epochs: passes over the data in `train_steps`.
      seconds: estimated time on the CPUs of this machine; 0: unknown.
      further_seed: number that is added to the seed.
    """

    model: str
    hparams_set: str
    hparams: str = ""
    train_steps: int = 0
    evaluation_steps: int = 0
    metric: str = "loss"
    patience: int = 0
    epochs: float = 0.0
    seconds: float = 0.0
    further_seed: int = 0

    @property
    def eval_metrics(self) -> str:
        """Metrics to evaluate besides those of the problem."""
        return _OF_UNEQUAL if self.metric.endswith(_OF_UNEQUAL) else ""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a training, without model and set."""
        values: dict[str, Any] = {
            "train_steps": self.train_steps,
            "local_eval_frequency": self.evaluation_steps,
            "eval_metrics": (self.eval_metrics,) if self.eval_metrics else (),
            "eval_early_stopping_metric": "" if self.metric == "loss" else self.metric,
            "eval_patience": self.patience,
            "hparams": self.hparams,
        }
        if self.patience and self.metric == "loss":
            # Any improvement of the loss counts, not only that of tensor2tensor's default.
            values["eval_early_stopping_metric_delta"] = 0.0
        return {name: one for name, one in values.items() if one or isinstance(one, float)}

    def command(self, problem: str, data_dir: Path, usr_dirs: Sequence[str]) -> str:
        """Returns the command, and the estimate of its time."""
        flags = {
            "problem": problem,
            "model": self.model,
            "hparams_set": self.hparams_set,
            **self.settings,
            "eval_metrics": self.eval_metrics,
            "data_dir": str(data_dir),
            "output_dir": "run",
        }
        words = [
            "t2t-trainer",
            *(f"--{name}={value}" for name, value in flags.items() if value != ""),
        ]
        words += [f"--t2t_usr_dir={directory}" for directory in usr_dirs]
        if not self.seconds:
            return f"  {shlex.join(words)}"
        least = "at most " if self.patience else ""
        low, high = _duration(self.seconds / _UNSURE), _duration(self.seconds * _UNSURE)
        span = f"{low} to {high}" if self.seconds * _UNSURE >= 60 else "less than a minute"
        return (
            f"  {shlex.join(words)}\n"
            f"({least}{self.train_steps:,} steps, {self.epochs:,.0f} times the data: {span} "
            f"on the CPUs of this machine. The trainer measures the time left.)"
        )


def recommend(name: str, data_dir: Path) -> Recommendation:
    """Returns the recommended training of a problem.

    Args:
      name: name of the problem.
      data_dir: directory of its data, or of the data of the problems of a mixture.

    Raises:
      DataError: the data was not generated.
      RegistryError: there is no such problem.
    """
    problem = registry.problem(name)
    flags = dict(word.split("=", 1) for word in problem.suggested_flags.split())
    given = int(flags.get("--train_steps", 0))
    hparams = flags.get("--hparams", "")
    made = Recommendation(flags["--model"], flags["--hparams_set"], hparams, train_steps=given)
    return _fitted(problem, data_dir, made)


def recommend_several(name: str, data_dir: Path) -> list[Recommendation]:
    """Returns the trainings of a race: the recommended one, and the problem's portfolio.

    Arguments and errors are those of `recommend`.
    """
    problem, first = registry.problem(name), recommend(name, data_dir)
    if not first.train_steps:  # of a set of the user's own
        return [first]
    first = dataclasses.replace(first, metric=_metric(problem, data_dir))
    found = [first]
    for one in problem.portfolio:
        model, _, named = one.partition("/")
        if one == AGAIN:
            steps = 2 * first.train_steps
            found.append(dataclasses.replace(first, train_steps=steps, further_seed=1))
        elif model != first.model:
            found.append(_fitted(problem, data_dir, Recommendation(model, named)))
    return [one for one in found if one.train_steps]


def _fitted(problem: Problem, data_dir: Path, made: Recommendation) -> Recommendation:
    """Returns a training with the set, the steps and the evaluations that fit the data."""
    hparams: HParams
    model, named = made.model, made.hparams_set
    try:
        hparams = registry.hparams(named)
    except RegistryError:  # a set of the user's own, which need not be there yet
        return made
    manifests = _manifests(problem, data_dir)
    rows, length = _rows_and_length(problem, data_dir)
    if not (made.train_steps or made.hparams):
        named = _set_of_size(named, rows, length, translates=_translates(problem, data_dir))
        teaches = named in _SETS_OF_WORDS and _has_unknown_word(problem, data_dir)
        changes = ["singleton_dropout=0.5"] if teaches else []
        if any(faults.are_usual for faults in _tag_faults(problem, data_dir)):
            changes.append("tag_constraints=none")
        made = dataclasses.replace(made, hparams_set=named, hparams=",".join(changes))
        hparams = registry.hparams(named)
    if hparams.fits:
        metric = _metric(problem, data_dir)
        return dataclasses.replace(made, train_steps=1, evaluation_steps=1, metric=metric)
    rows_of_batch = _rows_of_batch(problem, hparams, length)
    rows_of_step = min(rows, rows_of_batch)  # no batch goes over the end of the data
    steps = made.train_steps
    if not steps:
        is_linear = named == "fasttext_base" and rows >= _MANY_ROWS_OF_LINEAR_MODELS
        steps = _steps(
            rows / rows_of_batch,
            _EPOCHS_OF_PRETRAINED_MODELS
            if hparams.reads_pretrained
            else _EPOCHS_OF_LINEAR_MODELS
            if is_linear
            else _EPOCHS,
            writes_texts=_writes_texts(problem, data_dir),
        )
        each = math.ceil(max(rows / rows_of_step, steps / _EVALUATIONS))
        each = max(_FEWEST_STEPS_OF_AN_EVALUATION, min(each, _MOST_STEPS_OF_AN_EVALUATION))
        made = dataclasses.replace(
            made,
            evaluation_steps=_rounded(each),
            metric=_metric(problem, data_dir),
            patience=_PATIENCE,
        )
    epochs = steps * rows_of_step / max(1, rows)
    seconds = 0.0
    if not hparams.reads_pretrained and not _has_signals(problem, data_dir):
        stacks = 0 if model == "fasttext" else 1 + _translates(problem, data_dir)
        operations = _operations(manifests, hparams, stacks) * rows_of_step * length
        seconds = (_LAYERS_SECONDS if stacks else _STEP_SECONDS) + operations / _speed()
    return dataclasses.replace(made, train_steps=steps, epochs=epochs, seconds=steps * seconds)


def _has_signals(problem: Problem, data_dir: Path) -> bool:
    """Returns whether an input is a picture or a sound, whose networks have other operations."""
    features = problem.features(data_dir)
    inputs = {name: one for name, one in features.inputs.items() if len(one.shape) > 1}
    return any(
        None not in one.shape or one.input_spec(name, features).kind == "audio"
        for name, one in inputs.items()
    )


def batches_of_epoch(problem: Problem, data_dir: Path, hparams: HParams) -> float:
    """Returns the approximate number of training batches of an epoch, padding not counted.

    Raises:
      DataError: the data was not generated.
    """
    rows, length = _rows_and_length(problem, data_dir)
    return max(1.0, rows / _rows_of_batch(problem, hparams, length))


def _rows_of_batch(problem: Problem, hparams: HParams, length: float) -> float:
    by_tokens = problem.batch_size_means_tokens
    return max(1.0, hparams.batch_size / length if by_tokens else hparams.batch_size)


_FEW_ROWS = 100_000
_FEW_PAIRS = 500_000  # of texts that are generated from texts
_MANY_ROWS_OF_LINEAR_MODELS = 10_000
_LONG_TEXTS = 100  # tokens of a row, on average
_WITH_A_SMALL_ONE = ("pair_classifier_base", "bilstm_tagger_base", "joint_bilstm_base")
_SETS_OF_WORDS = ("bilstm_tagger_small", "bilstm_tagger_base", "joint_bilstm_small")


def _set_of_size(named: str, rows: int, length: float, *, translates: bool) -> str:
    """Returns the set for data of this size in place of the one for its kind.

    Args:
      named: set of the kind.
      rows: training rows.
      length: mean tokens of a row.
      translates: True if texts are generated from texts.
    """
    if named == "transformer_small" and translates and rows < _FEW_PAIRS:
        return "transformer_low_resource"
    if named == "fasttext_base" and length > _LONG_TEXTS:
        return "fasttext_long"
    if named in _WITH_A_SMALL_ONE and rows < _FEW_ROWS:
        return named.replace("_base", "_small")
    return named


_WATCHED = (
    "span_f1", "query_map", "accuracy", "exact_match", "answer_f1", "pairwise_accuracy", "pearson",
)  # fmt: skip
"""Metrics to watch, the first that a single target has; otherwise the loss."""
_OF_UNEQUAL = "f1_macro"  # in place of accuracy, where it says little


def _metric(problem: Problem, data_dir: Path) -> str:
    """Returns the short name of the metric to watch."""
    from t2t_torch.features.feature import select_generated
    from t2t_torch.problem import metric_names
    from t2t_torch.text.tags import scheme_of

    if problem.mixing_schedule is not None:
        return "loss"
    targets = problem.features(data_dir).targets
    if select_generated(targets):
        return "loss"
    if len(targets) > 1:
        return "all_targets/exact_match" if all(one.labels for one in targets.values()) else "loss"
    (name,) = targets
    metrics = metric_names(problem, name)
    metric = next((one for one in _WATCHED if one in metrics), "loss")
    if metric == "span_f1" and not scheme_of(targets[name].labels).letters:
        metric = "accuracy"  # parts of speech mark no spans
    if metric == "accuracy" and _has_unequal_classes(problem, data_dir):
        metric = _OF_UNEQUAL
    return metric if metric == "loss" or name == "targets" else f"{name}/{metric}"


def _has_unequal_classes(problem: Problem, data_dir: Path) -> bool:
    """Returns whether the target is a class, and the classes in training are imbalanced."""
    from t2t_torch.features import ClassLabel
    from t2t_torch.reports.column_statistics import count_labels
    from t2t_torch.reports.data_report import is_imbalanced, labels_in_training

    return any(
        isinstance(feature, ClassLabel) and is_imbalanced(count_labels(feature, column))
        for _, feature, column in labels_in_training(problem, data_dir)
    )


def _manifests(problem: Problem, data_dir: Path) -> list[Manifest]:
    from t2t_torch.data.manifest import Manifest

    return [Manifest.load(data_dir, part.dataset_name) for part in problem.components]


def _rows_and_length(problem: Problem, data_dir: Path) -> tuple[int, float]:
    """Returns the number of training rows and their mean length, that of their longest feature.

    The characters of words have no positions of their own; a sound has one every 10 ms.
    """
    from t2t_torch.features import Audio, WordCharacters

    rows = positions = 0
    for part, manifest in zip(problem.components, _manifests(problem, data_dir), strict=True):
        inputs = part.features(data_dir).inputs
        characters = {name for name, one in inputs.items() if isinstance(one, WordCharacters)}
        entry = manifest.splits["train"]
        counted = [
            entry.tokens[name]
            for name, one in manifest.features.items()
            if one.vocab_size and name not in characters
        ]
        counted += [
            entry.tokens[name] // one.samples_per_frame
            for name, one in inputs.items()
            if isinstance(one, Audio)
        ]
        positions += max(counted, default=entry.rows)
        rows += entry.rows
    return rows, max(1.0, positions / max(1, rows))


def _writes_texts(problem: Problem, data_dir: Path) -> bool:
    from t2t_torch.features.feature import select_generated

    return any(select_generated(part.features(data_dir).targets) for part in problem.components)


def _tag_faults(problem: Problem, data_dir: Path) -> Iterator[TagFaults]:
    """Yields the counts of broken rules of each target of tags in the training data."""
    from t2t_torch.reports.column_statistics import tag_faults
    from t2t_torch.reports.data_report import labels_in_training

    for part in problem.components:
        for _, feature, column in labels_in_training(part, data_dir):
            if feature.refers_to is not None:
                yield tag_faults(feature.labels, column)


def _translates(problem: Problem, data_dir: Path) -> bool:
    """Returns whether texts are generated from texts."""
    reads = "inputs" in _manifests(problem, data_dir)[0].features
    return reads and _writes_texts(problem, data_dir)


def _has_unknown_word(problem: Problem, data_dir: Path) -> bool:
    """Returns whether an input has a vocabulary of words, one of which is the unknown word."""
    from t2t_torch.features.text import Words

    inputs = problem.features(data_dir).inputs.values()
    return any(len(one.encoder.unknown_ids) == 1 for one in inputs if isinstance(one, Words))


def _steps(batches: float, epochs: int, *, writes_texts: bool) -> int:
    """Returns the steps of several epochs, within bounds, rounded up to two digits."""
    least = _FEWEST_STEPS_OF_TEXTS if writes_texts else _FEWEST_STEPS
    return _rounded(min(max(epochs * batches, least), _MOST_STEPS))


def _rounded(steps: float) -> int:
    """Returns a number rounded up to two digits."""
    unit = int(10 ** max(0, math.floor(math.log10(steps)) - 1))
    return math.ceil(steps / unit) * unit


def _operations(manifests: Sequence[Manifest], hparams: HParams, stacks: int) -> float:
    """Estimates the floating point operations per position of a training step.

    Args:
      manifests: of the data.
      hparams: sizes of the model.
      stacks: stacks of layers: of an encoder and a decoder two.
    """
    hidden, layers = hparams.hidden_size, max(1, hparams.num_hidden_layers)
    inner = getattr(hparams, "filter_size", None) or 2 * hidden
    weights = layers * stacks * (4 * hidden * hidden + 2 * hidden * inner)
    texts = [
        entry.vocab_size or 0
        for one in manifests
        for entry in one.features.values()
        if entry.role == "targets"
    ]
    return float(_PRODUCTS * (weights + hidden * max(texts, default=0)))


def _speed() -> float:
    """Measures a matrix product; returns the floating point operations per second of training."""
    import numpy as np

    matrix, seconds = np.ones((768, 768), np.float32), []
    for _ in range(12):
        start = time.thread_time()  # without the time in which other programs had the core
        matrix @ matrix
        seconds.append(time.thread_time() - start)
    return _SHARE_OF_PEAK * 2 * len(matrix) ** 3 / max(1e-9, min(seconds))


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(10.0, round(seconds, -1)):.0f} seconds"
