"""A reader of the user's, registered in `--t2t_usr_dir`, reads what a declaration names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.bin.commands import datagen
from t2t_torch.data.shards import Shards
from t2t_torch.errors import RegistryError
from t2t_torch.mode import Split
from t2t_torch.readers.formats import FORMATS, format_of

pytestmark = pytest.mark.usefixtures("own_registry")

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "own_data.md").read_text(
    "utf-8"
)
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)
(READER,) = [block for block in BLOCKS if "register_reader" in block]
LINES = "".join(f"{word}|{word} and more {i}\n" for i in range(20) for word in ("up", "down"))


@pytest.fixture
def generate(tmp_path):
    """Writes the page's reader, data and a declaration; runs t2t-datagen; returns its exit code."""

    def run(file: str, text: str = LINES, flags: tuple[str, ...] = (), **keys: object) -> int:
        folder = tmp_path / f"usr_{tmp_path.name}"
        folder.mkdir()
        (folder / "piped.py").write_text(READER)
        (folder / file).write_text(text)
        content = {
            "problem": "directions",
            "kind": "text2class",
            "files": {"train": file, "eval": 0.2},
            "fields": {"inputs": "text", "targets": "label"},
            **keys,
        }
        (folder / "directions.json").write_text(json.dumps(content))
        places = [f"--data_dir={tmp_path / 'data'}", f"--tmp_dir={tmp_path}"]
        return datagen.main([f"--t2t_usr_dir={folder}", "--problem=directions", *places, *flags])

    return run


def rows(tmp_path):
    splits = (Split.TRAIN, Split.EVAL)
    return sum(len(Shards.open(tmp_path / "data", "directions", split)) for split in splits)


def test_a_file_is_read_by_its_ending(generate, tmp_path):
    assert generate("moves.piped") == 0
    assert rows(tmp_path) == 40
    features = registry.problem("directions").features(tmp_path / "data")
    assert features.targets["targets"].vocab_size == 2


def test_a_file_is_read_by_the_format_with_options(generate, tmp_path):
    text = LINES.replace("|", ";")
    keys = {"format": "piped", "options": {"separator": ";"}}
    assert generate("moves.txt", text, **keys) == 0
    assert rows(tmp_path) == 40


def test_an_option_that_it_does_not_have_is_refused_by_name(generate, capsys):
    assert generate("moves.piped", options={"mark": ";"}) == 2
    error = capsys.readouterr().err
    assert "The format piped has no option 'mark'; its options are separator" in error


def test_a_bad_row_is_reported_with_its_place(generate, tmp_path, capsys):
    assert generate("moves.piped", LINES + "left\n") == 2
    assert re.search(r"moves\.piped.*41.*no '\|' in it", capsys.readouterr().err)


def test_a_bad_row_can_be_skipped(generate, tmp_path):
    assert generate("moves.piped", LINES + "left\n", ("--on_bad_record=skip",)) == 0
    assert rows(tmp_path) == 40


def test_a_format_that_nobody_registers_is_refused_with_the_nearest(generate, capsys):
    assert generate("moves.piped", format="pipes") == 2
    assert "there is no format 'pipes'. Did you mean 'piped'" in capsys.readouterr().err


def test_a_draft_of_a_declaration_names_it(generate, tmp_path, capsys):
    assert generate("moves.piped") == 0
    capsys.readouterr()
    (folder,) = tmp_path.glob("usr_*")
    assert datagen.main([f"--t2t_usr_dir={folder}", f"--declare={folder / 'moves.piped'}"]) == 0
    drafted = json.loads(capsys.readouterr().out)
    assert drafted["kind"] == "text2class"
    assert drafted["files"]["train"].endswith("moves.piped")
    assert drafted.get("format", "piped") == "piped"


def test_it_is_listed(generate, capsys):
    assert generate("moves.piped") == 0
    capsys.readouterr()
    assert datagen.main(["--registry_help"]) == 0
    told = capsys.readouterr().out
    readers = told.partition("Readers:")[2]
    assert "    piped" in readers
    assert "    csv" in readers
    assert "piped" in FORMATS


def test_an_ending_is_of_one_reader(tmp_path):
    folder = tmp_path / f"usr_{tmp_path.name}"
    folder.mkdir()
    source = READER.replace('(".piped",)', '(".piped", ".csv")')
    (folder / "piped.py").write_text(source)
    registry.import_usr_dir(folder)
    with pytest.raises(RegistryError, match=r"readers 'csv' and 'piped' both declare .* '\.csv'"):
        format_of(Path("a.csv"))


def test_a_reader_without_arguments_has_its_own_name(tmp_path):
    folder = tmp_path / f"usr_{tmp_path.name}"
    folder.mkdir()
    source = READER.replace('@register_reader("piped", endings=(".piped",))', "@register_reader")
    (folder / "piped.py").write_text(source)
    registry.import_usr_dir(folder)
    assert FORMATS["read_piped"].options == {"separator": "|"}
    assert FORMATS["read_piped"].endings == ()
