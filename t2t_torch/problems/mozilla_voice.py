"""Common Voice: sentences in many languages, read by volunteers.

Source: Ardila et al. 2020, "Common Voice: A Massively-Multilingual Speech Corpus",
arXiv:1912.06670; https://commonvoice.mozilla.org.  Licence: CC0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.problem_types.speech import Speech2TextProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem

_FOLDERS = ("common_voice", "cv_corpus_v1", "")


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
        missing = [split for split in self.shards if self._list(tmp_dir, split) is None]
        if missing:
            names = ", ".join(" or ".join(self.lists[split]) for split in missing)
            raise DataError(
                f"{self.name} reads {names} in {tmp_dir / _FOLDERS[0]}, which are not there. "
                "Download a language from https://commonvoice.mozilla.org/datasets and unpack it "
                "there."
            )

    def _list(self, tmp_dir: Path, split: Split) -> Path | None:
        paths = (tmp_dir / folder / name for folder in _FOLDERS for name in self.lists[split])
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
