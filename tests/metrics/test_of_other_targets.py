"""Metrics of classes, tags, spans, numbers and texts, computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from t2t_torch.errors import UsageError
from t2t_torch.features import IGNORED, ClassLabel, MultiLabel, Real, SoftLabel, Span, Tags, Text
from t2t_torch.metrics.evaluation import Evaluation
from t2t_torch.metrics.metric import metric_of
from t2t_torch.modalities.label import best_spans
from t2t_torch.model import Loss, Output
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder, TokenEncoder
from t2t_torch.text.subword import SubwordEncoder
from t2t_torch.text.tags import TagScheme

LABELS = ClassLabelEncoder(["O", "B-a", "I-a", "B-b", "I-b"])


def one_hot(ids, classes=5):
    return torch.nn.functional.one_hot(torch.tensor(ids), classes).float() * 9


def value(name, feature, logits, targets):
    metric = metric_of(name, feature)
    halves = [metric.update(logits[i::2], targets[i::2]) for i in (0, 1)]
    whole = metric.update(logits, targets)
    torch.testing.assert_close(sum(halves), whole)  # sums add up over batches
    return metric.result(whole)


def test_an_unknown_class_is_never_right_and_has_no_likelihood():
    feature = ClassLabel(LABELS, allow_unknown=True)
    logits, targets = one_hot([0, 1, 2, 3]), torch.tensor([0, 1, 3, -1])
    assert value("accuracy", feature, logits, targets) == 0.5
    expected = logits[:3].log_softmax(-1)[range(3), targets[:3]].mean().item()
    assert value("neg_log_perplexity", feature, logits, targets) == pytest.approx(expected, 1e-5)


def test_tags_that_fill_up_do_not_count():
    feature = Tags(LABELS)
    logits = one_hot([[1, 2, 0], [0, 0, 0]])
    targets = torch.tensor([[1, 2, IGNORED], [0, 3, -1]])
    assert value("accuracy", feature, logits, targets) == 3 / 5
    assert value("accuracy_per_sequence", feature, logits, targets) == 1 / 2


def test_soft_labels_are_measured_against_their_distribution():
    feature = SoftLabel(ClassLabelEncoder(["x", "y"]))
    logits, targets = torch.zeros(2, 2), torch.tensor([[0.9, 0.1], [0.4, 0.6]])
    assert value("neg_log_perplexity", feature, logits, targets) == pytest.approx(-math.log(2))
    assert value("accuracy", feature, one_hot([0, 0], 2), targets) == 0.5


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("B-a I-a O B-b", [(0, 1, "a"), (3, 3, "b")]),
        ("I-a I-a I-b B-b", [(0, 1, "a"), (2, 2, "b"), (3, 3, "b")]),  # IOB1
        ("B-a B-a", [(0, 0, "a"), (1, 1, "a")]),
        ("S-a B-a I-a E-a I-a", [(0, 0, "a"), (1, 3, "a"), (4, 4, "a")]),  # BIOES
        ("O O", []),
        ("", []),
        ("B-x-y I-x-y", [(0, 1, "x-y")]),
        ("NOUN NOUN VERB", [(0, 1, "NOUN"), (2, 2, "VERB")]),
    ],
)
def test_spans_are_read_off_tags_as_conlleval_does(tags, spans):
    assert [tuple(span) for span in TagScheme("BIES").spans(tags.split())] == spans


def test_span_f1_counts_spans_of_the_same_words_and_kind():
    feature = Tags(LABELS)
    guessed = one_hot([[1, 2, 0, 3], [1, 0, 0, 0]])
    targets = torch.tensor([[1, 2, 0, 1], [1, 2, IGNORED, IGNORED]])
    assert value("span_f1", feature, guessed, targets) == pytest.approx(2 * 1 / (3 + 3))


def test_a_gold_tag_that_training_never_saw_is_a_span_that_is_missed():
    feature = Tags(LABELS, allow_unknown=True)
    targets = torch.tensor([[-1], [1]])
    assert value("span_f1", feature, one_hot([[1], [1]]), targets) == pytest.approx(2 / 4)


def test_the_best_span_never_ends_before_it_begins_and_may_be_none():
    logits = torch.full((3, 4, 2), -9.0)
    logits[0, 3, 0] = logits[0, 1, 1] = 5.0  # first and last the wrong way round
    logits[0, 2, 1] = logits[0, 2, 0] = 3.0
    logits[1, 0] = 9.0  # no answer
    logits[2, 1, 0] = logits[2, 2, 1] = 5.0
    spans = best_spans(logits)
    assert spans[0, 0] <= spans[0, 1]
    assert spans[1].tolist() == [-1, -1]
    assert spans[2].tolist() == [0, 1]


def test_answers_are_compared_by_the_places_of_their_words():
    logits = torch.full((4, 6, 2), -9.0)
    for row, (first, last) in enumerate([(1, 2), (1, 2), (0, 0), (1, 2)]):
        logits[row, first, 0] = logits[row, last, 1] = 5.0  # position 0 is "none"
    targets = torch.tensor([[0, 1], [1, 2], [-1, -1], [-1, -1]])
    assert value("answer_exact_match", Span(), logits, targets) == 2 / 4
    assert value("answer_f1", Span(), logits, targets) == pytest.approx((1 + 0.5 + 1 + 0) / 4)


def test_numbers_are_compared_by_their_squared_error_and_their_correlation():
    logits, targets = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[2.0], [2.0], [6.0]])
    assert value("rmse", Real(), logits, targets) == pytest.approx(math.sqrt(5 / 3))
    stacked = torch.stack([logits.flatten(), targets.flatten()])
    expected = torch.corrcoef(stacked)[0, 1].item()
    assert value("pearson", Real(), logits, targets) == pytest.approx(expected)
    assert value("pearson", Real(), torch.ones(3, 1), targets) == 0.0


def test_several_labels_are_right_together_or_one_by_one():
    feature = MultiLabel(ClassLabelEncoder(["x", "y", "z"]))
    logits = torch.tensor([[1.0, -1, -1], [1, 1, -1]])
    targets = torch.tensor([[1, 0, 0], [1, 0, 1]], dtype=torch.uint8)
    assert value("exact_match", feature, logits, targets) == 0.5
    assert value("f1_micro", feature, logits, targets) == pytest.approx(2 * 2 / (3 + 3))


def test_the_perplexity_of_words_does_not_depend_on_the_vocabulary(tmp_path):
    texts = ["the cat sat", "a dog\nran off"]
    words = TokenEncoder("the cat sat a dog ran off".split())
    subwords = SubwordEncoder.train(texts * 50, 290, tmp_path / "vocab")
    expected = 3 + 1 + 4 + 2  # words, and an end for each line
    for encoder in (ByteEncoder(), subwords):
        table = encoder.words_of_ids()
        assert len(table) == encoder.vocab_size
        ids = [i for text in texts for i in (*encoder.encode(text), 1)]
        assert sum(table[i] for i in ids) == expected
    lines = "\n".join(texts).split("\n")
    ids = [i for line in lines for i in (*words.encode(line), 1)]
    assert sum(words.words_of_ids()[i] for i in ids) == expected


def test_perplexity_is_the_exponential_of_the_mean_loss():
    feature = Text(ByteEncoder())
    targets = torch.tensor([[2 + ord("a"), 2 + ord(" "), 2 + ord("b"), 1], [2 + ord("c"), 1, 0, 0]])
    logits = torch.zeros(2, 4, 258)
    assert value("perplexity", feature, logits, targets) == pytest.approx(258)
    expected = math.exp(6 * math.log(258) / 5)
    assert value("word_perplexity", feature, logits, targets) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        ("span_f1", Real()),
        ("word_perplexity", ClassLabel(LABELS)),
        ("perplexity", Real()),
        ("pearson", Tags(LABELS)),
        ("rmse", Text(ByteEncoder())),
        ("answer_f1", Tags(LABELS)),
        ("set_recall", ClassLabel(LABELS)),
        ("exact_match", ClassLabel(LABELS)),
        ("accuracy", Real()),
        ("accuracy", MultiLabel(LABELS)),
        ("neg_log_perplexity", Span()),
        ("accuracy_top5", SoftLabel(LABELS)),
        ("accuracy_per_sequence", ClassLabel(LABELS)),
        ("pairwise_accuracy", ClassLabel(LABELS)),
    ],
)
def test_a_metric_of_another_kind_of_target_is_refused(name, feature):
    told = f"{name!r} is of a target that is a .*this one is a {type(feature).__name__}"
    with pytest.raises(UsageError, match=told):
        metric_of(name, feature)


def test_a_mean_is_over_its_weight_also_below_one():
    metric = metric_of("accuracy", ClassLabel(LABELS))
    assert metric.result(torch.tensor([0.1, 0.4])) == pytest.approx(0.25)
    assert metric.result(torch.zeros(2)) == 0.0


def test_spans_are_counted_for_each_kind_of_them():
    feature = Tags(LABELS, allow_unknown=True)
    guessed = one_hot([[1, 2, 0, 3], [1, 0, 0, 0]])
    targets = torch.tensor([[1, 2, 0, 1], [1, 2, IGNORED, -1]])
    assert value("span_precision", feature, guessed, targets) == pytest.approx(1 / 3)
    assert value("span_recall", feature, guessed, targets) == pytest.approx(1 / 4)
    metric = metric_of("span_f1_per_label", feature)
    sums = metric.update(guessed, targets)
    assert metric.results("f", sums) == {"f/a": pytest.approx(2 * 1 / (2 + 3)), "f/b": 0.0}
    assert metric.result(sums) == pytest.approx((2 / 5 + 0 + 0) / 3)  # the third is unknown


def test_an_example_is_right_if_all_its_targets_are():
    targets = {"intent": ClassLabel(LABELS), "slots": Tags(LABELS)}
    right = {
        "intent": torch.tensor([0, 1, 2, 3]),
        "slots": torch.tensor([[1, 2], [3, IGNORED], [0, 0], [0, IGNORED]]),
    }
    logits = {"intent": one_hot([0, 1, 2, 0]), "slots": one_hot([[1, 2], [3, 4], [0, 1], [0, 0]])}
    loss = Loss(torch.tensor(1.0), torch.tensor(1.0))
    evaluation = Evaluation(targets, {"intent": (), "slots": ()}, "p")
    evaluation.update(Output(logits, dict.fromkeys(targets, loss)), right)
    assert evaluation.result()["metrics-p/all_targets/exact_match"] == 2 / 4
    assert (
        "metrics-p/all_targets/exact_match"
        not in Evaluation(
            {**targets, "number": Real()}, dict.fromkeys([*targets, "number"], ()), "p"
        ).result()
    )


def test_spans_of_each_kind_have_their_numbers():
    feature = Tags(LABELS)
    #                    a  a  .  b  |  a  .  b  b
    targets = torch.tensor([[1, 2, 0, 3], [1, 0, 3, 4]])
    logits = one_hot([[1, 2, 0, 1], [1, 0, 3, 0]])
    found = {}
    for column in ("precision", "recall", "support"):
        metric = metric_of(f"span_{column}_per_label", feature)
        found |= metric.results(column, metric.update(logits, targets))
    assert found == {
        "precision/a": pytest.approx(2 / 3),
        "precision/b": 0.0,
        "recall/a": 1.0,
        "recall/b": 0.0,
        "support/a": 2.0,
        "support/b": 2.0,
    }


def test_the_correlation_of_ranks_does_not_see_how_far_numbers_are_apart():
    right = torch.tensor([[0.1], [1.0], [2.0], [50.0]])
    assert value("spearman", Real(1), right.exp().clamp(max=1e5), right) == pytest.approx(1.0)
    assert value("spearman", Real(1), -right, right) == pytest.approx(-1.0)
    swapped = torch.tensor([[1.0], [0.1], [2.0], [50.0]])
    assert value("spearman", Real(1), swapped, right) == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert value("spearman", Real(1), torch.ones(4, 1), right) == 0.0
    ties = torch.tensor([[0.1], [0.1], [2.0], [50.0]])  # ranks 1.5, 1.5, 3, 4
    expected = 4.5 / math.sqrt(4.5 * 5)
    assert value("spearman", Real(1), ties, right) == pytest.approx(expected)


def test_the_correlation_of_ranks_in_bins_is_near_that_of_all_numbers():
    generator = torch.Generator().manual_seed(0)
    right = torch.rand(2000, 1, generator=generator) * 5
    guesses = right + torch.randn(2000, 1, generator=generator)
    ranks = torch.stack([guesses, right]).squeeze(-1).argsort(-1).argsort(-1).double()
    expected = torch.corrcoef(ranks)[0, 1].item()
    assert value("spearman", Real(1), guesses, right) == pytest.approx(expected, abs=2e-3)
    for scale in (1e-3, 1e3):  # in whatever unit
        found = value("spearman", Real(1), guesses * scale, right / scale)
        assert found == pytest.approx(expected, abs=2e-3)
    guesses[3] = math.nan
    metric = metric_of("spearman", Real(1))
    assert math.isnan(metric.result(metric.update(guesses, right)))
