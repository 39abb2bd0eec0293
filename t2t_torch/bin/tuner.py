"""Hyperparameter search: trains many trials, stops bad ones early, reports the best.

    t2t-tuner --problem=dates_to_iso --model=transformer --hparams_set=transformer_tiny \\
        --hparams_range=transformer_tiny_range --data_dir=data --output_dir=search \\
        --metric=loss --max_trials=16 --train_steps=400 --parallel=2
    t2t-tuner --trial=my_trial --config=experiment.yaml --output_dir=search

Each trial is a run of t2t-trainer in trials/<number>; best/ is the directory of the best one.  The
results are printed at the end, and written to search.html and to files ready to use.
Run it again with the same --output_dir to resume, also after kill -9.  Several tuners, also on
other machines (--storage), share a search.
SIGTERM or SIGINT lets the trainings save, and exits with 128 + the signal's number.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch import registry
from t2t_torch.bin import flags as shared
from t2t_torch.bin import search_flags
from t2t_torch.bin.search_flags import FLAGS, flag, requested_search
from t2t_torch.bin.trainer_flags import FLAGS as TRAINER_FLAGS
from t2t_torch.bin.trainer_flags import chosen, given
from t2t_torch.bin.trainer_flags import flag as trainer_flag
from t2t_torch.errors import DataError, UsageError
from t2t_torch.files import write_text
from t2t_torch.train.stopping import StopRequest

if TYPE_CHECKING:
    from t2t_torch.tune.search_record import SearchRecord
    from t2t_torch.tune.search_target import SearchTarget
    from t2t_torch.tune.shared_search import SharedSearch
    from t2t_torch.tune.study import Heartbeat


_PAGE_SECONDS = 30.0
"""Interval at which the page is written during a search."""

_STOPPING = "stopping: trials are being saved; run the same command to continue"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return shared.run_main(_run, FLAGS, __doc__, argv)


def _run() -> int:
    shared.require(
        FLAGS, *(() if flag("output_dir") or flag("trial") else search_flags.NEEDED), "output_dir"
    )
    output_dir = Path(flag("output_dir")).absolute()
    known_steps = search_flags.recall(output_dir)
    for folder in flag("t2t_usr_dir"):
        registry.import_usr_dir(folder)
    if flag("report_only"):
        return _report_only(output_dir)
    request = requested_search(known_steps)
    output_dir.mkdir(parents=True, exist_ok=True)
    search = _opened(output_dir)
    request.subject.check_data()
    search.begin(request.plan, request.space, request.subject.identity())
    from t2t_torch.tune.shared_search import claim_runs
    from t2t_torch.tune.study import Heartbeat
    from t2t_torch.tune.tuner import check_any_value

    if (old := claim_runs(output_dir, search.id)) is not None:
        print(f"runs of another search are now in {old}", file=sys.stderr)
    search_flags.remember(output_dir, request.steps_of)
    with (
        StopRequest(_STOPPING) as stop,
        Heartbeat(output_dir, search.history, beats=bool(flag("storage"))) as heartbeat,
    ):
        result = _tune(output_dir, search, heartbeat, request.subject, request.max_restarts, stop)
    if result.over and not stop:
        check_any_value(result)
    return 128 + stop.signal if stop else 0


def _opened(output_dir: Path) -> SharedSearch:
    """Opens the search of this folder, or creates an empty one.

    Raises:
      DataError: --report_only, and there is no search.
    """
    from t2t_torch.tune.shared_search import NO_SEARCH, SharedSearch
    from t2t_torch.tune.study import JOURNAL, TrialHistory, open_storage

    looks, name = flag("report_only"), search_flags.study_name(output_dir)
    if looks and not flag("storage") and not (output_dir / JOURNAL).exists():
        raise DataError(NO_SEARCH)
    storage = open_storage(output_dir, flag("storage") or "")
    if looks and not TrialHistory.is_in(storage, name):
        raise DataError(NO_SEARCH)
    return SharedSearch(TrialHistory(storage, name))


def _tune(
    output_dir: Path,
    search: SharedSearch,
    heartbeat: Heartbeat,
    subject: SearchTarget,
    max_restarts: int,
    stop: StopRequest,
) -> SearchRecord:
    from t2t_torch.tune.progress import Progress
    from t2t_torch.tune.search_page import search_page
    from t2t_torch.tune.shared_search import publish, record_of
    from t2t_torch.tune.tuner import PAGE, TRAINER, Tuner, TunerConfig

    progress = Progress(sys.stderr)
    command = search_flags.command(output_dir)

    def record() -> SearchRecord:
        return record_of(search, output_dir, command=command, trial=flag("trial") or "")

    trainer = (*TRAINER, "--trust_code") if flag("trust_code") else TRAINER
    config = TunerConfig(output_dir, flag("parallel"), max_restarts, command=trainer)

    written = -_PAGE_SECONDS

    def show(changed: bool) -> None:
        nonlocal written
        progress.show(search.searcher, record, changed)
        if time.monotonic() - written >= _PAGE_SECONDS:
            written = time.monotonic()
            publish(search.history, search.searcher)
            write_text(output_dir / PAGE, search_page(record()))

    tuner = Tuner(
        search, subject, heartbeat, config, stop=stop, print_line=progress.print_line, show=show
    )
    try:
        tuner.run()
    finally:
        search.sync()
        result = record()
        progress.end(search.searcher, result)
        publish(search.history, search.searcher)
        _report(search, result)
    return result


def _report(search: SharedSearch, result: SearchRecord) -> None:
    """Writes and prints the results, and why the search ended early."""
    from t2t_torch.tune.tuner import write_outcome

    for line in write_outcome(result, search.whereabouts):
        print(line)
    if why := search.searcher.why_early:
        print(f"The search is over: {why}.")


def _report_only(output_dir: Path) -> int:
    from t2t_torch.tune.shared_search import record_of

    if not output_dir.is_dir():
        raise UsageError(f"--output_dir={output_dir} is not there: no search to report on.")
    search = _opened(output_dir)
    search.sync()
    command = search_flags.command(output_dir)
    _report(search, record_of(search, output_dir, command=command, trial=flag("trial") or ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())


# tensor2tensor's `t2t-trainer --hparams_range=... --autotune_*`: the search of `t2t-tuner`.


_SAME = (
    *("problem", "model", "hparams_set", "hparams", "data_dir", "output_dir", "eval_metrics"),
    *("train_steps", "eval_steps", "local_eval_frequency", "worker_gpu", "hparams_range"),
)
"""Flags that the tuner has, too."""

_NAMED = {
    "random_seed": "seed",
    "autotune_objective": "metric",
    "autotune_max_trials": "max_trials",
    "autotune_parallel_trials": "parallel",
}
"""Flags that it has by another name."""

_OTHERS = (
    *("autotune_maximize", "t2t_usr_dir", "trust_code", "registry_help", "verbosity", "schedule"),
)


def autotune() -> int:
    """Runs the search set by the flags; returns the exit code of the command.

    Raises:
      UsageError: a flag is given that a search does not use.
    """
    read = {*_SAME, *_NAMED, *_OTHERS}
    strange = [name for name in TRAINER_FLAGS if name not in read and chosen(name)]
    if strange:
        raise UsageError(
            f"--{', --'.join(strange)}: nothing in a search (--hparams_range) reads it. Leave it "
            "out, or run t2t-tuner, which has more flags."
        )
    if given("schedule") and chosen("schedule"):
        raise UsageError(
            f"--schedule={trainer_flag('schedule')}: a search trains and evaluates in turns."
        )
    words = [f"--{name}={_text_of(name)}" for name in _SAME if given(name)]
    words += [f"--{other}={trainer_flag(name)}" for name, other in _NAMED.items() if given(name)]
    if not given("autotune_max_trials"):
        words.append(f"--max_trials={trainer_flag('autotune_max_trials')}")
    words += [f"--t2t_usr_dir={folder}" for folder in trainer_flag("t2t_usr_dir")]
    words += ["--trust_code"] if trainer_flag("trust_code") else []
    if given("autotune_maximize"):
        words.append(f"--metric_minimize={str(not trainer_flag('autotune_maximize')).lower()}")
    return main(words)


def _text_of(name: str) -> str:
    value = trainer_flag(name)
    return ",".join(value) if isinstance(value, list) else str(value)
