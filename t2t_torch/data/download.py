"""Raw files from the network, checked."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from absl import logging
from tqdm import tqdm

from t2t_torch.data.lock import exclusive
from t2t_torch.data.manifest import sha256_of
from t2t_torch.data.staging import remove_leftovers, staged
from t2t_torch.errors import DataError

_TIMEOUT_SECONDS = 60.0  # without a byte
_BLOCK_BYTES = 1 << 18
# Some servers answer Python's own name with 403.
_HEADERS = {"User-Agent": "t2t_torch", "Accept-Encoding": "identity"}


def fetch(
    urls: str | Sequence[str],
    tmp_dir: str | Path,
    *,
    filename: str | None = None,
    sha256: str | None = None,
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> Path:
    """Returns a raw file: the one in `tmp_dir` as it is, else from the first good mirror.

    A file that is in `tmp_dir` already was put there by the user or by an earlier call and is used
    as it is; if it differs from `sha256` that is logged as a warning.  A download appears under its
    name only when it is complete and has the right checksum.

    Args:
      urls: where the file can be had, one address or mirrors in the order to try them.
      tmp_dir: the folder of raw files; made if absent.
      filename: the file's name there; by default the last part of the first address's path.
      sha256: of the file's bytes, in hex.
      timeout_seconds: how long to wait for a server that sends nothing.

    Raises:
      DataError: no mirror gave the file whole (says what each answered), or it has no good name.
    """
    mirrors = [urls] if isinstance(urls, str) else list(urls)
    name = filename or Path(urlsplit(mirrors[0]).path).name
    if not name or Path(name).name != name:
        raise DataError(f"{name!r} is not a plain file name; pass filename= for {mirrors}.")
    path = Path(tmp_dir) / name
    if path.exists():
        return _as_it_is(path, sha256)
    with exclusive(path.with_name(f".{name}.lock"), f"downloading {name!r}"):
        if path.exists():  # another process has downloaded it while this one waited
            return _as_it_is(path, sha256)
        remove_leftovers(path)
        failures = []
        for url in mirrors:
            try:
                with staged(path) as temporary:
                    _download(url, temporary, name, timeout_seconds)
                    _check(temporary, sha256)
                return path
            except (OSError, http.client.HTTPException, ValueError, DataError) as error:
                failures.append(f"{url}: {_reason(error)}")
                logging.warning("No %s from %s", name, failures[-1])
    raise DataError(
        f"{name} could not be downloaded:\n  "
        + "\n  ".join(failures)
        + f"\nTry again, or get the file by other means and put it at {path}."
    )


def _download(url: str, path: Path, name: str, timeout_seconds: float) -> None:
    request = urllib.request.Request(url, headers=_HEADERS)
    with (
        urllib.request.urlopen(request, timeout=timeout_seconds) as response,
        path.open("wb") as file,
    ):
        length = response.headers.get("Content-Length")
        expected = int(length) if length else None
        with tqdm(
            desc=name, total=expected, unit="B", unit_scale=True, unit_divisor=1024, disable=None
        ) as bar:
            while block := response.read(_BLOCK_BYTES):
                file.write(block)
                bar.update(len(block))
    found = path.stat().st_size
    if expected is not None and found != expected:
        raise DataError(f"the connection ended after {found} of {expected} bytes")


def _check(path: Path, sha256: str | None) -> None:
    found = sha256_of(path) if sha256 else None
    if found != sha256:
        raise DataError(f"expected sha256 {sha256}, found {found}")


def _as_it_is(path: Path, sha256: str | None) -> Path:
    try:
        _check(path, sha256)
    except DataError as error:
        logging.warning("%s is used as it is, but it is not the known file: %s.", path, error)
    return path


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP status {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error) or type(error).__name__
