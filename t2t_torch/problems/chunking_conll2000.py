"""CoNLL-2000: 10,948 sentences of the Wall Street Journal, split into phrases.

Source: Tjong Kim Sang and Buchholz 2000, "Introduction to the CoNLL-2000 Shared Task: Chunking".
Licence: none stated; the text is from the Penn Treebank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile
from t2t_torch.data.vocabulary_builder import VocabularyBuilder
from t2t_torch.features import Feature, WordLabel
from t2t_torch.mode import Split
from t2t_torch.problem_types.words import Text2TagsProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem

# Compressed by the shared task's site.  Only checksums of the unpacked files are known.
_URL = "https://www.clips.uantwerpen.be/conll2000/chunking/"
_TRAIN, _TEST = (
    RawFile(f"{part}.txt", ("conll2000", ""), [f"{_URL}{part}.txt.gz"])
    for part in ("train", "test")
)
_COLUMNS = ("word", "pos", "chunk")


@register_problem("chunking_conll2000")
class ChunkingConll2000(Text2TagsProblem):
    """Tags words with phrase chunks: B-NP, I-NP, O, ...

    The raw files are `train.txt` and `test.txt`.  There is no development split: the last tenth of
    the training sentences is EVAL.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 2, Split.EVAL: 1, Split.TEST: 1}
    sources = (_TRAIN, _TEST)
    approx_vocab_size = 2**14
    min_word_count = 2
    lower_case_words = True
    word_characters = 16
    word_shape = True
    suggested_flags = (
        "--model=bilstm_tagger --hparams_set=bilstm_tagger_conll2000 --train_steps=1400"
    )

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences of a split."""
        for sample in self._sentences(tmp_dir, split):
            yield {field: sample[field] for field in ("inputs", "targets")}

    def _sentences(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences with their parts of speech."""
        path = (_TEST if split is Split.TEST else _TRAIN).get(tmp_dir)
        options = {"columns": _COLUMNS}
        records = list(open_records(path, format="conll", bad=self.bad_records, options=options))
        cut = len(records) * 9 // 10
        if split is not Split.TEST:
            records = records[:cut] if split is Split.TRAIN else records[cut:]
        for record in records:
            values = record.values
            yield {"inputs": values["word"], "pos": values["pos"], "targets": values["chunk"]}


@register_problem("chunking_conll2000_pos")
class ChunkingConll2000Pos(ChunkingConll2000):
    """The same with the part of speech of each word as an input, as in the shared task.

    The parts of speech are predicted by Brill's tagger, also in the test split.  At prediction
    time the field "pos" must hold them.
    """

    def learners(self) -> Sequence[VocabularyBuilder]:
        """The vocabulary and those of word features, chunks and parts of speech."""
        return [*super().learners(), *self.label_learner("pos")]

    def words(self, directory: Path) -> dict[str, Feature]:
        """Returns the words, their features and their parts of speech."""
        tags = WordLabel(self.words_field, self.label_encoder(directory, "pos"), field="pos")
        return {**super().words(directory), "inputs_pos": tags}

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences of a split."""
        return self._sentences(tmp_dir, split)
