"""The training task of a problem, a model and hparams."""

from __future__ import annotations

import dataclasses
import json
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Required, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import t2t_torch
from t2t_torch import errors, files, hparam, mode, registry, text_problem
from t2t_torch.data.vocabulary_builder import vocab_files_in
from t2t_torch.features import ClassLabel, Feature, MultiLabel, SoftLabel, Tags, Text
from t2t_torch.layers.lora import add_adapters
from t2t_torch.metrics.evaluation import Evaluation
from t2t_torch.modalities.build import target_losses
from t2t_torch.modalities.text import Embedding, TextModality
from t2t_torch.modalities.words import FrozenLanguageModel
from t2t_torch.modality import modality_of
from t2t_torch.model import check_features
from t2t_torch.objectives.objective import Objective, check_objective
from t2t_torch.optim.parameter_groups import freeze, parameter_groups
from t2t_torch.optim.settings import learning_rate
from t2t_torch.pipeline.loader import MixedBatches, OnePass
from t2t_torch.pipeline.reader import paddings
from t2t_torch.problem import metric_names
from t2t_torch.reporter import phase
from t2t_torch.reports.column_statistics import count_labels, tag_faults
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.code import keep_code, open_code
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.text.encoder import NUM_RESERVED, TokenEncoder
from t2t_torch.text.vectors import WordVectors, read_vectors, width_of_vectors
from t2t_torch.train.distillation import load_teachers
from t2t_torch.train.problem_data import ProblemData
from t2t_torch.train.task import BatchAdapter, Evaluator, Task

if TYPE_CHECKING:
    from typing import Unpack

    from t2t_torch.ensemble import Ensemble
    from t2t_torch.features import Features
    from t2t_torch.hparam import HParams
    from t2t_torch.model import T2TModel
    from t2t_torch.problem import Problem
    from t2t_torch.reports.column_statistics import StoredColumn

    HParamsT = TypeVar("HParamsT", bound=HParams)


_OFF = {"label_smoothing": 0.0}  # disabled, for settings whose default is another value
_OF_A_LOSS = (
    "label_smoothing focal_gamma focal_alpha loss_margin gce_q multiproblem_label_weight".split()
)


def check_loss_settings(hparams: HParams, features: Features) -> None:
    """Checks that losses fit their targets, and that a chosen loss reads each loss setting.

    Values from a named set, and defaults from any source, are ignored.

    Args:
      hparams: hyperparameters with the source of each value.
      features: features whose targets have losses.

    Raises:
      HParamsError: a setting is not read; the message names the losses that read it.
    """
    check_objective(hparams, features)
    reads = [
        modality_of(name, features.targets[name], hparams).loss_reads
        if loss is None
        else loss.reads
        for name, loss in target_losses(hparams, features).items()
    ]
    read = {name: [its is None or name in its for its in reads] for name in _OF_A_LOSS}
    chosen = f"loss={hparams.loss}" if hparams.loss else "here the targets' own losses are chosen"
    unread = {name: f"a loss that reads it; {chosen}" for name in read if not any(read[name])}
    if not any(its.labels and its.refers_to for its in features.targets.values()):
        unread |= dict.fromkeys(hparam.TagHParams.model_fields, "a target of tags")
    if not hparams.distill_from:
        unread |= dict.fromkeys(("distill_weight", "distill_temperature"), "distill_from")
    if not hparams.r3f_weight:
        unread |= dict.fromkeys(("r3f_noise", "r3f_epsilon"), "r3f_weight")
    if not hparams.adversarial_steps:
        unread |= dict.fromkeys(("adversarial_epsilon", "adversarial_weight"), "adversarial_steps")
    if hparams.adversarial_steps < 2:
        unread["adversarial_step_size"] = "adversarial_steps of 2 or more"
    if not hparams.scheduled_sampling_prob:
        others = set(hparam.ScheduledSamplingHParams.model_fields) - {"scheduled_sampling_prob"}
        unread |= dict.fromkeys(sorted(others), "scheduled_sampling_prob")
    default_sources = {"default", "code", "hparams.json", *registry.list_names("hparams")}
    faults = [
        f"{name}={getattr(hparams, name)} is read by nothing: it needs {needed}. Leave it out."
        for name, needed in unread.items()
        if hparams.provenance[name] not in default_sources
        and getattr(hparams, name) not in (type(hparams).model_fields[name].default, _OFF.get(name))
    ]
    if faults:
        raise errors.HParamsError("\n".join(faults))


