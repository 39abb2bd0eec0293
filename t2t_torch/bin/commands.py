"""The table of commands: the settings of each, which document it, and its workflow.

Workflows and settings are named "module.name" of this package, so that `--help` imports those of
one command alone.  A new command is a `Command` here, and a line in pyproject.toml; it is also
run by  python -m t2t_torch.bin NAME.
"""

from __future__ import annotations

import contextlib
import functools
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch import registry
from t2t_torch.bin.command import Command
from t2t_torch.errors import UsageError
from t2t_torch.reporter import message, output, phase
from t2t_torch.signals import EarlyExit, SignalStop, ending_on_signals

if TYPE_CHECKING:
    from t2t_torch.export.settings import ExportSettings
    from t2t_torch.interop.settings import ImportSettings
    from t2t_torch.workflows.decode import DecodeSettings
    from t2t_torch.workflows.generate import DatagenSettings
    from t2t_torch.workflows.quick import QuickSettings
    from t2t_torch.workflows.train_settings import TrainSettings


def _datagen(settings: DatagenSettings) -> None:
    """Generates data and prints the next command, or drafts a declaration."""
    from t2t_torch.workflows.generate import declare, generate

    if settings.declare:
        if settings.merge_labels:
            raise UsageError("--merge_labels is given with --problem, once the data is declared.")
        with phase("reading the data to declare"):
            target = settings.declare_to
            choice = settings.declare_choice or 1
            declare(Path(settings.declare), Path(target) if target else None, choice)
        return
    if settings.declare_to:
        raise UsageError(
            "--declare_to needs the data:  t2t-datagen --declare=FILE --declare_to=NEW"
        )
    with ending_on_signals():
        made = generate(settings)
    for name in made:
        is_mixture = registry.problem(name).mixing_schedule is not None
        together = ", all of them together" if is_mixture else ""
        output(f"\nNext{together}:\n{_next(name, settings)}")


def _next(name: str, settings: DatagenSettings) -> str:
    """Returns the recommended command of t2t-trainer, that of the `--config` file, or that of the
    imported run whose declaration was read.
    """
    data_dir = Path(str(settings.data_dir))
    if settings.config:
        command = ["t2t-trainer", f"--config={settings.config}", f"--data_dir={data_dir}"]
        return f"  {shlex.join([*command, '--output_dir=run'])}"
    from t2t_torch.files import read_json

    for run in (Path(folder).parent for folder in settings.t2t_usr_dir):
        if (run / "task.json").exists() and read_json(run / "task.json")["problem"] == name:
            command = ["t2t-trainer", f"--output_dir={run}", f"--data_dir={data_dir}"]
            return (
                f"  {shlex.join(command)} --train_steps=STEPS\n"
                "(trains the imported model further; STEPS count those that it has)"
            )
    from t2t_torch.train.recommendation import recommend, recommend_several

    lines = recommend(name, data_dir).command(name, data_dir, settings.t2t_usr_dir)
    candidates = recommend_several(name, data_dir)
    if not candidates[1:]:
        return lines
    words = ["t2t-trainer", f"--problem={name}", "--model=auto", "--hparams_set=auto"]
    words += ["--train_seconds=600", f"--data_dir={data_dir}", "--output_dir=run"]
    words += [f"--t2t_usr_dir={directory}" for directory in settings.t2t_usr_dir]
    models = ", ".join(dict.fromkeys(one.model for one in candidates))
    several = f"{len(candidates)} trainings ({models})"
    return f"{lines}\nor the best of {several}, in ten minutes:\n  {shlex.join(words)}"


datagen = Command("t2t-datagen", "workflows.generate.DatagenSettings", _datagen)


_HP = re.compile(r"--?hp_(\w+)(?:=(.*))?", re.DOTALL)


def _train(settings: TrainSettings) -> int:
    """Trains, or searches if there is a search space; returns the exit code."""
    if settings.hparams_range:
        from t2t_torch.workflows.search_settings import search_settings_of

        return tuner.run(search_settings_of(settings))
    from t2t_torch.workflows.train import train

    with contextlib.ExitStack() as stack:
        early = None
        if not (settings.help_hparams or settings.dry_run):
            early = stack.enter_context(EarlyExit(settings.signal_exit_code))
        number = train(settings, stop=SignalStop(early=early))
    return (settings.signal_exit_code or 128 + number) if number else 0


