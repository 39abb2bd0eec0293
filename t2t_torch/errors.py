"""Errors that users can fix.

    T2TError
    ├── UsageError        a flag or an argument is wrong or missing
    ├── RegistryError     a name is unknown, taken twice, or its file does not import
    ├── HParamsError      a hyperparameter is unknown, out of bounds, or does not fit
    ├── DataError         raw files, shards or vocabularies are missing, altered or malformed
    ├── CheckpointError   a run directory or checkpoint is broken, or of another run
    ├── DecodeError       an input cannot be decoded with the given settings
    ├── ExportError       a model cannot be exported, or its artifact has other outputs
    ├── ArtifactError     an artifact is broken or altered, or something that it needs is missing
    ├── NotFiniteError    the loss or the gradient is repeatedly not finite in training
    ├── CorruptionError   a bit of a training flipped, or a machine computes wrongly
    ├── TrialError        a user's trial lacks a method or returns an invalid value
    └── ConfigError       the configuration of an experiment cannot be read or is invalid

A message names the problem, the expected value, and the command or edit that fixes it.  It spells a
setting as the flag `--name=value`; functions of the library respell it (`in_python`).  Commands
print a `T2TError` without a traceback and exit with its `exit_code`; any other exception is a
defect of this library and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

EXIT_CODE = 2

NOT_FINITE_CODE = 4
"""Exit code of a training that has diverged: a search takes it for a bad trial, not for a bad
command."""


def install_extra(name: str) -> str:
    """Returns the command that installs an optional dependency group, for messages.

    The package is not published on an index; it is installed from source.
    """
    return f"pip install '.[{name}]'  (in the folder of t2t_torch's source)"


def did_you_mean(
    name: str, known: Iterable[str], *, limit: int = 3, cutoff: float = 0.6, form: str = "{!r}"
) -> str:
    """Returns " Did you mean 'a' or 'b'?" with the most similar names; "" if none is similar.

    Args:
      name: the unknown name.
      known: the valid names.
      limit: largest number of suggestions.
      cutoff: smallest similarity of a suggestion, from 0 to 1; see `difflib.get_close_matches`.
      form: format of a suggestion.
    """
    import difflib

    near = difflib.get_close_matches(name, list(known), n=limit, cutoff=cutoff)
    return f" Did you mean {' or '.join(map(form.format, near))}?" if near else ""


def listed(names: Iterable[object], most: int = 5) -> str:
    """Returns "a, b and 3 more": the first names, and how many others there are."""
    known = list(map(str, names))
    more = len(known) - most
    return ", ".join(known[:most]) + (f" and {more} more" if more > 0 else "")


_LONGEST = 1000  # characters of a line of a message


def shortened(line: str, most: int = _LONGEST) -> str:
    """Returns a line without its middle if it is longer than `most` characters."""
    left_out = len(line) - most
    if left_out <= 0:
        return line
    return f"{line[: most * 2 // 3]} [... {left_out:,} characters ...] {line[-most // 3 :]}"


class T2TError(Exception):
    """Base class of errors that a user can fix.

    Long lines of a message, which quote an input, are printed without their middle.

    Attributes:
      exit_code: exit status of a command that fails with this error.
      label: what a command prints before the message.
    """

    exit_code = EXIT_CODE
    label = "error"

    def __str__(self) -> str:
        return "\n".join(map(shortened, super().__str__().split("\n")))


_SETTING = re.compile(
    r"(?P<command>\bt2t-[a-z-]+(?:\s+(?:\\\n\s*)?--?[\w-]+(?:=\S+)?)*)"  # of a shell
    r"|(?<![\w-])--(?P<name>[a-z]\w*)(?![\w-])(?:=(?P<value>\"[^\"]*\"|'[^']*'|\S*[^\s.,:;)]))?"
)
_LITERAL = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?|[A-Z_]+|\.*|\".*\"|'.*'", re.DOTALL)


@contextlib.contextmanager
def in_python(booleans: Collection[str] = ()) -> Iterator[None]:
    """Spells settings in the message of an error as keyword arguments: `train_steps=5`.

    Commands of a shell are left as they are.

    Args:
      booleans: names of settings that are True or False, whose flags have no value.

    Raises:
      T2TError: the error of the body.
    """

    def spell(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"]
        if match["command"]:
            return match[0]
        if value is None:
            off = name.removeprefix("no")
            return f"{off}={off == name}" if {name, off} & set(booleans) else name
        if value.lower() in ("true", "false"):
            value = value.capitalize()
        elif not _LITERAL.fullmatch(value):
            value = repr(value)
        return f"{name}={value}"

    try:
        yield
    except T2TError as error:
        error.args = (_SETTING.sub(spell, str(error)),)
        raise


class UsageError(T2TError):
    """A flag or an argument is wrong or missing."""


class RegistryError(T2TError):
    """A name is unknown, declared twice, or the file that declares it does not import."""


class HParamsError(T2TError):
    """A hyperparameter is unknown, out of bounds, or does not fit the model."""


class DataError(T2TError):
    """Raw files, shards or vocabularies are missing, altered or malformed."""


class CheckpointError(T2TError):
    """A run directory or a checkpoint is broken, or belongs to another run."""


class DecodeError(T2TError):
    """An input cannot be decoded with the given settings."""


class ExportError(T2TError):
    """A model cannot be exported, or the outputs of its artifact differ from those of the model."""


class ArtifactError(T2TError):
    """An artifact is damaged, altered or too new, or something that it needs is missing."""


class NotFiniteError(T2TError):
    """The loss or the gradient is repeatedly not finite in training."""

    exit_code = NOT_FINITE_CODE


class CorruptionError(T2TError):
    """A bit of a training flipped, or a machine computes wrongly; a scheduler may take another."""

    exit_code = 5


class TrialError(T2TError):
    """A user's trial lacks a method or returns an invalid value."""


class ConfigError(T2TError):
    """The configuration of an experiment cannot be read or is invalid."""


def require(module: str, extra: str, purpose: str, kind: type[T2TError] = UsageError) -> Any:
    """Returns a module of an optional dependency.

    Args:
      module: name of the module.
      extra: group of dependencies that has it.
      purpose: beginning of the error message: what needs which package.
      kind: class of the error.

    Raises:
      T2TError: the module cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise kind(f"{purpose} ({error}):  {install_extra(extra)}") from None
