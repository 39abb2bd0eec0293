"""`t2t-eval`: which checkpoint it evaluates, what it prints, and what it leaves alone."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
import sacrebleu

from t2t_torch.bin.commands import evaluation as evaluate
from t2t_torch.bin.commands import trainer


@pytest.fixture
def run(arguments, made_once, tmp_path):
    """A run of three checkpoints, of which the second was the best."""

    def train(folder):
        flags = arguments(output_dir=folder / "run", local_eval_frequency=1, eval_steps=0)
        assert trainer.main(flags) == 0
        rated = {"lower_is_better": True, "values": {"1": 3.0, "2": 1.0, "3": 2.0}}
        (folder / "run" / "best.json").write_text(json.dumps(rated))

    made = made_once("evaluated", train)
    return Path(shutil.copytree(made / "run", tmp_path / "run"))


@pytest.fixture
def flags(run, data_dir):
    return [f"--output_dir={run}", f"--data_dir={data_dir}", "--worker_gpu=0"]


def reported(run, step):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return next(line for line in lines if line["split"] == "dev" and line["step"] == step)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("wanted", "step"),
    [("", 2), ("latest", 3), ("best", 2), ("1", 1), ("ckpt-2", 2), ("newest", None)],
)
def test_the_checkpoint_that_is_meant_is_evaluated(flags, run, tmp_path, capsys, wanted, step):
    target = tmp_path / "eval.json"
    code = evaluate.main([*flags, f"--checkpoint_path={wanted}", f"--output_json={target}"])
    if step is None:
        assert code == 2
        assert (
            "Expected a step, 'best', 'latest' or a ckpt-<step> folder" in capsys.readouterr().err
        )
        return
    assert code == 0
    results = json.loads(target.read_text())
    assert (results["step"], results["split"], results["batches"]) == (step, "dev", "all")
    assert results["checkpoint"].endswith(f"ckpt-{step}")
    trained = reported(run, step)
    for name, value in results["metrics"].items():
        assert value == pytest.approx(trained[name], rel=1e-6)


def test_a_table_is_printed_and_the_run_stays_as_it_is(flags, run, capsys):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert evaluate.main(flags) == 0
    rows = dict(line.split() for line in capsys.readouterr().out.splitlines()[1:])
    assert float(rows["loss"]) == pytest.approx(reported(run, 2)["loss"], rel=1e-4)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_decoded_texts_are_scored_as_sacrebleu_does(flags, tmp_path, capsys):
    assert evaluate.main([*flags, f"--output={tmp_path / 'eval'}"]) == 0
    printed = capsys.readouterr().out
    with (tmp_path / "eval" / "rows.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    outputs, references = ([row[name] for row in rows] for name in ("targets_found", "targets"))
    bleu = sacrebleu.corpus_bleu(outputs, [references]).score
    scores = json.loads((tmp_path / "eval" / "results.json").read_text())["text_scores"]
    assert scores["targets"]["bleu"]["value"] == pytest.approx(bleu)
    assert f"BLEU = {bleu:.2f}" in printed


def test_json_may_go_to_the_standard_output_alone(flags, capsys):
    capsys.readouterr()
    assert evaluate.main([*flags, "--output_json=-", "--eval_steps=1"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["batches"] == 1
    assert results["metrics"]["loss"] > 0


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--model=lstm"], "is a run of model 'transformer'"),
        (["--checkpoint_path=77"], "no checkpoint of step 77"),
        (["--checkpoint_path=ckpt-77"], "run' has no checkpoint of step 77. It has: [1, 2, 3]"),
        (["--hparams=hidden_size=8"], "hidden_size was 16, is 8. Leave hidden_size as trained"),
        (["--output=eval.xlsx"], "a file that ends in .json or .tsv"),
        (["--output=rows", "--decode_hparams=num_labels=2"], "does not read num_labels. It reads"),
        (["--output_json=nowhere/eval.json"], "there is no folder nowhere"),
        (["--data_dir=nowhere"], "nowhere"),
        (["--eval_use_test_set"], "has no 'test' split"),
    ],
)
def test_what_is_wrong_is_told(flags, capsys, more, told):
    assert evaluate.main([*flags, *more]) == 2
    assert told in capsys.readouterr().err


def test_a_run_is_needed(tmp_path, capsys):
    assert evaluate.main([f"--output_dir={tmp_path}", f"--data_dir={tmp_path}"]) == 2
    assert "is not a run directory" in capsys.readouterr().err
