"""Folders of other users: each command names what it may not read or write, and ends with 2."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.data.generate import generate_data

_NOBODY = 65534
PROBLEM = "algorithmic_reverse_binary40_test"
TRAINER = ("trainer", f"--problem={PROBLEM}", "--model=transformer", "--worker_gpu=0")
TRAINER += ("--hparams_set=transformer_test", "--train_steps=1")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can be another user"
)


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., str]:
    """Runs a command as nobody, who owns nothing; returns the last line of what it says."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(0o755)

    nobody = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
    started = [*nobody, sys.executable, "-c", "import absl"]
    environment = {**os.environ, "HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"}
    if subprocess.run(started, capture_output=True, env=environment, check=False).returncode:
        pytest.skip("another user may not read this Python")

    def run(name: str, *flags: str) -> str:
        command = [*nobody, sys.executable, "-m", "t2t_torch.bin", name, *flags]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr.strip().splitlines()[-1]

    return run


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("folder", ["data", "."])
def test_data_is_not_generated_into_the_folder_of_another(ask, tmp_path, folder) -> None:
    text = ask("datagen", f"--problem={PROBLEM}", f"--data_dir={tmp_path / folder}")
    assert (str(tmp_path / folder) in text, "Permission denied" in text) == (True, True), text


@pytest.mark.slow
def test_a_run_is_not_written_into_the_folder_of_another(ask, tmp_path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    problem = registry.problem(PROBLEM)
    generate_data(problem, data, tmp_path, num_processes=1, max_cases=160, progress=False)
    text = ask(*TRAINER, f"--output_dir={run}", f"--data_dir={data}")
    assert f"--output_dir={run} cannot be made or written to: Permission denied" in text


@pytest.mark.slow
def test_what_may_not_be_read_is_named(ask, tmp_path) -> None:
    for name in ("run", "data"):
        (tmp_path / name).mkdir(mode=0o700)
    data, run = tmp_path / "data", tmp_path / "run"
    writable = tmp_path / "writable"
    writable.mkdir()
    os.chown(writable, _NOBODY, _NOBODY)
    text = ask(*TRAINER, f"--output_dir={writable}", f"--data_dir={data}")
    assert f"{data}/declarations: Permission denied" in text
    text = ask(
        "exporter", f"--output_dir={run}", f"--data_dir={data}", f"--export_dir={writable}/a"
    )
    assert f"{data}/declarations: Permission denied" in text
    assert not any(writable.glob("a*"))
    text = ask("server", f"--output_dir={run}", "--port=0")
    assert str(run) in text
