"""Models of two texts and of queries with documents, against slow ways."""

from __future__ import annotations

import math

import pytest
import torch

from t2t_torch import registry, testing
from t2t_torch.errors import HParamsError
from t2t_torch.features import Choice, ClassLabel, Features, Real, Text, Words, WordShape
from t2t_torch.hparams.pair_classifier import PairClassifierHParams
from t2t_torch.hparams.pairwise_ranker import PairwiseRankerHParams
from t2t_torch.layers.sentence_encoder import Alignment, Matches, SelfAttentive, occurring
from t2t_torch.models.pair_classifier import PairClassifier
from t2t_torch.models.pairwise_ranker import PairwiseRanker
from t2t_torch.text.encoder import ClassLabelEncoder, IntegerEncoder, TokenEncoder

TEXT = Text(IntegerEncoder(17))
LABEL = ClassLabel(ClassLabelEncoder(["0", "1"]))
PAIR = Features({"first": TEXT, "second": TEXT}, {"targets": LABEL})
CHOICE = Features(
    {"query": TEXT, "positive": TEXT, "negative": TEXT},
    {"targets": Choice(("positive", "negative"))},
)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "changes",
    [
        {"encoder": "cnn", "sentence_pooling": "mean", "mlp_layers": 2},
        {"encoder": "none", "alignment": "inputs", "match_feature": True},
        {"alignment": "contexts", "sentence_pooling": "attention"},
        {"alignment": "esim", "mean_too": True, "match_feature": True, "tied_encoders": False},
    ],
    ids=str,
)
def test_each_setting_of_the_pair_classifier_holds_the_contract(changes):
    testing.check_model(PairClassifier, PairClassifierHParams().replace(**changes))


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "changes",
    [
        {"score": "mlp", "match_feature": True},
        {"score": "dot", "encoder": "cnn", "tied_encoders": False},
    ],
    ids=str,
)
def test_each_setting_of_the_ranker_holds_the_contract(changes):
    testing.check_model(PairwiseRanker, PairwiseRankerHParams().replace(**changes))


def small(features, model=PairClassifier, **changes):
    torch.manual_seed(0)
    return model(testing.small(model.HParams()).replace(**changes), features)


def test_both_targets_of_a_pair_are_learnt_together():
    targets = {"entailment": LABEL, "relatedness": Real()}
    model = small(Features(PAIR.inputs, targets)).eval()
    batch = testing.random_batch(model.features)
    logits = model(batch).logits
    assert logits["entailment"].shape == (3, 2)
    assert logits["relatedness"].shape == (3, 1)


def test_tied_encoders_are_one_and_see_no_order():
    tied = small(PAIR).eval()
    assert tied.encoders[0] is tied.encoders[1]
    assert small(PAIR, tied_encoders=False).encoders[0] is not tied.encoders[1]


def test_one_encoder_of_different_inputs_is_refused():
    words = Words(IntegerEncoder(17))
    inputs = {"first": words, "second": words, "first_shape": WordShape("first")}
    with pytest.raises(HParamsError, match="tied_encoders=False"):
        small(Features(inputs, PAIR.targets))


def test_ids_that_occur_are_found_as_by_a_loop():
    ids, others = torch.randint(6, (4, 5)), torch.randint(6, (4, 7))
    found = occurring(ids, others, skipped=[2]).tolist()
    for row in range(4):
        for place, identity in enumerate(ids[row].tolist()):
            assert found[row][place] == (identity > 2 and identity in others[row].tolist())


def test_unknown_words_do_not_match_and_shares_are_of_weights():
    text = Text(TokenEncoder(["<UNK>", "a", "b", "c"], replace_oov="<UNK>"))
    matches = Matches(Features({"first": text, "second": text}, PAIR.targets), ["first", "second"])
    first = torch.tensor([text.encode("a b x")])
    second = torch.tensor([text.encode("b c y x")])
    assert matches(first, second)[0, :, 0].tolist() == [0, 1, 0, 0]
    weight = matches.weight.detach()
    x, a, b, c = (float(weight[text.encode(word)[0]]) for word in "xabc")
    expected = [1 / 3, b / (a + b + x), 1 / 4, b / (b + c + 2 * x)]
    assert matches.summary(first, second)[0].tolist() == pytest.approx(expected)
    assert x < a < b < c  # frequent words come first and weigh less


def test_texts_of_two_vocabularies_have_no_matches():
    inputs = {"first": TEXT, "second": Text(IntegerEncoder(9))}
    with pytest.raises(HParamsError, match="match_feature=False"):
        small(Features(inputs, PAIR.targets), match_feature=True)


def test_vocabularies_of_one_size_are_compared_id_by_id():
    def matches(first, second):
        inputs = {"first": Text(TokenEncoder(first)), "second": Text(TokenEncoder(second))}
        return Matches(Features(inputs, PAIR.targets), ["first", "second"])

    with pytest.raises(HParamsError, match=r"first has 'b' where second has 'c'.*match_feature="):
        matches(["a", "b"], ["a", "c"])
    assert matches(["a", "b"], ["a", "b"]).weight.numel() == 4


