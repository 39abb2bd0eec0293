"""Translation problems from parallel files, and question answering with generated answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile, existing_files, matching
from t2t_torch.features import Features, Text
from t2t_torch.mode import Split
from t2t_torch.readers.delimited import read_tsv
from t2t_torch.readers.sgm import read_segments
from t2t_torch.readers.text_file import BadRecords, aligned
from t2t_torch.text_problem import Text2TextProblem, TextProblem

_MARKED_UP = (".sgm", ".sgml", ".xml")


@dataclass(frozen=True)
class ParallelCorpus:
    """Texts and their translations, in two files or in one.

    Attributes:
      inputs: the source file, one text per line, or <seg>...</seg> elements if its name ends in
        .sgm, .sgml or .xml.
      targets: the file of the translations, in the same order; None if `inputs` holds both in
        tab-separated columns.
      columns: indices of the source and target columns, from 0, for tab-separated files.
      pattern: pattern of the tab-separated files if `inputs` is an archive of several.
    """

    inputs: RawFile
    targets: RawFile | None = None
    columns: tuple[int, int] = (0, 1)
    pattern: str = ""

    @property
    def files(self) -> tuple[RawFile, ...]:
        """The one or two files."""
        return (self.inputs,) if self.targets is None else (self.inputs, self.targets)

    def pairs(self, tmp_dir: Path, bad: BadRecords) -> Iterator[tuple[str, str]]:
        """Yields the stripped texts and translations.

        Raises:
          DataError: a file is missing or malformed, or the numbers of texts differ.
        """
        if self.targets is None:
            tables = [self.inputs.get(tmp_dir)]
            if self.pattern:
                tables = matching(self.inputs, tmp_dir, self.pattern)
            first, second = map(str, self.columns)
            for table in tables:
                for record in read_tsv(table, bad, header=False):
                    yield record.values[first].strip(), record.values[second].strip()
            return
        paths = [file.get(tmp_dir) for file in self.files]
        of: Any = (read_segments, "segments") if self.inputs.name.endswith(_MARKED_UP) else ()
        for _, texts in aligned(paths, bad, *of):
            yield texts[0].strip(), texts[1].strip()


class TranslateProblem(Text2TextProblem):
    """Translation of a text.

    Pairs with a blank side are skipped, as in tensor2tensor.

    Attributes:
      corpora: the corpora of each split, read in order.
    """

    corpora: ClassVar[Mapping[Split, Sequence[ParallelCorpus]]]
    suggested_flags = "--model=transformer --hparams_set=transformer_base"

    def raw_files(self, tmp_dir: Path) -> list[Path]:
        """Returns the existing files of the corpora."""
        return existing_files(self._files(), tmp_dir)

    def prepare(self, tmp_dir: Path) -> None:
        """Downloads and unpacks the files of the corpora."""
        for file in self._files():
            file.get(tmp_dir)

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the pairs without a blank side."""
        for corpus in self.corpora_there(tmp_dir, split):
            for inputs, targets in corpus.pairs(tmp_dir, self.bad_records):
                if inputs and targets:
                    yield {"inputs": inputs, "targets": targets}

    def corpora_there(self, tmp_dir: Path, split: Split) -> Sequence[ParallelCorpus]:
        """Returns the corpora of a split, with the optional ones whose files are there."""
        return self.corpora[split]

    def _files(self) -> list[RawFile]:
        corpora = (corpus for split in self.shards for corpus in self.corpora[split])
        return [file for corpus in corpora for file in corpus.files]


class QuestionContext2TextProblem(TextProblem):
    """Question answering on a context, with a generated answer.

    `generate_samples` yields {"inputs": the question, "context": str, "targets": the answer}.
    """

    text_fields = ("inputs", "context", "targets")
    batch_size_means_tokens = True

    def stored_features(self, directory: Path) -> Features:
        """Returns the features of the three texts, which share one encoder."""
        text = Text(self.encoder(directory))
        inputs = {"inputs": text, "context": text, **self.dense(directory)}
        return Features(inputs, {"targets": text}, notes=self.weights())
