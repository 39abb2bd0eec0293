"""YAML as those who write configurations mean it: 1e-3 is a number, a key stands there once.

PyYAML reads YAML 1.1, by which 1e-3 is a text (it has no point), 1:30 is the number 90 and
2019-10-31 a date.  Here numbers are as in JSON, and dates and times stay texts.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from t2t_torch.errors import ConfigError

_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_INT = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)")
_CHANGED = {f"tag:yaml.org,2002:{name}" for name in ("float", "int", "timestamp")}


class _Loader(yaml.SafeLoader):
    """Builds mappings, lists, texts and numbers, and no objects."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (the base class declares it)
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _CHANGED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Returns a mapping.

        Raises:
          yaml.YAMLError: a key stands there twice.
        """
        seen: dict[tuple[str, str], yaml.Node] = {}
        for key, _ in node.value:
            name = key.tag, key.value if isinstance(key.value, str) else repr(key.value)
            if name in seen and key.tag != "tag:yaml.org,2002:merge":
                line = seen[name].start_mark.line + 1
                raise yaml.constructor.ConstructorError(
                    None,
                    None,
                    f"the key {key.value!r} stands on line {line} already",
                    key.start_mark,
                )
            seen[name] = key
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(f"(?:{_FLOAT.pattern})$"), list("-+0123456789.")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(f"(?:{_INT.pattern})$"), list("-+0123456789")
)


def read_text(text: str) -> Any:
    """Reads what a text says.

    Raises:
      yaml.YAMLError: it is no YAML, or has a key twice.
    """
    # Safe: the loader is yaml's safe one, with fewer kinds of values.
    return yaml.load(text, Loader=_Loader)


def read_mapping(path: Path) -> dict[str, Any]:
    """Reads a file that holds one mapping.

    Args:
      path: of a YAML (or JSON) file in UTF-8.

    Raises:
      ConfigError: it cannot be read, is no YAML, has a key twice, or holds no mapping.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    try:
        found = read_text(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}{_where(error)}") from error
    if not isinstance(found, dict):
        held = "nothing" if found is None else f"a {type(found).__name__}"
        raise ConfigError(f"{path} holds {held}; it should have lines such as 'searcher: ...'.")
    return found


def _where(error: yaml.YAMLError) -> str:
    """Says what is wrong and where: ", line 3, column 5: ..."."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    if mark is None:
        return f" is no YAML: {problem}."
    return f", line {mark.line + 1}, column {mark.column + 1}: {problem}."
