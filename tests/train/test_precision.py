"""The type of number that the network computes with, and the scale of the loss in float16."""

import pytest
import torch

from t2t_torch import registry
from t2t_torch.distributed.precision import Precision, check_trainable
from t2t_torch.errors import HParamsError

CPU = torch.device("cpu")
GOOD, BAD = torch.tensor(0.0), torch.tensor(1.0)


def precision(**changes):
    changes = {"activation_dtype": "float16", "batch_size": 64, **changes}
    return Precision.of(registry.hparams("transformer_test").replace(**changes), CPU)


@pytest.fixture(autouse=True)
def torch_as_it_was():
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def test_the_scale_is_that_of_the_mean_loss_of_a_batch():
    result = precision()
    assert result.state() == (2.0**15, 0)
    assert float(result.scale) == 2.0**15 / 64


def test_a_bad_step_halves_the_scale_and_2000_good_ones_double_it():
    result = precision()
    result.update(BAD)
    assert result.state() == (2.0**14, 0)
    for _ in range(1999):
        result.update(GOOD)
    assert result.state() == (2.0**14, 1999)
    result.update(GOOD)
    assert result.state() == (2.0**15, 0)


def test_a_bad_step_begins_the_count_anew():
    result = precision()
    for outcome in (GOOD, GOOD, BAD, GOOD):
        result.update(outcome)
    assert result.state() == (2.0**14, 1)


def test_the_scale_of_the_mean_loss_never_falls_below_one():
    result = precision(mixed_precision_optimizer_init_loss_scale=2.0)
    for _ in range(5):
        result.update(BAD)
    assert result.state() == (1.0, 0)


def test_the_scale_goes_on_where_it_was():
    result, resumed = precision(), precision()
    for _ in range(3):
        result.update(GOOD)
    resumed.load(*result.state())
    result.update(BAD)
    resumed.update(BAD)
    assert resumed.state() == result.state()


@pytest.mark.parametrize(
    "changes",
    [
        {"activation_dtype": "float32"},
        {"activation_dtype": "bfloat16"},
        {"mixed_precision_optimizer_loss_scaler": "none"},
    ],
    ids=str,
)
def test_only_float16_is_scaled_and_only_if_asked(changes):
    result = precision(**changes)
    result.update(BAD)
    assert result.scale is None
    assert result.state() == (0.0, 0)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_products_are_of_the_type_that_was_asked_for(name):
    with precision(activation_dtype=name).autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype is getattr(torch, name)


def test_how_float32_is_rounded_is_told_to_torch():
    precision(float32_matmul_precision="medium")
    assert torch.get_float32_matmul_precision() == "medium"
    precision()
    assert torch.get_float32_matmul_precision() == "highest"


def test_nothing_is_computed_before_a_type_is_chosen():
    with pytest.raises(HParamsError, match="resolve"):
        precision(activation_dtype="auto")


@pytest.mark.slow
def test_float16_learns_as_float32_does(make_estimator):
    losses = {}
    for name in ("float32", "float16"):
        run = make_estimator(name, f"activation_dtype={name}", train_steps=12)
        run.train(12)
        losses[name] = run.evaluate()["metrics-" + run.task.name + "/targets/neg_log_perplexity"]
    assert losses["float16"] == pytest.approx(losses["float32"], rel=5e-3)
    assert losses["float16"] != losses["float32"]


@pytest.mark.slow
def test_a_loss_scale_that_is_too_large_is_found_and_no_step_is_lost_by_it(make_estimator):
    first = "mixed_precision_optimizer_init_loss_scale=4000000000"
    run = make_estimator(
        "run", f"activation_dtype=float16,{first}", train_steps=30, max_consecutive_nonfinite=30
    )
    run.train(30)
    scale, _ = run.run.precision.state()
    assert 2.0 <= scale < 4e9
    assert 0 < run.state.skipped < 30


@pytest.mark.slow
def test_a_run_in_float16_resumes_bit_by_bit(make_estimator):
    hparams = "activation_dtype=float16,mixed_precision_optimizer_init_loss_scale=10000000"
    whole = make_estimator("whole", hparams, train_steps=14)
    whole.train(14)
    first = make_estimator("parts", hparams, train_steps=14)
    first.train(9)
    first.close()
    resumed = make_estimator("parts", hparams, train_steps=14)
    resumed.train(14)
    assert resumed.run.precision.state() == whole.run.precision.state()
    assert resumed.state.skipped == whole.state.skipped > 0
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_scale_is_not_taken_over_by_a_run_that_has_none():
    plain = Precision("float32", torch.device("cpu"))
    plain.load(128.0, 3)
    assert plain.scale is None
    assert plain.state() == (0.0, 0)


def test_an_lstm_that_a_cpu_cannot_train_is_refused_at_the_start():
    half = registry.hparams("transformer_test").replace(activation_dtype="float16")
    model = torch.nn.Sequential(torch.nn.LSTM(3, 2))
    with torch.autocast("cpu", dtype=torch.float16):
        try:
            model(torch.zeros(1, 1, 3))
        except RuntimeError:
            with pytest.raises(HParamsError, match="Set activation_dtype=bfloat16 or float32"):
                check_trainable(model, half, CPU)
        else:  # a later torch, or another processor
            check_trainable(model, half, CPU)
    check_trainable(model, half.replace(activation_dtype="bfloat16"), CPU)
    check_trainable(model.requires_grad_(False), half, CPU)
    check_trainable(torch.nn.Linear(2, 2), half, CPU)
