"""Settings of a training, checks of their combinations, and the resulting `RunConfig`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from t2t_torch.errors import UsageError
from t2t_torch.mode import Split
from t2t_torch.settings import hp, hp_path
from t2t_torch.train.run_config import DECODING, IN_TURNS, SCHEDULES, TRAINING, RunConfig
from t2t_torch.trust import CacheSettings, CodeSettings
from t2t_torch.workflows import context


class TrainSettings(RunConfig, CodeSettings, CacheSettings):
    """Trains and evaluates a model on a problem; resumes exactly where it stopped.

        t2t-trainer --problem=translate_multi30k_ende --model=transformer \\
            --hparams_set=transformer_small --data_dir=data --output_dir=run --train_steps=10000

    Run it again with the same --output_dir to resume; problem, model, hparams, --train_steps and
    the settings of evaluations and checkpoints are then those of the run.  --config=run.json
    contains any of them; run/config.json reproduces a run.
    Several processes:  torchrun --nproc-per-node=2 -m t2t_torch.bin.trainer ...
    SIGTERM, SIGINT or SIGUSR1 saves and stops with exit code 128 + the signal's number, or
    --signal_exit_code (under torchrun the exit code is torchrun's, 1).
    """

    problem: str | None = context.PROBLEM
    model: str | None = context.MODEL
    hparams_set: str | None = context.HPARAMS_SET
    hparams: str = context.HPARAMS
    data_dir: str | None = context.DATA_DIR
    output_dir: str | None = hp_path(
        "Run directory: checkpoints, hyperparameters, vocabularies, summaries."
    )
    tmp_dir: str | None = context.TMP_DIR
    eval_metrics: tuple[str, ...] = context.EVAL_METRICS
    verify_data: context.VerifyData = context.VERIFY_DATA
    schedule: str = hp(
        next(iter(SCHEDULES)),
        "\n".join(f"{name}: {one.meaning}" for name, one in SCHEDULES.items()),
        choices=tuple(SCHEDULES),
    )
    teacher: tuple[str, ...] = hp(
        (),
        "Teacher run whose probabilities are imitated, as --hp_distill_from; several, "
        "separated by commas, are averaged, or teach one problem each.",
    )
    eval_use_test_set: bool = hp(False, "Evaluates the test split instead of the dev split.")
    generate_data: bool = hp(False, "Runs t2t-datagen first if the data does not exist.")
    worker_gpu: int = hp(1, "Device: 1: a GPU per process if available; 0: the CPU.", low=0)
    loader_workers: int = hp(
        1,
        "Number of threads that prepare batches; 0: batches are prepared when needed.",
        low=0,
        high=256,
    )
    threads: str = hp(
        "auto", "Threads of a CPU; auto: those of OMP_NUM_THREADS, of the run's last start, or all."
    )
    exchange_timeout: float = hp(
        1800.0,
        "Seconds that processes wait for each other in a step; then the run ends with the rank and "
        "host that did not answer.",
        low=1.0,
    )
    signal_exit_code: int = hp(
        0,
        "Exit code after a signal; 0: 128 + its number. With 75 some schedulers start the job"
        " again.",
        low=0,
        high=255,
    )
    hp_: tuple[str, ...] = hp(
        (), "One hyperparameter, name=value; may be repeated; also --hp_name=value.", repeated=True
    )
    config: str | None = hp_path(
        "JSON file of flags and hyperparameters; flags given here win.  With --trial: the YAML of"
        " the experiment."
    )
    print_config: bool = hp(False, "Prints the JSON that reproduces this command and exits.")
    help_hparams: bool = hp(False, "Prints the hyperparameters with their sources and exits.")
    dry_run: bool = hp(
        False,
        "Prints examples, buckets, steps, parameters and memory and exits, without training "
        "or writing.",
    )
    trial: str | None = hp(
        None,
        "PyTorchTrial to train instead of a problem: its folder, file or module, with :Class "
        "if there are several.  See docs/how_to/trials.md.",
    )
    test_mode: bool = hp(
        False,
        "Smoke check of a trial: runs one batch through all methods and prints the shapes; "
        "keeps nothing.",
    )
    global_batch_size: int = hp(
        0,
        "Number of records per optimizer step of a trial, over all processes; 0: that of the "
        "configuration.",
        low=0,
    )
    max_restarts: int | None = hp(
        None,
        "Maximum number of restarts of a failed trial from its newest checkpoint; default: "
        "that of the configuration.",
        low=0,
    )
    download_timeout: float = hp(
        7200.0,
        "Seconds that the other processes of a machine wait for download_data of a trial.",
        low=0.0,
    )
    hparams_range: str | None = hp(
        None, "Named search space; starts a search as t2t-tuner does, instead of one training."
    )
    autotune_objective: str | None = hp(None, "Metric that ranks the runs of a search.")
    autotune_maximize: bool | None = hp(
        None,
        "Higher values of the metric of a search are better; default: as declared by the metric.",
    )
    autotune_max_trials: int = hp(10, "Number of runs of a search.", low=1, high=10000)
    autotune_parallel_trials: int = hp(
        1, "Number of concurrent runs of a search.", low=1, high=10000
    )
    decode_hparams: str = hp("", "Decoding settings of schedules that decode.")
    decode_from_file: str | None = hp_path(
        "File of inputs of schedules that decode; default: the dev split."
    )
    decode_to_file: str | None = hp_path("File of outputs of schedules that decode.")
    decode_reference: str | None = hp_path("File of reference outputs of schedules that decode.")
    decode_problem: str | None = hp(None, "Problem of a run of several problems that is decoded.")

    @property
    def trains(self) -> bool:
        """True if the schedule trains."""
        return self.schedule in TRAINING

    @property
    def evaluates(self) -> bool:
        """True if the schedule evaluates."""
        return self.schedule != "train" and (self.trains or self.schedule not in DECODING)

    @property
    def eval_split(self) -> Split:  # type: ignore[override]  # no setting of its own
        """The split that the schedule evaluates or decodes."""
        if self.schedule.endswith("_on_train_data"):
            return Split.TRAIN
        return Split.TEST if self.eval_use_test_set else Split.EVAL

    def run_config(self, train_steps: int) -> RunConfig:
        """Returns the settings of the run.

        Args:
          train_steps: steps at which the run ends, from the settings or the run; 0 if epochs
            decide.
        """
        values = {name: getattr(self, name) for name in RunConfig.declared()}
        del values["train_steps"]
        if train_steps:
            values["train_steps"] = train_steps
        return RunConfig(**values)


_OF_ONE_START = (
    "train_steps pause_at_step random_seed eval_split resume_data warm_start_from "
    "warm_start_patterns profile"
)
REMEMBERED = (
    *(name for name in RunConfig.declared() if name not in _OF_ONE_START.split()),
    "loader_workers",
    "global_batch_size",
)
"""Settings that a resumed run takes from its start if the new command does not give them.
(`train_steps` is in task.json, the seed in the checkpoint.)"""

OF_TRIALS = ("test_mode", "global_batch_size", "max_restarts", "download_timeout")
"""Settings that only a trial reads."""

OF_SEARCHES = tuple(name for name in TrainSettings.declared() if name.startswith("autotune_"))
"""Settings that only a search reads."""

_OF_DECODING = tuple(name for name in TrainSettings.declared() if name.startswith("decode_"))
_OF_TRAINING = (
    *("profile", "pause_at_step", "warm_start_from", "train_epochs", "train_seconds"),
    *("generate_data", "global_batch_size"),
)


def check_settings(settings: TrainSettings) -> None:
    """Checks the given settings against each other.

    Raises:
      UsageError: settings contradict each other, or one has no effect; all are reported.
    """
    parts = (_of_start, _of_rules, _of_schedule, _of_decoding)
    if faults := [fault for part in parts for fault in part(settings)]:
        raise UsageError("\n".join(faults))


def _of_start(settings: TrainSettings) -> Iterator[str]:
    if "train_steps" in settings.given and settings.train_epochs:
        yield "--train_steps and --train_epochs both say where the run ends: give one of them."
    if settings.warm_start_patterns and not settings.warm_start_from:
        yield "--warm_start_patterns chooses among the parameters of --warm_start_from: give it."
    if settings.worker_gpu > 1:
        yield (
            f"--worker_gpu={settings.worker_gpu}: a process trains on one GPU. Start several: "
            f"torchrun --nproc-per-node={settings.worker_gpu} -m t2t_torch.bin.trainer ..."
        )
    if settings.print_config and settings.dry_run:
        yield "--print_config and --dry_run both print and exit: give one of them."
    out, data = settings.output_dir, settings.data_dir
    if out and data and Path(out).resolve() == Path(data).resolve():
        yield "--output_dir and --data_dir are the same folder; give a run its own."


def _of_rules(settings: TrainSettings) -> Iterator[str]:
    """Yields errors in the settings of early stopping and learning-rate plateaus."""
    stops = settings.eval_early_stopping_steps > 0 or settings.eval_patience > 0
    falls = settings.reduce_lr_on_plateau_factor < 1
    if settings.reduce_lr_on_plateau_factor == 0:
        yield "--reduce_lr_on_plateau_factor=0 would end all learning; give more, at most 1."
    for name, on in {
        "eval_early_stopping_steps": stops,
        "eval_patience": stops,
        "reduce_lr_on_plateau_factor": falls,
    }.items():
        if not on or not settings.is_changed(name):
            continue
        if settings.schedule not in IN_TURNS:
            yield (
                f"--{name} needs evaluations while training, which --schedule={settings.schedule} "
                f"does not make. Give --schedule={' or '.join(sorted(IN_TURNS))}."
            )
        elif not settings.local_eval_frequency:
            yield f"--{name} needs evaluations on the way: --local_eval_frequency=0 makes none."
    # 0.1 was the default of earlier versions, whose runs record it.
    if settings.eval_early_stopping_metric_delta not in (None, 0.1) and not stops:
        yield (
            "--eval_early_stopping_metric_delta is read with --eval_early_stopping_steps or "
            "--eval_patience alone."
        )
    for name in ("reduce_lr_on_plateau_patience", "reduce_lr_on_plateau_threshold"):
        if settings.is_changed(name) and not falls:
            yield f"--{name} is read with --reduce_lr_on_plateau_factor below 1 alone."


def _of_schedule(settings: TrainSettings) -> Iterator[str]:
    schedule = settings.schedule
    for name in _OF_TRAINING:
        if schedule not in TRAINING and settings.is_changed(name):
            yield f"--{name} is for training, which --schedule={schedule} does not do."
    if settings.export_best and schedule not in IN_TURNS:
        yield (
            f"--export_best needs evaluations while training, which --schedule={schedule} does not "
            f"make. Give --schedule={' or '.join(sorted(IN_TURNS))}."
        )
    if schedule == "test" and settings.pause_at_step:
        yield "--pause_at_step: --schedule=test trains one step."
    if schedule.endswith("_on_train_data") and settings.eval_use_test_set:
        yield f"--eval_use_test_set: --schedule={schedule} looks at the training split."


def _of_decoding(settings: TrainSettings) -> Iterator[str]:
    schedule = settings.schedule
    given_names = [name for name in _OF_DECODING if settings.is_changed(name)]
    if schedule not in DECODING:
        for name in given_names:
            yield f"--{name} is for decoding, which --schedule={schedule} does not do."
        return
    if schedule.endswith("_from_file") and not settings.decode_from_file:
        yield f"--schedule={schedule} needs --decode_from_file."
    if schedule.endswith("_data"):
        for name in ("decode_from_file", "decode_reference"):
            if name in given_names:
                yield f"--{name}: --schedule={schedule} decodes the generated data."
    elif settings.decode_reference and not settings.decode_from_file:
        yield "--decode_reference belongs to --decode_from_file; data has its own targets."
    for name in ("decode_from_file", "decode_reference"):
        if getattr(settings, name) and not Path(getattr(settings, name)).is_file():
            yield f"--{name}={getattr(settings, name)}: there is no such file."
