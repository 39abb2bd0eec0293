"""`t2t-trainer`: what it prints, refuses, and leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import processes
import pytest
import torch
from safetensors.torch import load_file

from t2t_torch.bin.commands import datagen, trainer
from t2t_torch.distributed import precision
from t2t_torch.distributed.precision import Probe
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory
from t2t_torch.workflows import train_record
from t2t_torch.workflows.train_settings import TrainSettings

PROBLEM = "algorithmic_reverse_binary40_test"
ROOT = Path(__file__).parents[2]


def weights(run, step):
    return load_file(run / f"ckpt-{step}" / "model.safetensors")


@pytest.mark.quick
def test_a_run_leaves_all_that_decoding_and_resuming_need(arguments, tmp_path):
    assert trainer.main(arguments(train_steps=2)) == 0
    run = tmp_path / "run"
    assert RunDirectory(run).task().model_dump(exclude={"usr_dirs", "version"}) == {
        "problem": PROBLEM,
        "model": "transformer",
        "hparams_set": "transformer_test",
        "trial": "",
        "train_steps": 2,
        "declaration": {},
        "decode_hparams": "",
        "kind": "",
    }
    assert "kind" not in json.loads((run / "task.json").read_text())
    assert json.loads((run / "hparams.json").read_text())["batch_size"] == 256
    assert json.loads((run / "latest.json").read_text()) == {"checkpoint": "ckpt-2", "step": 2}
    assert CheckpointDirectory(run).newest().trainer_state().batches_consumed == 2


def test_a_second_command_needs_the_directory_alone_and_goes_on(arguments, tmp_path, capsys):
    trainer.main(arguments(train_steps=2))
    silent = dict.fromkeys(("problem", "model", "hparams_set", "hparams"))
    assert trainer.main(arguments(train_steps=3, **silent)) == 0
    assert "resuming from step 2" in capsys.readouterr().err
    assert (tmp_path / "run" / "ckpt-3").is_dir()


def test_a_type_of_number_that_was_probed_for_is_kept_with_the_run(
    arguments, tmp_path, capsys, monkeypatch
):
    auto = arguments(train_steps=2, hparams="batch_size=256,activation_dtype=auto")
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda: True)
    for choice in ("bfloat16", "float32"):  # the second is what the machine would choose by then
        other = 0.5 if choice == "bfloat16" else 1.0
        times = {"float32": 1.0, "bfloat16": other}
        probe = Probe(choice, times, times)
        monkeypatch.setattr(Probe, "of", lambda *_, found=probe: found)
        assert trainer.main(auto) == 0
        auto = [flag.replace("train_steps=2", "train_steps=3") for flag in auto]
        retained = json.loads((tmp_path / "run" / "hparams.json").read_text())
        assert retained["activation_dtype"] == "bfloat16"
    assert (tmp_path / "run" / "ckpt-3").is_dir()
    assert "activation_dtype:" not in capsys.readouterr().err


@pytest.mark.parametrize("ends", ["steps", "early"])
def test_a_changed_setting_of_a_finished_run_is_said_to_have_no_effect(
    arguments, tmp_path, capsys, ends
):
    rule = {"eval_patience": 1, "eval_early_stopping_metric_delta": 99} if ends == "early" else {}
    known = {"train_steps": 2 if ends == "steps" else 9, "local_eval_frequency": 1, **rule}
    assert trainer.main(arguments(**known)) == 0
    before = (tmp_path / "run" / "latest.json").read_bytes()
    assert trainer.main(arguments(**known)) == 0
    assert "no effect" not in capsys.readouterr().err
    changed = {"hparams": "batch_size=256,learning_rate_constant=0.5", "keep_checkpoint_best": 2}
    assert trainer.main(arguments(**known, **changed)) == 0
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "no effect" in one]
    assert "learning_rate_constant: " in line and "-> 0.5" in line
    assert "keep_checkpoint_best: 0 -> 2" in line
    assert "--train_steps" in line and "another --output_dir" in line
    assert (tmp_path / "run" / "latest.json").read_bytes() == before


def test_a_second_command_ends_where_the_first_was_told_to(arguments, tmp_path, capsys):
    """Else it would end at the flag's default, and a cosine would rise to its peak again."""
    run = tmp_path / "run"
    cosine = "batch_size=256,learning_rate_warmup_steps=1"
    cosine += ",learning_rate_schedule=constant*linear_warmup*single_cycle_cos_decay"
    whole = arguments(hparams=cosine, train_steps=4, output_dir=tmp_path / "whole")
    assert trainer.main(whole) == 0
    stopped = arguments(hparams=cosine, train_steps=4, local_eval_frequency=2)
    assert trainer.main(stopped) == 0
    shutil.rmtree(run / "ckpt-4")
    again = [flag for flag in stopped if not flag.startswith("--train_steps")]
    assert trainer.main(again) == 0
    assert RunDirectory(run).task().train_steps == 4
    for name, tensor in weights(tmp_path / "whole", 4).items():
        assert torch.equal(tensor, weights(run, 4)[name])
    capsys.readouterr()
    assert trainer.main([*again, "--train_steps=5"]) == 0
    assert "train_steps: 4 -> 5" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [[], ["--dry_run"]])
