"""Paths that are no regular files, and files of 2**40 bytes, at every place that is read."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile import add, reader


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _link(target: str) -> Callable[[Path], Any]:
    return lambda path: path.symlink_to(target)


SPECIAL: dict[str, Callable[[Path], Any]] = {
    "pipe": os.mkfifo,
    "socket": _socket,
    "zeros": _link("/dev/zero"),
    "random": _link("/dev/urandom"),
    "terminal": _link("/dev/tty"),
    "environment": _link("/proc/self/environ"),
    "memory": _link("/proc/self/mem"),
    "kernel_messages": _link("/proc/kmsg"),
    "loop": _loop,
    "nowhere": _link("nowhere"),
    "sparse": _sparse,
}
"""Makers of paths; those of `sparse` and `nowhere` are no regular files of a sensible size."""


@reader("lines")
def _lines(path: Path) -> Any:
    from t2t_torch.files import read_entries

    return read_entries(path)


@reader("json")
def _json(path: Path) -> Any:
    from t2t_torch.text.encoder import CharacterEncoder

    return CharacterEncoder.load(path)


@reader("subwords")
def _subwords(path: Path) -> Any:
    from t2t_torch.text.subword import SubwordEncoder

    return SubwordEncoder.load(path)


@reader("yaml")
def _yaml(path: Path) -> Any:
    from t2t_torch.yaml_file import read_mapping

    return read_mapping(path)


@reader("torch_checkpoint")
def _torch_checkpoint(path: Path) -> Any:
    from t2t_torch.interop.unpickling import load_pickled

    return load_pickled(path)


@reader("artifact")
def _artifact(path: Path) -> Any:
    from t2t_torch.runtime.session import Artifact

    return Artifact(path)


@reader("run")
def _run(path: Path) -> Any:
    import t2t_torch

    return t2t_torch.load(path)


@reader("imported")
def _imported(path: Path) -> Any:
    import t2t_torch

    return t2t_torch.import_run(path, path.with_name("run"))


@reader("data")
def _data(path: Path) -> Any:
    from t2t_torch.data.shards import Shards
    from t2t_torch.mode import Split

    for _ in Shards.open(path, "hostile", Split.TRAIN).features:
        pass


@reader("declared")
def _declared(path: Path) -> Any:
    import t2t_torch

    return t2t_torch.declare(path)


@reader("records")
def _records(path: Path) -> Any:
    from t2t_torch.data.tfrecord import read_records

    return list(read_records(path))


@reader("vectors")
def _vectors(path: Path) -> Any:
    from t2t_torch.text.vectors import width_of_vectors

    return width_of_vectors(path)


@reader("archive")
def _archive(path: Path) -> Any:
    from t2t_torch.data.raw_file import unpack

    return unpack(path, path.parent / "unpacked")


def _inside(folder: str, file: str, make: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def write(path: Path) -> None:
        (path / folder).mkdir(parents=True)
        (path / "pytorch_model.bin").touch()
        make(path / folder / file)

    return write


_NAMES = {
    "lines": "vocab.tokens",
    "json": "vocab.characters",
    "subwords": "vocab.subwords",
    "yaml": "config.yaml",
    "torch_checkpoint": "model.pt",
    "records": "train.tfrecord",
    "vectors": "vectors.txt",
    "archive": "data.tar.gz",
    "declared": "train.csv",
}
_FILES = {
    "artifact": "signature.json",
    "run": "task.json",
    "imported": "config.json",
    "data": "hostile.json",
}
for _kind, _name in _NAMES.items():
    for _what, _make in SPECIAL.items():
        _is_read = _kind in ("records", "vectors", "archive") and _what == "sparse"  # in pieces
        add(_kind, f"{_what}_{_name}", _make, is_read=_is_read, is_quick=_what == "pipe")
for _kind, _name in _FILES.items():
    for _what, _make in SPECIAL.items():
        add(_kind, f"{_what}_{_name}", _inside(".", _name, _make), is_quick=_what == "zeros")
