"""From files to batches by declaration alone, with the commands a user types."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from t2t_torch import registry
from t2t_torch.bin.commands import datagen, trainer
from t2t_torch.data.manifest import Manifest
from t2t_torch.data.shards import Shards
from t2t_torch.features import Features
from t2t_torch.hparams.basic import basic_params1
from t2t_torch.mode import Split
from t2t_torch.pipeline.collate import Batch
from t2t_torch.pipeline.loader import EvalBatches, TrainBatches
from t2t_torch.pipeline.plan import Batching

pytestmark = pytest.mark.usefixtures("own_registry")

DECLARED: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, int], set[str]]] = {
    "my_atis": (
        "atis",
        {
            "kind": "intentslot",
            "files": {"train": "train", "eval": "valid", "test": "test"},
            "features": {"characters": 12, "shape": True},
        },
        {"train": 4478, "dev": 500, "test": 893},
        {"inputs", "inputs_characters", "inputs_shape", "intent", "slots"},
    ),
    "my_ag_news": (
        "ag_news",
        {
            "kind": "text2class",
            "format": "tsv",
            "options": {"quoting": True, "columns": ["class", "text"]},
            "files": {"train": "ag_news_train.txt.gz", "eval": 0.05, "test": "ag_news_test.txt.gz"},
            "fields": {"inputs": "text", "targets": "class"},
            "vocab_size": 4000,
        },
        {"train, dev and left out": 12000, "test": 7600},
        {"inputs", "targets"},
    ),
    "my_ud_english": (
        "ud_english_ewt",
        {
            "kind": "text2tags",
            "files": {
                "train": "en_ewt-ud-train.conllu.gz",
                "eval": "en_ewt-ud-dev.conllu.gz",
                "test": "en_ewt-ud-test.conllu.gz",
            },
        },
        {"train": 12544, "dev": 2001, "test": 2077},
        {"inputs", "targets"},
    ),
    "my_top": (
        "top",
        {
            "kind": "text2tree",
            "options": {"header": False},
            "files": {
                "train": "train_supported.tsv.gz",
                "eval": "eval.tsv.gz",
                "test": "test.tsv.gz",
            },
            "fields": {"inputs": "-2", "targets": "-1"},
        },
        {"train": 28414, "dev": 4462, "test": 9042},
        {"inputs", "targets"},
    ),
    "my_entailment": (
        "sick",
        {
            "kind": "textpair2class",
            "format": "tsv",
            "files": {
                "train": "SICK_train.txt.gz",
                "eval": "SICK_trial.txt.gz",
                "test": "SICK_test_annotated.txt.gz",
            },
            "fields": {
                "first": "sentence_A",
                "second": "sentence_B",
                "targets": "entailment_judgment",
            },
            "vocab_size": 2000,
        },
        {"train": 4500, "dev": 500, "test": 4927},
        {"first", "second", "targets"},
    ),
    "my_relatedness": (
        "sick",
        {
            "kind": "textpair2real",
            "format": "tsv",
            "files": {"train": "SICK_train.txt.gz", "eval": "SICK_trial.txt.gz"},
            "fields": {
                "first": "sentence_A",
                "second": "sentence_B",
                "targets": "relatedness_score",
            },
            "vocab_size": 2000,
        },
        {"train": 4500, "dev": 500},
        {"first", "second", "targets"},
    ),
    "my_xquad": (
        "xquad",
        {"kind": "spanqa", "files": {"train": "xquad.en.json.gz", "eval": 0.1}},
        {},  # a long context is several rows
        {"question", "context", "targets"},
    ),
}
"""By problem: the folder of the data, the declaration, the rows, the features."""


def generate(name: str, content: Mapping[str, Any], tmp_dir: Path, here: Path) -> Manifest:
    """Saves a declaration in a folder of the user's, and runs t2t-datagen."""
    usr_dir = here / "my_problems"
    usr_dir.mkdir(exist_ok=True)
    (usr_dir / f"{name}.json").write_text(json.dumps({"problem": name, **content}), "utf-8")
    arguments = [
        f"--t2t_usr_dir={usr_dir}",
        f"--problem={name}",
        f"--data_dir={here / 'data'}",
        f"--tmp_dir={tmp_dir}",
        "--num_concurrent_processes=1",
    ]
    assert datagen.main(arguments) == 0
    return Manifest.load(here / "data", name)


