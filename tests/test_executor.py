"""Ranks of a job: results by rank, finished ones are kept, errors are those of a rank."""

from __future__ import annotations

import json
import os
import re
import sys
import types
from pathlib import Path

import pytest

from t2t_torch import executors, registry
from t2t_torch.atomic_files import file_lock
from t2t_torch.bin.commands import datagen
from t2t_torch.decode.hparam import parse_decode_hparams
from t2t_torch.errors import DataError, RegistryError, T2TError, UsageError
from t2t_torch.executor import Executor, RunnerSettings, map_ranks, rank_command, run_rank
from t2t_torch.workflows import decode as decoding
from t2t_torch.workflows.decode import DecodeSettings
from t2t_torch.workflows.decode import _check_settings as check_settings
from t2t_torch.workflows.search import search
from t2t_torch.workflows.search_settings import SearchSettings


def work(settings, rank, count):
    """Adds its number to a file."""
    with Path(settings["file"]).open("a") as file:
        file.write(f"{rank} ")
    if rank == settings.get("wrong"):
        raise DataError("row 3 is wrong")
    return [rank, count, settings.get("value")]


class Backwards(Executor):
    """Runs ranks in this process, the last one first; those in `dying` end without an outcome."""

    dying = ()

    def run(self, folder, ranks):
        for rank in reversed(ranks):
            if rank not in self.dying:
                run_rank(folder, rank)
            yield rank


@pytest.fixture
def job(tmp_path):
    """Runs three ranks; returns the results and the ranks that ran."""

    def run(executor=None, **settings):
        file = tmp_path / "ran"
        file.write_text("")
        settings = {**settings, "file": str(file)}
        try:
            return map_ranks(
                executor or Backwards({}), f"{__name__}:work", settings, 3, tmp_path / "ranks"
            ), file.read_text().split()
        except T2TError as error:
            return error, file.read_text().split()

    return run


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, types.SimpleNamespace(work=work))


def test_results_are_those_of_the_ranks_in_order_and_finished_ranks_are_kept(job, tmp_path):
    expected = [[0, 3, 1], [1, 3, 1], [2, 3, 1]]
    assert job(value=1) == (expected, ["2", "1", "0"])
    assert job(value=1) == (expected, [])
    (tmp_path / "ranks" / "rank-1.json").unlink()
    assert job(value=1) == (expected, ["1"])
    assert job(value=2) == ([[rank, 3, 2] for rank in range(3)], ["2", "1", "0"])


def test_an_error_of_a_rank_ends_the_job_and_the_rank_runs_again(job, tmp_path):
    error, ran = job(wrong=1)
    assert (type(error), str(error), ran) == (DataError, "row 3 is wrong", ["2", "1"])
    assert job(wrong=1)[1] == ["1"], "2 was finished"


def test_ranks_that_die_are_named_with_the_end_of_a_log(job, tmp_path):
    executor = Backwards({})
    executor.dying = (0, 2)
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks" / "rank-0.log").write_text("starts\nMemoryError\n\n")
    error, ran = job(executor)
    assert str(error).startswith("task 0, 2 of 3 ended without a result; ")
    assert "rank-0.log ends:\n  MemoryError\n" in str(error)
    assert ran == ["1"]
    assert job()[1] == ["2", "0"]


def test_two_commands_do_not_run_the_same_ranks(job, tmp_path):
    (tmp_path / "ranks").mkdir()
    with file_lock(tmp_path / "ranks" / "lock"):
        error, ran = job()
    assert isinstance(error, UsageError)
    assert "another command (process " in str(error)
    assert ran == []


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Programs in place of Slurm's, that write down how they are called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, rest in {"sbatch": "; echo 7", "scancel": ""}.items():
        (folder / name).write_text(
            f"#!/bin/sh\nprintf '%s\\n' {name} \"$@\" >> {folder}/calls{rest}\n"
        )
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.mark.usefixtures("slurm")
def test_options_are_given_to_the_executor_and_unknown_names_refused(monkeypatch):
    made = RunnerSettings(runner="slurm", runner_option=("gres=gpu:1,b=2", "exclusive")).executor()
    assert isinstance(made, executors.SlurmArray)
    assert made.options == {"gres": "gpu:1,b=2", "exclusive": ""}
    with pytest.raises(RegistryError, match="Did you mean 'slurm'"):
        RunnerSettings(runner="slurn").executor()
    with pytest.raises(UsageError, match="--runner_option belongs to --runner"):
        RunnerSettings(runner_option=("processes=2",)).has_runner()
    assert RunnerSettings(runner="local").has_runner()
    assert not RunnerSettings().has_runner()
    for options in ({"processes": "0"}, {"threads": "2"}):
        with pytest.raises(UsageError, match="processes=N"):
            executors.LocalProcesses(options)
    for name in ("array", "out", "wrap"):  # sbatch takes beginnings of names
        with pytest.raises(UsageError, match=f"--runner_option={name}: --runner=slurm sets it"):
            executors.SlurmArray({name: "x"})
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="needs sbatch"):
        executors.SlurmArray({})


