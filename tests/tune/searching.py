"""Searches in processes of their own, whose trainings are a formula."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import forked

SCRIPT = Path(__file__).parent / "tuner_process.py"
PATIENCE_SECONDS = 120.0


def until(condition: Callable[[], Any], what: str) -> Any:
    """Waits for something that other processes do."""
    began = time.monotonic()
    while not (result := condition()):
        assert time.monotonic() - began < PATIENCE_SECONDS, f"waited for {what} in vain"
        time.sleep(0.02)
    return result


@dataclasses.dataclass
class TunerProcess:
    """A tuner, and the file that takes what it prints."""

    process: BaseProcess
    output: Path

    def kill(self) -> None:
        """Ends it as kill -9 does."""
        self.process.kill()
        self.process.join()

    def signal(self, number: int) -> None:
        os.kill(int(self.process.pid or 0), number)

    def end(self, code: int = 0) -> str:
        """Waits for its end; returns what it has printed."""
        self.process.join(PATIENCE_SECONDS)
        output = self.output.read_text()
        assert self.process.exitcode == code, output
        return output


class SearchInProcesses:
    """A search's folder, and the folder through which its trainings are told what to do.

    Args:
      folder: for both.
      searcher: the kind of search.
    """

    def __init__(self, folder: Path, searcher: str = "asha") -> None:
        self.output_dir = folder / "search"
        self.control = folder / "control"
        self.control.mkdir(parents=True)
        self.processes: list[TunerProcess] = []
        self._searcher = searcher

    def flags(self, **changes: Any) -> list[str]:
        values = {
            "problem": "dates_to_iso",
            "model": "transformer",
            "hparams_set": "transformer_tiny",
            "hparams_range": "transformer_tiny_range",
            "data_dir": self.control,
            "output_dir": self.output_dir,
            "train_steps": 64,
            "max_trials": 6,
            "searcher": self._searcher,
            **changes,
        }
        return [f"--{name}={value}" for name, value in values.items() if value is not None]

    def start(self, *arguments: str, **changes: Any) -> TunerProcess:
        output = self.control / f"told-{len(self.processes)}"
        program = [SCRIPT, *(arguments or self.flags(**changes))]
        process = forked.start_program(program, output, {"FAKE": str(self.control)})
        self.processes.append(TunerProcess(process, output))
        return self.processes[-1]

    def run(self, *arguments: str, code: int = 0, **changes: Any) -> str:
        """Runs a tuner to its end; returns what it has printed."""
        return self.start(*arguments, **changes).end(code)

    def instruct(self, word: str, trial: int) -> Path:
        """Makes the training of a trial do something; see `fake_trainer.py`."""
        file = self.control / f"{word}-{trial}"
        file.touch()
        return file

    def held(self, trial: int) -> int:
        """Waits until a training is held; returns its process."""
        file = self.control / f"held-{trial}"
        return int(until(lambda: file.exists() and file.read_text(), f"trial {trial}"))

    @property
    def starts(self) -> list[tuple[int, int]]:
        """(trial, step to pause at) of each training that was started."""
        lines = (self.control / "log").read_text().splitlines()
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines]

    @property
    def record(self) -> dict[str, Any]:
        return json.loads((self.output_dir / "search.json").read_text())

    @property
    def outline(self) -> list[tuple[Any, ...]]:
        """What was decided of each trial."""
        return [
            (one["number"], one["state"], one["step"], one["value"], json.dumps(one["hparams"]))
            for one in self.record["trials"]
        ]
