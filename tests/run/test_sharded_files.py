"""Checkpoints of divided weights: each process writes its own parts, and all or none is there.

Processes are threads here, and what a process holds of a tensor is made with torch's group that
exchanges nothing; tests/train/test_sharded.py has processes.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import threading

import pytest
import safetensors
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import HuggingFaceStorageReader
from torch.distributed.checkpoint import load as load_with_torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from t2t_torch.errors import CheckpointError
from t2t_torch.run import checkpoint as checkpoint_module
from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory, SaveError
from t2t_torch.run.storage import PeerDefectError
from t2t_torch.run.tensors import StoredTensors, divided_as
from t2t_torch.run.warm_start import average_checkpoints, warm_start

ROWS = 5  # of the table: not as many in each of two processes
_MESHES = itertools.count()


class Threads:
    """Processes that are threads of this one."""

    def __init__(self, size):
        self.size = size
        self.barrier = threading.Barrier(size, timeout=300)
        self.messages = [""] * size

    def of(self, rank):
        return _Peer(self, rank)


class _Peer:
    def __init__(self, threads, rank):
        self.threads, self.rank, self.size = threads, rank, threads.size

    @property
    def leads(self):
        return self.rank == 0

    def gather(self, message):
        threads = self.threads
        threads.messages[self.rank] = message
        threads.barrier.wait()
        messages = list(threads.messages)
        threads.barrier.wait()
        return messages


@contextlib.contextmanager
def process(rank, size):
    """Inside it is one of so many processes, which exchange nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        # torch remembers what it did for a mesh of this name, for the process that it then was.
        yield init_device_mesh("cpu", (size,), mesh_dim_names=(f"mesh{next(_MESHES)}",))
    finally:
        dist.destroy_process_group()


def divide(model, optimizer, mesh):
    """Leaves in a model and its optimizer what this process holds of them."""
    slots = {id(p): dict(state) for p, state in optimizer.state.items()}
    divided = {}
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            if id(p) not in divided:
                part = distribute_tensor(p.detach(), mesh, [Shard(0)], src_data_rank=None)
                divided[id(p)] = nn.Parameter(part)
            setattr(module, name, divided[id(p)])
    fresh = torch.optim.Adam(model.parameters(), lr=0.1)
    for old, part in divided.items():
        if old in slots:
            fresh.state[part] = {s: divided_as(value, part) for s, value in slots[old].items()}
    return fresh


@pytest.fixture
def shares(trained, mean):
    """Makes the snapshots of all processes of a run that is divided."""

    def make(step=1, size=2):
        result = []
        for rank in range(size):
            model, optimizer = trained(ROWS)
            with process(rank, size) as mesh:
                optimizer = divide(model, optimizer, mesh)
                average = mean({n: p.detach() + 1 for n, p in model.named_parameters()})
                state = TrainerState(step=step)
                result.append(Snapshot.take(model, optimizer, state, average))
        return result

    return make


def save(path, snapshots, prepare=lambda directory: None):
    """Saves shares, each in a thread; returns what became of each: an error or None."""
    threads, outcomes = Threads(len(snapshots)), [None] * len(snapshots)

    def run(rank):
        directory = CheckpointDirectory(path, wait=lambda seconds: None)
        directory.peers = threads.of(rank)
        prepare(directory)
        try:
            directory.save(snapshots[rank])
        except Exception as error:
            outcomes[rank] = error

    started = [threading.Thread(target=run, args=(rank,)) for rank in range(len(snapshots))]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(600)
        assert not thread.is_alive()
    return outcomes


def saved(path, snapshots):
    assert save(path, snapshots) == [None] * len(snapshots)
    return CheckpointDirectory(path).at(snapshots[0].state.step)


def same(first, second):
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=0, atol=0)


def test_a_process_copies_its_own_parts_and_exchanges_nothing(trained):
    whole, _ = trained(ROWS)
    for rank, rows in enumerate([(0, 3), (3, 5)]):
        model, optimizer = trained(ROWS)
        with process(rank, 2) as mesh, CommDebugMode() as exchanged:
            optimizer = divide(model, optimizer, mesh)
            snapshot = Snapshot.take(model, optimizer, TrainerState(step=1))
        assert exchanged.get_total_counts() == 0
        table = whole.embedding.weight.detach()
        same({"": snapshot.weights["embedding.weight"]}, {"": table[slice(*rows)]})
        assert snapshot.slots["embedding.weight/exp_avg"].shape == (rows[1] - rows[0], 3)
        assert ("seen" in snapshot.weights) == (rank == 0)  # what all have alike, the leader saves
        assert ("embedding.weight/step" in snapshot.slots) == (rank == 0)


