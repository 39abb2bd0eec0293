"""XQuAD: 1,190 questions of SQuAD's development set, translated into ten languages.

Source: Artetxe et al. 2020, "On the Cross-lingual Transferability of Monolingual Representations",
ACL; github.com/google-deepmind/xquad.  Licence: CC BY-SA 4.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import published
from t2t_torch.mode import Split
from t2t_torch.problems.squad import SquadProblem
from t2t_torch.registry import register_problem

_FILE = published(
    "xquad",
    "https://raw.githubusercontent.com/google-deepmind/xquad/master/xquad.en.json",
    "https://github.com/google-deepmind/xquad/raw/master/xquad.en.json",
    sha256="e4c57d1c9143aaa1c5d265ba5987a65f4e69528d2a98f29d6e75019b10344f29",
)
_EVERY = 8  # one in this many of the 48 articles is EVAL


@register_problem("xquad_en")
class XquadEn(SquadProblem):
    """The English questions: too few to train a useful reader, enough to check that a model learns.

    The raw file is `xquad.en.json`.  There are no splits: every eighth article is EVAL.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1}
    sources = (_FILE,)
    approx_vocab_size = 2**13

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the questions of a split."""
        held_out = split is Split.EVAL
        yield from self.questions(
            _FILE.get(tmp_dir), lambda article: (article % _EVERY == _EVERY - 1) is held_out
        )
