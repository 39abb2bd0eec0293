"""DocBin files of spaCy; the small one here was written by spaCy 3.8."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.formats import FORMATS, open_records
from t2t_torch.readers.head import Head

FILE = base64.b64decode(
    "eNrrXF6WWlScmZ+32EDPcGliSUlR8RRHb1+/ZSX52al5xUcZFeqVTBeWeNR+2qRywn21XeEVJgZUsG9n6LGHD7155NPi"
    "3holvRNEl8+zknNJXqrfLGh1/cDjZsPbzFDxBkYIfdX9jnqP7kZ5Ld24JEflm5/R9U+aVWy6LI0vfeajxdK1cx9ehunf"
    "JMwxTXlXca3ipGteuQrzGGHmM6LJC/5wO/TZKrOsiLv1sr/76nh08xcdWuPz5mb9ehiNLt+qvaKev1Kia6LJEpHMIBVd"
    "NGmGZcUFicmpxUc4GUEAKMC4PCc1L70ko/gIBweIC8TLi0uKMvPSi+8wiC1YqLBQb5Gz8yKXkMXuAa6LPDIXefot8vNb"
    "7OcXsNovtSQjtSgnMS+leFGox/Kow3uKMpMzFscHBywGii3KyFySk1lcsiK3UqEgB2jp6jwk9flpi4Gc5VUQPUuSE0uK"
    "JzUtzk0sOG3/5gwInF1SkpiTfdp+50wQmAWVOwnhQeU+QPy0NC0nMb14UuOmjMTi+NK87Lz88rx4iD8PYRM8vBpI58Wn"
    "F+WXFhRPOsI4AYgAYI3TvA=="
)


def test_documents_have_words_tags_and_categories(tmp_path: Path) -> None:
    path = tmp_path / "train.spacy"
    path.write_bytes(FILE)
    first, second = open_records(path)
    assert first.values == {
        "text": "list of Zürich and the Netherlands .",
        "words": ["list", "of", "Zürich", "and", "the", "Netherlands", "."],
        "tags": ["O", "O", "B-GPE", "O", "B-my_place", "I-my_place", "O"],
        "pos": ["NN", "IN", "NNP", "CC", "DT", "NNP", "."],
        "labels": ["map"],
        "label": "map",
    }
    assert (second.values["words"], second.values["label"]) == (["Hi"], "talk")


@pytest.mark.parametrize(
    "content",
    [
        FILE[:-9],
        zlib.compress(zlib.decompress(FILE)[:-9]),
        zlib.compress(b"\x91" * 10_000),
        zlib.compress(b"\x81\xa5attrs\x90"),
        zlib.compress(b"\xdd\xff\xff\xff\xff"),
        b"text",
    ],
)
def test_damaged_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "train.spacy"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"train\.spacy is no DocBin of spaCy"):
        list(open_records(path))


def test_it_matches_by_its_content(tmp_path: Path) -> None:
    matches = FORMATS["docbin"].matches
    assert matches is not None
    found = []
    for content in (FILE, b"text", zlib.compress(b"text")):
        (tmp_path / "file").write_bytes(content)
        found.append(matches(Head(tmp_path / "file")))
    assert [match is not None for match in found] == [True, False, False]
