"""What is said when training begins."""

from __future__ import annotations

import re

import pytest

from t2t_torch.train.run_page import RunReport
from t2t_torch.train.task import Hook


def test_the_opening_names_what_is_not_as_usual(make_estimator, capsys):
    make_estimator("usual").begin()
    assert "trained with: adam\n" in capsys.readouterr().err
    hparams = "optimizer=adam_w,loss=focal,label_smoothing=0,ema_decay=0.9"
    teacher = make_estimator("teacher", hparams=hparams)
    teacher.train(1)
    teacher.close()
    assert "trained with: adam_w, loss focal, EMA 0.9 of the weights\n" in capsys.readouterr().err
    path = teacher.directory.path
    hparams = f"distill_from={path},distill_weight=0.25,swa_start_step=5,swa_every=2"
    pupil = make_estimator("pupil", hparams=hparams, hooks=[Hook(), RunReport()])
    pupil.begin()
    text = f"25% of the loss by the teacher {path}, SWA of the weights from step 5, every 2\n"
    content = capsys.readouterr().err
    assert f"trained with: adam, {text}" in content
    assert "hooks: Hook\n" in content


def test_one_process_alone_says_that_it_shards_nothing(make_estimator, capsys):
    make_estimator("usual").begin()
    assert "shard_weights" not in capsys.readouterr().err
    make_estimator("sharded", hparams="shard_weights=True").train(1)
    assert "shard_weights=True does nothing in one process alone" in capsys.readouterr().err


WARM = "learning_rate_warmup_steps"


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        (f"constant*linear_warmup,{WARM}=4000", f"{WARM}=4000"),
        (f"constant*linear_warmup*rsqrt_decay,{WARM}=4000", f"{WARM}=4000"),
        (f"legacy,learning_rate_decay_scheme=noam,{WARM}=4000", f"{WARM}=4000"),
        (f"legacy,learning_rate_decay_scheme=exp,{WARM}=4000", f"{WARM}=4000"),
        (f"constant*linear_warmup*cosine_annealing,{WARM}=4000", f"{WARM}=4000"),
        ("constant*cyclic,learning_rate_decay_steps=4000", "learning_rate_decay_steps=4000"),
        (f"constant*linear_warmup*rsqrt_decay,{WARM}=299", ""),
        (f"constant*slanted_triangular,{WARM}=4000", ""),
        ("constant", ""),
        ("constant,swa_start_step=300", ""),
        ("constant,swa_start_step=301", "swa_start_step=301"),
    ],
)
def test_a_run_that_ends_inside_its_warm_up_is_warned_of(make_estimator, capsys, schedule, told):
    make_estimator(train_steps=300, hparams=f"learning_rate_schedule={schedule}").begin()
    content = capsys.readouterr().err
    assert ("warning: the run ends at step 300" in content) == bool(told)
    assert told in content
    if WARM in told:
        assert "peak at step 4,000" in content
        assert f"Give more --train_steps, or --hparams={WARM}=30" in content


def test_the_opening_tells_the_learning_rates_that_will_be_used(make_estimator, capsys):
    first = make_estimator(train_steps=20)
    first.train(2)
    first.state.plateau_factor = 0.5
    first.save(must_succeed=True)
    first.train(3)
    first.close()
    content = capsys.readouterr().err
    assert re.search(r"learning rate: 0 at step 1, \S+ at step 5, \S+ at step 20\n", content)
    resumed = make_estimator(train_steps=20, log_step_count_steps=1)
    resumed.train(4)
    (text,) = re.findall(r"learning rate: (\S+) at step 4, \S+ at step 5,", capsys.readouterr().err)
    used = resumed.run.optimizer.param_groups[0]["lr"]
    assert text == f"{used:.3g}" == f"{resumed.run.learning_rate(3) / 2:.3g}"
    resumed.close()
    make_estimator(train_steps=20).begin()
    content = capsys.readouterr().err
    assert "at step 20; 0.5 times the schedule's, as the metric stood still" in content
