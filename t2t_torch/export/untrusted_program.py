"""Whether an archive of torch.export can be loaded without executing code of its author."""

from __future__ import annotations

import io
import json
import pickle
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from t2t_torch.errors import ArtifactError

_ENTRY = re.compile(
    r"models/\w+\.json|data/(?:weights|constants)/\w+(?:_config\.json)?|data/sample_inputs/\w+\.pt"
    r"|archive_format|archive_version|byteorder|\.data/\w+|version"
)
_OPERATOR = re.compile(
    r"torch\.ops\.(?!higher_order\.|prim|aten\.(?:save|from_file)\.)\w+\.\w+\.\w+"
    r"|torch\.ops\.higher_order\.(?:scan|cond|while_loop|map_impl|associative_scan"
    r"|wrap_with_set_grad_enabled|wrap_with_autocast)"
    r"|_operator\.(?!call$|attrgetter$|methodcaller$)\w+|math\.\w+|torch\._?sym_\w+"
)
_SIZE_PARTS = (
    r"Symbol\('[a-z]+\d+'(?:, [a-z_]+=(?:True|False))*\)|[su]\d|\d|Integer|Rational|Add|Mul"
    r"|Pow|Max|Min|Mod|PythonMod|FloorDiv|CleanDiv|CeilDiv|IntTrueDiv|Eq|Ne|(?:int_)?oo"
    r"|[-+*/%(), <>=&|~]"
)
_SIZE = re.compile(f"(?:{_SIZE_PARTS})*")
_GUARD = re.compile(
    rf"(?:{_SIZE_PARTS}|L(?:\['[\w.]+'\])+|\.(?:size|stride|storage_offset)\(\)|\[\d+\]|!="
    r"|\b(?:and|or|not)\b)*"
)
_TREE = re.compile(
    r'(?:"(?:type|context|children_spec)": |"builtins\.(?:tuple|list|dict)"|"collections\.'
    r'OrderedDict"|"null"|null|"\[(?:(?:, )?\\"[\w. -]*\\")*\]"|[\[\]{}, 1])*'
)
_ANY = re.compile(r"(?s:.*)")
_NAME = re.compile(r"[\w.]*")
_BY_KEY = {
    "target": _OPERATOR,
    "as_operator": _OPERATOR,
    "expr_str": _SIZE,
    "guards_code": _GUARD,
    "in_spec": _TREE,
    "out_spec": _TREE,
    **dict.fromkeys(("as_float", "as_floats"), re.compile("-?Infinity|NaN")),
    **dict.fromkeys(
        "stack_trace nn_module_stack torch_fn source_fn_stack from_node torch_version "
        "as_string as_strings".split(),
        _ANY,  # torch does not evaluate them
    ),
}
"""By key of the graph's JSON, what its strings may be; others, and keys, are names."""


def check_program(path: Path) -> None:
    """Checks that a program holds nothing but what `torch.export.save` writes of a network.

    `torch.export.load` and its program's `module()` execute what the archive says: they unpickle
    weights and constants that say `use_pickle`, and example inputs, load compiled libraries, read
    an older form that is pickled, evaluate sizes and guards as Python, and write names into the
    source of a function.

    Raises:
      ArtifactError: something would be executed, or the file is damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            why = _executed(archive)
    except (
        OSError,
        ValueError,
        KeyError,
        NotImplementedError,  # packed in a way that is not known
        RecursionError,
        zipfile.BadZipFile,
        pickle.UnpicklingError,
    ) as error:
        raise ArtifactError(f"{path} is damaged, or has a pickle in it: {error}") from error
    if why:
        raise ArtifactError(
            f"{path} is refused: {why}, so loading it might execute code of whoever wrote it. "
            "t2t-exporter --format=torch writes no such file: export the run again."
        )


def _executed(archive: zipfile.ZipFile) -> str:
    """Returns what might be executed; "" if nothing."""
    names = archive.namelist()
    if len({name.lower() for name in names}) < len(names):
        return "two of its entries have one name"
    inner = {name: name.partition("/")[2] for name in names}
    if (
        len({name.partition("/")[0] for name in names}) != 1
        or "archive_format" not in inner.values()
    ):
        return "it is not an archive of torch.export"
    for name, within in inner.items():
        if within.startswith("data/aotinductor/") or within.endswith((".so", ".dll", ".dylib")):
            return f"{within} is compiled code"
        if not _ENTRY.fullmatch(within):
            return f"{within} is no part of a network"
        if within.startswith("data/sample_inputs/"):
            torch.load(io.BytesIO(archive.read(name)), weights_only=True)
        if within.endswith(".json"):
            content = json.loads(archive.read(name))
            if why := _odd(content, graph=within.startswith("models/")):
                return f"{within} {why}"
    return ""


def _odd(content: Any, *, graph: bool) -> str:
    """Returns what is odd in the JSON of a graph, or of its weights; "" if nothing."""
    if graph and not (isinstance(content, dict) and content.get("verifiers")):
        return "says that torch need not verify it"
    for key, value in _pairs(content):
        if key == "use_pickle" and value:
            return "says use_pickle"
        if not _NAME.fullmatch(key):
            return f"has the key {key[:80]!r}"
        if isinstance(value, str) and not _BY_KEY.get(key, _NAME).fullmatch(value):
            return f"has the {key} {value[:80]!r}"
    return ""


def _pairs(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yields all keys of objects in JSON with their values, also each of a list."""
    yield key, value
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _pairs(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from _pairs(one, key)
