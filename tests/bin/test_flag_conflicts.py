"""Flags that contradict each other, or that nothing would read, are refused before anything."""

from __future__ import annotations

import json

import pytest

from t2t_torch.bin.commands import trainer

EARLY = {"eval_early_stopping_steps": 10}
FALLS = {"reduce_lr_on_plateau_factor": 0.5}
WAITS = {"hparams": "optimizer=sgd,swa_patience=3"}


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"train_epochs": 2}, "--train_steps and --train_epochs both say where the run ends"),
        ({**EARLY, "schedule": "train"}, "which --schedule=train does not make"),
        ({**FALLS, "schedule": "train"}, "which --schedule=train does not make"),
        ({**EARLY, "local_eval_frequency": 0}, "--local_eval_frequency=0 makes none"),
        ({**FALLS, "local_eval_frequency": 0}, "--local_eval_frequency=0 makes none"),
        ({**WAITS, "schedule": "train"}, "which --schedule=train does not make. Give --schedule="),
        ({**WAITS, "local_eval_frequency": 0}, "--local_eval_frequency=0 makes none on the way"),
        ({"eval_early_stopping_metric_delta": 0.5}, "read with --eval_early_stopping_steps or"),
        ({"reduce_lr_on_plateau_patience": 2}, "read with --reduce_lr_on_plateau_factor"),
        ({"reduce_lr_on_plateau_threshold": 2}, "read with --reduce_lr_on_plateau_factor"),
        ({"reduce_lr_on_plateau_factor": 0}, "would end all learning"),
        ({"reduce_lr_on_plateau_factor": 2}, "reduce_lr_on_plateau_factor"),
        ({"warm_start_patterns": "encoder"}, "--warm_start_from: give it"),
        ({"schedule": "evaluate", "profile": True}, "--profile is for training"),
        ({"schedule": "evaluate", "train_seconds": 5}, "--train_seconds is for training"),
        ({"decode_hparams": "beam_size=1"}, "--decode_hparams is for decoding"),
        ({"schedule": "continuous_decode_from_file"}, "needs --decode_from_file"),
        (
            {"schedule": "train_eval_and_decode", "decode_reference": __file__},
            "--decode_reference belongs to --decode_from_file",
        ),
        (
            {"schedule": "continuous_decode_on_train_data", "decode_from_file": __file__},
            "decodes the generated data",
        ),
        ({"schedule": "decode", "decode_from_file": "nowhere.txt"}, "there is no such file"),
        (
            {"schedule": "evaluate_on_train_data", "eval_use_test_set": True},
            "looks at the training split",
        ),
        ({"print_config": True, "dry_run": True}, "both print and exit"),
        ({"hooks": "histogram"}, "histograms"),
        ({"on_save_error": "panic"}, "continue"),
        ({"resume_data": "no"}, "restart"),
        ({"signal_exit_code": 300}, "signal_exit_code"),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else None,
)
def test_it_is_refused_and_nothing_is_begun(arguments, capsys, tmp_path, flags, told):
    assert trainer.main(arguments(**flags)) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_all_conflicts_are_told_at_once(arguments, capsys):
    assert trainer.main(arguments(train_epochs=2, warm_start_patterns="x", worker_gpu=2)) == 2
    printed = capsys.readouterr().err
    assert "--train_epochs" in printed
    assert "--warm_start_patterns" in printed
    assert "torchrun --nproc-per-node=2" in printed


def test_a_value_that_is_the_default_conflicts_with_nothing(arguments):
    """So a file that holds every flag may be given."""
    flags = {"eval_early_stopping_metric_delta": 0.1, "decode_hparams": "", "profile": False}
    assert trainer.main(arguments(train_steps=1, **flags)) == 0


def test_early_stopping_that_was_remembered_does_not_hinder_another_schedule(arguments):
    flags = {"local_eval_frequency": 1, **EARLY}
    assert trainer.main(arguments(train_steps=1, **flags)) == 0
    assert trainer.main(arguments(train_steps=2, schedule="train")) == 0


def test_a_flag_wins_over_the_other_end_of_a_file(arguments, tmp_path, capsys):
    file = tmp_path / "run.json"
    for in_file, given in [
        ({"train_steps": 9}, "train_epochs"),
        ({"train_epochs": 9}, "train_steps"),
    ]:
        file.write_text(json.dumps(in_file))
        flags = {"train_steps": None, given: 2, "config": file, "output_dir": None}
        assert trainer.main([*arguments(**flags), "--print_config"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert {n: v for n, v in printed.items() if n in ("train_steps", "train_epochs")} == {
            given: 2
        }


@pytest.mark.parametrize("value", ["0.5", "300"])
def test_a_value_that_does_not_fit_is_told_with_what_the_flag_takes(arguments, capsys, value):
    assert trainer.main(arguments(signal_exit_code=value)) == 2
    printed = capsys.readouterr().err
    assert "expected an integer in the range [0, 255]. --signal_exit_code: Exit code" in printed
