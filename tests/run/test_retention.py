"""C6: which checkpoints are kept, and which is the best."""

from __future__ import annotations

import json
import math
import shutil

import pytest

from t2t_torch.errors import CheckpointError
from t2t_torch.run.checkpoint import Checkpoint
from t2t_torch.run.checkpoint_directory import CheckpointDirectory


def steps_of(directory):
    return [checkpoint.step for checkpoint in directory.list()]


def train(snapshot, folder, values, *, lower_is_better=True, hours=None, losses=(), **options):
    """Saves a checkpoint of each step and rates it, as a run does."""
    directory = CheckpointDirectory(folder, **options)
    for step, value in enumerate(values, start=1):
        seconds = 3600.0 * hours[step - 1] if hours else 0.0
        directory.save(snapshot(step, seconds=seconds))
        if value is not None:
            loss = losses[step - 1] if losses else math.nan
            directory.rate(step, value, lower_is_better=lower_is_better, loss=loss)
    return directory


def test_the_best_one_is_kept_also_when_it_is_old(tmp_path, snapshot):
    directory = train(snapshot, tmp_path, [3, 1, 2, 4, 5], keep=2)
    assert steps_of(directory) == [2, 4, 5]
    assert directory.best().step == 2


def test_more_may_be_better(tmp_path, snapshot):
    directory = train(snapshot, tmp_path, [3, 1, 2], lower_is_better=False, keep=1)
    assert steps_of(directory) == [1, 3]
    assert directory.best().step == 1


def test_the_k_best_are_kept_beside_the_last(tmp_path, snapshot):
    directory = train(snapshot, tmp_path, [5, 1, 4, 2, 6, 7], keep=1, keep_best=2)
    assert steps_of(directory) == [2, 4, 6]
    assert [one.step for one in directory.best_ones(9)] == [2, 4, 6]


def test_of_equal_ones_the_latest_is_the_best(tmp_path, snapshot):
    directory = train(snapshot, tmp_path, [1, 1, 1, 2, 3], keep=1, keep_best=2)
    assert steps_of(directory) == [2, 3, 5]
    assert directory.best().step == 3


def test_of_equal_ones_the_one_with_the_lowest_loss_is_the_best(tmp_path, snapshot):
    directory = train(
        snapshot,
        tmp_path,
        [1.0, 1.0, 1.0, 0.9],
        losses=[0.239, 0.0186, 0.05, 0.001],
        lower_is_better=False,
        keep=1,
    )
    assert directory.best().step == 2
    assert steps_of(directory) == [2, 4]


def test_a_loss_that_is_not_finite_comes_after_those_that_are(tmp_path, snapshot):
    losses = [0.5, math.nan, math.inf]
    assert train(snapshot, tmp_path, [1, 1, 1], losses=losses).best().step == 1


def test_a_file_without_losses_keeps_its_checksum(tmp_path, snapshot):
    directory = train(snapshot, tmp_path, [2, 1])
    file = tmp_path / "best.json"
    content = json.loads(file.read_text())
    assert content.pop("losses") == {}
    file.write_text(json.dumps(content))
    assert directory.best().step == 2


@pytest.mark.parametrize("lower_is_better", [True, False])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_never_the_best(tmp_path, snapshot, value, lower_is_better):
    values = [value, 1, value]
    directory = train(snapshot, tmp_path, values, keep=1, lower_is_better=lower_is_better)
    assert directory.best().step == 2
    assert steps_of(directory) == [2, 3]


def test_a_step_that_is_not_finite_any_more_loses_its_value(tmp_path, snapshot):
    directory = train(snapshot, tmp_path, [1, 2])
    directory.rate(1, math.nan, lower_is_better=True)
    assert directory.best().step == 2


def test_nothing_evaluated_has_no_best(tmp_path, snapshot):
    assert train(snapshot, tmp_path, [None, math.nan]).best() is None


def test_multiples_of_every_so_many_steps_are_kept(tmp_path, snapshot):
    directory = train(snapshot, tmp_path, [None] * 8, keep=1, keep_every=3)
    assert steps_of(directory) == [3, 6, 8]


def test_the_first_of_every_so_many_hours_is_kept(tmp_path, snapshot):
    hours = [0.5, 1.9, 2.0, 3.0, 4.5, 4.6, 9.0, 9.5]
    directory = train(snapshot, tmp_path, [None] * 8, hours=hours, keep=1, keep_every_n_hours=2.0)
    assert steps_of(directory) == [3, 5, 7, 8]


def test_a_broken_one_is_not_counted_to_its_hours(tmp_path, snapshot):
    hours = [1, 2, 2.5, 3]
    directory = train(snapshot, tmp_path, [None] * 3, hours=hours, keep_every_n_hours=2.0)
    (tmp_path / "ckpt-2" / "trainer.json").write_text("")
    retained = CheckpointDirectory(tmp_path, keep=1, keep_every_n_hours=2.0)
    retained.save(snapshot(4, seconds=3 * 3600.0))
    assert steps_of(directory) == [3, 4]


def test_the_newest_whole_one_is_kept_though_broken_ones_are_newer(tmp_path, snapshot):
    directory = train(snapshot, tmp_path, [None] * 2)
    (tmp_path / "ckpt-9").mkdir()
    CheckpointDirectory(tmp_path, keep=1).save(snapshot(3))
    assert directory.newest().step == 3


def test_a_rating_may_come_before_its_checkpoint_is_there(tmp_path, snapshot):
    directory = CheckpointDirectory(tmp_path, keep=1)
    directory.rate(1, 0.5, lower_is_better=True)
    assert directory.best() is None
    directory.save(snapshot(1))
    assert directory.best().step == 1


