"""t2t-datagen of as many generated pairs as asked for: pairs per second, and peak memory.

The whole command is timed: samples are made twice (for the vocabulary and for the shards), 8192
subwords are learnt, all is encoded, shuffled, written and hashed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import process_memory
from report import print_header, print_table

from t2t_torch.data.manifest import Manifest

PROBLEM = "generated_pairs"
FOLDER = Path(__file__).resolve().parent / "large"


def command(data_dir: Path, *options: str) -> list[str]:
    """The command that generates the pairs."""
    return [
        sys.executable,
        *("-m", "t2t_torch.bin", "datagen", f"--problem={PROBLEM}", f"--t2t_usr_dir={FOLDER}"),
        *(f"--data_dir={data_dir}", f"--tmp_dir={data_dir}", *options),
    ]


def environment(rows: int) -> dict[str, str]:
    """The environment in which the problem has so many pairs."""
    return {**os.environ, "T2T_GENERATED_PAIRS": str(rows)}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="pairs of training")
    parser.add_argument("--data_dir", type=Path, help="where to keep them; by default nowhere")
    parser.add_argument("--processes", type=int, help="that encode; by default all CPUs")
    arguments = parser.parse_args()
    print_header()
    options = [f"--num_concurrent_processes={arguments.processes}"] if arguments.processes else []
    with tempfile.TemporaryDirectory() as temporary:
        data_dir = arguments.data_dir or Path(temporary)
        run = command(data_dir, "--overwrite", *options)
        seconds, peaks = process_memory.run(run, environment(arguments.rows))
        manifest = Manifest.load(data_dir, PROBLEM)
    pairs = sum(split.rows for split in manifest.splits.values())
    written = sum(shard.bytes for split in manifest.splits.values() for shard in split.shards)
    rows = [
        ["pairs", f"{pairs:,}"],
        ["seconds", f"{seconds:.1f}"],
        ["pairs/s", f"{pairs / seconds:,.0f}"],
        ["MB of shards", f"{written / 1e6:,.0f}"],
        ["MB at most, the command", f"{peaks[0] / 1e6:,.0f}"],
        ["MB at most, another of its processes", f"{max(peaks[1:], default=0) / 1e6:,.0f}"],
    ]
    print_table(["datagen, large", ""], rows)


if __name__ == "__main__":
    main()
