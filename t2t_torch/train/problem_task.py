"""The task that joins a problem, a model and hparams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import t2t_torch
from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.metrics.evaluation import Evaluation
from t2t_torch.mode import Split
from t2t_torch.model_features import check_features
from t2t_torch.optimization.learning_rate import learning_rate
from t2t_torch.optimization.parameter_groups import freeze, parameter_groups
from t2t_torch.pipeline.lengths import paddings
from t2t_torch.pipeline.loader import ChainedBatches, MixedBatches, TrainBatches
from t2t_torch.train.class_weights import set_class_weights
from t2t_torch.train.contextual import load_contextual
from t2t_torch.train.distillation import load_teachers
from t2t_torch.train.loss_settings import check_loss_settings
from t2t_torch.train.pretrained_vectors import load_pretrained
from t2t_torch.train.problem_data import ProblemData
from t2t_torch.train.run_directory import TaskRecord
from t2t_torch.train.task import Evaluator, Task
from t2t_torch.train.word_counts import set_singletons

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams
    from t2t_torch.model import T2TModel
    from t2t_torch.problem import Problem
    from t2t_torch.train.multi_task import MultiTask
    from t2t_torch.train.run_directory import RunDirectory


class ProblemTask(Task):
    """A problem, learnt by a model with hparams.

    Attributes:
      problem: what is learnt.
      features: of the problem.
      more_metrics: registered names that evaluation reports beside the problem's own, by target.

    Args:
      problem: what is learnt.
      model: the class of what learns it.
      hparams: how; of the class that the model needs.
      data_dir: where t2t-datagen wrote the shards.
      vocab_dir: where the vocabularies are: the run directory, or `data_dir`.
      loader_workers: threads that make batches; 0 makes each when it is asked for.
      pin_memory: whether batches are made in pinned memory, from which a GPU copies.

    Raises:
      HParamsError: the hparams are of the wrong class for the model.
      DataError: a vocabulary is missing, or problems that are mixed do not fit together.
      UsageError: a metric is not of such a target.
    """

    def __init__(
        self,
        problem: Problem,
        model: type[T2TModel],
        hparams: HParams,
        *,
        data_dir: Path,
        vocab_dir: Path,
        loader_workers: int = 1,
        pin_memory: bool = False,
    ) -> None:
        check_pairing(model, hparams)
        self.name = problem.full_name
        self.hparams = hparams
        self.problem = problem
        self.features = problem.features(vocab_dir)
        check_features(model, self.features, problem.full_name)
        self.more_metrics: Mapping[str, Sequence[str]] = {}
        targets = list(self.features.targets.values())
        if len(targets) != 1 or not targets[0].is_sequence:
            self.counted = "examples"
        self.paddings = paddings(self.features.all)
        self._model = model
        self._vocab_dir = vocab_dir
        self._data = ProblemData(
            problem,
            self.features,
            hparams,
            data_dir,
            loader_workers=loader_workers,
            pin_memory=pin_memory,
        )
        self.evaluator()  # a metric that does not fit its target is refused before training
        check_loss_settings(hparams, self.features)

    def model(self) -> nn.Module:
        """Returns a new model."""
        return self._model(
            self.hparams,
            self.features,
            input_space_id=self.problem.input_space_id,
            target_space_id=self.problem.target_space_id,
        )

    def first_weights(self, model: nn.Module) -> list[str]:
        """Gives a model the vectors of words, and the language model, that hparams name."""
        lines = load_pretrained(model, self._data)
        return lines + load_contextual(model, self.problem, self._vocab_dir)

    def describe(self, directory: RunDirectory, train_steps: int) -> None:
        """Claims a run directory that no command has claimed: a run in Python is loaded, too."""
        claim_for(directory, self, self._model, self._vocab_dir, train_steps)

    def make_ready(self, model: nn.Module) -> None:
        """Freezes what hparams name; gives the model the weights of classes and its teacher."""
        freeze(model, self.hparams)
        learner: Any = model
        self.weigh_classes(learner)
        if self.hparams.distill_from:
            known = {self.problem.full_name: (self.problem, self.features)}
            given = known, self._vocab_dir, self.hparams
            (teacher,) = load_teachers(self.hparams.distill_from, *given).values()
            learner.learn_from(teacher.to(next(model.parameters()).device))

    def weigh_classes(self, model: T2TModel) -> None:
        """Gives a model the weights of classes that hparams ask for, and what words are rare."""
        set_class_weights(model, self._data)
        set_singletons(model, self._data)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns the optimizer that hparams name, of the parameters that they do not freeze."""
        make: Callable[..., torch.optim.Optimizer] = registry.optimizer(self.hparams.optimizer)
        return make(parameter_groups(model, self.hparams), self.hparams)

    def learning_rate(self, train_steps: int) -> Callable[[float], float]:
        """Returns the schedule that hparams name."""
        return learning_rate(self.hparams, train_steps)

    def train_batches(
        self, *, seed: int, start: int, rank: int, world_size: int
    ) -> TrainBatches | MixedBatches:
        """Returns batches of the training split, or of those of a mixture."""
        return self._data.train(seed=seed, start=start, rank=rank, world_size=world_size)

    def eval_batches(self, split: Split, *, rank: int, world_size: int) -> ChainedBatches:
        """Returns batches of a split, each example once; says once if some are cut."""
        return self._data.evaluate(split, rank=rank, world_size=world_size)

    def evaluator(self) -> Evaluator:
        """Returns the problem's metrics, and `more_metrics`."""
        targets = self.features.targets
        metrics = {}
        for target in targets:
            more = self.more_metrics.get(target, ())
            metrics[target] = list(dict.fromkeys([*self.problem.metrics_of(target), *more]))
        return Evaluation(targets, metrics, self.name, self.features.notes)


def claim_for(
    directory: RunDirectory,
    task: ProblemTask | MultiTask,
    model: type[T2TModel],
    vocab_dir: Path,
    train_steps: int,
) -> None:
    """Claims a run directory for a task; its set of hyperparameters has no name.

    Raises:
      CheckpointError: the run is of numbers of another scale than those of `vocab_dir`.
    """
    record = TaskRecord(
        problem=task.problem.full_name,
        model=model.name,
        usr_dirs=tuple(registry.usr_dirs()),
        train_steps=train_steps,
        version=t2t_torch.__version__,
    )
    vocabularies = task.problem.vocab_files_in(vocab_dir, directory.path)
    directory.claim_for(record, task.hparams, vocabularies=vocabularies, vocab_dir=vocab_dir)


def check_pairing(model: type[T2TModel], hparams: HParams) -> None:
    """Checks that hparams have the fields that the model reads, and ask for nothing else.

    Raises:
      HParamsError: they are of another class, or pack examples that the model would mix.
    """
    if isinstance(hparams, model.HParams):
        if hparams.pack_dataset and not model.reads_packed:
            raise HParamsError(
                f"model '{model.name}' does not keep packed examples apart. "
                "Set --hparams=pack_dataset=False."
            )
        if hparams.stream_length and not model.reads_streams:
            raise HParamsError(
                f"model '{model.name}' reads each example by itself, not a text in streams. "
                "Set --hparams=stream_length=0."
            )
        return
    fitting = [
        name
        for name in registry.list_names("hparams")
        if name.startswith(model.name) and isinstance(registry.hparams(name), model.HParams)
    ]
    raise HParamsError(
        f"model '{model.name}' needs an hparams set of {model.HParams.__name__}, not of "
        f"{type(hparams).__name__}. Sets that fit: {', '.join(fitting) or 'write one'}."
    )
