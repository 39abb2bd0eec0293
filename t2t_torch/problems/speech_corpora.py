"""Recorded speech: LibriSpeech, 1,000 hours of English audio books, and Common Voice.

LibriSpeech: Panayotov et al. 2015, "LibriSpeech: an ASR corpus based on public domain audio books";
https://www.openslr.org/12; CC BY 4.0, at 16 kHz.  Common Voice, sentences in many languages, read
by volunteers: Ardila et al. 2020, "Common Voice: A Massively-Multilingual Speech Corpus",
arXiv:1912.06670; https://commonvoice.mozilla.org; CC0.
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
from t2t_torch.readers.formats import open_records
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


_VOICE_FOLDERS = ("common_voice", "cv_corpus_v1", "")


@register_problem("common_voice")
class CommonVoice(Speech2TextProblem):
    """Validated sentences of a language, of the user's copy of a release.

    The raw files are in `common_voice` in the folder of raw files: of today's releases `train.tsv`,
    `dev.tsv`, `test.tsv` and the folder `clips`; of the first one (2017) `cv-valid-train.csv`,
    `cv-valid-dev.csv`, `cv-valid-test.csv` and the folders of the same names.  Sounds are converted
    to 16 kHz.

    Attributes:
      lists: possible lists of sentences by split, without their suffix.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 100, Split.EVAL: 1, Split.TEST: 1}
    resample = True
    lists: ClassVar[Mapping[Split, Sequence[str]]] = {
        Split.TRAIN: ("train.tsv", "cv-valid-train.csv"),
        Split.EVAL: ("dev.tsv", "cv-valid-dev.csv"),
        Split.TEST: ("test.tsv", "cv-valid-test.csv"),
    }
    suggested_flags = "--model=transformer --hparams_set=transformer_common_voice"

    def raw_files(self, tmp_dir: Path) -> Sequence[Path]:
        """Returns the lists of sentences that are there."""
        lists = [self._list(tmp_dir, split) for split in self.shards]
        return [path for path in lists if path is not None]

    def prepare(self, tmp_dir: Path) -> None:
        """Checks that the lists are there: releases are downloaded after an agreement only."""
        if missing := [split for split in self.shards if self._list(tmp_dir, split) is None]:
            names = ", ".join(" or ".join(self.lists[split]) for split in missing)
            raise DataError(
                f"{self.name} reads {names} in {tmp_dir / _VOICE_FOLDERS[0]}, which are not there. "
                "Download a language from https://commonvoice.mozilla.org/datasets and unpack it "
                "there."
            )

    def _list(self, tmp_dir: Path, split: Split) -> Path | None:
        paths = (tmp_dir / folder / name for folder in _VOICE_FOLDERS for name in self.lists[split])
        return next((path for path in paths if path.is_file()), None)

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences of a split; a sound that is not there is a bad record."""
        path = self._list(tmp_dir, split)
        if path is None:
            raise DataError(f"{self.name} has no list of sentences: {self.lists[split]}.")
        is_first = path.suffix == ".csv"
        for record in open_records(path, bad=self.bad_records):
            row = record.values
            columns = ("filename", "text") if is_first else ("path", "sentence")
            name, text = (str(row.get(column) or "").strip() for column in columns)
            sound = (path.parent if is_first else path.parent / "clips") / name
            if not name or not text or not sound.is_file():
                self.bad_records.report(record.place, f"{name!r} has no sound or no text")
                continue
            yield {"inputs": sound, "targets": text}


@register_problem("common_voice_clean")
class CommonVoiceClean(CommonVoice):
    """The same, by tensor2tensor's name."""


@register_problem("common_voice_noisy")
class CommonVoiceNoisy(CommonVoice):
    """Sentences of the first release that nobody has validated."""

    lists: ClassVar[Mapping[Split, Sequence[str]]] = {
        Split.TRAIN: ("cv-other-train.csv",),
        Split.EVAL: ("cv-other-dev.csv",),
        Split.TEST: ("cv-other-test.csv",),
    }
