"""The order and the randomness of a user's loaders, whatever they are made of (P7)."""

from __future__ import annotations

import collections
import copy
import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils import data

from t2t_torch.errors import TrialError
from t2t_torch.trial.epoch_orders import (
    EpochOrders,
    IsolatedStream,
    TrialBatch,
    TrialEvalBatches,
    TrialTrainBatches,
    isolated,
    mix,
    order_of_epoch,
)

ITEMS = 23
Drawn = tuple[list[int], list[list[float]]]


class Augmented(data.Dataset[Any]):
    """Items that draw from torch's, NumPy's and Python's generators; each in another number."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        drawn = [torch.rand(()).item(), np.random.rand(), random.random()]
        torch.rand(index)
        np.random.rand(index % 3)
        return torch.tensor(drawn, dtype=torch.float64), index


def mixed_up(items: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    """Collates, and draws itself, as mixup does."""
    values = torch.stack([value for value, _ in items])
    return values + np.random.rand(), torch.tensor([index for _, index in items])


class RandomLengths:
    """A sampler of batches as in 2019: NumPy's global generator, batches of various lengths."""

    def __iter__(self) -> Iterator[list[int]]:
        rows = np.random.permutation(ITEMS).tolist()
        while rows:
            size = np.random.randint(1, 6)
            yield rows[:size]
            rows = rows[size:]


class OwnShuffle:
    """A sampler with generators of its own, which go on from epoch to epoch."""

    def __init__(self) -> None:
        self.random = random.Random(5)
        self.numbers = np.random.RandomState(7)
        self.epochs = 0

    def __iter__(self) -> Iterator[int]:
        self.epochs += 1
        rows = list(range(ITEMS - self.epochs % 3))
        self.random.shuffle(rows)
        yield from self.numbers.permutation(rows).tolist()


class Duck:
    """What is no loader of torch's, but has what one is read by."""

    def __init__(self) -> None:
        self.dataset = Augmented()
        self.batch_sampler = [[1, 2], [3], [5, 4, 0]]
        self.collate_fn = mixed_up


def shuffled(**given: Any) -> data.DataLoader[Any]:
    return data.DataLoader(Augmented(), batch_size=4, shuffle=True, collate_fn=mixed_up, **given)


LOADERS: dict[str, Callable[..., Any]] = {
    "shuffled": shuffled,
    "own_generator": lambda **g: shuffled(generator=torch.Generator().manual_seed(3), **g),
    "np_random": lambda **g: data.DataLoader(
        Augmented(), batch_sampler=RandomLengths(), collate_fn=mixed_up, **g
    ),
    "own_state": lambda **g: data.DataLoader(Augmented(), batch_size=4, sampler=OwnShuffle(), **g),
    "in_order": lambda **g: data.DataLoader(Augmented(), batch_size=5, drop_last=True, **g),
    "weighted": lambda **g: data.DataLoader(
        Augmented(), 3, sampler=data.WeightedRandomSampler([1.0] * ITEMS, 14), **g
    ),
    "not_batched": lambda **g: data.DataLoader(Augmented(), batch_size=None, shuffle=True, **g),
}
every_loader = pytest.mark.parametrize("kind", LOADERS)


def drawn(batch: Any) -> Drawn:
    values, indices = batch.content if isinstance(batch, TrialBatch) else batch
    return torch.as_tensor(indices).reshape(-1).tolist(), values.reshape(-1, 3).tolist()


def train(loader: Any, count: int, **place: int) -> list[Drawn]:
    source = TrialTrainBatches(loader, seed=11, **place)
    return [drawn(batch) for batch in itertools.islice(source, count)]


@pytest.mark.sample(1)
@every_loader
def test_a_run_goes_on_with_the_same_batches_from_any_stop_on_any_number_of_processes(
    kind: str,
) -> None:
    whole = train(LOADERS[kind](), 35)  # more than an epoch of each but one, of some five
    for start, world_size in itertools.product(range(0, 30, 3), (1, 2, 3)):
        for rank in range(world_size):
            expected = whole[start + rank : 34 : world_size]
            place = {"start": start, "rank": rank, "world_size": world_size}
            assert train(LOADERS[kind](), len(expected), **place) == expected


@pytest.mark.sample(1)
@every_loader
def test_each_number_of_workers_makes_the_same_batches(kind: str) -> None:
    inline = train(LOADERS[kind](), 16)
    assert train(LOADERS[kind](num_workers=2), 16) == inline
    assert train(LOADERS[kind](num_workers=1), 11, start=5) == inline[5:]


