"""`t2t-tuner` whose trainings are those of `fake_trainer.py`."""

from __future__ import annotations

import sys
from pathlib import Path

from t2t_torch.tune import search_target, tuner

search_target.ProblemSearchTarget.check_data = lambda self: None  # the trainings read no data
tuner.TRAINER = (sys.executable, "-I", "-S", str(Path(__file__).parent / "fake_trainer.py"))

from t2t_torch.bin.commands import tuner as command  # noqa: E402 -- the trainer is another one

if __name__ == "__main__":
    sys.exit(command())
