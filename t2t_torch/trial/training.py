"""Training of a user's `PyTorchTrial`."""

from __future__ import annotations

import dataclasses
import gc
import os
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import t2t_torch
from t2t_torch.errors import ConfigError, T2TError, UsageError
from t2t_torch.reporter import message, output
from t2t_torch.run.code import keep_code, open_code, recorded_usr_dirs
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.settings import require
from t2t_torch.trial import experiment, pytorch_trial
from t2t_torch.trial.experiment import NAME, ExperimentConfig, RunRecord
from t2t_torch.trial.user_code import file_beside
from t2t_torch.workflows import config_file, train_record
from t2t_torch.workflows.search_settings import absolute
from t2t_torch.workflows.train_settings import TrainSettings

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.signals import StopRequest
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.run_config import RunConfig
    from t2t_torch.train.task import Hook
    from t2t_torch.trial.experiment import LengthScale
    from t2t_torch.trial.task import TrialTask


FROM_CONFIG = (
    *("local_eval_frequency", "save_checkpoints_steps", "keep_checkpoint_max", "eval_steps"),
    *("keep_checkpoint_best", "eval_early_stopping_metric", "eval_early_stopping_metric_minimize"),
)
"""Settings whose values a configuration has, where the command does not."""


def messages_of(settings: TrainSettings, config: ExperimentConfig) -> list[str]:
    """Returns messages about settings of an experiment that work differently here."""
    wanted, slots = config.resources, config.resources.slots_per_trial
    processes, policy = train_record.processes(), config.checkpoint_policy
    is_requested = "slots_per_trial" in (config.written.get("resources") or {})
    is_parallel = wanted.optimized_parallel or wanted.distributed
    differs = (is_requested and slots != processes) or (is_parallel and processes == 1)
    way = f"torchrun --nproc-per-node={slots if slots > 1 else 'N'} -m t2t_torch.bin.trainer"
    way = way if slots > 1 or is_parallel else "t2t-trainer without torchrun"
    latest, mixed = config.save_trial_latest, config.optimizations.mixed_precision
    lines = [
        (config.ignored, f"ignored here, for a cluster alone:  {', '.join(config.ignored)}"),
        (
            policy == "none" or (policy == "best" and not latest),
            f"checkpoint_policy {policy}, save_trial_latest {latest}:  the newest "
            f"{max(latest, 1)} checkpoints are kept all the same, for a run that stops",
        ),
        (
            config.save_experiment_best,
            f"save_experiment_best {config.save_experiment_best}:  not followed, as each training "
            "keeps its own best (save_trial_best)",
        ),
        (
            settings.trains and differs,
            f"resources:  {slots} slots_per_trial, and the number of processes here is "
            f"{processes}; {way} starts others",
        ),
        (
            config.perform_initial_validation and settings.schedule == "train",
            "perform_initial_validation:  --schedule=train evaluates nothing",
        ),
        (
            mixed != "O0" and config.optimizations.precision is None,
            f"optimizations.mixed_precision {mixed}:  O1, O2 and O3 are one here: products in "
            "float16 (torch.autocast), weights in float32, the loss scaled",
        ),
    ]
    return [line for applies, line in lines if applies]


_IN_TURNS = ("continuous_train_and_eval", "train_and_evaluate")
SCHEDULES = (*_IN_TURNS, "train", "evaluate", "continuous_eval", "test")
"""What `--schedule` may be for a trial."""

_NOWHERE = Path(os.devnull, "no-output-dir")


