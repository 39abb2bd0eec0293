"""A shim for tools that look for setup.py; everything stands in pyproject.toml."""

from setuptools import setup

setup()