_WITH_CLASSES = (ClassLabel, Tags, MultiLabel, SoftLabel)
_RULES = ("balanced", "sqrt_balanced")


def set_class_weights(model: T2TModel, data: ProblemData) -> None:
    """Sets the class weights of a model's losses if its hparams request them.

    Args:
      model: any model.
      data: data whose training labels are counted if needed, each row once.

    Raises:
      HParamsError: a target has no classes, another number of them, or a loss without weights.
      DataError: the data has more classes than the problem.
    """
    hparams: Any = model.hparams
    text, features = hparams.class_weights, model.features
    if not text:
        return
    requested = hparam.values_by_target("class_weights", text, features.targets)
    everywhere = requested.get("", [])
    chosen = {
        target: requested.get(target, everywhere)
        for target, feature in features.targets.items()
        if target in requested or (everywhere and isinstance(feature, _WITH_CLASSES))
    }
    if not chosen:
        raise errors.HParamsError(f"class_weights={text}: no target has classes. Leave it out.")
    for target, words in chosen.items():
        feature = features.targets[target]
        labels = feature.labels
        if not labels or not isinstance(feature, _WITH_CLASSES):
            raise errors.HParamsError(
                f"class_weights={text}: target {target!r} is a {type(feature).__name__}; weights "
                f"are of {', '.join(kind.__name__ for kind in _WITH_CLASSES)}."
            )
        if len(words) == 1 and words[0] in _RULES:
            weights = balanced(feature, labels, data.training_columns(target))
            if words[0] == "sqrt_balanced":
                weights = [math.sqrt(weight) for weight in weights]
        else:
            weights = _given(text, target, words, labels)
        loss = model.modality(target).target_loss
        if loss is None or not loss.takes_class_weights:
            raise errors.HParamsError(
                f"class_weights={text}: the loss of target {target!r} takes no weights of classes. "
                "Name another loss, or the other targets alone: class_weights=[target:...]."
            )
        loss.class_weights = torch.tensor(list(weights), device=next(model.parameters()).device)


def balanced(
    feature: Feature, labels: tuple[str, ...], columns: Iterable[StoredColumn]
) -> list[float]:
    """Returns weights that balance the classes by their frequencies.

    For one class among C the weight is total count / (C * class count), as in King and Zeng 2001;
    for each independent label, rows without it / rows with it.  A count of no rows, or of all rows,
    is replaced by one row, or all but one.

    Args:
      feature: feature of the labels.
      labels: labels in the order of their ids.
      columns: the stored rows.
    """
    counts, rows = np.zeros(len(labels)), 0
    for column in columns:
        counts += np.asarray(count_labels(feature, column).counts)
        rows += len(column)
    there = np.maximum(counts, 1.0)
    if isinstance(feature, MultiLabel):
        return list((np.maximum(rows - counts, 1.0) / there).tolist())
    return list((counts.sum() / (len(labels) * there)).tolist())


def _given(text: str, target: str, words: Sequence[str], labels: tuple[str, ...]) -> list[float]:
    try:
        weights = [float(word) for word in words]
    except ValueError:
        weights = []
    good = all(weight >= 0 and math.isfinite(weight) for weight in weights) and any(weights)
    if len(weights) != len(labels) or not good:
        raise errors.HParamsError(
            f"class_weights={text}: target {target!r} has {len(labels)} classes "
            f"({', '.join(labels[:10])}{' ...' if len(labels) > 10 else ''}). Expected as many "
            f"numbers from 0 on, not all 0, or one of {', '.join(_RULES)}."
        )
    return weights


