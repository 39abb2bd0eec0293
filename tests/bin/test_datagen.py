"""The command as users run it, and what a killed one leaves."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import forked
import pytest

from t2t_torch.bin.commands import datagen
from t2t_torch.data.shards import Shards
from t2t_torch.errors import DataError
from t2t_torch.mode import Split

# A user's problem that kills its process, or notes that it runs, as the environment says.
PROBLEM = '''
import os
import signal

from t2t_torch.features import Features, Text
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.registry import register_problem
from t2t_torch.text.encoder import ByteEncoder


@register_problem
class Fragile(Problem):
    """Counts."""

    shards = {Split.TRAIN: 2, Split.EVAL: 1}

    def stored_features(self, directory):
        return Features({"inputs": Text(ByteEncoder())}, {"targets": Text(ByteEncoder())})

    def generate_samples(self, tmp_dir, split):
        with (tmp_dir / "runs").open("a") as file:
            file.write(split.value + " ")
        for number in range(20_000 if split is Split.TRAIN else 10):
            if number == int(os.environ.get("SIGNAL_AT", "-1")):
                os.kill(os.getpid(), getattr(signal, os.environ["SIGNAL"]))
            yield {"inputs": str(number), "targets": str(number)[::-1]}
'''

# Runs the command, but the process is killed when it is about to make something last for the n-th
# time: at each fsync and each renaming.
KILLED_AT = """
import os, pathlib, signal, sys

count = 0

def deadly(function):
    def call(*arguments, **options):
        global count
        count += 1
        if count == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call

os.fsync = deadly(os.fsync)
pathlib.Path.rename = deadly(pathlib.Path.rename)
pathlib.Path.replace = deadly(pathlib.Path.replace)
from t2t_torch.bin.commands import datagen

if __name__ == "__main__":
    sys.exit(datagen.main(sys.argv[2:]))
