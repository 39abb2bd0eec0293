"""Training: of a problem here, a run directory, a task, an estimator, and a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch import errors, registry, trust
from t2t_torch.reporter import Reporter, message, output, phase
from t2t_torch.settings import require
from t2t_torch.signals import StopRequest
from t2t_torch.train.recommendation import AUTO
from t2t_torch.train.run_config import DECODING, check_patience
from t2t_torch.workflows import config_file, context, run_kind, train_record
from t2t_torch.workflows.generate import pretrained_name
from t2t_torch.workflows.train_settings import TrainSettings, check_settings

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.hparam import HParams
    from t2t_torch.problem import Problem
    from t2t_torch.run.directory import RunDirectory, TaskRecord
    from t2t_torch.train.problem_task import LearningTask
    from t2t_torch.train.task import Hook


def train(
    settings: TrainSettings,
    *,
    callbacks: Sequence[Hook] = (),
    reporter: Reporter | None = None,
    stop: StopRequest | None = None,
) -> int:
    """Trains and evaluates a model; resumes the run of `output_dir` exactly.

    Args:
      settings: what is trained, and how.
      callbacks: hooks in addition to those of `hooks`.
      reporter: where progress is reported; None: to the current one.
      stop: request to save and stop; entered when torch is imported.

    Returns:
      The number of the signal that stopped the run, of any process; 0 if none did.

    Raises:
      T2TError: a setting does not fit, or the run cannot be trained.
    """
    stop = StopRequest() if stop is None else stop
    with trust.running(settings, reporter):
        if settings.hparams_range:
            raise errors.UsageError(
                f"--hparams_range={settings.hparams_range} starts a search, which t2t-tuner and "
                "t2t_torch.workflows.search do."
            )
        kind = run_kind.requested_kind(settings)
        run_kind.check_read(kind, "train", settings)
        if settings.help_hparams:
            require(settings, "hparams_set")
            named = registry.hparams(str(settings.hparams_set), settings.model or "")
            output(train_record.changed(settings, named).describe().rstrip("\n"))
            return 0
        check_settings(settings)
        return kind.train(settings, callbacks, stop)


def train_problem(settings: TrainSettings, callbacks: Sequence[Hook], stop: StopRequest) -> int:
    """Completes the settings by the recommendation and the run; trains, or does a dry run.

    Arguments and results are those of `train`.
    """
    from t2t_torch.run.directory import RunDirectory

    if settings.dry_run and settings.generate_data:
        raise errors.UsageError("--dry_run writes nothing: run t2t-datagen first, or leave it out.")
    # Without --output_dir nothing is there, as in a new one.
    out = settings.output_dir or Path(settings.data_dir or ".", "no-output-dir")
    directory = RunDirectory(out)
    if directory.exists and settings.print_config:
        settings = settings.with_defaults(data_dir=config_file.recorded_data_dir(directory.path))
    elif directory.exists:
        data_dir = context.data_dir_of_run(str(settings.output_dir), settings.data_dir)
        settings = settings.replace(data_dir=data_dir)
    if not settings.print_config:
        of_run = () if directory.exists or directory.has_checkpoints else context.RUN_FLAGS
        require(settings, *of_run, "data_dir", *(() if settings.dry_run else ("output_dir",)))
    if AUTO in (settings.model, settings.hparams_set):
        if (pretrained := train_record.pretrained_of(settings)) and settings.problem:
            settings = settings.replace(problem=pretrained_name(settings.problem))
        if settings.generate_data:
            generate_data(settings, str(settings.problem), stop, pretrained)
    settings, recommended = train_record.recommend(settings, directory)
    settings, recalled = train_record.recall(settings, directory)
    record = train_record.record(settings, directory)
    hparams = train_record.hparams(settings, directory, record)
    check_patience(hparams.swa_patience, settings.schedule, settings.local_eval_frequency)
    for kind, names in {"model": [record.model], "hook": settings.hooks}.items():
        for name in names:
            if name not in registry.list_names(kind):
                getattr(registry, kind)(name)  # says which there are, before torch is imported
    if settings.print_config:
        config = train_record.config_of(settings, directory, record, hparams)
        output(config_file.written(config).rstrip("\n"))
        return 0
    if settings.dry_run:
        return _dry_run(settings, record, hparams)
    train_record.check_warm_start(settings, directory)
    if train_record.leads():
        if recommended:
            message(f"auto:  {' '.join(recommended)}")
        _report_sources(settings, directory, recalled)
    return _run_schedule(settings, directory, record, hparams, callbacks, stop)


def _report_sources(
    settings: TrainSettings, directory: RunDirectory, recalled: Sequence[str]
) -> None:
    if settings.config:
        file = config_file.ConfigFile.read(Path(settings.config), TrainSettings, "t2t-trainer")
        file.warn(train_record.processes())
    if recalled:
        message(f"as in {directory.path / config_file.NAME}:  {' '.join(recalled)}")
    if settings.warm_start_from and directory.has_checkpoints:
        message(
            f"--warm_start_from={settings.warm_start_from} was the start of this run; it resumes "
            "from its own checkpoint"
        )


def _run_schedule(
    settings: TrainSettings,
    directory: RunDirectory,
    record: TaskRecord,
    hparams: HParams,
    callbacks: Sequence[Hook],
    stop: StopRequest,
) -> int:
    # torch takes seconds to import: everything before is answered without it.
    from t2t_torch.distributed.precision import resolve
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.experiment import BaselineCheck, Experiment, chosen_hooks
    from t2t_torch.train.multi_task import with_choices
    from t2t_torch.train.problem_task import with_architecture
    from t2t_torch.workflows.decode_checkpoints import DecodingSchedule

    before = directory.hparams(type(hparams)) if directory.exists else None
    problem = registry.problem(record.problem)
    with train_record.training(settings, directory, stop) as world:
        decoding = None
        if settings.schedule in DECODING:
            decoding = DecodingSchedule(settings, directory, problem, world, stop)
        with phase("preparing the training"):
            hparams = with_architecture(resolve(hparams, world, before), before)
            hparams = with_choices(problem, hparams, before)
            task = _task(settings, directory, record, hparams, world, stop)
        config = settings.run_config(record.train_steps)
        baselines = BaselineCheck(problem, Path(str(settings.data_dir)))
        hooks = [*callbacks, baselines, *chosen_hooks(config, hparams)]
        if config.export_best and settings.trains and world.leads:
            from t2t_torch.workflows.export_best import BestExports

            hooks.insert(0, BestExports(settings, stop))
        with Estimator(task, directory, config, world=world, stop=stop, hooks=hooks) as estimator:
            experiment = Experiment(estimator)
            if decoding is not None:
                decoding.check(task)
                decode = decoding.of(estimator)
                experiment = Experiment(estimator, decode=decode, scores=decoding.scores)
            experiment.run(settings.schedule)
        return train_record.report_stop(settings, estimator)


def _dry_run(settings: TrainSettings, record: TaskRecord, hparams: HParams) -> int:
    """Reports what the same settings would do without `dry_run`; returns 0."""
    from t2t_torch.distributed.process_group import join_world
    from t2t_torch.train.experiment import add_metrics, chosen_hooks
    from t2t_torch.train.memory import dry_run_lines
    from t2t_torch.train.multi_task import task_of, with_choices
    from t2t_torch.train.problem_task import with_architecture
    from t2t_torch.train.random_state import restored_generators

    problem, model = registry.problem(record.problem), registry.model(record.model)
    data_dir = Path(str(settings.data_dir))
    hparams = with_choices(problem, with_architecture(hparams))
    with join_world(use_gpu=False) as world, restored_generators():
        task = task_of(problem, model, hparams, data_dir=data_dir, vocab_dir=data_dir)
        add_metrics(task, settings.eval_metrics)
        config = settings.run_config(record.train_steps)
        chosen_hooks(config, hparams)
        if world.leads:
            split = None if settings.schedule == "train" else settings.eval_split
            seed = settings.random_seed
            for line in dry_run_lines(task, world, seed, eval_split=split, config=config):
                output(line)
    return 0


def _task(
    settings: TrainSettings,
    directory: RunDirectory,
    record: TaskRecord,
    hparams: HParams,
    world: World,
    stop: StopRequest,
) -> LearningTask:
    """Creates the task; claims the run directory if the schedule trains."""
    from t2t_torch.data.manifest import Manifest
    from t2t_torch.data.vocabulary_builder import vocab_files_in
    from t2t_torch.train.experiment import add_metrics
    from t2t_torch.train.multi_task import task_of
    from t2t_torch.train.problem_task import check_pairing

    problem, model = registry.problem(record.problem), registry.model(record.model)
    check_pairing(model, hparams)
    data_dir = Path(str(settings.data_dir))
    with world.leader_first() as leads:
        if leads:
            if settings.generate_data:
                _generate(settings, problem, getattr(hparams, "pretrained", ""), stop)
            manifests = [Manifest.load(data_dir, p.dataset_name) for p in problem.components]
            context.verify_data(settings.verify_data, data_dir, problem)
            problem.features(data_dir)
            if settings.export_best and settings.trains:
                from t2t_torch.workflows.export_best import check_exports

                check_exports(record, hparams, data_dir)
            names = vocab_files_in(problem, data_dir, directory.path)
            if not settings.trains:
                directory.check_is_of(record)
                directory.check_hparams(hparams, trains=False)
                directory.check_vocabularies(names, data_dir)
            else:
                if settings.evaluates:
                    # Training reads the evaluated split only after many steps.
                    for manifest in manifests:
                        manifest.split(settings.eval_split, data_dir)
                        manifest.verify(data_dir, [settings.eval_split])
                _claim(settings, directory, record, hparams)
                directory.claim_vocabularies(names, data_dir)
    # Those of data_dir are the run's, as was checked; the copies come when training begins.
    task = task_of(
        problem,
        model,
        hparams,
        data_dir=data_dir,
        vocab_dir=(data_dir if settings.trains else directory.path),
        loader_workers=settings.loader_workers,
        pin_memory=world.device.type == "cuda",
    )
    add_metrics(task, settings.eval_metrics)
    if settings.evaluates:  # that nothing is left to evaluate is found before training
        task.eval_batches(settings.eval_split, rank=world.rank, world_size=world.size)
    return task


def _generate(
    settings: TrainSettings, problem: Problem, pretrained: str, stop: StopRequest
) -> None:
    """Generates missing data; the folder of a pretrained model is read if it is there."""
    is_gone = not Path(pretrained).expanduser().is_dir()
    for component in problem.components:
        kept = [Path(str(settings.data_dir)) / file for file in component.kept_vocab_files]
        is_made = is_gone and all(path.exists() for path in kept)
        place = "" if is_made else pretrained  # a run needs the folder no more
        generate_data(settings, component.full_name, stop, place)


def _claim(
    settings: TrainSettings, directory: RunDirectory, record: TaskRecord, hparams: HParams
) -> None:
    from t2t_torch.run.code import keep_code

    if not directory.exists:
        record = record.model_copy(update={"decode_hparams": hparams.decode_defaults()})
    config = config_file.written(train_record.config_of(settings, directory, record, hparams))
    changes = directory.claim(record, hparams, config=config, resume_data=settings.resume_data)
    for change in [*changes, *keep_code(directory, record)]:
        message(f"changed since the checkpoint:  {change}")


def generate_data(
    settings: TrainSettings, problem: str, stop: StopRequest, pretrained: str = ""
) -> None:
    """Generates the data of a problem; data that is there is kept.

    Args:
      settings: folders of the data.
      problem: name of the problem.
      stop: stops it.
      pretrained: folder of a pretrained model whose tokenizer reads the texts; "" for none.
    """
    from t2t_torch.workflows.generate import GenerateSettings, generate

    places = {"data_dir": settings.data_dir, "tmp_dir": settings.tmp_dir}
    places["pretrained"] = pretrained
    given = {name: place for name, place in places.items() if place}
    with stop.as_exception():
        generate(GenerateSettings(problem=problem, **given))
