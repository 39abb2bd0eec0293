"""The page on optimizers tells all there are."""

from __future__ import annotations

import re
from pathlib import Path

from t2t_torch import registry
from t2t_torch.hparam import HParams

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "optimizers.md").read_text(
    "utf-8"
)
ROWS = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
TOLD = {name for row in ROWS for name in re.findall(r"`(\w+)`", row)}


def test_every_optimizer_and_every_schedule_has_a_row_and_nothing_else():
    assert {*registry.list_names("optimizer"), *registry.list_names("schedule")} == TOLD


def test_every_setting_that_is_named_exists_and_is_read_as_written():
    for name in re.findall(r"`((?:optimizer|learning_rate)_\w+[a-z])`", PAGE):
        assert name in HParams.model_fields
    written = re.findall(r"^ +--hparams=(\S+)", PAGE, flags=re.M)
    assert len(written) == 6
    for hparams in [*written, *re.findall(r"`((?:ema|swa)_\w+=[^`]*)`", PAGE)]:
        HParams().parse(hparams)
