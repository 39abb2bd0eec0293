"""Parallel text files of the user, without writing code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from t2t_torch.errors import DataError
from t2t_torch.files import read_lines, read_parallel
from t2t_torch.mode import Split
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import RawVocabularyProblem, Text2TextProblem

_PARTS = {Split.TRAIN: "train", Split.EVAL: "eval"}


@register_problem("text2text_tmpdir")
class Text2TextTmpdir(Text2TextProblem):
    """Reads four files in `--tmp_dir`: {inputs,targets}.{train,eval}.txt.

    Line n of the inputs corresponds to line n of the targets.  Files may be gzip-compressed.
    """

    def raw_files(self, tmp_dir: Path) -> list[Path]:
        """Returns the four files."""
        return [path for split in self.shards for path in _files(tmp_dir, split)]

    def prepare(self, tmp_dir: Path) -> None:
        """Checks that the four files exist; DataError names all missing ones."""
        files = self.raw_files(tmp_dir)
        if missing := [path.name for path in files if not path.is_file()]:
            raise DataError(
                f"{self.name} reads {', '.join(path.name for path in files)} in --tmp_dir, "
                f"one text a line; missing in {tmp_dir}: {', '.join(missing)}. Put them there."
            )

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the pairs of lines; DataError if there are none."""
        files = _files(tmp_dir, split)
        empty = True
        for inputs, targets in read_parallel(*files):
            empty = False
            yield {"inputs": inputs, "targets": targets}
        if empty:
            raise DataError(
                f"{' and '.join(map(str, files))} are empty; at least one line in each was "
                "expected. Write one text a line."
            )


@register_problem("text2text_tmpdir_tokens")
class Text2TextTmpdirTokens(RawVocabularyProblem, Text2TextTmpdir):
    """The same in whole words, those of a fifth file: `vocab.txt`, with one word per line.

    Padding, end and unknown word are added; words that are not listed become the unknown word.
    """

    def raw_files(self, tmp_dir: Path) -> list[Path]:
        """Returns the five files."""
        return [*super().raw_files(tmp_dir), tmp_dir / "vocab.txt"]

    def vocabulary_words(self, tmp_dir: Path) -> Iterator[str]:
        """Yields the words of `vocab.txt`."""
        return (line.strip() for line in read_lines(tmp_dir / "vocab.txt"))


def _files(tmp_dir: Path, split: Split) -> tuple[Path, Path]:
    part = _PARTS[split]
    return tmp_dir / f"inputs.{part}.txt", tmp_dir / f"targets.{part}.txt"
