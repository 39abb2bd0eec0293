"""Which loss a target has: by hparam, by the problem, by its kind; and what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from loss_targets import TARGETS, features_of, modality_of

from t2t_torch import registry
from t2t_torch.errors import HParamsError, RegistryError
from t2t_torch.features import ClassLabel, Features, MultiLabel, Real, SoftLabel, Tags, Text
from t2t_torch.hparam import HParams, values_by_target
from t2t_torch.modalities.build import build_modalities
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.text_problem import VocabType

JOINT = Features(features_of(Tags).inputs, {"intent": TARGETS[ClassLabel], "slots": TARGETS[Tags]})


def name_of(modality):
    """The registered name of a modality's loss."""
    kind = type(modality.target_loss)
    return next(name for name in registry.list_names("loss") if registry.loss(name) is kind)


def names(loss, features=JOINT):
    """The losses of targets."""
    modalities = build_modalities(HParams().replace(loss=loss), features)
    return {target: name_of(modalities[target]) for target in features.targets}


@pytest.mark.parametrize("kind", TARGETS)
def test_each_kind_has_a_loss_of_its_own(kind):
    expected = {MultiLabel: "binary_cross_entropy", Real: "mse"}.get(kind, "cross_entropy")
    assert name_of(modality_of(kind)) == expected


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("focal", {"intent": "focal", "slots": "focal"}),
        ("slots:hinge", {"intent": "cross_entropy", "slots": "hinge"}),
        ("[intent:focal, slots:hinge]", {"intent": "focal", "slots": "hinge"}),
        ("[focal,slots:hinge]", {"intent": "focal", "slots": "hinge"}),
    ],
)
def test_a_loss_is_chosen_for_all_targets_or_for_each(loss, expected):
    assert names(loss) == expected


def test_brackets_bring_commas_through_the_flag():
    hparams = HParams().parse("loss=[intent:focal,slots:hinge],focal_gamma=1")
    assert names(hparams.loss) == {"intent": "focal", "slots": "hinge"}


def test_the_problem_chooses_and_the_hparam_comes_before_it():
    features = features_of(ClassLabel, targets="focal")
    assert names("", features) == {"targets": "focal"}
    assert names("hinge", features) == {"targets": "hinge"}


@pytest.mark.parametrize("loss", ["focal", {"targets": "focal"}])
def test_a_problem_names_its_loss(loss):
    attributes = {"loss": loss, "class_labels": ("a", "b"), "vocab_type": VocabType.CHARACTER}
    made = type("Made", (Text2ClassProblem,), {"generate_samples": None, **attributes})
    problem = type("Whole", (made,), {"generate_samples": lambda self, tmp_dir, split: iter(())})()
    assert problem.features(Path()).losses == {"targets": "focal"}


def test_a_problem_says_nothing_unless_it_is_asked():
    attributes = {"class_labels": ("a", "b"), "vocab_type": VocabType.CHARACTER}
    sample = {"generate_samples": lambda self, tmp_dir, split: iter(())}
    problem = type("Made", (Text2ClassProblem,), {**attributes, **sample})()
    assert problem.features(Path()).losses == {}


@pytest.mark.parametrize(
    ("kind", "loss", "fit"),
    [
        (Real, "focal", "cosine, mae, mse"),
        (SoftLabel, "hinge", "cross_entropy, kl"),
        (MultiLabel, "cross_entropy", "binary_cross_entropy, focal"),
        (Text, "kl", "cross_entropy, focal, generalized_cross_entropy, hinge, task_cross_entropy"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(kind, loss, fit):
    with pytest.raises(HParamsError, match=f"'{loss}' does not fit target 'targets'.*: {fit}\\."):
        modality_of(kind, loss=loss)


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        ("intend:focal", "'intend' is no target. Targets: intent, slots"),
        ("intent:focal,intent:hinge", "'intent' is named twice"),
        ("focal,hinge", "one loss for a target, not 2"),
    ],
)
def test_a_slip_in_the_hparam_is_told(loss, told):
    with pytest.raises(HParamsError, match=told):
        names(loss)


def test_an_unknown_loss_is_told_with_the_nearest():
    with pytest.raises(RegistryError, match="Did you mean 'focal'"):
        modality_of(ClassLabel, loss="fokal")


def test_the_cosine_of_one_number_is_refused():
    features = Features(features_of(Real).inputs, {"targets": Real(1)})
    with pytest.raises(HParamsError, match="mse or mae"):
        names("cosine", features)


def test_values_without_a_target_are_of_all_others():
    found = values_by_target("class_weights", "[1,2,slots:balanced]", JOINT.targets)
    assert found == {"": ["1", "2"], "slots": ["balanced"]}
