"""Data, runs, artifacts and raw files in an S3 server, on one machine and on another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import t2t_torch as t2t
from t2t_torch import remote
from t2t_torch.errors import DataError, UsageError
from t2t_torch.remote import place
from t2t_torch.remote.store import Store

PROBLEM = "algorithmic_reverse_binary40_test"
pytestmark = pytest.mark.usefixtures("own_registry")


def train(run: str, data_dir: str, steps: int, **settings: Any) -> Any:
    """Trains a small model whose dropout draws random numbers."""
    known: dict[str, Any] = {"local_eval_frequency": 3, "eval_steps": 2, "worker_gpu": 0}
    return t2t.train(
        PROBLEM,
        "transformer",
        "transformer_test",
        data_dir=data_dir,
        output_dir=run,
        hparams={"batch_size": 256, "layer_prepostprocess_dropout": 0.3},
        train_steps=steps,
        threads="1",
        **{**known, **settings},
    )


def weights(run: Path, step: int) -> bytes:
    """Returns the file of the weights of a checkpoint."""
    return (run / f"ckpt-{step}" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, and a run of nine steps that was never interrupted."""
    folder = tmp_path_factory.mktemp("disk")
    t2t.generate(PROBLEM, folder / "data", folder, max_cases=300, verbosity=-1)
    train(str(folder / "run"), str(folder / "data"), 9)
    return folder


def test_a_run_goes_on_on_another_machine_as_on_a_disk(
    s3: str, on_disk: Path, on_machine: Callable[[str], None]
) -> None:
    t2t.generate(PROBLEM, f"{s3}/data", on_disk, max_cases=300, verbosity=-1)
    names = [file.name for file in (on_disk / "data").iterdir() if file.name[0] != "."]
    assert sorted(Store(f"{s3}/data").list()) == sorted(names)
    train(f"{s3}/run", f"{s3}/data", 9, pause_at_step=5)
    on_machine("b")
    t2t.train(output_dir=f"{s3}/run", worker_gpu=0, threads="1", cache_gb=1e-6)
    assert weights(Path(place.local(f"{s3}/run")), 9) == weights(on_disk / "run", 9)
    there = Store(f"{s3}/run").list()
    assert "ckpt-9/MANIFEST.json" in there
    assert not [name for name in there if "lock" in name or "tmp" in name]
    on_machine("c")
    inputs = ["1 0 0 1"]
    expected = t2t.load(on_disk / "run")(inputs)
    assert t2t.load(f"{s3}/run")(inputs) == expected
    assert t2t.evaluate(f"{s3}/run") == t2t.evaluate(on_disk / "run")
    assert len(t2t.Dataset(PROBLEM, f"{s3}/data", "dev")) > 0


@pytest.mark.slow
def test_steps_are_replayed_on_another_machine(
    s3: str, on_disk: Path, on_machine: Callable[[str], None]
) -> None:
    run = f"{s3}/run"
    train(run, str(on_disk / "data"), 9, digest_every=2)
    on_machine("b")
    command = ["t2t-replay", f"--output_dir={run}", "--steps=4:8"]
    made = subprocess.run([sys.executable, "-m", "t2t_torch.bin", *command], capture_output=True)
    assert made.returncode == 0, made.stderr.decode()
    assert b"step 8: equal" in made.stdout


@pytest.mark.slow
def test_an_artifact_in_a_store_is_replaced_as_a_whole(
    s3: str, on_disk: Path, on_machine: Callable[[str], None]
) -> None:
    run, artifact = on_disk / "run", f"{s3}/artifact"
    t2t.export(run, artifact)
    assert "model.onnx" in Store(artifact).list()
    on_machine("b")
    assert t2t.load(artifact)(["1 0 0 1"]) == t2t.load(run)(["1 0 0 1"])
    t2t.export(run, artifact, format="safetensors", overwrite=True)
    assert "model.onnx" not in Store(artifact).list()


