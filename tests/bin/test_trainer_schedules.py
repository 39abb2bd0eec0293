"""`t2t-trainer`: early stopping, decoding, hooks, warm starts and exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal

import processes
import pytest
import torch
from safetensors.torch import load_file

from t2t_torch.bin.commands import trainer
from t2t_torch.features import Text
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory

GREEDY = "beam_size=1,extra_length=2"


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "in.txt"
    file.write_text("0 1 1\n1 0\n")
    return file


def reports(run, split):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["split"] == split]


def test_a_run_that_learns_no_more_ends_early_with_code_0(arguments, tmp_path, capsys):
    flags = {
        "train_steps": 50,
        "local_eval_frequency": 1,
        "eval_early_stopping_steps": 2,
        "eval_early_stopping_metric_delta": 1000,
    }
    for _ in range(2):  # and so it does again
        assert trainer.main(arguments(**flags)) == 0
        assert "step 3: stopped early: loss has not improved by 1000" in capsys.readouterr().err
    assert CheckpointDirectory(tmp_path / "run").newest().step == 3


def test_a_metric_that_does_not_exist_is_refused_before_the_first_step(arguments, tmp_path, capsys):
    assert trainer.main(arguments(eval_early_stopping_metric="blue")) == 2
    assert "They have: accuracy" in capsys.readouterr().err
    assert not list(tmp_path.glob("run/ckpt-*"))


@pytest.mark.slow
def test_two_processes_stop_early_and_decode_together(arguments, tmp_path):
    flags = {
        "train_steps": 50,
        "local_eval_frequency": 1,
        "eval_early_stopping_steps": 1,
        "eval_early_stopping_metric": "bleu",
        "eval_early_stopping_metric_delta": 1000,
        "schedule": "train_eval_and_decode",
        "decode_hparams": f"{GREEDY},num_samples=9",
    }
    folder = tmp_path / "errors"
    children = processes.start_world(folder, 2, processes.run_trainer, arguments(**flags))
    for child in children:
        assert child.wait() == 0, child.said
    text = children[0].said
    assert "step 2: stopped early: bleu has not improved by 1000" in text
    assert [line["step"] for line in reports(tmp_path / "run", "decode")] == [1, 2]
    assert len(list((tmp_path / "run" / "decodes").glob("dev-2.*.decodes"))) == 1


def test_epochs_are_counted_in_steps_of_the_data_and_remembered(arguments, tmp_path, capsys):
    assert trainer.main(arguments(train_steps=None, train_epochs=1, schedule="train")) == 0
    state = CheckpointDirectory(tmp_path / "run").newest().trainer_state()
    assert state.batches_consumed == state.epoch_batches > 3
    capsys.readouterr()
    assert trainer.main(arguments(train_steps=None, schedule="train")) == 0
    printed = capsys.readouterr().err
    assert "--train_epochs=1" in printed
    assert f"is at step {state.step} already" in printed
    assert RunDirectory(tmp_path / "run").task().train_steps == 0


@pytest.mark.parametrize(
    ("schedule", "names"), [("decode", ["out.txt"]), ("continuous_decode_from_file", ["out-2.txt"])]
)
def test_a_file_is_decoded_and_compared(arguments, tmp_path, source, capsys, schedule, names):
    assert trainer.main(arguments(train_steps=2, schedule="train")) == 0
    reference = tmp_path / "right.txt"
    reference.write_text("1 1 0\n0 1\n")
    folder = tmp_path / "out"
    flags = {
        "decode_from_file": source,
        "decode_to_file": folder / "out.txt",
        "decode_reference": reference,
        "decode_hparams": GREEDY,
    }
    assert trainer.main(arguments(train_steps=2, schedule=schedule, **flags)) == 0
    assert [path.name for path in folder.iterdir()] == names
    assert "BLEU|nrefs:1" in capsys.readouterr().err
    (report,) = reports(tmp_path / "run", "decode")
    assert set(report) >= {"decode/bleu", "decode/chrf", "decode/exact_match"}
    assert len((folder / names[0]).read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("schedule", "split"),
    [
        ("continuous_decode", "dev"),
        ("continuous_decode_on_train_data", "train"),
        ("continuous_decode_on_eval_data", "dev"),
    ],
)
def test_generated_data_is_decoded_with_the_runs_checkpoints(arguments, tmp_path, schedule, split):
    assert trainer.main(arguments(train_steps=1, schedule="train")) == 0
    flags = {"schedule": schedule, "decode_hparams": f"{GREEDY},num_samples=4"}
    assert trainer.main(arguments(train_steps=1, **flags)) == 0
    (decodes,) = (tmp_path / "run" / "decodes").glob("*.decodes")
    assert decodes.name.startswith(f"{split}-1.")
    assert len(decodes.read_text().splitlines()) == 4


def test_samples_of_what_is_decoded_are_shown(arguments, tmp_path, source):
    flags = {"schedule": "train_eval_and_decode", "decode_from_file": source}
    assert trainer.main(arguments(train_steps=1, decode_hparams=GREEDY, **flags)) == 0
    shown = json.loads((tmp_path / "run" / "decode_samples.json").read_text())
    assert (shown["step"], [sample["inputs"] for sample in shown["samples"]]) == (
        1,
        ["0 1 1", "1 0"],
    )


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"decode_hparams": "beam_sise=1"}, "beam_size"),
        ({"decode_hparams": "shards=2,shard_id=0"}, "t2t-trainer decodes in one part and does not"),
        ({"decode_hparams": "num_samples=1"}, "--decode_from_file is decoded whole"),
        ({"decode_reference": "short"}, "has 1 lines, but there are 2 outputs"),
        ({"decode_to_file": "source"}, "the outputs would overwrite"),
    ],
    ids=str,
)
def test_a_decoding_that_cannot_be_is_found_before_training(
    arguments, tmp_path, source, capsys, flags, told
):
    short = tmp_path / "short.txt"
    short.write_text("1\n")
    # The step stands in the name of what is written.
    source = source.rename(tmp_path / "in-0.txt")
    files = {"short": short, "source": tmp_path / "in.txt"}
    flags = {name: files.get(value, value) for name, value in flags.items()}
    every = {"schedule": "train_eval_and_decode", "decode_from_file": source, **flags}
    assert trainer.main(arguments(**every)) == 2
    assert told in capsys.readouterr().err
    assert not list(tmp_path.glob("run/ckpt-*"))


@pytest.mark.slow
def test_a_signal_while_decoding_ends_it_within_a_batch_and_leaves_no_half_file(
    arguments, tmp_path
):
    many = tmp_path / "many.txt"
    many.write_text("0 1 1 0 1\n" * 20000)
    flags = {
        "train_steps": 100000,
        "local_eval_frequency": 1,
        "schedule": "train_eval_and_decode",
        "decode_from_file": many,
        "decode_hparams": "beam_size=1,batch_size=1",
    }
    child = processes.start(tmp_path / "told", processes.run_trainer, arguments(**flags))
    child.wait_until(lambda: "step 1  dev:" in child.said)
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait() == 128 + signal.SIGTERM, child.said
    assert "stopping after this batch" in child.said
    assert "Traceback" not in child.said
    assert not list((tmp_path / "run").rglob("many*"))
    assert CheckpointDirectory(tmp_path / "run").newest().step == 1


@pytest.mark.slow
def test_waiting_for_checkpoints_ends_at_a_signal_with_the_code_that_is_asked_for(
    arguments, tmp_path
):
    assert trainer.main(arguments(train_steps=1)) == 0
    (tmp_path / "run" / "ended.json").unlink()
    flags = {"schedule": "continuous_eval", "train_steps": 9, "signal_exit_code": 75}
    child = processes.start(tmp_path / "told", processes.run_trainer, arguments(**flags))
    child.wait_until(lambda: "step 1  dev:" in child.said)
    os.kill(child.pid, signal.SIGUSR1)
    assert child.wait() == 75, child.said


def evaluated(run):
    """Step -> what each evaluation of its checkpoint found, without times."""
    result = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        values = {k: v for k, v in json.loads(line).items() if k not in ("time", "seconds")}
        if values.pop("split") == "dev":
            result.setdefault(values.pop("step"), []).append(values)
    return result


@pytest.mark.slow
def test_continuous_eval_that_is_killed_finds_what_single_evaluations_find(arguments, tmp_path):
    run, whole, aside = tmp_path / "run", tmp_path / "whole", tmp_path / "aside"
    assert trainer.main(arguments(train_steps=3, schedule="train", save_checkpoints_steps=1)) == 0
    aside.mkdir()
    for name in ("ckpt-2", "ckpt-3", "ended.json"):
        (run / name).rename(aside / name)
    shutil.copytree(run, whole)
    for step in (1, 2, 3):
        for folder in (run, whole):
            if step > 1:
                shutil.copytree(aside / f"ckpt-{step}", folder / f"ckpt-{step}")
        single = arguments(train_steps=3, schedule="evaluate", output_dir=whole)
        assert trainer.main(single) == 0
        for _ in range(2):
            child = processes.start(
                tmp_path / f"told-{step}",
                processes.run_trainer,
                arguments(train_steps=3, schedule="continuous_eval"),
            )
            before = child.said.count(f"step {step}  dev:")
            child.wait_until(
                lambda child=child, step=step, before=before: (
                    child.said.count(f"step {step}  dev:") > before
                )
            )
            child.kill()
    (aside / "ended.json").rename(run / "ended.json")
    assert trainer.main(arguments(train_steps=3, schedule="continuous_eval")) == 0
    result, expected = evaluated(run), evaluated(whole)
    assert result.keys() == expected.keys() == {1, 2, 3}
    for step, values in result.items():
        assert all(one == expected[step][0] for one in values)
    ratings = json.loads((run / "best.json").read_text())["values"]
    assert ratings["3"] == expected[3][0]["loss"]


HOOK = """
from t2t_torch.registry import register_hook
from t2t_torch.train.task import Hook


