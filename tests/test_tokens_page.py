"""The page on tokens tells the defaults that there are."""

from __future__ import annotations

import re
from pathlib import Path

from t2t_torch.hparam import HParams

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "tokens.md"


def test_the_defaults_of_the_page_are_those_of_the_hparams():
    rows = re.findall(r"^\| `(\w+)` \| ([^ |]+) \|", PAGE.read_text("utf-8"), re.M)
    assert len(rows) > 8
    told = ",".join(f"{name}={value}" for name, value in rows)
    assert HParams().parse(told) == HParams()
