"""Tensors on disk: whole ones in one file, or parts in as many files as processes saved them.

A part is a safetensors file whose header says where in the whole its tensors begin: the form of
`torch.distributed.checkpoint.HuggingFaceStorageWriter(save_distributed=True)`.  What a process
needs of the parts, be it divided otherwise or whole, plans torch.distributed.checkpoint.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from t2t_torch.checkpoint.sharded import Offsets, is_divided_as, place_for
from t2t_torch.checkpoint.tensor_file import DTYPES
from t2t_torch.errors import CheckpointError

SUFFIX = ".safetensors"
_PLACES, _BEGIN = "DCP_SHARDING_INFO", "saved_offsets"  # as torch.distributed.checkpoint calls them


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a stored tensor is, whole.

    Attributes:
      shape: its dimensions.
      dtype: of its numbers.
    """

    shape: torch.Size
    dtype: torch.dtype


class StoredTensors:
    """The tensors of a safetensors file, or of a folder of parts.

    Attributes:
      path: the file or the folder.
      kinds: what each tensor is.

    Args:
      path: the file or the folder.

    Raises:
      CheckpointError: a file is damaged, or a part of a tensor is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = _Reader(path)
        with _told(path):
            self._metadata = self._reader.read_metadata()
        self.kinds: dict[str, Kind] = {}
        for name, stored in self._metadata.state_dict_metadata.items():
            if isinstance(stored, TensorStorageMetadata):  # there is nothing else
                there = sum(chunk.sizes.numel() for chunk in stored.chunks)
                if there != stored.size.numel():
                    raise CheckpointError(f"{path} is damaged: parts of {name} are missing")
                self.kinds[name] = Kind(stored.size, stored.properties.dtype)

    @property
    def header(self) -> Mapping[str, str]:
        """What the files' headers say besides."""
        return self._reader.header

    def read(self, like: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Returns all tensors.

        Args:
          like: tensors that those of the same name and shape are divided as, if they are.

        Returns:
          whole ones on the CPU; of a divided one this process's part, on its device.
        """
        like = like or {}
        if not self.path.is_dir() and not any(
            is_divided_as(kind.shape, like.get(name)) for name, kind in self.kinds.items()
        ):
            with _told(self.path):
                return safetensors.torch.load_file(self.path)
        found = {
            name: place_for(kind.shape, kind.dtype, like.get(name))
            for name, kind in self.kinds.items()
        }
        self.fill(found)
        return found

    def get(self, name: str) -> Tensor:
        """Returns one tensor, whole."""
        kind = self.kinds[name]
        place = torch.empty(kind.shape, dtype=kind.dtype)
        self.fill({name: place})
        return place

    @torch.no_grad()
    def fill(self, tensors: Mapping[str, Tensor]) -> None:
        """Writes what is stored into tensors, into divided ones this process's parts.

        Args:
          tensors: by name, of the stored shapes, on whatever device.

        Raises:
          CheckpointError: there is no such tensor, or a file is damaged.
        """
        planner = DefaultLoadPlanner(flatten_state_dict=False)
        with _told(self.path):
            planner.set_up_planner(dict(tensors), self._metadata, is_coordinator=True)
            plan = self._reader.prepare_local_plan(planner.create_local_plan())
            (plan,) = planner.create_global_plan([plan])
            self._reader.set_up_storage_reader(self._metadata, is_coordinator=True)
            self._reader.read_data(planner.finish_plan(plan), planner).wait()


def tensors_at(folder: Path, kind: str) -> Path | None:
    """Returns where a checkpoint has its tensors of a kind; None if it has none.

    Args:
      folder: of the checkpoint.
      kind: model, optimizer, average or task.
    """
    return next((at for at in (folder / f"{kind}{SUFFIX}", folder / kind) if at.exists()), None)


def part_name(kind: str, rank: int, size: int) -> str:
    """Returns the name, in a checkpoint, of the file of a process's parts."""
    return f"{kind}/{rank + 1:05}-of-{size:05}{SUFFIX}"


def part_header(offsets: Mapping[str, Offsets]) -> dict[str, str]:
    """Returns what the header of a file of parts says of where they begin in their wholes."""
    places = {name: {_BEGIN: list(offset)} for name, offset in offsets.items()}
    return {_PLACES: json.dumps(places), "DCP_VERSION": "1.0", "format": "pt"}


@dataclasses.dataclass(frozen=True)
class _Stored:
    """Where a part is, as HuggingFaceStorageReader asks for it."""

    relative_path: str


class _Reader(HuggingFaceStorageReader):
    """Knows one file or a folder of them, and reads each header once.

    The index of torch's own reader is of folders alone, and each of its calls makes it anew.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path=str(path))
        self.header: dict[str, str] = {}
        self._files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]

    def read_metadata(self) -> Metadata:
        """Returns which parts of which tensors are in which file."""
        chunks: dict[str, list[ChunkStorageMetadata]] = {}
        dtypes: dict[str, torch.dtype] = {}
        stored: dict[MetadataIndex, _Stored] = {}
        for file in self._files:
            for name, shape, dtype, offset in self._contents(file):
                chunk = ChunkStorageMetadata(torch.Size(offset), torch.Size(shape))
                chunks.setdefault(name, []).append(chunk)
                dtypes[name] = dtype
                stored[MetadataIndex(name, chunk.offsets)] = _Stored(str(file))
        return Metadata(
            {
                name: TensorStorageMetadata(
                    TensorProperties(dtype=dtypes[name]), _size(parts), parts
                )
                for name, parts in chunks.items()
            },
            storage_data=stored,
        )

    def _contents(self, file: Path) -> Iterator[tuple[str, list[int], torch.dtype, list[int]]]:
        """Yields name, shape, type and offset of each part in a file."""
        with safetensors.safe_open(file, framework="pt") as opened:
            header: dict[str, str] = opened.metadata() or {}
            places = json.loads(header.pop(_PLACES, "{}"))
            self.header |= header
            for name in opened.keys():  # noqa: SIM118 (it is no mapping)
                part: Any = opened.get_slice(name)
                shape = part.get_shape()
                offset = places[name][_BEGIN] if places else [0] * len(shape)
                yield name, shape, DTYPES[part.get_dtype()], offset


def _size(parts: list[ChunkStorageMetadata]) -> torch.Size:
    """Returns the shape of a whole from those of its parts."""
    ends = [
        [begin + size for begin, size in zip(part.offsets, part.sizes, strict=True)]
        for part in parts
    ]
    return torch.Size([max(dimension) for dimension in zip(*ends, strict=True)])


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turns what a damaged file raises into a CheckpointError."""
    try:
        yield
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
