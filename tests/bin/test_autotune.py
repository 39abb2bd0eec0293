"""tensor2tensor's flags of a search lead to `t2t-tuner`."""

from __future__ import annotations

import pytest

from t2t_torch.bin import commands
from t2t_torch.bin.commands import trainer


@pytest.fixture
def asked(monkeypatch):
    """What the tuner is given."""
    result = []
    monkeypatch.setattr(
        commands.tuner, "run", lambda settings: result.append(settings.arguments()) or 0
    )
    return result


NAMED = ["--problem=dates_to_iso", "--model=transformer", "--hparams_set=transformer_tiny"]
PLACES = ["--data_dir=data", "--output_dir=search", "--hparams_range=transformer_base_range"]


def test_each_flag_reaches_the_tuner_by_its_name_there(asked):
    flags = ["--autotune_objective=accuracy", "--autotune_maximize", "--autotune_max_trials=5"]
    flags += ["--autotune_parallel_trials=2", "--random_seed=3", "--train_steps=40", "--trust_code"]
    assert trainer.main([*NAMED, *PLACES, *flags, "--hparams=batch_size=64"]) == 0
    assert sorted(asked[0]) == sorted(
        [
            *NAMED,
            *PLACES,
            "--hparams=batch_size=64",
            "--train_steps=40",
            "--seed=3",
            "--metric=accuracy",
            "--metric_minimize=false",
            "--max_trials=5",
            "--parallel=2",
            "--trust_code",
        ]
    )


def test_silent_flags_are_tensor2tensors(asked):
    trainer.main([*NAMED, *PLACES])
    assert sorted(asked[0]) == sorted([*NAMED, *PLACES, "--max_trials=10"])


def test_what_a_search_does_not_read_is_refused(asked, capsys):
    assert trainer.main([*NAMED, *PLACES, "--keep_checkpoint_max=3"]) == 2
    assert "--keep_checkpoint_max: nothing in a search" in capsys.readouterr().err
    assert trainer.main([*NAMED, *PLACES, "--schedule=train"]) == 2
    assert "--schedule=train: a search trains" in capsys.readouterr().err
    assert asked == []


def test_flags_of_a_search_without_one_are_refused(asked, capsys):
    arguments = [*NAMED, *PLACES[:2], "--autotune_max_trials=3"]
    assert trainer.main(arguments) == 2
    assert "leave it out, or give --hparams_range" in capsys.readouterr().err