def _faults_of_tags(model: T2TModel, data: ProblemData) -> Iterator[str]:
    """Yields warnings of training sentences whose tags the constraints of the hparams forbid."""
    hparams: Any = model.hparams
    constraints = hparams.tag_constraints
    if constraints == "none":
        return
    for name, feature in model.features.targets.items():
        columns = data.training_columns(name) if isinstance(feature, Tags) else ()
        for faults in (tag_faults(feature.labels, one) for one in columns):
            if faults.are_usual or (faults.broken and constraints == "train"):
                yield (
                    f"warning: tag_constraints={constraints} forbids the tags of {faults}. They "
                    "are never predicted, and with tag_constraints=train have no loss. Set "
                    "--hparams=tag_constraints=none, or correct them."
                )


Counts = npt.NDArray[np.int64]


def texts_by_table(model: nn.Module) -> list[tuple[Embedding, list[str]]]:
    """Returns a model's embedding tables, each with the names of the texts that share it."""
    modalities: Any = model.modalities
    groups: dict[int, tuple[Embedding, list[str]]] = {}
    for name, modality in modalities.items():
        if isinstance(modality, TextModality) and modality.bottom is not None:
            # A model may have wrapped it.
            table = next(part for part in modality.bottom.modules() if isinstance(part, Embedding))
            groups.setdefault(id(table), (table, []))[1].append(name)
    return list(groups.values())


def count_ids(data: ProblemData, names: list[str], size: int) -> Counts:
    """Counts the ids of texts in the training rows, each row once.

    Args:
      data: data of the run.
      names: names of texts with the same vocabulary.
      size: number of possible ids.

    Returns:
      Counts, [size].
    """
    counts = np.zeros(size, np.int64)
    for name in names:
        for column in data.training_columns(name):
            for _, rows in column.blocks():
                counts += np.bincount(rows.values, minlength=size)[:size]
    return counts


def set_singletons(model: nn.Module, data: ProblemData) -> None:
    """Marks words with a single training occurrence in a model's embedding tables; does nothing
    without `singleton_dropout`.
    """
    trained: Any = model
    if not trained.hparams.singleton_dropout:
        return
    for table, names in texts_by_table(model):
        if table.unknown is not None:
            once = torch.from_numpy(count_ids(data, names, len(table.weight)) == 1)
            once[:NUM_RESERVED], once[table.unknown] = False, False
            table.singletons = once.to(table.weight.device)


def load_pretrained(model: nn.Module, data: ProblemData) -> list[str]:
    """Sets the embedding tables of a new model to the vectors of `pretrained_embeddings`.

    Applies to the inputs that are texts; without inputs, to the targets.  A word's vector is looked
    up as written, then in lower case.  Rows without a vector keep their random values, with the
    standard deviation of the vectors (Kim 2014, arXiv:1408.5882, section 3.2).

    Args:
      model: any initialized model.
      data: data whose training words are counted.

    Returns:
      Lines for the user; none if the hparams name no file.

    Raises:
      HParamsError: a vocabulary is not one of words, or the vectors have another width.
      DataError: the file cannot be read, or has no word of a vocabulary.
    """
    trained: Any = model
    hparams, features = trained.hparams, trained.features
    if not hparams.pretrained_embeddings:
        return []
    path = Path(hparams.pretrained_embeddings).expanduser()
    role = features.inputs or features.targets
    tables = {
        own[0]: (table, own)
        for table, names in texts_by_table(model)
        if (own := [name for name in names if name in role])
    }
    words = {name: _words(name, role[name]) for name in tables}
    if not words:
        raise errors.HParamsError("pretrained_embeddings: this problem has no texts. Leave it out.")
    width = width_of_vectors(path)
    for name, (table, _) in tables.items():
        _check_width(hparams, name, table, path, width)
    wanted = {form for own in words.values() for word in own for form in (word, word.lower())}
    vectors = read_vectors(path, wanted)
    again = f", {vectors.duplicates:,} doubles left out" if vectors.duplicates else ""
    pieces = f", {vectors.composed:,} more from pieces of words" if vectors.composed else ""
    size = f"{vectors.in_file:,} of width {vectors.width}{again}{pieces}"
    lines = [f"word vectors: {path}, {size}"]
    for name, (table, names) in tables.items():
        exact = np.array([vectors.rows.get(word, -1) for word in words[name]], np.int64)
        small = np.array([vectors.rows.get(word.lower(), -1) for word in words[name]], np.int64)
        rows, lowered = np.where(exact >= 0, exact, small), (exact < 0) & (small >= 0)
        if not (rows >= 0).any():
            raise errors.DataError(
                f"{path} has a vector of none of the {len(rows):,} words of {name!r}. Is it of "
                "this language?"
            )
        _fill(table, rows, vectors)
        counts = count_ids(data, names, len(table.weight))[NUM_RESERVED:][: len(rows)]
        lines.append("  " + _coverage(names, rows, lowered, counts))
    return lines


