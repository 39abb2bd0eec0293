"""URLs of object stores, the paths of their copies, and the names that are copied."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from t2t_torch.errors import UsageError

T = TypeVar("T")

MANIFEST = "MANIFEST.json"
"""Name of the file that completes a checkpoint."""
CHECKPOINT = re.compile(r"(?:^|(?<=/))ckpt-\d+(?=/)")
BULK = re.compile(rf"((^|/)ckpt-\d+[^/]*/(?!{re.escape(MANIFEST)}$)|\.arrow$)")
NOT_COPIED = re.compile(
    r"(^|/)(\.[^/]*|[^/]*\.(lock|incomplete|removed[-\d]*|tmp-\d+))(/|$)|\.lease-\d+$"
)

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.DOTALL)
_NOT_STORED = ("http", "https")  # downloads, and addresses of servers
_LONGEST = 255  # bytes of a name in a file system


def cache_folder() -> Path:
    """Returns the folder of the copies: `$T2T_CACHE_DIR`, or below `$XDG_CACHE_HOME`, ~/.cache."""
    chosen = os.environ.get("T2T_CACHE_DIR")
    return _resolved(chosen or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/t2t_torch")


@functools.cache
def _resolved(folder: str) -> Path:
    # Unlike Path's, this raises nothing where a container's user has no home.
    return Path(os.path.expanduser(folder)).resolve()  # noqa: PTH111


def is_url(place: str) -> bool:
    """Returns True for the URL of an object store or of a local file; False for http(s)."""
    match = _URL.match(place)
    return match is not None and match[1] not in _NOT_STORED


def local(place: str) -> str:
    """Returns the path of the copy of a URL; any other text as it is.

    Args:
      place: a URL, a path, or several of them, separated by commas.

    Raises:
      UsageError: a part of the URL cannot be the name of a file.
    """
    if "://" not in place:
        return place
    return ",".join(_local(part) if is_url(part) else part for part in place.split(","))


def _local(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if scheme in ("file", "local"):
        return rest
    parts = rest.rstrip("/").split("/")
    for part in parts:
        if part in ("", ".", "..") or part.startswith(".") or len(os.fsencode(part)) > _LONGEST:
            raise UsageError(
                f"{url}: the part {part!r} cannot be copied to a file. Expected "
                "scheme://bucket/folder, whose parts are not empty and begin with no dot."
            )
    return str(cache_folder().joinpath(scheme, *parts))


def url_of(path: str | os.PathLike[str]) -> str:
    """Returns the URL that a path is the copy of; "" for any other path."""
    folder, text = f"{cache_folder()}{os.sep}", os.path.abspath(path)  # noqa: PTH100
    if not text.startswith(folder):
        return ""
    scheme, _, rest = text[len(folder) :].partition(os.sep)
    return f"{scheme}://{rest}" if rest and not scheme.startswith(".") else ""


def with_urls(text: str) -> str:
    """Returns a message in which URLs stand in place of the paths of their copies."""
    folder = f"{cache_folder()}{os.sep}"
    if folder not in text:
        return text
    return re.sub(rf"{re.escape(folder)}([a-z][a-z0-9+.-]*)/", r"\1://", text)


def complete(listed: Mapping[str, T]) -> dict[str, T]:
    """Returns the objects that are copied: those of complete checkpoints, and no locks."""

    def is_complete(name: str) -> bool:
        match = CHECKPOINT.search(name)
        return match is None or f"{name[: match.end()]}/{MANIFEST}" in listed

    copied = {name: one for name, one in listed.items() if not NOT_COPIED.search(name)}
    return {name: one for name, one in copied.items() if is_complete(name)}
