"""Tasks on a local Ray of two workers, one of which is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from t2t_torch.bin.commands import datagen
from t2t_torch.data.generate import generate_data

from .counting import counting, files

# A user's problem whose process is killed in the middle of the training samples, the first time
# that it encodes task 1; the other processes go on.
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
            if number == 20_000 and "ray" in sys.modules:
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


def arguments(tmp_path: Path, name: str) -> list[str]:
    return [
        "--problem=killed_once",
        f"--t2t_usr_dir={tmp_path / 'my_problems'}",
        f"--data_dir={tmp_path / name}",
        f"--tmp_dir={tmp_path / 'raw'}",
    ]


@pytest.mark.slow
def test_a_worker_of_ray_that_is_killed_is_replaced_and_the_bytes_are_the_same(tmp_path):
    pytest.importorskip("ray")
    for folder in ("my_problems", "raw"):
        (tmp_path / folder).mkdir()
    (tmp_path / "my_problems" / "killed_once.py").write_text(PROBLEM)
    (tmp_path / "raw" / "kill").touch()
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    for name, options in (("one", []), ("ray", ["--runner=ray", "--num_tasks=2"])):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "t2t_torch.bin",
                "datagen",
                *arguments(tmp_path, name),
                *options,
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "killed_once in " in done.stdout
    assert not (tmp_path / "raw" / "kill").exists(), "one was killed"
    assert len((tmp_path / "raw" / "pids").read_text().split()) == 3, "and its task was run again"
    assert files(tmp_path / "ray") == files(tmp_path / "one")
    hidden = sorted(path.name for path in (tmp_path / "ray").glob(".*"))
    left = [".killed_once.lock", ".killed_once.tasks.done", ".killed_once.verified.json"]
    assert hidden == left


class _FakeRay:
    """As much of Ray as the runner asks for; each task runs where it is asked for."""

    class exceptions:
        RayError = RuntimeError

    def __init__(self, dying: int = 0) -> None:
        self.started: list[dict] = []
        self.ended = 0
        self.cancelled = 0
        self.dying = dying
        self.tasks = 0

    def is_initialized(self):
        return False

    def init(self, **options):
        self.started.append(options)

    def shutdown(self):
        self.ended += 1

    def cluster_resources(self):
        return {"CPU": 3.0}

    def remote(self, **options):
        assert options == {"num_cpus": 1, "max_retries": 3}

        def decorate(function):
            class Remote:
                @staticmethod
                def remote(*args):
                    return lambda: function(*args)

            return Remote

        return decorate

    def wait(self, tasks):
        return tasks[:1], tasks[1:]

    def get(self, task):
        self.tasks += 1
        if self.tasks == self.dying:
            raise RuntimeError("The worker died.")
        return task()

    def cancel(self, task, force):
        self.cancelled += 1


@pytest.fixture
def runner(monkeypatch, tmp_path):
    """Runs the counting problem on a fake Ray."""
    from t2t_torch import registry
    from t2t_torch.data import generate

    def run(fake, problem, **options):
        monkeypatch.setattr(generate, "require", lambda *_: fake)
        monkeypatch.setattr(registry, "problem", lambda name: problem)
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        return generate.generate_on_ray(
            problem, tmp_path / "data", tmp_path / "raw", progress=False, **options
        )

    return run


def test_there_are_as_many_tasks_as_the_cluster_has_cpus(tmp_path, runner):
    fake = _FakeRay()
    manifest = runner(fake, counting())
    assert (fake.tasks, fake.ended, len(fake.started)) == (3, 1, 1)
    assert generate_data(counting(), tmp_path / "one", tmp_path, progress=False) == manifest
    assert files(tmp_path / "one") == files(tmp_path / "data")
    again = _FakeRay()
    assert runner(again, counting()) == manifest
    assert again.tasks == 0, "what is complete is left alone"
    assert runner(again, counting(), overwrite=True, num_tasks=5) == manifest
    assert again.tasks == 5


def test_an_error_of_a_task_ends_the_others_and_is_told_as_it_is(tmp_path, runner):
    from t2t_torch.errors import DataError

    fake = _FakeRay()
    with pytest.raises(DataError, match=r"^'counting' train, sample 3, 'targets' is None"):
        runner(fake, counting(unfit=(3,)))
    assert (fake.tasks, fake.cancelled, fake.ended) == (1, 2, 1)


def test_a_worker_that_dies_again_and_again_is_told_and_the_parts_are_kept(tmp_path, runner):
    from t2t_torch.errors import DataError

    with pytest.raises(DataError, match="died on Ray, 4 times: The worker died"):
        runner(_FakeRay(dying=2), counting())
    fake = _FakeRay()
    assert runner(fake, counting()).splits["train"].rows == 100


def test_without_ray_the_command_that_installs_it_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    command = ["--problem=tiny_algo", f"--data_dir={tmp_path / 'data'}", f"--tmp_dir={tmp_path}"]
    assert datagen.main([*command, "--runner=ray"]) == 2
    assert "pip install '.[ray]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
