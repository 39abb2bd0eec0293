"""Ranges of hyperparameters: what they hold, what they refuse, and how they are registered."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.errors import HParamsError, RegistryError
from t2t_torch.hparam import HParams
from t2t_torch.search_space import Categorical, Double, Integer, RangedHParams

pytestmark = pytest.mark.usefixtures("own_registry")

RANGES = """
from t2t_torch.registry import register_ranged_hparams

@register_ranged_hparams
def limericks_range(rhp):
    rhp.set_float("learning_rate", 0.05, 0.25, scale=rhp.LOG_SCALE)
    rhp.set_int("num_hidden_layers", 2, 4)
    return rhp
"""


@pytest.fixture
def rhp() -> RangedHParams:
    return RangedHParams()


def test_ranges_are_kept_in_their_order(rhp: RangedHParams) -> None:
    rhp.set_int("num_hidden_layers", 1, 6)
    rhp.set_float("learning_rate", 0.01, 1, scale=rhp.LOG_SCALE)
    rhp.set_discrete("hidden_size", [64, 32, 128], scale=rhp.REVERSE_LOG_SCALE)
    rhp.set_categorical("optimizer", ["sgd", "adam"])
    assert list(rhp.ranges.items()) == [
        ("num_hidden_layers", Integer(1, 6)),
        ("learning_rate", Double(0.01, 1.0, log=True)),
        ("hidden_size", Categorical((32, 64, 128), ordered=True)),
        ("optimizer", Categorical(("sgd", "adam"))),
    ]


def test_the_scales_have_tensor2tensors_numbers(rhp: RangedHParams) -> None:
    assert (rhp.LINEAR_SCALE, rhp.LOG_SCALE, rhp.REVERSE_LOG_SCALE) == (1, 2, 3)


def test_a_range_that_is_set_again_replaces_the_one_before(rhp: RangedHParams) -> None:
    rhp.set_float("learning_rate", 0.3, 3.0, rhp.LOG_SCALE)
    rhp.set_float("learning_rate", 0.1, 0.2)
    assert dict(rhp.ranges) == {"learning_rate": Double(0.1, 0.2)}


Setting = Callable[[RangedHParams], None]
REFUSED: list[tuple[Setting, str]] = [
    (lambda r: r.set_float("x", 2.0, 1.0), "from 2.0 to 1.0: the least comes first"),
    (lambda r: r.set_float("x", 0.0, 1.0, r.LOG_SCALE), "begins at 0.0 and is logarithmic"),
    (lambda r: r.set_int("x", -1, 8, r.REVERSE_LOG_SCALE), "begins at -1 and is logarithmic"),
    (lambda r: r.set_discrete("x", [0, 1], r.LOG_SCALE), "begins at 0 and is logarithmic"),
    (lambda r: r.set_float("x", 0.0, 1.0, 4), "has the scale 4; one of RangedHParams.LINEAR"),
    (lambda r: r.set_float("x", 0.0, math.inf), "says inf; a finite number was expected"),
    (lambda r: r.set_float("x", 0.0, "1"), "says '1'; a finite number"),  # type: ignore[arg-type]
    (lambda r: r.set_int("x", 1, 2.5), "says 2.5; a whole number"),  # type: ignore[arg-type]
    (lambda r: r.set_discrete("x", [True]), "says True; a finite number"),
    (lambda r: r.set_discrete("x", []), "x has no value to choose from"),
    (lambda r: r.set_categorical("x", []), "x has no value to choose from"),
    (lambda r: r.set_categorical("x", ["a", "b", "a"]), "hold 'a' twice"),
    (lambda r: r.set_categorical("x", "ab"), "should be a list, not 'ab'"),
    (
        lambda r: (r.set_int("x", 1, 2), r.set_float("x", 1, 2)),  # type: ignore
        "is of set_int, and set_float sets it again",
    ),
]


@pytest.mark.parametrize(("setting", "told"), REFUSED, ids=[told for _, told in REFUSED])
def test_what_is_no_range_is_refused(rhp: RangedHParams, setting: Setting, told: str) -> None:
    with pytest.raises(HParamsError) as error:
        setting(rhp)
    assert told in str(error.value)


def test_true_and_one_are_two_values(rhp: RangedHParams) -> None:
    rhp.set_categorical("x", [True, 1, None])
    assert rhp.ranges["x"] == Categorical((True, 1, None))


def test_ranges_that_fit_a_set_pass(rhp: RangedHParams) -> None:
    rhp.set_float("learning_rate", 0, 1)
    rhp.set_categorical("use_fixed_batch_size", [True, False])
    rhp.check(HParams(), "--hparams_range=fitting")


def test_every_name_and_value_that_does_not_fit_a_set_is_told(rhp: RangedHParams) -> None:
    rhp.set_float("learning_rat", 0.1, 1.0)
    rhp.set_float("symbol_dropout", 0.0, 1.0)
    rhp.set_float("num_hidden_layers", 1.5, 4.0)
    rhp.set_categorical("initializer", ["uniform", "glorot"])
    rhp.set_float("dropout", 0.0, 0.5)
    with pytest.raises(HParamsError) as error:
        rhp.check(HParams(), "--hparams_range=odd")
    told = str(error.value).splitlines()
    assert all(line.startswith("--hparams_range=odd: ") for line in told)
    assert "Did you mean 'learning_rate'" in told[0]
    assert "symbol_dropout=1.0: should be less than 1" in told[1]
    assert "num_hidden_layers=1.5" in told[2]
    assert "initializer=glorot" in str(error.value)
    assert "'dropout': tensor2tensor has it, but nothing here reads it" in told[-1]


def test_no_range_at_all_is_refused(rhp: RangedHParams) -> None:
    with pytest.raises(HParamsError, match="--hparams_range=none_at_all sets no range"):
        rhp.check(HParams(), "--hparams_range=none_at_all")


# What tensor2tensor 1.15 says: layers/common_hparams.py and models/transformer.py.
BASIC = {
    "batch_size": Categorical((1024, 2048, 4096), ordered=True),
    "num_hidden_layers": Categorical((1, 2, 3, 4, 5, 6), ordered=True),
    "hidden_size": Categorical((32, 64, 128, 256, 512), ordered=True, log=True),
    "weight_decay": Double(1e-4, 10.0, log=True),
    "label_smoothing": Double(0.0, 0.2),
    "clip_grad_norm": Double(0.01, 50.0, log=True),
    "learning_rate": Double(0.005, 2.0, log=True),
    "initializer": Categorical(("uniform", "orthogonal", "uniform_unit_scaling")),
    "initializer_gain": Double(0.5, 3.5),
    "learning_rate_decay_scheme": Categorical(("none", "sqrt", "noam", "exp")),
    "optimizer_adam_epsilon": Double(1e-7, 1e-2, log=True),
    "optimizer_adam_beta1": Double(0.8, 0.9),
    "optimizer_adam_beta2": Double(0.995, 0.999),
    "optimizer": Categorical(("adam", "adagrad", "momentum", "rms_prop", "sgd")),
}
TRANSFORMER = {
    "learning_rate": Double(0.3, 3.0, log=True),
    "learning_rate_warmup_steps": Categorical((1000, 2000, 4000, 8000, 16000), ordered=True),
    "initializer_gain": Double(0.5, 2.0),
    "optimizer_adam_beta1": Double(0.85, 0.95),
    "optimizer_adam_beta2": Double(0.97, 0.99),
    "weight_decay": Double(0.0, 1e-4),
}


def test_the_ranges_of_tensor2tensor_are_here() -> None:
    assert dict(registry.ranged_hparams("basic_range1").ranges) == BASIC
    assert dict(registry.ranged_hparams("basic1").ranges) == BASIC
    assert dict(registry.ranged_hparams("transformer_base_range").ranges) == TRANSFORMER


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("basic_range1", "basic_params1"),
        ("basic_range1", "transformer_base_v1"),
        ("transformer_base_range", "transformer_base_v2"),
        ("transformer_tiny_range", "transformer_tiny"),
    ],
)
def test_our_ranges_fit_the_sets_that_they_are_about(name: str, of: str) -> None:
    registry.ranged_hparams(name).check(registry.hparams(of), name)


def test_every_optimizer_of_a_range_is_registered() -> None:
    chosen = registry.ranged_hparams("basic_range1").ranges["optimizer"]
    assert isinstance(chosen, Categorical)
    assert set(chosen.values) <= set(registry.list_names("optimizer"))


def test_ranges_are_new_with_every_call() -> None:
    registry.ranged_hparams("basic_range1").set_int("max_length", 1, 2)
    assert "max_length" not in registry.ranged_hparams("basic_range1").ranges


def test_a_users_ranges_are_found_and_listed(tmp_path: Path) -> None:
    folder = tmp_path / "users_of_ranges"
    folder.mkdir()
    (folder / "limericks.py").write_text(RANGES, "utf-8")
    registry.import_usr_dir(folder)
    assert "limericks_range" in registry.list_names("ranged_hparams")
    assert "limericks_range\n" in registry.help_string().split("Hparams ranges:")[1]
    assert list(registry.ranged_hparams("limericks_range").ranges) == [
        "learning_rate",
        "num_hidden_layers",
    ]


def test_an_unknown_range_is_told_with_the_nearest_name() -> None:
    with pytest.raises(RegistryError) as error:
        registry.ranged_hparams("transformer_base_rang")
    assert "no hparams range is named 'transformer_base_rang'. Did you mean" in str(error.value)
    assert "hparams\n" in str(error.value)
    with pytest.raises(RegistryError, match="is among the hparams sets"):
        registry.ranged_hparams("transformer_base")


def test_a_function_of_ranges_takes_one_argument() -> None:
    with pytest.raises(RegistryError, match=r"takes one argument, the RangedHParams .* takes \(\)"):
        registry.register_ranged_hparams("of_nothing")(lambda: None)
    with pytest.raises(RegistryError, match=r"its function takes \(a, b\)"):
        registry.register_ranged_hparams("of_two")(lambda a, b: None)
    with pytest.raises(RegistryError, match=r"its function takes \(\*, rhp\)"):
        registry.register_ranged_hparams("by_name")(lambda *, rhp: None)
