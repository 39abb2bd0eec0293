from __future__ import annotations

import gzip
import hashlib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.data import raw_file
from t2t_torch.data.raw_file import RawFile, existing_files, find, get_all, unknown_files
from t2t_torch.errors import DataError


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was downloaded: nothing is, it is only noted."""
    asked: list[tuple[Any, ...]] = []

    def fetch(urls: list[str], tmp_dir: Path, *, filename: str, sha256: str | None) -> Path:
        asked.append((list(urls), tmp_dir, filename, sha256))
        return tmp_dir / filename

    monkeypatch.setattr(raw_file, "fetch", fetch)
    return asked


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(b"text\n") if path.suffix == ".gz" else b"text\n")
    return path


@pytest.mark.parametrize("place", ["a.txt", "a.txt.gz", "mine/a.txt", "mine/a.txt.gz"])
def test_a_file_is_found_packed_or_not_in_any_of_its_folders(
    place: str, tmp_path: Path, fetched: list[Any]
) -> None:
    path = put(tmp_path / place)
    assert find("a.txt", tmp_path, folders=("mine", "")) == path
    assert RawFile("a.txt", ("mine", ""), ["http://x/a.txt"]).get(tmp_path) == path
    assert not fetched


def test_folders_are_looked_at_in_their_order(tmp_path: Path) -> None:
    put(tmp_path / "a.txt")
    first = put(tmp_path / "mine" / "a.txt")
    assert find("a.txt", tmp_path, folders=("mine", "")) == first


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://x/b.txt", "a.txt"),
        ("https://x/b.txt.gz", "a.txt.gz"),
        ("https://x/b.gz?raw=1", "a.txt.gz"),
    ],
)
def test_a_download_goes_to_the_first_folder_under_the_name_it_is_found_by(
    url: str, name: str, tmp_path: Path, fetched: list[Any]
) -> None:
    file = RawFile("a.txt", ("mine", ""), [url, "https://y/"], "00ff")
    assert file.get(tmp_path) == tmp_path / "mine" / name
    assert fetched == [([url, "https://y/"], tmp_path / "mine", name, "00ff")]


def test_the_name_of_a_packed_archive_is_left_as_it_is(tmp_path: Path, fetched: list[Any]) -> None:
    RawFile("a.tar.gz", urls=["https://x/a.tar.gz"]).get(tmp_path)
    assert fetched[0][2] == "a.tar.gz"


def test_other_names_count_where_the_first_is_absent(tmp_path: Path) -> None:
    file = RawFile("a.txt", other_names=("b.txt",))
    second = put(tmp_path / "b.txt.gz")
    assert file.get(tmp_path) == second
    first = put(tmp_path / "a.txt")
    assert file.get(tmp_path) == first


@pytest.fixture
def member(tmp_path: Path) -> RawFile:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("data/a.txt", "text\n")
    return RawFile("a.txt", archive=RawFile("all.zip"), inside=("elsewhere", "data"))


def test_what_is_in_an_archive_is_unpacked(tmp_path: Path, member: RawFile) -> None:
    assert existing_files([member, member], tmp_path) == [tmp_path / "all.zip"]
    assert member.get(tmp_path) == tmp_path / "all" / "data" / "a.txt"
    assert member.find(tmp_path) == tmp_path / "all.zip"


def test_a_file_by_itself_goes_before_the_archive(tmp_path: Path, member: RawFile) -> None:
    path = put(tmp_path / "a.txt")
    assert member.get(tmp_path) == path
    assert existing_files([member], tmp_path) == [path]


def test_an_archive_without_the_file_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("b.txt", "text\n")
    file = RawFile("a.txt", archive=RawFile("all.zip"), inside=("data",))
    with pytest.raises(DataError, match=r"all\.zip holds no a\.txt in data, .*Put it, .* in /"):
        file.get(tmp_path)


def test_a_file_that_cannot_be_had_says_where_to_put_it(tmp_path: Path) -> None:
    file = RawFile("a.txt", ("mine", ""))
    assert file.find(tmp_path) is None and existing_files([file], tmp_path) == []
    expected = rf"a\.txt is not there. Put it, packed with gzip or not, in {tmp_path}/mine or"
    with pytest.raises(DataError, match=expected):
        file.get(tmp_path)


def test_all_files_that_are_missing_are_told_at_once_an_archive_once(tmp_path: Path) -> None:
    archive = RawFile("all.zip")
    members = [RawFile(name, archive=archive) for name in ("a", "b")]
    with pytest.raises(DataError) as error:
        get_all([*members, RawFile("c.txt"), RawFile("d.txt")], tmp_path)
    told = str(error.value).splitlines()
    assert [line.split()[0] for line in told] == ["all.zip", "c.txt", "d.txt"]


def test_a_file_that_is_not_the_known_one_is_told(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt.gz")
    known = hashlib.sha256(path.read_bytes()).hexdigest()
    url = ["https://x/a.txt.gz"]
    assert unknown_files([RawFile("a.txt", urls=url, sha256=known)], tmp_path) == []
    (told,) = unknown_files([RawFile("a.txt", urls=url, sha256="00")] * 2, tmp_path)
    assert told.startswith(f"{path} is not the file that is expected (sha256 00)")
    assert "fetched again" in told
    (told,) = unknown_files([RawFile("a", archive=RawFile("a.txt.gz", sha256="00"))], tmp_path)
    assert str(path) in told


def test_of_a_file_that_is_packed_in_another_way_nothing_is_known(tmp_path: Path) -> None:
    put(tmp_path / "a.txt")
    file = RawFile("a.txt", urls=["https://x/a.txt.gz"], sha256="00")
    assert unknown_files([file], tmp_path) == []


def test_an_archive_that_cannot_be_unpacked_and_is_not_the_known_one_is_told(
    tmp_path: Path,
) -> None:
    (tmp_path / "all.zip").write_bytes(b"damaged")
    file = RawFile("a.txt", archive=RawFile("all.zip", sha256="00"))
    with pytest.raises(DataError, match=r"all\.zip is not the file that is expected"):
        get_all([file], tmp_path)
