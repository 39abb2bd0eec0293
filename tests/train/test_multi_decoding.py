"""Schedules decode the one of several problems that is named, and no other."""

from __future__ import annotations

import json

import pytest

from t2t_torch.bin.commands import trainer

from .two_problems import SMALL

TEXTS = {"model": "transformer", "hparams_set": "transformer_test", "problem": "tiny_texts"}
LABELS = {
    "model": "transformer_encoder",
    "hparams_set": "transformer_encoder_tiny",
    "problem": "tiny_both",
}


@pytest.fixture
def run(tiny_problems, tmp_path):
    """Runs the trainer; returns its exit code."""

    def start(chosen, **flags):
        values = {
            "hparams": SMALL,
            "data_dir": tiny_problems,
            "output_dir": tmp_path / "run",
            "train_steps": 3,
            "eval_steps": 2,
            "worker_gpu": 0,
            **chosen,
            **flags,
        }
        return trainer.main([f"--{name}={value}" for name, value in values.items()])

    return start


@pytest.mark.sample(1)
@pytest.mark.parametrize("schedule", ["train_eval_and_decode", "continuous_decode_on_eval_data"])
def test_the_data_of_the_named_problem_is_decoded(run, tmp_path, schedule):
    if schedule.startswith("continuous"):
        assert run(TEXTS, schedule="train") == 0
    how = {"decode_problem": "tiny_turn", "decode_hparams": "beam_size=1,extra_length=2"}
    assert run(TEXTS, schedule=schedule, **how) == 0
    (right,) = (tmp_path / "run" / "decodes").glob("*.targets")
    (inputs,) = (tmp_path / "run" / "decodes").glob("*.inputs")
    turned = [line.split()[::-1] for line in inputs.read_text("utf-8").splitlines()]
    assert [line.split() for line in right.read_text("utf-8").splitlines()] == turned
    lines = (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    assert any("decode/bleu" in json.loads(line) for line in lines)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("problem", "words"), [("tiny_kind", 1), ("tiny_tags", 3)])
def test_a_file_is_labelled_as_by_the_named_problem(run, tmp_path, problem, words):
    source = tmp_path / "in.txt"
    source.write_text("red dog runs\n", encoding="utf-8")
    files = {"decode_from_file": source, "decode_to_file": tmp_path / "out.txt"}
    given = {"schedule": "train_eval_and_decode", "decode_problem": problem, **files}
    assert run(LABELS, **given) == 0
    assert len((tmp_path / "out-3.txt").read_text("utf-8").split()) == words


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("chosen", "flags", "told"),
    [
        (TEXTS, {}, "Say which: --decode_problem= one of tiny_echo, tiny_turn"),
        (
            TEXTS,
            {"decode_problem": "tiny_kind"},
            "the run learns tiny_echo, tiny_turn. Name one of these.",
        ),
        (TEXTS, {"decode_problem": "tiny_echo", "schedule": "train"}, "--decode_problem is for"),
        (LABELS, {"decode_problem": "tiny_tags"}, "Give a file of inputs, --decode_from_file"),
        (
            {**TEXTS, "problem": "tiny_echo"},
            {"decode_problem": "tiny_turn"},
            "the run learns tiny_echo. Name one of these.",
        ),
    ],
)
def test_what_cannot_be_decoded_is_refused_before_training(
    run, tmp_path, capsys, chosen, flags, told
):
    assert run(chosen, **{"schedule": "train_eval_and_decode", **flags}) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    assert not list(tmp_path.glob("run/ckpt-*"))
