"""`--runner`: ranks of t2t-datagen, t2t-decoder and t2t-tuner on processes, Ray and Slurm."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import slurm
from .conftest import ENVIRONMENT, t2t

pytestmark = [pytest.mark.engines, pytest.mark.slow]

# A user's problem whose process is killed in the middle of the training samples, the first time
# that a rank encodes it; the other processes go on.
PROBLEM = '''
import os
import signal
import sys
from pathlib import Path

from t2t_torch.features import Features, Text
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.registry import register_problem
from t2t_torch.text.encoder import ByteEncoder


@register_problem
class KilledOnce(Problem):
    """Counts."""

    shards = {Split.TRAIN: 3, Split.EVAL: 1}

    def stored_features(self, directory):
        return Features({"inputs": Text(ByteEncoder())}, {"targets": Text(ByteEncoder())})

    def generate_samples(self, tmp_dir, split):
        mark = tmp_dir / "kill"
        for number in range(30_000 if split is Split.TRAIN else 10):
            if number == 20_000 and "t2t_torch.bin" not in sys.modules:
                with (tmp_dir / "pids").open("a") as file:
                    file.write(f"{os.getpid()} ")
                try:
                    mark.unlink()
                except FileNotFoundError:
                    pass
                else:
                    os.kill(os.getpid(), signal.SIGKILL)
            yield {"inputs": str(number), "targets": str(number)[::-1]}
'''


@pytest.fixture(scope="module")
def slurm_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if reason := slurm.missing():
        pytest.skip(reason)
    with slurm.running(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.fixture(params=["local", "ray", "slurm"])
def runner(request: pytest.FixtureRequest) -> tuple[list[str], dict[str, str]]:
    """The flags of an executor, and the environment that it needs."""
    if request.param == "ray" and importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install '.[ray]'")
    if request.param == "slurm":
        return ["--runner=slurm"], request.getfixturevalue("slurm_environment")
    return [f"--runner={request.param}"], {}


def files(folder: Path, pattern: str = "*") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob(pattern) if path.is_file()}


def test_a_rank_that_is_killed_is_run_again_and_the_data_has_the_same_bytes(tmp_path, runner):
    flags, environment = runner
    for folder in ("my_problems", "raw"):
        (tmp_path / folder).mkdir()
    (tmp_path / "my_problems" / "killed_once.py").write_text(PROBLEM)
    command = ["--problem=killed_once", f"--t2t_usr_dir={tmp_path / 'my_problems'}"]
    command += [f"--tmp_dir={tmp_path / 'raw'}"]
    t2t("datagen", *command, f"--data_dir={tmp_path / 'one'}")
    (tmp_path / "raw" / "kill").touch()
    command += [f"--data_dir={tmp_path / 'ranks'}", "--num_tasks=3", *flags]
    if flags == ["--runner=ray"]:  # runs it again by itself
        told = t2t("datagen", *command, environment=environment)
    else:
        told = t2t("datagen", *command, environment=environment, fails=True)
        assert " of 3 ended without a result" in told
        assert "run the same command again" in told
        told = t2t("datagen", *command, environment=environment)
    assert "killed_once in " in told
    assert not (tmp_path / "raw" / "kill").exists(), "one was killed"
    assert len((tmp_path / "raw" / "pids").read_text().split()) == 4, "and its rank was run again"
    assert files(tmp_path / "ranks", "[!.]*") == files(tmp_path / "one", "[!.]*")
    hidden = sorted(path.name for path in (tmp_path / "ranks").glob(".*"))
    left = [".killed_once.lock", ".killed_once.tasks.done", ".killed_once.verified.json"]
    assert hidden == left


def test_an_error_of_a_rank_is_that_of_the_command(tmp_path, runner):
    flags, environment = runner
    problem = PROBLEM.replace("str(number)[::-1]}", 'None if number == 9 else "a"}')
    (tmp_path / "killed_once.py").write_text(problem)
    command = ["--problem=killed_once", f"--t2t_usr_dir={tmp_path}", "--num_tasks=2"]
    command += [f"--data_dir={tmp_path / 'data'}", f"--tmp_dir={tmp_path}", "--max_cases=20"]
    told = t2t("datagen", *command, *flags, environment=environment, fails=True)
    assert "error: 'killed_once' train, sample 9, 'targets' is None" in told
    assert not list((tmp_path / "data").glob("*.arrow"))


def test_an_exception_of_a_rank_is_told_without_colours_when_the_others_have_ended(
    tmp_path, runner
):
    flags, environment = runner
    start = "stored_features(self, directory):\n"
    broken = f"{start}        'bin' if 't2t_torch.bin' in sys.modules else {{}}['a key']\n"
    (tmp_path / "killed_once.py").write_text(PROBLEM.replace(start, broken))
    command = ["--problem=killed_once", f"--t2t_usr_dir={tmp_path}", "--num_tasks=2", *flags]
    command += [f"--data_dir={tmp_path / '100%a'}", f"--tmp_dir={tmp_path}"]
    told = t2t("datagen", *command, environment=environment, fails=True)
    log = tmp_path / "100%a" / ".killed_once.ranks" / "rank-0.log"
    assert f"task 0, 1 of 2 ended without a result; {log} ends:\n  KeyError: 'a key'\n" in told
    assert "in stored_features" in log.read_text()


def test_options_that_ray_refuses_are_errors_before_data_is_made(tmp_path):
    pytest.importorskip("ray")
    folders = [f"--data_dir={tmp_path / 'data'}", f"--tmp_dir={tmp_path / 'raw'}"]
    command = ["--problem=dates_to_iso", *folders, "--runner=ray", "--num_tasks=2"]
    for name, value in {"num_cpus": "abc", "num_returns": "2", "cpus": "1"}.items():
        told = t2t("datagen", *command, f"--runner_option={name}={value}", fails=True)
        assert "error: --runner_option of Ray's tasks: " in told
        assert f" {name}" in told.replace("'", " ")
    assert not list(tmp_path.iterdir())


def test_an_array_of_a_command_that_was_killed_makes_room_for_the_next(tmp_path, slurm_environment):
    waiting = PROBLEM.replace("os.kill(os.getpid(), signal.SIGKILL)", "time.sleep(600)")
    waiting = waiting.replace("import sys\n", "import sys\nimport time\n")
    waiting = waiting.replace("mark.unlink()", "mark.stat()")
    (tmp_path / "killed_once.py").write_text(waiting)
    command = ["--problem=killed_once", f"--t2t_usr_dir={tmp_path}", "--num_tasks=2"]
    command += [f"--data_dir={tmp_path / 'data'}", f"--tmp_dir={tmp_path}", "--runner=slurm"]
    (tmp_path / "kill").touch()
    launcher = subprocess.Popen(
        [sys.executable, "-m", "t2t_torch.bin", "datagen", *command],
        env={**ENVIRONMENT, **slurm_environment},
    )
    while not (tmp_path / "pids").exists():
        assert launcher.poll() is None
        time.sleep(0.2)
    launcher.kill()
    launcher.wait()
    (tmp_path / "kill").unlink()
    told = t2t("datagen", *command, environment=slurm_environment, seconds=400)
    assert "killed_once in " in told


@pytest.fixture(scope="module")
def run_dir(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt little, of which outputs differ from input to input."""
    path = tmp_path_factory.mktemp("decoded") / "run"
    flags = ["--problem=dates_to_iso", "--model=transformer", "--hparams_set=transformer_tiny"]
    flags += [f"--data_dir={dates}", f"--output_dir={path}", "--train_steps=60", "--worker_gpu=0"]
    t2t("trainer", *flags, "--schedule=train")
    return path


