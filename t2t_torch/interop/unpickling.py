"""Reading of `torch.save` files of other libraries: tensors and data, no code.

A pickle names the classes and functions that rebuild its objects.  Here each name stands for a
function of this module or for `PickledRecord`, a container of data; any other name is refused.
"""

from __future__ import annotations

import io
import math
import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from t2t_torch.errors import CheckpointError
from t2t_torch.files import check_tree, open_regular, open_zip

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
_RECORDS = ("argparse.Namespace", "fairseq.", "omegaconf.", "typing.Any", "numpy.dtype")
_NUMPY_SCALARS = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C  # torch.save before 1.6
_MAX_PICKLE = 1 << 26  # bytes; those of large models have a few hundred kilobytes
_MAX_MEMBERS = 1 << 17  # of a zip file; each is a tensor
_ALWAYS_ALLOWED = 1 << 20  # opcodes of a pickle
_OPCODE_BYTES = 64  # of the file; with more opcodes, a pickle takes more memory than the file has
_MAX_NAMES = 1000  # of classes and functions
_MAX_DEPTH = 64  # of lists, mappings and records
_MAX_SHARED = 8  # bytes of all tensors for each byte of the file: tied weights are in one storage
_MAX_KEY = 64  # parts of a tuple that is a key
_KEYS: Mapping[bytes, slice] = {
    pickle.SETITEM: slice(-2, -1),
    pickle.SETITEMS: slice(None, None, 2),
    pickle.DICT: slice(None, None, 2),
    pickle.ADDITEMS: slice(None),
    pickle.FROZENSET: slice(None),
}
"""The opcodes that hash values, and where those are on the stack."""
_REFUSED = (pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER)


def _check_keys(keys: Iterable[Any]) -> None:
    """Checks values before they are hashed.

    The time to hash nested tuples grows exponentially with the pickle, and that of a mapping with
    the square of its keys if these have one hash, as chosen integers have.

    Raises:
      CheckpointError: a key is neither text, a number below 2**60, nor a small tuple of these.
    """
    for key in keys:
        if isinstance(key, str | bytes | float | bool | torch.dtype | None) or (
            isinstance(key, int) and abs(key) < 1 << 60
        ):
            continue
        if not isinstance(key, tuple) or len(key) > _MAX_KEY or any(type(k) is tuple for k in key):
            raise CheckpointError("it has a key that is neither text, a number nor a small tuple.")
        _check_keys(key)


class _Ordered(OrderedDict[Any, Any]):
    """An `OrderedDict` that checks its keys."""

    def __init__(self, pairs: Any = ()) -> None:
        _check_keys(pair[0] for pair in pairs)
        super().__init__(pairs)


def _set_of(kind: type[Any]) -> Callable[..., Any]:
    def make(values: Any = ()) -> Any:
        _check_keys(values)
        return kind(values)

    return make


_CONTAINERS: Mapping[str, Callable[..., Any]] = {
    "collections.OrderedDict": _Ordered,
    "builtins.set": _set_of(set),
    "__builtin__.set": _set_of(set),
    "builtins.frozenset": _set_of(frozenset),
    "torch.Size": tuple,
}


class PickledRecord:
    """Data of an object whose class is not imported.

    Attributes:
      kind: name of its class.
      arguments: those that it was made with.
      fields: its attributes, or what its class would have restored it from.
    """

    kind = ""
    arguments: tuple[Any, ...]
    fields: dict[Any, Any]

    def __new__(cls, *arguments: Any) -> PickledRecord:
        """Returns an empty record; pickles do not always call `__init__`."""
        record = super().__new__(cls)
        record.arguments, record.fields = arguments, {}
        return record

    def __setstate__(self, state: Any) -> None:
        for part in state if isinstance(state, tuple) and len(state) == 2 else (state,):
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
        if isinstance(value, PickledRecord):
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
            content = _of_zip(file, size) if is_zip else _of_legacy(file, size)
            _check_nesting(content, _most_opcodes(size))
            return content
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
    with open_zip(file, max_members=_MAX_MEMBERS) as archive:
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
        if entries[names[0]].file_size > _MAX_PICKLE:
            raise CheckpointError("its data.pkl is too large for a checkpoint.")

        def read(key: str) -> bytes:
            return archive.read(f"{prefix}data/{key}")

        return _Unpickler(io.BytesIO(archive.read(names[0])), size, read).load()


def _of_legacy(file: IO[bytes], size: int) -> Any:
    """Reads a file of torch before 1.6: pickles, one after another, then the storages."""
    pickles = _Pickles(file, size)
    if _Unpickler(pickles, size, None).load() != _LEGACY_MAGIC:
        raise CheckpointError("it is no file of torch.save.")
    for _ in range(2):  # the version, and sizes of numbers
        _Unpickler(pickles, size, None).load()
    unpickler = _Unpickler(pickles, size, None)
    content = unpickler.load()
    for key in _Unpickler(pickles, size, None).load():
        count = int.from_bytes(file.read(8), "little")
        storage = unpickler.storages.pop(str(key))
        if count != storage.count:
            raise CheckpointError("a tensor has fewer numbers than its name says.")
        storage.fill(file.read(count * storage.dtype.itemsize))
    if unpickler.storages:
        raise CheckpointError("it ends before the numbers of a tensor.")
    return content