@register_hook
class TellSteps(Hook):
    \"\"\"A user's.\"\"\"

    def after_step(self, estimator):
        print("told of step", estimator.state.step)
"""


def test_a_hook_of_ones_own_is_called(arguments, tmp_path, capsys, own_registry):
    folder = tmp_path / "own_hooks"
    folder.mkdir()
    (folder / "tell_steps.py").write_text(HOOK)
    flags = arguments(train_steps=2, hooks="tell_steps", t2t_usr_dir=folder, schedule="train")
    assert trainer.main(flags) == 0
    assert re.findall(r"told of step (\d)", capsys.readouterr().out) == ["1", "2"]


@pytest.mark.slow
def test_a_profile_is_taken_where_it_is_asked_for(arguments, tmp_path):
    flags = arguments(train_steps=18, schedule="train", profile=True)
    assert trainer.main(flags) == 0
    assert list((tmp_path / "run" / "profile").glob("*.json"))


def test_a_new_run_may_begin_with_the_weights_of_another(arguments, tmp_path, capsys):
    assert trainer.main(arguments(train_steps=2, output_dir=tmp_path / "first")) == 0
    warm = {"warm_start_from": tmp_path / "first", "schedule": "train"}
    zero = "batch_size=256,learning_rate_constant=0"
    assert trainer.main(arguments(train_steps=1, hparams=zero, **warm)) == 0
    ours, theirs = (
        load_file(tmp_path / name / "model.safetensors") for name in ("run/ckpt-1", "first/ckpt-2")
    )
    assert [name for name in theirs if not torch.equal(theirs[name], ours[name])] == []
    assert "100% of the parameters" in capsys.readouterr().err
    named = (tmp_path / "run" / "warm_start.txt").read_text().splitlines()[1:]
    assert sorted(named) == sorted(f"loaded          {name}" for name in theirs)
    capsys.readouterr()
    assert trainer.main(arguments(train_steps=2, hparams=zero, **warm)) == 0
    assert "was the start of this run; it resumes from its own" in capsys.readouterr().err
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    other = {**warm, "warm_start_from": tmp_path / "second"}
    assert trainer.main(arguments(train_steps=3, hparams=zero, **other)) == 2
    assert "and was started with --warm_start_from=" in capsys.readouterr().err


def test_a_warm_start_keeps_the_meaning_of_the_weights(arguments, tmp_path, capsys):
    first = "batch_size=256,decoder_start_id=3,position_offset=2,layer_preprocess_sequence=none"
    given = {"hparams": first, "output_dir": tmp_path / "first"}
    assert trainer.main(arguments(train_steps=1, **given)) == 0
    capsys.readouterr()
    warm = {"warm_start_from": tmp_path / "first", "schedule": "train"}
    assert trainer.main(arguments(train_steps=1, **warm)) == 0
    printed = capsys.readouterr().err
    # Where the set has no opinion, values are taken over; others are warned of.
    taken = "position_offset=2, decoder_start_id=3"
    assert f"as in --warm_start_from={tmp_path / 'first'}:  {taken}" in printed
    assert "here layer_preprocess_sequence=n." in printed
    assert "To compute the same:  --hparams=layer_preprocess_sequence=none" in printed
    recorded = json.loads((tmp_path / "run" / "hparams.json").read_text())
    assert (recorded["decoder_start_id"], recorded["position_offset"]) == (3, 2)
    assert recorded["provenance"]["decoder_start_id"] == "--warm_start_from"
    # Of a part of the weights, no values are taken over.
    part = {**warm, "warm_start_patterns": "feed_forward", "output_dir": tmp_path / "part"}
    assert trainer.main(arguments(train_steps=1, **part)) == 0
    assert "as in --warm_start_from" not in capsys.readouterr().err
    recorded = json.loads((tmp_path / "part" / "hparams.json").read_text())
    assert (recorded["decoder_start_id"], recorded["position_offset"]) != (3, 2)
    flag = "batch_size=256,decoder_start_id=-1"
    own = {"hparams": flag, "output_dir": tmp_path / "own"}
    assert trainer.main(arguments(train_steps=1, **warm, **own)) == 0
    assert "=none,decoder_start_id=3" in capsys.readouterr().err


def test_labels_cannot_be_decoded_from_data(arguments, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Text, "generates", False)
    assert trainer.main(arguments(schedule="train_eval_and_decode")) == 2
    assert "Give a file of inputs, --decode_from_file" in capsys.readouterr().err
    assert not list(tmp_path.glob("run/ckpt-*"))


def test_a_command_that_trains_nothing_changes_nothing(arguments, tmp_path, capsys):
    assert trainer.main(arguments(train_steps=3, local_eval_frequency=2)) == 0
    names = ["config.json", "task.json", "hparams.json", "ended.json", "metrics.jsonl", "best.json"]
    files = [tmp_path / "run" / name for name in names]
    before = [file.read_bytes() for file in files]
    assert trainer.main(arguments(train_steps=1, local_eval_frequency=5)) == 0
    assert "nothing to train" in capsys.readouterr().err
    assert [file.read_bytes() for file in files] == before
    assert [path.name for path in sorted((tmp_path / "run").glob("ckpt-*"))] == ["ckpt-2", "ckpt-3"]
