"""Memory and time of the loss over a large vocabulary: all logits, or a chunk at a time."""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from multiprocessing.connection import Connection

from report import print_header, print_table


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--vocab_size", type=int, default=32_768)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--hidden_size", type=int, default=512)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print_header(arguments.seed)
    rows = []
    context = multiprocessing.get_context("spawn")
    for name, chunked in (("all logits", False), ("a chunk at a time", True)):
        here, there = context.Pipe()  # a process of its own: its peak is its own
        process = context.Process(target=_measure, args=(there, arguments, chunked))
        process.start()
        memory, milliseconds = here.recv()
        process.join()
        rows.append([name, f"{memory:,.0f}", f"{milliseconds:,.0f}"])
    print_table(["loss", "more memory at most, MiB", "ms, least"], rows)


def _measure(connection: Connection, arguments: argparse.Namespace, chunked: bool) -> None:
    import torch

    from t2t_torch.layers.cross_entropy import cross_entropy, linear_cross_entropy

    torch.manual_seed(arguments.seed)
    hidden = torch.randn(arguments.tokens, arguments.hidden_size, requires_grad=True)
    weight = torch.randn(arguments.vocab_size, arguments.hidden_size, requires_grad=True)
    targets = torch.randint(1, arguments.vocab_size, (arguments.tokens,))
    before, taken = _peak(), []
    for _ in range(arguments.times):
        started = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16):
            if chunked:
                loss = linear_cross_entropy(hidden, weight, targets, 0.1)
            else:
                loss = cross_entropy(hidden @ weight.t(), targets, 0.1).sum()
        loss.backward()
        taken.append(time.perf_counter() - started)
        hidden.grad = weight.grad = None
    connection.send((_peak() - before, 1e3 * min(taken)))


def _peak() -> float:
    """Returns the largest resident memory so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
