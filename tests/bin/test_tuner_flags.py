"""How a search is told to go on."""

from __future__ import annotations

import shlex
from pathlib import Path

from t2t_torch.bin.commands import tuner
from t2t_torch.workflows.search_settings import command


def test_the_command_is_one_that_a_shell_takes() -> None:
    here = Path("my searches") / "first; one"
    flags = ["--problem=dates_to_iso", "--hparams=learning_rate_boundaries=[1,2]", "--metric=a b"]
    flags += ["--t2t_usr_dir=a", "--t2t_usr_dir=b", "--metric_minimize=false"]
    text = command(tuner.settings_of([*flags, f"--output_dir={here}"]), here)
    words = shlex.split(text)
    assert words[0] == "t2t-tuner" and set(words[1:]) == {*flags, f"--output_dir={here}"}
    assert "'--output_dir=my searches/first; one'" in text