def test_a_broken_best_gives_way_to_the_next_best(tmp_path, snapshot, capsys):
    directory = train(snapshot, tmp_path, [1, 2, 3])
    (tmp_path / "ckpt-1" / "model.safetensors").write_bytes(b"")
    assert directory.best().step == 2
    assert "broken checkpoint ignored" in capsys.readouterr().err


def test_when_all_that_were_evaluated_are_broken_there_is_no_best_to_take(tmp_path, snapshot):
    directory = train(snapshot, tmp_path, [1, None])
    (tmp_path / "ckpt-1" / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"every checkpoint .* that was evaluated is broken"):
        directory.best()


def test_values_are_the_same_however_early_checkpoints_are_deleted(tmp_path, snapshot):
    directory = train(snapshot, tmp_path, [3, 2, 1, 4], keep=1)
    written = (tmp_path / "best.json").read_bytes()
    assert set(json.loads(written)["values"]) == {"1", "2", "3", "4"}
    directory.rate(4, 4, lower_is_better=True)  # as a restarted run does
    assert (tmp_path / "best.json").read_bytes() == written
    directory.rate(2, 2, lower_is_better=True)  # the checkpoints of 3 and 4 are there
    assert (tmp_path / "best.json").read_bytes() == written


def test_values_of_steps_that_a_run_has_lost_are_forgotten(tmp_path, snapshot):
    directory = train(snapshot, tmp_path, [3, 2, 1, 4], keep=4)
    for lost in (3, 4):
        shutil.rmtree(tmp_path / f"ckpt-{lost}")
    directory.rate(2, 2, lower_is_better=True)
    assert set(json.loads((tmp_path / "best.json").read_text())["values"]) == {"1", "2"}


def test_values_of_another_direction_are_forgotten(tmp_path, snapshot):
    directory = train(snapshot, tmp_path, [0.1, 0.2])
    directory.rate(2, 0.3, lower_is_better=False)
    assert [one.step for one in directory.best_ones(9)] == [2]


def test_values_of_another_metric_are_forgotten_though_more_of_both_is_better(tmp_path, snapshot):
    directory = train(snapshot, tmp_path, [None] * 3)
    for step, value, metric in ((1, 30.0, "bleu"), (2, 0.5, "accuracy"), (3, 0.4, "accuracy")):
        directory.rate(step, value, lower_is_better=False, metric=metric)
    assert [one.step for one in directory.best_ones(9)] == [2, 3]


def test_values_of_a_file_that_names_no_metric_are_kept(tmp_path, snapshot):
    directory = train(snapshot, tmp_path, [1, 2])
    file = tmp_path / "best.json"
    content = json.loads(file.read_text())
    del content["metric"], content["sha256"]
    file.write_text(json.dumps(content))
    directory.rate(2, 3.0, lower_is_better=True, metric="loss")
    assert [one.step for one in directory.best_ones(9)] == [1, 2]


@pytest.mark.parametrize("place", ["verify", "check_vocabularies"])
def test_of_the_best_one_that_is_deleted_meanwhile_is_passed_over(
    tmp_path, snapshot, capsys, monkeypatch, place
):
    """A trainer's save deletes what a reader beside it has listed."""
    directory = train(snapshot, tmp_path, [1, 2, 3])
    whole = getattr(Checkpoint, place)

    def delete_first(checkpoint, *given):
        if checkpoint.step == 1:
            shutil.rmtree(checkpoint.path)
        whole(checkpoint, *given)

    monkeypatch.setattr(Checkpoint, place, delete_first)
    assert [one.step for one in directory.best_ones(2)] == [2, 3]
    assert capsys.readouterr().err == ""


def test_the_only_best_one_is_deleted_meanwhile(tmp_path, snapshot, monkeypatch):
    directory = train(snapshot, tmp_path, [1, None])
    whole = Checkpoint.verify

    def delete(checkpoint):
        shutil.rmtree(checkpoint.path)
        whole(checkpoint)

    monkeypatch.setattr(Checkpoint, "verify", delete)
    assert directory.best() is None, "as where none was evaluated; nothing is broken"


def test_a_rating_that_was_altered_is_refused(tmp_path, snapshot):
    directory = train(snapshot, tmp_path, [1.5, 2.5])
    file = tmp_path / "best.json"
    file.write_text(file.read_text().replace("1.5", "3.5"))
    with pytest.raises(CheckpointError, match=r"best.json.* was altered"):
        directory.best()


@pytest.mark.parametrize("content", ["", "[]", '{"lower_is_better": true}', "{"])
def test_nothing_is_deleted_when_it_is_not_known_which_is_best(tmp_path, snapshot, capsys, content):
    directory = train(snapshot, tmp_path, [1, 2], keep=1)
    (tmp_path / "best.json").write_text(content)
    directory.save(snapshot(3))
    assert steps_of(directory) == [1, 2, 3]
    assert "best.json, which says which checkpoint is best, is damaged" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="is damaged"):
        directory.best()
    directory.rate(3, 3, lower_is_better=True)
    assert directory.best().step == 3


def test_a_rating_that_cannot_be_written_is_warned_of(tmp_path, snapshot, capsys, monkeypatch):
    directory = train(snapshot, tmp_path, [1])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("t2t_torch.run.storage.os.fsync", full)
    directory.rate(1, 0.5, lower_is_better=True)
    assert "best.json cannot be written" in capsys.readouterr().err
    assert json.loads((tmp_path / "best.json").read_text())["values"] == {"1": 1.0}
