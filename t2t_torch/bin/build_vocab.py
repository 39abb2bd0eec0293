"""Builds the vocabulary of a problem, without its data.

    t2t-build-vocab --problem=translate_multi30k_ende --data_dir=data --tmp_dir=raw

A vocabulary that is in the data directory already is kept.  t2t-datagen builds it, too; this
command is for several machines that are to share one, and for a look at it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from t2t_torch import registry
from t2t_torch.bin import flags as shared
from t2t_torch.errors import UsageError
from t2t_torch.settings import Settings


class VocabFlags(Settings):
    """Flags of `t2t-build-vocab`; all are shared."""


FLAGS = shared.CommandFlags(
    "t2t-build-vocab",
    VocabFlags,
    common=("problem", "data_dir", "tmp_dir", "t2t_usr_dir", "registry_help"),
)
_flag = FLAGS.value_of


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return shared.run_main(_run, FLAGS, __doc__, argv)


def _run() -> int:
    shared.require(FLAGS, "problem", "data_dir")
    problem = registry.problem(_flag("problem"))
    data_dir = Path(_flag("data_dir"))
    tmp_dir = Path(_flag("tmp_dir") or data_dir)
    if not problem.vocab_files:
        raise UsageError(f"problem {problem.full_name!r} has no vocabulary: its ids are fixed.")
    data_dir.mkdir(parents=True, exist_ok=True)
    before = {name for name in problem.vocab_files if (data_dir / name).exists()}
    problem.prepare(tmp_dir)
    problem.build_vocab(data_dir, tmp_dir)
    features = problem.features(data_dir)
    for name in problem.vocab_files:
        state = "kept" if name in before else "built"
        print(f"{state}  {data_dir / name}")
    for name, feature in features.all.items():
        if feature.is_text:
            print(f"{name}: {feature.vocab_size:,} ids")
    return 0


if __name__ == "__main__":
    sys.exit(main())
