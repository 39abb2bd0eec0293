from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile

import pytest

from t2t_torch.data.raw_file import unpack
from t2t_torch.errors import DataError

FILES = {"corpus/train.txt": b"eins\nzwei\n", "corpus/dev/dev.txt": b"drei\n", "README": b""}


def make_tar(path, files=FILES, links=(), mode="w:gz"):
    """Links are (name, target, type)."""
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, target, kind in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            archive.addfile(member)
    return path


def make_zip(path, files=FILES):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tree(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def assert_nothing_was_written(tmp_path, archive):
    left = {path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")}
    assert left == {archive.name}


@pytest.mark.parametrize(
    ("name", "mode"),
    [("x.tar", "w"), ("x.tgz", "w:gz"), ("x.tar.gz", "w:gz"), ("x.tar.bz2", "w:bz2"),
     ("x.tar.xz", "w:xz"), ("x.zip", None), ("X.ZIP", None)],
)  # fmt: skip
def test_archives_of_every_kind_are_unpacked(tmp_path, name, mode):
    path = tmp_path / name
    archive = make_tar(path, mode=mode) if mode else make_zip(path)
    folder = unpack(archive)
    assert folder == tmp_path / name.split(".")[0]
    assert tree(folder) == FILES
    assert tree(unpack(archive, tmp_path / "deep" / "er")) == FILES


def test_a_single_gzip_file_is_unpacked_beside_itself_or_elsewhere(tmp_path):
    with gzip.open(tmp_path / "train.en.gz", "wb") as file:
        file.write(b"one\n")
    assert unpack(tmp_path / "train.en.gz") == tmp_path / "train.en"
    assert (tmp_path / "train.en").read_bytes() == b"one\n"
    assert unpack(tmp_path / "train.en.gz", tmp_path / "a").read_bytes() == b"one\n"


def test_what_is_there_is_used_as_it_is(tmp_path):
    archive = make_tar(tmp_path / "x.tgz")
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "mine").write_bytes(b"mine")
    assert tree(unpack(archive)) == {"mine": b"mine"}


def test_what_a_killed_run_left_is_removed(tmp_path):
    archive = make_tar(tmp_path / "x.tgz")
    (tmp_path / ".x.incomplete").mkdir()
    (tmp_path / ".x.incomplete" / "half").write_bytes(b"half")
    assert tree(unpack(archive)) == FILES


ESCAPES = ["../evil", "corpus/../../evil", "/tmp/evil", "a/../../x/evil", "..", "..\\evil", "C:\\x"]


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("make", [make_tar, make_zip])
def test_a_path_that_leads_outside_is_refused(tmp_path, name, make):
    archive = make(
        tmp_path / ("x.tgz" if make is make_tar else "x.zip"), {"a": b"a", name: b"evil"}
    )
    with pytest.raises(DataError, match="outside its folder"):
        unpack(archive)
    assert_nothing_was_written(tmp_path, archive)


@pytest.mark.parametrize(
    "links",
    [
        [("l", "/etc/passwd", tarfile.SYMTYPE)],
        [("l", "../../etc/passwd", tarfile.SYMTYPE)],
        [("corpus/l", "../../x", tarfile.SYMTYPE)],
        [("l", "../secret", tarfile.LNKTYPE)],
        [("l", "/etc/passwd", tarfile.LNKTYPE)],
        # By its text, b leads to corpus; over the link a it leads above the folder.
        [("corpus/a", "..", tarfile.SYMTYPE), ("b", "corpus/a/..", tarfile.SYMTYPE)],
        [("b", "corpus/a/..", tarfile.SYMTYPE), ("corpus/a", "..", tarfile.SYMTYPE)],
        [("corpus/a", "..", tarfile.SYMTYPE), ("b", "corpus/a/..", tarfile.SYMTYPE),
         ("b/l", "x", tarfile.SYMTYPE)],
        [("b", "corpus/a/..", tarfile.SYMTYPE), ("corpus/a", "..", tarfile.SYMTYPE),
         ("b/l", "x", tarfile.SYMTYPE)],
    ],
)  # fmt: skip
def test_a_link_that_leads_outside_is_refused(tmp_path, links):
    archive = make_tar(tmp_path / "x.tgz", links=links)
    with pytest.raises(DataError, match="outside its folder"):
        unpack(archive)
    assert_nothing_was_written(tmp_path, archive)


def test_a_file_cannot_be_written_through_a_link(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    with tarfile.open(tmp_path / "x.tgz", "w:gz") as archive:
        link = tarfile.TarInfo("d")
        link.type, link.linkname = tarfile.SYMTYPE, "corpus"
        archive.addfile(link)
        member = tarfile.TarInfo("d/evil")
        archive.addfile(member, io.BytesIO())
    with pytest.raises(DataError, match="link and something else"):
        unpack(tmp_path / "x.tgz")
    assert not list(outside.iterdir())


def test_links_that_stay_inside_are_kept(tmp_path):
    links = [
        ("latest", "corpus/dev", tarfile.SYMTYPE),
        ("corpus/same", "corpus/train.txt", tarfile.LNKTYPE),
    ]
    folder = unpack(make_tar(tmp_path / "x.tgz", links=links))
    assert (folder / "latest" / "dev.txt").read_bytes() == b"drei\n"
    assert str((folder / "latest").readlink()) == "corpus/dev"
    assert (folder / "corpus" / "same").read_bytes() == FILES["corpus/train.txt"]


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_devices_are_refused(tmp_path, kind):
    archive = make_tar(tmp_path / "x.tgz", links=[("dev", "", kind)])
    with pytest.raises(DataError, match="neither file, folder nor link"):
        unpack(archive)
    assert_nothing_was_written(tmp_path, archive)


def test_links_in_a_zip_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        member = zipfile.ZipInfo("l")
        member.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(member, "/etc/passwd")
    with pytest.raises(DataError, match="link"):
        unpack(tmp_path / "x.zip")
    assert_nothing_was_written(tmp_path, tmp_path / "x.zip")


@pytest.mark.parametrize("name", ["x.tgz", "x.zip", "x.gz", "x.tar.xz"])
@pytest.mark.parametrize("part", [0, 0.5, 0.98])
def test_a_truncated_archive_is_told_and_leaves_nothing(tmp_path, name, part):
    path, content = tmp_path / name, {"noise": os.urandom(50_000)}
    if name == "x.gz":
        path.write_bytes(gzip.compress(content["noise"]))
    elif name == "x.zip":
        make_zip(path, content)
    else:
        make_tar(path, content, mode="w:xz" if name.endswith("xz") else "w:gz")
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * part)])
    if name == "x.gz" and part == 0:
        assert unpack(path).read_bytes() == b"", "gzip takes no members at all for an empty file"
        return
    with pytest.raises(DataError, match="damaged"):
        unpack(path)
    assert_nothing_was_written(tmp_path, path)


