"""One of several processes of a machine that need the same data, three times over.

downloading_process.py trial.py folder local_rank
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from t2t_torch.errors import TrialError
from t2t_torch.trial import pytorch_trial
from t2t_torch.trial.definition import load_definition
from t2t_torch.trial.preparation import download_once
from t2t_torch.trial.pytorch_trial import TrialContext


def main(spec: str, folder: Path, local_rank: int) -> None:
    """Writes what came of each time to a file of this process."""
    result = {}
    for way in ("returns", "raises", "dies"):
        config = {"data": {"folder": str(folder), "way": way}}
        made = TrialContext(config, {})
        pytorch_trial.enter(made)
        definition = load_definition(spec)
        (folder / f"waits-{way}-{local_rank}").touch()
        try:
            path = download_once(
                definition, made, timeout_s=600, local_rank=local_rank, attempt_id=way
            )
            result[way] = str(path)
        except TrialError as error:
            result[way] = str(error)
        result[f"{way} at"] = time.time()
        whole = json.dumps(result)
        (folder / f"found-{local_rank}.part").write_text(whole, "utf-8")
        (folder / f"found-{local_rank}.part").replace(folder / f"found-{local_rank}.json")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