def test_each_process_writes_a_file_with_its_parts_alone(shares, tmp_path):
    snapshots = shares()
    checkpoint = saved(tmp_path, snapshots)
    for rank, snapshot in enumerate(snapshots):
        file = checkpoint.path / "optimizer" / f"{rank + 1:05}-of-00002.safetensors"
        with safetensors.safe_open(file, framework="pt") as opened:
            names = list(opened.keys())
            same({name: opened.get_tensor(name) for name in names}, snapshot.slots)
    listed = checkpoint.manifest()["files"].keys()
    there = {str(f.relative_to(checkpoint.path)) for f in checkpoint.path.rglob("*") if f.is_file()}
    assert listed | {"MANIFEST.json"} == there


def test_a_process_alone_loads_all_of_it(shares, trained, mean, tmp_path):
    checkpoint = saved(tmp_path, shares())
    expected, slots = trained(ROWS)
    model, optimizer = trained(ROWS)
    for tensor in (*model.parameters(), *(v for s in optimizer.state.values() for v in s.values())):
        tensor.data.zero_()
    average = mean({})
    checkpoint.load_model(model)
    checkpoint.load_optimizer(optimizer, model)
    checkpoint.load_average(average)
    same(dict(model.state_dict()), dict(expected.state_dict()))
    for index, state in slots.state_dict()["state"].items():
        same(optimizer.state_dict()["state"][index], state)
    same(average.held, {name: p.detach() + 1 for name, p in expected.named_parameters()})
    checkpoint.load_model(model, averaged=True)
    same({"": model.softmax.weight.detach()}, {"": expected.softmax.weight.detach() + 1})


@pytest.mark.sample(2)
@pytest.mark.parametrize("size", [2, 4])  # 4: one of them has nothing of the table
@pytest.mark.parametrize("divided", [2, 4, 0])
def test_any_number_of_processes_load_their_parts(shares, trained, mean, tmp_path, size, divided):
    if divided:
        checkpoint = saved(tmp_path, shares(size=divided))
    else:
        model, optimizer = trained(ROWS)
        average = mean({name: p.detach() + 1 for name, p in model.named_parameters()})
        whole = Snapshot.take(model, optimizer, TrainerState(step=1), average)
        checkpoint = CheckpointDirectory(tmp_path).save(whole)
    for rank in range(size):
        expected, slots = trained(ROWS)
        model, optimizer = trained(ROWS)
        with process(rank, size) as mesh:
            slots, optimizer = divide(expected, slots, mesh), divide(model, optimizer, mesh)
            with torch.no_grad():
                for tensor in model.parameters():
                    tensor.zero_()
            optimizer.state.clear()
            average = mean({})
            checkpoint.load_model(model)
            checkpoint.load_optimizer(optimizer, model)
            checkpoint.load_average(average, model)
            for (name, ours), theirs in zip(
                model.named_parameters(), expected.parameters(), strict=True
            ):
                same({"": ours.to_local()}, {"": theirs.to_local()})
                for slot, value in slots.state[theirs].items():
                    result = optimizer.state[ours][slot]
                    assert isinstance(result, DTensor) == isinstance(value, DTensor)
                    pair = [t.to_local() if isinstance(t, DTensor) else t for t in (result, value)]
                    same({"": pair[0]}, {"": pair[1]})
                same({"": average.held[name].to_local()}, {"": theirs.to_local() + 1})


