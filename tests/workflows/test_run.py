"""A run as an object; kinds of run and formats of users, as docs/how_to/extend.md has them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import t2t_torch as t2t
from t2t_torch import registry
from t2t_torch.errors import CheckpointError, UsageError
from t2t_torch.workflows.run_kind import DEFAULT, kind_of, kinds

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how_to" / "extend.md"
PROBLEM = "algorithmic_reverse_binary40_test"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    t2t.generate(PROBLEM, folder, folder, max_cases=160, num_concurrent_processes=1)
    return folder


@pytest.fixture(scope="module")
def trained(data_dir, tmp_path_factory):
    """A run of six steps, evaluated twice."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    t2t.train(
        PROBLEM,
        "transformer",
        "transformer_test",
        data_dir=data_dir,
        output_dir=folder,
        train_steps=6,
        local_eval_frequency=3,
        log_step_count_steps=2,
        eval_steps=1,
    )
    return folder


@pytest.fixture
def page(tmp_path, own_registry):
    """The code of the page, as a user's folder."""
    folder = tmp_path / "extensions"
    folder.mkdir()
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)):
        (folder / f"block{number}.py").write_text(block, "utf-8")
    registry.import_usr_dir(folder)
    return folder


def test_a_run_tells_what_it_has_learnt_and_how(trained):
    run = t2t.Run(trained)
    assert run.problem.full_name == PROBLEM
    assert run.hparams == registry.model("transformer").HParams.from_json(
        (trained / "hparams.json").read_text()
    )
    assert [one.step for one in run.checkpoints] == [3, 6]
    assert run.kind.name == "problem"
    assert run.predictor("latest")(["0 1"]) == t2t.load(trained, "latest")(["0 1"])


def test_a_run_is_evaluated_and_exported(trained, tmp_path):
    run = t2t.Run(trained)
    found = run.evaluate(eval_steps=1, checkpoint_path=str(trained / "ckpt-6"))
    assert found["loss"] == pytest.approx(run.history("dev")["loss"][-1], rel=1e-6)
    artifact = run.export(tmp_path / "artifact", checkpoint="latest")
    assert artifact(["0 1"]) == run.predictor("latest")(["0 1"])
    with pytest.raises(UsageError, match="unknown setting 'eval_step'"):
        run.evaluate(eval_step=1)


def test_a_history_has_columns_of_equal_length(trained):
    history = t2t.Run(trained).history()
    assert len({len(column) for column in history.values()}) == 1
    evaluated = t2t.Run(trained).history("dev")
    assert evaluated["step"] == [3, 6]
    assert set(evaluated["split"]) == {"dev"}
    assert all(loss > 0 for loss in evaluated["loss"])
    steps = t2t.Run(trained).history("train")["step"]
    assert steps == sorted(steps)
    assert len(history["step"]) == len(steps) + 2


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    for read in (lambda run: run.record, lambda run: run.history(), lambda run: run.checkpoints):
        with pytest.raises(CheckpointError, match="is not a run directory"):
            read(t2t.Run(tmp_path))


def test_the_default_kind_is_the_last(own_registry):
    assert [kind.name for kind in kinds()] == ["several_problems", "trial", DEFAULT]


def test_a_folder_without_a_record_is_of_the_default_kind(tmp_path):
    assert kind_of(tmp_path).name == DEFAULT


def test_a_users_format_is_written_and_verified(page, trained, tmp_path):
    path = t2t.export(trained, tmp_path / "arrays", format="numpy")
    with np.load(path / "weights.npz") as weights:
        assert sorted(weights) == sorted(t2t.load(trained).model.state_dict())
    with pytest.raises(UsageError, match=r"numpy.*, for another program"):
        t2t.load(path)
    with pytest.raises(UsageError, match=r"verify_rows: .*numpy.* does not read this"):
        t2t.export(trained, tmp_path / "others", format="numpy", verify_rows=300)
    with pytest.raises(UsageError, match="numpy"):  # names those that there are
        t2t.export(trained, tmp_path / "others", format="other")


def test_a_users_kind_of_run_is_trained_loaded_and_protected(page, trained, tmp_path):
    chosen = {"model": "most_frequent", "tmp_dir": tmp_path, "output_dir": tmp_path / "run"}
    model = t2t.train(PROBLEM, **chosen)
    assert len(model(["0 1", "1"])) == 2
    assert model(["0 1"]) == model(["1"])
    run = t2t.Run(tmp_path / "run")
    assert run.kind.name == "most_frequent"
    assert run.hparams["output"] == model(["0"])[0]
    with pytest.raises(UsageError, match="cannot be evaluated"):
        t2t.evaluate(tmp_path / "run")
    with pytest.raises(CheckpointError, match=f"holds a run of problem '{PROBLEM}'"):
        t2t.train(PROBLEM, **{**chosen, "output_dir": trained})


def test_a_users_kind_of_run_is_found_by_a_process_that_has_not_imported_it(page, tmp_path):
    chosen = {"model": "most_frequent", "tmp_dir": tmp_path, "output_dir": tmp_path / "run"}
    t2t.train(PROBLEM, **chosen)
    script = f"import t2t_torch as t2t; print(t2t.Run({str(tmp_path / 'run')!r}).kind.name)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "most_frequent\n", done.stderr


def test_an_ensemble_needs_a_run():
    with pytest.raises(UsageError, match="name at least one run"):
        t2t.load([])


def test_the_command_of_the_page_works(page, trained, capsys):
    registry.run_kind("most_frequent")  # imports a file, which makes the folder a package
    from extensions.block2 import StepsSettings, steps

    steps(StepsSettings(output_dir=str(trained)))
    assert capsys.readouterr().out == "3\n6\n"
