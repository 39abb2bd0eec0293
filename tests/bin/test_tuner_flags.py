"""How a search is told to go on."""

from __future__ import annotations

import shlex
from pathlib import Path

from t2t_torch.bin import search_flags, tuner


def test_the_command_is_one_that_a_shell_takes(tmp_path, monkeypatch) -> None:
    text: list[str] = []
    here = Path("my searches") / "first; one"
    monkeypatch.setattr(tuner, "_run", lambda: text.append(search_flags.command(here)) or 0)
    flags = ["--problem=dates_to_iso", "--hparams=learning_rate_boundaries=[1,2]", "--metric=a b"]
    assert tuner.main([*flags, f"--output_dir={here}"]) == 0
    words = shlex.split(text[0])
    assert words[0] == "t2t-tuner" and set(words[1:]) == {*flags, f"--output_dir={here}"}
    assert "'--output_dir=my searches/first; one'" in text[0]
