"""Where two problems are as likely, `t2t-quick` stops with both, and a number chooses."""

from __future__ import annotations

import json
import random
import re
import signal
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.bin.commands import datagen, quick
from t2t_torch.declaration.draft import draft
from t2t_torch.errors import DataError, UsageError
from t2t_torch.signals import StopRequest
from t2t_torch.workflows.generate import UnsureError, declare
from t2t_torch.workflows.quick import QuickSettings, _Quick

pytestmark = pytest.mark.usefixtures("own_registry")
WORDS = "ship boat harbour captain storm island sail rope anchor wave coast light".split()


@pytest.fixture
def two_labels(tmp_path: Path) -> Path:
    """A table with two columns of labels that nothing ranks."""
    draw = random.Random(1)
    rows = [
        f"{' '.join(draw.choices(WORDS, k=7))}\t{draw.choice('ab')}x\t{draw.choice('cd')}x"
        for _ in range(100)
    ]
    path = tmp_path / "boats.tsv"
    path.write_text("\n".join(["words\tfirst\tsecond", *rows]) + "\n", "utf-8")
    return path


def test_the_alternative_is_a_whole_declaration(two_labels: Path):
    made = draft(two_labels)
    assert made.is_unsure
    assert [content["fields"]["targets"] for _, content in made.choices[:2]] == ["second", "first"]
    assert "as likely" in made.doubts[0]


def test_a_number_chooses_and_no_answer_writes_nothing(two_labels: Path, tmp_path: Path, capsys):
    target = tmp_path / "made" / "boats.json"
    with pytest.raises(UnsureError, match=r"1\. the label 'second'(.|\n)*--declare_choice"):
        declare(two_labels, target, choice=0)
    assert not target.exists()
    declare(two_labels, target, choice=0, ask=lambda shown: 2)
    assert json.loads(target.read_text("utf-8"))["fields"]["targets"] == "first"
    capsys.readouterr()
    assert datagen.main([f"--declare={two_labels}", "--declare_choice=2"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["fields"]["targets"] == "first"
    assert "unused columns: 'second'" in printed.err and "'first' is used" in printed.err


@pytest.mark.parametrize("command", [datagen, quick])
def test_a_number_out_of_range_is_refused_with_the_choices(
    command, two_labels: Path, monkeypatch, capsys
):
    monkeypatch.chdir(two_labels.parent)
    name = "--declare" if command is datagen else "--file"
    assert command.main([f"{name}={two_labels}", "--declare_choice=9"]) == UsageError.exit_code
    said = capsys.readouterr().err
    assert re.search(r"no problem 9; choose 1 \(the label 'second'.* or 2 \(the label", said)
    assert "Correct it" not in said


def test_the_end_of_the_input_interrupts(two_labels: Path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)

    def end(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", end)
    assert quick.main([str(two_labels)]) == 128 + signal.SIGINT
    assert "stopped by SIGINT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "target"), [({"yes": True}, "second"), ({"declare_choice": 2}, "first")]
)
def test_quick_takes_the_chosen_one(settings, target, two_labels: Path, tmp_path: Path):
    made = _Quick(QuickSettings(**settings), two_labels, tmp_path / "q", StopRequest())
    assert json.loads(made._declared().read_text("utf-8"))["fields"]["targets"] == target


READER = '''
from t2t_torch.declaration.proposal import Proposal
from t2t_torch.readers.head import Match
from t2t_torch.readers.text_file import Place, Record, TextFile
from t2t_torch.registry import register_proposer, register_reader

def matches(head):
    return Match(1.0) if head.full_lines and head.full_lines[0] == "%PIPES" else None

@register_reader("pipes", matches=matches)
def read_pipes(path, bad):
    """Yields pipes."""
    for number, line in TextFile(path, bad):
        if "|" in line:
            label, _, text = line.rstrip().partition("|")
            yield Record(Place(path, number), {"label": label, "text": text})

@register_proposer("reverse")
def propose_reverse(table):
    """Proposes texts from labels."""
    yield Proposal("text2text", {"inputs": "label", "targets": "text"}, 1.0, "a text of a label")
'''


def test_a_users_reader_and_proposer_take_part(tmp_path: Path):
    folder = tmp_path / f"usr_{tmp_path.name}"
    folder.mkdir()
    (folder / "pipes.py").write_text(READER, "utf-8")
    registry.import_usr_dir(folder)
    lines = (f"{'ab'[n % 2]}|the boat {n} left" for n in range(60))
    (tmp_path / "data.txt").write_text("\n".join(["%PIPES", *lines]) + "\n", "utf-8")
    content = draft(tmp_path / "data.txt").content
    assert (content["format"], content["kind"]) == ("pipes", "text2text")


def test_columns_of_the_same_labels_are_one_problem(tmp_path: Path):
    draw = random.Random(3)
    lines = [f"__label__{draw.choice('ab')}x {' '.join(draw.choices(WORDS, k=7))}" for _ in WORDS]
    (tmp_path / "marked.txt").write_text("\n".join(lines * 9) + "\n", "utf-8")
    made = draft(tmp_path / "marked.txt")
    assert made.content["fields"] == {"inputs": "text", "targets": "label"}
    assert not any("coarse" in str(one) for one in (made.alternatives, made.doubts))


def test_rows_of_words_without_sentences_are_refused(tmp_path: Path):
    path, words = tmp_path / "words.jsonl", "On day ten Bob flew to Boston .".split()
    rows = (
        {"sentence": n // 8, "word": words[n % 8], "tag": "O" if n % 8 % 3 else "B-x"}
        for n in range(240)
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    with pytest.raises(DataError, match=r"each row is one word \('word'\)(.|\n)*'sentence'"):
        draft(path)


def test_rows_are_held_out_of_those_with_the_labels_of_each_problem(tmp_path: Path):
    draw = random.Random(2)
    rows = [
        f"{' '.join(draw.choices(WORDS, k=7))}\t{draw.choice('ab') if n < 22 else ''}\t{n % 2}x"
        for n in range(60)
    ]
    path = tmp_path / "half.tsv"
    path.write_text("\n".join(["words\tfirst\tsecond", *rows]) + "\n", "utf-8")
    held = {
        content["fields"]["targets"]: content["files"]["eval"]["rows"]
        for _, content in draft(path).choices
        if isinstance(content["fields"]["targets"], str)
    }
    assert {name: held[name] for name in ("first", "second")} == {"first": 4, "second": 12}