def test_an_evaluation_of_nothing_is_found_before_the_first_step(
    arguments, tmp_path, capsys, flags
):
    """Of training nothing is left either, but that would be found later."""
    hparams = "batch_size=256,max_length=1,eval_drop_long_sequences=True"
    code = trainer.main([*arguments(hparams=hparams), *flags])
    printed = capsys.readouterr().err
    assert code == 2, printed
    assert f"{PROBLEM}, split dev: none of the" in printed
    assert not list((tmp_path / "run").glob("ckpt-*"))


USR_PROBLEM = """
from t2t_torch.problems.algorithmic import AlgorithmicReverseBinary40
from t2t_torch.registry import register_problem


@register_problem
class MovedProblem(AlgorithmicReverseBinary40):
    \"\"\"A user's.\"\"\"
"""


@pytest.mark.slow
def test_a_users_folder_that_was_moved_is_taken_from_where_it_is_said_to_be(tmp_path, own_registry):
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    (there / "moved_problem.py").write_text(USR_PROBLEM)

    data = f"--data_dir={tmp_path}/data"

    def run(*flags):
        """In a process of its own, which has not read the folder yet."""
        file = tmp_path / f"told-{len(flags)}"
        child = processes.start(file, processes.run_trainer, [data, *flags])
        return child.wait(), child.said

    begin = [data, "--problem=moved_problem", f"--t2t_usr_dir={there}"]
    assert datagen.main([*begin, f"--tmp_dir={tmp_path}", "--max_cases=40"]) == 0
    begin += ["--model=transformer", "--hparams_set=transformer_test"]
    small = [f"--output_dir={tmp_path}/run", "--worker_gpu=0", "--schedule=train"]
    assert trainer.main([*begin, *small, "--train_steps=1"]) == 0
    there.rename(here)
    code, text = run(*small, "--train_steps=2")
    assert code == 2
    assert f"would execute the Python code in '{tmp_path}/run/code/there'" in text
    assert "give --trust_code" in text and "or name the folder yourself: --t2t_usr_dir=" in text
    code, text = run(*small, "--train_steps=2", f"--t2t_usr_dir={here}")
    assert code == 0, text
    assert f"--t2t_usr_dir={there} is not there any more; {here} is used" in text
    recorded = RunDirectory(tmp_path / "run").task().usr_dirs
    assert str(here) in recorded and str(there) not in recorded


def test_a_reversed_problem_trains_on_the_same_data(arguments, tmp_path):
    assert trainer.main(arguments(problem=f"{PROBLEM}_rev", train_steps=1)) == 0
    assert RunDirectory(tmp_path / "run").task().problem == f"{PROBLEM}_rev"


