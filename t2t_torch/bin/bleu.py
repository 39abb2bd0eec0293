"""Scores a file of outputs against a file of references, line by line.

    t2t-bleu --translation=out.txt --reference=right.txt
    t2t-bleu --translation=out.txt --reference=right.txt --scores=rouge_2,word_error_rate

Prints tensor2tensor's BLEU and sacreBLEU's, each with what it was counted with.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

from t2t_torch.bin import flags as shared

FLAGS = flags.FlagValues()
shared.define(FLAGS, "registry_help")
shared.define_path(FLAGS, "translation", None, "File of outputs, one a line; gzip or not.")
shared.define_path(FLAGS, "reference", None, "File of right outputs, as many lines.")
flags.DEFINE_enum(
    "bleu_variant",
    "both",
    ["both", "cased", "uncased"],
    "Whether upper and lower case differ, without --scores.",
    flag_values=FLAGS,
)
flags.DEFINE_string(
    "bleu_tokenize",
    "intl",
    "How sacreBLEU cuts lines into words: 13a, intl, char, zh, flores200, none.",
    flag_values=FLAGS,
)
flags.DEFINE_list(
    "scores",
    [],
    "What to print instead: bleu, bleu_uncased, t2t_bleu, t2t_bleu_uncased, chrf, ter, rouge_1, "
    "rouge_2, rouge_l, word_error_rate, exact_match.",
    flag_values=FLAGS,
)


_SIDES = ("translation", "reference")
_BLEU = {
    "cased": ("t2t_bleu", "bleu"),
    "uncased": ("t2t_bleu_uncased", "bleu_uncased"),
    "both": ("t2t_bleu_uncased", "t2t_bleu", "bleu_uncased", "bleu"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return shared.run_main(_run, FLAGS, __doc__, argv)


def _flag(name: str) -> Any:
    return FLAGS[name].value


def _run() -> int:
    from t2t_torch.decode import scoring
    from t2t_torch.text.lines import read_lines

    shared.require(FLAGS, "translation", "reference")
    outputs, references = (
        [line.strip() for line in read_lines(Path(_flag(name)))] for name in _SIDES
    )
    scoring.check_counts(len(outputs), len(references), f"--reference={_flag('reference')}")
    names = _flag("scores") or _BLEU[_flag("bleu_variant")]
    print(scoring.table(outputs, references, names, tokenize=_flag("bleu_tokenize")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
