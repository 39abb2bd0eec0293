"""C11: means of checkpoints."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from t2t_torch.errors import CheckpointError
from t2t_torch.run.checkpoint import Checkpoint, Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.warm_start import average_checkpoints


@pytest.fixture
def run(tmp_path, trained):
    """A run's checkpoints of weights that differ, and a number that counts steps."""
    directory = CheckpointDirectory(tmp_path / "run")
    directory.path.mkdir()
    for step in (10, 20, 30):
        model, optimizer = trained()
        generator = torch.Generator().manual_seed(step)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
            model.seen.fill_(step)
        directory.save(Snapshot.take(model, optimizer, TrainerState(step=step, tokens=step)))
    return directory


@pytest.fixture
def out(tmp_path):
    """Where averages go."""
    (tmp_path / "avg").mkdir()
    return CheckpointDirectory(tmp_path / "avg")


def weights_of(checkpoint, tied):
    model = tied()
    checkpoint.load_model(model)
    return {name: value.numpy() for name, value in model.state_dict().items()}


def test_the_average_is_numpys_mean_and_counts_are_the_newest_ones(run, out, tied):
    made = average_checkpoints(run.list()[::-1], out)
    each = [weights_of(checkpoint, tied) for checkpoint in run.list()]
    for name, value in weights_of(made, tied).items():
        expected = np.mean([one[name] for one in each], axis=0, dtype=np.float64)
        if name == "seen":
            assert value == 30
        else:
            np.testing.assert_array_equal(value, expected.astype(np.float32))
    assert made.step == 30
    assert made.trainer_state().tokens == 30
    assert out.newest() == made


def test_an_average_is_a_checkpoint_that_cannot_be_trained_on(run, out, trained):
    model, optimizer = trained()
    made = average_checkpoints(run.list(), out)
    made.verify()
    with pytest.raises(CheckpointError, match="is an average of checkpoints and has no optimizer"):
        made.load_optimizer(optimizer, model)


def test_an_average_that_is_there_is_not_made_again(run, out):
    made = average_checkpoints(run.list(), out)
    before = (made.path / "MANIFEST.json").stat().st_mtime_ns
    assert average_checkpoints(run.list(), out) == made
    assert (made.path / "MANIFEST.json").stat().st_mtime_ns == before


def test_another_average_of_that_step_is_refused(run, out):
    average_checkpoints(run.list(), out)
    with pytest.raises(CheckpointError, match="is no average of the checkpoints 20, 30"):
        average_checkpoints(run.list()[1:], out)


def test_a_runs_own_checkpoint_is_never_taken_for_an_average(run):
    with pytest.raises(CheckpointError, match="is no average of the checkpoints 10, 20, 30"):
        average_checkpoints(run.list(), run)


def test_checkpoints_of_different_models_are_refused(run, out, tmp_path, trained):
    other = CheckpointDirectory(tmp_path).save(Snapshot.take(*trained(5), TrainerState(step=40)))
    with pytest.raises(CheckpointError, match=r"not of the model of (.|\n)*embedding.weight"):
        average_checkpoints([*run.list(), other], out)


def test_a_broken_checkpoint_is_refused(run, out):
    (run.path / "ckpt-20" / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"model.safetensors has 0 bytes"):
        average_checkpoints(run.list(), out)
    assert out.list() == []


def test_no_checkpoints_have_no_average(out):
    with pytest.raises(CheckpointError, match="needs one checkpoint"):
        average_checkpoints([], out)


def test_the_mean_of_one_is_itself(run, out, tied):
    made = average_checkpoints([run.at(20)], out)
    one, same = weights_of(run.at(20), tied), weights_of(made, tied)
    assert all((one[name] == same[name]).all() for name in one)


def test_the_running_mean_of_a_run_stands_in_for_its_weights_when_asked(
    tmp_path, snapshot, tied, mean
):
    average = mean({"middle.weight": torch.full((3, 3), 0.25)})
    checkpoint = CheckpointDirectory(tmp_path).save(snapshot(1, average))
    model, averaged, back = tied(), tied(), mean({})
    checkpoint.load_model(model)
    checkpoint.load_model(averaged, averaged=True)
    checkpoint.load_average(back)
    assert not model.middle.weight.eq(0.25).any()
    assert averaged.middle.weight.eq(0.25).all()
    assert averaged.middle.bias.equal(model.middle.bias)
    assert back.held.keys() == average.held.keys()
    assert back.held["middle.weight"].equal(average.held["middle.weight"])


def test_a_mean_that_has_not_begun_is_no_file_and_changes_nothing(tmp_path, snapshot, tied, mean):
    checkpoint = CheckpointDirectory(tmp_path).save(snapshot(1, mean({})))
    assert not (checkpoint.path / "average.safetensors").exists()
    retained = mean({"a": torch.ones(1)})
    checkpoint.load_average(retained)
    assert retained.held.keys() == {"a"}
    checkpoint.load_model(tied(), averaged=True)


def test_a_damaged_mean_is_a_fault(tmp_path, snapshot, mean):
    directory = CheckpointDirectory(tmp_path)
    directory.save(snapshot(1, mean({"middle.weight": torch.ones(3, 3)})))
    (tmp_path / "ckpt-1" / "average.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"average.safetensors is missing"):
        Checkpoint(1, tmp_path / "ckpt-1").verify()