def test_torchs_own_reader_reads_the_parts(shares, trained, tmp_path):
    checkpoint = saved(tmp_path, shares())
    expected = trained(ROWS)[0].state_dict()
    del expected["softmax.weight"]  # the table's other name
    result = {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
    with pytest.warns(UserWarning, match="single process"):
        load_with_torch(
            result, storage_reader=HuggingFaceStorageReader(str(checkpoint.path / "model"))
        )
    same(result, dict(expected))


@pytest.fixture
def disk(monkeypatch):
    """Fails the second process as often as `left` says, with `error`."""
    write = checkpoint_module.write_file

    class Disk:
        left = 0
        error: Exception = OSError(errno.ENOSPC, "No space left on device")

    def write_or_fail(path, chunks):
        if Disk.left and path.name.startswith("00002"):
            Disk.left -= 1
            raise Disk.error
        return write(path, chunks)

    monkeypatch.setattr(checkpoint_module, "write_file", write_or_fail)
    return Disk


def test_a_save_that_fails_in_one_process_fails_in_all(shares, tmp_path, disk):
    saved(tmp_path, shares(1))
    before = sorted(tmp_path.rglob("*"))
    disk.left = 4  # the first attempt and its three repetitions
    outcomes = save(tmp_path, shares(2))
    assert [type(error) for error in outcomes] == [SaveError, SaveError]
    assert "process 1" in str(outcomes[0])
    assert "No space left" in str(outcomes[0])
    assert sorted(tmp_path.rglob("*")) == before  # nothing half is left


def test_a_save_is_tried_again_by_all(shares, tmp_path, disk):
    disk.left = 3
    saved(tmp_path, shares(1))
    assert disk.left == 0


def test_nobody_tries_again_when_one_has_given_up(shares, tmp_path, disk):
    disk.left = 2

    def give_up(directory):
        if directory.peers.rank == 1:
            directory.retries.give_up()

    outcomes = save(tmp_path, shares(1), give_up)
    assert [type(error) for error in outcomes] == [SaveError, SaveError]
    assert disk.left == 1


def test_a_later_state_takes_the_place_in_all_when_it_does_in_one(shares, tmp_path, disk):
    disk.left = 2
    outcomes = save(
        tmp_path, shares(1), lambda directory: setattr(directory.retries, "is_replaced", True)
    )
    assert [type(error) for error in outcomes] == [SaveError, SaveError]
    assert disk.left == 1

    def late(directory):
        if directory.peers.rank == 1:
            directory.wait = lambda seconds: setattr(directory.retries, "is_replaced", True)

    disk.left = 2
    outcomes = save(tmp_path, shares(1), late)
    assert all("It is not tried again" in str(error) for error in outcomes)
    assert disk.left == 1


def test_a_defect_in_one_process_ends_the_save_of_all(shares, tmp_path, disk):
    disk.left, disk.error = 1, TypeError("of complex128")
    outcomes = save(tmp_path, shares(1))
    assert [type(error) for error in outcomes] == [PeerDefectError, TypeError]
    assert "process 1: TypeError: of complex128" in str(outcomes[0])
    assert not list(tmp_path.iterdir())


def test_a_process_that_dies_ends_the_save_of_the_others(shares, tmp_path):
    snapshots = shares(1)
    threads = Threads(2)
    directory = CheckpointDirectory(tmp_path, wait=lambda seconds: None)
    directory.peers = threads.of(0)
    dying = threading.Timer(0.05, threads.barrier.abort)
    dying.start()
    with pytest.raises(threading.BrokenBarrierError):  # a RuntimeError, as gloo's is
        directory.save(snapshots[0])
    dying.join()
    assert not list(tmp_path.iterdir())


def test_a_step_that_is_there_is_not_written_again(shares, tmp_path):
    checkpoint = saved(tmp_path, shares(1))
    written = {file: file.stat().st_mtime_ns for file in checkpoint.path.rglob("*")}
    saved(tmp_path, shares(1))
    assert {file: file.stat().st_mtime_ns for file in checkpoint.path.rglob("*")} == written


@pytest.mark.parametrize("how", ["gone", "altered", "shorter"])
def test_a_broken_part_is_noticed_and_the_one_before_is_taken(shares, tmp_path, how):
    saved(tmp_path, shares(1))
    part = saved(tmp_path, shares(2)).path / "optimizer" / "00002-of-00002.safetensors"
    content = part.read_bytes()
    part.unlink()
    if how == "altered":
        part.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif how == "shorter":
        part.write_bytes(content[:-1])
    newest = CheckpointDirectory(tmp_path).newest(repair=True)
    assert newest.step == 1
    assert (tmp_path / "ckpt-2.corrupt").is_dir()


def test_a_manifest_without_one_of_the_parts_is_refused(shares, tmp_path):
    checkpoint = saved(tmp_path, shares())
    manifest = checkpoint.manifest()
    del manifest["files"]["model/00002-of-00002.safetensors"]
    (checkpoint.path / "MANIFEST.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"does not list .*model/00002-of-00002"):
        checkpoint.verify()


def test_parts_that_are_not_all_of_a_tensor_are_refused(shares, tmp_path):
    checkpoint = saved(tmp_path, shares())
    (checkpoint.path / "model" / "00001-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"parts of .* are missing"):
        StoredTensors(checkpoint.path / "model")


def test_old_checkpoints_of_parts_are_deleted(shares, tmp_path):
    for step in (1, 2):
        snapshots, threads = shares(step), Threads(2)
        ranks = [CheckpointDirectory(tmp_path, keep=1) for _ in range(2)]
        for rank, directory in enumerate(ranks):
            directory.peers = threads.of(rank)
        other = threading.Thread(target=ranks[1].save, args=(snapshots[1],))
        other.start()
        ranks[0].save(snapshots[0])
        other.join()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt-2", "latest.json"]


def test_parts_are_averaged_and_begun_with(shares, trained, tied, tmp_path):
    checkpoints = [saved(tmp_path, shares(step)) for step in (1, 2)]
    (tmp_path / "mean").mkdir()
    average = average_checkpoints(checkpoints, CheckpointDirectory(tmp_path / "mean"))
    expected = trained(ROWS)[0]
    model = tied(ROWS)
    average.load_model(model)
    same(dict(model.state_dict()), dict(expected.state_dict()))
    started = tied(ROWS)
    report = warm_start(started, tmp_path)
    assert not report.skipped
    assert not report.unused
    same({"": started.middle.weight.detach()}, {"": expected.middle.weight.detach() + 1})
