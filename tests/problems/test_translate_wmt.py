from __future__ import annotations

from pathlib import Path

import pytest
import tiny_raw_files

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.readers.text_file import BadRecords


def pairs(folder: Path, name: str, split: Split) -> list[tuple[str, str]]:
    samples = registry.problem(name).generate_samples(folder, split)
    return [(sample["inputs"], sample["targets"]) for sample in samples]


def test_the_corpora_come_one_after_another_without_blank_pairs(tmp_path: Path) -> None:
    tiny_raw_files.write_wmt(tmp_path)
    english, german = tiny_raw_files.ENGLISH, tiny_raw_files.GERMAN
    strange = (tiny_raw_files.STRANGE, tiny_raw_files.STRANGE)
    dealt = list(zip(english, german, strict=True))
    commentary = [dealt[0], strange, dealt[1], dealt[2]]
    found = pairs(tmp_path, "translate_ende_wmt32k", Split.TRAIN)
    assert found == [*commentary, dealt[3], *dealt]


def test_line_ends_of_unicode_do_not_shift_a_translation(tmp_path: Path) -> None:
    tiny_raw_files.write_wmt(tmp_path)
    found = dict(pairs(tmp_path, "translate_ende_wmt32k", Split.TRAIN))
    assert found["Two dogs run."] == "Zwei Hunde laufen."
    assert found[tiny_raw_files.STRANGE] == tiny_raw_files.STRANGE


def test_the_test_set_is_read_from_sgml_with_its_entities(tmp_path: Path) -> None:
    tiny_raw_files.write_wmt(tmp_path)
    assert pairs(tmp_path, "translate_ende_wmt32k", Split.TEST) == [
        ('He said "A & B".', 'Er sagte "A & B".'),
        ("One house.", "Ein Haus."),
    ]
    assert pairs(tmp_path, "translate_enfr_wmt32k", Split.TEST)[0][1] == 'Il a dit "A & B".'


def test_packed_members_of_an_archive_are_read(tmp_path: Path) -> None:
    tiny_raw_files.write_wmt(tmp_path)
    found = pairs(tmp_path, "translate_enfr_wmt32k", Split.TRAIN)
    assert (tmp_path / "training-giga-fren" / "giga-fren.release2.fixed.en.gz").exists()
    assert found.count(("A girl waits for the bus.", "Une fille attend le bus.")) == 2


def spoil(folder: Path, german: bytes) -> None:
    """Puts a News Commentary of three English lines and some German ones there, unpacked."""
    tiny_raw_files.write_wmt(folder)
    place = folder / "training-parallel-nc-v13"
    place.mkdir()
    (place / "news-commentary-v13.de-en.en").write_bytes(b"a\nb\nc\n")
    (place / "news-commentary-v13.de-en.de").write_bytes(german)


def test_files_of_different_length_are_refused(tmp_path: Path) -> None:
    spoil(tmp_path, b"A\nB\n")
    with pytest.raises(DataError, match=r"v13\.de-en\.de ends after 2 lines.*de-en\.en has more"):
        pairs(tmp_path, "translate_ende_wmt32k", Split.TRAIN)


def test_a_line_that_is_no_text_is_left_out_with_its_translation(tmp_path: Path) -> None:
    spoil(tmp_path, b"A\n\xff\nC\n")
    with pytest.raises(DataError, match=r"de-en\.de, line 2, column 1: byte 0xff is not UTF-8"):
        pairs(tmp_path, "translate_ende_wmt32k", Split.TRAIN)
    problem = registry.problem("translate_ende_wmt32k")
    problem.bad_records = BadRecords("skip")
    samples = list(problem.generate_samples(tmp_path, Split.TRAIN))
    assert samples[:2] == [{"inputs": "a", "targets": "A"}, {"inputs": "c", "targets": "C"}]
    assert problem.bad_records.count == 1
