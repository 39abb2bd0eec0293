"""Metrics, computed by hand."""

import math

import pytest
import torch

from t2t_torch import registry
from t2t_torch.errors import UsageError
from t2t_torch.features import ClassLabel, Text
from t2t_torch.metrics.evaluation import Evaluation
from t2t_torch.metrics.metric import lower_is_better, metric_of
from t2t_torch.model import Loss, Output
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder, IntegerEncoder

TEXT = {"targets": Text(IntegerEncoder(8))}
TARGETS = torch.tensor([[3, 1, 0, 0], [2, 5, 4, 1]])


def logits_for(guesses):
    """Logits whose most likely ids are `guesses`, the next most likely the ids after them."""
    guesses = torch.tensor(guesses)
    logits = torch.zeros(*guesses.shape, 10)
    for rank in range(10):
        logits.scatter_(-1, ((guesses + rank) % 10)[..., None], 10.0 - rank)
    return logits


LOGITS = logits_for([[3, 1, 7, 7], [2, 4, 8, 1]])


@pytest.mark.parametrize(
    ("name", "value", "weight"),
    [("accuracy", 4, 6), ("accuracy_top5", 5, 6), ("accuracy_per_sequence", 1, 2)],
)
def test_padding_does_not_count(name, value, weight):
    found = registry.metric(name)(LOGITS, TARGETS, TARGETS != 0)
    assert [int(x) for x in found] == [value, weight]


def test_the_log_perplexity_is_the_mean_log_probability():
    logits = torch.zeros(2, 4, 10)
    value, weight = registry.metric("neg_log_perplexity")(logits, TARGETS, TARGETS != 0)
    assert value.item() / weight.item() == pytest.approx(-math.log(10))


def test_batches_of_any_size_add_up_to_the_same_result():
    whole, parts = (Evaluation(TEXT, {"targets": ["accuracy"]}, "p_rev") for _ in range(2))
    losses = {"targets": Loss(torch.tensor(12.0), torch.tensor(6.0))}
    whole.update(Output({"targets": LOGITS}, losses), {"targets": TARGETS})
    for row, total in ((0, 5.0), (1, 7.0)):
        weight = (TARGETS[row] != 0).sum().float()
        losses = {"targets": Loss(torch.tensor(total), weight)}
        parts.update(
            Output({"targets": LOGITS[row : row + 1]}, losses), {"targets": TARGETS[row : row + 1]}
        )
    expected = {"loss": 2.0, "metrics-p_rev/targets/accuracy": pytest.approx(4 / 6)}
    assert whole.result() == expected
    assert parts.result() == expected


def test_the_loss_is_over_the_weights_of_rows_also_below_one():
    evaluation = Evaluation(TEXT, {"targets": []}, "p")
    losses = {"targets": Loss(torch.tensor(0.3), torch.tensor(0.1))}
    evaluation.update(Output({"targets": LOGITS}, losses), {"targets": TARGETS})
    assert evaluation.result()["loss"] == pytest.approx(3.0)


def value(name, logits, targets, feature=TEXT["targets"], mask=None):
    metric = metric_of(name, feature)
    return metric.result(metric.noted_update(logits, targets, mask))


def test_of_equally_likely_ids_the_lower_comes_first():
    logits, targets = torch.zeros(1, 2, 10), torch.tensor([[4, 5]])
    assert value("accuracy_top5", logits, targets) == 1 / 2
    assert value("accuracy_top3", logits, targets) == 0.0
    logits[0, 0, 4] = math.nan
    assert value("accuracy_top5", logits, targets) == 0.0


def test_the_rank_of_the_right_class_counts_by_its_inverse():
    feature = ClassLabel(ClassLabelEncoder("abc"), allow_unknown=True)
    logits = torch.tensor([[3.0, 2.0, 1.0]] * 4)
    found = value("mean_reciprocal_rank", logits, torch.tensor([0, 1, 2, -1]), feature)
    assert found == pytest.approx((1 + 1 / 2 + 1 / 3 + 0) / 4)


def test_a_prefix_ends_at_the_first_wrong_id():
    assert value("prefix_accuracy", LOGITS, TARGETS) == pytest.approx((1 + 1 / 4) / 2)


def test_only_what_a_mask_names_counts():
    logits = torch.zeros(2, 4, 10)
    logits[0, 0, 3] = 100.0
    mask = torch.tensor([[1, 0, 1], [0, 0, 1]])  # narrower: texts have an end beside
    found = value("masked_neg_log_perplexity", logits, TARGETS, mask=mask)
    assert found == pytest.approx((0 - math.log(10)) / 2)


def test_a_metric_that_reads_a_mask_is_refused_where_there_is_none():
    metrics = {"targets": ["masked_neg_log_perplexity"]}
    with pytest.raises(UsageError, match="note 'targets_mask', and the problem has none"):
        Evaluation(TEXT, metrics, "p")
    Evaluation(TEXT, metrics, "p", ["targets_mask"])


def test_bits_are_for_each_byte_whatever_the_vocabulary():
    encoder = ByteEncoder()
    targets = torch.tensor([[*encoder.encode("aé"), 1], [*encoder.encode("b"), 1, 0, 0]])
    found = value("bits_per_byte", torch.zeros(2, 4, 258), targets, Text(encoder))
    assert found == pytest.approx(6 * math.log2(258) / 4)


def test_bits_of_a_row_of_a_stream_are_for_all_its_texts():
    encoder = ByteEncoder()
    texts = [*encoder.encode("aé"), 1, *encoder.encode("b"), 1, *encoder.encode("c")]
    logits = torch.zeros(1, len(texts), 258)
    for name, size in (("bits_per_byte", 5), ("bits_per_character", 4)):
        found = value(name, logits, torch.tensor([texts]), Text(encoder))
        assert found == pytest.approx(7 * math.log2(258) / size)


def test_a_word_is_wrong_if_any_of_it_is():
    encoder = ByteEncoder()
    targets = torch.tensor([[*encoder.encode("a cat sat"), 1, 0]])
    guesses = torch.nn.functional.one_hot(targets, 258).float()
    guesses[0, 3] = 0  # of "cat"; the likeliest is padding, which is no character
    assert value("word_error_rate", guesses, targets, Text(encoder)) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("name", "less"),
    [
        ("loss", True),
        ("accuracy", False),
        ("rmse", True),
        ("metrics-translate_x/targets/perplexity", True),
        ("metrics-translate_x/targets/approx_bleu_score", False),
        ("targets/edit_distance", True),
        ("metrics-p/tags/f1_per_label/loss", False),
        ("decode/bleu", False),
        ("decode/ter", True),
    ],
)
def test_it_is_known_whether_less_is_better(name, less):
    assert lower_is_better(name) is less


def test_of_a_name_that_nothing_has_no_direction_is_known():
    with pytest.raises(UsageError, match="Did you mean accuracy"):
        lower_is_better("metrics-p/targets/acuracy")