def _expand_hparams(arguments: Sequence[str]) -> list[str]:
    """Returns arguments with `--hp_name=value` and `--hp_name value` as `--hp=name=value`.

    Raises:
      UsageError: one has no value.
    """
    words, pending = [], iter(arguments)
    for word in pending:
        match = _HP.fullmatch(word)
        if match is None:
            words.append(word)
            continue
        value = match[2] if match[2] is not None else next(pending, None)
        if value is None:
            raise UsageError(f"{word} needs a value: {word}=...")
        words.append(f"--hp={match[1]}={value}")
    return words


trainer = Command(
    "t2t-trainer", "workflows.train_settings.TrainSettings", _train, prepare=_expand_hparams
)


def _decode(settings: DecodeSettings) -> None:
    from t2t_torch.workflows.decode import decode

    # The tasks of a runner are cancelled; otherwise the journal needs no care.
    with ending_on_signals() if settings.runner else contextlib.nullcontext():
        decode(settings)


decoder = Command("t2t-decoder", "workflows.decode.DecodeSettings", _decode)


predict = Command(
    "t2t-predict",
    "workflows.predict.PredictSettings",
    "workflows.run.predict_file",
    positional="paths",
)


evaluation = Command("t2t-eval", "workflows.evaluate.EvaluateSettings", "evaluate", stop=SignalStop)


def _export(settings: ExportSettings) -> None:
    from t2t_torch.workflows.run import export

    with ending_on_signals():
        export(settings)


exporter = Command("t2t-exporter", "export.settings.ExportSettings", _export)


server = Command("t2t-server", "workflows.serve.ServeSettings", "serve")


_STOPPING = "stopping: trials are being saved; run the same command to continue"

tuner = Command(
    "t2t-tuner",
    "workflows.search_settings.SearchSettings",
    "workflows.search.search",
    stop=functools.partial(SignalStop, _STOPPING),
)


def _quick(settings: QuickSettings) -> int:
    """Runs all steps; returns the exit code."""
    from t2t_torch.workflows.quick import quick as workflow

    with ending_on_signals():
        ask = _ask if sys.stdin.isatty() else None
        number = workflow(settings, stop=SignalStop(), ask=ask)
    return 128 + number if number else 0


def _ask(choices: Sequence[str]) -> int:
    """Reads the number of one of several declarations from the terminal.

    Raises:
      KeyboardInterrupt: the input has ended, as by Ctrl-D.
    """
    listed = "\n".join(f"  {number}. {one}" for number, one in enumerate(choices, 1))
    message(f"Several problems are as likely:\n{listed}")
    answer, numbers = "", list(map(str, range(1, 1 + len(choices))))
    while answer not in numbers:
        try:
            answer = input(f"Which one (1 to {len(choices)})? ").strip()
        except EOFError:
            raise KeyboardInterrupt from None
    return int(answer)


quick = Command(
    "t2t-quick", "workflows.quick.QuickSettings", _quick, positional="file", lists_names=False
)


def _import_run(settings: ImportSettings) -> None:
    """Imports; prints the report and the next commands."""
    from t2t_torch.interop.importer import import_run as workflow

    report = workflow(settings)
    lines = [str(report), "", "Next:"]
    files = sorted(report.path.glob("run*.json"))
    for number, file in enumerate(files, 1):
        if number == 1:
            lines.append(f"  t2t-datagen --config={file} --data_dir=data")
        folder = "run" if len(files) == 1 else f"run{number}"
        lines.append(f"  t2t-trainer --config={file} --data_dir=data --output_dir={folder}")
    if not files:
        lines.append(f"  t2t-decoder --output_dir={report.path} --decode_interactive")
    output("\n".join(lines))


import_run = Command("t2t-import", "interop.settings.ImportSettings", _import_run)


data = Command("t2t-data", "workflows.inspect_data.DataSettings", "inspect_data")


replay = Command("t2t-replay", "workflows.replay.ReplaySettings", "replay")


compare = Command(
    "t2t-compare",
    "workflows.compare.CompareSettings",
    "compare",
    positional="runs",
    lists_names=False,
)


avg_all = Command("t2t-avg-all", "workflows.every_checkpoint.AveragingSettings", "average_all")


translate_all = Command(
    "t2t-translate-all", "workflows.every_checkpoint.TranslationSettings", "translate_all"
)


bleu = Command("t2t-bleu", "workflows.every_checkpoint.BleuSettings", "compute_bleu")


latency = Command("t2t-latency", "workflows.latency.LatencySettings", "measure_latency")


query_server = Command(
    "t2t-query-server", "workflows.serve.QuerySettings", "query", lists_names=False
)


build_vocab = Command("t2t-build-vocab", "workflows.generate.VocabSettings", "build_vocab")

COMMANDS = {one.name: one for one in list(globals().values()) if isinstance(one, Command)}
"""All commands by name."""
