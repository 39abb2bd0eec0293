"""Where outputs go."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from t2t_torch.errors import UsageError
from t2t_torch.files import check_target, goes_to_stdout, is_stream, open_target


@pytest.mark.parametrize("how", ["itself", "symlink", "hard link", "of a symlink"])
def test_what_is_read_is_never_written_over(tmp_path: Path, how: str) -> None:
    source, other = tmp_path / "in.txt", tmp_path / "other"
    source.write_text("1 2\n")
    target = source
    if how == "symlink":
        other.symlink_to(source)
        target = other
    elif how == "hard link":
        other.hardlink_to(source)
        target = other
    elif how == "of a symlink":
        other.symlink_to(source)
        source, target = other, source
    with pytest.raises(UsageError, match="would overwrite"):
        check_target(target, tmp_path / "reference", source)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        check_target(tmp_path)


@pytest.mark.parametrize("name", ["file/out.txt", "x" * 250, "loop"])
def test_what_cannot_be_written_is_refused_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(UsageError, match=re.escape(f"cannot write {tmp_path / name}")):
        check_target(tmp_path / name)


def test_a_check_leaves_nothing_but_the_folder(tmp_path: Path) -> None:
    check_target(tmp_path / "new" / "out.txt")
    assert [path.name for path in tmp_path.rglob("*")] == ["new"]


def test_a_link_stays_and_its_file_is_replaced_whole(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    link.symlink_to(Path("there", "real.txt"))
    check_target(link)
    with open_target(link) as stream:
        stream.write("new")
        stream.flush()
        assert real.read_text() == "old"
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    check_target(pipe)
    with open_target(pipe) as stream:
        stream.write("5 6\n")
    reader.join(timeout=120)
    assert read == ["5 6\n"]
    assert pipe.is_fifo()
    assert is_stream(pipe)


def test_a_terminal_is_written_to(tmp_path: Path) -> None:
    reader, terminal = pty.openpty()
    link = tmp_path / "tty"  # not the device itself: a defect would rename a file over it
    link.symlink_to(os.ttyname(terminal))
    with open_target(link) as stream:
        stream.write("5 6\n")
    assert os.read(reader, 100).strip() == b"5 6"
    assert is_stream(link)
    os.close(reader)
    os.close(terminal)


def test_the_standard_output_goes_on_where_it_is(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    script = (
        "import sys; from pathlib import Path\n"
        "from t2t_torch.files import goes_to_stdout, open_target\n"
        "print('before'); path = Path(sys.argv[1]); assert goes_to_stdout(path)\n"
        "with open_target(path) as stream: stream.write('outputs\\n')\n"
        "print('after')\n"
    )
    with file.open("w") as stream:
        subprocess.run([sys.executable, "-c", script, str(file)], stdout=stream, check=True)
    assert file.read_text() == "before\noutputs\nafter\n"
    assert not goes_to_stdout(file)
