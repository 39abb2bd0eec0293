"""Steps of a fixed number of micro-batches, whatever the number of processes: R5."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import numbered
import processes
import pytest
import torch
from conftest import SMOOTH, reports_of
from processes import LONGEST_EXCHANGE
from safetensors.torch import load_file
from torch import nn

from t2t_torch import registry
from t2t_torch.distributed import ordered_sum
from t2t_torch.distributed.process_group import ONE_PROCESS, World
from t2t_torch.errors import HParamsError, UsageError
from t2t_torch.run.checkpoint import Checkpoint, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.train import run_config
from t2t_torch.train.run_config import RunConfig
from t2t_torch.train.task import Evaluator

CPU = torch.device("cpu")
N = 4
EVERY = {"local_eval_frequency": 2, "eval_steps": 3}


def tree_sum(values, node=(0, 0)):
    """The sum of a tree as its definition says, without any order of arrival."""
    children = ordered_sum._children(node, len(values))
    if not children:
        return values[node[1]].clone()
    left, right = (tree_sum(values, child) for child in children)
    return left + right


@pytest.mark.parametrize("count", [1, 2, 3, 6, 7, 8, 12])
def test_any_number_of_processes_adds_in_the_order_of_the_tree(count):
    values = list(torch.randn(count, 3).unbind())
    expected = tree_sum(values)
    assert sorted(ordered_sum.in_order(count)) == list(range(count))
    for size in range(1, count + 1):
        whole: dict = {}
        for rank in range(size):
            owned, own = {j for j in range(count) if j % size == rank}, {}
            for leaf in random.sample(sorted(owned), len(owned)):
                depth = max(leaf.bit_length(), (count - leaf - 1).bit_length())
                ordered_sum.add(own, (depth, leaf), [values[leaf].clone()])
            assert set(own) == set(ordered_sum.subtrees(owned, count))
            for node, sums in own.items():
                ordered_sum.add(whole, node, sums)
        assert list(whole) == [(0, 0)]
        assert torch.equal(whole[0, 0][0], expected)


def test_a_process_holds_no_more_sums_than_the_tree_is_deep():
    sums: dict = {}
    for leaf in ordered_sum.in_order(64):
        ordered_sum.add(sums, (6, leaf), [torch.ones(1)])
        assert len(sums) <= 6
    assert float(sums[0, 0][0]) == 64


@pytest.fixture
def run(data_dir, tmp_path):
    """Trains on in some processes; returns the numbers of the examples in order."""

    def train(name, until, size=1, hparams=SMOOTH, **config):
        notes = tmp_path / f"{name}-{until}"
        told = {
            "data_dir": str(data_dir),
            "output_dir": str(tmp_path / name),
            "until": until,
            "notes": str(notes),
            "hparams": hparams,
            "schedule": "train_and_evaluate",
            "config": {**EVERY, **config},
        }
        for child in processes.start_world(tmp_path / "errors", size, processes.train, told):
            code = child.wait()
            assert code == 0, child.said
        each = [json.loads(Path(f"{notes}.{rank}").read_text()) for rank in range(size)]
        start, end = each[0]["start"], each[0]["state"]["batches_consumed"]
        places = (divmod(n - start, size) for n in range(start, end))
        return [each[rank]["consumed"][place] for place, rank in places]

    return train


def tensors_of(folder):
    """All that the newest checkpoint stores, and what the run has reported."""
    newest = CheckpointDirectory(folder).newest()
    files = sorted(newest.path.glob("*.safetensors"))
    assert len(files) > 1
    stored = ((file.stem, load_file(file)) for file in files)
    return {f"{kind}/{name}": value for kind, of in stored for name, value in of.items()}


def assert_equal_runs(one, other):
    """To the last bit."""
    expected = tensors_of(other)
    found = tensors_of(one)
    assert found.keys() == expected.keys()
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []
    assert reports_of(one) == reports_of(other)


def test_one_two_three_and_four_processes_give_equal_bits(run, tmp_path):
    """With dropout and evaluations; in turn, too, where three do not divide a step."""
    whole = run("one", 4, deterministic_world=N)
    assert run("four", 4, 4, deterministic_world=N) == whole
    assert_equal_runs(tmp_path / "four", tmp_path / "one")
    parts = run("turns", 2, 3, deterministic_world=N)
    assert parts + run("turns", 4, 2, deterministic_world=N) == whole
    assert_equal_runs(tmp_path / "turns", tmp_path / "one")


@pytest.mark.parametrize(
    ("hparams", "config", "warns"),
    [
        (SMOOTH, {"deterministic_world": N}, False),
        (SMOOTH, {"keep_global_batch": True}, False),
        (f"{SMOOTH},shard_weights=True", {"keep_global_batch": True}, False),
        (SMOOTH, {"deterministic_world": N}, True),
    ],
)
def test_digests_of_another_number_of_processes_are_compared_where_they_are_equal(
    run, tmp_path, hparams, config, warns
):
    run("run", 4, 2, hparams, digest_every=1, **config)
    log = tmp_path / "run" / "digests.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[3]["gradients"][0] += warns
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shutil.rmtree(tmp_path / "run" / "ckpt-4")
    run("run", 4, 1, hparams, digest_every=1, **config)
    said = (tmp_path / "errors" / "0.err").read_text()
    assert ("step 4 is not as it was before the interruption: the gradients first" in said) == warns
    assert "resuming from step 2" in said


@pytest.mark.parametrize(
    "shares", [[[0, 1, 2, 3]], [[0, 2], [1, 3]], [[0, 3], [1], [2]], [[1], [0, 2, 3]]]
)
def test_metrics_are_sums_of_batches_in_an_order_of_their_own(shares):
    def metrics():
        rows = {"f1": [torch.zeros(0, 2).double()]}
        one = SimpleNamespace(sums=torch.zeros(2).double(), rows=rows)

        def update(output, batch):
            one.sums += output
            rows["f1"].append(batch)

        one.update = update
        return one

    numbers = torch.tensor(
        [[1e16, 0.1], [1.0, 1e-17], [-1e16, 0.2], [1.0, 0.3]], dtype=torch.float64
    )
    evaluators = []
    for share in shares:
        evaluator = Evaluator(metrics())
        evaluator.in_order = True
        for batch in share:
            evaluator.update(numbers[batch], numbers[[batch, 0]])
        evaluators.append(evaluator)
    sums = [evaluator._parts for evaluator in evaluators]
    rows = [torch.cat(evaluator.metrics.rows["f1"]) for evaluator in evaluators]
    gathered = iter([sums, rows])
    evaluators[-1].synchronize(SimpleNamespace(gather=lambda own: next(gathered)))
    found = evaluators[-1].metrics
    # ascending: -1e16 + 1 + 1 + 1e16, where the first two ones are lost
    assert found.sums.tolist() == [0.0, 0.6000000000000001]
    assert torch.cat(found.rows["f1"]).tolist() == sorted(
        torch.cat(rows).tolist(), key=lambda row: row[::-1]
    )


@pytest.mark.slow
def test_a_process_without_memory_computes_pieces_or_is_skipped_by_all(run, tmp_path, data_dir):
    """Others do not hang; every process still has the same weights."""
    told = {
        "data_dir": str(data_dir),
        "output_dir": str(tmp_path / "run"),
        "until": 3,
        "notes": str(tmp_path / "notes"),
        "config": {"deterministic_world": N},
        "faults": {"memory": [1, [3, *range(8, 200)]]},
    }
    for child in processes.start_world(tmp_path / "errors", 2, processes.train, told):
        code = child.wait()
        assert code == 0, child.said
    one, other = (json.loads((tmp_path / f"notes.{rank}").read_text()) for rank in (0, 1))
    assert one["weights"] == other["weights"]
    assert one["state"]["skipped"] == 1


def test_one_two_three_and_one_processes_keep_the_batch(run, tmp_path):
    """Three of four micro-batches: each takes one, and in turn one more."""
    whole = run("whole", 9, hparams=f"{SMOOTH},optimizer_multistep_accumulate_steps=4")
    parts = run("parts", 2, hparams=f"{SMOOTH},optimizer_multistep_accumulate_steps=4")
    for until, size in ((4, 2), (7, 3), (9, 1)):
        parts += run("parts", until, size, keep_global_batch=True)
    assert parts == whole
    expected = tensors_of(tmp_path / "whole")
    for name, value in tensors_of(tmp_path / "parts").items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.slow
def test_without_it_the_batch_follows_and_every_row_still_comes_once_an_epoch(run, tmp_path):
    """Two steps of one batch, three of two, and the rest of two epochs of ten in steps of three."""
    epochs = {"keep_global_batch": False, "train_epochs": 2}
    parts = run("run", 2, pause_at_step=2, **epochs)
    parts += run("run", 5, 2, pause_at_step=5, **epochs)
    assert len(parts) == 8
    parts += run("run", 9, 3, **epochs)
    assert len(parts) == 20
    rows = [sorted(itertools.chain.from_iterable(parts[at : at + 10])) for at in (0, 10)]
    assert rows == [sorted(set(rows[0]))] * 2
    assert len(rows[0]) == numbered.EXAMPLES
    said = (tmp_path / "errors" / "0.err").read_text()
    assert "--keep_global_batch=False: a step was 2 batches, and is 3 from here on" in said


def test_without_either_the_error_names_both(run, tmp_path):
    run("run", 2)
    with pytest.raises(AssertionError, match="--keep_global_batch=True, which keeps the 1, or"):
        run("run", 4, 2)


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ("shard_weights=True", "shard_weights=True does not go with --deterministic_world"),
        ("stream_length=8", "stream_length=8 does not go with --deterministic_world"),
        (
            "optimizer_multistep_accumulate_steps=2",
            "optimizer_multistep_accumulate_steps=2: --deterministic_world is the number of",
        ),
    ],
)
def test_hparams_that_do_not_go_with_a_fixed_order(hparams, message):
    with pytest.raises(HParamsError, match=message):
        ordered_sum.check(registry.hparams("transformer_test").parse(hparams))


def test_more_processes_than_micro_batches():
    task = SimpleNamespace(hparams=registry.hparams("transformer_test"))
    config = RunConfig(deterministic_world=2)
    with pytest.raises(UsageError, match=r"a step is 2 micro-batches, too few for 3 processes"):
        run_config.open_data(task, config, World(0, 3, CPU), TrainerState(), None)


def test_sharded_weights_of_processes_that_do_not_divide_a_step():
    task = SimpleNamespace(hparams=registry.hparams("transformer_test").parse("shard_weights=True"))
    config, state = RunConfig(keep_global_batch=True), TrainerState(batches_per_step=4)
    state.batches_consumed = 4
    newest = Checkpoint(1, Path("ckpt-1"))
    with pytest.raises(HParamsError, match="3 processes cannot share the 4 of a step evenly"):
        run_config.open_data(task, config, World(0, 3, CPU), state, newest)


def test_several_problems_evaluate_all_batches():
    task = SimpleNamespace(hparams=registry.hparams("transformer_test"), evaluates_in_order=False)
    with pytest.raises(UsageError, match="Give --eval_steps=0"):
        run_config.open_data(
            task, RunConfig(deterministic_world=2), ONE_PROCESS, TrainerState(), None
        )


class _Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(3, 2, sparse=True)
        self.norm = nn.BatchNorm1d(2)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (["embedding"], r"the gradient of embedding\.weight is sparse"),
        (["norm"], r"changes the model\'s buffer norm\.num_batches_tracked, .* BatchNorm\)"),
    ],
)
def test_a_model_whose_gradients_or_buffers_depend_on_its_process(layers, message):
    model = _Model()
    ordered = ordered_sum.OrderedSum(model, 2, 0, ONE_PROCESS)
    ordered.begin([(0, None), (1, None)])
    output = torch.tensor([0, 1]) if "embedding" in layers else torch.ones(2, 2)
    for layer in layers:
        output = model.get_submodule(layer)(output)
    output.sum().backward()
    with pytest.raises(HParamsError, match=message):
        ordered.add(0, torch.zeros(4))


SECONDS_TO_NAME = 30  # beside the time-out, on a busy machine; alone it takes 1


def test_a_step_that_one_process_finds_wrong_is_saved_by_none(tmp_path, data_dir):
    told = {
        "data_dir": str(data_dir),
        "output_dir": str(tmp_path / "run"),
        "until": 9,
        "exchange_timeout": LONGEST_EXCHANGE,
        "config": {"digest_every": 8},
        "faults": {"flip": [1, 3]},
    }
    leader, other = processes.start_world(tmp_path / "errors", 2, processes.train, told)
    assert (leader.wait(), other.wait()) == (1, 1)
    assert "before that of step 3, where nothing writes to it" in other.said
    assert "rank 1 on host" in leader.said
    assert "CorruptionError" in leader.said
    assert "is saved" not in leader.said
    assert CheckpointDirectory(tmp_path / "run").list() == []


@pytest.mark.parametrize(
    ("number", "faults", "message"),
    [
        pytest.param(
            signal.SIGKILL,
            {},
            "rank 1 on host {} did not answer: killed, stopped, or its host",
            marks=pytest.mark.slow,
        ),
        (None, {"error": [1, 6]}, "rank 1 on host {} failed: ValueError: spam."),
        pytest.param(
            signal.SIGSTOP, {}, "rank 1 on host {} did not answer", marks=pytest.mark.slow
        ),
        pytest.param(
            None,
            {"hang": [1, 6]},
            "rank 1 on host {} runs, but took no part in an exchange: raise --exchange_timeout",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_error_names_who_is_missing_and_the_last_step_is_saved(
    data_dir, tmp_path, number, faults, message
):
    told = {
        "data_dir": str(data_dir),
        "output_dir": str(tmp_path / "run"),
        "until": 100_000,
        "hparams": SMOOTH,
        "faults": faults,
        "exchange_timeout": LONGEST_EXCHANGE,
    }
    leader, other = processes.start_world(tmp_path / "errors", 2, processes.train, told)
    if number:
        file = tmp_path / "run" / "metrics.jsonl"
        other.wait_until(lambda: file.exists() and file.read_text().count("\n") >= 3)
        os.kill(other.pid, number)
    began = time.monotonic()
    assert leader.wait() == 1
    other.kill()
    assert time.monotonic() - began < LONGEST_EXCHANGE + SECONDS_TO_NAME
    assert message.format(socket.gethostname()) in leader.said
    newest = CheckpointDirectory(tmp_path / "run").newest()
    assert f"a process was lost: step {newest.step} is saved" in leader.said
    assert newest.step == (5 if faults else newest.step) >= 3
