"""Tiny Shakespeare: 1,115,394 characters of Shakespeare's plays.

Source: Karpathy 2015, "The Unreasonable Effectiveness of Recurrent Neural Networks",
github.com/karpathy/char-rnn.  Licence: the text is in the public domain, the repository MIT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import published
from t2t_torch.files import BLOCK_CHARACTERS
from t2t_torch.mode import Split
from t2t_torch.readers.text_file import TextFile
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import Text2SelfProblem, VocabType

_FILE = published(
    "tinyshakespeare",
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "https://github.com/karpathy/char-rnn/raw/master/data/tinyshakespeare/input.txt",
    sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)
_SIZE = BLOCK_CHARACTERS - 1  # including the end of a block, a whole number of sequences


@register_problem("languagemodel_tiny_shakespeare_characters")
class LanguagemodelTinyShakespeareCharacters(Text2SelfProblem):
    """Shakespeare's characters, in sequences of 256.

    The raw file is `input.txt`: the first nine tenths of its characters are TRAIN, the rest EVAL,
    as in github.com/karpathy/nanoGPT, `data/shakespeare_char`.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1}
    sources = (_FILE,)
    vocab_type = VocabType.SYMBOL
    chop_length = 256
    keeps_order = True
    suggested_flags = "--model=lstm_lm --hparams_set=lstm_lm_shakespeare --train_steps=5000"
    metrics = (
        "accuracy",
        "accuracy_top5",
        "neg_log_perplexity",
        "perplexity",
        "bits_per_character",
    )

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields a split in long blocks, without losing a character."""
        lines = (line for _, line in TextFile(_FILE.get(tmp_dir), self.bad_records))
        text = "".join(filter(None, lines))
        cut = len(text) * 9 // 10
        part = text[:cut] if split is Split.TRAIN else text[cut:]
        for start in range(0, len(part), _SIZE):
            yield {"targets": part[start : start + _SIZE]}
