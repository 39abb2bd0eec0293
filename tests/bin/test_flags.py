"""What the commands share: flags, help, and how errors are told."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from t2t_torch import registry
from t2t_torch.bin.command import Command
from t2t_torch.bin.commands import COMMANDS, decoder, trainer
from t2t_torch.errors import DataError, UsageError
from t2t_torch.settings import hp, require
from t2t_torch.signals import ending_on_signals
from t2t_torch.trust import UsrDirSettings
from t2t_torch.workflows.context import DATA_DIR, HPARAMS, HPARAMS_SET, MODEL, PROBLEM, TMP_DIR


def fail() -> int:
    """Stands in for a command that must not run."""
    raise AssertionError("the command ran")


class BakingSettings(UsrDirSettings):
    """Bakes bread.

        bake --problem=rye

    It takes an hour.
    """

    problem: str | None = PROBLEM
    model: str | None = MODEL
    hparams_set: str | None = HPARAMS_SET
    hparams: str = HPARAMS
    data_dir: str | None = DATA_DIR
    tmp_dir: str | None = TMP_DIR
    output_dir: str | None = hp(None, "Folder of the bread.", path=True)
    random_seed: int | None = hp(None, "Seed.")
    train_steps: int = hp(250, "Steps in all.", low=1)
    profile: bool = hp(False, "Whether to measure.")
    oven: Literal["wood", "gas"] = hp("wood", "What burns.")
    heat: float | None = hp(None, "Degrees.", low=0.0, high=400.0)
    seeds: tuple[str, ...] = hp((), "What is sprinkled: a,b.")


class Bakery:
    """The command `bake`, with the settings of its last run."""

    def __init__(self) -> None:
        self.settings = BakingSettings()

    def run(self, *argv: str, main: Callable[[], int | None] = fail) -> int:
        def work(settings: BakingSettings) -> int | None:
            self.settings = settings
            return main()

        return Command("bake", BakingSettings, work).main(argv)


@pytest.fixture
def command() -> Bakery:
    return Bakery()


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_that_code_swallows_ends_the_command_all_the_same(number, kind, monkeypatch):
    wait = signal.setitimer
    monkeypatch.setattr(signal, "setitimer", lambda timer, seconds: wait(timer, seconds / 20))
    outside = signal.signal(number, signal.default_int_handler)  # ignored in a shell's background
    before, started = signal.getsignal(number), time.process_time()
    with pytest.raises(kind), ending_on_signals():
        with contextlib.suppress(BaseException):
            os.kill(os.getpid(), number)
        while time.process_time() < started + 30:  # the computation that would have gone on
            pass
    assert time.process_time() < started + 20
    assert signal.signal(number, outside) is before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_cleaning_up_after_a_signal_is_not_interrupted_for_the_time():
    cleaned = []
    with pytest.raises(SystemExit), ending_on_signals():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGVTALRM)  # as of the timer
            try:
                raise FileNotFoundError
            except OSError:
                os.kill(os.getpid(), signal.SIGVTALRM)
            cleaned.append(True)
    assert cleaned


def test_an_error_of_code_that_a_signal_has_interrupted_is_the_signal():
    with pytest.raises(SystemExit) as caught, ending_on_signals():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except BaseException as error:
            raise RecursionError from error
    assert caught.value.code == 128 + signal.SIGTERM


def test_flags_are_read_and_the_others_get_their_defaults(command: Bakery) -> None:
    flags = ["--problem=rye", "--train_steps", "7", "--profile", "--heat=8", "--seeds=a,b"]
    assert command.run(*flags, main=lambda: None) == 0
    given = {"problem": "rye", "train_steps": 7, "profile": True, "heat": 8.0, "seeds": ("a", "b")}
    assert command.settings == BakingSettings(**given)
    assert command.settings.given == given.keys()
    assert (command.settings.model, command.settings.t2t_usr_dir) == (None, ())


def test_a_second_run_forgets_the_flags_of_the_first(command: Bakery) -> None:
    command.run("--problem=rye", "--train_steps=7", main=lambda: None)
    command.run("--noprofile", main=lambda: None)
    assert (command.settings.problem, command.settings.train_steps) == (None, 250)


def test_the_exit_code_is_what_the_command_returns(command: Bakery) -> None:
    assert command.run(main=lambda: 143) == 143


@pytest.mark.parametrize("flag", ["--help", "-h", "--helpfull"])
def test_help_shows_what_the_command_does_and_every_flag(
    command: Bakery, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run("--problem=rye", flag) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Bakes bread.\n\n    bake --problem=rye\n")
    assert all(
        f"  --{name}" in printed
        for name in [*BakingSettings.declared(), "verbosity", "registry_help"]
    )
    assert "Steps in all. (default: 250)" in printed
    assert "models and sets; may be given repeatedly.\n" in printed


@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        ("--problm=rye", "error: unknown flag --problm. Did you mean --problem?"),
        ("--qqq", "error: unknown flag --qqq. All flags: --help"),
        ("--use_tpu", "error: unknown flag --use_tpu. It is a flag of tensor2tensor; here TPUs"),
        (
            "--num_shards=8",
            "error: unknown flag --num_shards. It is a flag of tensor2tensor; here use",
        ),
        (
            "--worker_gpu=2",
            "error: unknown flag --worker_gpu. It is a flag of tensor2tensor; here st",
        ),
        (
            "--batch_size=32",
            "error: unknown flag --batch_size. 'batch_size' is a hyperparameter: "
            "--hparams=batch_size=32 All flags",
        ),
        (
            "--lr=0.1",
            "error: unknown flag --lr. Did you mean 'learning_rate_constant'? It is a "
            "hyperparameter: --hparams=learning_rate_constant=0.1 All flags",
        ),
        ("--train_steps=many", "error: --train_steps=many: expected a positive integer. "),
        ("--problem", "error: Missing value for flag --problem"),
        ("--noprofile=1", "error: --noprofile=1 does not take an argument"),
        ("rye", "error: unexpected argument 'rye'; flags are written --name=value."),
        ("--t2t_usr_dir=/no/such", "error: there is no directory /no/such"),
    ],
)
def test_a_wrong_argument_is_told_with_exit_code_2(
    command: Bakery, argument: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(argument) == 2
    assert capsys.readouterr().err.startswith(complaint)


def test_an_error_that_the_user_can_mend_comes_without_a_traceback(
    command: Bakery, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> int:
        raise DataError("no data of 'rye'.")

    assert command.run(main=main) == 2
    assert capsys.readouterr().err == "error: no data of 'rye'.\n"


FULL = ". Free disk space, or raise the limit of file sizes (ulimit -f)."


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PermissionError(13, "Permission denied", "/bread"), "error: /bread: Permission denied\n"),
        (OSError(28, "No space left on device"), f"error: No space left on device{FULL}\n"),
        (OSError(27, "File too large"), f"error: File too large{FULL}\n"),
    ],
)
def test_what_the_system_says_of_a_file_comes_without_a_traceback(
    command: Bakery, error: OSError, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> int:
        raise error

    assert command.run(main=main) == 2
    assert capsys.readouterr().err == told


def test_any_other_error_keeps_its_traceback(command: Bakery) -> None:
    with pytest.raises(AssertionError, match="the command ran"):
        command.run()


def test_ctrl_c_ends_a_command_with_exit_code_130(command: Bakery) -> None:
    def main() -> int:
        raise KeyboardInterrupt

    assert command.run(main=main) == 130


def test_missing_flags_are_told_all_at_once() -> None:
    settings = BakingSettings(model="oven")
    require(settings, "model")
    with pytest.raises(UsageError, match=r"(?s)--problem=\.\.\..*--data_dir=\.\.\.  Directory"):
        require(settings, "problem", "model", "data_dir")


def test_a_tilde_in_a_path_is_the_home_directory(command: Bakery) -> None:
    command.run("--data_dir=~/bread", "--output_dir=./out/", main=lambda: None)
    assert command.settings.data_dir == str(Path("~/bread").expanduser())
    assert command.settings.output_dir == "./out/"


def test_registry_help_lists_the_users_names_too(
    command: Bakery,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(registry, "_STATE", registry._State())
    monkeypatch.setattr(sys, "path", sys.path[:])
    folder = tmp_path / "usr_bakery"
    folder.mkdir()
    (folder / "rye.py").write_text("@register_problem\nclass RyeBread: pass\n")
    assert command.run(f"--t2t_usr_dir={folder}", "--registry_help") == 0
    printed = capsys.readouterr().out
    assert "\n    rye_bread" in printed
    assert "\n    transformer_base " in printed


def test_registry_help_lists_the_other_names_when_a_users_file_is_not_python(
    command: Bakery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "usr_burnt"
    folder.mkdir()
    (folder / "rye.py").write_text("@register_problem\nclass (:\n")
    assert command.run(f"--t2t_usr_dir={folder}", "--registry_help") == 2
    printed = capsys.readouterr()
    assert "\n    transformer_base " in printed.out
    assert f"{folder / 'rye.py'}:2 is not valid Python" in printed.err


BAKE = """
from t2t_torch.bin.command import Command
from t2t_torch.settings import Settings
class Baking(Settings):
    pass
