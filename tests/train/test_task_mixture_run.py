"""Training a language model of several tasks."""

from __future__ import annotations

import pytest
import torch

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.errors import DataError, HParamsError
from t2t_torch.mode import Split
from t2t_torch.problem_types.task_mixture import TaskMixtureProblem
from t2t_torch.train.problem_task import ProblemTask

SMALL = (
    "hidden_size=16,filter_size=16,num_hidden_layers=1,num_heads=2,batch_size=64,"
    "learning_rate_warmup_steps=2"
)


@pytest.fixture
def make_tasks(tiny_problems):
    """Makes the task of a language model with a classification."""

    class TinyTasks(TaskMixtureProblem):
        """A language model with a classification."""

        name = "tiny_tasks"
        problem_names = ("tiny_text", "tiny_kind")

    registry.register_problem("tiny_tasks")(TinyTasks)
    problem = registry.problem("tiny_tasks")
    for part in problem.components:
        generate_data(part, tiny_problems, tiny_problems, num_processes=1, progress=False)

    def make(hparams=""):
        return ProblemTask(
            problem,
            registry.model("transformer"),
            registry.hparams("transformer_tiny").parse(SMALL).parse(hparams),
            data_dir=tiny_problems,
            vocab_dir=tiny_problems,
        )

    return make


def test_a_run_of_tasks_resumes_bit_by_bit_and_reports_labels(make_tasks, make_estimator):
    mixing = "multiproblem_mixing_schedule=exponential,multiproblem_schedule_max_examples=4"

    def run(name, *stops):
        for steps in stops:
            estimator = make_estimator(name, task=make_tasks(mixing), train_steps=20)
            estimator.train(steps)
            estimator.close()
        return estimator

    whole, parts = run("whole", 8), run("parts", 3, 8)
    weights, others = whole.model.state_dict(), parts.model.state_dict()
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    task = make_tasks()
    evaluator = task.evaluator()
    with torch.no_grad():
        for batch in task.eval_batches(Split.EVAL, rank=0, world_size=1):
            evaluator.update(whole.model.eval()(batch), batch)
    found = evaluator.result()
    labels = "metrics-tiny_tasks/targets/label_accuracy/tiny_kind"
    assert 0 <= found[labels] <= 1


def test_settings_of_tensor2tensors_mixing_choose_the_batches(make_tasks):
    def shares(hparams):
        source = make_tasks(hparams).train_batches(seed=1, start=0, rank=0, world_size=1)
        drawn = [source.rows_of(number)[0] for number in range(400)]
        return drawn.count(1) / 400, drawn.index(1)

    constant, _ = shares("multiproblem_mixing_schedule=constant,multiproblem_schedule_threshold=.2")
    assert 0.15 < constant < 0.25
    per_task, _ = shares("multiproblem_per_task_threshold=[1,3]")
    assert 0.7 < per_task < 0.8
    pretrain = "multiproblem_mixing_schedule=pretrain,multiproblem_schedule_max_examples=100"
    assert shares(pretrain) == (0.75, 100)


def test_bad_settings_of_mixing_are_named(make_tasks):
    with pytest.raises(HParamsError, match="are both set"):
        make_tasks("multiproblem_mixing_schedule=pretrain,mixing_schedule=1 1")
    with pytest.raises(DataError, match="3 shares for 2 problems"):
        make_tasks("multiproblem_per_task_threshold=[1,3,4]")


def test_each_example_weighs_one_and_its_label_the_given_part(make_tasks):
    task = make_tasks("loss=task_cross_entropy,multiproblem_label_weight=0.75")
    loss = task.model().modalities["targets"].target_loss.train()
    text = task.features.targets["targets"]
    texts = ["<|tiny_text|>red dog", "red dog<|tiny_kind|>pet"]
    ids = [text.encode(one) for one in texts]
    weights = loss.weights(torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, ids)), True))
    assert torch.allclose(weights[0], torch.tensor([0.25, 0.25, 0.25, 0.25, 0.0]))
    before = 0.25 / 3  # two words and the id of the task
    assert torch.allclose(weights[1], torch.tensor([before] * 3 + [0.375] * 2))
    assert loss.eval().weights(torch.tensor([ids[0]])) is None
    model = task.model()
    batch = torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, ids)), True)
    trained = task.objective(model).train()({"targets": batch}).losses["targets"]
    torch.testing.assert_close(trained.weight, torch.tensor(2.0))  # of two examples
    plain = make_tasks("").objective(model).train()({"targets": batch}).losses["targets"]
    assert plain.sum / plain.weight != trained.sum / trained.weight
    with pytest.raises(HParamsError, match="is read by nothing"):
        make_tasks("multiproblem_label_weight=0.75")
