"""Made-up tables for the tests of proposers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from t2t_torch.declaration.columns import FileColumns, Inspected
from t2t_torch.declaration.proposal import Proposal, propose
from t2t_torch.readers.text_file import BadRecords

ROWS = 120
WORDS = (
    "ship boat harbour captain storm island sail rope anchor wave coast light tower bridge road "
    "train station ticket city museum garden river forest mountain snow rain wind cloud"
).split()


def texts(seed: int, words: int = 8, count: int = ROWS) -> list[str]:
    draw = random.Random(seed)
    return [
        " ".join(draw.choices(WORDS, k=draw.randint(words - 2, words + 2))) for _ in range(count)
    ]


def draws(seed: int, *values: Any, count: int = ROWS) -> list[Any]:
    draw = random.Random(seed)
    return [draw.choice(values) for _ in range(count)]


def table(**columns: Sequence[Any]) -> FileColumns:
    made = {name: Inspected(name, list(rows)) for name, rows in columns.items()}
    count = max(len(one.rows) for one in made.values())
    return FileColumns(made, count, BadRecords("skip"))


def best(**columns: Sequence[Any]) -> Proposal:
    return propose(table(**columns))[0]