def train(settings: TrainSettings, callbacks: Sequence[Hook], stop: StopRequest) -> int:
    """Trains and evaluates a trial.

    After an error in the trial's code, training restarts from the newest checkpoint.  The run ends
    if the same error occurs at the same step, or if a device has failed, which this process cannot
    use any more.

    Args:
      settings: what is trained, and how.
      callbacks: hooks in addition to those of `hooks`.
      stop: request to save and stop.

    Returns:
      The number of the signal that stopped the run; 0 if none did.

    Raises:
      InvalidHP: the trial says that its hyperparameters cannot be trained.
      T2TError: a setting does not fit, or the trial cannot be trained.
    """
    _check_settings(settings)
    directory = RunDirectory(settings.output_dir or _NOWHERE)
    settings, lines = _recall(settings, directory)
    record, config = _record(settings, directory)
    if train_record.leads():
        for line in [*lines, *messages_of(settings, config)]:
            message(line)
    pytorch_trial.name_run(Path(settings.output_dir) if settings.output_dir else None)
    if settings.test_mode:
        return _Training(settings, RunDirectory(_NOWHERE), record, config).test()
    training = _Training(settings, directory, record, config)
    most = config.max_restarts if settings.max_restarts is None else settings.max_restarts
    if train_record.processes() > 1 or not settings.trains:  # torchrun restarts all processes
        most = 0
    before, restarts = "", 0
    while True:
        estimators: list[Estimator] = []
        try:
            return training.run(callbacks, stop, estimators)
        except T2TError:
            raise
        except Exception as error:
            step = estimators[0].state.step if estimators else 0
            failure = f"step {step}: {type(error).__name__}: {error}"
            is_of_device = type(error).__name__ == "AcceleratorError"  # of torch
            if restarts >= most or failure == before or is_of_device:
                raise
            message(traceback.format_exc().rstrip())
            before, restarts = failure, restarts + 1
            message(f"restart {restarts} of {most} (max_restarts), from the newest checkpoint")
        estimators.clear()
        gc.collect()


def _recall(settings: TrainSettings, directory: RunDirectory) -> tuple[TrainSettings, list[str]]:
    """Returns settings in which those not given are as recorded in the run; and a message.

    A given configuration wins.
    """
    settings, recalled = train_record.recall(settings, directory)
    if settings.config:
        own = tuple(f"--{name}" for name in FROM_CONFIG)
        recalled = [argument for argument in recalled if argument.partition("=")[0] not in own]
    file = directory.path / config_file.NAME
    return settings, [f"as in {file}:  {' '.join(recalled)}"] if recalled else []


def _check_settings(settings: TrainSettings) -> None:
    """Checks that the given settings apply to a trial.

    Raises:
      UsageError: some do not; all are reported.
    """
    faults = []
    if settings.schedule not in SCHEDULES:
        faults.append(
            f"--schedule={settings.schedule} is for a problem; of a trial: {', '.join(SCHEDULES)}."
        )
    if settings.test_mode and train_record.processes() > 1:
        faults.append("--test_mode looks at one process: run it without torchrun.")
    if faults:
        raise UsageError("\n".join(faults))
    if not settings.test_mode:
        require(settings, "output_dir")


def _record(settings: TrainSettings, directory: RunDirectory) -> tuple[RunRecord, ExperimentConfig]:
    """Returns the record of the run and the experiment, from settings and the run directory."""
    known = RunRecord.read(directory.path) if directory.exists else None
    changes = experiment.parse_changes(settings.hparams, list(settings.hp_))
    if settings.config:
        config = ExperimentConfig.read(Path(settings.config))
    elif known:
        config = ExperimentConfig.from_dict(known.config, source=str(directory.path / NAME))
    else:
        config = ExperimentConfig.from_dict({})
    before = known.hparams if known else {}
    if not settings.config:
        changes = {**experiment.by_name(config.hyperparameters, before), **changes}
    values = experiment.chosen_values(config.hyperparameters, changes, before)
    spec = settings.trial or (known.trial if known else "")
    if settings.trial and config.trial_class and ":" not in Path(spec).name:
        spec += f":{_class_of(config.trial_class, Path(spec))}"
    if known and not settings.trial:
        open_code(directory.path, directory.task())
        spec = experiment.place_of_code(spec, directory.path, known.module_file)
    if known and not (settings.trial and settings.config):
        experiment.check_functions(spec, directory.path, config.functions)
    spec = absolute(spec)
    record = RunRecord(
        trial=spec,
        config=config.written,
        hparams=values,
        version=t2t_torch.__version__,
        module_file=experiment.module_file_of(spec),
    )
    if known:
        directory.changes = list(known.changes(record))
        for change in directory.changes:
            message(f"changed since the checkpoint:  {change}")
    return record, config