def test_the_parts_of_a_file_are_decoded_by_ranks_and_joined_in_order(tmp_path, run_dir, runner):
    flags, environment = runner
    lines = [f"{day} {month} 20{day}" for day in range(10, 28) for month in ("May", "June", "July")]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    command = [f"--output_dir={run_dir}", f"--decode_from_file={tmp_path / 'in.txt'}"]
    command += ["--decode_hparams=beam_size=2,extra_length=5"]
    t2t("decoder", *command, f"--decode_to_file={tmp_path / 'one.txt'}")
    flags = [*flags, "--decode_shards=3", f"--decode_to_file={tmp_path / 'ranks.txt'}"]
    told = t2t("decoder", *command, *flags, environment=environment)
    assert f"{len(lines)} inputs in 3 tasks: " in told
    assert (tmp_path / "ranks.txt").read_text() == (tmp_path / "one.txt").read_text()
    assert len(set((tmp_path / "one.txt").read_text().split("\n"))) > 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "one.txt", "ranks.txt"]


def test_tuners_are_ranks_that_share_a_search(tmp_path, dates, runner):
    flags, environment = runner
    command = ["--problem=dates_to_iso", "--model=transformer", "--hparams_set=transformer_tiny"]
    command += ["--hparams_range=transformer_tiny_range", f"--data_dir={dates}", "--eval_steps=1"]
    command += ["--searcher=random", "--metric=loss", "--max_trials=3", "--train_steps=4"]
    command += [f"--output_dir={tmp_path / 'search'}", "--parallel=2", "--worker_gpu=0", *flags]
    told = t2t("tuner", *command, environment=environment)
    record = json.loads((tmp_path / "search" / "search.json").read_text())
    assert [trial["state"] for trial in record["trials"]] == ["completed"] * 3, told
    assert not (tmp_path / "search" / "ranks").exists()
    entries = (tmp_path / "search" / "search.journal").read_text()
    tuners = set(re.findall(r"take\W+tuner\W+(\w+)", entries))
    assert len(tuners) == 2, "each rank has trained"
