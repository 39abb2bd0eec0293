"""The mean of the weights begins when evaluations stop improving, also over a resume."""

from __future__ import annotations

import pytest
import torch

from t2t_torch.errors import HParamsError
from t2t_torch.train.experiment import Experiment

LOSSES = {2: 5.0, 4: 4.0, 6: 4.5, 8: 4.2, 9: 4.1, 10: 4.1}  # worse than 4.0 of step 4 again at 8


@pytest.fixture
def run(make_estimator):
    """Trains to a step with the losses above, as evaluations would have found them."""

    def trained(name, until):
        settings = {"train_steps": 10, "local_eval_frequency": 2}
        estimator = make_estimator(name, "optimizer=sgd,swa_patience=1", **settings)
        estimator.begin()
        estimator.train_steps = until
        estimator.evaluate = lambda split=None: {"loss": LOSSES[estimator.state.step]}
        Experiment(estimator).run("continuous_train_and_eval")
        estimator.close()
        return estimator

    return trained


@pytest.mark.slow
def test_the_mean_is_of_the_weights_after_the_evaluation_at_which_it_begins(run):
    ninth, whole = run("ninth", 9), run("whole", 10)
    assert whole.state.mean_begun == 8
    average = whole.run.average.tensors()
    assert average
    for name, values in average.items():
        weights = [each.model.get_parameter(name).detach() for each in (ninth, whole)]
        torch.testing.assert_close(values, (weights[0] + weights[1]) / 2)


def test_before_it_begins_there_is_none(run):
    assert run("before", 6).run.average.tensors() == {}


@pytest.mark.sample(1)
@pytest.mark.parametrize("stop", [6, 8])
def test_a_resumed_run_begins_it_at_the_same_step(run, stop):
    whole = run("whole", 10)
    run("parts", stop)
    resumed = run("parts", 10)
    assert resumed.state.mean_begun == whole.state.mean_begun == 8
    theirs = whole.run.average.tensors()
    for name, values in resumed.run.average.tensors().items():
        assert torch.equal(values, theirs[name])


@pytest.mark.parametrize(("schedule", "every"), [("train", 2), ("continuous_train_and_eval", 0)])
def test_a_mean_for_which_nothing_would_be_evaluated_is_refused(make_estimator, schedule, every):
    settings = {"train_steps": 2, "local_eval_frequency": every}
    estimator = make_estimator("never", "optimizer=sgd,swa_patience=1", **settings)
    with pytest.raises(HParamsError, match=r"swa_patience=0,swa_start_step=N"):
        Experiment(estimator).run(schedule)
    assert estimator.state.step == 0
