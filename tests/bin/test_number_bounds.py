"""Numbers that no flag and no hyperparameter can mean are refused by name, with exit code 2."""

from __future__ import annotations

import pytest

from t2t_torch.bin import (
    avg_all,
    bleu,
    data,
    datagen,
    decoder,
    exporter,
    latency,
    server,
    trainer,
    translate_all,
    tuner,
)
from t2t_torch.bin import eval as evaluation
from t2t_torch.errors import HParamsError
from t2t_torch.registry import hparams

COMMANDS = [avg_all, bleu, data, datagen, decoder, evaluation, exporter, latency, server, trainer]
COMMANDS += [translate_all, tuner]
NUMERIC = [
    pytest.param(command, name, id=f"{command.__name__.rpartition('.')[2]}-{name}")
    for command in COMMANDS
    for name in command.FLAGS
    if command.FLAGS[name].parser.flag_type() in ("int", "float")
]


@pytest.mark.parametrize(("command", "name"), NUMERIC)
def test_a_number_that_is_far_too_large_is_refused_by_every_flag(command, name, capsys):
    is_int = command.FLAGS[name].parser.flag_type() == "int"
    for value in ["9" * 30] if is_int else ["nan", "inf"]:
        assert command.main([f"--{name}={value}"]) == 2
        assert f"--{name}={value}" in capsys.readouterr().err


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
    with pytest.raises(HParamsError, match=f"{setting}: should be less than or equal to"):
        hparams("transformer_test").parse(setting)


def test_a_model_that_no_memory_holds_is_refused_and_not_a_traceback(arguments, capsys):
    assert trainer.main(arguments(hparams="hidden_size=2000000000,batch_size=256")) == 2
    told = capsys.readouterr().err
    assert "needs more memory than this machine gives" in told
    assert "hidden_size=200000000" in told
