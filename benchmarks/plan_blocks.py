"""A training of a billion rows: seconds and memory from opening the data to the first batches.

The data is 1,024 shards with a generated index.  To fit on a disk they are links to a few files of
random lengths, with the ids left zero; a plan reads lengths only, and every block has 16 shards or
so.  The checksums count as verified already, as those of data that t2t-datagen has just written.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from plan import lengths
from report import print_header, print_table, spread

from t2t_torch.data import length_index, manifest
from t2t_torch.data.shards import Ragged, ShardWriter, schema_of, shard_name
from t2t_torch.mode import Split

NAME = "billion"
_SIDES = ("inputs", "targets")

# Runs in a fresh process: what the trainer does with its data, from opening it.
SCRIPT = """
import json, resource, sys, time

data_dir, block_size = sys.argv[1:]

import torch
from t2t_torch import registry
from t2t_torch.data.shards import Shards
from t2t_torch.features import Features, Text
from t2t_torch.mode import Split
from t2t_torch.pipeline.loader import TrainBatches
from t2t_torch.pipeline.plan import Batching
from t2t_torch.text.encoder import ByteEncoder


def memory(kind):
    lines = open("/proc/self/status")
    return next(int(line.split()[1]) for line in lines if line.startswith(kind)) / 1024


def clock(name, make):
    begin = time.perf_counter()
    result = make()
    found[name] = time.perf_counter() - begin
    return result


found = {"imports": memory("VmHWM:")}
features = Features({"inputs": Text(ByteEncoder())}, {"targets": Text(ByteEncoder())})
hparams = registry.hparams("transformer_base").replace(
    batch_size=4096, shuffle_block_size=int(block_size)
)
batching = Batching(hparams, means_tokens=True, max_length=256)
started = time.process_time()
shards = clock("open", lambda: Shards.open(data_dir, "NAME", Split.TRAIN))
batches = clock("plan", lambda: TrainBatches(shards, features, batching, seed=0))
plan = batches.plan
clock("first", lambda: plan.batch(0))
found["processor"] = time.process_time() - started
found["first batch"] = sum(found[name] for name in ("open", "plan", "first"))
block, count = plan.shards_of(0)[0], plan.batches_per_epoch
ends = next(k for k in range(0, count, 100) if plan.shards_of(k)[0] != block)
while plan.shards_of(ends - 1)[0] != block:
    ends -= 1
clock("thousand", lambda: [plan.batch(k) for k in range(1000)])
time.sleep(20)  # a block is trained on for minutes
plan.batch(ends - 1)
clock("change", lambda: plan.batch(ends))
time.sleep(20)
clock("middle", lambda: plan.batch(count // 2))
time.sleep(20)
found["peak"] = memory("VmHWM:")
found["plans"] = found["peak"] - found["imports"]
found["batches"], found["rows"], found["blocks"] = count, plan.report.kept, len(plan._batches)
clock("collated", lambda: batches.components[0].collate(plan.batch(count // 2)))
print(json.dumps(found))
"""


def _make(folder: Path, rows: int, shards: int, files: int) -> None:
    """Writes the data: `files` shards, links to them, and the index."""
    folder.mkdir(parents=True)
    schema = schema_of(dict.fromkeys(_SIDES, "list<uint8>"))
    names = [shard_name(NAME, Split.TRAIN, i, shards) for i in range(shards)]
    entries = []
    for i, name in enumerate(names):
        if i < files:
            writer = ShardWriter(folder / name, schema)
            sides = lengths(rows // shards, i)
            columns = {
                side: Ragged.from_lengths(np.zeros(int(length.sum()), np.uint8), length)
                for side, length in sides.items()
            }
            writer.append(columns)
            entries.append(writer.close())
        else:
            os.link(folder / names[i % files], folder / name)
            entries.append(entries[i % files].model_copy(update={"file": name}))
    path = folder / length_index.index_name(NAME, Split.TRAIN.value)
    begin = time.perf_counter()
    index = length_index.write_index(path, [folder / name for name in names], _SIDES)
    print(f"index     {path.stat().st_size >> 20} MiB in {time.perf_counter() - begin:.0f} s\n")
    entry = manifest.SplitEntry(
        rows=sum(entry.rows for entry in entries),
        tokens={},
        max_length={},
        shards=entries,
        index=index,
    )
    feature = {"type": "list<uint8>", "vocab_size": 256}
    roles = {side: manifest.FeatureEntry(role=side, **feature) for side in _SIDES}
    made = manifest.Manifest(
        problem=NAME, settings={}, features=roles, vocab_files={}, splits={"train": entry}
    )
    made.save(folder)
    time.sleep(3)  # files are trusted once the clock has gone on
    manifest.remember(folder, NAME, entry.files)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000_000)
    parser.add_argument("--shards", type=int, default=1024)
    parser.add_argument("--files", type=int, default=32, help="of which the others are links")
    parser.add_argument("--block_size", type=int, default=2**24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="keeps the data for another call")
    arguments = parser.parse_args()
    print_header(0)
    folder = Path(tempfile.gettempdir()) / "t2t_benchmarks" / f"blocks-{arguments.rows}"
    if not folder.exists():
        _make(folder, arguments.rows, arguments.shards, arguments.files)
    script = SCRIPT.replace("NAME", NAME)
    command = [sys.executable, "-c", script, str(folder), str(arguments.block_size)]
    runs = [
        json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        for _ in range(arguments.rounds)
    ]
    names = {
        "open": "seconds: opening the shards",
        "plan": "seconds: counting all batches",
        "first": "seconds: planning the first block",
        "first batch": "seconds to the first batch, all of these",
        "processor": "seconds of the processor for these",
        "thousand": "seconds: the next 1,000 batches",
        "change": "seconds: first batch of the next block, planned ahead",
        "middle": "seconds: a batch in the middle, its block not planned",
        "imports": "MiB of the process before",
        "peak": "MiB at most",
        "plans": "MiB at most, less those before",
    }
    table = [[text, *spread([run[name] for run in runs], 3)] for name, text in names.items()]
    head = f"{runs[0]['rows']:,} rows, {runs[0]['batches']:,} batches, {runs[0]['blocks']} blocks"
    print_table([head, "median", "min", "max"], table)
    if not arguments.keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
