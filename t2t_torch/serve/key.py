"""Keys that requests have to show."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from pathlib import Path

from t2t_torch.errors import UsageError

VARIABLE = "T2T_API_KEY"
"""The environment's variable that may have a key."""

_LEAST = 8  # letters


class Keys:
    """Those that are good; none lets everyone in.

    Args:
      keys: any of which is good.
    """

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    @classmethod
    def read(cls, path: str | None) -> Keys:
        """Reads keys from a file, one a line, and from the environment's `T2T_API_KEY`.

        Raises:
          UsageError: the file cannot be read, has no key, or a key is too short or no plain
            ASCII.
        """
        keys = [os.environ[VARIABLE].strip()] if os.environ.get(VARIABLE) else []
        if path is not None:
            try:
                lines = Path(path).read_text("utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"--api_key_file={path} cannot be read: {error}") from None
            found = [line.strip() for line in lines if line.strip()]
            if not found:
                raise UsageError(f"--api_key_file={path} has no key; expected one a line.")
            keys += found
        if any(len(key) < _LEAST for key in keys):
            raise UsageError(
                f"an API key has fewer than {_LEAST} characters. Make one:  openssl rand -hex 32"
            )
        if not all(key.isascii() and key.isprintable() for key in keys):
            raise UsageError(
                "an API key has a character that is no plain ASCII; headers hold nothing else. "
                "Make one:  openssl rand -hex 32"
            )
        return cls(keys)

    def admit(self, authorization: str | None, api_key: str | None) -> bool:
        """Whether a request may come in; takes as long for a wrong key as for a right one.

        Args:
          authorization: the header of this name, "Bearer KEY".
          api_key: the header X-API-Key.
        """
        if not self:
            return True
        scheme, _, given = (authorization or "").partition(" ")
        shown = given.strip() if scheme.lower() == "bearer" else api_key or ""
        digest = _digest(shown)
        matches = [hmac.compare_digest(digest, one) for one in self._digests]
        return any(matches)


def _digest(key: str) -> bytes:
    """Digests are of one length, so comparing them tells nothing of a key's."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
