"""Texts read in streams: what stands where, in training and in evaluation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from t2t_torch.data.generate import generate_data
from t2t_torch.data.shards import Shards
from t2t_torch.errors import DataError, HParamsError
from t2t_torch.features import Features
from t2t_torch.hparam import HParams
from t2t_torch.mode import Split
from t2t_torch.pipeline.streams import EvalStreams, StreamPlan, joined, streamed
from t2t_torch.testing import text_features
from t2t_torch.text_problem import Text2SelfProblem, VocabType

TEXT = np.arange(100, 203, dtype=np.int32)  # 103 tokens, each of them once
HPARAMS = HParams().replace(stream_length=4, stream_rows=6, eval_stream_rows=3)


def plan(batches_per_step=1, seed=0, text=TEXT, hparams=HPARAMS):
    return StreamPlan(
        text, name="x", rows=7, hparams=hparams, batches_per_step=batches_per_step, seed=seed
    )


def epoch_of(made, epoch=0):
    first = epoch * made.batches_per_epoch
    return [made.collate(made.batch(first + k)) for k in range(made.batches_per_epoch)]


def read_by_stream(batches):
    """The tokens of each stream, in the order in which they come."""
    found = {}
    for batch in batches:
        for row, stream in enumerate(batch["x_stream"].tolist()):
            found.setdefault(stream, []).extend(batch["x"][row].tolist())
    return found


def test_streams_of_an_epoch_are_consecutive_parts_of_the_text_that_goes_round():
    streams = read_by_stream(epoch_of(plan()))
    assert sorted(streams) == list(range(6))
    whole = list(itertools.chain.from_iterable(streams[number] for number in range(6)))
    begin = whole[0] - 100
    assert whole == [100 + (begin + k) % 103 for k in range(96)]  # 4 blocks of 6 streams of 4


def test_before_a_block_stands_the_last_token_of_the_one_before():
    first, second, *_ = epoch_of(plan())
    assert first["x_before"].tolist() == [0] * 6
    assert first["x_block"].tolist() == [0] * 6
    assert torch.equal(second["x_before"], first["x"][:, -1])
    assert second["x_block"].tolist() == [1] * 6


def test_an_epoch_begins_at_a_place_of_its_own_that_the_seed_decides():
    begins = {int(epoch_of(plan(), epoch)[0]["x"][0, 0]) for epoch in range(6)}
    assert len(begins) > 3
    again = [int(epoch_of(plan(seed=s))[0]["x"][0, 0]) for s in (1, 1, 2)]
    assert again[0] == again[1] != again[2]


def test_the_batches_of_a_step_together_are_the_batch_of_one_process():
    alone, shared = epoch_of(plan()), epoch_of(plan(batches_per_step=3))
    assert len(shared) == 3 * len(alone)
    for number, batch in enumerate(alone):
        parts = shared[3 * number : 3 * number + 3]
        for name, values in batch.items():
            assert torch.equal(torch.cat([part[name] for part in parts]), values)


def test_the_order_has_a_fingerprint():
    others = [
        plan(seed=1),
        plan(batches_per_step=2),
        plan(hparams=HPARAMS.replace(stream_length=5)),
        plan(text=TEXT[:-1]),
    ]
    prints = [plan().fingerprint, *(other.fingerprint for other in others)]
    assert len(set(prints)) == len(prints)
    assert plan().fingerprint == prints[0]


def test_streams_that_a_step_cannot_share_are_refused():
    with pytest.raises(HParamsError, match="multiple of 4"):
        plan(batches_per_step=4)


def test_a_text_that_fills_no_block_is_refused():
    with pytest.raises(DataError, match="has 23 tokens"):
        plan(text=TEXT[:23])


@pytest.mark.parametrize("change", [{"pack_dataset": True}, {"split_to_length": 8}])
def test_streams_are_neither_packed_nor_split(change):
    features = text_features(has_inputs=False)
    assert streamed(features, HPARAMS) == "targets"
    with pytest.raises(HParamsError, match="nothing is packed or split"):
        streamed(features, HPARAMS.replace(**change))


def test_only_a_language_models_text_is_read_in_streams():
    with pytest.raises(HParamsError, match="inputs, targets"):
        streamed(text_features(), HPARAMS)


class Letters(Text2SelfProblem):
    """Rows of which each knows its place."""

    name = "letters_in_order"
    vocab_type = VocabType.CHARACTER
    keeps_order = True
    shards = {Split.TRAIN: 3, Split.EVAL: 1}  # noqa: RUF012

    def generate_samples(self, tmp_dir, split):
        yield from ({"targets": f"row {number}"} for number in range(20))


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    folder = tmp_path_factory.mktemp("letters")
    generate_data(Letters(), folder, folder, num_processes=1, progress=False)
    return folder


@pytest.mark.parametrize("split", [Split.TRAIN, Split.EVAL])
def test_a_problem_that_keeps_its_order_is_one_text(letters, split):
    text = joined(Shards.open(letters, Letters.name, split), "targets")
    encoder = Letters().features(letters).targets["targets"].encoder
    rows = "".join("\n" if i == 1 else encoder.decode([i]) for i in text.tolist())
    assert rows == "".join(f"row {number}\n" for number in range(20))


@pytest.mark.parametrize("world_size", [1, 2, 5])
@pytest.mark.parametrize("rows", [1, 3])
def test_an_evaluation_reads_every_token_once_in_the_order_of_the_text(letters, world_size, rows):
    shards, features = Shards.open(letters, Letters.name, Split.EVAL), Letters().features(letters)
    hparams = HPARAMS.replace(eval_stream_rows=rows)
    found = {}
    for rank in range(world_size):
        made = EvalStreams(shards, features, hparams, rank=rank, world_size=world_size)
        before = {}
        batches = list(made)
        assert len(batches) == len(made)
        for block, batch in enumerate(batches):
            assert batch["targets_block"].tolist() == [block] * len(batch["targets"])
            for row, stream in enumerate(batch["targets_stream"].tolist()):
                ids = batch["targets"][row].tolist()
                assert batch["targets_before"][row] == before.get(stream, 0)
                before[stream] = ids[-1]
                found.setdefault(rank + stream * world_size, []).extend(i for i in ids if i)
    whole = list(itertools.chain.from_iterable(found[number] for number in sorted(found)))
    assert whole == joined(shards, "targets").tolist()


def test_a_split_without_a_text_says_so(letters):
    features = Features({}, text_features().targets, notes=text_features().inputs)
    with pytest.raises(HParamsError, match="targets, inputs"):
        streamed(features, HPARAMS)
