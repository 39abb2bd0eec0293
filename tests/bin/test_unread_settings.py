"""A setting that the optimizer or the schedule does not read ends the command before it begins."""

from __future__ import annotations

import json

import pytest

from t2t_torch.bin.commands import trainer

SMALL = "batch_size=256,learning_rate_warmup_steps=4"


@pytest.mark.parametrize("flags", [{}, {"dry_run": True}])
def test_it_is_refused_and_nothing_is_begun(arguments, capsys, tmp_path, flags):
    assert trainer.main(arguments(hparams=f"{SMALL},learning_rate=0.5", **flags)) == 2
    assert "learning_rate=0.5 is read by nothing" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_so_is_one_of_a_file_or_of_a_flag_of_its_own(arguments, capsys, tmp_path):
    file = tmp_path / "small.json"
    file.write_text(json.dumps({"hparams": {"optimizer_momentum_nesterov": True}}))
    assert trainer.main(arguments(config=file)) == 2
    assert "optimizer_momentum_nesterov=True is read by nothing" in capsys.readouterr().err
    assert trainer.main(arguments(hp="learning_rate_ratio=4")) == 2
    assert "slanted_triangular" in capsys.readouterr().err


def test_a_run_goes_on_with_what_it_was_begun_with_and_takes_no_more(arguments, capsys):
    started = f"{SMALL},learning_rate_schedule=cyclic,learning_rate_decay_steps=2".replace(
        "learning_rate_warmup_steps=4,", ""
    )
    assert trainer.main(arguments(hparams=started)) == 0
    # The next schedule reads no decay_steps, which the run remembers.
    go_on = {"hparams_set": None, "train_steps": 4}
    assert trainer.main(arguments(hparams="learning_rate_schedule=constant", **go_on)) == 0
    assert trainer.main(arguments(hparams="learning_rate_decay_steps=9", **go_on)) == 2
    assert "learning_rate_decay_steps=9 is read by nothing" in capsys.readouterr().err


def test_a_decay_that_does_not_decay_is_refused(arguments, capsys):
    chosen = "learning_rate_schedule=exp_decay"
    assert trainer.main(arguments(hparams=f"{SMALL},{chosen}")) == 2
    assert "exp_decay multiplies the rate by learning_rate_decay_rate" in capsys.readouterr().err
    assert trainer.main(arguments(hparams=f"{SMALL},{chosen},learning_rate_decay_rate=0.5")) == 0
