from __future__ import annotations

import hashlib
import http.server
import socket
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from absl import logging

from t2t_torch.data.raw_file import fetch
from t2t_torch.errors import DataError

CONTENT = b"Zwei junge Manner\n" * 50_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """/good, /short (closes early), /wrong (other bytes), /slow (never answers); else 404."""

    def do_GET(self):
        self.server.asked.append(self.path)
        name = self.path.strip("/").split("/")[0].split(".")[0]
        if name == "slow":
            self.server.released.wait()
            return
        if name not in ("good", "short", "wrong"):
            self.send_error(404)
            return
        content = CONTENT[:-1] + b"!" if name == "wrong" else CONTENT
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:1000] if name == "short" else content)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked, server.released = [], threading.Event()
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # seconds
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


def visible(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_a_file_is_downloaded_and_checked(server, tmp_path):
    path = fetch(f"{server.url}/good.txt", tmp_path / "raw", sha256=SHA256)
    assert path == tmp_path / "raw" / "good.txt"
    assert path.read_bytes() == CONTENT
    assert visible(tmp_path / "raw") == ["good.txt"]


def test_mirrors_are_tried_in_order_until_one_gives_the_file_whole(server, tmp_path):
    mirrors = [f"{server.url}/{name}" for name in ("missing", "short", "wrong", "good", "unasked")]
    path = fetch(mirrors, tmp_path, filename="x.txt", sha256=SHA256)
    assert path.read_bytes() == CONTENT
    assert server.asked == ["/missing", "/short", "/wrong", "/good"]
    assert visible(tmp_path) == ["x.txt"]


def test_when_no_mirror_helps_all_answers_and_a_way_out_are_told(server, tmp_path):
    mirrors = [f"{server.url}/{name}" for name in ("missing", "short", "wrong")]
    mirrors += ["http://127.0.0.1:1/refused", "nonsense"]
    with pytest.raises(DataError) as error:
        fetch(mirrors, tmp_path, filename="x.txt", sha256=SHA256)
    told = str(error.value)
    assert "/missing: HTTP status 404" in told
    assert f"/short: the connection ended after 1000 of {len(CONTENT)} bytes" in told
    assert f"/wrong: expected sha256 {SHA256}, found" in told
    assert "Connection refused" in told
    assert "nonsense: unknown url type" in told
    assert f"put it at {tmp_path / 'x.txt'}" in told
    assert visible(tmp_path) == []


def test_a_host_that_is_not_found_is_told_as_that(tmp_path, monkeypatch):
    def urlopen(*_, **__):
        raise urllib.error.URLError(socket.gaierror(-2, "Name or service not known"))

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    with pytest.raises(DataError) as caught:
        fetch("http://no.such.host/a.txt", tmp_path)
    assert "\n  http://no.such.host/a.txt: Name or service not known\n" in str(caught.value)
    assert list(tmp_path.glob("a.txt*")) == []


def test_a_server_that_says_nothing_is_given_up(server, tmp_path):
    with pytest.raises(DataError, match="timed out"):
        fetch(f"{server.url}/slow", tmp_path, timeout_seconds=0.05)


def test_a_file_that_is_there_is_used_as_it_is_without_the_network(server, tmp_path):
    (tmp_path / "good.txt").write_bytes(CONTENT)
    assert fetch(f"{server.url}/good.txt", tmp_path, sha256=SHA256).read_bytes() == CONTENT
    assert server.asked == []
    assert visible(tmp_path) == ["good.txt"]


def test_a_file_that_is_there_but_differs_is_used_with_a_warning(server, tmp_path, monkeypatch):
    warnings = []
    monkeypatch.setattr(logging, "warning", lambda *arguments: warnings.append(arguments))
    (tmp_path / "good.txt").write_bytes(b"mine")
    path = fetch(f"{server.url}/good.txt", tmp_path, sha256=SHA256)
    assert path.read_bytes() == b"mine"
    assert server.asked == []
    assert len(warnings) == 1


def test_what_a_killed_download_left_is_removed(server, tmp_path):
    (tmp_path / ".good.txt.4242.incomplete").write_bytes(b"half")
    fetch(f"{server.url}/good.txt", tmp_path, sha256=SHA256)
    assert visible(tmp_path) == ["good.txt"]


def test_a_file_is_downloaded_once_by_several_at_a_time(server, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        url = f"{server.url}/good.txt"
        paths = list(pool.map(lambda _: fetch(url, tmp_path, sha256=SHA256), range(4)))
    assert {path.read_bytes() for path in paths} == {CONTENT}
    assert server.asked == ["/good.txt"]


@pytest.mark.parametrize("filename", ["../x", "/etc/x", "a/b"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path, filename):
    with pytest.raises(DataError, match="not a plain file name"):
        fetch("http://127.0.0.1:1/x", tmp_path, filename=filename)
    with pytest.raises(DataError, match="not a plain file name"):
        fetch("http://127.0.0.1:1/", tmp_path)
