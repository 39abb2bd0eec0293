"""LibriSpeech: 1,000 hours of English audio books, read aloud, at 16 kHz.

Source: Panayotov et al. 2015, "LibriSpeech: an ASR corpus based on public domain audio books";
https://www.openslr.org/12.  Licence: CC BY 4.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile, unpack
from t2t_torch.errors import DataError
from t2t_torch.files import read_lines
from t2t_torch.mode import Split
from t2t_torch.problem_types.speech import Speech2TextProblem
from t2t_torch.readers.text_file import Place
from t2t_torch.registry import register_problem

_MIRRORS = (
    "https://www.openslr.org/resources/12/",
    "https://openslr.elda.org/resources/12/",
    "https://openslr.trmal.net/resources/12/",
)
_TRAIN = ("train-clean-100", "train-clean-360", "train-other-500")
_FOLDER = "LibriSpeech"
_ARCHIVES = {
    part: RawFile(
        f"{part}.tar.gz", ("librispeech", ""), [f"{url}{part}.tar.gz" for url in _MIRRORS]
    )
    for part in (*_TRAIN, "dev-clean", "dev-other", "test-clean", "test-other")
}


@register_problem("librispeech")
class Librispeech(Speech2TextProblem):
    """All 960 hours; EVAL and TEST are the clean and the other parts.

    The raw files are the archives, or their unpacked folders in `LibriSpeech`.  The targets are
    upper-case letters, as published.

    Attributes:
      parts: parts of the corpus by split.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 100, Split.EVAL: 1, Split.TEST: 1}
    parts: ClassVar[Mapping[Split, Sequence[str]]] = {
        Split.TRAIN: _TRAIN,
        Split.EVAL: ("dev-clean", "dev-other"),
        Split.TEST: ("test-clean", "test-other"),
    }
    suggested_flags = "--model=transformer --hparams_set=transformer_librispeech"

    def raw_files(self, tmp_dir: Path) -> Sequence[Path]:
        """Returns the archives that are there; those of unpacked folders are not read."""
        archives = [_ARCHIVES[part].find(tmp_dir) for part in self._parts]
        return [path for path in archives if path is not None]

    def prepare(self, tmp_dir: Path) -> None:
        """Downloads and unpacks the parts that are not there."""
        for part in self._parts:
            _folder(part, tmp_dir)

    @property
    def _parts(self) -> list[str]:
        return [part for split in self.shards for part in self.parts[split]]

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the utterances of each part, in the order of their names."""
        for part in self.parts[split]:
            folder = _folder(part, tmp_dir)
            transcripts = {}
            for path in folder.glob("*/*/*.trans.txt"):
                for number, line in enumerate(read_lines(path), 1):
                    name, _, text = line.strip().partition(" ")
                    if text:
                        transcripts[name] = path, text
                    else:
                        self.bad_records.report(Place(path, number), f"{line!r} has no text")
            for name, (path, text) in sorted(transcripts.items()):
                yield {"inputs": path.parent / f"{name}.flac", "targets": text}


def _folder(part: str, tmp_dir: Path) -> Path:
    """Returns the folder of a part, unpacked and downloaded if necessary."""
    for top in (tmp_dir, tmp_dir / "librispeech"):
        if (top / _FOLDER / part).is_dir():
            return top / _FOLDER / part
    archive = _ARCHIVES[part].get(tmp_dir)
    folder = unpack(archive) / _FOLDER / part
    if not folder.is_dir():
        raise DataError(f"{archive} has no folder {_FOLDER}/{part}. Remove it and fetch it again.")
    return folder


@register_problem("librispeech_clean_small")
class LibrispeechCleanSmall(Librispeech):
    """100 hours of clean speech; EVAL and TEST are clean."""

    parts: ClassVar[Mapping[Split, Sequence[str]]] = {
        Split.TRAIN: _TRAIN[:1],
        Split.EVAL: ("dev-clean",),
        Split.TEST: ("test-clean",),
    }


@register_problem("librispeech_clean")
class LibrispeechClean(LibrispeechCleanSmall):
    """460 hours of clean speech; EVAL and TEST are clean."""

    parts: ClassVar[Mapping[Split, Sequence[str]]] = {
        **LibrispeechCleanSmall.parts,
        Split.TRAIN: _TRAIN[:2],
    }


@register_problem("librispeech_noisy")
class LibrispeechNoisy(Librispeech):
    """500 hours of other speech; EVAL and TEST are other, too."""

    parts: ClassVar[Mapping[Split, Sequence[str]]] = {
        Split.TRAIN: _TRAIN[2:],
        Split.EVAL: ("dev-other",),
        Split.TEST: ("test-other",),
    }


@register_problem("librispeech_train_full_test_clean")
class LibrispeechTrainFullTestClean(LibrispeechCleanSmall):
    """All 960 hours; EVAL and TEST are clean."""

    parts: ClassVar[Mapping[Split, Sequence[str]]] = {
        **LibrispeechCleanSmall.parts,
        Split.TRAIN: _TRAIN,
    }


@register_problem("librispeech_train_full_test_other")
class LibrispeechTrainFullTestOther(LibrispeechNoisy):
    """All 960 hours; EVAL and TEST are other."""

    parts: ClassVar[Mapping[Split, Sequence[str]]] = {**LibrispeechNoisy.parts, Split.TRAIN: _TRAIN}