def test_a_learning_rate_may_change_on_the_way_and_is_said(arguments, capsys):
    trainer.main(arguments(train_steps=1))
    changed = "batch_size=256,learning_rate_warmup_steps=9"
    assert trainer.main(arguments(train_steps=2, hparams=changed)) == 0
    assert "learning_rate_warmup_steps: 4 -> 9" in capsys.readouterr().err


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"problem": "algorithmic_revers"}, "algorithmic_reverse"),
        ({"model": "transfomer"}, "transformer"),
        ({"hparams_set": "transformer_tst"}, "transformer_test"),
        ({"hparams": "batch_sise=3"}, "batch_size"),
        ({"hparams": "learning_rate_schedule=constant*linear_warmp"}, "linear_warmup"),
        ({"hparams": "optimizer=adan"}, "adam"),
        ({"schedule": "trian"}, "continuous_train_and_eval"),
        ({"train_stepz": 3}, "--train_steps"),
        ({"train_steps": 0}, "train_steps"),
        ({"problem": None}, "--problem"),
        ({"output_dir": None}, "--output_dir"),
        ({"worker_gpu": 2}, "torchrun --nproc-per-node=2"),
        ({"problem": "tiny_algo"}, "t2t-datagen --problem=tiny_algo"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_what_is_wrong_is_told_with_what_would_be_right(arguments, capsys, tmp_path, flags, told):
    assert trainer.main(arguments(**flags)) == 2
    error = capsys.readouterr().err
    assert "error: " in error
    assert told in error
    assert "Traceback" not in error
    assert not list(tmp_path.glob("run/ckpt-*"))


@pytest.mark.parametrize("flags", [{"problem": "tiny_algo"}, {"hparams": "batch_sise=3"}])
def test_a_mistake_leaves_no_run_directory_behind(arguments, tmp_path, flags):
    trainer.main(arguments(**flags))
    assert not (tmp_path / "run").exists()


def test_an_output_dir_of_another_problem_is_refused(arguments, capsys):
    trainer.main(arguments(train_steps=1))
    assert trainer.main(arguments(problem=f"{PROBLEM}_rev")) == 2
    assert f"holds a run of problem '{PROBLEM}'" in capsys.readouterr().err


def test_data_that_was_altered_is_refused(arguments, data_dir, capsys, tmp_path):
    shard = next(data_dir.glob(f"{PROBLEM}-train-*"))
    whole = shard.read_bytes()
    try:
        shard.write_bytes(whole[:-100])
        assert trainer.main(arguments()) == 2
    finally:
        shard.write_bytes(whole)
    error = capsys.readouterr().err
    assert shard.name in error
    assert "t2t-datagen" in error


def test_help_hparams_says_who_set_what(capsys):
    flags = ["--hparams_set=transformer_test", "--hparams=num_heads=4", "--help_hparams"]
    assert trainer.main(flags) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
    assert rows["num_heads"][1:4] == ["int", "4", "--hparams"]
    assert rows["hidden_size"][1:4] == ["int", "16", "transformer_test"]


def test_evaluate_needs_a_run(arguments, capsys):
    assert trainer.main(arguments(schedule="evaluate")) == 2
    assert "not a run directory" in capsys.readouterr().err


def test_evaluate_reports_the_newest_checkpoint(arguments, capsys, tmp_path):
    trainer.main(arguments(schedule="train"))
    assert trainer.main(arguments(schedule="evaluate")) == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["split"] for line in lines] == ["train", "train", "dev"]


def test_generate_data_makes_the_data_first(arguments, tmp_path):
    flags = {"problem": "tiny_algo", "data_dir": tmp_path / "new", "tmp_dir": tmp_path / "tmp"}
    assert trainer.main(arguments(**flags, train_steps=1, generate_data="true")) == 0
    assert (tmp_path / "run" / "ckpt-1").is_dir()


def test_train_eval_and_decode_writes_what_each_checkpoint_decodes(arguments, tmp_path, capsys):
    source = tmp_path / "in.txt"
    source.write_text("0 1 1\n1 0\n")
    flags = {"decode_from_file": source, "decode_hparams": "beam_size=1", "local_eval_frequency": 1}
    code = trainer.main(arguments(schedule="train_eval_and_decode", train_steps=2, **flags))
    assert code == 0
    decodes = sorted((tmp_path / "run" / "decodes").iterdir())
    assert [path.name.split("-")[1][0] for path in decodes] == ["1", "2"]
    assert [len(path.read_text().splitlines()) for path in decodes] == [2, 2]


