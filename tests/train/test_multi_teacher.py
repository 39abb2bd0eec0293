"""Of several problems each has the teachers that have learnt it."""

from __future__ import annotations

import pytest
import torch

from t2t_torch import registry
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import HParamsError
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.train.distillation import load_teachers
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.run_config import RunConfig

STILL = "layer_prepostprocess_dropout=0,attention_dropout=0,relu_dropout=0,symbol_dropout=0"


@pytest.fixture
def train(make_multi, tiny_problems, tmp_path):
    """Trains a problem for two steps; returns the task, the model and the run's folder."""

    def run(problem: str, hparams: str = ""):
        task = make_multi(hparams, problem)
        record = TaskRecord(
            problem=problem, model="transformer_encoder", hparams_set="transformer_encoder_tiny"
        )
        directory = RunDirectory(tmp_path / f"run{len(list(tmp_path.iterdir()))}")
        directory.claim(record, task.hparams)
        directory.claim_vocabularies(task.problem.vocab_files, tiny_problems)
        directory.commit()
        config = RunConfig(train_steps=9, local_eval_frequency=0)
        with Estimator(task, directory, config) as estimator:
            estimator.train(2)
            return task, estimator.model, directory.path

    return run


def assert_equal(found, expected):
    ours, theirs = found.state_dict(), expected.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def known(task):
    """What `load_teachers` is told of a student."""
    return {name: (one.problem, one.features) for name, one in task.tasks.items()}


def test_a_problem_learns_from_its_teacher_and_another_from_its_data(make_multi, train):
    _, teacher, run = train("tiny_tags", "hidden_size=8,num_heads=1")
    alone = make_multi(STILL).model().train()
    task = make_multi(f"{STILL},distill_from={run},distill_weight=1,distill_temperature=2")
    student = task.model().train()
    student.load_state_dict(alone.state_dict())
    objective = task.objective(student)
    batches = iter(task.train_batches(seed=3, start=0, rank=0, world_size=1))
    kind, tags = next(batches), next(batches)

    (text,), (plain,) = (model(kind).losses.values() for model in (objective, alone))
    torch.testing.assert_close(text.sum, plain.sum)

    own = {name.partition("/")[2]: values for name, values in tags.items()}
    with torch.no_grad():
        ours = student.problems["tiny_tags"].eval()(own).logits["targets"]
        theirs = teacher.eval()(own).logits["targets"]
    objective.train()
    right, guessed = ((logits / 2).log_softmax(-1) for logits in (theirs, ours))
    apart = 4 * (right.exp() * (right - guessed)).sum(-1)  # [B, W], times the squared temperature
    words = own["inputs"][:, : apart.size(1)].gt(1)  # neither padding nor the end
    expected = [row[there].mean() for row, there in zip(apart, words, strict=True)]
    (result,) = objective(tags).losses.values()
    torch.testing.assert_close(result.sum / result.weight, torch.stack(expected).mean())


@pytest.mark.slow
def test_a_run_of_several_problems_teaches_each_of_its_own(make_multi, train, tiny_problems):
    _, model, run = train("tiny_both", "hidden_size=8,num_heads=1")
    task = make_multi()
    result = load_teachers(str(run), known(task), tiny_problems, task.hparams)
    assert result.keys() == {"tiny_kind", "tiny_tags"}
    for name, teacher in result.items():
        assert_equal(teacher, model.problems[name])


def test_a_run_of_several_problems_teaches_a_run_of_one_of_them(make_multi, train, tiny_problems):
    _, model, run = train("tiny_both")
    task = make_multi(problem="tiny_tags")
    known = {"tiny_tags": (task.problem, task.features)}
    result = load_teachers(str(run / "ckpt-2"), known, tiny_problems, task.hparams)
    assert result.keys() == {"tiny_tags"}
    assert_equal(result["tiny_tags"], model.problems["tiny_tags"])


@pytest.mark.slow
def test_each_problem_may_have_teachers_of_its_own(
    make_multi, train, make_estimator, tiny_problems
):
    kind, tags, both = (train(name) for name in ("tiny_kind", "tiny_tags", "tiny_both"))
    named = ",".join(str(run) for _, _, run in (kind, tags, both))
    task = make_multi(f"distill_from=[{named}]")
    result = load_teachers(task.hparams.distill_from, known(task), tiny_problems, task.hparams)
    for name, (_, model, _) in {"tiny_kind": kind, "tiny_tags": tags}.items():
        assert isinstance(result[name], Ensemble)
        first, second = result[name].models
        assert_equal(first, model)
        assert_equal(second, both[1].problems[name])
    student = make_estimator("student", task=task)
    student.train(2)
    saved = student.model.state_dict().keys()
    assert saved == make_multi().model().state_dict().keys(), "a teacher is not saved"


def test_a_run_of_something_else_is_refused(make_multi, train, tiny_problems):
    _, _, run = train("other_kind")
    task = make_multi(f"distill_from={run}")
    with pytest.raises(HParamsError, match="of other_kind and cannot teach tiny_kind or tiny_tags"):
        task.objective(task.model())
    _, _, run = train("tiny_strangers")
    one = make_multi(problem="tiny_tags")
    known = {"tiny_tags": (one.problem, one.features)}
    with pytest.raises(HParamsError, match="of tiny_kind, other_kind and cannot teach tiny_tags"):
        load_teachers(str(run), known, tiny_problems, one.hparams)


def test_a_teacher_with_other_words_is_refused(make_multi, train, tiny_problems):
    _, _, run = train("tiny_both")
    vocabulary = registry.problem("tiny_kind").vocab_filename
    lines = (run / vocabulary).read_text("utf-8").splitlines()
    (run / vocabulary).write_text("\n".join([*lines[:-2], *lines[:-3:-1], ""]), encoding="utf-8")
    task = make_multi()
    with pytest.raises(HParamsError, match=r"cannot teach tiny_kind: .* was not trained with the"):
        load_teachers(str(run), known(task), tiny_problems, task.hparams)
