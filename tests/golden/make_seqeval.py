"""Makes seqeval.json: scores of spans by seqeval itself.

Run in an environment that has it; this project needs none:

    python -m venv /tmp/seqeval && /tmp/seqeval/bin/pip install seqeval==1.2.2
    /tmp/seqeval/bin/python tests/golden/make_seqeval.py tests/golden/seqeval.json
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

KINDS = ("city", "date", "name")
SEEDS = 20
MADE = (
    "tags drawn by random.Random. default: f1_score, precision_score and recall_score of (right, "
    "found), and f1_of_kinds with average=None; strict: the same with mode='strict' and scheme="
    "IOB2 or IOBES. zero_division=0. Many of the tags break their scheme, as those of a model do: "
    "in strict mode they mark no span."
)


def main(target: Path) -> None:
    """Writes cases of both schemes."""
    warnings.simplefilter("ignore")
    cases = [case(scheme, seed) for scheme in ("BIO", "IOBES") for seed in range(SEEDS)]
    made = json.dumps(f"seqeval {version('seqeval')}, {MADE}")
    rows = ",\n".join(f"  {json.dumps(one)}" for one in cases)
    target.write_text(f'{{\n "made": {made},\n "cases": [\n{rows}\n ]\n}}\n', "utf-8")


def case(scheme: str, seed: int) -> dict[str, Any]:
    """Draws tags of a few sentences, right ones and found ones, and scores them."""
    drawn = random.Random(f"{scheme}{seed}")
    kinds = KINDS[: 1 + seed % len(KINDS)]
    prefixes = {"BIO": "BI", "IOBES": "BIES"}[scheme]
    labels = ["O", *(f"{prefix}-{kind}" for kind in KINDS for prefix in prefixes)]
    own = [label for label in labels if label == "O" or label[2:] in kinds]
    noise = (0.0, 0.1, 0.3, 0.6, 1.0)[seed % 5]  # share of found tags that are drawn anew
    right, found = [], []
    for _ in range(drawn.randint(2, 6)):
        row = legal(drawn, scheme, kinds, drawn.randint(1, 12))
        if seed >= SEEDS // 2:  # right tags may break the scheme, too
            row = [drawn.choice(own) if drawn.random() < 0.2 else tag for tag in row]
        right.append(row)
        found.append([drawn.choice(own) if drawn.random() < noise else tag for tag in row])
    if seed == 8:
        found = [["O"] * len(row) for row in right]
    if seed == 9:
        right = [["O"] * len(row) for row in right]
    return {"scheme": scheme, "right": right, "found": found, **scores(scheme, right, found)}


def legal(drawn: random.Random, scheme: str, kinds: tuple[str, ...], length: int) -> list[str]:
    """Draws tags that keep to their scheme."""
    tags: list[str] = []
    while len(tags) < length:
        size = drawn.randint(1, min(4, length - len(tags)))
        kind = drawn.choice(kinds)
        if drawn.random() < 0.35:
            tags += ["O"] * size
        elif scheme == "BIO":
            tags += [f"B-{kind}", *[f"I-{kind}"] * (size - 1)]
        elif size == 1:
            tags += [f"S-{kind}"]
        else:
            tags += [f"B-{kind}", *[f"I-{kind}"] * (size - 2), f"E-{kind}"]
    return tags


def scores(scheme: str, right: list[list[str]], found: list[list[str]]) -> dict[str, Any]:
    """Returns what seqeval says of tags, in its default mode and in its strict one."""
    import numpy as np
    from seqeval import scheme as schemes
    from seqeval.metrics import f1_score, precision_score, recall_score

    strict = {"mode": "strict", "scheme": {"BIO": schemes.IOB2, "IOBES": schemes.IOBES}[scheme]}
    told: dict[str, Any] = {}
    for mode, how in (("default", {}), ("strict", strict)):
        given: dict[str, Any] = {"zero_division": 0, **how}
        told[mode] = {
            "precision": float(precision_score(right, found, **given)),
            "recall": float(recall_score(right, found, **given)),
            "f1": float(f1_score(right, found, **given)),
        }
    kinds = sorted(
        {tag[2:] for rows in (right, found) for row in rows for tag in row if tag != "O"}
    )
    of_kinds = np.atleast_1d(f1_score(right, found, average=None, zero_division=0))
    told["default"]["f1_of_kinds"] = dict(zip(kinds, map(float, of_kinds), strict=True))
    return told


if __name__ == "__main__":
    main(Path(sys.argv[1]))
