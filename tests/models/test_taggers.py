"""Taggers and joint models: every choice holds the contract, and the choices do what they say."""

import pytest
import torch

from t2t_torch import registry, testing
from t2t_torch.errors import HParamsError
from t2t_torch.features import ClassLabel, Features, Real, Tags, Words, WordShape, WordStarts
from t2t_torch.text.encoder import ClassLabelEncoder, IntegerEncoder

WORDS = Words(IntegerEncoder(17))
LABELS = ClassLabelEncoder(["a", "b", "c"])
INTENT, SLOTS = ClassLabel(LABELS), Tags(LABELS)
TAGGERS = ("bilstm_tagger", "bilstm_slot_attention_tagger", "bsequential_cnn_tagger")
JOINT = ("joint_bilstm", "joint_cnn")


def model_of(name, features, **hparams):
    torch.manual_seed(0)
    model_class = registry.model(name)
    made = testing.small(model_class.HParams()).replace(**hparams)
    return model_class(made, features).eval()


@pytest.fixture
def tags_alone(monkeypatch):
    """The checks of the contract take problems with tags, as the others do not change."""
    every = testing.features_for

    def with_tags(model_class):
        for features in every(model_class):
            if any(isinstance(target, Tags) for target in features.targets.values()):
                yield features

    monkeypatch.setattr(testing, "features_for", with_tags)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", [*TAGGERS, *JOINT, "transformer_encoder"])
@pytest.mark.usefixtures("tags_alone")
def test_the_contract_holds_with_a_crf(name):
    model_class = registry.model(name)
    hparams = {"tag_decoder": "crf", "tag_constraints": "decode"}
    testing.check_model(model_class, model_class.HParams().replace(**hparams))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "hparams"),
    [
        ("bilstm_tagger", {"locked_dropout": True}),
        ("bilstm_slot_attention_tagger", {"slot_attention": "multiply"}),
        ("bilstm_slot_attention_tagger", {"slot_attention": "dot"}),
        ("bsequential_cnn_tagger", {"context_size": 1, "around_size": 0, "kernel_sizes": (2,)}),
        ("joint_bilstm", {"slot_attention": "none", "pooling": "last"}),
        ("joint_bilstm", {"slot_attention": "dot", "pooling": "max", "locked_dropout": True}),
        ("joint_cnn", {"sentence_kernel_sizes": (2, 9)}),
    ],
)
@pytest.mark.usefixtures("tags_alone")
def test_the_contract_holds_with_each_choice(name, hparams):
    model_class = registry.model(name)
    testing.check_model(model_class, model_class.HParams().replace(**hparams))


def test_the_contract_holds_where_words_are_given_the_classes(monkeypatch):
    features = Features({"inputs": WORDS}, {"intent": INTENT, "slots": SLOTS})
    monkeypatch.setattr(testing, "features_for", lambda model_class: iter([features]))
    model_class = registry.model("joint_bilstm")
    changes = {"use_doc_probs_in_word": True, "pooling": "mean"}
    testing.check_model(model_class, model_class.HParams().replace(**changes))


@pytest.mark.parametrize("target", ["intent", "slots"])
def test_words_are_not_given_classes_that_are_not_there(target):
    targets = {target: {"intent": INTENT, "slots": SLOTS}[target]}
    features = Features({"inputs": WORDS}, targets)
    with pytest.raises(HParamsError, match=rf"Here are {target} .*use_doc_probs_in_word=False"):
        model_of("joint_bilstm", features, use_doc_probs_in_word=True)


@pytest.mark.parametrize("name", [*TAGGERS, *JOINT])
def test_any_tagger_learns_the_same_problem(name):
    features = Features({"inputs": WORDS, "inputs_shape": WordShape("inputs")}, {"slots": SLOTS})
    model = model_of(name, features)
    batch = testing.random_batch(features)
    assert model(batch).logits["slots"].shape == (*batch["slots"].shape, 3)


@pytest.mark.parametrize("name", [*TAGGERS, *JOINT])
def test_the_tag_of_a_word_in_pieces_is_found_at_its_first(name):
    """Ids 1 and 3 begin words; the same ids as words of their own have the same states."""
    notes = {"inputs_starts": WordStarts("inputs", WORDS)}
    pieces = Features({"inputs": WORDS}, {"slots": SLOTS}, notes=notes)
    whole = Features({"inputs": WORDS}, {"slots": SLOTS})
    model, other = model_of(name, pieces), model_of(name, whole)
    other.load_state_dict(model.state_dict())
    ids = torch.tensor([[4, 7, 9, 3, 5]])
    starts = torch.tensor([[0, 1, 3]])
    found = model.logits({"inputs": ids, "inputs_starts": starts})["slots"]
    torch.testing.assert_close(found, other.logits({"inputs": ids})["slots"][:, [0, 1, 3]])


@pytest.mark.parametrize("name", [*TAGGERS, *JOINT])
def test_numbers_of_a_sentence_reach_all_its_targets(name):
    targets = {"slots": SLOTS} if name in TAGGERS else {"intent": INTENT, "slots": SLOTS}
    features = Features({"inputs": WORDS, "dense": Real(2)}, targets)
    model = model_of(name, features)
    ids = torch.tensor([[4, 7, 9]])
    with torch.no_grad():
        first, second = (
            model.logits({"inputs": ids, "dense": torch.full((1, 2), value)})
            for value in (0.0, 3.0)
        )
    for target in targets:
        changed = (first[target] - second[target]).abs().amax(-1)
        assert bool((changed > 1e-4).all()), target


@pytest.mark.parametrize(("asked", "expected"), [(True, True), (False, False)])
def test_slots_are_given_the_intent_where_asked(asked, expected):
    features = Features({"inputs": WORDS}, {"intent": INTENT, "slots": SLOTS})
    model = model_of("joint_bilstm", features, use_doc_probs_in_word=asked)
    batch = {"inputs": torch.tensor([[4, 7, 9]])}
    with torch.no_grad():
        before = model.logits(batch)["slots"]
        model.modalities["intent"].top.bias.copy_(torch.tensor([9.0, 0.0, -9.0]))
        after = model.logits(batch)["slots"]
    assert torch.equal(before, after) is not expected


@pytest.mark.parametrize("name", JOINT)
def test_one_loss_of_two_reaches_the_shared_part(name):
    features = Features({"inputs": WORDS}, {"intent": INTENT, "slots": SLOTS})
    for target in features.targets:
        model = model_of(name, features).train()
        loss = model(testing.random_batch(features)).losses[target]
        loss.sum.backward()
        shared = model.modalities["inputs"].bottom.weight.grad
        assert bool(shared.any())
