"""Tasks: the same bytes as one process, for any number of them, in any order, killed or not."""

from __future__ import annotations

import functools
import threading
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.data import encoding, generate
from t2t_torch.data.generate import Parts, TaskOutcome, generate_data, run_task
from t2t_torch.data.shuffle import Shuffle
from t2t_torch.errors import DataError, UsageError
from t2t_torch.mode import Split

from .counting import Counting, counting, files, numbers


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of seven samples, so that a few samples are the work of several tasks."""
    monkeypatch.setattr(encoding, "CHUNK_ROWS", 7)


def run(problem, tmp_path, number, of, name="data", **options) -> TaskOutcome:
    return run_task(
        problem,
        tmp_path / name,
        tmp_path / "raw",
        task_id=number,
        num_tasks=of,
        progress=False,
        **options,
    )


@pytest.fixture
def expected(tmp_path):
    """What one process makes."""
    generate_data(counting(), tmp_path / "one", tmp_path / "raw", progress=False)
    return files(tmp_path / "one")


@pytest.mark.parametrize("order", [[0], [1, 0], [2, 0, 4, 3, 1], list(range(40))])
def test_tasks_in_any_order_make_the_bytes_of_one_process(tmp_path, expected, order):
    outcomes = [run(counting(), tmp_path, number, len(order)) for number in order]
    for done, outcome in enumerate(outcomes[:-1], start=1):
        assert outcome == TaskOutcome(missing=sorted(order[done:]))
    assert outcomes[-1].missing == ()
    assert outcomes[-1].manifest is not None
    assert files(tmp_path / "data") == expected
    hidden = sorted(path.name for path in (tmp_path / "data").glob(".*"))
    left = [".counting.lock", ".counting.tasks.done", ".counting.verified.json"]
    assert hidden == left, "no part is left"


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    count=st.integers(1, 60),
    num_shards=st.integers(1, 7),
    num_tasks=st.integers(1, 6),
    block=st.integers(1, 20),
    memory_bytes=st.sampled_from([1, 300, 5000, 1 << 26]),
)
def test_no_row_is_lost_or_doubled_by_any_split_shard_or_task(
    tmp_path_factory, count, num_shards, num_tasks, block, memory_bytes
):
    tmp_path = tmp_path_factory.mktemp("tasks")
    problem = counting(count=count, shards={Split.TRAIN: num_shards, Split.EVAL: 2})
    small = functools.partial(Shuffle, memory_bytes=memory_bytes)
    generate_data(problem, tmp_path / "one", tmp_path, progress=False)
    with mock.patch.object(encoding, "CHUNK_ROWS", block):
        with mock.patch.object(generate, "Shuffle", small):
            generate_data(problem, tmp_path / "spilled", tmp_path, progress=False)
        with mock.patch.object(generate, "Shuffle", small):
            for number in range(num_tasks):
                run(problem, tmp_path, number, num_tasks)
    assert sorted(numbers(tmp_path / "data")) == list(range(count))
    assert sorted(numbers(tmp_path / "data", Split.EVAL)) == list(range(10))
    assert files(tmp_path / "spilled") == files(tmp_path / "one") == files(tmp_path / "data")


def test_a_task_that_has_ended_is_not_made_again(tmp_path, expected):
    made: list[int] = []
    problem = counting(before=lambda split, number: made.append(number))
    run(problem, tmp_path, 1, 2)
    made.clear()
    assert run(problem, tmp_path, 1, 2) == TaskOutcome(missing=[0])
    assert made == []
    run(problem, tmp_path, 0, 2)
    assert files(tmp_path / "data") == expected
    made.clear()
    assert run(problem, tmp_path, 0, 2).manifest is not None
    assert made == [], "nor is what is published"


def test_a_task_that_failed_is_run_again(tmp_path, expected):
    def fail(split: Split, number: int) -> None:
        if split is Split.EVAL:
            raise RuntimeError("the disk of the corpus is gone")

    with pytest.raises(DataError, match="the disk of the corpus is gone"):
        run(counting(before=fail), tmp_path, 0, 2)
    assert run(counting(), tmp_path, 1, 2) == TaskOutcome(missing=[0])
    assert run(counting(), tmp_path, 0, 2).manifest is not None
    assert files(tmp_path / "data") == expected


def test_a_part_whose_file_is_gone_or_cut_short_is_missing(tmp_path, expected):
    run(counting(), tmp_path, 0, 3)
    run(counting(), tmp_path, 1, 3)
    part = tmp_path / "data" / ".counting.tasks" / "part-00001" / "train" / "run-00000"
    part.write_bytes(part.read_bytes()[:-1])
    assert run(counting(), tmp_path, 2, 3) == TaskOutcome(missing=[1])
    run(counting(), tmp_path, 1, 3)
    assert files(tmp_path / "data") == expected


def test_the_vocabulary_is_built_once_and_used_by_all(tmp_path, monkeypatch, expected):
    built = []
    build = Counting.build_vocab
    monkeypatch.setattr(
        Counting, "build_vocab", lambda *args: (built.append(args[1]), build(*args))[1]
    )
    for number in (1, 0):
        run(counting(), tmp_path, number, 2)
    assert built == [tmp_path / "data" / ".counting.tasks" / "vocab"]
    assert files(tmp_path / "data") == expected


class OwnVocabulary(Counting):
    """The same with a vocabulary that the user has put into the data folder."""

    @property
    def kept_vocab_files(self) -> tuple[str, ...]:
        return self.vocab_files

    def build_vocab(self, data_dir, tmp_dir) -> None:
        pass


@pytest.mark.parametrize("after", [1, 2])
def test_a_vocabulary_of_the_users_that_changes_between_tasks_is_refused(tmp_path, after):
    (tmp_path / "data").mkdir()
    vocab = tmp_path / "data" / "vocab.counting"
    vocab.write_text("digits")

    def change(split: Split, number: int) -> None:
        if after == 2 and split is Split.EVAL:
            vocab.write_text("letter")

    run(OwnVocabulary(), tmp_path, 0, 2)
    problem = OwnVocabulary()
    problem.before = change  # type: ignore[method-assign]
    if after == 1:
        vocab.write_text("others")
    with pytest.raises(DataError, match=r"(?s)vocab.counting: expected sha256 .*--overwrite"):
        run(problem, tmp_path, 1, 2)
    vocab.write_text("digits")
    assert run(OwnVocabulary(), tmp_path, 1, 2).manifest is not None


@pytest.mark.parametrize(
    ("attributes", "options", "of", "told"),
    [
        ({}, {"seed": 7}, 3, "shuffle_seed: there 429459, requested 7"),
        ({}, {"max_cases": 5}, 3, "max_cases: there 0, requested 5"),
        ({}, {"on_bad_record": "skip"}, 3, "on_bad_record: there None, requested 'skip'"),
        ({"shards": {Split.TRAIN: 9}}, {}, 3, "shards: there"),
        ({}, {}, 4, "num_tasks: there 3, requested 4"),
    ],
)
def test_tasks_of_other_settings_are_refused_or_replace_the_parts(
    tmp_path, attributes, options, of, told
):
    run(counting(), tmp_path, 0, 3)
    with pytest.raises(DataError, match=f"(?s){told}.*--overwrite"):
        run(counting(**attributes), tmp_path, 1, of, **options)
    assert run(counting(), tmp_path, 1, 3) == TaskOutcome(missing=[2]), (
        "what was made is there still"
    )
    outcomes = [
        run(counting(**attributes), tmp_path, number, of, overwrite=True, **options)
        for number in range(of)
    ]
    assert [list(outcome.missing) for outcome in outcomes] == [
        list(range(number + 1, of)) for number in range(of)
    ]
    generate_data(
        counting(**attributes), tmp_path / "other", tmp_path / "raw", progress=False, **options
    )
    assert files(tmp_path / "data") == files(tmp_path / "other")


def test_an_array_replaces_data_of_other_settings_and_may_be_run_again(tmp_path, expected):
    generate_data(counting(), tmp_path / "data", tmp_path / "raw", seed=5, progress=False)
    with pytest.raises(DataError, match="shuffle_seed: there 5"):
        run(counting(), tmp_path, 0, 2)
    for _ in range(2):
        for number in (0, 1):
            last = run(counting(), tmp_path, number, 2, overwrite=True)
        assert last.manifest is not None
        assert files(tmp_path / "data") == expected


def noted(made):
    return counting(before=lambda split, number: made.append(number))


@pytest.mark.parametrize("made_by", ["one process", "the same array", "another array"])
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_an_array_that_overwrites_makes_anew_what_is_there(tmp_path, expected, made_by, order):
    if made_by == "one process":
        generate_data(counting(), tmp_path / "data", tmp_path / "raw", progress=False)
    else:
        of = 2 if made_by == "the same array" else 1
        for number in range(of):
            run(counting(), tmp_path, number, of)
    made: list[int] = []
    first = run(noted(made), tmp_path, order[0], 2, overwrite=True)
    assert first == TaskOutcome(missing=[order[1]])
    assert len(made) == 210, "the vocabulary and both splits"
    assert run(noted(made), tmp_path, order[1], 2, overwrite=True).manifest is not None
    assert len(made) == 320, "both splits"
    assert files(tmp_path / "data") == expected


def test_what_one_process_overwrites_is_not_taken_for_the_arrays(tmp_path, monkeypatch):
    cut_off_before_it_tells(tmp_path, monkeypatch)
    options = {"overwrite": True, "progress": False}
    generate_data(counting(), tmp_path / "data", tmp_path / "raw", **options)
    assert run(counting(), tmp_path, 0, 2, overwrite=True) == TaskOutcome(missing=[1])


def cut_off_before_it_tells(tmp_path, monkeypatch):
    """Task 0 of an array of two is killed when its part is whole; task 1 publishes."""
    with monkeypatch.context() as patch:
        patch.setattr(generate.Tasks, "finish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(counting(), tmp_path, 0, 2, overwrite=True)
    assert run(counting(), tmp_path, 1, 2, overwrite=True).manifest is not None


def test_a_task_cut_off_before_it_told_tells_what_its_array_has_made(tmp_path, monkeypatch, caplog):
    cut_off_before_it_tells(tmp_path, monkeypatch)
    made: list[int] = []
    assert run(noted(made), tmp_path, 0, 2, overwrite=True).manifest is not None
    assert made == []
    assert "--overwrite generates it again" not in caplog.text
    assert run(noted(made), tmp_path, 0, 2, overwrite=True) == TaskOutcome(missing=[1])
    assert made, "it has told so before: this is another array"


def test_samples_that_differ_from_task_to_task_are_told(tmp_path):
    run(counting(), tmp_path, 0, 2)
    with pytest.raises(
        DataError, match=r"gave task 0 100 samples .* but task 1 99 .*deterministic"
    ):
        run(counting(count=99), tmp_path, 1, 2)


@pytest.mark.parametrize(("number", "of"), [(2, 2), (-1, 2), (0, 0)])
def test_a_task_that_is_not_among_them_is_refused(tmp_path, number, of):
    with pytest.raises(UsageError, match="the last is"):
        run(counting(), tmp_path, number, of)


def test_parts_are_not_taken_from_a_task_at_work(tmp_path):
    begun, go_on = threading.Event(), threading.Event()

    def wait(split: Split, number: int) -> None:
        if (tmp_path / "data" / ".counting.tasks" / "plan.json").exists():
            begun.set()
            assert go_on.wait(60)

    thread = threading.Thread(target=run, args=(counting(before=wait), tmp_path, 0, 2))
    thread.start()
    assert begun.wait(60)
    with pytest.raises(DataError, match="A task is at work"):
        run(counting(), tmp_path, 0, 2, seed=1, overwrite=True)
    go_on.set()
    thread.join()
    assert run(counting(), tmp_path, 1, 2).manifest is not None


def test_what_one_process_makes_meanwhile_is_kept_by_the_tasks(tmp_path, expected):
    run(counting(), tmp_path, 0, 2)
    generate_data(counting(), tmp_path / "data", tmp_path / "raw", progress=False)
    made: list[int] = []
    problem = counting(before=lambda split, number: made.append(number))
    assert run(problem, tmp_path, 1, 2).manifest is not None
    assert made == []
    assert files(tmp_path / "data") == expected
    assert Parts(tmp_path / "data", "counting").plan() is None
