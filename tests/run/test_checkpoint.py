"""Checkpoints: whole or set aside, never half."""

from __future__ import annotations

import json

import pytest
import safetensors.torch
import torch
from torch import nn

from t2t_torch.errors import CheckpointError
from t2t_torch.layers.recurrent import CarriedMemory
from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.tensors import load_weights


def steps_of(directory):
    return [checkpoint.step for checkpoint in directory.list()]


def test_what_is_saved_is_loaded_bit_by_bit(tmp_path, trained):
    model, optimizer = trained()
    state = TrainerState(step=7, batches_consumed=14, batches_per_step=2, tokens=99, seed=3)
    checkpoint = CheckpointDirectory(tmp_path).save(Snapshot.take(model, optimizer, state))
    other, other_optimizer = trained(4)
    with torch.no_grad():
        other.embedding.weight.zero_()

    checkpoint.load_model(other)
    checkpoint.load_optimizer(other_optimizer, other)

    assert checkpoint.trainer_state() == state
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
    for index, slots in optimizer.state_dict()["state"].items():
        for name, value in slots.items():
            assert torch.equal(other_optimizer.state_dict()["state"][index][name], value)


def test_a_tied_table_is_stored_once_and_stays_tied(tmp_path, trained, tied):
    model, optimizer = trained()
    checkpoint = CheckpointDirectory(tmp_path).save(
        Snapshot.take(model, optimizer, TrainerState(step=1))
    )
    size = (checkpoint.path / "model.safetensors").stat().st_size
    other = tied()
    checkpoint.load_model(other)
    numbers = 4 * 3 + 3 * 3 + 3 + 2
    assert numbers * 4 <= size < (numbers + 4 * 3) * 4 + 500  # a header of a few hundred bytes
    assert other.softmax.weight is other.embedding.weight


def test_weights_of_another_shape_are_refused_with_both_shapes(tmp_path, trained, tied):
    model, optimizer = trained(4)
    checkpoint = CheckpointDirectory(tmp_path).save(
        Snapshot.take(model, optimizer, TrainerState(step=1))
    )
    with pytest.raises(
        CheckpointError, match=r"embedding.weight is \[4, 3\], the model's is \[5, 3\]"
    ):
        checkpoint.load_model(tied(5))


def test_missing_and_unknown_weights_are_all_named(tmp_path, snapshot):
    checkpoint = CheckpointDirectory(tmp_path).save(snapshot())
    with pytest.raises(CheckpointError, match=r"no middle.bias(.|\n)*it has no bias"):
        load_weights(nn.Linear(3, 3), checkpoint.path / "model.safetensors")


def test_the_newest_is_found_by_number_not_by_name_or_hint(tmp_path, save):
    directory = save(tmp_path, [9, 10, 100])
    (tmp_path / "latest.json").write_text('{"checkpoint": "ckpt-9", "step": 9}')
    assert directory.newest().step == 100


