"""UD English-EWT: 16,622 sentences of web text with universal parts of speech.

Source: Silveira et al. 2014, "A Gold Standard Dependency Corpus for English", LREC;
github.com/UniversalDependencies/UD_English-EWT, a version between releases 2.15 and 2.16.
Licence: CC BY-SA 4.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile
from t2t_torch.mode import Split
from t2t_torch.problem_types.words import Text2TagsProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem

# Pinned to one commit, as the treebank is updated continuously.
_MIRRORS = (
    "https://raw.githubusercontent.com/UniversalDependencies/UD_English-EWT/15d613d/",
    "https://github.com/UniversalDependencies/UD_English-EWT/raw/15d613d/",
)
_PARTS = {Split.TRAIN: "train", Split.EVAL: "dev", Split.TEST: "test"}
_SHA256 = {
    Split.TRAIN: "3fb78e2b55482c8ee00caa653af436c88c9e5bc9a73ce26e4ae3ddc79d2b7e7b",
    Split.EVAL: "531a54ff90d6ab12201c5a50c3e78e6ddac4de69abc4bce5d275d3cd29efe2b6",
    Split.TEST: "e266e515a0a7547657ed3d90d9ba46487d6bd251f27ad4269d4e8a427c8555cd",
}
_FILES = {
    split: RawFile(
        f"en_ewt-ud-{part}.conllu",
        ("ud_english_ewt", "", "UD_English-EWT"),
        [f"{mirror}en_ewt-ud-{part}.conllu" for mirror in _MIRRORS],
        _SHA256[split],
    )
    for split, part in _PARTS.items()
}


@register_problem("pos_ud_english_ewt")
class PosUdEnglishEwt(Text2TagsProblem):
    """Tags words with universal parts of speech (NOUN, VERB, ...).

    The raw files are `en_ewt-ud-{train,dev,test}.conllu`; other releases work too.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 2, Split.EVAL: 1, Split.TEST: 1}
    sources = tuple(_FILES.values())
    metrics = ("accuracy", "accuracy_per_sequence")  # one tag per word, no spans
    approx_vocab_size = 2**14
    min_word_count = 2
    lower_case_words = True
    word_characters = 16
    word_shape = True
    suggested_flags = "--model=bilstm_tagger --hparams_set=bilstm_tagger_ud --train_steps=1200"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences."""
        path = _FILES[split].get(tmp_dir)
        for record in open_records(path, format="conllu", bad=self.bad_records):
            yield {"inputs": record.values["form"], "targets": record.values["upos"]}
