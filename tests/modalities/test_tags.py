"""Tags of a sentence as one sequence: what is guessed, what it costs, and what is refused."""

import itertools

import pytest
import torch

from t2t_torch.errors import HParamsError
from t2t_torch.features import IGNORED, UNKNOWN, ClassLabel, Features, Tags, Words
from t2t_torch.hparam import HParams
from t2t_torch.layers import crf
from t2t_torch.layers.crf import NEVER
from t2t_torch.modalities.build import build_modalities
from t2t_torch.modality import Hidden
from t2t_torch.objectives.objective import check_objective
from t2t_torch.text.encoder import ClassLabelEncoder, IntegerEncoder
from t2t_torch.text.tags import scheme_of
from t2t_torch.train.problem_task import check_loss_settings

LABELS = ("O", "B-a", "I-a", "B-b", "I-b")
FEATURES = Features(
    {"inputs": Words(IntegerEncoder(9))}, {"targets": Tags(ClassLabelEncoder(LABELS))}
)
TARGETS = torch.zeros(3, 6, dtype=torch.long)
MASK = torch.arange(6) < torch.tensor([6, 4, 1])[:, None]
CRF = {"tag_decoder": "crf"}
WAYS = [
    CRF,
    {**CRF, "tag_constraints": "decode"},
    {**CRF, "tag_constraints": "train"},
    {"tag_constraints": "decode"},
]


def modality_of(**hparams):
    torch.manual_seed(0)
    modality = build_modalities(HParams().replace(hidden_size=8, **hparams), FEATURES)["targets"]
    if hparams.get("tag_decoder"):
        for weights in modality.crf.parameters():
            weights.data.normal_()
    return modality


def logits_of(modality, rows=3, seed=1):
    hidden = torch.randn(rows, 6, 8, generator=torch.Generator().manual_seed(seed)) * 3
    mask = MASK if rows == 3 else torch.ones(rows, 6, dtype=torch.bool)
    return modality.logits(Hidden(hidden, mask))


@pytest.mark.parametrize("way", WAYS[:3])
def test_a_sentence_without_words_is_certain(way):
    modality = modality_of(**way)
    mask = torch.tensor([[True, True], [False, False]])
    found = modality.predict(modality.logits(Hidden(torch.randn(2, 2, 8), mask))).rows()
    assert found[1].probability == 1.0
    assert 0.0 < found[0].probability <= 1.0


@pytest.mark.parametrize("way", WAYS)
def test_what_metrics_read_is_what_is_guessed(way):
    modality = modality_of(**way)
    logits = logits_of(modality)
    read = modality.readable(logits, TARGETS)
    assert bool(read.isfinite().all())
    guessed = torch.tensor([guess.numbers for guess in modality.predict(logits).rows()])
    assert torch.equal(read.argmax(-1)[MASK], guessed[MASK])
    single = logits.argmax(-1)
    assert not torch.equal(single[MASK], guessed[MASK]), "the sequence should matter here"


@pytest.mark.parametrize("way", WAYS[1:])
def test_no_span_goes_on_that_has_not_begun(way):
    modality = modality_of(**way)
    for guess in modality.predict(logits_of(modality, rows=40)).rows():
        names = ["O", *(LABELS[tag] for tag in guess.numbers)]
        pairs = [pair for pair in itertools.pairwise(names) if pair[1].startswith("I")]
        assert all(a in ("B" + b[1:], b) for a, b in pairs), names
        assert all(
            names[span.first + 1].startswith("B") for span in scheme_of(names).spans(names[1:])
        )


@pytest.mark.parametrize("way", WAYS)
def test_padding_changes_no_guess(way):
    modality = modality_of(**way)
    logits = logits_of(modality)
    whole = modality.predict(logits).rows()
    for row, length in enumerate(MASK.sum(1).tolist()):
        (alone,) = modality.predict(logits[row : row + 1, :length]).rows()
        assert list(alone.numbers) == list(whole[row].numbers[:length])
        if alone.probability is not None:
            assert whole[row].probability == pytest.approx(alone.probability, abs=1e-6)


def test_a_crf_tells_how_likely_its_guess_is():
    modality = modality_of(**CRF)
    logits = logits_of(modality)
    (guess,) = modality.predict(logits[2:, :1]).rows()
    scores = logits[2, 0] + modality.crf.start + modality.crf.end
    assert guess.probability == pytest.approx(scores.softmax(0).max().item(), abs=1e-6)


def test_a_crf_read_by_metrics_gives_probabilities():
    modality = modality_of(**CRF)
    found = modality.readable(logits_of(modality), TARGETS)[MASK].exp().sum(-1)
    torch.testing.assert_close(found, torch.ones_like(found), atol=1e-5, rtol=1e-5)


