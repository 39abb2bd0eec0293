"""Synthetic files of the kinds that users have: declared, generated, trained, exported, asked."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.bin.commands import datagen, exporter, trainer
from t2t_torch.data.manifest import Manifest
from t2t_torch.workflows.run import load

pytestmark = pytest.mark.usefixtures("own_registry")

COUNT = 300
WORDS = "please help order invoice charged twice password error shipping late item broken".split()
QUEUES = ("billing", "technical", "sales")


def _texts(seed: int, length: int = 7) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=length)) for _ in range(COUNT)]


def _cycle(values: Sequence[Any]) -> list[Any]:
    return [values[n % len(values)] for n in range(COUNT)]


def _csv(
    head: Sequence[str], *columns: Sequence[Any], delimiter: str = ",", end: str = "\n"
) -> str:
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, lineterminator=end)
    writer.writerows([head, *zip(*columns, strict=True)])
    return file.getvalue()


@dataclass(frozen=True)
class Case:
    """Files, and the declaration that they are to have.

    Attributes:
      files: by path, what they hold.
      declare: the path that is given.
      kind, fields, format, options, train: of the declaration.
      example: a request to the exported model; None where it answers no single text.
      training: flags of the model.
    """

    files: Mapping[str, str | bytes]
    declare: str
    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    format: str | None = None
    options: Mapping[str, Any] | None = None
    train: Any = None
    doubts: Sequence[str] = ()
    example: Any = "please help"
    model: str = "transformer_encoder"
    hparams_set: str = "transformer_encoder_tiny"


_NOTES = [f'the "{a}"\n\nand, {b};' for a, b in zip(_texts(1), _texts(2), strict=True)]
_PARALLEL = {
    f"train.{end}": "\n".join(_texts(n)) + "\n" for n, end in enumerate(("de", "en", "fr"))
}
_BIO = {
    "seq.in": "\n".join(_texts(1)) + "\n",
    "seq.out": "\n".join(_cycle(["O O B-x I-x O O O", "B-y O O O O B-x O"])) + "\n",
    "label": "\n".join(_cycle(QUEUES)) + "\n",
}
_BIO_FIELDS = {"inputs": "words", "intent": "label", "slots": "tags"}
_SNIPS = {f"snips/{part}/{name}": _BIO[name] for part in ("train", "valid") for name in _BIO}

CASES = {
    "quotes, blanks and a majority class": Case(
        {
            "tickets.csv": _csv(
                ["id", "body", "queue"],
                range(COUNT),
                ["" if n % 50 == 7 else f'"{t}", {t}' for n, t in enumerate(_texts(1))],
                ["billing" if n % 10 else QUEUES[n // 10 % 3] for n in range(COUNT)],
            )
        },
        "tickets.csv",
        "text2class",
        {"inputs": "body", "targets": "queue"},
        doubts=["column 'body' is empty in 6 of 300 rows", "--on_bad_record=skip"],
    ),
    "semicolons and line breaks in cells": Case(
        {"notes.csv": _csv(["note", "queue"], _NOTES, _cycle(QUEUES), delimiter=";")},
        "notes.csv",
        "text2class",
        {"inputs": "note", "targets": "queue"},
        options={"delimiter": ";"},
    ),
    "quoted tabs and line breaks": Case(
        {"notes.tsv": _csv(["note", "queue"], _NOTES, _cycle(QUEUES), delimiter="\t")},
        "notes.tsv",
        "text2class",
        {"inputs": "note", "targets": "queue"},
        options={"quoting": True},
    ),
    "an export of pandas": Case(
        {"frame.csv": _csv(["", "text", "label"], range(COUNT), _texts(1), _cycle(QUEUES))},
        "frame.csv",
        "text2class",
        {"inputs": "text", "targets": "label"},
        doubts=["unused columns: 'Unnamed: 0' (all values differ)."],
    ),
    "a byte order mark, CRLF and dates": Case(
        {
            "reviews.tsv": b"\xef\xbb\xbf"
            + _csv(
                ["posted", "review", "sentiment"],
                [f"2024-{n % 12 + 1:02}-{n % 28 + 1:02} 10:{n % 60:02}:00" for n in range(COUNT)],
                _texts(1),
                _cycle(("good", "bad")),
                delimiter="\t",
                end="\r\n",
            ).encode()
        },
        "reviews.tsv",
        "text2class",
        {"inputs": "review", "targets": "sentiment"},
        doubts=["'posted' (dates)"],
    ),
    "nested JSON lines": Case(
        {
            "events.jsonl": "".join(
                json.dumps({"meta": {"id": n, "user": f"u{n}"}, "data": {"text": t, "label": q}})
                + "\n"
                for n, (t, q) in enumerate(zip(_texts(1), _cycle(QUEUES), strict=True))
            )
        },
        "events.jsonl",
        "text2class",
        {"inputs": "data.text", "targets": "data.label"},
    ),
    "a JSON array": Case(
        {
            "all.json": json.dumps(
                [
                    {"text": t, "about": {"queue": q}}
                    for t, q in zip(_texts(1), _cycle(QUEUES), strict=True)
                ],
                indent=1,
            )
        },
        "all.json",
        "text2class",
        {"inputs": "text", "targets": "about.queue"},
        format="json",
    ),
    "CoNLL": Case(
        {"ner.conll": "".join(f"Ann{n} NNP B-PER\nleft VBD O\n\n" for n in range(COUNT))},
        "ner.conll",
        "text2tags",
        {"inputs": "0", "targets": "2"},
    ),
    "labels with marks between them": Case(
        {"many.csv": _csv(["text", "tags"], _texts(1), _cycle(["a;b", "b", "a;c", "c;b"]))},
        "many.csv",
        "text2multilabel",
        {"inputs": "text", "targets": {"column": "tags", "split": ";"}},
    ),
    "prices": Case(
        {
            "homes.csv": _csv(
                ["home_id", "listed", "description", "price"],
                range(5000, 5000 + COUNT),
                [f"{n % 28 + 1}/{n % 12 + 1}/2023" for n in range(COUNT)],
                _texts(1),
                [90_000 + 7919 * n % 500_000 for n in range(COUNT)],
            )
        },
        "homes.csv",
        "text2real",
        {"inputs": "description", "targets": "price"},
        doubts=["'listed' (dates)"],
    ),
    "SQuAD": Case(
        {
            "faq.json": json.dumps(
                {
                    "data": [
                        {
                            "title": "t",
                            "paragraphs": [
                                {
                                    "context": f"in {1000 + n} {text}",
                                    "qas": [
                                        {
                                            "id": str(n),
                                            "question": f"when {text[:9]}?",
                                            "answers": [{"text": str(1000 + n), "answer_start": 3}],
                                        }
                                    ],
                                }
                            ],
                        }
                        for n, text in enumerate(_texts(1))
                    ]
                }
            )
        },
        "faq.json",
        "spanqa",
        {"question": "question", "context": "context", "answers": "answers"},
        example={"question": "when ?", "context": "in 1004 please help"},
    ),
    "three languages": Case(
        _PARALLEL,
        "train.en",
        "text2text",
        train={"inputs": "train.en", "targets": "train.de"},
        doubts=['"targets" could also be train.fr'],
        model="transformer",
        hparams_set="transformer_tiny",
    ),
    "a folder of three languages": Case(
        {f"pairs/{name}": text for name, text in _PARALLEL.items()},
        "pairs",
        "text2text",
        train={"inputs": "train.de", "targets": "train.en"},
        doubts=['"targets" could also be train.fr'],
        model="transformer",
        hparams_set="transformer_tiny",
    ),
    "seq.in, seq.out, label": Case(_SNIPS, "snips", "intentslot", _BIO_FIELDS, train="train"),
    "one file of three": Case(
        _SNIPS,
        "snips/train/seq.in",
        "intentslot",
        _BIO_FIELDS,
        train="train",
        doubts=["seq.in is one file of a data set"],
    ),
    "seq.in, seq.out": Case(
        {f"tags/{name}": text for name, text in _BIO.items() if name != "label"},
        "tags",
        "text2tags",
        {"inputs": "words", "targets": "tags"},
        options={"files": {"words": "seq.in", "tags": "seq.out"}},
        train="tags",
    ),
    "LABEL:fine text": Case(
        {
            "train_5500.label": "".join(
                f"{label} {text} ?\n"
                for label, text in zip(
                    _cycle(["DESC:manner", "DESC:def", "NUM:date"]), _texts(1), strict=True
                )
            )
        },
        "train_5500.label",
        "text2class",
        {"inputs": "text", "targets": "label"},
        format="labelled",
        doubts=[
            "'coarse' is its part before the colon",
            "'label' is used as the label; it could also be 'coarse'",
            "'label' has 3 labels",
            "'coarse' has 2 labels) (--declare_choice=2)",
        ],
    ),
    "__label__ of fastText": Case(
        {
            "cooking.txt": "".join(
                f"{label} {text}\n"
                for label, text in zip(
                    _cycle(["__label__bread", "__label__bread __label__tea"]),
                    _texts(1),
                    strict=True,
                )
            )
        },
        "cooking.txt",
        "text2multilabel",
        {"inputs": "text", "targets": "labels"},
        format="labelled",
        options={"prefix": "__label__"},
    ),
}


def _declared(case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Any, str]:
    """Writes the files, declares them, and returns the declaration and what is printed."""
    for name, content in case.files.items():
        path = folder / "raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    target = folder / "declared" / "it.json"
    capsys.readouterr()
    code = datagen.main([f"--declare={folder / 'raw' / case.declare}", f"--declare_to={target}"])
    said = capsys.readouterr().err
    assert code == 0, said
    return json.loads(target.read_text("utf-8")), said


def _generated(said: str, folder: Path) -> tuple[Manifest, list[str]]:
    """Runs the advised command; the manifest, and the flags that name the data."""
    advised = said.rstrip().splitlines()[-1].split()
    arguments = [one for one in advised[1:] if not one.startswith("--data_dir")]
    arguments.append(f"--data_dir={folder / 'data'}")
    assert datagen.main([*arguments, "--num_concurrent_processes=1"]) == 0
    flags = dict(one.removeprefix("--").split("=", 1) for one in arguments)
    named = [f"--{flag}={flags[flag]}" for flag in ("t2t_usr_dir", "problem", "data_dir")]
    return Manifest.load(folder / "data", flags["problem"]), named


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_it_is_declared_right_and_the_advised_command_generates(case: Case, tmp_path: Path, capsys):
    content, said = _declared(case, tmp_path, capsys)
    assert (content["kind"], content.get("fields", {})) == (case.kind, case.fields)
    assert content.get("format") == case.format
    assert content.get("options") == case.options
    assert content["files"]["train"] == (case.train or case.declare)
    for doubt in case.doubts:
        assert doubt in said
    manifest, _ = _generated(said, tmp_path)
    rows = sum(entry.rows for entry in manifest.splits.values())
    assert rows + sum(entry.skipped for entry in manifest.splits.values()) >= COUNT


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_it_is_trained_exported_and_answers(case: Case, tmp_path: Path, capsys):
    _, said = _declared(case, tmp_path, capsys)
    _, named = _generated(said, tmp_path)
    run, artifact = tmp_path / "run", tmp_path / "artifact"
    training = [f"--model={case.model}", f"--hparams_set={case.hparams_set}"]
    training += [f"--output_dir={run}", "--train_steps=12", "--eval_steps=2"]
    training.append("--hparams=learning_rate_warmup_steps=3")
    assert trainer.main([*named, *training]) == 0
    capsys.readouterr()
    assert (
        exporter.main([named[0], named[2], f"--output_dir={run}", f"--export_dir={artifact}"]) == 0
    )
    answers = load(artifact)([case.example])
    assert len(answers) == 1
    assert answers[0] is not None