def test_help_answers_without_torch():
    code = (
        "import sys; from t2t_torch.bin.trainer import main; main(['--help']); "
        "assert 'torch' not in sys.modules"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "--train_steps" in result.stdout


def test_a_second_trainer_is_refused_and_sigterm_saves_what_is_resumed_bit_equal(
    arguments, tmp_path, capsys
):
    flags = {"train_steps": 100000, "log_step_count_steps": 5, "schedule": "train"}
    child = processes.start(tmp_path / "told", processes.run_trainer, arguments(**flags))
    child.wait_until(lambda: "step 5/" in child.said)
    assert trainer.main(arguments()) == 2
    error = capsys.readouterr().err
    assert f"another training runs in '{tmp_path / 'run'}' (process {child.pid} on" in error
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait() == 128 + signal.SIGTERM, child.said
    stopped = CheckpointDirectory(tmp_path / "run").newest().step
    assert stopped >= 5

    flags = {"train_steps": stopped + 3, "schedule": "train"}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    assert trainer.main(arguments(**flags)) == 0
    assert trainer.main(arguments(**flags, output_dir=tmp_path / "whole")) == 0
    torch.set_num_threads(threads)
    resumed, whole = (weights(tmp_path / name, stopped + 3) for name in ("run", "whole"))
    assert [name for name in whole if not torch.equal(whole[name], resumed[name])] == []


@pytest.mark.slow
def test_two_processes_are_one_that_accumulates_two(arguments, tmp_path):
    def report(run, split):
        lines = map(json.loads, (tmp_path / run / "metrics.jsonl").read_text().splitlines())
        return [line for line in lines if line["split"] == split]

    # In single precision Adam's first steps turn rounding of near-zero gradients into whole steps.
    hparams = "batch_size=256,learning_rate_warmup_steps=4,optimizer_adam_epsilon=0.001"
    flags = {"train_steps": 9, "log_step_count_steps": 1, "eval_steps": 0}
    flags_of_two = arguments(**flags, hparams=hparams, output_dir=tmp_path / "two")
    folder = tmp_path / "errors"
    for child in processes.start_world(folder, 2, processes.run_trainer, flags_of_two):
        assert child.wait() == 0, child.said
    one = f"{hparams},optimizer_multistep_accumulate_steps=2"
    assert trainer.main(arguments(**flags, hparams=one, output_dir=tmp_path / "one")) == 0

    newest = [CheckpointDirectory(tmp_path / run).newest() for run in ("one", "two")]
    states = [checkpoint.trainer_state() for checkpoint in newest]
    # Clocks differ, and so do the last bits of what was measured.
    measured = {"seconds", "best_value", "plateau_value", "since_report"}
    assert states[0].model_dump(exclude=measured) == states[1].model_dump(exclude=measured)
    assert (states[0].batches_consumed, states[0].batches_per_step) == (18, 2)
    expected, result = weights(tmp_path / "one", 9), weights(tmp_path / "two", 9)
    for name in expected:
        torch.testing.assert_close(result[name], expected[name], rtol=0, atol=1e-5, msg=name)
    for name in ("loss", "grad_norm", "padding_fraction"):
        values = [[line[name] for line in report(run, "train")] for run in ("one", "two")]
        assert values[1] == pytest.approx(values[0], rel=1e-4)
    (dev_one,), (dev_two,) = report("one", "dev"), report("two", "dev")
    assert dev_two["loss"] == pytest.approx(dev_one["loss"], rel=1e-4)

    # And the one goes on where the two have stopped.
    flags["train_steps"] = 10
    assert trainer.main(arguments(**flags, hparams=one, output_dir=tmp_path / "two")) == 0


def files_under(folder):
    """What there is but the note of what was verified, which opening data may write."""
    paths = (path for path in folder.rglob("*") if not path.name.endswith(".verified.json"))
    return {path: path.stat().st_mtime_ns for path in paths}


def test_a_dry_run_tells_what_would_be_trained_and_writes_nothing(
    arguments, data_dir, tmp_path, capsys
):
    before = files_under(data_dir)
    assert trainer.main([*arguments(), "--dry_run"]) == 0
    assert trainer.main([*arguments(output_dir=None), "--dry_run"]) == 0
    once, again = capsys.readouterr().out.split("First batch")[1:]
    assert once == again
    assert f"{PROBLEM}: 160 of 160 examples" in once
    assert "memory of a process" in once
    assert list(tmp_path.iterdir()) == []
    assert files_under(data_dir) == before


def test_a_dry_run_of_a_run_that_was_begun_leaves_it_as_it_is(arguments, tmp_path, capsys):
    trainer.main(arguments(train_steps=1))
    before = files_under(tmp_path)
    silent = dict.fromkeys(("problem", "model", "hparams_set"))
    assert trainer.main([*arguments(hparams="batch_size=512", **silent), "--dry_run"]) == 0
    assert "an epoch is" in capsys.readouterr().out
    assert files_under(tmp_path) == before


def test_a_dry_run_needs_to_know_what_would_be_trained(arguments, capsys):
    assert trainer.main([*arguments(output_dir=None, model=None), "--dry_run"]) == 2
    assert "missing flags" in capsys.readouterr().err
    assert trainer.main([*arguments(), "--dry_run", "--generate_data"]) == 2
    assert "run t2t-datagen first" in capsys.readouterr().err


def test_a_signal_at_the_last_step_does_not_ask_for_the_command_again(capsys, tmp_path):
    def told(*, is_done: bool) -> str:
        newest = SimpleNamespace(step=160, path=tmp_path / "ckpt-160")
        run: Any = SimpleNamespace(
            checkpoints=SimpleNamespace(list=lambda: [newest]),
            world=SimpleNamespace(leads=True),
            signal=15,
            is_done=is_done,
        )
        assert train_record.report_stop(TrainSettings(), run) == 15
        return capsys.readouterr().err

    assert told(is_done=False) == f"saved {tmp_path}/ckpt-160; run the same command to resume\n"
    assert told(is_done=True) == f"finished at step 160: {tmp_path}/ckpt-160\n"