def first_batches(name: str, data_dir: Path) -> tuple[Features, Batch, Batch]:
    """The problem's features, and its first batches of training and of evaluation."""
    problem = registry.problem(name)
    features = problem.features(data_dir)
    batching = Batching.of(problem, basic_params1().replace(batch_size=1024))
    train, held_out = (Shards.open(data_dir, name, split) for split in (Split.TRAIN, Split.EVAL))
    trained = next(iter(TrainBatches(train, features, batching, seed=1)))
    return features, trained, next(iter(EvalBatches(held_out, features, batching)))


# `test_draft.py` generates these too, from the declarations that it drafts.
LONG = {"my_top", "my_xquad"}


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in DECLARED]
)
def test_real_data_goes_from_file_to_batches(
    name: str, shared_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    folder, content, rows, features = DECLARED[name]
    manifest = generate(name, content, shared_data / folder, tmp_path)
    found = {split: entry.rows for split, entry in manifest.splits.items()}
    said = re.search(
        r"([\d,]+) of ([\d,]+) rows held out for dev are near-dup.*, and left out", caplog.text
    )
    left_out, held_out = (int(one.replace(",", "")) for one in said.groups()) if said else (0, 0)
    assert not said or found["dev"] == held_out - left_out
    found["train, dev and left out"] = found["train"] + found["dev"] + left_out
    assert {split: found[split] for split in rows} == rows
    known, *batches = first_batches(name, tmp_path / "data")
    for batch in batches:
        assert set(batch) == features == set(known.all)
        assert len({len(values) for values in batch.values()}) == 1


def test_the_rows_of_a_batch_are_those_of_the_file(tmp_path: Path):
    rows = [(f"T{n}", f"my parcel {n} is late", n % 3, 20 + n) for n in range(300)]
    with (tmp_path / "tickets.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows([("id", "body", "queue", "age"), *rows])
    content = {
        "kind": "text2class",
        "files": {"train": "tickets.csv", "eval": 0.1},
        "fields": {"inputs": "body", "targets": "queue"},
        "vocab_size": 300,
        "features": {"dense": ["age"]},
    }
    manifest = generate("support_tickets", content, tmp_path, tmp_path)
    assert sum(entry.rows for entry in manifest.splits.values()) == 300
    features, *batches = first_batches("support_tickets", tmp_path / "data")
    of_text = {text: (str(queue), age) for _, text, queue, age in rows}
    for batch in batches:
        said = {
            name: [feature.decode(values) for values in batch[name].reshape(len(batch[name]), -1)]
            for name, feature in features.all.items()
        }
        assert len(said["inputs"]) > 1
        for text, queue, dense in zip(said["inputs"], said["targets"], said["dense"], strict=True):
            assert queue == of_text[text][0]
            assert dense == pytest.approx([of_text[text][1]], abs=1e-3)


@pytest.mark.slow
def test_a_run_of_a_declared_problem_is_loaded_elsewhere(tmp_path: Path):
    rows = "".join(f"text number {n},answer {n % 7}\n" for n in range(60))
    (tmp_path / "train.csv").write_text(f"inputs,targets\n{rows}", "utf-8")
    content = {
        "kind": "text2text",
        "files": {"train": "train.csv", "eval": 0.2},
        "vocab_type": "character",
    }
    generate("answers", content, tmp_path, tmp_path)
    arguments = [
        f"--t2t_usr_dir={tmp_path / 'my_problems'}",
        "--problem=answers",
        "--model=transformer",
        "--hparams_set=transformer_small",
        "--hparams=hidden_size=16,num_hidden_layers=1,batch_size=256,learning_rate_warmup_steps=1",
        f"--data_dir={tmp_path / 'data'}",
        f"--output_dir={tmp_path / 'run'}",
        "--train_steps=2",
        "--eval_steps=1",
        "--worker_gpu=0",
    ]
    assert trainer.main(arguments) == 0
    asked = f"import t2t_torch; print(len(t2t_torch.load({str(tmp_path / 'run')!r})(['a', 'b'])))"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", asked], cwd=elsewhere, capture_output=True, text=True, check=False
    )
    assert done.stdout == "2\n", done.stderr


def test_a_declared_problem_uses_the_vocabulary_of_another(tmp_path: Path):
    rows = "".join(f"text number {n},answer {n % 7}\n" for n in range(60))
    (tmp_path / "train.csv").write_text(f"inputs,targets\n{rows}", "utf-8")
    content = {"kind": "text2text", "files": {"train": "train.csv", "eval": 0.2}, "vocab_size": 300}
    first = generate("answers", content, tmp_path, tmp_path)
    content = {**content, "use_vocab_from_other_problem": "answers"}
    second = generate("more_answers", content, tmp_path, tmp_path)
    assert second.vocab_files == first.vocab_files
    assert list(first.vocab_files) == ["vocab.answers.300.subwords"]


HOSTILE: list[tuple[str, bytes, str | None]] = [
    # The rows, of the columns inputs and targets; what is told, or None where all is well.
    ("byte order mark", b"\xef\xbb\xbfinputs,targets\na,x\n", None),
    ("CRLF", b"inputs,targets\r\na,x\r\n", None),
    ("U+2028", "inputs,targets\na\u2028b,x\n".encode(), None),
    ("a line of 1 MB", b"inputs,targets\n" + b"a" * (1 << 20) + b",x\n", None),
    ("a tab in a field", b"inputs,targets\na\tb,x\n", None),
    ("a quoted line break", b'inputs,targets\n"a\nb",x\n', None),
    ("NUL", b"inputs,targets\na\0b,x\n", "train.csv, line 2, column 2: a NUL byte"),
    ("a latin-1 byte", b"inputs,targets\ncaf\xe9,x\n", "line 2, column 4: byte 0xe9 is not UTF-8"),
    ("an open quote", b'inputs,targets\n"a,x\n', "line 2, column 1: the quote"),
    ("text behind a quote", b'inputs,targets\n"a"b,x\n', "line 2, column"),
    ("a field too many", b"inputs,targets\na,b,x\n", "line 2, column 5: 3 fields, where 2"),
    ("a field too few", b"inputs,targets\na\n", "line 2, column 2: 1 field, where 2"),
    ("an empty source", b"inputs,targets\n,x\n", "line 2: column 'inputs'"),
    ("an empty label", b"inputs,targets\na,\n", "line 2: column 'targets'"),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("what", "text", "told"), HOSTILE, ids=[case[0] for case in HOSTILE])
def test_a_hostile_row_is_read_or_told_or_skipped(
    what: str, text: bytes, told: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    good = b"".join(b"text %d,x\n" % n for n in range(40))
    (tmp_path / "train.csv").write_bytes(text + good)
    (tmp_path / "dev.csv").write_bytes(b"inputs,targets\nhello,x\n")
    content = {
        "problem": "hostile",
        "kind": "text2class",
        "files": {"train": "train.csv", "eval": "dev.csv"},
        "vocab_type": "character",
    }
    (tmp_path / "hostile.json").write_text(json.dumps(content), "utf-8")
    arguments = [
        f"--t2t_usr_dir={tmp_path}",
        "--problem=hostile",
        f"--data_dir={tmp_path / 'data'}",
        f"--tmp_dir={tmp_path}",
        "--num_concurrent_processes=1",
    ]
    code = datagen.main(arguments)
    if told is None:
        assert code == 0
        assert Manifest.load(tmp_path / "data", "hostile").splits["train"].rows == 41
        return
    assert code == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "data" / "hostile.json").exists()
    assert datagen.main([*arguments, "--on_bad_record=skip"]) == 0
    assert Manifest.load(tmp_path / "data", "hostile").splits["train"].rows == 40
    assert "Skipped: 1 of train" in capsys.readouterr().out
    assert told in (tmp_path / "data" / "hostile.skipped.txt").read_text("utf-8")


def test_a_file_without_a_row_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for text, told in (("", "train.csv is empty"), ("inputs,targets\n", "there is no row")):
        (tmp_path / "train.csv").write_text(text, "utf-8")
        content = {"problem": "none", "kind": "text2class", "files": {"train": "train.csv"}}
        (tmp_path / "dev.csv").write_text(text, "utf-8")
        content["files"] = {"train": "train.csv", "eval": "dev.csv"}
        (tmp_path / "none.json").write_text(json.dumps(content), "utf-8")
        arguments = [f"--t2t_usr_dir={tmp_path}", "--problem=none", f"--data_dir={tmp_path / 'd'}"]
        assert datagen.main([*arguments, f"--tmp_dir={tmp_path}"]) == 2
        assert told in capsys.readouterr().err
