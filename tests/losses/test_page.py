"""docs/reference/losses.md tells what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from loss_targets import batch_of, modality_of

from t2t_torch import registry
from t2t_torch.features import Real
from t2t_torch.hparam import HParams

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "losses.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| `(\w+)` \| ((?:`[A-Z]\w+`(?:, )?)+) \|", PAGE, re.M))


def test_the_table_tells_all_losses_and_their_targets():
    assert sorted(ROWS) == registry.list_names("loss")
    for name, told in ROWS.items():
        kinds = {kind.__name__ for kind in registry.loss(name).of}
        assert set(re.findall(r"`(\w+)`", told)) == kinds, name


def test_every_setting_that_is_named_is_one():
    fields = HParams.model_fields
    named = set(
        re.findall(
            r"`((?:loss|gce|focal|class|distill|r_drop|confidence|label|scheduled)_\w+)`", PAGE
        )
    )
    ours = {
        name
        for name in fields
        if re.match("loss_|gce|focal|class_w|distill|r_drop|confidence|label_s|scheduled", name)
    }
    assert named <= set(fields)
    assert ours - named == {"scheduled_sampling_method"}


@pytest.mark.usefixtures("own_registry")
def test_a_loss_of_ones_own_is_found_by_its_name(tmp_path):
    folder = tmp_path / "my_losses"
    folder.mkdir()
    block = re.search(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    (folder / "log_cosh.py").write_text(block[1], "utf-8")
    registry.import_usr_dir(folder)
    logits, targets = batch_of(Real)
    loss = modality_of(Real, loss="log_cosh").loss(logits, targets)
    expected = (logits - targets).double().cosh().log().mean(-1).sum()
    torch.testing.assert_close(loss.sum, expected.float())
    assert loss.weight == len(targets)
