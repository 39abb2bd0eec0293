"""One of several processes of a machine that need the same data, in one of three ways.

downloading_process.py trial.py folder way
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from t2t_torch.distributed.process_group import join_world
from t2t_torch.errors import TrialError
from t2t_torch.trial import pytorch_trial
from t2t_torch.trial.preparation import download
from t2t_torch.trial.pytorch_trial import TrialContext
from t2t_torch.trial.user_code import load_definition


def main(spec: str, folder: Path, way: str) -> None:
    """Writes the path or the message to a file of this process."""
    context = TrialContext({"data": {"folder": str(folder), "way": way}}, {})
    pytorch_trial.enter(context)
    with join_world(use_gpu=False) as world:
        definition = load_definition(spec)
        seconds = 1 if way == "lasts" else 600
        try:
            result = str(download(definition, context, world, timeout_s=seconds))
        except TrialError as error:
            result = str(error)
        whole = json.dumps([result, time.time()])
        (folder / f"{way}-{world.rank}.json").write_text(whole, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