def _words(name: str, feature: Text) -> tuple[str, ...]:
    """Returns the words of a vocabulary, without reserved ids."""
    if not isinstance(feature.encoder, TokenEncoder):
        raise errors.HParamsError(
            f"pretrained_embeddings gives words their vectors, and the vocabulary of {name!r} is "
            f"of pieces of words or of characters ({type(feature.encoder).__name__}). Take a "
            "problem with a vocabulary of words (vocab_type word), or leave it out."
        )
    return feature.encoder.tokens[NUM_RESERVED:]


def _check_width(hparams: Any, name: str, table: Embedding, path: Path, width: int) -> None:
    own = table.weight.size(1)
    if own == width:
        return
    setting = "embedding_size" if getattr(hparams, "embedding_size", 0) else "hidden_size"
    value = getattr(hparams, setting) + width - own
    raise errors.HParamsError(
        f"the vectors of {path} have {width} numbers, and those that the model reads for {name!r} "
        f"have {own}. Set --hparams={setting}={value}, or take a file of vectors of {own}."
    )


@torch.no_grad()
def _fill(table: Embedding, rows: np.ndarray, vectors: WordVectors) -> None:
    """Sets a table such that the embedding of a word equals its vector in the file."""
    values = torch.from_numpy(vectors.values[rows[rows >= 0]]) / table.scale
    has_vector = torch.zeros(len(table.weight), dtype=torch.bool)
    has_vector[NUM_RESERVED : NUM_RESERVED + len(rows)] = torch.from_numpy(rows >= 0)
    weight = table.weight.detach().cpu().clone()
    drawn = weight[~has_vector]
    weight[~has_vector] = drawn * (values.std(correction=0) / drawn.std(correction=0))
    weight[has_vector] = values
    table.weight.copy_(weight)


def _coverage(names: list[str], rows: np.ndarray, lowered: np.ndarray, counts: np.ndarray) -> str:
    """Formats how many words, and occurrences of words in the training data, have a vector."""
    there = rows >= 0
    occurrences = int(counts.sum())
    share = (
        f", {counts[there].sum() / occurrences:.1%} of the training words" if occurrences else ""
    )
    return (
        f"{', '.join(names)}: {there.sum():,} of {len(rows):,} words of the vocabulary have one "
        f"({there.mean():.1%}: {there.sum() - lowered.sum():,} as written, {lowered.sum():,} in "
        f"small letters){share}; the others are drawn"
    )


