"""The page for people: one HTML file, which asks the server that it came from and nothing else."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from pathlib import Path

from t2t_torch.report.style import STYLE

_TEMPLATE = Path(__file__).with_name("page.html")


@functools.cache
def page() -> bytes:
    """Returns the page."""
    return _TEMPLATE.read_text("utf-8").replace("/* STYLE */", STYLE).encode()


def _hash(tag: str) -> str:
    """Returns what a policy says of the only element of a kind: what it holds, and no other."""
    held = re.findall(rf"<{tag}>(.*?)</{tag}>", page().decode(), re.S)
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in held]
    return " ".join(f"'sha256-{digest}'" for digest in digests)


POLICY = (
    f"default-src 'none'; script-src {_hash('script')}; style-src {_hash('style')}; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""What browsers let the page do: run its own script, and ask this server."""
