"""The errors a user can meet and mend.

    T2TError
    ├── UsageError        a flag or an argument is wrong or missing
    ├── RegistryError     a name is unknown, taken twice, or its file does not import
    ├── HParamsError      a hyperparameter is unknown, out of bounds, or does not fit
    ├── DataError         raw files, shards or vocabularies are missing, altered or malformed
    ├── CheckpointError   a run directory or checkpoint is broken, or of another run
    ├── DecodeError       something cannot be decoded as asked
    ├── ExportError       a model cannot be exported, or its artifact does not answer as it does
    ├── ArtifactError     an artifact is broken or altered, or something that it needs is missing
    ├── NotFiniteError    a training's loss or gradient is not finite, again and again
    ├── TrialError        a user's trial lacks something, or answers otherwise than a trial does
    └── ConfigError       an experiment's configuration cannot be read, or says something wrong

A message says what is wrong, what was expected, and the command or edit that mends it.  The command
line prints a `T2TError` without a traceback and exits with its `exit_code`; any other exception is
a defect of this library and keeps its traceback.
"""

from __future__ import annotations

EXIT_CODE = 2

NOT_FINITE_CODE = 4
"""Exit code of a training that has diverged: a search takes it for a bad trial, not for a bad
command."""


def install_extra(name: str) -> str:
    """Returns the command that installs an optional part of this package, for messages.

    The package is on no index: its source is installed.
    """
    return f"pip install '.[{name}]'  (in the folder of t2t_torch's source)"


class T2TError(Exception):
    """Something a user can mend.

    Attributes:
      exit_code: of a command that ends with it.
    """

    exit_code = EXIT_CODE


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
    """Something cannot be decoded as asked."""


class ExportError(T2TError):
    """A model cannot be exported, or its artifact does not answer as the model does."""


class ArtifactError(T2TError):
    """An artifact is broken, altered or newer than this, or something that it needs is missing."""


class NotFiniteError(T2TError):
    """The loss or the gradient of a training is not finite, again and again."""

    exit_code = NOT_FINITE_CODE


class TrialError(T2TError):
    """A user's trial lacks something, or answers otherwise than a trial does."""


class ConfigError(T2TError):
    """An experiment's configuration cannot be read, or says something wrong."""
