"""A teacher comes from its run directory, if its ids mean what the student's do."""

from __future__ import annotations

import shutil

import pytest
import torch

from t2t_torch.errors import CheckpointError, HParamsError
from t2t_torch.train.distillation import load_teachers


@pytest.fixture
def teacher(make_estimator):
    """A run of six steps, with checkpoints at 2, 4 and 6."""
    run = make_estimator("teacher", local_eval_frequency=2, train_steps=6)
    run.train(6)
    run.close()
    return run


def loaded(make_task, data_dir, path, hparams=""):
    task = make_task(hparams)
    return of_one(path, task.problem, task.features, data_dir, task.hparams)


def of_one(path, problem, features, *given):
    """What teaches a student of one problem."""
    (result,) = load_teachers(str(path), {problem.full_name: (problem, features)}, *given).values()
    return result


def of_step(run, make_task, step):
    """The weights of a checkpoint."""
    model = make_task().model()
    run.checkpoints.at(step).load_model(model)
    return model.state_dict()


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_the_newest_checkpoint_teaches_where_none_is_known_to_be_the_best(
    teacher, make_task, data_dir
):
    result = loaded(make_task, data_dir, teacher.directory.path).state_dict()
    assert_equal(result, of_step(teacher, make_task, 6))


def test_the_best_checkpoint_teaches(teacher, make_task, data_dir):
    for step, value in ((2, 3.0), (4, 1.0), (6, 2.0)):
        teacher.checkpoints.rate(step, value, lower_is_better=True)
    result = loaded(make_task, data_dir, teacher.directory.path).state_dict()
    assert_equal(result, of_step(teacher, make_task, 4))


def test_a_checkpoint_may_be_named(teacher, make_task, data_dir):
    path = teacher.directory.path / "ckpt-2"
    assert_equal(loaded(make_task, data_dir, path).state_dict(), of_step(teacher, make_task, 2))


def test_a_student_of_another_size_learns_from_it_and_resumes_bit_equal(teacher, make_estimator):
    hparams = (
        f"distill_from={teacher.directory.path / 'ckpt-6'},distill_temperature=2,"
        "hidden_size=8,num_heads=1"
    )
    whole = make_estimator("whole", hparams)
    whole.train(4)
    first = make_estimator("parts", hparams)
    first.train(2)
    first.close()
    second = make_estimator("parts", hparams)
    second.train(4)
    assert_equal(second.model.state_dict(), whole.model.state_dict())
    alone = make_estimator("alone", "hidden_size=8,num_heads=1")
    alone.train(4)
    name = "modalities.targets.top.weight"
    assert not torch.equal(alone.model.state_dict()[name], whole.model.state_dict()[name])


def test_evaluation_needs_no_teacher(teacher, make_estimator):
    path = teacher.directory.path
    student = make_estimator("student", f"distill_from={path}")
    student.train(2)
    student.close()
    shutil.rmtree(path)
    again = make_estimator("student", f"distill_from={path}")
    again.restore_newest()
    assert again.evaluate()["loss"] > 0


def test_a_teacher_that_is_not_there_is_told_before_the_first_step(make_estimator, tmp_path):
    student = make_estimator(hparams=f"distill_from={tmp_path / 'nowhere'}")
    with pytest.raises(CheckpointError, match=r"nowhere.*is not a run directory"):
        student.train(2)
    assert student.state.step == 0


def test_a_teacher_without_a_checkpoint_is_told(make_estimator, make_task, data_dir):
    run = make_estimator("empty")
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        loaded(make_task, data_dir, run.directory.path)


def test_another_vocabulary_is_refused(teacher, make_task, data_dir):
    with pytest.raises(HParamsError, match=r"its inputs is Text of .* ids, not Text of"):
        loaded(make_task, data_dir, teacher.directory.path, "vocab_divisor=128")


def test_other_features_are_refused(teacher, make_task, data_dir):
    task = make_task()
    alone = task.features.__class__({}, task.features.targets)
    with pytest.raises(HParamsError, match="its inputs are inputs, not none"):
        of_one(teacher.directory.path, task.problem, alone, data_dir, task.hparams)


def test_another_vocabulary_of_the_same_size_is_refused(
    teacher, make_task, data_dir, tmp_path, monkeypatch
):
    task = make_task()
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    monkeypatch.setattr(type(task.problem), "vocab_files", ("vocab.txt",))
    (teacher.directory.path / "vocab.txt").write_text("b\na\n")
    given = teacher.directory.path, task.problem, task.features, tmp_path, task.hparams
    with pytest.raises(HParamsError, match=r"not trained with the vocabulary vocab\.txt"):
        of_one(*given)
    (teacher.directory.path / "vocab.txt").write_text("a\nb\n")
    assert of_one(*given).features.targets.keys() == task.features.targets.keys()
