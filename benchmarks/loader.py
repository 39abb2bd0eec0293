"""The loader alone: shuffled, bucketed, padded training batches, as the trainer reads them."""

from __future__ import annotations

import time
from collections.abc import Iterator

from multi30k import argument_parser, hparams, make_data, task
from report import print_header, print_table, spread
from torch import Tensor


def _pass(batches: Iterator[dict[str, Tensor]], count: int) -> tuple[float, int, int, int]:
    """Returns seconds, examples, filled positions and positions of `count` batches."""
    examples = filled = positions = 0
    held = []
    start = time.perf_counter()
    for _ in range(count):
        batch = next(batches)
        examples += len(batch["targets"])
        held.append(batch)
    seconds = time.perf_counter() - start
    for batch in held:
        filled += sum(int((ids != 0).sum()) for ids in batch.values())
        positions += sum(ids.numel() for ids in batch.values())
    return seconds, examples, filled, positions


def main() -> None:
    """Prints the table."""
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch_size", type=int, default=4096, help="tokens")
    parser.add_argument("--length_bucket_step", type=float, default=1.1)
    arguments = parser.parse_args()
    make_data(arguments.data_dir, arguments.tmp_dir)
    print_header(arguments.seed)
    changes = {name: getattr(arguments, name) for name in ("batch_size", "length_bucket_step")}
    chosen = task(arguments.data_dir, hparams(**changes))
    start = time.perf_counter()
    source = chosen.train_batches(seed=arguments.seed, start=0, rank=0, world_size=1)
    batches = iter(source)
    next(batches)
    to_first = time.perf_counter() - start
    per_epoch = source.report.batches
    _pass(batches, per_epoch - 1)
    passes = [_pass(batches, per_epoch) for _ in range(arguments.epochs)]
    speeds = [examples / seconds for seconds, examples, *_ in passes]
    filled, positions = (sum(one[i] for one in passes) for i in (2, 3))
    rows = [
        ["examples/s", *spread(speeds, 0)],
        ["padding fraction", f"{1 - filled / positions:.4f}", "", ""],
        ["padding fraction, the plan's own", f"{source.report.padding_fraction:.4f}", "", ""],
        ["seconds from data directory to first batch", f"{to_first:.3f}", "", ""],
        ["batches in an epoch", f"{per_epoch:,}", "", ""],
        ["examples in an epoch", f"{source.report.kept:,}", "", ""],
    ]
    print_table(["loader", "median", "min", "max"], rows)


if __name__ == "__main__":
    main()
