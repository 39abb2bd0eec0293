"""Generates the data of problems: vocabulary, shards and manifest.

    t2t-datagen --problem=translate_multi30k_ende --data_dir=data --tmp_dir=raw

Raw files are looked for in --tmp_dir and downloaded there if missing.  Data that is there, whole
and of the same settings, is left alone; several commands at once do not harm each other.
"""

from __future__ import annotations

import contextlib
import fnmatch
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from absl import flags, logging

from t2t_torch import registry
from t2t_torch.bin import flags as shared
from t2t_torch.errors import UsageError

if TYPE_CHECKING:
    from t2t_torch.data.manifest import Manifest

FLAGS = flags.FlagValues()  # type: ignore[no-untyped-call]
shared.define(
    FLAGS, "problem", "data_dir", "tmp_dir", "t2t_usr_dir", "random_seed", "registry_help"
)
FLAGS["problem"].help = "What to generate: a name, several with commas, or a pattern: algorithmic*."
FLAGS["random_seed"].help = "Seed of the examples' order; the problem's own by default."
flags.DEFINE_list(
    "exclude_problems", [], "Problems to leave out, names or patterns.", flag_values=FLAGS
)
flags.DEFINE_integer(
    "num_concurrent_processes",
    None,
    "Processes that encode, with the same result for any number; by default all CPUs if it pays.",
    lower_bound=1,
    flag_values=FLAGS,
)
flags.DEFINE_integer(
    "max_cases",
    0,
    "At most so many examples of each split; 0: all.",
    lower_bound=0,
    flag_values=FLAGS,
)
flags.DEFINE_boolean(
    "overwrite",
    False,
    "Generates also what is there, its vocabulary too, and replaces it.",
    flag_values=FLAGS,
)
flags.DEFINE_boolean("only_list", False, "Lists the chosen problems, and exits.", flag_values=FLAGS)

_TERMINATED = 128 + signal.SIGTERM


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return shared.run_main(_run, FLAGS, __doc__, argv)


def _flag(name: str) -> Any:
    return FLAGS[name].value


def _run() -> int:
    names = _chosen()
    if _flag("only_list"):
        print("\n".join(names))
        return 0
    if not _flag("problem"):
        print("\n".join(f"  * {name}" for name in names))
        raise UsageError("choose one or more of these problems:  t2t-datagen --problem=NAME")
    shared.require(FLAGS, "data_dir")
    data_dir = Path(_flag("data_dir"))
    # tensor2tensor's default is /tmp/t2t_datagen.
    tmp_dir = Path(_flag("tmp_dir") or Path(tempfile.gettempdir()) / "t2t_datagen")
    with _ending_on_sigterm():
        for name in names:
            _generate(name, data_dir, tmp_dir)
    return 0


def _generate(name: str, data_dir: Path, tmp_dir: Path) -> None:
    from t2t_torch.data.generate import generate_data

    problem = registry.problem(name)
    logging.info("Generating %s in %s, raw files in %s.", name, data_dir, tmp_dir)
    start = time.perf_counter()
    manifest = generate_data(
        problem,
        data_dir,
        tmp_dir,
        num_processes=_flag("num_concurrent_processes"),
        seed=_flag("random_seed"),
        max_cases=_flag("max_cases"),
        overwrite=_flag("overwrite"),
    )
    seconds = time.perf_counter() - start
    print(f"\n{manifest.problem} in {data_dir}, {seconds:.1f} seconds\n")
    print(summary(manifest))
    print(f"\nNext:\n  {_trainer_command(name, data_dir)}")


def _trainer_command(name: str, data_dir: Path) -> str:
    suggested = registry.problem(name).suggested_flags.split()
    words = ["t2t-trainer", f"--problem={name}", *suggested]
    words += [f"--data_dir={data_dir}", "--output_dir=run"]
    words += [f"--t2t_usr_dir={directory}" for directory in _flag("t2t_usr_dir")]
    return shlex.join(words)


def summary(manifest: Manifest) -> str:
    """A table of what a data set holds: a line for each feature of each split."""
    head = ("split", "shards", "rows", "feature", "tokens", "mean", "max", "vocabulary")
    lines = [head]
    for split, entry in manifest.splits.items():
        first = (split, f"{len(entry.shards):,}", f"{entry.rows:,}")
        for name, feature in manifest.features.items():
            tokens = entry.tokens[name]
            lines.append(
                (
                    *first,
                    name,
                    f"{tokens:,}",
                    f"{tokens / entry.rows:.1f}",
                    f"{entry.max_length[name]:,}",
                    f"{feature.vocab_size:,}" if feature.vocab_size else "",
                )
            )
            first = ("", "", "")
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    names = (0, 3)  # columns of words, aligned on their left
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in names else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _chosen() -> list[str]:
    """The problems' names in the order asked; all that there are if none was asked for.

    `x` and `x_rev` share their data, so only the first of them stays.

    Raises:
      T2TError: a name is unknown or its file does not import, or no problem is left.
    """
    asked = [part.strip() for part in (_flag("problem") or "*").split(",") if part.strip()]
    if not asked:
        raise UsageError(
            f"--problem={_flag('problem')} names no problem. List all:  t2t-datagen --only_list"
        )
    chosen: dict[str, str] = {}
    for name in asked:
        for match in _matching(name):
            chosen.setdefault(registry.parse_problem_name(match).base_name, match)
    excluded = {
        registry.parse_problem_name(match).base_name
        for name in _flag("exclude_problems")
        if name.strip()
        for match in _matching(name.strip())
    }
    left = [name for base, name in chosen.items() if base not in excluded]
    if not left:
        raise UsageError(
            f"--exclude_problems={','.join(_flag('exclude_problems'))} leaves none of: "
            f"{', '.join(chosen.values())}. Exclude fewer."
        )
    return left


def _matching(name: str) -> list[str]:
    """The problems of a pattern, or the one of a name, which is looked up here and now.

    Raises:
      T2TError: there is none, or its file does not import.
    """
    if not any(mark in name for mark in "*?["):
        registry.problem(name)
        return [name]
    matching = fnmatch.filter(registry.list_names("problem"), name)
    if not matching:
        raise UsageError(f"no problem matches {name!r}. List all:  t2t-datagen --only_list")
    return matching


@contextlib.contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """Turns SIGTERM into an exception, so that what was begun is tidied up."""

    def end(signum: int, frame: object) -> NoReturn:
        raise SystemExit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