def _class_of(entrypoint: str, place: Path) -> str:
    """Returns the class of an entrypoint whose module is in the folder of the trial.

    Raises:
      ConfigError: there is no such module, or the entrypoint names no class.
    """
    module, _, name = entrypoint.partition(":")
    if not (module and name) or (place.exists() and file_beside(place.resolve(), module) is None):
        raise ConfigError(
            f"entrypoint: {entrypoint!r} names no class of a module of {place}. Write "
            "module:Class, such as model_def:MyTrial, or leave it out."
        )
    return name


@dataclasses.dataclass(frozen=True)
class _Training:
    """A training of a trial.

    Attributes:
      settings: the settings.
      directory: the run directory.
      record: record of the run.
      config: the experiment.
    """

    settings: TrainSettings
    directory: RunDirectory
    record: RunRecord
    config: ExperimentConfig

    @property
    def seed(self) -> int:
        """The seed of the settings, the run, or the experiment, in this order."""
        if self.settings.random_seed is not None:
            return int(self.settings.random_seed)
        recorded = config_file.remembered(self.directory.path, ["random_seed"], TrainSettings)
        return int(recorded.get("random_seed", self.config.reproducibility.experiment_seed))

    @property
    def goes_on(self) -> bool:
        """True if a run is resumed without a configuration: it keeps its settings."""
        return (self.directory.path / config_file.NAME).exists() and not self.settings.config

    def task(self, world: World) -> TrialTask:
        """Returns the task of the trial."""
        from t2t_torch.trial.preparation import prepare

        given: Any = {"seed": self.seed, "timeout_s": self.settings.download_timeout}
        return prepare(self.record.trial, self.config, self.record.hparams, world, **given)

    def run(self, callbacks: Sequence[Hook], stop: StopRequest, made: list[Estimator]) -> int:
        """Trains; adds the estimator to `made`; see `train`."""
        # torch takes seconds to import: everything before is answered without it.
        from t2t_torch.distributed.precision import warn_if_slow
        from t2t_torch.train.estimator import Estimator
        from t2t_torch.train.experiment import Experiment, chosen_hooks
        from t2t_torch.trial.preparation import smoke_check

        directory, config = self.directory, self.config
        with train_record.training(self.settings, directory, stop) as world:
            task = self.task(world)
            settings, run_config = self.run_config(task, world)
            if "warm_start_from" in settings.given:
                train_record.check_warm_start(settings, directory)
            if not directory.has_checkpoints:  # checkpoints contain the seed
                run_config = run_config.replace(random_seed=self.seed)
            with world.leader_first() as leads:
                if leads and settings.trains:
                    self.claim(settings, task, run_config)
            if world.leads:  # sizes of a layer, as those of the trial's own network are unknown
                warn_if_slow(task.hparams.replace(batch_size=1024, hidden_size=256), world.device)
            hooks = [*callbacks, *chosen_hooks(run_config, task.hparams)]
            with Estimator(
                task, directory, run_config, world=world, stop=stop, hooks=hooks
            ) as estimator:
                made.append(estimator)
                if settings.schedule in _IN_TURNS:
                    estimator.begin()
                    period = estimator.config.local_eval_frequency
                    if not estimator.state.step and config.perform_initial_validation:
                        estimator.evaluate()
                    elif not estimator.state.step and not 0 < period < estimator.train_steps:
                        smoke_check(estimator)  # validation would first run at the end
                Experiment(estimator).run(settings.schedule)
            return train_record.report_stop(settings, estimator)

    def run_config(self, task: TrialTask, world: World) -> tuple[TrainSettings, RunConfig]:
        """Returns the settings of the run, from settings and the experiment; settings win.

        Args:
          task: task of the trial; `--global_batch_size` changes its batches per step.
          world: the processes.

        Raises:
          ConfigError: the length of training is unknown.
          UsageError: no whole number of batches makes `--global_batch_size`.
        """
        settings, config = self.settings, self.config
        source = task.train_batches(seed=0, start=0, rank=world.rank, world_size=world.size)
        if wanted := settings.global_batch_size:
            each = source.records_per_batch * world.size
            count = round(wanted / each)
            if count < 1 or abs(count * each - wanted) > 1e-6:
                raise UsageError(
                    f"--global_batch_size={wanted}: {world.size} process(es) make {each:g} in a "
                    f"step, with batches of {source.records_per_batch:g}, or a multiple. Give one "
                    "of these."
                )
            task.hparams = task.hparams.replace(optimizer_multistep_accumulate_steps=count)
        scale = dataclasses.replace(
            config.scale(source, world_size=world.size),
            aggregation_frequency=task.hparams.optimizer_multistep_accumulate_steps or 1,
        )
        values = {} if self.goes_on else _from_config(config, scale)
        if config.searcher.source_checkpoint:
            values["warm_start_from"] = config.searcher.source_checkpoint
        steps = self._steps(scale)
        settings = settings.with_defaults(**values)
        # Evaluations fail without the monitored metric if something depends on it; the default of
        # the flag is not a metric of most trials.
        name, metric = "eval_early_stopping_metric", settings.eval_early_stopping_metric
        waits = settings.eval_early_stopping_steps or settings.keep_checkpoint_best
        if name in settings.given or metric != settings.declared()[name].default or waits:
            task.watched.setdefault(metric, f"--{name}")
        return settings, settings.run_config(steps)

    def _steps(self, scale: LengthScale) -> int:
        """Returns the steps at which the run ends: from the flag, the run or the experiment.

        Raises:
          ConfigError: none of them sets it.
        """
        settings, directory, length = self.settings, self.directory, self.config.searcher.length
        recorded = directory.task().train_steps if directory.exists else 0
        steps = settings.train_steps if "train_steps" in settings.given else 0
        steps = steps or (recorded if self.goes_on else 0)
        steps = steps or (scale.steps(length) if length else recorded)
        if not steps and settings.trains:
            raise ConfigError(
                "nothing says how long to train: give --train_steps, or searcher.max_length in the "
                "configuration, such as max_length: {epochs: 10}."
            )
        return steps or 1

    def claim(self, settings: TrainSettings, task: TrialTask, config: RunConfig) -> None:
        """Claims the run directory for the trial; its files are written when training starts."""
        directory, steps = self.directory, config.train_steps
        recorded = directory.task().usr_dirs if directory.exists else ()
        known = TaskRecord(
            trial=task.definition.trial_class.__name__,
            usr_dirs=recorded_usr_dirs(directory.path, recorded),
            train_steps=steps,
            version=t2t_torch.__version__,
        )
        values = {"train_steps": steps, "random_seed": self.seed, "trial": self.record.trial}
        processes = train_record.processes()
        content = config_file.content_of(settings, task.hparams, values, processes=processes)
        del content["hparams"]
        files = {NAME: self.record.text, config_file.NAME: config_file.written(content)}
        directory.claim_files(known, files)
        code = experiment.copies_of(task.definition, directory.path)
        for change in keep_code(directory, known, code):
            message(f"changed since the checkpoint:  {change}")

    def test(self) -> int:
        """Runs one batch through training and validation, and prints its shapes."""
        from t2t_torch.distributed.process_group import join_world
        from t2t_torch.train.random_state import restored_generators
        from t2t_torch.trial.preparation import tested

        on_gpu, timeout = self.settings.worker_gpu > 0, self.settings.exchange_timeout
        joined = join_world(use_gpu=on_gpu, exchange_timeout=timeout)
        with joined as world, restored_generators():
            for line in tested(self.task(world), seed=self.seed, device=world.device):
                output(line)
        return 0


def _from_config(config: ExperimentConfig, scale: LengthScale) -> dict[str, Any]:
    """Returns the values of the settings in `FROM_CONFIG` that an experiment sets."""
    periods = {
        "local_eval_frequency": ("min_validation_period", config.min_validation_period),
        "save_checkpoints_steps": ("min_checkpoint_period", config.min_checkpoint_period),
    }
    values: dict[str, Any] = {
        name: scale.period(period, key) if period else 0 for name, (key, period) in periods.items()
    }
    newest = max(config.save_trial_latest, 1)
    values["keep_checkpoint_max"] = 0 if config.checkpoint_policy == "all" else newest
    rated = bool(config.searcher.metric) and config.checkpoint_policy != "none"
    values["keep_checkpoint_best"] = config.save_trial_best if rated else 0
    values["eval_steps"] = 0
    if config.searcher.metric:
        values["eval_early_stopping_metric"] = config.searcher.metric
        values["eval_early_stopping_metric_minimize"] = config.searcher.smaller_is_better
    return values