@every_loader
def test_a_loader_that_has_been_used_gives_the_same_batches_again(kind: str) -> None:
    loader = LOADERS[kind]()
    source = TrialTrainBatches(loader, seed=11)
    first = [drawn(batch) for batch in itertools.islice(source, 20)]
    assert [drawn(batch) for batch in itertools.islice(source, 20)] == first
    assert train(loader, 20) == first


@every_loader
def test_epochs_come_one_after_another_and_differ(kind: str) -> None:
    loader = LOADERS[kind]()
    source = TrialTrainBatches(loader, seed=11)
    epochs = [order_of_epoch(loader, 11, epoch) for epoch in range(3)]
    places = [(e, c) for e, epoch in enumerate(epochs) for c in range(len(epoch))]
    got = [indices for indices, _ in itertools.islice(map(drawn, source), len(places))]
    assert got == [indices for epoch in epochs for indices in epoch]
    numbers = range(len(places))
    assert [source.place(n) for n in numbers] == places
    assert source.batches_per_epoch == len(epochs[0])
    assert (epochs[0] != epochs[1]) == (kind != "in_order")


def test_another_seed_is_another_order() -> None:
    assert order_of_epoch(shuffled(), 1, 0) != order_of_epoch(shuffled(), 2, 0)


def test_a_loader_with_its_own_generator_is_read_as_by_a_loop_written_by_hand() -> None:
    loader = LOADERS["own_generator"]()
    orders = [order_of_epoch(loader, 0, epoch) for epoch in range(3)]
    assert orders == [[drawn(batch)[0] for batch in loader] for _ in range(3)]


def test_a_seeded_loop_over_the_loader_has_the_order_of_a_trial() -> None:
    loader = shuffled()
    for epoch in range(2):
        with isolated(mix(11, "order", epoch)):
            by_hand = [index for index, _ in _torch_order(loader)]
        assert order_of_epoch(loader, 11, epoch) == by_hand


def _torch_order(loader: data.DataLoader[Any]) -> Iterator[tuple[list[int], None]]:
    """The order of a loader of which the items draw nothing."""
    plain: data.TensorDataset = data.TensorDataset(torch.arange(ITEMS))
    for (indices,) in data.DataLoader(plain, batch_size=4, shuffle=True):
        yield indices.tolist(), None


def test_the_callers_generators_are_left_as_they_are() -> None:
    def draw() -> list[float]:
        return [torch.rand(()).item(), np.random.randn(), random.gauss(0, 1)]

    for kind, make in LOADERS.items():
        for workers in (0, 2):
            source = iter(TrialTrainBatches(make(num_workers=workers), seed=1))
            evaluation = TrialEvalBatches(make())
            with isolated(4):
                expected = [draw() for _ in range(9)]
            with isolated(4):
                result = []
                for _ in range(8):
                    result.append(draw())
                    next(source)
                list(evaluation)
                assert [*result, draw()] == expected, kind
    with isolated(4), pytest.raises(ZeroDivisionError), isolated(5):
        raise ZeroDivisionError
    before = random.getstate()
    with pytest.raises(ZeroDivisionError), isolated(5):
        random.random()
        raise ZeroDivisionError
    assert random.getstate() == before


def test_an_isolated_stream_goes_on_where_it_stopped() -> None:
    with isolated(8):
        expected = [(torch.rand(()).item(), np.random.rand(), random.random()) for _ in range(3)]
    stream, result = IsolatedStream(8), []
    for _ in range(3):
        random.random()
        with stream:
            result.append((torch.rand(()).item(), np.random.rand(), random.random()))
    assert result == expected


def test_an_item_that_is_sampled_twice_is_augmented_twice() -> None:
    sampler = data.WeightedRandomSampler([1.0], 6)
    loader = data.DataLoader(Augmented(), 3, sampler=sampler)
    values = [tuple(v) for _, batch in train(loader, 2) for v in batch]
    assert len(set(values)) == 6