def test_an_alignment_is_a_mean_by_softmax_as_in_a_loop():
    torch.manual_seed(0)
    x, y = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    layer = Alignment(4)
    found = layer(layer.scores(x, y), y, mask)
    for row in range(2):
        kept = y[row, mask[row]]
        for place in range(3):
            weights = [math.exp(float(x[row, place] @ one) / 2) for one in kept]
            mean = sum(w * one for w, one in zip(weights, kept, strict=True)) / sum(weights)
            torch.testing.assert_close(found[row, place], mean)
    nothing = torch.zeros(2, 5, dtype=torch.bool)
    assert not layer(layer.scores(x, y), y, nothing).any()
    assert not SelfAttentive(4)(y, nothing).any()


def test_a_score_is_the_cosine_times_what_it_is_learnt_to_be():
    model = small(CHOICE, PairwiseRanker, score_scale=3.0).eval()
    batch = testing.random_batch(CHOICE)
    embedded = model.bottom(batch)
    vectors = {name: model._encoded("query", name, embedded) for name in CHOICE.inputs}
    for place, name in enumerate(("positive", "negative")):
        cosine = torch.cosine_similarity(vectors["query"], vectors[name])
        torch.testing.assert_close(model(batch).logits["targets"][:, place], 3.0 * cosine)


def test_a_score_is_the_log_odds_of_relevance():
    features = Features({"query": TEXT, "document": TEXT}, {"targets": LABEL})
    model = small(features, PairwiseRanker, score_scale=3.0).eval()
    batch = testing.random_batch(features)
    embedded = model.bottom(batch)
    query, document = (model._encoded("query", name, embedded) for name in features.inputs)
    wrong, right = model(batch).logits["targets"].unbind(-1)
    torch.testing.assert_close(right - wrong, 3.0 * torch.cosine_similarity(query, document))


def test_the_documents_of_other_queries_are_wrong_ones_but_those_that_may_be_right():
    model = small(
        CHOICE,
        PairwiseRanker,
        score="dot",
        in_batch_negatives=True,
        loss="cross_entropy",
        layer_prepostprocess_dropout=0.0,
    )
    batch = testing.random_batch(CHOICE, rows=4)
    batch["targets"] = torch.tensor([0, 1, 0, 0])
    for name in CHOICE.inputs:
        batch[name][3] = batch[name][0]  # the same query again: its documents may be right
    batch["negative"][2, :] = 0
    width = min(batch["positive"].size(1), batch["negative"].size(1))
    batch["negative"][2, :width] = batch["positive"][0, :width]  # row 0's right one, read by 2
    loss = model.train()(batch).losses["targets"]

    embedded = model.bottom(batch)
    query = model._encoded("query", "query", embedded)
    documents = [model._encoded("document", n, embedded) for n in ("positive", "negative")]
    top, total = model.modalities["targets"].top, 0.0
    for row in range(4):
        own = [documents[k][row] for k in range(2)]
        text = [batch[n][row].tolist() for n in ("positive", "negative")][batch["targets"][row]]
        others = [
            documents[k][other]
            for other in range(4)
            for k, n in enumerate(("positive", "negative"))
            if other != row
            and batch["query"][other].tolist() != batch["query"][row].tolist()
            and trimmed(batch[n][other].tolist()) != trimmed(text)
        ]
        dots = torch.stack([query[row] @ one for one in (*own, *others)]) / math.sqrt(16)
        scores = dots * top.weight[0, 0] + top.bias
        total += -scores.log_softmax(0)[batch["targets"][row]].item()
    assert loss.sum.item() == pytest.approx(total, rel=1e-5)
    assert loss.weight.item() == 4
    assert model.eval()(batch).logits["targets"].shape == (4, 2)


def trimmed(ids):
    return [identity for identity in ids if identity]


def test_labels_have_no_negatives_of_other_queries():
    features = Features({"query": TEXT, "document": TEXT}, {"targets": LABEL})
    with pytest.raises(HParamsError, match="in_batch_negatives=False"):
        small(features, PairwiseRanker, in_batch_negatives=True)


def test_a_teacher_knows_nothing_of_the_documents_of_other_queries():
    with pytest.raises(HParamsError, match="Leave one of them out"):
        small(CHOICE, PairwiseRanker, in_batch_negatives=True, distill_from="run")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "name", [n for n in registry.list_names("hparams") if n.startswith(("pair_", "pairwise_"))]
)
def test_each_set_learns_a_batch(name):
    hparams = registry.hparams(name)
    model_class = PairClassifier if name.startswith("pair_") else PairwiseRanker
    labels = Features({"query": TEXT, "document": TEXT}, {"targets": LABEL})
    takes_choice = model_class is PairwiseRanker and "relevance" not in name
    torch.manual_seed(0)
    model = model_class(testing.small(hparams), CHOICE if takes_choice else labels)
    testing._check_learning(model, testing.random_batch(model.features))
