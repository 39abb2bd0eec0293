"""Problems declared in JSON, found by name."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from t2t_torch import registry
from t2t_torch.bin.commands import datagen
from t2t_torch.errors import RegistryError

TICKETS: dict[str, Any] = {
    "problem": "support_tickets",
    "kind": "text2text",
    "files": {"train": "train.csv", "eval": 0.1},
    "fields": {"inputs": "body", "targets": "answer"},
}

pytestmark = pytest.mark.usefixtures("own_registry")


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    folder = tmp_path / "my-problems.v2"  # no name for a Python package
    folder.mkdir()
    (folder / "tickets.json").write_text(json.dumps(TICKETS, indent=2), "utf-8")
    return folder


def test_a_declaration_is_a_problem_with_rev_and_copy(shelf: Path) -> None:
    registry.import_usr_dir(shelf)
    assert registry.problem("support_tickets").name == "support_tickets"
    assert registry.problem("support_tickets_rev").full_name == "support_tickets_rev"
    assert registry.problem("support_tickets_rev_copy").was_copy


def test_a_declaration_is_listed(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert datagen.main([f"--t2t_usr_dir={shelf}", "--registry_help"]) == 0
    assert "\n    support_tickets " in capsys.readouterr().out
    assert datagen.main([f"--t2t_usr_dir={shelf}", "--problem=support*", "--only_list"]) == 0
    assert capsys.readouterr().out == "support_tickets\n"


@pytest.mark.parametrize("nested", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, "9" * 5_000])
def test_a_declaration_that_json_cannot_hold_is_named(shelf: Path, nested: str) -> None:
    (shelf / "deep.json").write_text(f'{{"problem": "deep", "kind": {nested}}}')
    with pytest.raises(RegistryError, match=r"deep\.json is no declaration: "):
        registry.import_usr_dir(shelf)
    assert "deep.json" in str(registry.not_readable(shelf / "deep.json"))


def test_a_miss_tells_the_nearest_declared_name(shelf: Path) -> None:
    registry.import_usr_dir(shelf)
    with pytest.raises(RegistryError, match=r"Did you mean 'support_tickets'\?"):
        registry.problem("suport_tickets")


def test_packages_inside_a_shelf_hold_declarations_too(shelf: Path) -> None:
    (shelf.parent / "outer" / "inner").mkdir(parents=True)
    (shelf.parent / "outer" / "inner" / "__init__.py").touch()
    (shelf / "tickets.json").rename(shelf.parent / "outer" / "inner" / "tickets.json")
    registry.import_usr_dir(shelf.parent / "outer")
    assert registry.problem("support_tickets").name == "support_tickets"


def test_a_name_declared_twice_shows_both_places_with_their_lines(shelf: Path) -> None:
    (shelf / "again.json").write_text('{"problem": "support_tickets", "kind": "text2self"}')
    with pytest.raises(RegistryError) as told:
        registry.import_usr_dir(shelf)
    assert f"{shelf / 'tickets.json'}:2" in str(told.value)
    assert f"{shelf / 'again.json'}:1" in str(told.value)


def test_a_class_and_a_declaration_of_one_name_are_told_apart(tmp_path: Path) -> None:
    folder = tmp_path / f"usr_{tmp_path.name}"
    folder.mkdir()
    (folder / "tickets.json").write_text(json.dumps(TICKETS), "utf-8")
    source = "from t2t_torch.registry import *\n@register_problem\nclass SupportTickets: pass\n"
    (folder / "tickets.py").write_text(source, "utf-8")
    with pytest.raises(RegistryError, match=r"(?s)declared twice.*tickets\.py:3.*tickets\.json:1"):
        registry.import_usr_dir(folder)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "text",
    [
        '{"rows": [1, 2]}',
        '[{"problem": "a", "kind": "b"}]',
        '{"data": [{"problem": "a", "kind": "b"}]}',
        '{"problem": "How many apples are there?", "solution": "3"}',
        '{"problem": "How many apples are there?", "kind": "arithmetic"}',
        '{"problem": "a", "kind": "b"}\n{"problem": "c", "kind": "d"}\n',
        "no JSON at all",
        "",
        '{"broken": ',
    ],
)
def test_other_json_files_are_passed_over(text: str, shelf: Path) -> None:
    (shelf / "data.json").write_text(text, "utf-8")
    registry.import_usr_dir(shelf)
    assert [e.name for e in registry.entries("problem") if e.path.startswith(str(shelf))] == [
        "support_tickets"
    ]


def test_a_large_json_file_is_not_read_for_a_listing(shelf: Path) -> None:
    with (shelf / "large.json").open("wb") as file:
        file.write(b'{"problem": "x", "kind": "y", "z": "')
        file.truncate(1 << 32)  # sparse: 4 GB that take no place
    tracemalloc.start()
    try:
        registry.import_usr_dir(shelf)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
    assert "x" not in registry.list_names("problem")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{\n  "problem": "x",\n  "kind" "text2self"\n}', r"bad\.json:3:10 .*line 3, column 10"),
        ('{"problem": "x", "kind": "text2self",}', r"bad\.json:1:\d+ is not valid JSON"),
        ('{"problem": "x", "kind": "a", "kind": "b"}', "says 'kind' twice"),
        (
            '{"problem": "two words", "kind": "text2self", "files": {}}',
            "'two words'; a name of letters",
        ),
        ('{"problem": 3, "kind": "text2self", "files": {}}', "is 3; a name of letters"),
        ('{"problem": "x_rev", "kind": "text2self"}', "may not end in '_rev'"),
    ],
)
def test_a_malformed_declaration_is_told_with_its_place(text: str, told: str, shelf: Path) -> None:
    (shelf / "bad.json").write_text(text, "utf-8")
    with pytest.raises(RegistryError, match=told):
        registry.import_usr_dir(shelf)


def test_a_declaration_that_is_not_utf8_is_told(shelf: Path) -> None:
    (shelf / "bad.json").write_bytes(b'{"problem": "x", "kind": "text2self", "source": "\xe9"}')
    with pytest.raises(RegistryError, match=r"bad\.json is not UTF-8 at byte 50"):
        registry.import_usr_dir(shelf)


def test_a_byte_order_mark_is_no_part_of_a_declaration(shelf: Path) -> None:
    path = shelf / "tickets.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    registry.import_usr_dir(shelf)
    assert registry.problem("support_tickets").name == "support_tickets"


def test_an_edited_declaration_is_read_again(shelf: Path) -> None:
    registry.import_usr_dir(shelf)
    before = registry.problem("support_tickets")
    assert type(registry.problem("support_tickets")) is type(before)
    edited = {**TICKETS, "description": "Letters."}
    (shelf / "tickets.json").write_text(json.dumps(edited), "utf-8")
    assert type(registry.problem("support_tickets")).__doc__ == "Letters."


def test_the_help_names_declarations_that_cannot_be_read(shelf: Path) -> None:
    registry.import_usr_dir(shelf)
    (shelf / "bad.json").write_text('{"problem": "x", "kind": }', "utf-8")
    assert f"{shelf / 'bad.json'}:1:26 is not valid JSON" in registry.help_string()


def test_a_declaration_that_is_written_later_is_found(shelf: Path) -> None:
    registry.import_usr_dir(shelf)
    later = {**TICKETS, "problem": "later_tickets"}
    (shelf / "later.json").write_text(json.dumps(later), "utf-8")
    assert registry.problem("later_tickets").name == "later_tickets"