def test_archives_that_are_missing_or_unknown_are_told(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        unpack(tmp_path / "x.zip")
    with pytest.raises(DataError, match="no archive known here"):
        unpack(tmp_path / "x.rar")


def test_an_archive_is_not_unpacked_over_the_folder_it_lies_in(tmp_path):
    archive = make_tar(tmp_path / "x.tgz")
    with pytest.raises(DataError, match="folder of its own"):
        unpack(archive, tmp_path)


@pytest.mark.parametrize("ending", [".tar.gz", ".zip", ".gz"])
def test_an_archive_that_unpacks_to_far_more_than_its_size_is_refused(
    ending, tmp_path, monkeypatch
):
    monkeypatch.setattr("t2t_torch.data.raw_file._ALWAYS_ALLOWED", 1 << 20)
    path = tmp_path / f"bomb{ending}"
    zeros = {f"zeros{n}": b"\0" * (1 << 20) for n in range(3)}
    if ending == ".gz":
        path.write_bytes(gzip.compress(b"".join(zeros.values())))
    elif ending == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in zeros.items():
                archive.writestr(name, content)
    else:
        make_tar(path, zeros)
    with pytest.raises(DataError, match="over 200 times its own size"):
        unpack(path)
    assert [one.name for one in tmp_path.iterdir() if not one.name.startswith(".")] == [path.name]
