"""Training on several problems at once."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.distributed.process_group import ONE_PROCESS
from t2t_torch.errors import DataError, HParamsError
from t2t_torch.mode import Split
from t2t_torch.pipeline.plan import ORDER_VERSION
from t2t_torch.pipeline.training_split import MIXTURE_VERSION
from t2t_torch.problem_types.mixture import MixtureProblem
from t2t_torch.run.checkpoint import TrainerState
from t2t_torch.run.resuming import same_position
from t2t_torch.train.memory import dry_run_lines
from t2t_torch.train.problem_data import check_vocabularies
from t2t_torch.train.problem_task import ProblemTask

NAMES = ("algorithmic_reverse_binary40_test", "algorithmic_identity_binary40")


class Both(MixtureProblem):
    """First mostly the one, then the other."""

    name = "both"
    problem_names = NAMES
    mixing_schedule = "linear @0 1 0 @40 0 1"


class TwoKinds(Both):
    """Problems with other ids."""

    problem_names = (NAMES[0], "algorithmic_shift_decimal40")


@pytest.fixture(scope="module")
def mixed_data(tmp_path_factory):
    """Shards of the problems that are mixed."""
    folder = tmp_path_factory.mktemp("mixed")
    for name in (*NAMES, TwoKinds.problem_names[1]):
        generate_data(
            registry.problem(name), folder, folder, num_processes=1, max_cases=120, progress=False
        )
    return folder


@pytest.fixture
def make_mixed(mixed_data):
    """Makes a task."""

    def make(kind=Both, hparams="", **options):
        chosen = registry.hparams("transformer_test").parse("batch_size=256").parse(hparams)
        given = kind(), registry.model("transformer"), chosen
        return ProblemTask(*given, data_dir=mixed_data, vocab_dir=mixed_data, **options)

    return make


@pytest.mark.parametrize("name", [None, NAMES[0]], ids=["mixture", "alone"])
def test_batches_are_pinned_where_the_task_is_told_to(make_mixed, name, monkeypatch):
    """There is no GPU here: what would be pinned is counted."""
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda own: pinned.append(own) or own)
    kind = Both if name is None else lambda: registry.problem(name)
    for requested in (False, True):
        task = make_mixed(kind, pin_memory=requested, loader_workers=0)
        for batches in (
            task.train_batches(seed=1, start=0, rank=0, world_size=1),
            task.eval_batches(Split.EVAL, rank=0, world_size=1),
        ):
            pinned.clear()
            batch = next(iter(batches))
            assert {id(tensor) for tensor in batch.values()} == set(
                map(id, pinned)
            ) or not requested
            assert bool(pinned) == requested


def test_training_resumes_bit_by_bit_at_its_place_in_the_mixture(make_mixed, make_estimator):
    whole = make_estimator("whole", task=make_mixed())
    whole.train(30)
    for steps in (11, 30):
        parts = make_estimator("parts", task=make_mixed())
        parts.train(steps)
        parts.close()
    expected = whole.model.state_dict()
    result = parts.model.state_dict()
    assert all(torch.equal(result[name], expected[name]) for name in expected)


def test_the_problems_of_a_mixture_come_in_orders_of_their_own(make_mixed):
    class Twice(Both):
        problem_names = (NAMES[0], f"{NAMES[0]}_rev")
        mixing_schedule = "step @0 1 1"

    batches = make_mixed(Twice).train_batches(seed=1, start=0, rank=0, world_size=1)
    one, other = (component.plan for component in batches.components)
    assert one.batches_per_epoch == other.batches_per_epoch
    same = [set(one.batch(k)) == set(other.batch(k)) for k in range(one.batches_per_epoch)]
    assert not all(same)
    again = make_mixed(Twice).train_batches(seed=1, start=0, rank=0, world_size=1)
    assert again.plan_fingerprint == batches.plan_fingerprint
    other_seed = make_mixed(Twice).train_batches(seed=2, start=0, rank=0, world_size=1)
    assert other_seed.plan_fingerprint != batches.plan_fingerprint


def test_a_schedule_of_hparams_comes_before_the_mixtures(make_mixed):
    task = make_mixed(hparams="mixing_schedule=by_size")
    batches = task.train_batches(seed=1, start=0, rank=0, world_size=1)
    sizes = [component.plan.batches_per_epoch for component in batches.components]
    assert batches.plan.schedule.shares == (tuple(size / sum(sizes) for size in sizes),)


@pytest.mark.parametrize(
    ("hparams", "told"),
    [("bagging_seed=3", "needs bagging_share"), ("bagging_share=11", "bagging_share")],
)
def test_a_draw_of_rows_that_is_none_is_refused(make_mixed, hparams, told):
    with pytest.raises(HParamsError, match=told):
        make_mixed(hparams=hparams).train_batches(seed=1, start=0, rank=0, world_size=1)


def test_rows_are_drawn_as_hparams_say(make_mixed):
    retained = []
    for seed in (0, 1):
        task = make_mixed(
            lambda: registry.problem(NAMES[0]), f"bagging_share=1,bagging_seed={seed}"
        )
        source = task.train_batches(seed=1, start=0, rank=0, world_size=1)
        plan = source.components[0].plan
        retained.append([row for k in range(plan.batches_per_epoch) for row in plan.batch(k)])
    assert len(set(retained[0])) < len(retained[0])
    assert sorted(retained[0]) != sorted(retained[1])


def refusal_of(make_mixed, fingerprint_of):
    batches = make_mixed().train_batches(seed=1, start=0, rank=0, world_size=1)
    state = TrainerState(batches_per_step=1, plan_fingerprint=fingerprint_of(batches))
    options = {"fingerprint": batches.plan_fingerprint, "batches_per_step": 1, "processes": 1}
    return same_position(state, "ckpt-1", **options)


def test_an_order_of_an_earlier_version_is_refused_as_such(make_mixed):
    earlier = refusal_of(make_mixed, lambda batches: f"{ORDER_VERSION}-0123456789abcdef")
    assert f"order {ORDER_VERSION}; here it is {ORDER_VERSION}.{MIXTURE_VERSION}" in earlier


def test_another_schedule_is_among_what_may_have_changed(make_mixed):
    assert "the mixing_schedule of a mixture changed" in refusal_of(
        make_mixed, lambda batches: batches.plan_fingerprint[:-4] + "wxyz"
    )


def test_steps_of_a_mixture_are_told_by_its_shares_and_without_an_epoch(
    make_mixed, make_estimator, capsys
):
    task = make_mixed()
    batches = task.train_batches(seed=1, start=0, rank=0, world_size=1)
    first = batches.components[0].report  # all of step 0, by the schedule
    tokens = f"about {first.tokens / first.batches:,.0f} tokens"
    make_estimator(task=task).begin()
    opening = capsys.readouterr().err
    dry = "\n".join(dry_run_lines(task, ONE_PROCESS))
    for text in (opening, dry):
        assert tokens in text
        assert "by the shares at step 0" in text
        assert "epoch" not in text


def is_identity(batch):
    return bool(torch.equal(batch["inputs"], batch["targets"]))


def test_the_schedule_goes_by_optimizer_steps(make_mixed):
    task = make_mixed(hparams="optimizer_multistep_accumulate_steps=2")
    batches = task.train_batches(seed=1, start=0, rank=0, world_size=1)
    kinds = [is_identity(batch) for batch in itertools.islice(batches, 200)]
    assert all(kinds[80:])  # from step 40 on
    assert 5 < sum(kinds[:40]) < sum(kinds[40:80]) < 40


def test_evaluation_is_of_all_problems_one_after_another(make_mixed):
    batches = make_mixed().eval_batches(Split.EVAL, rank=0, world_size=1)
    kinds = [is_identity(batch) for batch in batches]
    assert kinds == sorted(kinds)
    assert set(kinds) == {False, True}
    assert len(batches) == len(kinds)
    assert sum(len(batch["targets"]) for batch in batches) == 100 + 120  # what each has


@pytest.mark.parametrize("size", [4, 5])
def test_any_number_of_processes_evaluates_the_same_first_batches(make_mixed, size):
    def targets(rank, size):
        batches = make_mixed().eval_batches(Split.EVAL, rank=rank, world_size=size)
        return [batch["targets"].tolist() for batch in batches]

    alone = targets(0, 1)
    ranks = [targets(rank, size) for rank in range(size)]
    together = [batch for group in itertools.zip_longest(*ranks) for batch in group if batch]
    assert together == alone
    one = make_mixed(lambda: registry.problem(NAMES[0]))
    first = one.eval_batches(Split.EVAL, rank=0, world_size=1).total
    assert first % size, "the second problem would begin with rank 0 anyway"


def test_problems_whose_ids_mean_other_things_are_refused(make_mixed):
    with pytest.raises(DataError, match=r"same features, but algorithmic_reverse.*of 4 ids"):
        make_mixed(TwoKinds)


def test_a_schedule_for_another_number_of_problems_is_refused(make_mixed):
    class Three(Both):
        mixing_schedule = "step @0 1 1 1"

    with pytest.raises(DataError, match="3 shares for 2 problems"):
        make_mixed(Three)


def test_problems_with_other_vocabulary_files_are_refused(mixed_data, monkeypatch):
    hashes = {NAMES[0]: {"vocab.a": "00"}, NAMES[1]: {"vocab.b": "11"}}

    def load(folder, name):
        return SimpleNamespace(vocab_files=hashes[name])

    monkeypatch.setattr("t2t_torch.train.problem_data.Manifest.load", load)
    problems = [registry.problem(name) for name in NAMES]
    with pytest.raises(DataError, match=r"ids of algorithmic_identity_binary40 mean other things"):
        check_vocabularies(problems, mixed_data)
    hashes[NAMES[1]] = {"vocab.c": "00"}  # the same content by another name
    check_vocabularies(problems, mixed_data)
