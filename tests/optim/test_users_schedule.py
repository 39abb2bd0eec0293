"""A learning-rate schedule in a folder of the user's: examples/my_usr_dir."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.bin.trainer import main
from t2t_torch.errors import HParamsError, RegistryError
from t2t_torch.hparam import HParams
from t2t_torch.optim.settings import check_settings, learning_rate, reads_train_steps

USR_DIR = Path(__file__).resolve().parents[2] / "examples" / "my_usr_dir"
HOLD = "learning_rate_schedule=constant*hold_then_drop,learning_rate_constant=2"

pytestmark = pytest.mark.usefixtures("own_registry")


def rates(hparams, steps=(0,), train_steps=100):
    rate = learning_rate(HParams().parse(hparams), train_steps)
    return [rate(step) for step in steps]


def test_it_is_a_factor_as_any_other():
    registry.import_usr_dir(USR_DIR)
    found = rates(f"{HOLD},learning_rate_cut_fraction=0.8", [0, 80, 90, 100, 101])
    assert found == pytest.approx([2, 2, 1, 0, 0])


def test_schedules_are_listed_with_the_users_own(capsys):
    assert main(["--registry_help", f"--t2t_usr_dir={USR_DIR}"]) == 0
    listed = capsys.readouterr().out.partition("Learning-rate schedules:")[2]
    listed = listed.partition("Metrics:")[0].split()
    for name in ("constant", "linear_warmup", "rsqrt_decay", "legacy", "hold_then_drop"):
        assert name in listed


def test_its_settings_are_checked_as_it_declares_them():
    registry.import_usr_dir(USR_DIR)
    check_settings(HParams().parse(f"{HOLD},learning_rate_cut_fraction=0.5"))
    with pytest.raises(HParamsError, match=r"learning_rate_ratio=9.0 is read by nothing"):
        check_settings(HParams().parse(f"{HOLD},learning_rate_ratio=9"))
    with pytest.raises(HParamsError, match=r"a learning_rate_schedule with hold_then_drop, slant"):
        check_settings(HParams().parse("learning_rate_cut_fraction=0.5"))
    assert reads_train_steps("hold_then_drop")


def test_one_that_declares_nothing_may_read_anything(tmp_path):
    register(tmp_path, "def plain(hparams, train_steps): return lambda step: 3.0")
    check_settings(HParams().parse("learning_rate_schedule=plain,learning_rate_ratio=9"))
    assert rates("learning_rate_schedule=plain") == [3.0]
    assert not reads_train_steps("plain")


def register(folder, function):
    (folder / "mine.py").write_text(
        f"from t2t_torch.registry import register_schedule\n@register_schedule\n{function}\n"
    )
    registry.import_usr_dir(folder)


def test_an_unknown_name_is_refused_and_the_known_ones_are_named():
    with pytest.raises(HParamsError, match=r"no factor 'hold_then_drop'.*legacy.*--t2t_usr_dir"):
        rates(HOLD)
    registry.import_usr_dir(USR_DIR)
    with pytest.raises(HParamsError, match=r"no factor 'hold'.*hold_then_drop"):
        rates("learning_rate_schedule=hold")
    with pytest.raises(RegistryError, match=r"no learning-rate schedule is named 'hold_then_drp'"):
        registry.schedule("hold_then_drp")


def test_one_that_returns_no_function_is_refused_and_named(tmp_path):
    register(tmp_path, "def halved(hparams, train_steps): return 0.5")
    with pytest.raises(HParamsError, match=r"schedule='halved': .*mine.halved\(.* returned 0.5"):
        rates("learning_rate_schedule=halved")


def test_a_name_of_the_library_cannot_be_taken(tmp_path):
    text = "def constant(hparams, train_steps): return lambda step: 1.0"
    with pytest.raises(RegistryError, match=r"learning-rate schedule 'constant' is declared twice"):
        register(tmp_path, text)