def with_architecture(hparams: HParamsT, before: HParams | None = None) -> HParamsT:
    """Returns hparams that describe the models that they name: `completed`, and the language model
    of `contextual_embeddings`.

    They are stored with the run, which can then be decoded without the language model's directory.

    Args:
      hparams: requested hyperparameters.
      before: hyperparameters of the run to resume, with the description.

    Raises:
      CheckpointError: the language model's run does not exist.
      HParamsError: the run is not of a language model.
    """
    hparams = hparams.completed(before)
    path = hparams.contextual_embeddings
    if not path or hparams.contextual_architecture:
        return hparams
    if before is not None and before.contextual_architecture:
        known = before.contextual_architecture
    else:
        run = RunDirectory(path)
        task, problem = _opened(run)
        features = problem.features(run.path)
        if features.inputs or [type(text) for text in features.targets.values()] != [Text]:
            raise errors.HParamsError(
                f"contextual_embeddings={path} is a run of {task.problem}, which is no language "
                "model: it has inputs, or learns no text. Give the run of one."
            )
        written = json.loads(run.hparams(registry.model(task.model).HParams).to_json())
        known = json.dumps({"model": task.model, "hparams": written})
    return hparams.replace(contextual_architecture=known).signed(f"the run {path}")


def load_contextual(model: nn.Module, problem: Problem, vocab_dir: Path) -> list[str]:
    """Loads the weights of the language model of `contextual_embeddings` into a new model.

    Args:
      model: any model.
      problem: the problem that the model is trained on.
      vocab_dir: directory of its vocabularies.

    Returns:
      Lines for the user; none if the hparams name no language model.

    Raises:
      CheckpointError: there is no run, or no complete checkpoint of that architecture.
      HParamsError: the vocabularies differ.
    """
    parts = [part for part in model.modules() if isinstance(part, FrozenLanguageModel)]
    if not parts:
        return []
    (context,) = parts  # shared by all inputs
    path = str(getattr(model, "hparams").contextual_embeddings)  # noqa: B009  of T2TModel
    run = RunDirectory(path)
    task, other = _opened(run)
    if _vocabulary(problem, vocab_dir) != _vocabulary(other, run.path):
        raise errors.HParamsError(
            f"contextual_embeddings={path}: {task.problem} has another vocabulary than "
            f"{problem.full_name}, so its ids mean other words. Let one use the other's: its class "
            "attribute use_vocab_from_other_problem (in a declaration: the key of that name), then "
            "t2t-datagen, and train the language model on that."
        )
    chosen = CheckpointDirectory(run.path).read_best(
        lambda checkpoint: checkpoint.load_model(context.model, averaged=True)
    )
    if chosen is None:
        raise errors.CheckpointError(
            f"contextual_embeddings={run.path}: the run has no checkpoint yet. Train it first."
        )
    return [f"contextual vectors: {task.model} of {path}, step {chosen.step}, {context.size} wide"]


def _opened(run: RunDirectory) -> tuple[TaskRecord, Problem]:
    task = run.task()
    open_code(run.path, task)
    return task, registry.problem(task.problem)


def _vocabulary(problem: Problem, directory: Path) -> bytes | None:
    """Returns the vocabulary file of a problem; None for bytes, which have none."""
    if not isinstance(problem, text_problem.TextProblem):
        raise errors.HParamsError(
            f"contextual_embeddings: {problem.full_name} is no problem of texts with a vocabulary."
        )
    name = problem.vocab_filename
    return None if name is None else files.read_bytes(directory / name)


@dataclasses.dataclass(frozen=True)
class Origin:
    """Information that makes a run directory loadable if the run was not started by a command.

    Attributes:
      problem: the trained problem.
      model: class of the model.
      vocab_dir: directory of the vocabularies.
    """

    problem: Problem
    model: type[T2TModel]
    vocab_dir: Path

    def claim(self, directory: RunDirectory, hparams: HParams, train_steps: int) -> None:
        """Claims a run directory that no command has claimed, so that runs in Python can be loaded.

        The hparams set has no name.

        Raises:
          CheckpointError: the run's numbers have another scale than those of `vocab_dir`.
        """
        record = TaskRecord(
            problem=self.problem.full_name,
            model=self.model.name,
            usr_dirs=tuple(registry.usr_dirs()),
            train_steps=train_steps,
            version=t2t_torch.__version__,
        )
        names = vocab_files_in(self.problem, self.vocab_dir, directory.path)
        if directory.claim_for(record, hparams, vocabularies=names, vocab_dir=self.vocab_dir):
            keep_code(directory, record)


