"""A declaration, drafted for files that are looked at."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_torch import registry
from t2t_torch.declaration.guess import Guess, guess
from t2t_torch.declaration.look import MAX_ROWS, Table, look
from t2t_torch.declaration.neighbours import Neighbours, neighbours
from t2t_torch.declaration.problem import problem_of
from t2t_torch.declaration.sniff import Sniffed, check_unpacked, sniff
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.readers.bad_records import BadRecords
from t2t_torch.readers.formats import format_of

_SAMPLES = 2
_FEW_ROWS = 500
_VOCAB_SIZE = 8000
_WITHOUT_VOCAB_SIZE = ("intentslot", "text2tags", "text2tree", "spanqa", "image2class")


@dataclass(frozen=True)
class Draft:
    """What is drafted.

    Attributes:
      content: of the declaration.
      path: where it may be written; no file is there.
      samples: the first that it makes.
      doubts: what is not sure, as sentences.
      has_bad_rows: whether rows cannot be read, or lack what is needed of them.
    """

    content: Mapping[str, Any]
    path: Path
    samples: list[dict[str, Any]]
    doubts: list[str]
    has_bad_rows: bool

    @property
    def text(self) -> str:
        """The declaration, as JSON, a line for each key."""
        lines = [f"  {json.dumps(k)}: {_json(value)}" for k, value in self.content.items()]
        return "{\n" + ",\n".join(lines) + "\n}"


def draft(path: Path) -> Draft:
    """Looks at a file, or a folder, and drafts a declaration.

    Raises:
      DataError: it cannot be read, or nothing can be made of it.
    """
    check_unpacked(path)
    found = neighbours(path)
    parallel = not isinstance(found.files["train"], str)
    looked_at = _first(found)
    sniffed = Sniffed("lines") if parallel else sniff(looked_at)
    table = look(looked_at, sniffed)
    made = Guess("text2text") if parallel else guess(sniffed.format, table)
    content = _content(found, sniffed, made, table, parallel=parallel)
    doubts = [*found.doubts, *sniffed.doubts, *made.doubts, *_of_rows(table)]
    if "eval" not in found.files:
        part = content["files"]["eval"]
        doubts.append(
            f"no file for evaluation was found: {part:.0%} of the training rows are held out, by "
            "their content."
        )
    beside = _absent(found.folder, content["problem"])
    problem: Any = problem_of(content, beside)
    problem.bad_records = BadRecords("skip")
    problem.prepare(found.folder)
    samples = problem.generate_samples(found.folder, Split.TRAIN)
    first = list(itertools.islice(samples, _SAMPLES))
    for _ in itertools.islice(samples, _FEW_ROWS):
        pass  # for what it says of bad rows
    bad = table.bad.count or problem.bad_records.count or made.lacks(table)
    return Draft(content, beside, first, doubts, bool(bad))


def _first(found: Neighbours) -> Path:
    """The file to look at, the first of a pattern."""
    train = found.train
    return train if train.exists() else next(iter(sorted(found.folder.glob(train.name))))


def _content(
    found: Neighbours, sniffed: Sniffed, made: Guess, table: Table, *, parallel: bool
) -> dict[str, Any]:
    files: dict[str, Any] = dict(found.files)
    if "eval" not in files:
        files["eval"] = 0.1 if table.rows < _FEW_ROWS else 0.05
    content: dict[str, Any] = {
        "problem": _free_name(found.name),
        "kind": made.kind,
        "files": {split: files[split] for split in ("train", "eval", "test") if split in files},
    }
    if not parallel and _must_be_named(_first(found), sniffed):
        content["format"] = sniffed.format
    if sniffed.options:
        content["options"] = dict(sniffed.options)
    if made.fields:
        content["fields"] = made.fields
    if made.kind not in _WITHOUT_VOCAB_SIZE:
        content["vocab_size"] = _VOCAB_SIZE
    return {**content, **made.more}


def _must_be_named(path: Path, sniffed: Sniffed) -> bool:
    """Whether a file's ending does not tell its format."""
    try:
        return format_of(path) != sniffed.format
    except DataError:
        return True


def _free_name(name: str) -> str:
    """A name that no other problem has."""
    taken = set(registry.list_names("problem"))
    name = re.sub(r"(_rev|_copy)+$", "", name) or "mine"
    for candidate in (name, f"my_{name}", *(f"my_{name}{n}" for n in range(2, 100))):
        if candidate not in taken:
            return candidate
    return name


def _absent(folder: Path, name: str) -> Path:
    """A path for a declaration in a folder, where no file is yet."""
    stems = itertools.chain((name, f"{name}_problem"), (f"{name}_{n}" for n in itertools.count(2)))
    return next(path for path in (folder / f"{s}.json" for s in stems) if not os.path.lexists(path))


def _of_rows(table: Table) -> list[str]:
    told = []
    if table.bad.count:
        told.append(
            f"rows that cannot be read: {table.bad.count:,}, the first: "
            f"{table.bad.listed[0].rstrip('.')}. Mend them, or leave them out with "
            "--on_bad_record=skip."
        )
    if table.rows == MAX_ROWS:
        told.append(f"the first {MAX_ROWS:,} rows were looked at, no more.")
    return told


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
