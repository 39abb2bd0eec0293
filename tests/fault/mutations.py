"""Bugs that other projects have had, to be put into this one on purpose.

`T2T_MUTATION=name` breaks the library for the tests of one session; `test_mutations.py` asserts
that tests fail then.  Nothing of it is in the library.
"""

from __future__ import annotations


def introduce(name, monkeypatch):
    raise KeyError(name)
