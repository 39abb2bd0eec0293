"""Values that a trial does not read are not handed to it; a range that none reads is refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.bin.commands import tuner
from t2t_torch.errors import HParamsError
from t2t_torch.optim.settings import check_settings
from t2t_torch.search_space import RangedHParams, Space
from t2t_torch.tune.search_target import ProblemSearchTarget, check_read, read_ones, unread


def space_of(name: str) -> Space:
    return Space.of_ranges(registry.ranged_hparams(name))


def test_settings_of_another_optimizer_are_left_out() -> None:
    base = registry.hparams("basic_params1")
    values = {"optimizer": "sgd", "optimizer_adam_beta1": 0.85, "hidden_size": 32}
    assert read_ones(base, values) == {"optimizer": "sgd", "hidden_size": 32}
    (why,) = unread(base, values).values()
    assert "optimizer=sgd does not read it" in why
    adam = {**values, "optimizer": "adam"}
    assert read_ones(base, adam) == adam


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("ranges", "of"),
    [
        ("basic_range1", "basic_params1"),
        ("basic_range1", "transformer_base_v1"),
        ("transformer_base_range", "transformer_base_v1"),
        ("transformer_base_range", "transformer_base_v2"),
        ("transformer_tiny_range", "transformer_tiny"),
    ],
)
def test_every_trial_of_our_ranges_is_taken_by_the_trainer(ranges: str, of: str) -> None:
    base, space, rng = registry.hparams(of), space_of(ranges), random.Random(1)
    check_read(base, space, ranges)
    for _ in range(15):
        check_settings(base.replace(**read_ones(base, space.sample(rng))).signed("--hp"))


def test_a_range_that_no_trial_reads_is_refused() -> None:
    with pytest.raises(HParamsError) as error:
        check_read(
            registry.hparams("transformer_base"), space_of("transformer_base_range"), "--ranges"
        )
    (lines,) = str(error.value).splitlines()
    assert lines.startswith("--ranges: learning_rate=")
    assert "does not read it; a learning_rate_schedule with legacy would" in lines


def test_all_that_is_never_read_is_told() -> None:
    ranges = RangedHParams()
    ranges.set_categorical("optimizer", ["sgd", "adagrad"])
    ranges.set_float("optimizer_adam_beta1", 0.8, 0.9)
    ranges.set_float("optimizer_momentum_momentum", 0.8, 0.9)
    with pytest.raises(HParamsError) as error:
        check_read(registry.hparams("basic_params1"), Space.of_ranges(ranges), "ranges.yaml")
    assert [line.split("=")[0] for line in str(error.value).splitlines()] == [
        "ranges.yaml: optimizer_adam_beta1",
        "ranges.yaml: optimizer_momentum_momentum",
    ]


def test_a_training_is_told_only_what_it_reads() -> None:
    target = ProblemSearchTarget(
        problem="dates_to_iso",
        model="transformer",
        hparams_set="transformer_tiny",
        hparams="optimizer=momentum",
        data_dir=Path("data"),
        usr_dirs=(),
        more=(),
    )
    values = {"optimizer_adam_beta1": 0.85, "optimizer_momentum_momentum": 0.8}
    lines = [one for one in target.arguments(values) if one.startswith("--hp=")]
    assert lines == ["--hp=optimizer_momentum_momentum=0.8"]


def test_the_command_refuses_a_range_that_no_trial_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requested = (
        "--problem=dates_to_iso --model=transformer --hparams_set=transformer_base "
        f"--hparams_range=transformer_base_range --data_dir={tmp_path} "
        f"--output_dir={tmp_path / 'search'} --train_steps=10"
    )
    assert tuner.main(requested.split()) == 2
    assert "--hparams_range=transformer_base_range: learning_rate=" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