@pytest.mark.sample(1)
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_evaluation_has_each_batch_once_for_any_number_of_processes(world_size: int) -> None:
    whole = [drawn(batch) for batch in TrialEvalBatches(shuffled())]
    assert sorted(i for indices, _ in whole for i in indices) == list(range(ITEMS))
    for workers in (0, 2):
        shards = [
            TrialEvalBatches(shuffled(num_workers=workers), rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        for rank, shard in enumerate(shards):
            assert [drawn(batch) for batch in shard] == whole[rank::world_size]
            assert len(shard) == len(whole[rank::world_size])
        assert {shard.total for shard in shards} == {6}


def test_a_process_without_a_batch_of_its_own_is_no_error() -> None:
    loader = data.DataLoader(Augmented(), batch_size=ITEMS)
    last = TrialEvalBatches(loader, rank=2, world_size=3)
    assert (len(last), list(last)) == (0, [])


def test_an_empty_loader_is_refused() -> None:
    empty: data.Dataset[Any] = data.TensorDataset(torch.zeros(0, 3))
    loader = data.DataLoader(empty, batch_size=2)
    with pytest.raises(TrialError, match="the training loader has no batch: its data set has 0 it"):
        TrialTrainBatches(loader, seed=0)
    with pytest.raises(TrialError, match="the validation loader has no batch"):
        TrialEvalBatches(loader)
    dropped = data.DataLoader(Augmented(), batch_size=24, drop_last=True)
    with pytest.raises(TrialError, match="has 23 items, of which drop_last"):
        TrialTrainBatches(dropped, seed=0)


@pytest.mark.parametrize("once", [iter([[1], [2]]), ([i] for i in range(2))])
def test_a_sampler_that_can_be_read_only_once_is_refused(once: Iterator[list[int]]) -> None:
    loader = data.DataLoader(Augmented(), batch_sampler=once)
    with pytest.raises(TrialError, match="it can be read only once"):
        train(loader, 3)


def test_a_sampler_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("t2t_torch.trial.epoch_orders._MOST", 1000)
    sampler: Any = _Endless()
    with pytest.raises(TrialError, match="does not end"):
        TrialTrainBatches(data.DataLoader(Augmented(), 4, sampler=sampler), seed=0)


class _Endless:
    def __iter__(self) -> Iterator[int]:
        return itertools.cycle(range(ITEMS))


class _Unrepeatable:
    """Draws from a generator of which nobody knows the seed."""

    def __iter__(self) -> Iterator[int]:
        yield from np.random.default_rng().permutation(ITEMS).tolist()


def test_an_order_that_nobody_can_repeat_is_told_and_not_shared() -> None:
    sampler: Any = _Unrepeatable()
    loader = data.DataLoader(Augmented(), 4, sampler=sampler)
    source = TrialTrainBatches(loader, seed=0)
    assert source.plan_fingerprint == TrialTrainBatches(loader, seed=0).plan_fingerprint
    for make in (lambda: TrialTrainBatches(loader, seed=0, world_size=2),
                 lambda: TrialEvalBatches(loader, world_size=2)):  # fmt: skip
        with pytest.raises(TrialError, match="another order each time"):
            make()


def test_a_loader_that_divides_the_data_itself_is_refused() -> None:
    part = data.DistributedSampler(Augmented(), num_replicas=2, rank=0)
    with pytest.raises(TrialError, match="leave the sampler out"):
        TrialTrainBatches(data.DataLoader(Augmented(), 4, sampler=part), seed=0)
    alone = data.DistributedSampler(Augmented(), num_replicas=1, rank=0)
    loader = data.DataLoader(Augmented(), 4, sampler=alone)
    assert order_of_epoch(loader, 0, 0) != order_of_epoch(loader, 0, 1)  # it is told the epoch


def test_the_fingerprint_depends_on_seed_and_order_alone() -> None:
    def of(loader: Any, seed: int = 1, **place: int) -> str:
        return TrialTrainBatches(loader, seed=seed, **place).plan_fingerprint

    known = of(shuffled())
    assert known.startswith("trial1-")
    assert of(shuffled(num_workers=2), start=7, rank=1, world_size=2) == known
    others = [
        of(shuffled(), 2),
        of(data.DataLoader(Augmented(), 5, shuffle=True)),
        of(data.DataLoader(Augmented(), 4)),
    ]
    assert len({known, *others}) == 4


def test_the_report_counts_records() -> None:
    report = TrialTrainBatches(LOADERS["in_order"](), seed=1).report
    assert (report.examples, report.kept, report.batches) == (23, 20, 4)
    assert report.tokens_per_batch == 5
    source = TrialTrainBatches(LOADERS["own_generator"](), seed=1)
    assert source.records_per_batch == 4.0
    ducks = TrialTrainBatches(Duck(), seed=1)
    assert ducks.records_per_batch == 2.0


def test_what_has_the_parts_of_a_loader_is_read_as_one() -> None:
    got = train(Duck(), 5)
    assert [indices for indices, _ in got] == [[1, 2], [3], [5, 4, 0], [1, 2], [3]]
    assert got[0][1] != got[3][1]  # items draw anew in each epoch
    assert train(Duck(), 3, start=2) == got[2:]


class Many(Augmented):
    """A data set that is asked for several items at once, as newer ones are."""

    def __getitems__(self, indices: list[int]) -> list[tuple[Tensor, int]]:
        return [(torch.full((3,), float(len(indices)), dtype=torch.float64), i) for i in indices]


def test_a_data_set_is_asked_for_several_items_at_once_if_it_can_be() -> None:
    loader = data.DataLoader(Many(), batch_size=4)
    assert train(loader, 1) == [([0, 1, 2, 3], [[4.0] * 3] * 4)]


def test_indices_may_be_anything() -> None:
    class Words(data.Dataset[Any]):
        def __getitem__(self, key: Any) -> Any:
            return torch.zeros(3), len(key)

    batches: Any = [["a", "bcd"], [("x", "y")]]
    loader = data.DataLoader(Words(), batch_sampler=batches)
    assert order_of_epoch(loader, 0, 0) == batches
    assert [indices for indices, _ in train(loader, 3)] == [[1, 3], [2], [1, 3]]


class Unsized(data.IterableDataset[Any]):
    """A stream that draws; an epoch of it is 7, 8 or 9 items."""

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        for index in range(7 + random.randrange(3)):
            yield torch.rand(3, dtype=torch.float64) + np.random.rand(), index


def test_a_stream_is_read_again_up_to_where_a_run_goes_on() -> None:
    def loader() -> data.DataLoader[Any]:
        return data.DataLoader(Unsized(), batch_size=3)

    source = TrialTrainBatches(loader(), seed=11)
    whole = train(loader(), 20)
    assert source.batches_per_epoch is None
    assert (source.report.batches, source.report.tokens_per_batch) == (0, 3.0)
    for start, world_size in itertools.product(range(0, 12, 3), (1, 2, 3)):
        for rank in range(world_size):
            expected = whole[start + rank : 20 : world_size]
            place = {"start": start, "rank": rank, "world_size": world_size}
            assert train(loader(), len(expected), **place) == expected
    for number, (indices, _) in enumerate(itertools.islice(map(drawn, source), 20)):
        assert source.place(number)[1] == indices[0] // 3
    assert source.place(0)[0] == 0 < source.place(19)[0]
    for world_size in (1, 2):  # with a batch, the epoch of the next one is known
        again = TrialTrainBatches(loader(), seed=11, world_size=world_size)
        for number, _ in zip(range(0, 18, world_size), again, strict=False):
            after = number + world_size
            assert again.place(after)[0] == source.place(after)[0]


def test_a_stream_leaves_the_callers_generators_as_they_are() -> None:
    source = iter(TrialTrainBatches(data.DataLoader(Unsized(), batch_size=3), seed=1))
    with isolated(4):
        expected = torch.rand(9).tolist()
    with isolated(4):
        assert [next(source) is None or torch.rand(()).item() for _ in range(9)] == expected


def test_a_stream_is_evaluated_once_for_any_number_of_processes() -> None:
    loader = data.DataLoader(Unsized(), batch_size=3)
    whole = [drawn(batch) for batch in TrialEvalBatches(loader)]
    for rank in range(2):
        shard = TrialEvalBatches(loader, rank=rank, world_size=2)
        assert len(shard) == len(whole[rank::2])
        assert [drawn(batch) for batch in shard] == whole[rank::2]


def test_a_loader_with_an_iteration_of_its_own_is_read_by_it() -> None:
    class Doubled(data.DataLoader[Any]):
        def __iter__(self) -> Any:
            for batch in super().__iter__():
                yield batch
                yield batch

    got = train(Doubled(Augmented(), batch_size=10), 4)
    assert got[0] == got[1] != got[2] == got[3]


def test_an_empty_stream_is_refused() -> None:
    class Nothing(data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(())

    loader = data.DataLoader(Nothing(), batch_size=2)
    with pytest.raises(TrialError, match="yields nothing in epoch 1"):
        train(loader, 1)
    assert not list(TrialEvalBatches(loader))
    with pytest.raises(TrialError, match=r"in epoch 2. Its __iter__ has to start again"):
        train(iter([(torch.zeros(1, 3), [1])]), 2)


class Processes(Augmented):
    """Items that tell the process they were made in, and what it believes to read."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        info = data.get_worker_info()
        assert info is not None
        assert type(info.dataset) is Processes
        return torch.tensor([os.getpid(), began[0], 0], dtype=torch.float64), index


began = [0]


def _note(worker: int) -> None:
    began[0] = worker + 1


def test_workers_outlive_a_signal_that_goes_to_the_whole_group() -> None:
    loader = data.DataLoader(Processes(), 4, num_workers=2, worker_init_fn=_note, timeout=60)
    source = iter(TrialTrainBatches(loader, seed=0))
    pids = {int(next(source).content[0][0, 0]) for _ in range(4)}
    assert len(pids) == 2
    assert os.getpid() not in pids
    for pid, number in itertools.product(pids, (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)):
        os.kill(pid, number)
    later = [next(source).content[0][0] for _ in range(12)]
    assert {int(values[0]) for values in later} == pids
    assert {int(values[1]) for values in later} == {1, 2}  # the user's worker_init_fn was called


def test_an_error_in_the_users_data_set_keeps_its_kind_and_its_traceback() -> None:
    class Broken(Augmented):
        def __getitem__(self, index: int) -> Any:
            raise KeyError(f"no image {index}")

    for workers in (0, 2):
        loader = data.DataLoader(Broken(), 4, num_workers=workers)
        with pytest.raises(KeyError, match="no image 0"):
            train(loader, 1)


@pytest.mark.slow
def test_workers_end_with_the_reading_and_with_the_process() -> None:
    source = iter(TrialTrainBatches(shuffled(num_workers=2), seed=0))
    next(source)
    assert len(multiprocessing.active_children()) == 2
    source.close()  # type: ignore[attr-defined]
    assert multiprocessing.active_children() == []
    script = """if True:
        import torch
        from torch.utils import data
        from t2t_torch.trial.epoch_orders import TrialTrainBatches
        loader = data.DataLoader(data.TensorDataset(torch.zeros(9)), num_workers=2)
        source = iter(TrialTrainBatches(loader, seed=0))
        next(source)
        raise SystemExit(3)  # while workers wait, who let a first signal pass
    """
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=300)
    assert done.returncode == 3


def test_a_sampler_may_be_huge_data_which_is_not_copied() -> None:
    class Held(data.Dataset[Any]):
        def __init__(self) -> None:
            self.rows = [NotCopied()]

        def __len__(self) -> int:
            return 3

    class NotCopied:
        def __deepcopy__(self, memo: Any) -> Any:
            raise AssertionError("copied")

    class Sampler:
        def __init__(self, dataset: Held) -> None:
            self.dataset, self.rows = dataset, dataset.rows
            self.random = random.Random(1)

        def __iter__(self) -> Iterator[int]:
            return iter([self.random.randrange(99) for _ in range(9)])

    held = Held()
    loader = data.DataLoader(data.Subset(held, [0, 1]), 3, sampler=Sampler(held))
    assert EpochOrders(loader, 0).repeatable
    assert order_of_epoch(loader, 0, 1) == order_of_epoch(copy.copy(loader), 0, 1)


def test_indices_of_numpy_stay_numpys() -> None:
    class Kinds(data.Dataset[Any]):
        def __getitem__(self, key: Any) -> Any:
            return type(key)

    rows: Any = [[np.int64(1), np.int64(2)], [3], [np.int32(4), 5]]
    loader = data.DataLoader(Kinds(), batch_sampler=rows, collate_fn=tuple)
    got = [batch.content for batch in itertools.islice(TrialTrainBatches(loader, seed=0), 3)]
    assert got == [(np.int64, np.int64), (int,), (np.int32, int)]
    assert order_of_epoch(loader, 0, 1) == [[1, 2], [3], [4, 5]]


def test_training_is_bit_equal_to_a_loop_written_by_hand_over_the_same_order() -> None:
    inputs, labels = torch.randn(ITEMS, 5), torch.randint(3, (ITEMS,))
    loader = data.DataLoader(data.TensorDataset(inputs, labels), batch_size=4, shuffle=True)

    def by_hand() -> Iterator[Any]:
        for epoch in range(3):
            for indices in order_of_epoch(loader, 11, epoch):
                yield loader.collate_fn([loader.dataset[i] for i in indices])

    trained = []
    ours = (batch.content for batch in itertools.islice(TrialTrainBatches(loader, seed=11), 18))
    for source in (by_hand(), ours):
        with isolated(1):
            model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Dropout(0.5))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in source:  # dropout draws on, whatever the loader does
                torch.nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
        trained.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*trained)


def test_batches_keep_the_structure_that_the_loader_gives_them() -> None:
    Pair = collections.namedtuple("Pair", ["x", "y"])

    def named(items: list[Any]) -> Any:
        return Pair({"a": [np.zeros(2), None]}, "label")

    loader = data.DataLoader(Augmented(), 4, collate_fn=named)
    batch = next(iter(TrialTrainBatches(loader, seed=0))).content
    assert type(batch) is Pair
    assert batch.x["a"][1] is None
    assert isinstance(batch.x["a"][0], np.ndarray)
