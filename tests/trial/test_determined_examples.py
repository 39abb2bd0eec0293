"""Examples of Determined's repository run unmodified.

They are no part of this one: T2T_DETERMINED_EXAMPLES names the folder `examples` of a checkout of
github.com/determined-ai/determined, of any version from 0.12 on.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from t2t_torch.bin.commands import trainer
from t2t_torch.trial import user_code

EXAMPLES = Path(os.environ.get("T2T_DETERMINED_EXAMPLES", "no checkout"))


class _Pictures(torch.utils.data.Dataset):
    """Random pictures of ten classes in the place of MNIST."""

    def __init__(self, root: str, train: bool = True, **_: object) -> None:
        made, rows = torch.Generator().manual_seed(int(train)), 160 if train else 64
        self.labels = torch.randint(0, 10, (rows,), generator=made)
        noise = torch.randn(rows, 1, 28, 28, generator=made)
        self.pictures = (noise + self.labels.view(-1, 1, 1, 1) / 5).clamp(-1, 1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return self.pictures[row], int(self.labels[row])


def _archive(*_: object, **__: object) -> SimpleNamespace:
    """The answer of a server: an archive with nothing in it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz"):
        pass
    return SimpleNamespace(iter_content=lambda chunk_size: [content.getvalue()])


def _module(name: str, **content: object) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(content)
    return made


@pytest.fixture
def modules(monkeypatch, tmp_path):
    """Modules that the examples import, without downloads; the working directory is empty."""
    parts = {
        "datasets": _module("torchvision.datasets", MNIST=_Pictures),
        "transforms": _module(
            "torchvision.transforms",
            **{name: lambda *_: None for name in ("Compose", "ToTensor", "Normalize")},
        ),
        "utils": _module("torchvision.utils", make_grid=lambda pictures: pictures[0]),
    }
    monkeypatch.setitem(sys.modules, "torchvision", _module("torchvision", **parts))
    for name, part in parts.items():
        monkeypatch.setitem(sys.modules, f"torchvision.{name}", part)
    monkeypatch.setitem(sys.modules, "requests", _module("requests", get=_archive))
    yaml = _module("ruamel.yaml")
    monkeypatch.setitem(sys.modules, "ruamel", _module("ruamel", yaml=yaml))
    monkeypatch.setitem(sys.modules, "ruamel.yaml", yaml)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.chdir(tmp_path)
    yield
    user_code._Loaded.forget()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "example",
    [
        "official/trial/mnist_pytorch",  # until 0.13
        "tutorials/mnist_pytorch",
        "gan/gan_mnist_pytorch",
        "features/custom_reducers_mnist_pytorch",
    ],
)
def test_eight_steps_of_an_example_are_four_and_four_resumed(example, modules, tmp_path):
    folder = (EXAMPLES / example).absolute()
    if not folder.exists():
        pytest.skip(f"{folder}: T2T_DETERMINED_EXAMPLES names no checkout with this example")
    entry = folder / "train.py" if (folder / "train.py").exists() else folder
    flags = [f"--trial={entry}", f"--config={folder / 'const.yaml'}", "--train_steps=8"]
    flags += ["--worker_gpu=0", "--local_eval_frequency=1000", "--verbosity=-1"]

    def weights(name: str, *more: str) -> list[bytes]:
        assert trainer.main([*flags, f"--output_dir={tmp_path / name}", *more]) == 0
        step = tmp_path / name / f"ckpt-{4 if more else 8}"
        return [(step / f"{part}.safetensors").read_bytes() for part in ("model", "optimizer")]

    at_once = weights("at_once")
    assert weights("resumed", "--pause_at_step=4") != at_once
    assert weights("resumed") == at_once