def test_the_loss_is_that_of_sentences_over_their_known_words():
    modality = modality_of(**CRF)
    logits = logits_of(modality)
    targets = torch.tensor([[0, 1, 2, UNKNOWN, 0, 0], [3, 4, 0, 1, *[IGNORED] * 2], [0] * 6])
    targets[2, 1:] = IGNORED
    weights = torch.tensor([1.0, 0.5, 2.0])
    values, _ = crf.negative_log_likelihood(logits, targets, MASK, modality.crf())
    found = modality.loss(logits, targets, weights)
    torch.testing.assert_close(found.sum, (values * weights).sum())
    torch.testing.assert_close(found.weight, torch.tensor(5.0 + 4 * 0.5 + 2.0))
    parts = [
        modality.loss(logits[i : i + 1], targets[i : i + 1], weights[i : i + 1]) for i in range(3)
    ]
    torch.testing.assert_close(sum(part.sum for part in parts), found.sum)


def test_a_constrained_loss_is_smaller_and_leaves_out_what_cannot_be():
    free, bound = modality_of(**CRF), modality_of(**CRF, tag_constraints="train")
    bound.load_state_dict(free.state_dict())
    logits = logits_of(free)
    targets = torch.tensor([[0, 2, 2, 0, 0, 0], [3, 4, 0, 1, *[IGNORED] * 2], [0] * 6])
    targets[2, 1:] = IGNORED
    first, second = (one.loss(logits[1:], targets[1:]) for one in (free, bound))
    assert second.sum < first.sum and second.weight == first.weight == 5
    torch.testing.assert_close(bound.loss(logits, targets), second)


def test_autocast_does_not_reach_a_crf():
    modality = modality_of(**CRF)
    logits = logits_of(modality)
    targets = torch.where(MASK, 1, IGNORED)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = modality.loss(logits, targets)
    torch.testing.assert_close(found, modality.loss(logits, targets), rtol=0, atol=0)


def test_padding_of_a_softmax_is_left_alone_unless_sequences_are_compared():
    assert bool((logits_of(modality_of())[~MASK] > NEVER).all())
    assert bool((logits_of(modality_of(tag_constraints="decode"))[~MASK] == NEVER).all())


@pytest.mark.parametrize(
    ("hparams", "told"),
    [
        ({**CRF, "pack_dataset": True, "max_length": 64}, "whole sentences, and pack_dataset"),
        ({"tag_constraints": "train"}, "tag_constraints=train: a softmax"),
        ({**CRF, "loss": "focal"}, "loss of its own.*CrfTagsModality.*'focal'"),
        ({**CRF, "r_drop_alpha": 1.0}, "r_drop_alpha.*CrfTagsModality finds none"),
        ({**CRF, "confidence_penalty": 1.0}, "confidence_penalty"),
    ],
)
def test_what_does_not_go_together_is_refused(hparams, told):
    with pytest.raises(HParamsError, match=told):
        modality_of(**hparams)
        check_objective(HParams().replace(**hparams), FEATURES)


@pytest.mark.parametrize("field", ["label_smoothing=0.2", "focal_gamma=1"])
def test_a_setting_that_a_crf_does_not_read_is_refused(field):
    hparams = HParams().parse(f"tag_decoder=crf,{field}")
    with pytest.raises(HParamsError, match=f"{field.partition('=')[0]}.*is read by nothing"):
        check_loss_settings(hparams, FEATURES)


@pytest.mark.parametrize("field", ["tag_decoder=crf", "tag_constraints=decode"])
def test_so_is_one_of_tags_where_there_are_none(field):
    features = Features(FEATURES.inputs, {"targets": ClassLabel(ClassLabelEncoder(["a", "b"]))})
    with pytest.raises(HParamsError, match=f"{field} is read by nothing.*a target of tags"):
        check_loss_settings(HParams().parse(field), features)
    check_loss_settings(HParams().parse(field), FEATURES)


def test_several_models_have_the_mean_of_their_scores_and_of_their_chains():
    first, second = modality_of(**CRF), modality_of(**CRF)
    for weights in second.crf.parameters():
        weights.data.normal_()
    logits = [logits_of(first), logits_of(second, seed=2)]
    both = first.averaged([first, second])
    chains = [modality.crf() for modality in (first, second)]
    mean = crf.Chain(*((a + b) / 2 for a, b in zip(*chains, strict=True)))
    guessed = torch.tensor([guess.numbers for guess in both.predict(both.mean(logits)).rows()])
    expected = crf.best_tags((logits[0] + logits[1]) / 2, MASK, mean)
    assert torch.equal(guessed[MASK], expected[MASK])
    assert torch.equal(first.crf.start, chains[0].start)


def test_the_mean_of_several_softmaxes_still_marks_padding():
    modality = modality_of(tag_constraints="decode")
    found = modality.mean([logits_of(modality), logits_of(modality, seed=2)])
    assert torch.equal(found.amax(-1) == NEVER, ~MASK)