def test_there_is_none_in_a_new_directory(tmp_path):
    assert CheckpointDirectory(tmp_path / "not yet").newest() is None


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "trainer.json"])
@pytest.mark.parametrize("damage", ["empty", "half", "flipped", "gone"])
def test_a_damaged_file_sets_its_checkpoint_aside_and_the_one_before_is_used(
    tmp_path, capsys, file, damage, save
):
    directory = save(tmp_path, [1, 2])
    path = tmp_path / "ckpt-2" / file
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        content[len(content) // 2] ^= 1
        ends = {"empty": 0, "half": len(content) // 2, "flipped": len(content)}
        path.write_bytes(content[: ends[damage]])

    assert directory.newest(repair=True).step == 1

    assert (tmp_path / "ckpt-2.corrupt").is_dir()
    assert steps_of(directory) == [1]
    assert capsys.readouterr().err.count("warning: broken checkpoint set aside") == 1


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"files": {}}', '{"files": {"a": 1}}'])
def test_a_damaged_or_empty_manifest_sets_its_checkpoint_aside(tmp_path, content, save):
    directory = save(tmp_path, [1, 2])
    (tmp_path / "ckpt-2" / "MANIFEST.json").write_text(content)
    assert directory.newest(repair=True).step == 1
    assert (tmp_path / "ckpt-2.corrupt").is_dir()


def test_a_reader_leaves_a_broken_checkpoint_where_it_is(tmp_path, save):
    directory = save(tmp_path, [1, 2])
    (tmp_path / "ckpt-2" / "MANIFEST.json").unlink()
    assert directory.newest().step == 1
    assert steps_of(directory) == [1, 2]


def test_when_all_are_broken_it_refuses_now_and_the_next_time(tmp_path, save):
    directory = save(tmp_path, [1, 2])
    for step in (1, 2):
        (tmp_path / f"ckpt-{step}" / "model.safetensors").write_bytes(b"")
    for _ in range(2):
        with pytest.raises(
            CheckpointError, match=r"every checkpoint(.|\n)*Nothing was overwritten"
        ):
            directory.newest(repair=True)


def test_a_checkpoint_set_aside_twice_keeps_both(tmp_path, save):
    for _ in range(2):
        directory = save(tmp_path, [1, 2])
        (tmp_path / "ckpt-2" / "MANIFEST.json").unlink()
        directory.newest(repair=True)
    assert sorted(path.name for path in tmp_path.glob("*.corrupt*")) == [
        "ckpt-2.corrupt",
        "ckpt-2.corrupt-1",
    ]


def test_the_last_k_are_kept(tmp_path, save):
    assert steps_of(save(tmp_path, [1, 2, 3, 4], keep=2)) == [3, 4]
    assert json.loads((tmp_path / "latest.json").read_text())["step"] == 4


def test_all_are_kept_if_none_shall_go(tmp_path, save):
    assert steps_of(save(tmp_path, range(1, 6), keep=0)) == [1, 2, 3, 4, 5]


def test_the_one_just_written_is_never_deleted(tmp_path, save):
    save(tmp_path, [7, 8])
    directory = save(tmp_path, [3], keep=1)
    assert 3 in steps_of(directory)


def test_a_half_written_one_is_not_seen(tmp_path, save):
    directory = save(tmp_path, [1])
    (tmp_path / "ckpt-1").rename(tmp_path / "ckpt-2.tmp-99")
    assert directory.newest() is None


def test_saving_a_step_again_writes_nothing(tmp_path, save, snapshot):
    directory = save(tmp_path, [1])
    before = (tmp_path / "ckpt-1" / "MANIFEST.json").stat().st_mtime_ns
    directory.save(snapshot(1))
    assert (tmp_path / "ckpt-1" / "MANIFEST.json").stat().st_mtime_ns == before


def test_a_step_that_is_not_there_is_refused_with_those_that_are(tmp_path, save):
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 3. It has: \[1, 2\]"):
        save(tmp_path, [1, 2]).at(3)


def test_an_optimizer_that_keeps_what_cannot_be_stored_is_named(tmp_path):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state[model.weight]["counts"] = [3]
    with pytest.raises(CheckpointError, match="SGD keeps 'counts' as list"):
        CheckpointDirectory(tmp_path).save(Snapshot.take(model, optimizer, TrainerState(step=1)))


def test_nothing_that_could_be_unpickled_is_written(tmp_path, save):
    save(tmp_path, [1])
    kinds = {path.suffix for path in (tmp_path / "ckpt-1").iterdir()}
    assert kinds == {".safetensors", ".json"}


def test_the_memory_of_streams_is_left_out_by_a_model_that_reads_none(tmp_path):
    def made(sizes):
        model = torch.nn.Module()
        model.inner = torch.nn.Linear(2, 2)
        if sizes:
            model.inner.carried = CarriedMemory(sizes, 3)
        return model

    with_memory, without, larger = made([4, 6]), made([]), made([4, 6, 8])
    file = tmp_path / "model.safetensors"
    safetensors.torch.save_file(with_memory.state_dict(), file)
    load_weights(without, file)
    assert torch.equal(without.inner.weight, with_memory.inner.weight)
    with pytest.raises(CheckpointError, match=r"it has no inner\.carried\.layer_2"):
        load_weights(larger, file)
