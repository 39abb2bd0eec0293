"""Reading of `torch.save` files of other libraries: tensors and data, no code.

A pickle names the classes and functions that rebuild its objects.  Here each name stands for a
function of this module or for `Record`, a container of data; any other name is refused.
"""

from __future__ import annotations

import math
import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from t2t_torch.errors import CheckpointError
from t2t_torch.files import open_regular

_DTYPES = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
_CONTAINERS: Mapping[str, Callable[..., Any]] = {
    "collections.OrderedDict": OrderedDict,
    "builtins.set": set,
    "__builtin__.set": set,
    "builtins.frozenset": frozenset,
    "torch.Size": tuple,
}
_RECORDS = ("argparse.Namespace", "fairseq.", "omegaconf.", "typing.Any", "numpy.dtype")
_NUMPY_SCALARS = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C  # torch.save before 1.6
_MOST_PICKLE = 1 << 28  # bytes; those of large models have a few hundred kilobytes


class Record:
    """Data of an object whose class is not imported.

    Attributes:
      kind: name of its class.
      arguments: those that it was made with.
      fields: its attributes, or what its class would have restored it from.
    """

    kind = ""
    arguments: tuple[Any, ...]
    fields: dict[Any, Any]

    def __new__(cls, *arguments: Any) -> Record:
        """Returns an empty record; pickles do not always call `__init__`."""
        record = super().__new__(cls)
        record.arguments, record.fields = arguments, {}
        return record

    def __setstate__(self, state: Any) -> None:
        fields = state[1] if isinstance(state, tuple) and len(state) == 2 else state
        own = state[0] if isinstance(state, tuple) and len(state) == 2 else None
        for part in (own, fields):
            if isinstance(part, dict):
                self.fields |= part

    def __setitem__(self, key: Any, value: Any) -> None:
        self.fields[key] = value

    def append(self, value: Any) -> None:
        """Adds an item of a list."""
        self.fields[len(self.fields)] = value


def plain(value: Any) -> Any:
    """Returns the mapping in a record of a namespace, of omegaconf or of a data class.

    The containers of omegaconf keep theirs in `_content`, its values theirs in `_val`.
    """
    for _ in range(3):
        if isinstance(value, Record):
            fields = value.fields
            if "_content" in fields:
                value = fields["_content"]
            elif "_val" in fields:
                value = fields["_val"]
            elif value.arguments and not fields:  # an enum
                return value.arguments[0]
            else:
                return fields
    return value


def load_pickled(path: Path) -> Any:
    """Returns the content of a `torch.save` file, of any version of torch.

    Args:
      path: the file.

    Raises:
      CheckpointError: the file is damaged, or names something other than tensors and data.
    """
    try:
        size = path.stat().st_size
        with open_regular(path) as file:
            is_zip = file.read(4) == b"PK\x03\x04"
            file.seek(0)
            return _of_zip(file, size) if is_zip else _of_legacy(file, size)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}.") from None
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None
    except RecursionError:
        raise CheckpointError(f"{path} is nested too deeply for a checkpoint.") from None
    except (
        *(pickle.UnpicklingError, zipfile.BadZipFile, NotImplementedError, MemoryError),
        *(ValueError, KeyError, TypeError, AttributeError, IndexError, EOFError, RuntimeError),
        OverflowError,
    ) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"{path} is damaged, or no file of torch.save: {reason}. Copy it again."
        ) from None


