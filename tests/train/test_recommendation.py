"""First runs: a recommended training, a fitted warm-up, baselines that a run should exceed."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import pytest

import t2t_torch as t2t
from t2t_torch import registry
from t2t_torch.bin.commands import datagen, trainer
from t2t_torch.optim.settings import FITTED, fit_warm_up, learning_rate
from t2t_torch.reports.baseline import Baseline, baselines_of, path_of, read_baselines
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.recommendation import Recommendation, _steps, recommend

ROWS = [
    {"text": f"the {thing} is {mood} {number}", "label": label}
    for label, moods in {"good": ("great", "fine"), "bad": ("awful", "poor")}.items()
    for mood in moods
    for thing in ("film", "book", "meal", "bed", "tea")
    for number in range(6)
]


def declaration(rows, kind="text2class", **keys):
    return {
        "problem": "opinions",
        "kind": kind,
        "files": {"train": rows, "eval": 0.2},
        "fields": {"inputs": "text", "targets": "label"},
        **keys,
    }


@pytest.mark.parametrize(("rows", "steps"), [(10, 300), (100_000, 2000), (10**9, 50_000)])
def test_the_steps_grow_with_the_data_within_bounds(rows, steps):
    assert _steps(rows / 1000, 20, writes_texts=False) == steps


@pytest.mark.parametrize(
    ("kind", "rows", "expected"),
    [
        (
            "text2tags",
            [{"text": f"the dog{n} barks", "label": "D N V"} for n in range(20)],
            ("bilstm_tagger_small", "singleton_dropout=0.5"),
        ),
        (
            "text2text",
            [{"text": f"{n} apples", "label": f"{n} pommes"} for n in range(20)],
            ("transformer_low_resource", ""),
        ),
    ],
)
def test_the_set_and_its_changes_follow_the_kind(kind, rows, expected, tmp_path, own_registry):
    problem = t2t.generate(declaration(rows, kind), tmp_path)
    chosen = recommend(problem.name, tmp_path)
    assert (chosen.hparams_set, chosen.hparams) == expected


@pytest.mark.parametrize(("tags", "metric"), [("D N V", "accuracy"), ("O B-x I-x", "span_f1")])
def test_parts_of_speech_are_watched_by_accuracy(tags, metric, tmp_path, own_registry):
    rows = [{"text": f"the dog{n} barks", "label": tags} for n in range(20)]
    problem = t2t.generate(declaration(rows, "text2tags"), tmp_path)
    assert recommend(problem.name, tmp_path).metric == metric


@pytest.mark.parametrize(
    ("seconds", "expected"), [(3, "less than a minute"), (600, "3 minutes to 30 minutes")]
)
def test_a_short_training_is_less_than_a_minute(seconds, expected):
    shown = Recommendation("m", "s", train_steps=10, seconds=seconds).command("p", Path("d"), [])
    assert f": {expected} on the CPUs" in shown


def test_iob1_is_trained_without_the_rules_of_iob2_or_warned_of(
    tmp_path, own_registry, capsys, monkeypatch
):
    rows = [{"text": f"Ann{n} left Bo", "label": "I-P O I-P"} for n in range(30)]
    rows += [{"text": f"Ann Bo{n} left", "label": "I-P B-P O"} for n in range(5)]
    problem = t2t.generate(declaration(rows, "text2tags"), tmp_path)
    said = capsys.readouterr().out
    assert "The tags of targets: spans by B-, I-." in said
    assert "Tags break the rules of this scheme in" in said and "I-P" in said
    assert recommend(problem.name, tmp_path).hparams.endswith("tag_constraints=none")
    said: list[str] = []
    monkeypatch.setattr(Estimator, "say", lambda self, line: said.append(line))
    t2t.train(
        problem, "bilstm_tagger", "bilstm_tagger_tiny",
        data_dir=tmp_path, output_dir=tmp_path / "run", train_steps=2,
    )  # fmt: skip
    warning = "warning: tag_constraints=decode forbids the tags of"
    assert len([line for line in said if line.startswith(warning)]) == 1
    assert warning not in capsys.readouterr().err  # each process would print it


def test_characters_of_words_are_no_positions(tmp_path, own_registry):
    rows = [{"text": f"the dog{n} barks", "label": "D N V"} for n in range(3000)]
    epochs = []
    for name, features in (("plain", {}), ("spelt", {"characters": 12})):
        t2t.generate(
            {**declaration(rows, "text2tags", features=features), "problem": name}, tmp_path
        )
        epochs.append(recommend(name, tmp_path).epochs)
    assert epochs[0] == epochs[1]


def test_many_short_texts_have_few_epochs(tmp_path, own_registry):
    few = [{"text": f"word{n % 97} of {n}", "label": str(n % 2)} for n in range(9_000)]
    many = [{"text": f"word{n % 97} of {n}", "label": str(n % 2)} for n in range(15_000)]
    epochs = []
    for name, rows in (("few", few), ("many", many)):
        t2t.generate({**declaration(rows), "problem": name}, tmp_path)
        epochs.append(recommend(name, tmp_path).epochs)
    assert epochs[0] > 10 and 1.9 < epochs[1] < 6


def test_a_shorter_warm_up_reaches_the_same_learning_rate():
    hparams = registry.hparams("transformer_small")
    changed = fit_warm_up(hparams, 1500)
    peaks = [
        one.learning_rate_constant / one.learning_rate_warmup_steps**0.5
        for one in (hparams, changed)
    ]
    assert changed.learning_rate_warmup_steps == 500
    assert changed.provenance["learning_rate_warmup_steps"] == FITTED
    assert peaks[1] == pytest.approx(peaks[0], rel=0.01)


@pytest.mark.parametrize(
    "name", ["transformer_base_v1", "transformer_base_v2", "transformer_tiny", "transformer_dates"]
)
def test_no_peak_of_the_learning_rate_rises(name):
    hparams = registry.hparams(name)
    fitted = fit_warm_up(hparams, 100)
    before, after = (
        max(map(learning_rate(one, steps), range(steps)))
        for one, steps in ((hparams, 40_000), (fitted, 100))
    )
    assert fitted.learning_rate_warmup_steps == 33
    assert after <= 1.02 * before


def test_only_the_warm_up_of_a_set_is_shortened_and_only_in_a_short_run():
    hparams = registry.hparams("transformer_small")
    warm_up = hparams.learning_rate_warmup_steps
    assert fit_warm_up(hparams, 2 * warm_up) == hparams
    assert fit_warm_up(hparams, 0) == hparams, "the length is unknown"
    chosen = hparams.parse("learning_rate_warmup_steps=900")
    assert fit_warm_up(chosen, 20) == chosen


@pytest.fixture
def command(tmp_path, own_registry, capfd):
    """Runs `t2t-trainer` on the opinions; returns what it prints."""
    t2t.generate(declaration(ROWS), tmp_path / "data")

    def run(*arguments, code=0):
        capfd.readouterr()
        flags = [f"--data_dir={tmp_path / 'data'}", f"--output_dir={tmp_path / 'run'}"]
        assert trainer.main(["--problem=opinions", *flags, *arguments]) == code
        return capfd.readouterr().err

    return run


def test_a_short_run_of_any_set_works_and_resumes_with_its_warm_up(command, tmp_path):
    named = ["--model=transformer_encoder", "--hparams_set=transformer_encoder_tiny"]
    printed = command(*named, "--train_steps=30")
    assert "warm-up shortened from 200 to 10 steps, for --train_steps=30" in printed
    printed = command("--train_steps=40")
    assert "warm-up: still 10 steps, as fitted to --train_steps=30" in printed
    assert _warm_up(tmp_path) == 10


def _warm_up(folder):
    return json.loads((folder / "run" / "hparams.json").read_text())["learning_rate_warmup_steps"]


def test_a_run_without_a_checkpoint_gets_the_warm_up_of_its_new_length(command, tmp_path):
    named = ["--model=transformer_encoder", "--hparams_set=transformer_encoder_tiny"]
    command(*named, "--train_steps=30")
    for checkpoint in (tmp_path / "run").glob("ckpt-*"):
        shutil.rmtree(checkpoint)
    assert "warm-up shortened from 200 to 15 steps" in command("--train_steps=45")
    assert _warm_up(tmp_path) == 15


def test_the_warm_up_fits_a_number_of_epochs(command, tmp_path):
    named = ["--model=transformer_encoder", "--hparams_set=transformer_encoder_tiny"]
    printed = command(*named, "--train_epochs=12", "--hparams=batch_size=128")
    assert "for --train_epochs=12" in printed
    steps = int(re.findall(r"step (\d+)/", printed)[-1])
    assert steps / 6 < _warm_up(tmp_path) < steps / 2


def test_a_run_that_ends_within_the_chosen_warm_up_is_warned_of(command):
    named = ["--model=text_cnn", "--hparams_set=text_cnn_tiny", "--train_steps=9"]
    changes = "learning_rate_warmup_steps=10,learning_rate_schedule=constant*linear_warmup"
    printed = command(*named, f"--hparams={changes}")
    assert "warning: the run ends at step 9, within its warm-up of 10 steps" in printed


def test_auto_takes_the_recommendation_and_resumes(command, tmp_path):
    chosen = recommend("opinions", tmp_path / "data")
    assert (chosen.metric, chosen.patience) == ("accuracy", 3)
    auto = ["--model=auto", "--hparams_set=auto"]
    printed = command(*auto, "--train_steps=60")
    assert f"auto:  --model={chosen.model} --hparams_set={chosen.hparams_set}" in printed
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["model"] == chosen.model
    assert config["train_steps"] == 60, "a given flag wins"
    assert config["eval_patience"] == 3
    printed = command(*auto, "--train_steps=65")
    assert "auto:" not in printed and "65/65" not in printed.split("resuming from step")[0]


def test_one_auto_alone_is_refused(command):
    assert "go together" in command("--model=auto", "--hparams_set=fasttext_tiny", code=2)


@pytest.mark.slow
def test_a_run_ends_after_evaluations_without_improvement(command, tmp_path):
    named = ["--model=fasttext", "--hparams_set=fasttext_base", "--train_steps=2000"]
    rules = ["--eval_patience=2", "--eval_early_stopping_metric=accuracy"]
    printed = command(*named, *rules, "--local_eval_frequency=10")
    assert "accuracy has not improved since step" in printed
    assert "in 2 evaluations; --eval_patience=2" in printed
    rated = json.loads((tmp_path / "run" / "best.json").read_text())
    assert "accuracy" in json.dumps(rated)


def test_baselines_are_those_of_counting_by_hand(tmp_path, own_registry):
    rows = [{"text": "a b", "label": "x"}] * 6 + [{"text": "c d", "label": "y"}] * 3
    dev = [
        {"text": "a b", "label": "x"},
        {"text": "c d", "label": "y"},
        {"text": "c", "label": "y"},
    ]
    content = declaration(rows, files={"train": rows, "eval": dev}, vocab_type="word")
    problem = t2t.generate(content, tmp_path)
    baselines = {one.method: one.value for one in baselines_of(problem, tmp_path)}
    assert baselines == {"always 'x'": pytest.approx(1 / 3), "a linear model of n-grams": 1.0}
    assert [one.method for one in read_baselines(problem, tmp_path)] == list(baselines)
    path_of(tmp_path, problem).write_text("{}")
    assert read_baselines(problem, tmp_path) == []


def test_baselines_of_tags_numbers_and_texts(tmp_path, own_registry):
    rows = [{"text": "the dog barks", "label": "D N V"}, {"text": "the cat", "label": "D N"}] * 5
    dev = [{"text": "the dog sleeps", "label": "D N V"}]
    tags = declaration(rows, "text2tags", files={"train": rows, "eval": dev})
    problem = t2t.generate({**tags, "problem": "tags"}, tmp_path)
    (one,) = baselines_of(problem, tmp_path)
    # "sleeps" gets the most frequent tag, D or N.
    assert (one.metric, one.value) == ("accuracy", pytest.approx(2 / 3))

    numbers = [{"text": f"x{n}", "label": float(n)} for n in (1, 3)] * 4
    dev = [{"text": "x", "label": 4.0}, {"text": "x", "label": 2.0}]
    content = declaration(numbers, "text2real", files={"train": numbers, "eval": dev})
    problem = t2t.generate({**content, "problem": "numbers"}, tmp_path)
    one, fitted = baselines_of(problem, tmp_path)
    assert one.less_is_better and fitted.less_is_better
    assert (one.metric, one.value) == ("rmse", pytest.approx(math.sqrt((4 + 0) / 2)))
    assert (fitted.metric, fitted.method) == ("rmse", "a linear model of n-grams")

    pairs = [{"text": "abc", "label": "abc"}, {"text": "abx", "label": "xyz"}]
    content = declaration(pairs * 5, "text2text", files={"train": pairs * 5, "eval": pairs})
    problem = t2t.generate({**content, "problem": "pairs"}, tmp_path)
    values = {one.method: one.value for one in baselines_of(problem, tmp_path)}
    assert values in ({}, {"a copy of the input": 0.5})


def test_a_run_below_a_baseline_is_warned_of(command, tmp_path):
    named = ["--model=fasttext", "--hparams_set=fasttext_tiny", "--train_steps=2"]
    printed = command(*named, "--hparams=learning_rate_constant=1e-6")
    assert "warning: accuracy of 'targets' is" in printed
    assert "worse than 1 by a linear model of n-grams" in printed


def test_a_run_that_stops_early_below_a_baseline_is_warned_of_too(command):
    named = ["--model=fasttext", "--hparams_set=fasttext_tiny", "--train_steps=400"]
    rules = ["--eval_patience=2", "--eval_early_stopping_metric=accuracy"]
    frozen = "--hparams=learning_rate_constant=1e-9"
    printed = command(*named, *rules, "--local_eval_frequency=2", frozen)
    assert "stopped early" in printed
    assert "worse than 1 by a linear model of n-grams" in printed


def test_a_model_that_only_equals_a_baseline_is_warned_of():
    error = Baseline("targets", "rmse", 2.0, "the mean", less_is_better=True)
    assert "worse than 2" in error.warning(2.5)
    assert "no better than 2" in error.warning(2.0)
    assert error.warning(1.5) == ""
    share = Baseline("targets", "accuracy", 0.8505, "always 'no'")
    assert "worse than 0.8505" in share.warning(0.84)
    assert "is 0.8505 on dev, no better than 0.8505 by always 'no'" in share.warning(0.8505 + 1e-9)
    assert share.warning(0.86) == ""


@pytest.mark.parametrize(("perfect", "less"), [(1.0, False), (0.0, True)])
def test_a_model_need_not_exceed_what_cannot_be_exceeded(perfect, less):
    baseline = Baseline("targets", "metric", perfect, "always 'a'", less_is_better=less)
    assert baseline.is_perfect
    assert baseline.warning(perfect) == ""
    assert "worse than" in baseline.warning(0.5)


def test_no_model_is_said_to_exceed_the_highest_value(tmp_path, own_registry, capsys):
    rows = [{"text": f"word {n}", "label": "ab"[n % 5 == 0]} for n in range(100)]
    dev = [{"text": "word", "label": "a"}]
    write = tmp_path / "opinions.json"
    for split, some in (("train", rows), ("eval", dev)):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in some))
    files = {"train": "train.jsonl", "eval": "eval.jsonl"}
    write.write_text(json.dumps(declaration([], files=files)))
    flags = [f"--t2t_usr_dir={tmp_path}", f"--data_dir={tmp_path / 'data'}"]
    assert datagen.main([*flags, "--problem=opinions", f"--tmp_dir={tmp_path}"]) == 0
    printed = capsys.readouterr().out
    assert "should exceed" not in printed
    assert "No model can exceed this on dev" in printed
    assert "targets: accuracy 1 by always 'a'" in printed


@pytest.mark.parametrize(
    ("counts", "watched"),
    [
        ({"no": 850, "yes": 150}, "f1_macro"),
        ({"no": 700, "yes": 300}, "accuracy"),
        ({"a": 220, "b": 220, "c": 10}, "f1_macro"),
        ({"a": 150, "b": 150, "c": 10}, "accuracy"),
    ],
)
def test_where_classes_are_unequal_f1_macro_is_shown_and_watched(
    counts, watched, tmp_path, own_registry
):
    rows = [
        {"text": f"{label} {n}", "label": label} for label in counts for n in range(counts[label])
    ]
    content = declaration(rows, files={"train": rows, "eval": rows[::10]})
    problem = t2t.generate(content, tmp_path)
    chosen = recommend(problem.name, tmp_path)
    assert chosen.metric == watched
    more = ("f1_macro",) if watched == "f1_macro" else None
    assert chosen.settings.get("eval_metrics") == more
    assert chosen.settings["eval_early_stopping_metric"] == watched