def test_blocks_of_shards_are_fetched_ahead_into_a_bounded_cache(
    s3: str, on_machine: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (str(tmp_path / "data"), f"{s3}/data"):
        t2t.generate("dates_to_iso", folder, tmp_path, max_cases=2000, verbosity=-1)
    on_machine("b")
    read: dict[str, list[Any]] = {}
    for folder in (str(tmp_path / "data"), f"{s3}/data"):
        with remote.opened([place.local(folder)], cache_gb=120e-6):
            dataset = t2t.Dataset("dates_to_iso", folder, "train")
            batches = dataset.batches(t2t.hparams("transformer_dates", shuffle_block_size=600))
            read[folder] = [batch["inputs"].tolist() for batch in batches]
    first, second = read.values()
    assert first == second
    shards = sorted(Path(place.local(f"{s3}/data")).glob("*train*.arrow"))
    assert 0 < len(shards) < 4
    assert sum(shard.stat().st_size for shard in shards) <= 120e3


def test_a_shard_that_is_missing_or_damaged_in_the_store_is_named(
    s3: str, on_disk: Path, on_machine: Callable[[str], None]
) -> None:
    t2t.generate(PROBLEM, f"{s3}/data", on_disk, max_cases=300, verbosity=-1)
    shard = next(name for name in Store(f"{s3}/data").list() if "-train-00000" in name)
    Store(f"{s3}/data").write(shard, b"damaged")
    on_machine("b")
    with pytest.raises(DataError, match=rf"{s3}/data/{shard}.*sha256"):
        train(f"{s3}/run", f"{s3}/data", 3)
    Store(f"{s3}/data").remove(shard)
    on_machine("c")
    with pytest.raises(DataError, match=rf"{s3}/data/{shard} is missing"):
        train(f"{s3}/run", f"{s3}/data", 3)


def test_what_needs_a_shared_folder_is_refused_in_a_store(s3: str) -> None:
    with pytest.raises(UsageError, match=f"{s3}/data.*tasks that share"):
        t2t.generate(PROBLEM, f"{s3}/data", num_tasks=2, task_id=0, verbosity=-1)


def test_without_a_url_nothing_of_stores_is_imported(tmp_path: Path) -> None:
    code = f"""
import sys
import t2t_torch as t2t
t2t.generate({PROBLEM!r}, {str(tmp_path / "data")!r}, max_cases=20, verbosity=-1)
t2t.Dataset({PROBLEM!r}, {str(tmp_path / "data")!r}, "dev")
modules = {{"fsspec", "s3fs", "sqlite3", "t2t_torch.remote.mirror", "t2t_torch.remote.lease"}}
print(sorted(modules & set(sys.modules)))
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.splitlines()[-1] == "[]"


def test_raw_files_and_declarations_are_read_from_a_store(
    s3: str, on_machine: Callable[[str], None]
) -> None:
    raw = Path(place.local(f"{s3}/raw"))
    raw.mkdir(parents=True)
    lines = [f"word{i} is {'good' if i % 2 else 'bad'}\t{i % 2}" for i in range(200)]
    (raw / "reviews.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    remote.push(raw)
    on_machine("b")
    keys: dict[str, Any] = {"problem": "reviews", "kind": "text2class"}
    keys["fields"] = {"inputs": "text", "targets": "label"}
    for name, tmp_dir in ((f"{s3}/raw/review*.tsv", None), ("reviews.tsv", f"{s3}/raw")):
        files = {"train": name, "eval": 0.1}
        t2t.generate({**keys, "files": files}, f"{s3}/data", tmp_dir, verbosity=-1, overwrite=True)
        assert {"reviews.json", "declarations/reviews.json"} <= Store(f"{s3}/data").list().keys()
        on_machine(name[-1:])
        assert len(t2t.Dataset("reviews", f"{s3}/data", "train")) > 150
    on_machine("e")
    declared = t2t.declare(f"{s3}/raw/reviews.tsv")
    assert declared["files"]["train"].startswith(f"{s3}/raw")
