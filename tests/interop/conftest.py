"""Users' directories for tensor2tensor, and their data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.bin.commands import datagen

HEAD = """\
from __future__ import absolute_import
import os
from six.moves import range
from tensor2tensor.data_generators import generator_utils
from tensor2tensor.data_generators import problem
from tensor2tensor.data_generators import text_encoder
from tensor2tensor.data_generators import text_problems
from tensor2tensor.data_generators import translate
from tensor2tensor.layers import modalities
from tensor2tensor.models import lstm, transformer
from tensor2tensor.utils import metrics
from tensor2tensor.utils import registry
from tensor2tensor.utils import t2t_model
import tensorflow as tf

EOS = text_encoder.EOS_ID
"""


@pytest.fixture
def head() -> str:
    """Returns the imports of a user's file."""
    return HEAD


@pytest.fixture
def folder(tmp_path, own_registry) -> Callable[..., Path]:
    """Returns a function that makes a user's directory, which is in the registry then."""

    def make(*parts: str, **files: str) -> Path:
        path = tmp_path / f"usr_{abs(hash(tmp_path))}"  # one package in sys.modules per test
        path.mkdir()
        (path / "__init__.py").write_text("from . import own\n")
        (path / "own.py").write_text(HEAD + "\n".join(parts))
        for file, text in files.items():
            (path / f"{file}.py").write_text(text)
        registry.import_usr_dir(path)
        return path

    return make


@pytest.fixture
def generate(tmp_path) -> Callable[..., Path]:
    """Returns a function that generates data of a problem, and returns its directory."""

    def run(problem: str, usr: Path, **raw: str) -> Path:
        tmp, data = tmp_path / "raw", tmp_path / "data"
        tmp.mkdir(exist_ok=True)
        for file, text in raw.items():
            (tmp / file.replace("__", ".")).write_text(text, "utf-8")
        flags = [f"--problem={problem}", f"--data_dir={data}", f"--tmp_dir={tmp}"]
        assert datagen.main([*flags, f"--t2t_usr_dir={usr}"]) == 0
        return data

    return run