def test_an_executor_that_cannot_run_is_refused_before_data_is_replaced(tmp_path, monkeypatch):
    folders = [f"--data_dir={tmp_path / 'data'}", f"--tmp_dir={tmp_path / 'raw'}"]
    command = ["--problem=tiny_algo", *folders, "--num_tasks=2", "--overwrite"]
    monkeypatch.setenv("PATH", "")
    for flags in (["--runner=local", "--runner_option=processes=x"], ["--runner=slurm"]):
        assert datagen.main([*command, *flags]) == 2
    assert not list(tmp_path.iterdir())


def test_an_array_of_slurm_that_was_left_is_cancelled_and_its_end_awaited(tmp_path, slurm):
    folder = tmp_path / "of 100%x"
    folder.mkdir()
    array = executors.SlurmArray({"partition": "gpu", "exclusive": ""})
    assert list(array.run(folder, [2, 4])) == [2, 4]
    assert not (folder / "array").exists()
    one = (slurm / "calls").read_text().splitlines()
    assert one[:2] == ["sbatch", "--parsable"]
    assert {"--partition=gpu", "--exclusive", "--array=2,4"} <= {*one}
    assert f"--output={tmp_path}/of 100%%x/rank-%a.log" in one
    (folder / "array").write_text("5\n")  # by sbatch of a command that was killed
    (slurm / "calls").write_text("")
    assert list(array.run(folder, [4])) == [4]
    two = (slurm / "calls").read_text().splitlines()
    assert two[:2] == ["scancel", "5"]
    assert "--dependency=afterany:5" in two


def test_a_rank_is_a_command_of_its_own(tmp_path):
    (tmp_path / "job.json").write_text(
        json.dumps({"function": "math:hypot", "settings": 3, "count": 0, "usr_dirs": []})
    )
    executor = executors.LocalProcesses({"processes": "2"})
    assert "run_rank" in rank_command(tmp_path, 1)[2]
    assert sorted(executor.run(tmp_path, [4, 0])) == [0, 4]
    assert json.loads((tmp_path / "rank-4.json").read_text()) == {"result": 5.0}


@pytest.mark.parametrize(
    ("settings", "hparams"),
    [
        ({"decode_shards": 2}, "shards=2"),
        ({"decode_from_file": "in.txt"}, ""),
        ({"decode_from_file": "in.txt", "decode_shards": 2}, "shards=2,shard_id=1"),
    ],
)
def test_the_decoder_runs_all_parts_of_a_file_or_says_so(settings, hparams):
    with pytest.raises(UsageError, match="--runner decodes the parts of a file"):
        check_settings(DecodeSettings(runner="local", **settings), parse_decode_hparams(hparams))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (None, "run/ckpt-20"),
        ("best", "run/ckpt-20"),
        ("20", "run/ckpt-20"),
        ("ckpt-20", "run/ckpt-20"),
        ("run/ckpt-20", "run/ckpt-20"),
        ("copy/ckpt-20", "copy/ckpt-20"),
        ("newest", "copy/ckpt-20"),
    ],
)
def test_ranks_that_run_in_another_folder_decode_with_the_same_checkpoint(
    tmp_path, monkeypatch, path, expected
):
    monkeypatch.chdir(tmp_path)
    for folder in ("run", "copy"):
        (tmp_path / folder / "ckpt-20").mkdir(parents=True)
    (tmp_path / "newest").symlink_to("copy/ckpt-20")
    source = tmp_path / "in.txt"
    source.write_text("a\n")
    jobs = []
    monkeypatch.setattr(decoding, "map_ranks", lambda _, __, job, *rest: jobs.append(job))
    predictor = types.SimpleNamespace(run=types.SimpleNamespace(step=20))
    given = {} if path is None else {"checkpoint_path": path}
    settings = DecodeSettings(runner="local", output_dir="run", decode_shards=2, **given)
    decoding._decode_parts(settings, predictor, source, tmp_path / "out.txt")
    (job,) = jobs
    assert job["settings"] == {
        "output_dir": str(tmp_path / "run"),
        "decode_from_file": str(source),
        "checkpoint_path": str(tmp_path / expected),
    }


def test_a_search_with_a_storage_has_no_runner(tmp_path):
    settings = SearchSettings(
        runner="local", storage="sqlite:///search.db", output_dir=str(tmp_path / "search"),
        problem="dates_to_iso", model="transformer", hparams_set="transformer_tiny",
        data_dir=str(tmp_path), hparams_range="transformer_tiny_range",
    )  # fmt: skip
    with pytest.raises(UsageError, match="--storage does not go with --runner"):
        search(settings)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("own_registry")
def test_an_executor_of_the_page_on_engines_runs_ranks(job, tmp_path):
    page = Path(__file__).parents[1] / "docs" / "how_to" / "engines.md"
    (code,) = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    (tmp_path / "my_executors").mkdir()
    (tmp_path / "my_executors" / "in_turn.py").write_text(code)
    registry.import_usr_dir(tmp_path / "my_executors")
    results, ran = job(RunnerSettings(runner="in_turn").executor(), value=1)
    assert (len(results), ran) == (3, ["0", "1", "2"])
