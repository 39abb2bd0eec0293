"""1,000 random steps of a run, computed again from the checkpoints before them."""

from __future__ import annotations

import random

import pytest

from t2t_torch.bin.commands import replay, trainer

EVERY, CHECKPOINTS, OF_EACH = 50, 50, 20


@pytest.mark.slow
def test_a_thousand_random_steps_come_again(flags, tmp_path, capsys):
    settings = {
        "hparams": "batch_size=256,learning_rate_warmup_steps=4,layer_prepostprocess_dropout=0.1",
        "train_steps": EVERY * CHECKPOINTS,
        "digest_every": 1,
        "save_checkpoints_steps": EVERY,
        "keep_checkpoint_max": 0,
        "local_eval_frequency": 0,
        "log_step_count_steps": 1000,
    }
    assert trainer.main(flags(**settings)) == 0
    chance, equal = random.Random(1), 0
    capsys.readouterr()
    for start in chance.sample(range(0, EVERY * CHECKPOINTS, EVERY), CHECKPOINTS):
        first = start + 1 + chance.randrange(EVERY - OF_EACH + 1)
        steps = f"--steps={first}:{first + OF_EACH - 1}"
        assert replay.main([f"--output_dir={tmp_path / 'run'}", steps, "--worker_gpu=0"]) == 0
        said = capsys.readouterr().out.splitlines()
        assert said[-1].startswith(f"computed again from step {start}:")
        equal += sum(line.endswith(": equal") for line in said)
    assert equal == CHECKPOINTS * OF_EACH == 1000