"""


def test_a_reader_that_leaves_early_is_no_error() -> None:
    script = (
        "import sys\n"
        f"{BAKE}"
        "sys.exit(Command('bake', Baking, lambda _: print('rye\\n' * 10**6)).main([]))"
    )
    left = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert left.stdout and left.stderr
    left.stdout.readline()
    left.stdout.close()
    text = left.stderr.read()
    left.stderr.close()
    assert (left.wait(), text) == (0, b"")


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-", "| true", "2>&1 | true"])
def test_a_command_without_a_reader_of_its_reports_finishes(tmp_path: Path, streams: str) -> None:
    script = (
        "import sys, time\n"
        f"{BAKE}"
        "def work(_):\n"
        "    with open('result.txt', 'w') as file:\n"
        "        for stream in (sys.stdout, sys.stderr):\n"
        "            print('rye\\n' * 10**5, file=stream, flush=True)\n"
        "        print('done', file=file)\n"
        "code = Command('bake', Baking, work).main([])\n"
        "open('code.txt', 'w').write(str(code))\n"
    )
    (tmp_path / "bake.py").write_text(script)
    line = f"{sys.executable} bake.py {streams}"
    subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / "result.txt").read_text() == "done\n"
    assert (tmp_path / "code.txt").read_text() == "0"


def test_every_command_starts_with_closed_standard_streams(tmp_path: Path) -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    scripts = dict(re.findall(r"^(t2t-\S+) = \"t2t_torch.bin.commands:(\S+)\"", project, re.M))
    assert scripts.keys() == COMMANDS.keys() and len(scripts) >= 17
    (tmp_path / "help.py").write_text(
        "import json\n"
        "from t2t_torch.bin import commands\n"
        f"codes = [getattr(commands, name)() for name in {[*scripts.values()]}]\n"
        "open('codes.json', 'w').write(json.dumps(codes))\n"
    )
    line = f"exec 0<&- 1>&- 2>&-; exec {sys.executable} help.py --help"
    subprocess.run(["bash", "-c", line], cwd=tmp_path, check=True)
    assert json.loads((tmp_path / "codes.json").read_text()) == [0] * len(scripts)


def test_under_torchrun_the_error_is_what_it_ends_with(tmp_path, monkeypatch):
    file = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
    assert trainer.main(["--data_dir=nowhere", "--train_steps=x"]) == 2
    failure = ProcessFailure(local_rank=0, pid=1, exitcode=2, error_file=str(file))
    text = str(ChildFailedError("trainer", {0: failure}))
    assert "error: --train_steps=x" in text


def test_information_of_other_libraries_is_not_logged(command: Bakery) -> None:
    names = ("matplotlib.font_manager", "onnxscript.version_converter", "t2t_torch.data")
    shown: list[bool] = []

    def run() -> int:
        shown.extend(logging.getLogger(name).isEnabledFor(logging.INFO) for name in names)
        return 0

    assert command.run(main=run) == 0
    assert shown == [False, False, True]


def test_objects_are_frozen_before_the_interpreter_collects_them_a_last_time() -> None:
    code = """
