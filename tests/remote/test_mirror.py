"""Copies of object stores: rules of `pull`, `push`, `fetch` and `remove`, with an S3 server."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from t2t_torch import remote
from t2t_torch.errors import DataError, UsageError
from t2t_torch.remote import mirror, place
from t2t_torch.remote.store import Store, StoreError

OnMachine = Callable[[str], None]


def write(folder: Path, **contents: str) -> None:
    """Writes files; `__` in a name stands for `/`, and `_` for a dot."""
    for name, content in contents.items():
        file = folder / name.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


def read(folder: Path) -> dict[str, str]:
    """Returns the contents of all files of a folder, by name."""
    return {
        str(file.relative_to(folder)): file.read_text()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def local(url: str) -> Path:
    """Returns the path of the copy of a URL."""
    return Path(place.local(url))


def test_a_url_has_one_path_and_a_path_one_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T2T_CACHE_DIR", "/cache")
    assert place.local("s3://b/a/run") == "/cache/s3/b/a/run"
    assert place.local("s3://b/r1/,gs://c/r2,plain") == "/cache/s3/b/r1,/cache/gs/c/r2,plain"
    assert place.local("http://host:80/x") == "http://host:80/x"
    assert place.local("data,more") == "data,more"
    assert place.url_of("/cache/s3/b/a/run") == "s3://b/a/run"
    assert place.url_of("/cache/.copies.sqlite") == place.url_of("/elsewhere") == ""
    said = place.with_urls("'/cache/s3/b/run' is there, and /cache/gs/x")
    assert said == "'s3://b/run' is there, and gs://x"
    for url in ("s3://", "s3://b/../c", "s3://b//c", "s3://b/.hidden"):
        with pytest.raises(UsageError, match="cannot be copied"):
            place.local(url)


def test_a_user_without_a_home_has_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("T2T_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)
    place._resolved.cache_clear()
    assert place.url_of("/data/run") == ""
    place._resolved.cache_clear()


def test_what_one_machine_writes_another_one_reads(s3: str, on_machine: OnMachine) -> None:
    write(local(f"{s3}/run"), a_txt="1", sub__b_txt="2", train_lock="no", _hidden="no")
    remote.push(local(f"{s3}/run"))
    on_machine("b")
    mirror.pull(local(f"{s3}/run"))
    assert read(local(f"{s3}/run")) == {"a.txt": "1", "sub/b.txt": "2"}
    write(local(f"{s3}/run"), a_txt="changed")
    remote.push(local(f"{s3}/run"))
    on_machine("a")
    write(local(f"{s3}/run"), new_txt="of this machine alone")
    mirror.pull(local(f"{s3}/run"))
    assert read(local(f"{s3}/run"))["a.txt"] == "changed"
    assert read(local(f"{s3}/run"))["new.txt"] == "of this machine alone"


def test_a_change_here_is_kept_until_another_machine_changes_the_object(
    s3: str, on_machine: OnMachine
) -> None:
    run = f"{s3}/run"
    write(local(run), a_txt="1")
    remote.push(local(run))
    write(local(run), a_txt="mine")
    mirror.pull(local(run))
    assert read(local(run)) == {"a.txt": "mine"}
    on_machine("b")
    mirror.pull(local(run))
    write(local(run), a_txt="theirs")
    remote.push(local(run))
    on_machine("a")
    mirror.pull(local(run))
    assert read(local(run)) == {"a.txt": "theirs"}


def test_a_cache_that_is_cleared_takes_nothing_from_the_store(s3: str) -> None:
    run = local(f"{s3}/run")
    write(run, a_txt="1", b_txt="2")
    remote.push(run)
    shutil.rmtree(run)
    write(run, c_txt="3")
    remote.push(run)
    mirror.pull(run)
    assert read(run) == {"a.txt": "1", "b.txt": "2", "c.txt": "3"}


def test_a_checkpoint_is_there_once_its_manifest_is_and_is_read_when_it_is_needed(
    s3: str, on_machine: OnMachine
) -> None:
    run = local(f"{s3}/run")
    write(run, **{"ckpt-5__MANIFEST_json": "{}", "ckpt-5__model_bin": "weights"})
    write(run, **{"ckpt-9__model_bin": "half of it"})
    remote.push(run)
    on_machine("b")
    run = local(f"{s3}/run")
    mirror.pull(run)
    assert read(run) == {"ckpt-5/MANIFEST.json": "{}"}
    assert not (run / "ckpt-9").exists()
    assert remote.fetch(run / "ckpt-5")
    assert read(run)["ckpt-5/model.bin"] == "weights"
    assert not remote.fetch(run / "ckpt-7")


def test_the_manifest_is_written_last_and_removed_first(s3: str, proxy: object) -> None:
    run, requests = local(f"{s3}/run"), proxy.requests  # type: ignore[attr-defined]
    write(run, **{"ckpt-5__MANIFEST_json": "{}", "ckpt-5__model_bin": "1", "x_json": "2"})
    os.utime(run / "ckpt-5/MANIFEST.json", (1, 1))  # also if a clock was set back
    remote.push(run)
    remote.remove(run / "ckpt-5")
    for method, order in (("PUT", ["model.bin", "x.json", "MANIFEST.json"]), ("DELETE", None)):
        names = [
            path.partition("?")[0].rpartition("/")[2] for one, path in requests if one == method
        ]
        names = [name for name in names if name.count(".") == 1]
        assert names == (order or ["MANIFEST.json", "model.bin"])
    assert set(Store(f"{s3}/run").list()) == {"x.json"}


def test_a_checkpoint_of_this_machine_alone_ends_where_another_one_has_gone_on(
    s3: str, on_machine: OnMachine
) -> None:
    run = f"{s3}/run"
    write(local(run), **{"ckpt-5__MANIFEST_json": "{}"})
    remote.push(local(run))
    write(local(run), **{"ckpt-9__MANIFEST_json": "not written to the store"})
    Store(run).write("decodes.txt", b"of another machine")
    mirror.pull(local(run))
    assert (local(run) / "ckpt-9").exists()
    on_machine("b")
    mirror.pull(local(run))
    write(local(run), **{"ckpt-7__MANIFEST_json": "{}"})
    remote.push(local(run))
    on_machine("a")
    mirror.pull(local(run))
    assert set(read(local(run))) == {
        "ckpt-5/MANIFEST.json", "ckpt-7/MANIFEST.json", "decodes.txt"
    }  # fmt: skip


def test_a_reader_leaves_a_checkpoint_alone_that_is_being_written(s3: str) -> None:
    run = local(f"{s3}/run")
    write(run, **{"ckpt-9__MANIFEST_json": "{}", "ckpt-9__model_bin": "1"})
    Store(f"{s3}/run").write("ckpt-9/model.bin", b"1")
    assert remote.fetch(run / "ckpt-9")
    mirror.pull(run)
    assert sorted(read(run)) == ["ckpt-9/MANIFEST.json", "ckpt-9/model.bin"]
    remote.push(run)
    Store(f"{s3}/run").remove("ckpt-9/MANIFEST.json")  # as another machine deletes it
    assert not remote.fetch(run / "ckpt-9")


def test_a_checkpoint_that_two_machines_wrote_is_that_of_the_store(
    s3: str, on_machine: OnMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = f"{s3}/run"

    def killed(self: Store, source: Path, name: str) -> None:
        raise KeyboardInterrupt

    write(local(run), **{"ckpt-9__MANIFEST_json": "a", "ckpt-9__model_bin": "of a"})
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Store, "put", killed)
        remote.push(local(run))
    mirror.pull(local(run))
    assert read(local(run))["ckpt-9/model.bin"] == "of a"
    on_machine("b")
    write(local(run), **{"ckpt-9__MANIFEST_json": "b", "ckpt-9__model_bin": "of b"})
    remote.push(local(run))
    on_machine("a")
    mirror.pull(local(run))
    remote.fetch(local(run) / "ckpt-9")
    assert read(local(run)) == {"ckpt-9/MANIFEST.json": "b", "ckpt-9/model.bin": "of b"}


def test_a_damaged_copy_is_copied_again_and_marks_of_folders_are_no_files(s3: str) -> None:
    run = local(f"{s3}/run")
    write(run, **{"ckpt-5__MANIFEST_json": "{}", "ckpt-5__model_bin": "weights"})
    remote.push(run)
    Store(f"{s3}/run").write("", b"")
    Store(f"{s3}/run").write("ckpt-5/", b"")
    (run / "ckpt-5" / "model.bin").write_text("damaged")
    assert remote.fetch(run / "ckpt-5", again=True)
    assert read(run)["ckpt-5/model.bin"] == "weights"
    mirror.pull(run)


def test_a_damaged_database_and_a_bucket_that_is_not_there(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("t2t_torch.remote.store._PAUSES", (0.01,))
    write(local(f"{s3}/run"), a_txt="1")
    remote.push(local(f"{s3}/run"))
    (place.cache_folder() / ".copies.sqlite").write_text("no database " * 1000)
    mirror.pull(local(f"{s3}/run"))
    assert read(local(f"{s3}/run")) == {"a.txt": "1"}
    write(local("s3://no-such-bucket/run"), a_txt="1")
    with pytest.raises(StoreError, match="no such bucket"):
        remote.push(local("s3://no-such-bucket/run"))


def test_a_shard_that_was_altered_is_refused(s3: str, on_machine: OnMachine) -> None:
    data = local(f"{s3}/data")
    write(data, **{"x-train_arrow": "rows"})
    remote.push(data)
    on_machine("b")
    shard = local(f"{s3}/data/x-train.arrow")
    with pytest.raises(DataError, match="expected sha256"):
        remote.fetch(shard, sha256=hashlib.sha256(b"other").hexdigest())
    assert not shard.exists()
    assert remote.fetch(shard, sha256=hashlib.sha256(b"rows").hexdigest())


def test_shards_that_were_copied_first_are_evicted_but_no_changed_one(
    s3: str, on_machine: OnMachine
) -> None:
    data = local(f"{s3}/data")
    write(data, **{f"{i}_arrow": "x" * 400 for i in range(4)}, vocab_txt="y" * 10_000)
    remote.push(data)
    on_machine("b")
    data = local(f"{s3}/data")
    mirror.pull(data)
    for i in range(3):
        remote.fetch(data / f"{i}.arrow")
    (data / "0.arrow").write_text("made again")
    remote.fetch(data / "3.arrow", cache_gb=900e-9)
    assert sorted(read(data)) == ["0.arrow", "2.arrow", "3.arrow", "vocab.txt"]
    assert remote.fetch(data / "1.arrow", cache_gb=900e-9)
    remote.push(data)
    assert Store(f"{s3}/data").read("0.arrow") == b"made again"


@pytest.mark.parametrize("fault", ["503", "expired", "reset", "half"])
def test_faults_of_the_store_that_pass_are_waited_for(
    s3: str, proxy: object, on_machine: OnMachine, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("t2t_torch.remote.store._PAUSES", (0.05, 0.1, 0.1, 0.1))
    left = [0]

    def inject(method: str, path: str) -> str:
        if fault == "half" and (method != "GET" or not path.partition("?")[0].endswith(".bin")):
            return ""
        left[0] -= 1
        return fault if left[0] >= 0 else ""

    proxy.fault = inject  # type: ignore[attr-defined]
    run = local(f"{s3}/run")
    write(run, a_bin="x" * 5000)
    left[0] = 3
    remote.push(run)
    on_machine("b")
    run = local(f"{s3}/run")
    left[0] = 3
    mirror.pull(run)
    assert read(run) == {"a.bin": "x" * 5000}


def test_a_store_that_stays_away_is_an_error_that_names_it(
    s3: str, proxy: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("t2t_torch.remote.store._PAUSES", (0.01,))
    proxy.fault = lambda method, path: "503"  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match=rf"{s3}/run.*the same command continues"):
        mirror.pull(local(f"{s3}/run"))


def test_a_kind_of_store_that_is_unknown_or_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("T2T_CACHE_DIR", str(tmp_path))
    with pytest.raises(UsageError, match="nosuch://b/x cannot be opened"):
        mirror.pull(local("nosuch://b/x"))
