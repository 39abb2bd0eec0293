"""N-grams are those of the definition; the solver finds the optimum, and the same one each time."""

import itertools

import numpy as np
import pytest

from t2t_torch.text.encoder import ByteEncoder, CharacterEncoder, TokenEncoder
from t2t_torch.text.linear import descend, fit
from t2t_torch.text.ngrams import TokenRows, codes_of_ids, count_ngrams

BUCKETS = 2**20


def counts_of(texts, encoder=None):
    encoder = encoder or CharacterEncoder(sorted({*"".join(texts)}))
    rows = TokenRows.of_lists(encoder.encode_batch(texts))
    return count_ngrams([rows], [codes_of_ids(encoder)], BUCKETS)


def naive_ngrams(text):
    """Words, word bigrams, and characters within spaces of a text of letters and spaces."""
    words = text.lower().split()
    found = [*words, *(f"{a} {b}" for a, b in itertools.pairwise(words))]
    around = f" {' '.join(words)} "
    for n in range(2, 6):
        parts = [around[i : i + n] for i in range(len(around) - n + 1)]
        found += [f"{n}{part}" for part in parts if " " not in part[1:-1]]
    return found


def test_ngrams_are_those_of_a_plain_loop():
    texts = ["a Bat  bats", "", "on the mat the", "word"]
    found = counts_of(texts)
    assert len(found) == len(texts)
    for i, text in enumerate(texts):
        row = found.values[found.offsets[i] : found.offsets[i + 1]]
        expected = naive_ngrams(text) if text else []
        _, counts = np.unique(expected, return_counts=True)
        assert sorted(row) == sorted(counts)
    # Equal n-grams of different texts have the same column.
    shared = np.intersect1d(*(found.take(np.array([i])).columns for i in (0, 2)))
    assert len(shared) == len(set(naive_ngrams(texts[0])) & set(naive_ngrams(texts[2])))


def test_the_same_text_has_the_same_ngrams_in_every_vocabulary():
    texts = ["the cat sat", "on the mat"]
    words = TokenEncoder("the cat sat on mat".split())
    expected = counts_of(texts)
    for encoder in (words, ByteEncoder()):
        found = counts_of(texts, encoder)
        assert np.array_equal(found.columns, expected.columns)
        assert np.array_equal(found.offsets, expected.offsets)


def sparse(dense):
    rows, columns = np.nonzero(dense)
    offsets = np.searchsorted(rows, np.arange(len(dense) + 1))
    return TokenRows(columns, offsets, dense[rows, columns].astype(np.float32))


def test_ridge_regression_has_its_closed_form():
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 6)) * (random.random((40, 6)) < 0.7)
    y, costs = random.normal(size=(40, 2)), random.uniform(0.5, 2.0, 40)
    scale = random.uniform(0.5, 2.0, (6, 1))
    arrays = [one.astype(np.float32) for one in (scale, y, costs)]
    found = descend(sparse(x), *arrays, hinge=False, tolerance=1e-5, epochs=2000)
    wide = np.concatenate([x, np.ones((40, 1))], 1)
    penalty = np.diag([*(1 / scale[:, 0]), 1.0])
    expected = np.linalg.solve(
        wide.T @ (costs[:, None] * wide) + penalty, wide.T @ (costs[:, None] * y)
    )
    assert np.concatenate([found.weights, found.bias[None]]) == pytest.approx(expected, abs=1e-3)


def test_the_gradient_of_the_squared_hinge_is_zero():
    random = np.random.default_rng(1)
    x = random.normal(size=(60, 5))
    y = np.sign(x @ random.normal(size=(5, 3)) + random.normal(size=(60, 3))).astype(np.float32)
    scale = random.uniform(0.5, 2.0, (5, 3)).astype(np.float32)
    costs = np.full(60, 0.7, np.float32)
    found = descend(sparse(x), scale, y, costs, hinge=True, tolerance=1e-5, epochs=2000)
    missing = np.maximum(1 - y * (x @ found.weights + found.bias), 0)
    gradient = found.weights / scale - 2 * x.T @ (costs[:, None] * missing * y)
    assert np.abs(gradient).max() < 1e-2


def test_a_fit_is_right_calibrated_and_the_same_each_time():
    random = np.random.default_rng(2)
    labels = random.integers(0, 3, 300)
    words = [["good", "bad", "so so"][label if random.random() < 0.9 else 0] for label in labels]
    counts = counts_of([f"a {word} film {i}" for i, word in enumerate(words)])
    unknown = np.where(np.arange(300) < 10, -1, labels)
    one, two = (fit(counts, unknown, 3, buckets=BUCKETS) for _ in range(2))
    assert np.array_equal(one.weights, two.weights) and one.slope == two.slope
    probabilities = one.probabilities(counts)
    assert (probabilities.argmax(1) == labels).mean() > 0.85
    assert probabilities.max(1).mean() == pytest.approx(
        (probabilities.argmax(1) == labels).mean(), abs=0.1
    )


def test_labels_and_numbers_are_fitted():
    texts = ["red", "blue", "red blue", "none"] * 20
    counts = counts_of(texts)
    labels = np.array([["red" in one, "blue" in one] for one in texts])
    found = fit(counts, labels, 0, buckets=BUCKETS).probabilities(counts)
    assert ((found > 0.5) == labels).all()
    numbers, dense = labels.sum(1, keepdims=True) - 1.0, np.arange(80.0)[:, None] / 80
    target = numbers + 2 * dense
    model = fit(counts, target, -1, buckets=BUCKETS, dense=dense.astype(np.float32), costs=(30.0,))
    assert np.abs(model.scores(counts, dense.astype(np.float32)) - target).mean() < 0.1


def test_ngrams_of_one_row_are_left_out_where_held_out_rows_say_so():
    draw = np.random.default_rng(1)
    letters = np.array(list("bcdfghklmnprst"))
    stems = ["".join(draw.choice(letters, 6)) for _ in range(300)]
    classes = draw.integers(0, 2, 300)
    names = [stem + "aa" * int(one) for stem, one in zip(stems, classes, strict=True)]
    found = fit(counts_of(names), classes, 2, buckets=BUCKETS)
    frequency = np.bincount(counts_of(names).columns, minlength=BUCKETS)
    assert not found.idf[frequency == 1].any() and found.idf[frequency == 2].all()
    few = ["good film", "bad book"] * 2
    assert fit(counts_of(few), np.array([0, 1, 0, 1]), 2, buckets=BUCKETS, costs=(1.0,)).idf.any()
