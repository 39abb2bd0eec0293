"""`examples/spark_datagen.py` on a Spark of this machine."""

from __future__ import annotations

import importlib.util
import shutil
import sys

import pytest

from .conftest import ROOT, run, t2t

pytestmark = [pytest.mark.engines, pytest.mark.slow]


def test_partitions_of_spark_generate_the_same_bytes(tmp_path):
    if importlib.util.find_spec("pyspark") is None or not shutil.which("java"):
        pytest.skip("pyspark or Java is not installed: pip install pyspark")
    raw, name = tmp_path / "raw", "tiny_algo"
    t2t("datagen", f"--problem={name}", f"--data_dir={tmp_path / 'one'}", f"--tmp_dir={raw}")
    script = ROOT / "examples" / "spark_datagen.py"
    command = [script, name, tmp_path / "spark", raw, "3"]
    assert "done: [0, 1, 2]" in run(command, environment={"PYSPARK_PYTHON": sys.executable})
    one, spark = (
        {path.name: path.read_bytes() for path in (tmp_path / folder).glob(f"{name}-*")}
        for folder in ("one", "spark")
    )
    assert one == spark
    assert one