class _Pickles(io.RawIOBase):
    """The pickles at the start of a file, read in pieces that the file has."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._most = file, min(size, _MAX_PICKLE)

    def read(self, count: int = -1) -> bytes:
        """Returns bytes; fewer at the end of the pickles."""
        return self._file.read(min(count, self._most - self._file.tell()))

    def readline(self, count: int | None = -1) -> bytes:
        """Returns a line."""
        return self._file.readline(self._most - self._file.tell())


def _most_opcodes(size: int) -> int:
    return _ALWAYS_ALLOWED + size // _OPCODE_BYTES


def _check_nesting(content: Any, most: int) -> None:
    """Checks that walking through the content takes time in proportion to the file.

    Each record is walked through once: those of omegaconf and torchtext refer to one another.

    Raises:
      ValueError: containers are nested too deeply, or occur so often that they are too many.
    """
    records, seen = [content], {id(content)}

    def children(value: Any) -> Collection[Any]:
        if isinstance(value, PickledRecord) and id(value) not in seen:
            seen.add(id(value))
            records.append(value)
        if isinstance(value, dict):
            return value.values()
        return value if isinstance(value, list | tuple | set | frozenset) else ()

    while records:
        one = records.pop()
        value = [one.fields, one.arguments] if isinstance(one, PickledRecord) else one
        most -= check_tree(value, children, most_nodes=most, most_depth=_MAX_DEPTH)


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


class _Opcodes(dict[int, Callable[[Any], None]]):
    """The functions of opcodes, with a limit on how many are executed."""

    def __init__(self, unpickler: _Unpickler, most: int) -> None:
        super().__init__(pickle._Unpickler.dispatch)
        for code in _REFUSED:
            del self[code[0]]
        self._unpickler, self._left = unpickler, most

    def __getitem__(self, code: int) -> Callable[[Any], None]:
        self._left -= 1
        if self._left < 0:
            raise CheckpointError("it has more objects than a checkpoint of its size.")
        if keys := _KEYS.get(bytes([code])):
            _check_keys(self._unpickler.stack[keys])
        return super().__getitem__(code)


class _Unpickler(pickle._Unpickler):
    """Reads a pickle whose names are those of this module.

    It is Python's own in Python, which, unlike that in C, can count what it makes before it does.

    Args:
      file: the pickle.
      size: bytes of the whole checkpoint; its tensors have no more.
      read: function from a key to the bytes of a storage; None: they come later.
    """

    stack: list[Any]

    def __init__(self, file: Any, size: int, read: Callable[[str], bytes] | None) -> None:
        super().__init__(file, encoding="utf-8")
        self.dispatch = _Opcodes(self, _most_opcodes(size))  # type: ignore[misc]
        self._left = size  # bytes of storages that were not named yet
        self._shared = _MAX_SHARED * size  # bytes of tensors
        self._tensors = _MAX_MEMBERS
        self._read = read
        self.storages: dict[str, _Storage] = {}
        self._classes: dict[str, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Returns what stands for a name; CheckpointError for names that are not data."""
        full = f"{module}.{name}"
        if full not in self._classes:
            if len(self._classes) >= _MAX_NAMES:
                raise CheckpointError("it names more classes than a checkpoint has.")
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
            return type(name, (made,), {}) if made is _Ordered else made
        if full in _NUMPY_SCALARS or full.startswith(_RECORDS):
            return type(name, (PickledRecord,), {"kind": full})
        if full == "collections.defaultdict":
            return lambda *_: {}
        if module in ("builtins", "__builtin__") and name in ("int", "list", "dict", "float"):
            return type(name, (PickledRecord,), {"kind": full})  # the factory of a defaultdict
        raise CheckpointError(
            f"it names {full}, which is neither a tensor nor data. Files that run code are refused."
        )

    def persistent_load(self, pid: Any) -> _Storage:
        """Returns a storage of tensors."""
        kind, make, key, _, count, *view = pid
        if kind != "storage" or any(part is not None for part in view) or type(count) is not int:
            raise CheckpointError("it refers to something that is no memory of tensors.")
        _check_keys([key])
        key, dtype = str(key), make()
        if key not in self.storages:
            if not isinstance(dtype, torch.dtype) or not 0 <= count * dtype.itemsize <= self._left:
                raise CheckpointError("its tensors are larger than the file.")
            self._left -= count * dtype.itemsize
            self.storages[key] = _Storage(dtype, count)
            if self._read is not None:
                self.storages[key].fill(self._read(key))
        return self.storages[key]

    def _rebuilt(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Tensor:
        """Returns a tensor that is a part of a storage."""
        if not isinstance(storage, _Storage):
            raise CheckpointError("a tensor has no memory.")
        if not isinstance(shape, tuple) or len(shape) > _MAX_DEPTH:
            raise CheckpointError("a tensor has no shape.")
        sizes, steps = [int(one) for one in shape], [int(one) for one in strides]
        last = int(offset) + sum((s - 1) * t for s, t in zip(sizes, steps, strict=True) if s > 0)
        negative = min([int(offset), *sizes, *steps]) < 0
        if negative or math.prod(sizes) > storage.count or last >= max(storage.count, 1):
            raise CheckpointError("a tensor has places outside of its memory.")
        self._shared -= math.prod(sizes) * storage.dtype.itemsize
        self._tensors -= 1
        if min(self._shared, self._tensors) < 0:
            raise CheckpointError("it has more tensors than a checkpoint of its size.")
        storage.memory.resize_(storage.count)
        return torch.as_strided(storage.memory, sizes, steps, int(offset))


def scalars(value: Any) -> dict[str, Any]:
    """Returns the fields of a namespace, a record or a mapping by name; those with text names."""
    found = plain(value)
    if not isinstance(found, dict):
        return {}
    return {name: plain(one) for name, one in found.items() if isinstance(name, str)}
