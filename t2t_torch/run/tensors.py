"""Weights and optimizer state as safetensors: whole files, or shards of processes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor import empty as empty_dtensor

from t2t_torch.errors import CheckpointError
from t2t_torch.files import check_regular
from t2t_torch.hparam import recorded_beside
from t2t_torch.layers.lora import is_adapter, merged
from t2t_torch.layers.recurrent import is_memory
from t2t_torch.remote import fetch

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
}
DTYPES = {name: dtype for dtype, name in _NAMES.items()}
"""torch dtypes by their names in the format."""

_ALIGNMENT = 8  # of the end of the header


def chunks_of(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """Yields the pieces of a safetensors file.

    Makes no copies, and has no long sections that hold the GIL.  The `safetensors` package reads
    these files; its own writer handles a file in one call, in older versions while holding the GIL,
    which would block concurrent training.  Format:
    https://github.com/huggingface/safetensors#format

    Args:
      tensors: contiguous, on the CPU.
      metadata: additional header entries.

    Raises:
      TypeError: the format does not support a tensor's dtype.
    """
    # Wide dtypes first, which aligns every tensor.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in names:
        tensor = tensors[name]
        if tensor.dtype not in _NAMES:
            raise TypeError(f"{name} is of {tensor.dtype}, which a safetensors file cannot hold")
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        if tensors[name].numel():
            yield tensors[name].reshape(-1).view(torch.uint8).numpy().data


Offsets = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class TensorSlice:
    """The slices of a sharded state that one process saves.

    Attributes:
      rank: rank of the process, from 0.
      size: number of processes, all of which save slices.
      offsets: offset of each slice in its full tensor, by kind of tensors and name.
    """

    rank: int
    size: int
    offsets: Mapping[str, Mapping[str, Offsets]]

    @classmethod
    def of(
        cls, tensors: Mapping[str, Mapping[str, Tensor]]
    ) -> tuple[TensorSlice | None, Mapping[str, Mapping[str, Tensor]]]:
        """Returns this process's slices and their tensors; None if nothing is sharded.

        Without communication or copies.  Tensors that are equal in all processes, such as the
        optimizer's step count, are saved by the first.

        Args:
          tensors: by kind and name.
        """
        divided = [
            t for named in tensors.values() for t in named.values() if isinstance(t, DTensor)
        ]
        if not divided:
            return None, tensors
        mesh = divided[0].device_mesh
        rank = mesh.get_local_rank()
        offsets, own = {}, {}
        for kind, named in tensors.items():
            offsets[kind], own[kind] = _parts(named, leads=rank == 0)
        return cls(rank, mesh.size(), offsets), own


def divided_as(tensor: Tensor, like: Tensor) -> Tensor:
    """Returns this process's shard of a tensor, on the device of `like`, if that one is sharded.

    Args:
      tensor: full and equal in all processes, or already sharded.
      like: its parameter; tensors of another shape, such as a step count, are not sharded.
    """
    if isinstance(tensor, DTensor) or not is_divided_as(tensor.shape, like):
        return tensor
    here = tensor.to(like.device)
    mesh = cast("DTensor", like).device_mesh
    return distribute_tensor(here, mesh, cast("DTensor", like).placements, src_data_rank=None)


def is_divided_as(shape: torch.Size, like: Tensor | None) -> bool:
    """Returns whether a tensor of a parameter is sharded like it."""
    return isinstance(like, DTensor) and like.shape == shape


def place_for(shape: torch.Size, dtype: torch.dtype, like: Tensor | None) -> Tensor:
    """Returns uninitialized memory for a tensor: this process's shard if `like` is sharded.

    Args:
      shape: shape of the full tensor.
      dtype: its dtype.
      like: the parameter that it belongs to, if any.

    Returns:
      an uninitialized tensor; full ones are on the CPU.
    """
    if not is_divided_as(shape, like):
        return torch.empty(shape, dtype=dtype)
    divided = cast("DTensor", like)
    return empty_dtensor(
        shape, dtype=dtype, device_mesh=divided.device_mesh, placements=divided.placements
    )


def _parts(
    tensors: Mapping[str, Tensor], *, leads: bool
) -> tuple[dict[str, Offsets], dict[str, Tensor]]:
    """Returns the offsets of the slices that this process saves, and the slices."""
    planner = DefaultSavePlanner(flatten_state_dict=False)
    planner.set_up_planner(dict(tensors), is_coordinator=leads)
    offsets, parts = {}, {}
    for item in planner.create_local_plan().items:
        name, data = item.index.fqn, item.tensor_data
        if data is None:
            raise TypeError(f"{name} is no tensor")
        divided = isinstance(tensors[name], DTensor)
        empty = 0 in data.chunk.sizes and 0 not in data.size  # this process has an empty shard
        if (divided and not empty) or (leads and not divided):
            offsets[name] = tuple(data.chunk.offsets)
            parts[name] = cast("Tensor", planner.resolve_data(item))
    return offsets, parts


SUFFIX = ".safetensors"
_PLACES, _BEGIN = "DCP_SHARDING_INFO", "saved_offsets"  # names used by torch.distributed.checkpoint


@dataclasses.dataclass(frozen=True)
class TensorKind:
    """Shape and dtype of a full stored tensor.

    Attributes:
      shape: its shape.
      dtype: its dtype.
    """

    shape: torch.Size
    dtype: torch.dtype


class StoredTensors:
    """The tensors of a safetensors file, or of a folder of shards.

    A slice file is a safetensors file whose header has the offsets of its tensors, in the format of
    `torch.distributed.checkpoint.HuggingFaceStorageWriter(save_distributed=True)`.
    torch.distributed.checkpoint plans the reads of each process, for any target sharding.

    Attributes:
      path: the file or folder.
      kinds: shape and dtype of each tensor.

    Args:
      path: the file or folder.

    Raises:
      CheckpointError: a file is damaged, or a shard is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = _Reader(path)
        with _explaining_errors(path):
            self._metadata = self._reader.read_metadata()
        self.kinds: dict[str, TensorKind] = {}
        for name, stored in self._metadata.state_dict_metadata.items():
            if isinstance(stored, TensorStorageMetadata):  # the only kind of entry
                if sum(chunk.sizes.numel() for chunk in stored.chunks) != stored.size.numel():
                    raise CheckpointError(f"{path} is damaged: parts of {name} are missing")
                self.kinds[name] = TensorKind(stored.size, stored.properties.dtype)

    @property
    def header(self) -> Mapping[str, str]:
        """The additional entries of the files' headers."""
        return self._reader.header

    def read(self, like: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Returns all tensors.

        Args:
          like: tensors whose sharding applies to those of the same name and shape.

        Returns:
          full tensors on the CPU; for sharded ones this process's shard, on its device.
        """
        like = like or {}
        if not self.path.is_dir() and not any(
            is_divided_as(kind.shape, like.get(name)) for name, kind in self.kinds.items()
        ):
            with _explaining_errors(self.path):
                return safetensors.torch.load_file(check_regular(self.path))
        tensors = {
            name: place_for(kind.shape, kind.dtype, like.get(name))
            for name, kind in self.kinds.items()
        }
        self.fill(tensors)
        return tensors

    def get(self, name: str) -> Tensor:
        """Returns one full tensor."""
        kind = self.kinds[name]
        place = torch.empty(kind.shape, dtype=kind.dtype)
        self.fill({name: place})
        return place

    @torch.no_grad()
    def fill(self, tensors: Mapping[str, Tensor]) -> None:
        """Copies stored values into tensors; into sharded ones this process's shard.

        Args:
          tensors: by name, with the stored shapes, on any device.

        Raises:
          CheckpointError: a tensor is missing, or a file is damaged.
        """
        planner = DefaultLoadPlanner(flatten_state_dict=False)
        with _explaining_errors(self.path):
            planner.set_up_planner(dict(tensors), self._metadata, is_coordinator=True)
            plan = self._reader.prepare_local_plan(planner.create_local_plan())
            (plan,) = planner.create_global_plan([plan])
            self._reader.set_up_storage_reader(self._metadata, is_coordinator=True)
            self._reader.read_data(planner.finish_plan(plan), planner).wait()


def tensors_at(folder: Path, kind: str) -> Path | None:
    """Returns the path of a checkpoint's tensors of one kind; None if it has none.

    Args:
      folder: folder of the checkpoint.
      kind: model, optimizer, average or task.
    """
    return next((at for at in (folder / f"{kind}{SUFFIX}", folder / kind) if fetch(at)), None)


def part_name(kind: str, rank: int, size: int) -> str:
    """Returns the name, inside a checkpoint, of the file of a process's shards."""
    return f"{kind}/{rank + 1:05}-of-{size:05}{SUFFIX}"


def part_header(offsets: Mapping[str, Offsets]) -> dict[str, str]:
    """Returns the header entries for the offsets of slices in their full tensors."""
    places = {name: {_BEGIN: list(offset)} for name, offset in offsets.items()}
    return {_PLACES: json.dumps(places), "DCP_VERSION": "1.0", "format": "pt"}


@dataclasses.dataclass(frozen=True)
class _Stored:
    """Location of a slice, as used by HuggingFaceStorageReader."""

    relative_path: str


class _Reader(HuggingFaceStorageReader):
    """Reads one file or a folder of files, and each header once.

    torch's own reader indexes folders only, and rebuilds the index at each call.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path=str(path))
        self.header: dict[str, str] = {}
        self._files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]

    def read_metadata(self) -> Metadata:
        """Returns the slices of each tensor and their files."""
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
        """Yields name, shape, dtype and offset of each slice in a file."""
        with safetensors.safe_open(check_regular(file), framework="pt") as opened:
            header: dict[str, str] = opened.metadata() or {}
            places = json.loads(header.pop(_PLACES, "{}"))
            self.header |= header
            for name in opened.keys():  # noqa: SIM118 (it is no mapping)
                part: Any = opened.get_slice(name)
                shape = part.get_shape()
                offset = places[name][_BEGIN] if places else [0] * len(shape)
                yield name, shape, DTYPES[part.get_dtype()], offset


def _size(parts: list[ChunkStorageMetadata]) -> torch.Size:
    """Returns the shape of a full tensor from its slices."""
    ends = [
        [begin + size for begin, size in zip(part.offsets, part.sizes, strict=True)]
        for part in parts
    ]
    return torch.Size([max(dimension) for dimension in zip(*ends, strict=True)])


@contextlib.contextmanager
def _explaining_errors(path: Path) -> Iterator[None]:
    """Converts errors from a damaged file to CheckpointError."""
    try:
        yield
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error


_MARK = "#"
_TYPES = {"bool": torch.bool, "int": torch.int64, "float": torch.float64}


def stored_slot(value: object) -> tuple[str, Tensor]:
    """Returns the name suffix of a state entry, and the entry as a tensor.

    Python numbers are stored with their type in the name.

    Args:
      value: a tensor, or an int, a float or a bool, which is stored exactly.

    Raises:
      TypeError: it is something else, such as a sparse tensor, or an int of more than 64 bits.
    """
    if isinstance(value, Tensor):
        if value.layout is not torch.strided:
            raise TypeError(f"a tensor of {value.layout}")
        return "", value
    if isinstance(value, float):  # includes numpy's
        return f"{_MARK}float", torch.tensor(float(value), dtype=_TYPES["float"])
    kind = type(value).__name__
    if not isinstance(value, int) or kind not in _TYPES or not -(1 << 63) <= value < 1 << 63:
        raise TypeError(f"{value!r} is neither a tensor nor a number")
    return f"{_MARK}{kind}", torch.tensor(value, dtype=_TYPES[kind])


def slot_of(name: str, tensor: Tensor) -> tuple[str, Tensor | int | float]:
    """Returns the name and value of a state entry; the inverse of `stored_slot`."""
    own, mark, kind = name.rpartition(_MARK)
    if not mark or kind not in _TYPES or tensor.ndim:
        return name, tensor
    value: int | float = tensor.item()
    return own, value


STATELESS = "parameters_without_state"
"""Entry in the header of `optimizer.safetensors`: a JSON list of names."""


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Returns parameters and buffers without copying; shared ones under their first name."""
    state = model.state_dict()
    return {name: state[name] for name in aliases_of(model)}


def read_tensors(path: Path, like: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Reads a safetensors file, or a folder of shards.

    Args:
      path: the file or folder.
      like: tensors whose sharding applies to those of the same name; without it all are full.

    Raises:
      CheckpointError: the file is damaged or has another format.
    """
    return StoredTensors(path).read(like)


def load_weights(model: nn.Module, file: Path, average: Path | None = None) -> None:
    """Loads weights into a model.

    The memory of streams is skipped if the model reads none.  Adapters are merged into the weights
    if the model has none.

    Args:
      model: on any device; if sharded, each process reads its shard.
      file: parameters and buffers, or a folder of their shards.
      average: the same for weights that replace some of them.

    Raises:
      CheckpointError: names or shapes differ, or a file is not a safetensors file.
    """
    first = first_names(model)
    here = model.state_dict()
    tensors = read_tensors(file, here)
    if average is not None:
        tensors |= read_tensors(average, here)
    if not any(map(is_adapter, here)):
        tensors = without_adapters(tensors, file)
    tensors = {
        name: tensor for name, tensor in tensors.items() if name in here or not is_memory(name)
    }
    own = {name: here[name] for name in sorted(set(first.values()))}
    remedy = "Use the hparams it was trained with (hparams.json beside it)."
    check_fit(tensors, own, f"{file} does not fit the model:", remedy)
    model.load_state_dict({name: tensors[first[name]] for name in here})


def without_adapters(tensors: dict[str, Tensor], source: Path) -> dict[str, Tensor]:
    """Returns weights with their adapters merged, if they have any; see `layers/lora.py`.

    Args:
      tensors: full tensors on the CPU, by name.
      source: file that they are from, whose run has recorded `lora_alpha`.

    Raises:
      CheckpointError: the record or an adapted weight is missing.
    """
    if not any(map(is_adapter, tensors)):
        return tensors
    try:
        return merged(tensors, recorded_beside(source)["lora_alpha"])
    except KeyError as error:
        raise CheckpointError(
            f"{source} has adapters (LoRA), and {error} is missing, without which they cannot be "
            "merged. Give the run directory, or weights of t2t-exporter --format=safetensors."
        ) from None


def check_fit(
    tensors: Mapping[str, Tensor], own: Mapping[str, Tensor], fault: str, remedy: str
) -> None:
    """Checks that tensors have the names and shapes of those of a model.

    Args:
      tensors: tensors by name.
      own: those of the model, by name.
      fault: first line of the error message.
      remedy: its last line.

    Raises:
      CheckpointError: some have not; the first ten are named.
    """
    faults = [f"the model has no {name}" for name in sorted(tensors.keys() - own.keys())]
    for name, here in own.items():
        if name not in tensors:
            faults.append(f"it has no {name}")
        elif tensors[name].shape != here.shape:
            shapes = [list(tensors[name].shape), list(here.shape)]
            faults.append(f"{name} is {shapes[0]}, the model's is {shapes[1]}")
    if faults:
        raise CheckpointError("\n  ".join([fault, *faults[:10]]) + f"\n{remedy}")


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Returns an optimizer's state by '<parameter>/<slot>', and the parameters without state.

    Python numbers are stored as tensors named '<parameter>/<slot>#int' etc.

    Raises:
      CheckpointError: the state contains something other than tensors and numbers.
    """
    names = _optimizer_names(optimizer, model)
    whole = optimizer.state_dict()
    state: Mapping[object, object] = whole["state"]
    kind = type(optimizer).__name__
    others = sorted(map(str, set(whole) - {"state", "param_groups"}))
    others += [str(key) for key in state if not isinstance(key, int)]
    if others:
        raise CheckpointError(
            f"{kind} keeps {', '.join(others)} beside the slots of its parameters; only those "
            "can be stored. Keep it in the state of a parameter."
        )
    tensors = {}
    for index, slots in state.items():
        assert isinstance(index, int) and isinstance(slots, Mapping)
        for slot, value in slots.items():
            if value is None:  # such as momentum before the first step
                continue
            try:
                ending, tensor = stored_slot(value)
            except TypeError as error:
                raise CheckpointError(
                    f"{kind} keeps {slot!r} as {type(value).__name__}, of {names[index]} "
                    f"({error}); only dense tensors and numbers can be stored. Keep it as one, "
                    "or train with an optimizer that does."
                ) from None
            tensors[f"{names[index]}/{slot}{ending}"] = tensor
    stateless = sorted(set(names) - {_owner(key) for key in tensors})
    return tensors, tuple(stateless)


def load_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, file: Path) -> None:
    """Loads saved optimizer state; for sharded parameters this process's shard of it.

    Hyperparameters are unchanged.

    Raises:
      CheckpointError: the state belongs to other parameters, or the file is damaged.
    """
    stored = StoredTensors(file)
    parameters = dict(model.named_parameters())
    slots = {key: parameters[_owner(key)] for key in stored.kinds if _owner(key) in parameters}
    state: dict[str, dict[str, Tensor | int | float]] = {}
    for key, tensor in stored.read(slots).items():
        slot, value = slot_of(key.rpartition("/")[2], tensor)
        state.setdefault(_owner(key), {})[slot] = value
    try:
        stateless = json.loads(stored.header.get(STATELESS, "[]"))
    except ValueError as error:
        raise CheckpointError(f"{file} is damaged: {error}") from error
    names = _optimizer_names(optimizer, model)
    if unknown := sorted(set(state) - set(names)):
        raise CheckpointError(f"{file}: the model has no parameter {unknown[0]!r}")
    missing = sorted(set(names) - set(state) - set(stateless))
    if state and missing:
        raise CheckpointError(
            f"{file} has no slots of {', '.join(missing[:10])}. It is of another model; resume "
            "with the hparams it was trained with (hparams.json beside it)."
        )
    groups = optimizer.state_dict()["param_groups"]
    by_index = {index: state[name] for index, name in enumerate(names) if name in state}
    optimizer.load_state_dict({"state": by_index, "param_groups": groups})
    _keep_types(optimizer, by_index)


def first_names(model: nn.Module) -> dict[str, str]:
    """Returns for every name of the state dict the first name of the same tensor."""
    known: dict[tuple[object, ...], str] = {}
    names = {}
    tensors = model.state_dict()
    parameters = {name: id(p) for name, p in model.named_parameters(remove_duplicate=False)}
    for name, tensor in tensors.items():
        # Empty tensors share no storage; they are identified by name.
        same: tuple[object, ...] = (name,)
        if isinstance(tensor, DTensor) or tensor.is_meta:  # may have no storage in this process
            same = (parameters.get(name, name),)
        elif tensor.numel():
            same = (tensor.data_ptr(), tensor.shape, tensor.stride())
        names[name] = known.setdefault(same, name)
    return names


def aliases_of(model: nn.Module) -> dict[str, list[str]]:
    """Returns the names of each tensor of the state dict, by the first of them."""
    aliases: dict[str, list[str]] = {}
    for name, first in first_names(model).items():
        aliases.setdefault(first, []).append(name)
    return aliases


def _owner(key: str) -> str:
    """Returns the parameter of a state entry."""
    return key.rpartition("/")[0]


def _optimizer_names(optimizer: torch.optim.Optimizer, model: nn.Module) -> list[str]:
    """Returns the parameters' names in the optimizer's order."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(p)] for group in optimizer.param_groups for p in group["params"]]


def _keep_types(
    optimizer: torch.optim.Optimizer, known: Mapping[int, Mapping[str, Tensor | int | float]]
) -> None:
    """Restores the dtypes of state that torch has cast to the dtype of the parameter."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, slots in known.items():
        loaded = optimizer.state[parameters[index]]
        for slot, value in slots.items():
            there = loaded.get(slot)
            if not isinstance(value, Tensor) or not isinstance(there, Tensor):
                continue
            if there.dtype != value.dtype and not isinstance(value, DTensor):
                loaded[slot] = value.to(there.device)
