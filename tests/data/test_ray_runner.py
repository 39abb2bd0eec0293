"""Tasks of Ray, of as much of it as the executor asks for; `tests/engines` runs the real one."""

from __future__ import annotations

import sys

import pytest

from t2t_torch import executors, registry
from t2t_torch.bin.commands import datagen
from t2t_torch.data.generate import generate_by_ranks, generate_data
from t2t_torch.errors import DataError, T2TError

from .counting import counting, files


class _FakeRay:
    """As much of Ray as the runner asks for; each task runs where it is asked for."""

    class exceptions:
        RayError = RuntimeError

    def __init__(self, dying: int = 0) -> None:
        self.started: list[str] = []
        self.ended = 0
        self.cancelled = 0
        self.dying = dying
        self.tasks = 0

    def is_initialized(self):
        return False

    def init(self, address, **options):
        self.started.append(address)

    def shutdown(self):
        self.ended += 1

    def cluster_resources(self):
        return {"CPU": 3.0}

    def remote(self, **options):
        assert options == {"num_returns": 1}

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
            raise RuntimeError("In the middle:\nIt died.")
        return task()

    def cancel(self, task, force):
        self.cancelled += 1


@pytest.fixture
def runner(monkeypatch, tmp_path):
    """Runs the counting problem on a fake Ray."""

    def run(fake, problem, **options):
        monkeypatch.setattr(executors, "require", lambda *_: fake)
        monkeypatch.setattr(registry, "problem", lambda name: problem)
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        folders = tmp_path / "data", tmp_path / "raw"
        return generate_by_ranks(problem, *folders, executors.RayTasks({}), **options)

    return run


def test_there_are_as_many_tasks_as_the_cluster_has_cpus(tmp_path, runner):
    fake = _FakeRay()
    manifest = runner(fake, counting())
    assert (fake.tasks, fake.ended) == (3, 1)
    assert fake.started == ["local"], "not a cluster that is found on this machine"
    assert generate_data(counting(), tmp_path / "one", tmp_path, progress=False) == manifest
    assert files(tmp_path / "one") == files(tmp_path / "data")
    again = _FakeRay()
    assert runner(again, counting()) == manifest
    assert again.tasks == 0, "what is complete is left alone"
    assert runner(again, counting(), overwrite=True, num_tasks=5) == manifest
    assert again.tasks == 5


def test_an_error_of_a_task_ends_the_others_and_is_told_as_it_is(tmp_path, runner):
    fake = _FakeRay()
    with pytest.raises(DataError, match=r"^'counting' train, sample 3, 'targets' is None"):
        runner(fake, counting(unfit=(3,)))
    assert (fake.tasks, fake.cancelled, fake.ended) == (1, 2, 1)


def test_a_task_that_fails_is_told_when_the_others_have_ended_and_they_are_kept(tmp_path, runner):
    fake = _FakeRay(dying=2)
    with pytest.raises(T2TError, match=r"task 1 of 3 ended without .*-1\.log ends:\n  It died\.\n"):
        runner(fake, counting())
    assert (fake.tasks, fake.cancelled) == (3, 0)
    fake = _FakeRay()
    assert runner(fake, counting()).splits["train"].rows == 100
    assert fake.tasks == 1


def test_without_ray_the_command_that_installs_it_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    command = ["--problem=tiny_algo", f"--data_dir={tmp_path / 'data'}", f"--tmp_dir={tmp_path}"]
    assert datagen.main([*command, "--runner=ray"]) == 2
    assert "pip install '.[ray]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
