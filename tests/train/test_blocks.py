"""A training whose data is planned in blocks."""

from __future__ import annotations

import pytest

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.distributed.process_group import ONE_PROCESS
from t2t_torch.errors import CheckpointError
from t2t_torch.mode import Split
from t2t_torch.pipeline.block_plan import BlockPlan
from t2t_torch.train.memory import dry_run_lines

from .conftest import PROBLEM
from .test_estimator import assert_bit_equal, weights_of

BLOCKS = "shuffle_block_size=60"
STEPS = 14


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Shards of `PROBLEM`, several of them; `make_task` takes them here."""
    folder, problem = tmp_path_factory.mktemp("data"), registry.problem(PROBLEM)
    problem.shards = {Split.TRAIN: 8, Split.EVAL: 1}
    generate_data(problem, folder, folder, num_processes=1, max_cases=160, progress=False)
    return folder


def test_the_data_has_several_blocks_and_epochs(make_task):
    plan = make_task(BLOCKS).train_batches(seed=1, start=0, rank=0, world_size=1).plan
    assert isinstance(plan, BlockPlan)
    assert plan.batches_per_epoch < STEPS
    assert len({plan.shards_of(k)[0].start for k in range(plan.batches_per_epoch)}) == 3


@pytest.mark.parametrize("stops", [[1], [5, 11]])
def test_a_resumed_run_is_bit_equal_to_one_that_never_stopped(make_estimator, stops):
    whole = make_estimator("whole", BLOCKS)
    whole.train(STEPS)
    for stop in [*stops, STEPS]:
        part = make_estimator("parts", BLOCKS)
        part.train(stop)
        weights = weights_of(part)
        part.close()
    assert_bit_equal(weights, weights_of(whole))


def test_other_blocks_are_another_order(make_estimator):
    for before, after in ((BLOCKS, "shuffle_block_size=0"), ("shuffle_block_size=0", BLOCKS)):
        first = make_estimator(before, before)
        first.train(2)
        first.close()
        with pytest.raises(CheckpointError, match="shuffle_block_size"):
            make_estimator(before, after).train(4)


def test_a_run_of_one_block_resumes_with_any_size(make_estimator):
    for steps, hparams in ((2, "shuffle_block_size=0"), (4, "shuffle_block_size=160"), (6, "")):
        part = make_estimator("parts", hparams)
        part.train(steps)
        weights = weights_of(part)
        part.close()
    whole = make_estimator("whole")
    whole.train(6)
    assert_bit_equal(weights, weights_of(whole))


def test_a_dry_run_tells_of_all_blocks(make_task):
    text = "\n".join(dry_run_lines(make_task(BLOCKS), ONE_PROCESS))
    assert "160 of 160 examples" in text
    rows = [line.split() for line in text.splitlines() if line.startswith("< ")]
    assert sum(int(row[3]) for row in rows) == 160
