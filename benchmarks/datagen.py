"""t2t-datagen of Multi30k as a user sees it: the whole process, from raw files to a manifest."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from multi30k import PROBLEM, argument_parser
from report import print_header, print_table, spread

from t2t_torch.data.manifest import Manifest


def _generate(tmp_dir: Path, processes: int | None) -> tuple[float, int]:
    """Returns the seconds of a generation into a new directory, and the pairs it wrote."""
    with tempfile.TemporaryDirectory() as data_dir:
        command = [sys.executable, "-m", "t2t_torch.bin", "datagen", f"--problem={PROBLEM}"]
        command += [f"--data_dir={data_dir}", f"--tmp_dir={tmp_dir}"]
        if processes is not None:
            command.append(f"--num_concurrent_processes={processes}")
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        seconds = time.perf_counter() - start
        manifest = Manifest.load(Path(data_dir), PROBLEM)
        return seconds, sum(split.rows for split in manifest.splits.values())


def main() -> None:
    """Prints the table."""
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print_header()
    _generate(arguments.tmp_dir, None)  # downloads what is not there, warms the disk's cache
    rows = []
    for name, processes in (("all CPUs (the default)", None), ("one process", 1)):
        taken = [_generate(arguments.tmp_dir, processes) for _ in range(arguments.rounds)]
        pairs = taken[0][1]
        seconds = [each for each, _ in taken]
        rate = spread([pairs / each for each in seconds], 0)[0]
        rows.append([name, *spread(seconds), f"{pairs:,}", rate])
    print_table(["encoding", "seconds, median", "min", "max", "pairs", "pairs/s, median"], rows)


if __name__ == "__main__":
    main()
