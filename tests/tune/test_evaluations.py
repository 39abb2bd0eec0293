"""What a run has reported is read once, and again when there is more."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch.errors import UsageError
from t2t_torch.run.metrics_file import MetricsFile
from t2t_torch.tune.shared_search import Evaluations, read_evaluations


def test_a_run_that_is_over_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = MetricsFile(tmp_path)
    assert read_evaluations(tmp_path, "loss") == Evaluations(0, ())
    file.add("dev", 10, {"loss": 2.0, "accuracy": 0.5})
    reads = []
    read = MetricsFile.read
    monkeypatch.setattr(MetricsFile, "read", lambda self: reads.append(self.path) or read(self))
    for _ in range(3):
        assert read_evaluations(tmp_path, "loss") == Evaluations(10, ((10, 2.0),))
    assert len(reads) == 1
    file.add("train", 20, {"loss": 1.0})
    assert read_evaluations(tmp_path, "loss") == Evaluations(20, ((10, 2.0),))
    file.trim(10)  # the training goes on from its checkpoint
    assert read_evaluations(tmp_path, "loss") == Evaluations(10, ((10, 2.0),))
    assert len(reads) == 3 + 1  # trim has read as well
    assert read_evaluations(tmp_path, "accuracy").newest == (10, 0.5)


def test_an_unknown_metric_is_refused_each_time(tmp_path: Path) -> None:
    MetricsFile(tmp_path).add("dev", 10, {"loss": 2.0})
    for _ in range(2):
        with pytest.raises(UsageError, match=r"no such metric\. They have: loss"):
            read_evaluations(tmp_path, "bleu")
