"""R10-R12: the data that a run goes on with is the data that it began with."""

from __future__ import annotations

import itertools
from collections import Counter

import numbered
import pytest
from numbered import Mixed
from test_resume import PER_EPOCH

from t2t_torch.errors import CheckpointError

PACKED = "pack_dataset=True,max_length=40,batch_size=256"


@pytest.mark.parametrize(
    ("hparams", "named"),
    [("batch_size=128", "batch_size was 256, is 128"), ("max_length=30", "max_length was 40")],
)
def test_other_hparams_of_the_data_are_refused_by_name(make_estimator, data_dir, hparams, named):
    first = make_estimator()
    first.train(2)
    first.close()
    changed = numbered.make_task(data_dir, hparams)
    with pytest.raises(CheckpointError, match=named):
        first.directory.claim(numbered.RECORD, changed.hparams)


def test_other_shards_are_refused(make_estimator, tmp_path, monkeypatch):
    first = make_estimator()
    first.train(2)
    first.close()
    monkeypatch.setattr(numbered, "EXAMPLES", 140)
    fewer = tmp_path / "fewer"
    fewer.mkdir()
    other = make_estimator(task=numbered.make_task(numbered.generate(fewer)))
    with pytest.raises(CheckpointError, match=r"order(.|\n)*generated again(.|\n)*--resume_data"):
        other.train(3)


@pytest.mark.parametrize(("policy", "batches"), [("approx", 10), ("restart", 0)])
def test_where_data_changed_it_goes_on_where_it_is_told_to(
    make_estimator, policy, batches, data_dir
):
    """Batches of half the tokens: an epoch has 20 of them and not 10."""
    first = make_estimator()
    first.train(5)
    first.close()
    task = numbered.make_task(data_dir, "batch_size=128")
    source = task.train_batches(seed=1, start=0, rank=0, world_size=1)
    per_epoch = source.plan.batches_per_epoch
    assert per_epoch == 20
    again = make_estimator(task=task, resume_data=policy)
    again.train(6)
    assert again.state.batches_consumed == batches + 1
    alone = numbered.make_task(data_dir, "batch_size=128")
    list(itertools.islice(alone.train_batches(seed=1, start=batches, rank=0, world_size=1), 1))
    assert task.consumed == alone.consumed


@pytest.mark.sample(1)
@pytest.mark.parametrize("stops", [[1], [7, 23], [PER_EPOCH, 40]])
def test_three_problems_that_are_mixed_resume_bit_equal_and_in_their_shares(train_in_parts, stops):
    whole = train_in_parts("whole", [45], kind=Mixed)
    parts = train_in_parts("parts", [*stops, 45], kind=Mixed)
    parts.assert_equals(whole)
    problems = [{number // 1000 for number in batch} for batch in whole.consumed]
    assert all(len(problem) == 1 for problem in problems)
    early, late = (
        Counter(min(problem) for problem in part) for part in (problems[:20], problems[25:])
    )
    assert early[1] > early[3] and late[3] > late[1]


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("stops", [[3], [2, 5]])
def test_packed_examples_resume_bit_equal_and_none_is_lost_or_doubled(
    train_in_parts, data_dir, stops
):
    task = numbered.make_task(data_dir, PACKED)
    source = task.train_batches(seed=1, start=0, rank=0, world_size=1)
    per_epoch = source.plan.batches_per_epoch
    assert 5 < per_epoch < PER_EPOCH
    steps = 2 * per_epoch
    whole = train_in_parts("whole", [steps], hparams=PACKED)
    parts = train_in_parts("parts", [*stops, steps], hparams=PACKED)
    parts.assert_equals(whole)
    for epoch in range(2):
        batches = parts.consumed[epoch * per_epoch : (epoch + 1) * per_epoch]
        counts = Counter(itertools.chain.from_iterable(batches))
        assert set(counts.values()) == {1}
        assert len(counts) == numbered.EXAMPLES