class LearningTask(Task):
    """Base class of tasks with one or several problems.

    Attributes:
      problem: the problem to train on.
      features: features of the problem, by their names in a batch.
      tasks: task of each problem, by its full name.
    """

    tasks: Mapping[str, ProblemTask]
    _taught = ""

    def __init__(
        self, problem: Problem, model: type[T2TModel], hparams: HParams, vocab_dir: Path
    ) -> None:
        self.name = problem.full_name
        self.hparams = hparams
        self.problem = problem
        self.features = problem.features(vocab_dir)
        self.batches = BatchAdapter(paddings(self.features.all))
        self.origin = Origin(problem, model, vocab_dir)
        self._vocab_dir = vocab_dir
        loss = hparams.loss or ", ".join(dict.fromkeys(self.features.losses.values()))
        self.trained_with = [hparams.optimizer, *([f"loss {loss}"] if loss else [])]
        if hparams.distill_from:
            teacher = f"the teacher {hparams.distill_from}{self._taught}"
            self.trained_with.append(f"{hparams.distill_weight:.0%} of the loss by {teacher}")

    @abstractmethod
    def plain_model(self) -> nn.Module:
        """Returns a new model without adapters."""

    def model(self) -> nn.Module:
        """Returns a new model, with adapters if hparams set them."""
        model = self.plain_model()
        add_adapters(model, self.hparams)
        return model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns the optimizer set in hparams for all parameters that are not frozen."""
        make: Callable[..., torch.optim.Optimizer] = registry.optimizer(self.hparams.optimizer)
        return make(parameter_groups(model, self.hparams), self.hparams)

    def schedule(self, train_steps: int) -> Callable[[float], float]:
        """Returns the product of the schedules set in hparams."""
        return learning_rate(self.hparams, train_steps)

    def _teachers(self, model: nn.Module) -> dict[str, T2TModel | Ensemble]:
        """Returns the teacher of each problem that has one, on the device of a model."""
        if not self.hparams.distill_from:
            return {}
        problems = {name: (task.problem, task.features) for name, task in self.tasks.items()}
        vocab_dir, device = self._vocab_dir, next(model.parameters()).device
        teachers = load_teachers(self.hparams.distill_from, problems, vocab_dir, self.hparams)
        return {name: teacher.to(device) for name, teacher in teachers.items()}

    @abstractmethod
    def train_batches(
        self, *, seed: int, start: int, rank: int, world_size: int, batches_per_step: int = 0
    ) -> MixedBatches:
        """Returns training batches from global batch `start` on, for one process."""


class LoadingArguments(TypedDict, total=False):
    """Arguments of `ProblemData` about the loading of batches."""

    loader_workers: int
    pin_memory: bool


class DataArguments(LoadingArguments):
    """Arguments of `ProblemTask` about its data."""

    data_dir: Required[Path]
    vocab_dir: Required[Path]


class ProblemTask(LearningTask):
    """Training of a model on a problem with hparams.

    Attributes:
      more_metrics: names of additional registered metrics, by target.
      data_dir: directory of the generated shards.

    Args:
      problem: the problem to train on.
      model: class of the model.
      hparams: hyperparameters, of the class that the model needs.
      data_dir: directory of the generated shards.
      vocab_dir: directory of the vocabularies: the run directory, or `data_dir`.
      loading: as of `ProblemData`.

    Raises:
      HParamsError: the hparams are of the wrong class for the model.
      DataError: a vocabulary is missing, or the problems of a mixture are incompatible.
      UsageError: a metric does not fit its target.
    """

    def __init__(
        self,
        problem: Problem,
        model: type[T2TModel],
        hparams: HParams,
        *,
        data_dir: Path,
        vocab_dir: Path,
        **loading: Unpack[LoadingArguments],
    ) -> None:
        check_pairing(model, hparams)
        super().__init__(problem, model, hparams, vocab_dir)
        self.data_dir = data_dir
        check_features(model, self.features, problem.full_name)
        self.tasks = {problem.full_name: self}
        self.more_metrics: Mapping[str, Sequence[str]] = {}
        targets = list(self.features.targets.values())
        if len(targets) != 1 or None not in targets[0].shape:
            self.counted = "examples"
        self._model = model
        self._data = ProblemData(problem, self.features, hparams, data_dir, **loading)
        self.evaluator()  # rejects unsuitable metrics before training
        check_loss_settings(hparams, self.features)

    def plain_model(self) -> nn.Module:
        """Returns a new model."""
        return self._model(self.hparams, self.features)

    def initialize(self, model: nn.Module) -> list[str]:
        """Loads the word vectors and the language model set in hparams; checks the tags; fits."""
        trained: Any = model
        lines = [*load_pretrained(model, self._data), *_faults_of_tags(trained, self._data)]
        lines += load_contextual(model, self.problem, self._vocab_dir)
        lines += trained.load_pretrained()
        if self.hparams.fits:
            with phase(f"fitting {trained.name}"):
                lines += trained.fit(self._data.training_rows)
        return lines

    def objective(self, model: nn.Module) -> nn.Module:
        """Freezes parameters and sets class weights as hparams require; returns the objective."""
        freeze(model, self.hparams)
        trained: Any = model
        self.weigh_classes(trained)
        return Objective(trained, self._teachers(model).get(self.problem.full_name))

    def weigh_classes(self, model: T2TModel) -> None:
        """Sets the class weights and the rare words that hparams require."""
        set_class_weights(model, self._data)
        set_singletons(model, self._data)

    def train_batches(
        self, *, seed: int, start: int, rank: int, world_size: int, batches_per_step: int = 0
    ) -> MixedBatches:
        """Returns batches of the training split; for a mixture, of all its training splits."""
        place = {"start": start, "rank": rank, "world_size": world_size}
        return self._data.train(seed=seed, batches_per_step=batches_per_step, **place)

    def eval_batches(self, split: mode.Split, *, rank: int, world_size: int) -> OnePass:
        """Returns batches of a split, each example once; reports once if some are truncated."""
        return self._data.evaluate(split, rank=rank, world_size=world_size)

    def evaluator(self) -> Evaluator:
        """Returns an evaluation with the problem's metrics and `more_metrics`."""
        targets = self.features.targets
        metrics = {}
        for target in targets:
            more = self.more_metrics.get(target, ())
            metrics[target] = list(dict.fromkeys([*metric_names(self.problem, target), *more]))
        return Evaluator(Evaluation(targets, metrics, self.name, self.features.notes))


def check_pairing(model: type[T2TModel], hparams: HParams) -> None:
    """Checks that hparams have the fields that the model reads, and request nothing unsupported.

    Raises:
      HParamsError: they are of another class, or pack examples that the model would mix.
    """
    if not isinstance(hparams, model.HParams):
        raise errors.HParamsError(
            f"model '{model.name}' needs {model.HParams.__name__}, not {type(hparams).__name__}. "
            f"Make them of a set:  registry.hparams(NAME, '{model.name}')"
        )
    if hparams.pack_dataset and not model.reads_packed:
        raise errors.HParamsError(
            f"model '{model.name}' does not keep packed examples apart. "
            "Set --hparams=pack_dataset=False."
        )
    if hparams.stream_length and not model.reads_streams:
        raise errors.HParamsError(
            f"model '{model.name}' reads each example by itself, not a text in streams. "
            "Set --hparams=stream_length=0."
        )
