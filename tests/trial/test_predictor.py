"""A trial's run that answers: weights, code, and what is asked."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_run import code, made_run

import t2t_torch
from t2t_torch.errors import CheckpointError, TrialError, UsageError
from t2t_torch.run.checkpoint_directory import CheckpointDirectory

ROW = np.array([1.0, 2.0, 3.0], np.float32)


@pytest.fixture(autouse=True)
def forgets(enter: Any) -> Iterator[None]:
    """No trial is left."""
    yield


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return made_run(tmp_path / "made", code())


def _by_hand(run: Path, step: int, row: Any = ROW) -> Any:
    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

    model = Holder()
    CheckpointDirectory(run).at(step).load_model(model)
    return row @ model.linear.weight.detach().numpy().T + model.linear.bias.detach().numpy()


def test_a_run_of_a_trial_answers_records_and_batches(run: Path) -> None:
    predictor = t2t_torch.load(run)
    assert str(predictor) == "TrialPredictor(SmallTrial, step 2)"
    one, other = predictor([ROW, 2 * ROW])
    np.testing.assert_allclose(one, _by_hand(run, 2), rtol=1e-5)
    np.testing.assert_allclose(other, _by_hand(run, 2, 2 * ROW), rtol=1e-5)
    both = predictor.batch(np.stack([ROW, 2 * ROW]))
    assert isinstance(both, np.ndarray)
    np.testing.assert_allclose(both, [one, other], rtol=1e-5)
    assert predictor([]) == []
    np.testing.assert_array_equal(predictor([torch.from_numpy(ROW)])[0], predictor([ROW])[0])


def test_the_checkpoint_is_chosen_as_other_predictors_choose_it(run: Path) -> None:
    for wanted, step in ((None, 2), ("latest", 3), ("best", 2), (1, 1), ("ckpt-1", 1)):
        result = t2t_torch.load(run, wanted)([ROW])[0]
        np.testing.assert_allclose(result, _by_hand(run, step), rtol=1e-5)
    mean = t2t_torch.load(run, "average:2")
    assert mean.chosen.description == "mean of steps 2, 3"
    expected = (_by_hand(run, 2) + _by_hand(run, 3)) / 2
    np.testing.assert_allclose(mean([ROW])[0], expected, rtol=1e-5)
    with pytest.raises(CheckpointError, match="too few whole checkpoints"):
        t2t_torch.load(run, "average:4")
    with pytest.raises(UsageError, match="average:8"):
        t2t_torch.load(run, "average:many")


def test_nested_inputs_come_out_as_forward_nests_them(tmp_path: Path) -> None:
    forward = """left, (right, nothing) = x["left"], x["rest"]
assert nothing is None
return Pair(self.linear(left), {"sum": left.sum(1) + right, "kept": [right]})"""
    predictor = t2t_torch.load(made_run(tmp_path / "made", code(forward)))
    result = predictor([{"left": ROW, "rest": (n, None)} for n in (0.5, 1.5)])
    assert [float(one.right["sum"]) for one in result] == [6.5, 7.5]
    assert type(result[0]).__name__ == "Pair" and result[1].right["kept"][0] == 1.5
    assert result[0].left.shape == (2,)


def test_records_of_different_sizes_are_computed_by_size(tmp_path: Path) -> None:
    predictor = t2t_torch.load(made_run(tmp_path / "made", code("return x.sum(1)")))
    rows = [np.full(size, 1.0, np.float32) for size in (2, 5, 2, 3, 5)]
    assert [float(one) for one in predictor(rows)] == [2, 5, 2, 3, 5]


def test_several_arguments_are_a_tuple(tmp_path: Path) -> None:
    run = made_run(tmp_path / "made", code("return self.linear(x) * y[:, None]", takes="x, y"))
    predictor = t2t_torch.load(run)
    (result,) = predictor([(ROW, 2.0)])
    np.testing.assert_allclose(result, 2 * _by_hand(run, 2), rtol=1e-5)
    with pytest.raises(TrialError, match="cannot compute with these inputs: TypeError"):
        predictor([ROW])


def test_what_cannot_be_computed_is_told_with_its_shapes(run: Path) -> None:
    predictor = t2t_torch.load(run)
    with pytest.raises(TrialError, match=r"(?s)Model of SmallTrial cannot.*float32 \[1, 2\]"):
        predictor([ROW[:2]])
    with pytest.raises(UsageError, match=r"predictor\(\[record\]\).*predictor.batch"):
        predictor(np.stack([ROW]))
    with pytest.raises(TrialError, match="input record is of type object"):
        predictor([object()])


def test_an_output_without_a_row_for_each_record_is_told(tmp_path: Path) -> None:
    predictor = t2t_torch.load(made_run(tmp_path / "made", code("return {'loss': x.mean()}")))
    assert predictor.batch(np.stack([ROW, ROW]))["loss"] == 2.0
    with pytest.raises(TrialError, match=r"loss float32 \[\] for a batch of 2.*predictor.batch"):
        predictor([ROW, ROW])


def test_the_run_stands_alone_when_its_code_is_gone(run: Path, tmp_path: Path) -> None:
    before = t2t_torch.load(run)([ROW])[0]
    shutil.move(run, tmp_path / "elsewhere")
    (tmp_path / "made" / "small.py").unlink()
    with pytest.raises(UsageError, match="give trust_code=True"):
        t2t_torch.load(tmp_path / "elsewhere")
    trusted = t2t_torch.load(tmp_path / "elsewhere", trust_code=True)
    np.testing.assert_array_equal(trusted([ROW])[0], before)
    shutil.rmtree(tmp_path / "elsewhere" / "code")
    with pytest.raises(TrialError, match=r"the code of this run is gone: it was at .*small\.py"):
        t2t_torch.load(tmp_path / "elsewhere")


def test_code_that_builds_another_model_now_is_told(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "made" / "small.py"
    file.write_text(file.read_text().replace("Linear(3, 2)", "Linear(3, 4)"))
    with pytest.raises(CheckpointError, match=r"(?s)does not fit.*small\.py of .* changed since"):
        t2t_torch.load(run)


def test_what_is_for_problems_is_refused(run: Path) -> None:
    with pytest.raises(UsageError, match="does not read problem='x'"):
        t2t_torch.load(run, problem="x")
    with pytest.raises(UsageError, match="give one run of a trial"):
        t2t_torch.load([run, run])


def test_loading_draws_no_numbers(run: Path) -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    t2t_torch.load(run)
    assert torch.rand(1) == expected
