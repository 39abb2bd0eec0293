"""Each bug that other projects have had makes a test fail when it is put into this one."""

from __future__ import annotations

import mutations
import processes
import pytest

EQUAL = "test_resume.py::test_a_resumed_run_is_bit_equal_to_one_that_never_stopped"
PLACE = (
    "test_signals.py::test_a_signal_anywhere_is_followed_by_a_save_and_a_resume_that_is_bit_equal"
)
FOUND_BY = {
    "empty_epoch": f"{EQUAL}[end of an epoch-0]",
    "position_not_loaded": f"{EQUAL}[middle of an epoch-0]",
    "second_offset_lost": "test_resume.py::test_two_resumes_in_one_epoch",
    "skipped_in_each_epoch": (
        "test_resume.py::test_after_a_resume_each_further_epoch_holds_each_example_once"
    ),
    "later_epochs_in_another_order": f"{EQUAL}[middle of an epoch-2]",
    "position_of_one_process": (
        "test_processes.py::"
        "test_the_order_of_the_batches_is_that_of_one_process_for_any_number[sizes1]"
    ),
    "epoch_not_restored": f"{EQUAL}[first of the second epoch-0]",
    "from_scratch_over_a_broken_run": (
        "test_resume.py::test_if_all_are_cut_short_nothing_is_trained_and_nothing_overwritten"
    ),
    "signals_seen_while_training_alone": f"{PLACE}[15-an evaluation]",
    "signals_not_agreed": (
        "test_processes.py::test_a_signal_to_one_of_two_processes_makes_both_save_the_same_step[15]"
    ),
    "random_numbers_not_resumed": f"{EQUAL}[first step-0]",
}


def test_every_mutation_has_a_test_that_finds_it():
    assert set(FOUND_BY) == set(mutations.MUTATIONS)


# Whether processes that do not agree hang is known when a scheduler's patience has ended.
PATIENT = {"signals_not_agreed"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in PATIENT))
        for name in mutations.MUTATIONS
    ],
)
def test_a_known_bug_is_found_when_it_is_put_in(tmp_path, mutation):
    test = FOUND_BY[mutation]
    environment = {mutations.VARIABLE: mutation}
    child = processes.start(tmp_path / "err", processes.run_pytest, [test], **environment)
    code = child.wait()
    assert code == pytest.ExitCode.TESTS_FAILED, child.said
    assert "1 failed" in child.said, child.said  # and not an error on the way to it


@pytest.mark.slow  # they are run where they stand, too
def test_those_tests_pass_where_nothing_is_put_in(tmp_path):
    tests = sorted(set(FOUND_BY.values()))
    child = processes.start(tmp_path / "err", processes.run_pytest, tests)
    assert child.wait() == 0, child.said
