"""Numbers that no flag and no hyperparameter can mean are refused by name, with exit code 2."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from t2t_torch.bin.commands import (
    avg_all,
    bleu,
    data,
    datagen,
    decoder,
    evaluation,
    exporter,
    latency,
    server,
    trainer,
    translate_all,
    tuner,
)
from t2t_torch.errors import HParamsError
from t2t_torch.hparam import HParams
from t2t_torch.registry import hparams
from t2t_torch.train.memory import Footprint, new_model

COMMANDS = [avg_all, bleu, data, datagen, decoder, evaluation, exporter, latency, server, trainer]
COMMANDS += [translate_all, tuner]
NUMERIC = [
    pytest.param(command, name, id=f"{command.name}-{name}")
    for command in COMMANDS
    for name, setting in command.declared.items()
    if setting.kind in (int, float)
]


@pytest.mark.parametrize(("command", "name"), NUMERIC)
def test_a_number_that_is_far_too_large_is_refused_by_every_flag(command, name, capsys):
    is_int = command.declared[name].kind is int
    for value in ["9" * 30] if is_int else ["nan", "inf"]:
        assert command.main([f"--{name}={value}"]) == 2
        assert f"--{name}={value}" in capsys.readouterr().err


def test_a_server_that_could_answer_nothing_is_refused(capsys):
    assert server.main(["--max_seconds=0"]) == 2
    assert "--max_seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flag", ["max_consecutive_nonfinite=0", "loader_workers=100000", "autotune_parallel_trials=1e6"]
)
def test_a_number_out_of_a_flags_own_bounds_is_refused(flag, arguments, capsys):
    assert trainer.main([*arguments(), f"--{flag}"]) == 2
    assert f"--{flag}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "setting",
    ["batch_size=99999999999999", "hidden_size=100000000000", "num_hidden_layers=2000000000"],
)
def test_a_hyperparameter_that_is_far_too_large_is_refused_by_name(setting):
    with pytest.raises(HParamsError, match=rf"{setting}: should be .* (to|than or equal to) \d+"):
        hparams("transformer_test").parse(setting)


@pytest.mark.parametrize("setting", ["hidden_size", "filter_size"])
def test_a_model_that_no_memory_holds_is_refused_and_not_a_traceback(setting, arguments, capsys):
    assert trainer.main(arguments(hparams=f"{setting}=2000000000,batch_size=256")) == 2
    printed = capsys.readouterr().err
    assert "needs more memory than this machine has" in printed
    assert f"Reduce {setting}=2000000000, for example to {setting}=200000000;" in printed


def test_a_dry_run_of_a_model_that_no_memory_holds_is_refused_too(arguments, capsys):
    hparams = "hidden_size=2000000000,batch_size=256"
    assert trainer.main([*arguments(hparams=hparams), "--dry_run"]) == 2
    assert "Reduce hidden_size=2000000000, for example" in capsys.readouterr().err


def test_a_dry_run_without_memory_for_a_step_is_refused(arguments, capsys, monkeypatch):
    def measure(*_: object) -> Footprint:
        raise MemoryError

    monkeypatch.setattr(Footprint, "measure", measure)
    assert trainer.main([*arguments(), "--dry_run"]) == 2
    assert "needs more memory than this machine has. Reduce" in capsys.readouterr().err


def _of_too_many_numbers() -> nn.Module:
    return nn.Linear(2**63, 1)


def _of_too_many_bytes() -> nn.Module:
    return nn.Linear(2**40, 2**40)


def _of_a_long_list() -> nn.Module:
    return nn.ModuleList([nn.Identity()] * 2**60)


@pytest.mark.parametrize("make", [_of_too_many_numbers, _of_too_many_bytes, _of_a_long_list])
def test_memory_errors_of_python_and_torch_are_reported_alike(make):
    task = SimpleNamespace(
        name="own", model=make, chosen={"net.width": 2**40, "wide": True, "seed": 9}
    )
    task.hparams = HParams()
    with pytest.raises(HParamsError, match=r"model of own needs more.*Reduce net\.width=1099511"):
        new_model(task, torch.device("cpu"))
    task.chosen = {}
    with pytest.raises(
        HParamsError, match=r"model of own needs more.*Reduce the sizes of its layers"
    ):
        new_model(task, torch.device("cpu"))


def test_other_errors_of_a_model_are_its_own():
    def fails() -> nn.Module:
        raise TypeError("an int was expected")

    task = SimpleNamespace(model=fails)
    with pytest.raises(TypeError, match="an int was expected"):
        new_model(task, torch.device("cpu"))
