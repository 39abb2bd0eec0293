"""A setting that no chosen loss reads is refused, with what would read it."""

from __future__ import annotations

import pytest

from t2t_torch import registry, testing
from t2t_torch.errors import HParamsError
from t2t_torch.features import Choice, ClassLabel, Features, MultiLabel, Text
from t2t_torch.hparam import HParams
from t2t_torch.text.encoder import ClassLabelEncoder, IntegerEncoder
from t2t_torch.train.problem_task import check_loss_settings

LABELS = ClassLabelEncoder(["a", "b"])
INPUTS = {"inputs": Text(IntegerEncoder(5))}


def check(target, hparams):
    made = registry.hparams("transformer_test").parse(hparams)
    check_loss_settings(made, Features(INPUTS, {"targets": target}))


@pytest.mark.parametrize(
    ("target", "hparams", "told"),
    [
        (ClassLabel(LABELS), "focal_gamma=1", "focal_gamma=1.0 is read by nothing"),
        (ClassLabel(LABELS), "loss=focal,focal_alpha=0.5", "focal_alpha=0.5.*loss=focal"),
        (ClassLabel(LABELS), "loss=focal,label_smoothing=0.2", "label_smoothing=0.2"),
        (Choice(("a", "b")), "loss_margin=2", "own losses are chosen"),
        (ClassLabel(LABELS), "distill_weight=1", "needs distill_from"),
        (ClassLabel(LABELS), "distill_temperature=2", "needs distill_from"),
        (INPUTS["inputs"], "scheduled_sampling_warmup_steps=9", "needs scheduled_sampling_prob"),
    ],
)
def test_what_nothing_reads_is_refused(target, hparams, told):
    with pytest.raises(HParamsError, match=told):
        check(target, hparams)


@pytest.mark.parametrize(
    ("target", "hparams"),
    [
        (ClassLabel(LABELS), "loss=focal,focal_gamma=1"),
        (MultiLabel(LABELS), "loss=focal,focal_gamma=1,focal_alpha=0.5"),
        (ClassLabel(LABELS), "label_smoothing=0.2"),
        (ClassLabel(LABELS), "loss=focal,label_smoothing=0"),
        (Choice(("a", "b")), "loss=margin_ranking,loss_margin=2"),
        (ClassLabel(LABELS), "distill_from=run,distill_weight=1,distill_temperature=2"),
        (INPUTS["inputs"], "scheduled_sampling_prob=1,scheduled_sampling_warmup_steps=9"),
        (Choice(("a", "b")), "loss_margin=1"),  # the default
    ],
)
def test_what_is_read_passes(target, hparams):
    check(target, hparams)


def test_a_set_may_say_what_a_loss_does_not_read():
    features = Features(INPUTS, {"targets": Choice(("a", "b"))})
    check_loss_settings(registry.hparams("transformer_base"), features)


def test_one_of_several_targets_that_reads_it_is_enough():
    targets = {"intent": ClassLabel(LABELS), "topics": MultiLabel(LABELS)}
    hparams = HParams().parse("loss=[topics:focal],focal_alpha=0.5")
    check_loss_settings(hparams, Features(INPUTS, targets))


def test_a_loss_that_does_not_fit_is_refused_before_a_model_is_made():
    with pytest.raises(HParamsError, match="'mse' does not fit"):
        check_loss_settings(HParams().replace(loss="mse"), testing.text_features())