"""


@pytest.fixture
def usr_dir(tmp_path):
    folder = tmp_path / "my_problems"
    folder.mkdir()
    (folder / "fragile.py").write_text(PROBLEM)
    return folder


def start(*command, **environment):
    return subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        # A shell's background jobs ignore Ctrl-C, and would hand that down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def finish(process):
    """Waits until the process, and all that it started, is gone: they share its pipes."""
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def run_killed_at(tmp_path, step, arguments):
    """Runs the command as `KILLED_AT` says; returns its exit code and what it has told."""
    program, text = tmp_path / "killed_at.py", tmp_path / f"told-{step}"
    program.write_text(KILLED_AT)
    process = forked.start_program([program, str(step), *arguments], text)
    process.join(600)
    return process.exitcode, text.read_text()


def arguments(tmp_path, usr_dir, name="data"):
    return [
        "--problem=fragile",
        f"--t2t_usr_dir={usr_dir}",
        f"--data_dir={tmp_path / name}",
        f"--tmp_dir={tmp_path / 'raw'}",
    ]


def files(folder):
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")
    }


pytestmark = pytest.mark.usefixtures("own_registry")

MODULE = ("-m", "t2t_torch.bin", "datagen")


@pytest.fixture
def clean(tmp_path, usr_dir):
    """What an undisturbed run makes."""
    assert datagen.main([*arguments(tmp_path, usr_dir, "clean"), "--verbosity=-1"]) == 0
    return files(tmp_path / "clean")


@pytest.mark.sample(1)
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_run_killed_while_generating_and_run_again_makes_the_same_bytes(
    tmp_path, usr_dir, clean, processes
):
    command = [*MODULE, *arguments(tmp_path, usr_dir), f"--num_concurrent_processes={processes}"]
    code, _, _ = finish(start(*command, SIGNAL="SIGKILL", SIGNAL_AT="17000"))
    assert code == -signal.SIGKILL
    assert files(tmp_path / "data") == {}
    code, _, err = finish(start(*command))
    assert code == 0, err
    assert files(tmp_path / "data") == clean
    assert not (tmp_path / "data" / ".fragile.incomplete").exists()


@pytest.mark.slow
@pytest.mark.parametrize("together", [1, 2])
def test_runs_of_several_workers_killed_at_random_instants_make_the_same_bytes(
    tmp_path, usr_dir, clean, together
):
    command = [*MODULE, *arguments(tmp_path, usr_dir), "--num_concurrent_processes=3"]
    draw, killed = random.Random(together), 0
    started = time.monotonic()
    assert finish(start(*command, "--max_cases=9"))[0] == 0
    usual = time.monotonic() - started
    for _ in range(6):
        shutil.rmtree(tmp_path / "data")
        running = [start(*command) for _ in range(together)]
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0.3, 1.2) * usual / together)
            process.kill()
        killed += sum(finish(process)[0] == -signal.SIGKILL for process in running)
        again = [start(*command) for _ in range(together)]
        assert [finish(process)[0] for process in again] == [0] * together
        assert files(tmp_path / "data") == clean
    assert killed


def test_a_renaming_that_fails_is_told_and_leaves_nothing_that_looks_finished(
    tmp_path, usr_dir, monkeypatch, capsys
):
    def command(name):
        return [*arguments(tmp_path, usr_dir, name), "--max_cases=100", "--verbosity=-1"]

    assert datagen.main(command("clean")) == 0
    clean, failed = files(tmp_path / "clean"), []
    for step in range(1, 7):
        count = itertools.count(1)

        def renamed(name, step=step, count=count):
            done = getattr(pathlib.Path, name)

            def call(path, target):
                if next(count) == step:
                    raise OSError(errno.EIO, "Input/output error", str(path))
                return done(path, target)

            return call

        with monkeypatch.context() as patch:
            for name in ("rename", "replace"):
                patch.setattr(pathlib.Path, name, renamed(name))
            code = datagen.main(command(f"data{step}"))
        error = capsys.readouterr().err
        if code == 0:
            assert files(tmp_path / f"data{step}") == clean
            continue
        failed.append(step)
        assert code == 2
        assert re.search(r"error: \S+: Input/output error", error)
        assert not (tmp_path / f"data{step}" / "fragile.json").exists()
        assert datagen.main(command(f"data{step}")) == 0
        assert files(tmp_path / f"data{step}") == clean
    assert failed == [1, 2, 3, 5]  # Three shards and the manifest; 4 is only what is verified.


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to every folder")
def test_a_folder_that_is_read_only_is_named(tmp_path, usr_dir, capsys):
    (tmp_path / "data").mkdir(mode=0o555)
    assert datagen.main(arguments(tmp_path, usr_dir)) == 2
    assert re.search(r"error: \S*data\S*: Permission denied", capsys.readouterr().err)


def test_a_full_disk_is_told_with_the_file(tmp_path, usr_dir):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))"
    program = (
        f"{limit}; from t2t_torch.bin.commands import datagen; raise SystemExit(datagen.main())"
    )
    code, _, err = finish(
        start("-c", program, *arguments(tmp_path, usr_dir), "--num_concurrent_processes=1")
    )
    assert code == 2, err
    assert re.search(r"error: \S+fragile\S*: File too large", err)
    assert "Traceback" not in err
    assert files(tmp_path / "data") == {}


@pytest.mark.slow
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_killed_at_any_step_of_writing_leaves_nothing_that_looks_finished(
    tmp_path, usr_dir, stride
):
    (tmp_path / "raw").mkdir()
    for step in itertools.count(1, stride):
        command = [*arguments(tmp_path, usr_dir, f"data{step}"), "--max_cases=5"]
        folder = tmp_path / f"data{step}"
        code, err = run_killed_at(tmp_path, step, command)
        if code == 0:  # there are fewer steps
            break
        assert code == -signal.SIGKILL, err
        if (folder / "fragile.json").exists():
            assert Shards.open(folder, "fragile", Split.TRAIN).num_rows == 5
        else:
            with pytest.raises(DataError, match="No data of 'fragile'"):
                Shards.open(folder, "fragile", Split.TRAIN)
        assert datagen.main([*command, "--verbosity=-1"]) == 0
    # 3 shards synced, staging synced, 3 renamed, folder synced; then of the notes on what is
    # verified, and of the manifest: synced, renamed, folder synced.
    assert step - stride >= 3 + 1 + 3 + 1 + 3 + 3
    for killed_at in range(1, step, stride):
        assert files(tmp_path / f"data{killed_at}") == files(folder)


@pytest.mark.slow
def test_a_terminated_run_tidies_up_and_exits_with_143(tmp_path, usr_dir):
    command = [*MODULE, *arguments(tmp_path, usr_dir), "--num_concurrent_processes=2"]
    code, out, _ = finish(start(*command, SIGNAL="SIGTERM", SIGNAL_AT="17000"))
    assert (code, out) == (143, "")
    assert [path.name for path in (tmp_path / "data").iterdir()] == [".fragile.lock"]


def test_an_interrupted_run_tidies_up_and_exits_with_130(tmp_path, usr_dir):
    command = [*MODULE, *arguments(tmp_path, usr_dir)]
    code, _, err = finish(start(*command, SIGNAL="SIGINT", SIGNAL_AT="17000"))
    assert code == 130
    assert "Traceback" not in err
    assert [path.name for path in (tmp_path / "data").iterdir()] == [".fragile.lock"]


def test_of_two_runs_at_once_one_waits_for_the_other(tmp_path, usr_dir, clean):
    (tmp_path / "raw" / "runs").unlink()
    command = [*MODULE, *arguments(tmp_path, usr_dir)]
    both = [start(*command), start(*command)]
    for code, out, err in map(finish, both):
        assert code == 0, err
        assert "fragile in" in out
    assert files(tmp_path / "data") == clean
    assert (tmp_path / "raw" / "runs").read_text() == "train dev ", "it was generated once"


@pytest.mark.quick
def test_the_summary_tells_rows_tokens_lengths_and_the_next_command(tmp_path, capsys):
    code = datagen.main(
        [
            "--problem=algorithmic_reverse_binary40_test_rev",
            f"--data_dir={tmp_path / 'my data'}",
            f"--tmp_dir={tmp_path}",
            "--max_cases=100",
        ]
    )
    out = capsys.readouterr().out
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    head = ["split", "shards", "rows", "feature", "tokens", "mean", "max", "vocabulary"]
    assert head in lines
    (train,) = (line for line in lines if line[:1] == ["train"])
    assert (train[1:4], train[7]) == (["1", "100", "inputs"], "4")
    assert (
        "t2t-trainer --problem=algorithmic_reverse_binary40_test_rev --model=transformer "
        "--hparams_set=transformer_low_resource --train_steps=2000 --local_eval_frequency=67 "
        "--eval_patience=3 --eval_early_stopping_metric_delta=0.0 "
        f"'--data_dir={tmp_path / 'my data'}' --output_dir=run"
    ) in out


def test_several_problems_are_chosen_by_commas_patterns_and_exclusion(capsys):
    options = ["--only_list", "--exclude_problems=*sort*,*_test,algorithmic_shift_decimal40"]
    code = datagen.main(["--problem=tiny_algo_rev,algorithmic_*_binary40,tiny*", *options])
    assert code == 0
    assert capsys.readouterr().out.split() == [
        "tiny_algo_rev",
        "algorithmic_addition_binary40",
        "algorithmic_identity_binary40",
        "algorithmic_multiplication_binary40",
        "algorithmic_reverse_binary40",
    ]


def test_without_a_problem_all_are_listed(capsys):
    assert datagen.main([]) == 2
    out, err = capsys.readouterr()
    assert "* translate_multi30k_ende\n" in out
    assert "missing flags:\n  --problem=..." in err


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--problem=tiny_alg", "--data_dir=x"], "'tiny_algo'"),
        (["--problem=none*"], "no problem matches 'none*'"),
        (["--problem=tiny_algo"], "--data_dir"),
        (["--problem=tiny_algo", "--data_dir=x", "--max_cases=-1"], "max_cases"),
        (["--problem=tiny_algo", "--num_concurrent_processes=0"], "num_concurrent_processes"),
        (["--problems=tiny_algo"], "--problem"),
        (["--problem=,", "--data_dir=x"], "--problem=, names no problem"),
        (["--problem=tiny_algo", "--data_dir=x", "--exclude_problems=tiny*"], "leaves none of"),
        (["--problem=*", "--data_dir=x", "--exclude_problems=tiny_alg"], "'tiny_algo'"),
        (["--problem=tiny_algo,dates_to_is", "--data_dir=x"], "'dates_to_iso'"),
        (["--problem=tiny_algo", "--data_dir=/proc/foo"], "--data_dir), /proc/foo, cannot be made"),
    ],
)
def test_wrong_flags_are_told_with_exit_code_2(options, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert datagen.main(options) == 2
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


@pytest.mark.parametrize("flag", ["data_dir", "tmp_dir"])
def test_a_file_where_a_directory_should_be_is_told(tmp_path, capsys, flag):
    file = tmp_path / "file"
    file.touch()
    command = ["--problem=tiny_algo", f"--data_dir={tmp_path / 'data'}", f"--{flag}={file}"]
    assert datagen.main(command) == 2
    assert f"(--{flag}), {file}, cannot be made" in capsys.readouterr().err


def test_an_empty_file_of_the_user_is_named(tmp_path, capsys):
    for name in ("inputs.train", "targets.train", "inputs.eval", "targets.eval"):
        (tmp_path / f"{name}.txt").write_text("" if name.endswith("eval") else "x\n")
    code = datagen.main(
        ["--problem=text2text_tmpdir", f"--data_dir={tmp_path}", f"--tmp_dir={tmp_path}"]
    )
    assert code == 2
    assert f"{tmp_path / 'inputs.eval.txt'} and" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("targets", "told"),
    [(b"a\nb\nc\n", r"3"), (b"a\n", r"1"), (b"a\nb\xff\n", r"targets.train.txt")],
)
def test_raw_files_that_do_not_fit_are_told_and_leave_nothing(tmp_path, capsys, targets, told):
    raw, data = tmp_path / "raw", tmp_path / "data"
    raw.mkdir()
    for name in ("inputs.train", "inputs.eval", "targets.eval"):
        (raw / f"{name}.txt").write_bytes(b"x\ny\n")
    (raw / "targets.train.txt").write_bytes(targets)
    code = datagen.main(["--problem=text2text_tmpdir", f"--data_dir={data}", f"--tmp_dir={raw}"])
    assert code == 2
    err = capsys.readouterr().err
    assert "error: " in err and told in err
    assert files(data) == {}


def test_own_texts_become_data_without_code(tmp_path, capsys):
    raw = tmp_path / "raw"
    raw.mkdir()
    lines = datagen.help().split()
    for part in ("train", "eval"):
        (raw / f"inputs.{part}.txt").write_text("".join(f"{word}\n" for word in lines))
        (raw / f"targets.{part}.txt").write_text("".join(f"{word[::-1]}\n" for word in lines))
    command = ["--problem=text2text_tmpdir", f"--tmp_dir={raw}"]
    assert datagen.main([*command, f"--data_dir={tmp_path / 'a'}"]) == 0
    more = [f"--data_dir={tmp_path / 'b'}", "--num_concurrent_processes=2"]
    assert datagen.main([*command, *more]) == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert Shards.open(tmp_path / "a", "text2text_tmpdir", Split.TRAIN).num_rows == len(lines)
    assert "vocabulary" in capsys.readouterr().out


def test_generating_imports_no_torch(tmp_path):
    code = (
        "import sys; from t2t_torch.bin.commands import datagen;"
        f"datagen.main(['--problem=tiny_algo', '--data_dir={tmp_path}', '--tmp_dir={tmp_path}']);"
        "sys.exit('torch' in sys.modules)"
    )
    assert finish(start("-c", code))[0] == 0


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("kind", "row", "flags"),
    [
        (
            "text2class",
            {"inputs": "a word", "targets": "a"},
            "fasttext --hparams_set=fasttext_base",
        ),
        (
            "text2text",
            {"inputs": "a", "targets": "b c"},
            "transformer --hparams_set=transformer_low_resource",
        ),
        (
            "text2tags",
            {"inputs": "a b", "targets": "O O"},
            "bilstm_tagger --hparams_set=bilstm_tag",
        ),
        ("text2tree", {"targets": "(S (N a) (V b))"}, "rnng --hparams_set=rnng_base"),
        ("text2self", {"targets": "a word"}, "transformer --hparams_set=transformer_small"),
        (
            "textpair2real",
            {"first": "a", "second": "b", "targets": 0.5},
            "pair_classifier --hparams",
        ),
    ],
)
def test_the_next_command_has_the_model_the_steps_and_an_estimate(
    kind, row, flags, tmp_path, capsys, own_registry
):
    (tmp_path / "train.jsonl").write_text(f"{json.dumps(row)}\n" * 50, "utf-8")
    (tmp_path / "dev.jsonl").write_text(f"{json.dumps(row)}\n", "utf-8")
    content = {
        "problem": "mine",
        "kind": kind,
        "files": {"train": "train.jsonl", "eval": "dev.jsonl"},
    }
    if kind in ("text2class", "text2text", "text2self", "textpair2real"):
        content["vocab_type"] = "character"
    (tmp_path / "mine.json").write_text(json.dumps(content), "utf-8")
    data = tmp_path / "data"
    assert datagen.main([f"--t2t_usr_dir={tmp_path}", "--problem=mine", f"--data_dir={data}"]) == 0
    following = capsys.readouterr().out.split("Next:")[1]
    assert f"t2t-trainer --problem=mine --model={flags}" in following
    (steps,) = re.findall(r" --train_steps=(\d+) ", following)
    assert " --eval_patience=3 " in following
    assert re.search(
        rf"\(at most {int(steps):,} steps, {int(steps):,} times the data: "
        r"(\d+ \w+ to \d+ \w+|less than a minute) on",
        following,
    ), "the 50 rows are a batch, which is all of the data at each step"


def test_the_next_command_after_an_import_trains_the_imported_model(tmp_path, capsys, own_registry):
    folder, run = tmp_path / "run" / "declarations", tmp_path / "run"
    folder.mkdir(parents=True)
    rows = [{"text": f"word {n}", "label": "ab"[n % 2]} for n in range(20)]
    files = {"train": rows, "eval": rows[:4]}
    fields = {"inputs": "text", "targets": "label"}
    content = {"problem": "imported", "kind": "text2class", "files": files, "fields": fields}
    for name, split in files.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in split))
    content["files"] = {name: f"{name}.jsonl" for name in files}
    (folder / "imported.json").write_text(json.dumps(content))
    flags = ["--problem=imported", f"--t2t_usr_dir={folder}", f"--tmp_dir={tmp_path}"]
    data = tmp_path / "data"
    for problem, follows in (("imported", True), ("another", False)):
        (run / "task.json").write_text(json.dumps({"problem": problem}))
        assert datagen.main([*flags, f"--data_dir={data}", "--overwrite"]) == 0
        following = capsys.readouterr().out.partition("Next:\n")[2]
        assert (f"t2t-trainer --output_dir={run} --data_dir={data}" in following) == follows
        assert ("--model=" in following) != follows