def _of_zip(file: IO[bytes], size: int) -> Any:
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        names = [name for name in entries if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(names) != 1 or len(entries) != len(archive.infolist()):
            raise CheckpointError("it has no data.pkl, as torch.save writes it.")
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
            raise CheckpointError("it is compressed, as torch.save never does.")
        if sum(entry.file_size for entry in entries.values()) > size:
            raise CheckpointError("its parts are larger than the file.")
        prefix = names[0].removesuffix("data.pkl")
        order = archive.read(f"{prefix}byteorder") if f"{prefix}byteorder" in entries else b"little"
        if order.decode("ascii", "replace") != sys.byteorder:
            raise CheckpointError("its numbers are of another byte order than this machine's.")
        if entries[names[0]].file_size > _MOST_PICKLE:
            raise CheckpointError("its data.pkl is too large for a checkpoint.")

        def read(key: str, _: torch.dtype, __: int) -> bytes:
            return archive.read(f"{prefix}data/{key}")

        return _Unpickler(BytesIO(archive.read(names[0])), size, read).load()


def _of_legacy(file: IO[bytes], size: int) -> Any:
    """Reads a file of torch before 1.6: pickles, one after another, then the storages."""
    header = [_Unpickler(file, size, None).load() for _ in range(3)]
    if header[0] != _LEGACY_MAGIC:
        raise CheckpointError("it is no file of torch.save.")
    wanted: dict[str, _Storage] = {}
    unpickler = _Unpickler(file, size, None)
    unpickler.storages = wanted
    content = unpickler.load()
    keys = _Unpickler(file, size, None).load()
    for key in keys:
        count = int.from_bytes(file.read(8), "little")
        storage = wanted[str(key)]
        if count != storage.count:
            raise CheckpointError("a tensor has fewer numbers than its name says.")
        storage.fill(file.read(count * storage.dtype.itemsize))
    return content


class _Storage:
    """Memory of tensors; filled after its tensors are made, if the file has it later."""

    def __init__(self, dtype: torch.dtype, count: int) -> None:
        self.dtype, self.count = dtype, count
        self.memory = torch.empty(0, dtype=dtype)

    def fill(self, content: bytes) -> None:
        if len(content) != self.count * self.dtype.itemsize:
            raise CheckpointError("a tensor has fewer numbers than its name says.")
        if content:
            # In place: tensors that were made before share it.
            self.memory.resize_(self.count).copy_(
                torch.frombuffer(bytearray(content), dtype=self.dtype)
            )


class _Unpickler(pickle.Unpickler):
    """Reads a pickle whose names are those of this module.

    Args:
      file: the pickle.
      size: bytes of the whole checkpoint; no tensor is larger.
      read: function from (key, dtype, count) to the bytes of a storage; None: they come later.
    """

    def __init__(
        self,
        file: IO[bytes],
        size: int,
        read: Callable[[str, torch.dtype, int], bytes] | None,
    ) -> None:
        super().__init__(file, encoding="utf-8")
        self._size = size
        self._read = read
        self.storages: dict[str, _Storage] = {}
        self._classes: dict[str, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Returns what stands for a name; CheckpointError for names that are not data."""
        full = f"{module}.{name}"
        if full not in self._classes:
            self._classes[full] = self._stand_in(module, name, full)
        return self._classes[full]

    def _stand_in(self, module: str, name: str, full: str) -> Any:
        if module == "torch" and name in _DTYPES:
            return lambda: _DTYPES[name]
        if full in ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor"):
            return self._rebuilt
        if full == "torch._utils._rebuild_parameter":
            return lambda data, *_: data
        if full in _CONTAINERS:
            made = _CONTAINERS[full]
            return type(name, (made,), {}) if made is OrderedDict else made
        if full in _NUMPY_SCALARS or full.startswith(_RECORDS):
            return type(name, (Record,), {"kind": full})
        if full == "collections.defaultdict":
            return lambda *_: {}
        if module in ("builtins", "__builtin__") and name in ("int", "list", "dict", "float"):
            return type(name, (Record,), {"kind": full})  # the factory of a defaultdict
        raise CheckpointError(
            f"it names {full}, which is neither a tensor nor data. Files that run code are refused."
        )

    def persistent_load(self, pid: Any) -> _Storage:
        """Returns a storage of tensors."""
        kind, make, key, _, count, *view = pid
        if kind != "storage" or any(part is not None for part in view):
            raise CheckpointError("it refers to something that is no memory of tensors.")
        key, dtype, count = str(key), make(), int(count)
        if key not in self.storages:
            if not isinstance(dtype, torch.dtype) or not 0 <= count * dtype.itemsize <= self._size:
                raise CheckpointError("a tensor is larger than the file.")
            self.storages[key] = _Storage(dtype, count)
            if self._read is not None:
                self.storages[key].fill(self._read(key, dtype, count))
        return self.storages[key]

    def _rebuilt(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Tensor:
        """Returns a tensor that is a part of a storage."""
        if not isinstance(storage, _Storage):
            raise CheckpointError("a tensor has no memory.")
        sizes, steps = [int(one) for one in shape], [int(one) for one in strides]
        last = int(offset) + sum((s - 1) * t for s, t in zip(sizes, steps, strict=True) if s > 0)
        negative = min([int(offset), *sizes, *steps]) < 0
        if negative or math.prod(sizes) > storage.count or last >= max(storage.count, 1):
            raise CheckpointError("a tensor has places outside of its memory.")
        if self._read is None:
            storage.memory.resize_(storage.count).zero_()
        return torch.as_strided(storage.memory, sizes, steps, int(offset))


def scalars(value: Any) -> dict[str, Any]:
    """Returns the fields of a namespace, a record or a mapping by name; those with text names."""
    found = plain(value)
    if not isinstance(found, dict):
        return {}
    return {name: plain(one) for name, one in found.items() if isinstance(name, str)}
