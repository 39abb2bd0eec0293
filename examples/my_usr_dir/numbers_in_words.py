"""A problem and a set of hyperparameters of your own, in one file.

    t2t-datagen --t2t_usr_dir=examples/my_usr_dir --problem=numbers_in_words --data_dir=data

Named with `_rev`, the problem reads words and writes digits, from the same data.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from t2t_torch import registry
from t2t_torch.hparam import HParams
from t2t_torch.mode import Split
from t2t_torch.registry import register_hparams, register_problem
from t2t_torch.text_problem import Text2TextProblem, VocabType

_UP_TO_NINETEEN = (
    *("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def in_words(number: int) -> str:
    """Returns an English numeral; 1 to 999,999."""
    parts = []
    if number >= 1000:
        parts += [in_words(number // 1000), "thousand"]
    if number % 1000 >= 100:
        parts += [_UP_TO_NINETEEN[number % 1000 // 100], "hundred"]
    tens, units = divmod(number % 100, 10)
    if tens >= 2:
        parts.append("-".join(filter(None, (_TENS[tens], _UP_TO_NINETEEN[units]))))
    elif number % 100:
        parts.append(_UP_TO_NINETEEN[number % 100])
    return " ".join(parts)


@register_problem
class NumbersInWords(Text2TextProblem):
    """Six digits to words: "402013" to "four hundred two thousand thirteen".

    Every 41st number is for evaluation: training never sees it.

    Attributes:
      num_samples: of each split.
    """

    vocab_type = VocabType.CHARACTER
    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1}
    num_samples: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 20_000, Split.EVAL: 500}

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields samples; there are no raw files to read in `tmp_dir`."""
        draw = random.Random(f"{self.name} {split.value}")
        made = 0
        while made < self.num_samples[split]:
            number = draw.randrange(100_000, 1_000_000)
            if (number % 41 == 0) == (split is Split.EVAL):
                yield {"inputs": str(number), "targets": in_words(number)}
                made += 1


@register_hparams
def transformer_numbers() -> HParams:
    """The quickstart's set, with fewer tokens in a batch."""
    return registry.hparams("transformer_dates").replace(batch_size=2048)
