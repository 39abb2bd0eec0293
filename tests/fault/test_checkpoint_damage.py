"""C1, C2, C8, C9: checkpoints that are damaged, hostile, or old."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from pathlib import Path

import pytest
import torch

import t2t_torch
from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.data.manifest import sha256_of
from t2t_torch.decode.loading import load
from t2t_torch.errors import CheckpointError
from t2t_torch.run.directory import RunDirectory
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.problem_task import ProblemTask
from t2t_torch.train.run_config import RunConfig

FILES = """model.safetensors optimizer.safetensors average.safetensors trainer.json hparams.json
task.json MANIFEST.json""".split()


@pytest.fixture
def trained(make_estimator):
    """Makes a run with checkpoints of steps 2 and 4."""

    def make(name="run", steps=(2, 4)):
        run = make_estimator(name, hparams="ema_decay=0.9")
        for step in steps:
            run.train(step)
        run.close()
        return run.directory.path

    return make


def flip(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGES = {
    "empty": lambda content: b"",
    "one byte": lambda content: content[:1],
    "half": lambda content: content[: len(content) // 2],
    "a bit at the start": lambda content: flip(content, 0),
    "a bit in the middle": lambda content: flip(content, len(content) // 2),
    "a bit at the end": lambda content: flip(content, len(content) - 2),
    "longer": lambda content: content + b"\0",
    "gone": None,
}


def damage(file, how):
    content = file.read_bytes()
    file.unlink()
    if DAMAGES[how] is not None:
        file.write_bytes(DAMAGES[how](content))


def test_whatever_is_damaged_the_checkpoint_before_is_used(trained, make_estimator, capsys):
    folder = trained()
    whole = folder.with_name("whole")
    shutil.copytree(folder / "ckpt-4", whole)
    assert {file.name for file in whole.iterdir()} == set(FILES)
    run = make_estimator()
    for file in FILES:
        for how in DAMAGES:
            damage(folder / "ckpt-4" / file, how)
            capsys.readouterr()
            assert run.newest_checkpoint(repair=True).step == 2, (file, how)
            assert capsys.readouterr().err.count("broken checkpoint set aside") == 1
            shutil.rmtree(folder / "ckpt-4.corrupt")
            shutil.copytree(whole, folder / "ckpt-4")
    assert run.newest_checkpoint(repair=True).step == 4


def test_a_run_goes_on_from_the_checkpoint_before_as_if_the_broken_one_had_never_been(
    trained, make_estimator
):
    whole = trained("whole", (2, 4, 6))
    folder = trained()
    damage(folder / "ckpt-4" / "optimizer.safetensors", "half")
    run = make_estimator(hparams="ema_decay=0.9")
    run.train(4)
    run.train(6)
    for step in (4, 6):
        for name in ("model.safetensors", "optimizer.safetensors", "average.safetensors"):
            left, right = (path / f"ckpt-{step}" / name for path in (folder, whole))
            assert left.read_bytes() == right.read_bytes(), (step, name)
    assert (folder / "ckpt-4.corrupt").is_dir()


def test_when_all_are_broken_nothing_is_begun_and_nothing_overwritten(trained, make_estimator):
    folder = trained()
    for step in (2, 4):
        damage(folder / f"ckpt-{step}" / "model.safetensors", "empty")
    before = {file: file.read_bytes() for file in folder.glob("*.json*")}
    for _ in range(2):
        run = make_estimator(hparams="ema_decay=0.9")
        with pytest.raises(
            CheckpointError, match=r"every checkpoint(.|\n)*Nothing was overwritten"
        ):
            run.train(6)
        run.close()
    assert {file: file.read_bytes() for file in folder.glob("*.json*")} == before
    assert sorted(path.name for path in folder.glob("ckpt-*")) == [
        "ckpt-2.corrupt",
        "ckpt-4.corrupt",
    ]


class Malice:
    """Writes a file when it is unpickled."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return Path.write_text, (self.file, "executed")


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "trainer.json"])
def test_a_pickle_in_a_checkpoint_is_never_executed(trained, make_estimator, tmp_path, name):
    folder, trace = trained() / "ckpt-4", tmp_path / "trace"
    content = pickle.dumps(Malice(trace))
    pickle.loads(content)
    assert trace.exists()  # it is dangerous
    trace.unlink()
    torch.save(Malice(trace), folder / "optimizer.pt")
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    manifest["files"][name] = {"bytes": len(content), "sha256": sha256_of(folder / name)}
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))
    run = make_estimator(hparams="ema_decay=0.9")
    with pytest.raises(CheckpointError, match=r"damaged|cannot be read by"):
        run.train(6)
    assert not trace.exists()


def test_what_reads_checkpoints_never_unpickles():
    package = Path(t2t_torch.__file__).parent
    for room in ("checkpoint", "train", "decode", "optimizers", "bin"):
        for file in (package / room).glob("*.py"):
            source = file.read_text("utf-8")
            assert not re.search(r"(?<!t2t_)torch\.load\(|import pickle|pickle\.load", source), file


OLD_RUNS = sorted((Path(__file__).parent.parent / "data").glob("run_of_*"))
OLD_PROBLEM = "algorithmic_reverse_binary40_test"


@pytest.fixture(scope="module")
def old_data(tmp_path_factory):
    """The data that the old runs were trained on."""
    folder = tmp_path_factory.mktemp("old")
    problem = registry.problem(OLD_PROBLEM)
    generate_data(problem, folder, folder, num_processes=1, max_cases=160, progress=False)
    return folder


@pytest.fixture(params=OLD_RUNS, ids=lambda path: path.name)
def old_run(request, tmp_path):
    """A copy of a run directory that an older version has written."""
    return shutil.copytree(request.param, tmp_path / "run")


def test_there_is_an_old_run():
    assert OLD_RUNS


def test_a_checkpoint_of_an_older_version_is_evaluated_as_it_was_then(old_run, old_data):
    run = RunDirectory(old_run)
    model = registry.model(run.task().model)
    task = ProblemTask(
        registry.problem(run.task().problem),
        model,
        run.hparams(model.HParams),
        data_dir=old_data,
        vocab_dir=old_data,
    )
    with Estimator(task, run, RunConfig(eval_steps=0)) as estimator:
        assert estimator.restore_newest().step == 3
        assert estimator.evaluate()["loss"] == pytest.approx(1.0969813730010538, rel=1e-5)


def test_a_checkpoint_of_an_older_version_is_decoded(old_run):
    predictor = load(old_run, device="cpu")
    assert predictor.run.step == 3
    assert len(predictor(["1 0 1", "0"])) == 2


def test_a_checkpoint_of_an_older_version_is_trained_on(old_run, old_data):
    run = RunDirectory(old_run)
    record, model = run.task(), registry.model(run.task().model)
    hparams = run.hparams(model.HParams)
    problem = registry.problem(record.problem)
    task = ProblemTask(problem, model, hparams, data_dir=old_data, vocab_dir=old_data)
    run.begin(record.model_copy(update={"train_steps": 5}), hparams)
    with Estimator(task, run, RunConfig(train_steps=5, local_eval_frequency=0)) as estimator:
        estimator.train(5)
        assert estimator.state.tokens > 492  # of the three steps before
        assert estimator.checkpoints.newest().step == 5
