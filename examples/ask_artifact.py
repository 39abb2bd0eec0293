"""Answers the lines of standard input from what t2t-exporter has written, without torch.

python examples/ask_artifact.py artifact < lines.txt
"""

from __future__ import annotations

import sys

import t2t_torch

ask = t2t_torch.load(sys.argv[1], threads=1)
for answer in ask(sys.stdin.read().splitlines()):
    print(answer)
