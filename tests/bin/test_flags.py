"""What the commands share: flags, help, and how errors are told."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from t2t_torch import registry
from t2t_torch.bin import decoder, trainer
from t2t_torch.bin import flags as shared
from t2t_torch.errors import DataError, UsageError
from t2t_torch.files import report_streams
from t2t_torch.settings import Settings, hp
from t2t_torch.train.stopping import ending_on_signals

DOC = """Bakes bread.

    bake --problem=rye
"""
SHARED = (
    "problem", "model", "hparams_set", "hparams", "data_dir", "tmp_dir", "output_dir",
    "t2t_usr_dir", "random_seed", "registry_help",
)  # fmt: skip


def fail() -> int:
    """Stands in for a command that must not run."""
    raise AssertionError("the command ran")


class BakingOptions(Settings):
    """Flags of `bake`."""

    train_steps: int = hp(250, "Steps in all.", low=1)
    profile: bool = hp(False, "Whether to measure.")
    oven: Literal["wood", "gas"] = hp("wood", "What burns.")
    flour: str = hp("rye", "What is ground.", choices=("rye", "wheat"))
    heat: float | None = hp(None, "Degrees.", low=0.0, high=400.0)
    seeds: tuple[str, ...] = hp((), "What is sprinkled: a,b.")
    recipe: tuple[str, ...] = hp((), "File of a recipe.", path=True, repeated=True)


class Command:
    """A command with the shared flags and two of its own."""

    def __init__(self) -> None:
        self.values = shared.CommandFlags("bake", BakingOptions, common=SHARED)

    def __getitem__(self, name: str) -> object:
        return self.values[name].value

    def run(self, *argv: str, main: Callable[[], int | None] = fail) -> int:
        return shared.run_main(main, self.values, DOC, argv)


@pytest.fixture
def command() -> Command:
    return Command()


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_that_code_swallows_ends_the_command_all_the_same(number, kind):
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


def test_a_phase_without_output_reports_that_it_lasts(capsys, monkeypatch):
    monkeypatch.setattr(shared, "_SILENCE", 0.01)
    with shared.phase("waiting"), contextlib.redirect_stderr(io.StringIO()):
        deadline, seen = time.monotonic() + 20, ""
        while "so far" not in seen and time.monotonic() < deadline:
            seen += capsys.readouterr().err
    assert seen.startswith("waiting: 0 s so far\n")


def test_a_phase_of_a_quiet_call_reports_nothing(capsys, monkeypatch):
    monkeypatch.setattr(shared, "_SILENCE", 0.001)
    with report_streams(silenced=threading.get_ident()), report_streams(), shared.phase("waiting"):
        assert "phase" not in [thread.name for thread in threading.enumerate()]
    assert capsys.readouterr() == ("", "")


def test_a_short_phase_says_nothing(capsys):
    with shared.phase("waiting"):
        pass
    assert capsys.readouterr() == ("", "")


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


def test_flags_are_read_and_the_others_get_their_defaults(command: Command) -> None:
    assert command.run("--problem=rye", "--train_steps", "7", "--profile", main=lambda: None) == 0
    assert (command["problem"], command["train_steps"], command["profile"]) == ("rye", 7, True)
    assert (command["model"], command["hparams"], command["t2t_usr_dir"]) == (None, "", [])
    assert (command["random_seed"], command["registry_help"]) == (None, False)


def test_a_second_run_forgets_the_flags_of_the_first(command: Command) -> None:
    command.run("--problem=rye", "--train_steps=7", main=lambda: None)
    command.run("--noprofile", main=lambda: None)
    assert (command["problem"], command["train_steps"]) == (None, 250)


def test_two_commands_in_one_process_do_not_meddle(command: Command) -> None:
    other = Command()
    command.run("--problem=rye", main=lambda: None)
    other.run("--problem=wheat", main=lambda: None)
    assert (command["problem"], other["problem"]) == ("rye", "wheat")


def test_the_exit_code_is_what_the_command_returns(command: Command) -> None:
    assert command.run(main=lambda: 143) == 143


@pytest.mark.parametrize("flag", ["--help", "-h", "--helpfull"])
def test_help_shows_what_the_command_does_and_every_flag(
    command: Command, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run("--problem=rye", flag) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Bakes bread.\n\n    bake --problem=rye\n")
    assert all(
        f"  --{name}" in printed for name in [*SHARED, "train_steps", "profile", "verbosity"]
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
    command: Command, argument: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(argument) == 2
    assert capsys.readouterr().err.startswith(complaint)


def test_an_error_that_the_user_can_mend_comes_without_a_traceback(
    command: Command, capsys: pytest.CaptureFixture[str]
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
    command: Command, error: OSError, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> int:
        raise error

    assert command.run(main=main) == 2
    assert capsys.readouterr().err == told


def test_any_other_error_keeps_its_traceback(command: Command) -> None:
    with pytest.raises(AssertionError, match="the command ran"):
        command.run()


def test_ctrl_c_ends_a_command_with_exit_code_130(command: Command) -> None:
    def main() -> int:
        raise KeyboardInterrupt

    assert command.run(main=main) == 130


def test_missing_flags_are_told_all_at_once(command: Command) -> None:
    command.run("--model=oven", main=lambda: None)
    shared.require(command.values, "model")
    with pytest.raises(UsageError, match=r"(?s)--problem=\.\.\..*--data_dir=\.\.\.  Directory"):
        shared.require(command.values, "problem", "model", "data_dir")


def test_a_tilde_in_a_path_is_the_home_directory(command: Command) -> None:
    command.run("--data_dir=~/bread", "--output_dir=./out/", main=lambda: None)
    assert command["data_dir"] == str(Path("~/bread").expanduser())
    assert command["output_dir"] == "./out/"


def test_a_flag_that_is_not_shared_cannot_be_defined_as_such() -> None:
    with pytest.raises(ValueError, match="'oven' is not a shared flag"):
        shared.CommandFlags("bake", common=["oven"])


def test_registry_help_lists_the_users_names_too(
    command: Command,
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
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "usr_burnt"
    folder.mkdir()
    (folder / "rye.py").write_text("@register_problem\nclass (:\n")
    assert command.run(f"--t2t_usr_dir={folder}", "--registry_help") == 2
    printed = capsys.readouterr()
    assert "\n    transformer_base " in printed.out
    assert f"{folder / 'rye.py'}:2 is not valid Python" in printed.err


def test_a_reader_that_leaves_early_is_no_error() -> None:
    script = (
        "from t2t_torch.bin import flags as shared; import sys\n"
        "values = shared.CommandFlags('bake')\n"
        "sys.exit(shared.run_main(lambda: print('rye\\n' * 10**6), values, '', []))"
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
        "from t2t_torch.bin import flags as shared\n"
        "def work():\n"
        "    with open('result.txt', 'w') as file:\n"
        "        for stream in (sys.stdout, sys.stderr):\n"
        "            print('rye\\n' * 10**5, file=stream, flush=True)\n"
        "        print('done', file=file)\n"
        "code = shared.run_main(work, shared.CommandFlags('bake'), '', [])\n"
        "open('code.txt', 'w').write(str(code))\n"
    )
    (tmp_path / "bake.py").write_text(script)
    line = f"{sys.executable} bake.py {streams}"
    subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / "result.txt").read_text() == "done\n"
    assert (tmp_path / "code.txt").read_text() == "0"


def test_every_command_starts_with_closed_standard_streams() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    modules = re.findall(r"^t2t-\S+ = \"(\S+):main\"", project, re.M)
    script = "exec 0<&- 1>&- 2>&-; exec {} -c 'import {} as c; raise SystemExit(c.main())' --help"
    running = [
        subprocess.Popen(["bash", "-c", script.format(sys.executable, module)])
        for module in modules
    ]
    assert [one.wait() for one in running] == [0] * len(modules) and len(modules) >= 17


def test_a_silent_call_holds_back_nothing_of_other_threads(command: Command, capsys) -> None:
    lines = [f"line {number}" for number in range(20)]
    silenced = threading.Event()

    def say() -> None:
        silenced.wait(60)
        for line in lines:
            print(line)
            print(line, file=sys.stderr)

    other = threading.Thread(target=say)

    def main() -> None:
        print("of the call")
        silenced.set()
        other.join()
        print("of the call", file=sys.stderr)

    other.start()
    shared.call(command.values, main, {"verbosity": -1})
    said = capsys.readouterr()
    assert said.out.splitlines() == said.err.splitlines() == lines


def test_under_torchrun_the_error_is_what_it_ends_with(tmp_path, monkeypatch):
    file = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
    assert trainer.main(["--data_dir=nowhere", "--train_steps=x"]) == 2
    failure = ProcessFailure(local_rank=0, pid=1, exitcode=2, error_file=str(file))
    text = str(ChildFailedError("trainer", {0: failure}))
    assert "error: --train_steps=x" in text


def test_information_of_other_libraries_is_not_logged(command: Command) -> None:
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
import t2t_torch.bin.flags
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
from t2t_torch.bin import datagen
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
