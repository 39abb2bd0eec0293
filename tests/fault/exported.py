"""A run of labels to export: the one that tests/export has."""

from __future__ import annotations

import sys
from pathlib import Path

from served import module_at

from t2t_torch import registry
from t2t_torch.data.generate import generate_data

_RUNS = Path(__file__).parents[1] / "export" / "conftest.py"
ROW = {"inputs": ["go", "to", "Rome"]}
"""An input of its problem."""


def write_run(folder: Path) -> None:
    """Writes a run, with checkpoints of the steps 1, 2 and 3, and its data.

    Args:
      folder: gets `run`, `data`, and the user's folder that declares the problem.
    """
    runs = module_at("export_conftest", _RUNS)
    # A test of exports in this process may have imported the same package from another folder.
    for name in [name for name in sys.modules if name.split(".")[0] == "requests_shelf"]:
        del sys.modules[name]
    sys.path[:] = [path for path in sys.path if not Path(path, "requests_shelf").is_dir()]
    registry.import_usr_dir(runs.shelf_of(folder))
    problem = registry.problem("small_requests")
    generate_data(problem, folder / "data", folder, num_processes=1, progress=False)
    runs._write_run(folder / "run", folder)


def flags_of(folder: Path, form: str, export_dir: Path) -> list[str]:
    """Returns the flags of `t2t-exporter` for the run."""
    told = {"output_dir": folder / "run", "export_dir": export_dir, "format": form}
    if form != "safetensors":
        told["data_dir"] = folder / "data"
    return [f"--{name}={value}" for name, value in told.items()]
