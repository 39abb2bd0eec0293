"""IWSLT 2014, English and German: 170,000 sentences of TED talks.

Source: Cettolo et al. 2014, "Report on the 11th IWSLT Evaluation Campaign".
Licence: the talks are TED's, under CC BY-NC-ND.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import member, published
from t2t_torch.mode import Split
from t2t_torch.problem_types.text2text import ParallelCorpus, TranslateProblem
from t2t_torch.readers.text_file import aligned, read_talk
from t2t_torch.registry import register_problem

# No checksum is published.
_ARCHIVE = published(
    "iwslt14",
    "https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz",
    "https://wit3.fbk.eu/archive/2014-01/texts/de/en/de-en.tgz",
)
# The split of published results: fairseq's prepare-iwslt14.sh.
_EVERY = 23
_TEST = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")


def _corpus(english: str, german: str) -> ParallelCorpus:
    return ParallelCorpus(member(_ARCHIVE, f"de-en/{english}"), member(_ARCHIVE, f"de-en/{german}"))


_TALKS = _corpus("train.tags.de-en.en", "train.tags.de-en.de")


@register_problem("translate_ende_iwslt14")
class TranslateEndeIwslt14(TranslateProblem):
    """English to German; most published results are for `translate_ende_iwslt14_rev`.

    Every 23rd pair of the talks is for evaluation, the rest for training, including titles and
    descriptions; tested on dev2010, dev2012 and tst2010 to tst2012 together.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1, Split.TEST: 1}
    corpora: ClassVar = {
        Split.TRAIN: (_TALKS,),
        Split.EVAL: (_TALKS,),
        Split.TEST: tuple(
            _corpus(f"IWSLT14.{part}.de-en.en.xml", f"IWSLT14.{part}.de-en.de.xml")
            for part in _TEST
        ),
    }
    approx_vocab_size = 10_000  # number of merges in the usual script
    input_space_id = 3  # tensor2tensor's SpaceID.EN_TOK
    target_space_id = 8  # SpaceID.DE_TOK
    suggested_flags = "--model=transformer --hparams_set=transformer_small"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the split's pairs."""
        if split is Split.TEST:
            yield from super().generate_samples(tmp_dir, split)
            return
        paths = [file.get(tmp_dir) for file in _TALKS.files]
        number = 0
        for _, (english, german) in aligned(paths, self.bad_records, read_talk, "texts"):
            if english and german:
                number += 1
                if (number % _EVERY == 0) is (split is Split.EVAL):
                    yield {"inputs": english, "targets": german}
