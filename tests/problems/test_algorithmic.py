from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.mode import Split
from t2t_torch.problems.algorithmic import AlgorithmicProblem

# tensor2tensor's lengths and counts: longest to train on, to evaluate on; samples of each.
TABLE = {
    "algorithmic_identity_binary40": (40, 400, 100_000, 10_000),
    "algorithmic_reverse_binary40": (40, 400, 100_000, 10_000),
    "algorithmic_reverse_binary40_test": (10, 10, 1000, 100),
    "algorithmic_shift_decimal40": (40, 80, 100_000, 10_000),
    "algorithmic_addition_binary40": (40, 400, 100_000, 10_000),
    "algorithmic_sort_problem": (10, 20, 100_000, 10_000),
    "tiny_algo": (40, 400, 100, 100),
    "algorithmic_identity_decimal40": (40, 400, 100_000, 10_000),
    "algorithmic_identity_vocab95_train20_eval30": (20, 30, 1_000_000, 10_000),
    "algorithmic_reverse_decimal40": (40, 400, 100_000, 10_000),
    "algorithmic_addition_decimal40": (40, 400, 100_000, 10_000),
    "algorithmic_multiplication_binary40": (40, 400, 100_000, 10_000),
    "algorithmic_multiplication_decimal40": (40, 400, 100_000, 10_000),
    "algorithmic_cipher_shift5": (100, 100, 100_000, 10_000),
    "algorithmic_cipher_shift200": (100, 100, 100_000, 10_000),
    "algorithmic_cipher_vigenere5": (200, 200, 100_000, 10_000),
    "algorithmic_cipher_vigenere200": (200, 200, 100_000, 10_000),
}


def _problem(name: str) -> AlgorithmicProblem:
    problem = registry.problem(name)
    assert isinstance(problem, AlgorithmicProblem)
    return problem


def _pairs(name: str, split: Split, count: int) -> list[tuple[list[int], list[int]]]:
    samples = islice(_problem(name).generate_samples(Path(), split), count)
    return [([*map(int, s["inputs"].split())], [*map(int, s["targets"].split())]) for s in samples]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", TABLE)
def test_lengths_and_counts_are_tensor2tensors(name: str) -> None:
    problem = _problem(name)
    found = (problem.train_length, problem.dev_length, problem.train_size, problem.dev_size)
    assert found == TABLE[name]
    for split, longest in ((Split.TRAIN, problem.train_length), (Split.EVAL, problem.dev_length)):
        lengths = [len(inputs) for inputs, _ in _pairs(name, split, 1000)]
        assert min(lengths) >= 1
        assert longest * 0.9 <= max(lengths) <= longest


@pytest.mark.parametrize("name", TABLE)
def test_every_symbol_has_an_id_and_all_ids_are_used(name: str) -> None:
    problem = _problem(name)
    features = problem.features(Path())
    seen = set()
    for sample in islice(problem.generate_samples(Path(), Split.TRAIN), 500):
        seen |= set(features.inputs["inputs"].encode(sample["inputs"]))
        seen |= set(features.targets["targets"].encode(sample["targets"]))
    assert seen == set(range(1, features.inputs["inputs"].vocab_size))


@pytest.mark.parametrize("name", TABLE)
def test_samples_are_the_same_every_time_and_differ_between_splits(name: str) -> None:
    assert _pairs(name, Split.TRAIN, 20) == _pairs(name, Split.TRAIN, 20)
    assert _pairs(name, Split.TRAIN, 20) != _pairs(name, Split.EVAL, 20)


def test_a_small_problem_yields_all_its_samples() -> None:
    assert len(_pairs("tiny_algo", Split.TRAIN, 10**6)) == 100
    assert len(_pairs("algorithmic_reverse_binary40_test", Split.TRAIN, 10**6)) == 1000


def test_each_task_does_what_its_name_says() -> None:
    for inputs, targets in _pairs("algorithmic_identity_binary40", Split.EVAL, 50):
        assert targets == inputs
    for inputs, targets in _pairs("algorithmic_reverse_binary40", Split.EVAL, 50):
        assert targets == list(reversed(inputs))
    for inputs, targets in _pairs("algorithmic_shift_decimal40", Split.EVAL, 50):
        assert max(inputs) < 10
        assert targets == [symbol + 10 for symbol in inputs]
    for inputs, targets in _pairs("algorithmic_sort_problem", Split.EVAL, 50):
        assert targets == sorted(inputs)


def test_binary_numbers_are_added_lowest_digit_first() -> None:
    def number(digits: list[int]) -> int:
        assert digits[-1] == 1 or len(digits) == 1
        return int("".join(map(str, reversed(digits))), base=2)

    for inputs, targets in _pairs("algorithmic_addition_binary40", Split.EVAL, 200):
        separator = inputs.index(2)
        total = number(inputs[:separator]) + number(inputs[separator + 1 :])
        assert number(targets) == total


def test_numbers_are_multiplied_lowest_digit_first() -> None:
    def number(digits: list[int]) -> int:
        return int("".join(map(str, reversed(digits))))

    for inputs, targets in _pairs("algorithmic_multiplication_decimal40", Split.EVAL, 50):
        separator = inputs.index(10)
        product = number(inputs[:separator]) * number(inputs[separator + 1 :])
        assert number(targets) == product


def test_ciphers_shift_each_symbol_by_the_key() -> None:
    for name, key in (("shift200", [1]), ("vigenere5", [1, 3])):
        count = _problem(f"algorithmic_cipher_{name}").num_symbols
        for plain, code in _pairs(f"algorithmic_cipher_{name}", Split.EVAL, 20):
            shifts = [key[i % len(key)] for i in range(len(plain))]
            assert [(y + s) % count for y, s in zip(code, shifts, strict=True)] == plain


def test_symbols_have_the_frequencies_of_zipfs_law() -> None:
    seen = [
        x
        for inputs, _ in _pairs("algorithmic_reverse_nlplike8k", Split.TRAIN, 2000)
        for x in inputs
    ]
    assert max(seen) < 8000
    ratio = seen.count(0) / seen.count(1)
    assert 2**1.3 * 0.95 < ratio < 2**1.3 * 1.05
    inputs, targets = _pairs("algorithmic_reverse_nlplike8k", Split.EVAL, 1)[0]
    assert targets == inputs[::-1]
