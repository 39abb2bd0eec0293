"""Each loss trains a model on data, through the task that the trainer makes."""

from __future__ import annotations

import itertools

import pytest
import torch
from loss_targets import PAIRS

from t2t_torch.errors import HParamsError
from t2t_torch.features import Choice, ClassLabel, MultiLabel, Real, SoftLabel, Span, Tags, Text
from t2t_torch.loss import total_loss
from t2t_torch.mode import Split

STEPS = 12


def trained(task, steps=STEPS):
    """(the mean loss of evaluation before, the same after, the model)."""
    torch.manual_seed(0)
    model = task.model()
    objective = task.objective(model)
    optimizer = task.optimizer(model)
    batches = task.train_batches(seed=1, start=0, rank=0, world_size=1)
    before = evaluated(task, model)
    objective.train()
    for step, batch in enumerate(itertools.islice(batches, steps)):
        objective.train().at_step(step)
        loss = total_loss(objective(batch))
        (loss.sum / loss.weight).backward()
        for group in optimizer.param_groups:
            group["lr"], group["updates"] = 0.01, step
        optimizer.step()
        optimizer.zero_grad()
    return before, evaluated(task, model), model


@torch.no_grad()
def evaluated(task, model):
    evaluator = task.evaluator()
    for batch in task.eval_batches(Split.TRAIN, rank=0, world_size=1):
        evaluator.update(model.eval()(batch), batch)
    return evaluator.result()["loss"]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("loss", "kind"), PAIRS)
def test_each_loss_falls(make_task, loss, kind):
    before, after, _ = trained(make_task(kind, f"loss={loss}"))
    assert after < before


ADDED = "confidence_penalty=0.05,r_drop_alpha=0.5,layer_prepostprocess_dropout=0.1"


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", [Text, ClassLabel, Tags, Choice, Span, SoftLabel, MultiLabel])
def test_it_falls_with_what_is_added(make_task, kind):
    before, after, _ = trained(make_task(kind, ADDED))
    assert after < before


def test_two_targets_have_each_its_loss(make_task):
    task = make_task("joint", f"loss=[intent:focal,slots:hinge],class_weights=balanced,{ADDED}")
    before, after, model = trained(task)
    assert after < before
    intent, slots = (model.modalities[name].target_loss for name in ("intent", "slots"))
    assert (type(intent).__name__, type(slots).__name__) == ("Focal", "Hinge")
    # Of 24 intents 18 are "move", 6 "stay"; of 72 slots 24 are "B-place", 48 "O".
    assert intent.class_weights.tolist() == pytest.approx([24 / (2 * 18), 24 / (2 * 6)])
    assert sorted(slots.class_weights.tolist()) == pytest.approx([72 / (2 * 48), 72 / (2 * 24)])


@pytest.mark.parametrize(
    ("kind", "weights", "expected"),
    [
        (ClassLabel, "balanced", {"a": 24 / 48, "b": 24 / 15, "c": 24 / 9}),
        (ClassLabel, "sqrt_balanced", {"a": 0.5**0.5, "b": 1.6**0.5, "c": (24 / 9) ** 0.5}),
        (ClassLabel, "[1,2,0.5]", {"a": 1.0, "b": 2.0, "c": 0.5}),
        (ClassLabel, "[targets:3,1,1]", {"a": 3.0, "b": 1.0, "c": 1.0}),
        (Tags, "balanced", {"O": 60 / 72, "B-x": 60 / 72, "I-x": 60 / 36}),
        (MultiLabel, "balanced", {"x": 8 / 16, "y": 16 / 8, "z": 24.0}),
        (SoftLabel, "balanced", {"a": 24 / (2 * 6), "b": 24 / (2 * 18)}),
    ],
)
def test_classes_count_as_training_data_or_hparams_say(make_task, kind, weights, expected):
    task = make_task(kind, f"class_weights={weights}")
    model = task.model()
    task.objective(model)
    found = model.modalities["targets"].target_loss.class_weights.tolist()
    labels = task.features.targets["targets"].encoder.labels
    assert dict(zip(labels, found, strict=True)) == pytest.approx(expected)
    assert not [name for name in model.state_dict() if "class_weights" in name]


def test_weights_of_classes_are_for_training(make_task):
    tasks = [make_task(ClassLabel, hparams) for hparams in ("", "class_weights=[1,5,9]")]
    models = []
    for task in tasks:
        torch.manual_seed(0)
        models.append(task.model())
        task.objective(models[-1])
    assert evaluated(tasks[0], models[0]) == evaluated(tasks[1], models[1])


@pytest.mark.parametrize(
    ("kind", "hparams", "told"),
    [
        (ClassLabel, "class_weights=[1,2]", r"has 3 classes \(a, b, c\)"),
        (ClassLabel, "class_weights=[0,0,0]", "not all 0"),
        (ClassLabel, "class_weights=equal", "one of balanced, sqrt_balanced"),
        (Text, "class_weights=balanced", "no target has classes"),
        (Text, "class_weights=[targets:balanced]", "'targets' is a Text"),
        (Real, "class_weights=balanced", "no target has classes"),
        (Choice, "class_weights=[targets:1,2]", "'targets' is a Choice"),
        (ClassLabel, "scheduled_sampling_prob=1", "predictions of texts only"),
    ],
)
def test_weights_that_do_not_fit_are_refused_before_training(make_task, kind, hparams, told):
    with pytest.raises(HParamsError, match=told):
        task = make_task(kind, hparams)
        task.objective(task.model())


@pytest.mark.parametrize(
    ("hparams", "needed"),
    [
        ("gce_q=0.5", "a loss that reads it"),
        ("r3f_epsilon=0.1", "r3f_weight"),
        ("adversarial_epsilon=0.1", "adversarial_steps"),
        ("adversarial_steps=1,adversarial_step_size=0.1", "adversarial_steps of 2 or more"),
    ],
)
def test_settings_of_what_is_off_are_refused(make_task, hparams, needed):
    with pytest.raises(HParamsError, match=f"is read by nothing: it needs {needed}"):
        make_task(ClassLabel, hparams)