import atexit, gc
atexit.register(lambda: print(gc.get_freeze_count() > 1000))  # runs after those of the package
import t2t_torch.bin.command
"""
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "True\n"


def test_a_setting_of_a_set_and_of_decoding_is_no_flag(capsys) -> None:
    flagged = ["--hparams_set=transformer_tiny", "--num_heads=8", "--problem=x", "--output_dir=y"]
    assert trainer.main(flagged) == 2
    printed = capsys.readouterr().err
    assert "'num_heads' is a hyperparameter: --hparams=num_heads=8 All flags" in printed
    assert decoder.main(["--num_beams=4", "--output_dir=y"]) == 2
    printed = capsys.readouterr().err
    assert (
        "Did you mean 'beam_size'? It is a setting of decoding: --decode_hparams=beam_size=4"
        in printed
    )


PASSIVE = """
import os
from t2t_torch.bin.commands import datagen
datagen.main(["--help"])
print(os.environ.get("OMP_WAIT_POLICY"))
"""


@pytest.mark.parametrize(
    ("given", "found"),
    [({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active"), ({"GOMP_SPINCOUNT": "9"}, "None")],
)
def test_threads_wait_passively_unless_the_user_has_set_how(given, found):
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    command = [sys.executable, "-c", PASSIVE]
    done = subprocess.run(command, env={**environment, **given}, capture_output=True, check=True)
    assert done.stdout.decode().splitlines()[-1] == found
