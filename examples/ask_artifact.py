"""Answers the lines of standard input from what t2t-exporter has written, without torch.

python examples/ask_artifact.py artifact < lines.txt
"""

from __future__ import annotations

import io
import sys

import t2t_torch

file = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", newline="\n")  # no other line ends
lines = [line.removesuffix("\n") for line in file]
try:
    print(*t2t_torch.load(sys.argv[1], threads=1)(lines), sep="\n")
except t2t_torch.errors.T2TError as error:
    raise SystemExit(str(error)) from None
