"""YAML with JSON's number syntax and without duplicate keys: 1e-3 is a number.

PyYAML implements YAML 1.1, where 1e-3 is a string (no decimal point), 1:30 is the number 90 and
2019-10-31 a date.  Here numbers follow JSON; dates and times remain strings.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from t2t_torch.errors import ConfigError
from t2t_torch.files import check_tree, read_text

MAX_YAML = 1 << 19
"""Bytes of a YAML file; longer ones take many seconds to parse."""

_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_INT = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)")
_CHANGED = {f"tag:yaml.org,2002:{name}" for name in ("float", "int", "timestamp")}


class _Loader(yaml.SafeLoader):
    """Safe loader that builds mappings, lists, strings and numbers only."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (the base class declares it)
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _CHANGED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Returns a mapping without duplicate keys.

        Raises:
          yaml.YAMLError: a key occurs twice.
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


def parse_value(text: str) -> Any:
    """Parses a YAML value.

    Raises:
      yaml.YAMLError: the text is invalid YAML or contains a duplicate key.
    """
    return parse_yaml(text, _Loader)  # a SafeLoader that constructs fewer types


def read_mapping(path: Path) -> dict[str, Any]:
    """Reads a YAML file that contains a single mapping.

    Args:
      path: YAML (or JSON) file in UTF-8.

    Raises:
      ConfigError: the file cannot be read, is invalid YAML, has a duplicate key, or is no mapping.
    """
    try:
        text = read_text(path, max_bytes=MAX_YAML)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    try:
        content = parse_value(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}{_where(error)}") from error
    if not isinstance(content, dict):
        kind = "nothing" if content is None else f"a {type(content).__name__}"
        raise ConfigError(f"{path} holds {kind}; it should have lines such as 'searcher: ...'.")
    return content


def _where(error: yaml.YAMLError) -> str:
    """Returns the position and the problem of a YAML error: ", line 3, column 5: ..."."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    if mark is None:
        return f" is no YAML: {problem}."
    return f", line {mark.line + 1}, column {mark.column + 1}: {problem}."


def parse_yaml(text: str | bytes, loader: Any) -> Any:
    """Returns the content of a YAML text.

    Args:
      text: the text; no longer than `MAX_YAML`.
      loader: class of the loader, a `SafeLoader`.

    Raises:
      yaml.YAMLError: it is no YAML, is nested too deeply, or has too many parts, aliases repeated.
    """

    def parts(node: Any) -> Collection[Any]:
        if isinstance(node, yaml.MappingNode):
            return [one for pair in node.value for one in pair]
        return node.value if isinstance(node, yaml.SequenceNode) else ()

    made = loader(text)
    try:
        node = made.get_single_node()
        check_tree(node, parts, most_nodes=1 << 18, most_depth=64)
        return None if node is None else made.construct_document(node)
    except (RecursionError, ValueError) as error:
        raise yaml.YAMLError(str(error)) from None
    finally:
        made.dispose()
