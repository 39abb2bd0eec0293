"""Flags, `--config`, `--help` and error reporting of all commands.

A command parses its flags into settings, and calls a workflow with them:

    baker = Command("t2t-baker", BakingSettings, bake)
    sys.exit(baker.main())
"""

from __future__ import annotations

import atexit
import errno
import functools
import gc
import importlib
import inspect
import json
import logging as python_logging
import math
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from absl import flags, logging

from t2t_torch import registry
from t2t_torch.bin import tensor2tensor_flags
from t2t_torch.errors import EXIT_CODE, DataError, T2TError, UsageError, shortened
from t2t_torch.files import report_streams
from t2t_torch.settings import MissingSettingsError, Setting, Settings, hp
from t2t_torch.signals import StopRequest
from t2t_torch.trust import running
from t2t_torch.workflows.config_file import COMMANDS as SECTIONS
from t2t_torch.workflows.config_file import OBJECTS, size_fault, with_file
from t2t_torch.workflows.context import CONFIG, unknown_hint, write_declaration

# The interpreter's last collection of torch's objects takes 1 to 2 s and frees nothing.
atexit.register(gc.freeze)


INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells: 128 + SIGINT."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_HELP = ("-h", "-help", "--help", "-helpfull", "--helpfull", "-helpshort", "--helpshort")
_LIBRARIES = tuple(
    "PIL aiobotocore azure botocore datasets filelock fsspec matplotlib onnx_ir onnxscript"
    " urllib3".split()
)
"""Loggers of other libraries; only their warnings are shown."""


class CommandOptions(Settings):
    """Flags of every command, which no workflow reads."""

    registry_help: bool = hp(
        False,
        "Lists all names: problems, models, sets, optimizers, metrics ...; with --problem the "
        "models and sets that fit it; exits.",
    )
    config: str | None = CONFIG
    config_schema: bool = hp(False, "Prints the JSON schema of --config's file, and exits.")
    verbosity: int = hp(0, "Logging level: -1 warnings, 0 information, 1 everything.")


class Command:
    """A command: settings, the workflow that takes them, and the documentation.

    A flag has the type, bounds and choices of its field.

    Args:
      name: name of the command.
      settings: class whose fields are the flags, or "module.name" of one of the package;
        `CommandOptions` are added.  Its docstring is printed by `--help`.
      run: function of the settings that returns an exit code; or "module.name" of a workflow, or
        its name in the module of the settings.  Its result is the exit code if it is an integer.
      stop: returns the request to stop that signals make of such a workflow; None: signals end it.
      positional: flag that arguments which are no flags give: a list takes all, others the first.
      lists_names: True for `--registry_help`.
      prepare: returns arguments of its own notation as flags.
    """

    def __init__(
        self,
        name: str,
        settings: type[Settings] | str,
        run: Callable[[Any], int | None] | str,
        *,
        positional: str = "",
        lists_names: bool = True,
        prepare: Callable[[Sequence[str]], list[str]] = list,
        stop: Callable[[], StopRequest] | None = None,
    ) -> None:
        self.name, self._stop = name, stop
        self._settings_or_name, self._run = settings, run
        self._positional, self._prepare = positional, prepare
        self._lists_names = lists_names

    @property
    def _settings(self) -> type[Settings]:
        named = self._settings_or_name
        return _named(named) if isinstance(named, str) else named

    @functools.cached_property
    def _fields(self) -> dict[str, str]:
        """Flag -> field of the settings."""
        return {name.rstrip("_"): name for name in self._settings.declared()}

    @functools.cached_property
    def declared(self) -> dict[str, Setting]:
        """Flag -> its declaration, those of the settings first."""
        fields, options = self._settings.declared(), dict(CommandOptions.declared())
        if not self._lists_names:
            del options["registry_help"]
        own = {name: fields[field] for name, field in self._fields.items()}
        return {**own, **{n: field for n, field in options.items() if n not in own}}

    def __call__(self) -> int:
        """Runs the command of this process; returns its exit code."""
        return self.main()

    def new_flags(self) -> flags.FlagValues:
        """Returns the flags, with their defaults."""
        made = flags.FlagValues()  # type: ignore[no-untyped-call]
        for name, field in self.declared.items():
            flags.DEFINE_flag(_flag_of(name, field), flag_values=made)
        return made

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Parses the flags, runs the command and reports its errors.

        `--help` and `--registry_help` are answered before heavy imports.  A `T2TError`, or an
        `OSError` of a file or a full disk, is printed without a traceback.

        Args:
          argv: arguments without the program's name; default: those of the process.

        Returns:
          The exit code: 0, the result of the command, that of an error, or `INTERRUPTED`.
        """
        wait_passively()
        with report_streams():
            return self._reported(list(sys.argv[1:] if argv is None else argv))

    def _reported(self, arguments: list[str]) -> int:
        """Runs the command as `main`; prints its error, and returns its exit code."""
        try:
            if any(argument in _HELP for argument in arguments):
                print(self.help())
                return 0
            code = self._executed(arguments)
            sys.stdout.flush()
            return code
        except T2TError as error:
            text = f"{error.label}: {error}"
            if isinstance(error, MissingSettingsError):
                # The first command of the documentation, with its continuation lines.
                commands = re.compile(r"^ +\S(?:.*\\\n)*.*$", re.MULTILINE)
                if match := commands.search(inspect.getdoc(self._settings) or ""):
                    text += f"\nExample:\n{match[0]}"
            print(text, file=sys.stderr)
            _write_error_file(text)
            return error.exit_code
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED
        except BrokenPipeError:  # The reader of the outputs, say `head`, has seen enough.
            return 0
        except (UnicodeEncodeError, OSError) as error:
            said = _fault_of_path(error)
            if not said:
                raise
            print(f"error: {said}", file=sys.stderr)
            logging.debug("Where it was met:", exc_info=True)
            return EXIT_CODE

    def _executed(self, arguments: Sequence[str]) -> int:
        """Does what the arguments say; returns the exit code."""
        values, declaration = self._values(arguments)
        if values.get("config_schema"):
            print(json.dumps(self.json_schema(), indent=2))
            return 0
        _start_logging(values.get("verbosity", 0))
        settings = self._settings_of(values)
        if values.get("registry_help"):
            return _print_names(settings)
        with running(settings):
            write_declaration(declaration, settings)
            return self.run(settings)

    def run(self, settings: Any) -> int:
        """Calls the workflow with its settings; returns the exit code."""
        workflow: Any = self._run
        if isinstance(workflow, str):
            module = str(self._settings_or_name).rpartition(".")[0]
            workflow = _named(workflow if "." in workflow else f"{module}.{workflow}")
        if self._stop is None:
            code = workflow(settings)
            return code if isinstance(code, int) else 0
        stop = self._stop()
        workflow(settings, stop=stop)
        return 128 + stop.signal if stop else 0

    def settings_of(self, argv: Sequence[str]) -> Any:
        """Returns the settings that arguments give.

        Raises:
          UsageError: an argument is no flag, or has a wrong value.
        """
        return self._settings_of(self._values(argv)[0])

    def _settings_of(self, values: Mapping[str, Any]) -> Settings:
        """Returns the settings of the given values by flag."""
        own = {field: values[name] for name, field in self._fields.items() if name in values}
        return self._settings(**own)

    def _values(self, argv: Sequence[str]) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
        """Returns the given values, and the declaration of a problem in the `--config` file."""
        # Arguments that are no flags become the flag `positional`.
        words, several = list(argv), self._positional and self.declared[self._positional].is_list
        places = [i for i, word in enumerate(words) if not word.startswith("-")]
        for place in places if several else places[: bool(self._positional)]:
            words[place] = f"--{self._positional}={words[place]}"
        given = self._parsed(self._prepare(words))
        kind = type("Flags", (self._settings, CommandOptions), {})
        return with_file(given, kind, self.name)

    def _parsed(self, arguments: list[str]) -> dict[str, Any]:
        """Returns the values of the flags that are given."""
        values = self.new_flags()
        arguments = tensor2tensor_flags.without_unused(list(values), arguments, self.name)
        try:
            rest = values(["", *arguments])[1:]
        except flags.UnrecognizedFlagError as error:
            hint = tensor2tensor_flags.hint(error.flagname, self.name)
            given = (argument.lstrip("-").partition("=") for argument in arguments)
            said = {flag: value for flag, _, value in given}
            hint = hint or unknown_hint(error.flagname, list(values), said)
            raise UsageError(f"unknown flag --{error.flagname}.{hint} All flags: --help") from None
        except (flags.Error, ValueError) as error:
            raise UsageError(_with_expected_values(values, str(error))) from None
        for name in values:
            flag = values[name]
            is_infinite = isinstance(flag.value, float) and not math.isfinite(flag.value)
            fault = "expected a finite number" if is_infinite else size_fault(name, flag.value)
            if fault:
                raise UsageError(f"--{name}={flag.value}: {fault}. --{name}: {flag.help}")
        if rest:
            raise UsageError(f"unexpected argument {rest[0]!r}; flags are written --name=value.")
        return {name: values[name].value for name in values if values[name].present}

    def help(self) -> str:
        """Returns the help text: the documentation of the command and all its flags."""
        values = self.new_flags()
        lines = [inspect.getdoc(self._settings) or "", "", "Flags:"]
        for name in values:
            flag: Any = values[name]
            default = "" if flag.default in (None, "", [], False) else f" (default: {flag.default})"
            value = "" if flag.boolean else "=..."
            lines.append(f"  --{name}{value}")
            text = f"{flag.help}{default}"
            lines += textwrap.wrap(text, 92, initial_indent=" " * 6, subsequent_indent=" " * 6)
        return "\n".join(lines)

    def json_schema(self) -> dict[str, Any]:
        """Returns the JSON schema of the command's `--config` file."""
        from pydantic import Field, create_model

        # With `_`, as pydantic's models have attributes of their own, such as `json`.
        fields: dict[str, Any] = {
            f"{name}_": (
                field.annotation,
                Field(
                    field.default,
                    description=field.meaning,
                    ge=field.low,
                    le=field.high,
                    json_schema_extra={"enum": list(field.choices)} if field.choices else None,
                ),
            )
            for name, field in self.declared.items()
            if name not in ("config", "config_schema")
        }
        made = create_model(self.name, __config__={"extra": "forbid"}, **fields)
        schema = made.model_json_schema()
        properties = {
            name.removesuffix("_"): {key: value for key, value in field.items() if key != "title"}
            for name, field in schema["properties"].items()
        }
        for name in OBJECTS & properties.keys():
            properties[name]["type"] = [properties[name]["type"], "object"]
        if "problem" in properties:
            kinds = properties["problem"].pop("anyOf", [{"type": "string"}])
            properties["problem"].pop("type", None)
            declaration = {"type": "object", "description": "Declaration of a problem."}
            properties["problem"]["anyOf"] = [*kinds, declaration]
        for name in SECTIONS:
            section = {"type": "object", "description": f"Flags of t2t-{name}."}
            properties.setdefault(name, section)  # --server of t2t-query-server is a flag
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
        return {**head, **schema, "properties": properties}


class PathParser(flags.ArgumentParser[str]):
    """Parses a path and expands `~`, which shells do not expand in `--data_dir=~/data`."""

    def parse(self, argument: str) -> str:
        """Returns the path with `~` expanded."""
        return os.path.expanduser(argument)  # noqa: PTH111 -- Path would eat "./" and a last "/".

    def flag_type(self) -> str:
        """Names the type for `--help`."""
        return "path"


def _named(name: str) -> Any:
    """Returns what "module.name" names in this package."""
    module, _, own = name.rpartition(".")
    return getattr(importlib.import_module(f"t2t_torch.{module}"), own)


def _flag_of(name: str, field: Setting) -> flags.Flag[Any]:
    """Returns the flag that a field declares."""
    default, meaning, words = field.default, field.meaning, flags.ArgumentSerializer[Any]()
    if field.repeated:
        made: flags.Flag[Any] = flags.MultiFlag(  # type: ignore[no-untyped-call]
            flags.ArgumentParser(), words, name, list(default), meaning
        )
        made.help = meaning  # absl adds a line of its own
        return made
    if field.is_list:
        listed: Any = flags.ListSerializer(",")
        return flags.Flag(flags.ListParser(), listed, name, list(default), meaning)
    if field.choices:
        return flags.EnumFlag(name, default, meaning, field.choices)
    if field.kind is bool:
        return flags.BooleanFlag(name, default, meaning)
    parser: Any = PathParser() if field.path else flags.ArgumentParser()
    if field.kind is int:
        parser = flags.IntegerParser(field.low, field.high)  # type: ignore[arg-type]
    elif field.kind is float:
        parser = flags.FloatParser(field.low, field.high)
    return flags.Flag(parser, words, name, default, meaning)


def _write_error_file(message: str) -> None:
    """Writes an error message to the file that torchrun prints when it ends."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not file:
        return
    extra = {"py_callstack": message, "timestamp": str(int(time.time()))}
    content = {"message": {"message": message, "extraInfo": extra}}
    with suppress(OSError):  # the message was printed
        Path(file).write_text(json.dumps(content), encoding="utf-8")


def _print_names(settings: Settings) -> int:
    """Prints all names, or those that fit the problem; returns 0."""
    if getattr(settings, "problem", None):
        with running(settings):
            return _print_fitting(settings)
    try:
        with running(settings):
            return 0
    finally:  # A user's file that cannot be read does not hide the other names.
        print(registry.help_string(), end="")


def _print_fitting(settings: Any) -> int:
    """Prints the models that fit `--problem`, and their hparams sets; returns 0.

    Raises:
      UsageError: the features of the problem depend on its data, which is not given.
    """
    from t2t_torch.model import fitting_models

    problem = registry.problem(settings.problem)
    data_dir = getattr(settings, "data_dir", None)
    try:
        features = problem.features(Path(data_dir or ""))
    except DataError as error:
        raise UsageError(
            f"the models that fit {problem.full_name!r} depend on its generated data: give its "
            f"--data_dir. {error}"
        ) from None
    known = {name: type(registry.hparams(name)) for name in registry.list_names("hparams")}
    meanings = {one.name: one.meaning for one in registry.entries("model")}
    for name in fitting_models(features):
        needed = registry.model(name).HParams
        sets = [one for one, kind in known.items() if issubclass(kind, needed)]
        own = [one for one in sets if one.startswith(f"{name}_")] or sets
        print(f"--model={name}  {meanings.get(name, '')}")
        listed = textwrap.wrap(", ".join(own), 100)
        print("\n".join(f"    {line}" for line in listed))
    print(f"\nRecommended:  {problem.suggested_flags}")
    return 0


def _fault_of_path(error: UnicodeEncodeError | OSError) -> str:
    """Returns what is wrong with a file or a disk; empty if the error is of another kind."""
    if isinstance(error, UnicodeEncodeError):
        if not re.search("[\\udc80-\\udcff]", error.object):  # bytes of a path that are not UTF-8
            return ""
        return f"{shortened(ascii(error.object))} is not UTF-8. Rename the file or folder."
    if error.errno in _FULL or "No usable temporary directory" in str(error):
        mend = ". Free disk space, or raise the limit of file sizes (ulimit -f)."
    elif error.filename is None:
        return ""
    else:
        mend = ""
    place = f"{error.filename}: " if error.filename is not None else ""
    return f"{place}{error.strerror or error}{mend}"


def _with_expected_values(values: flags.FlagValues, message: str) -> str:
    """Replaces the reason in an error message of absl by the accepted values of the flag."""
    match = re.match(r"flag (--(\w+)=.*?): ", message, re.DOTALL)
    if match is None or match[2] not in values:
        return message
    flag: Any = values[match[2]]
    if choices := getattr(flag.parser, "enum_values", ()):
        return f"{match[1]}: expected {', '.join(choices[:-1])} or {choices[-1]}."
    expected = "true or false" if flag.boolean else flag.parser.syntactic_help
    return f"{match[1]}: expected {expected}. --{match[2]}: {flag.help}"


class _PlainFormatter(python_logging.Formatter):
    """Formats a message as the trainer's progress lines, without time and place."""

    def format(self, record: python_logging.LogRecord) -> str:
        """Returns the message, after "warning: " or "error: " if it is one."""
        text = super().format(record)
        levelled = record.levelno >= python_logging.WARNING
        return f"{record.levelname.lower()}: {text}" if levelled else text


def _start_logging(verbosity: int) -> None:
    """Sends the log to stderr, from this level on."""
    if not flags.FLAGS.is_parsed():  # absl's own flags: they keep their defaults.
        flags.FLAGS.mark_as_parsed()
    logging.use_absl_handler()
    logging.set_verbosity(verbosity)
    formatter = logging.PythonFormatter() if verbosity > 0 else _PlainFormatter()
    logging.get_absl_handler().setFormatter(formatter)
    for library in _LIBRARIES:
        python_logging.getLogger(library).setLevel(python_logging.WARNING)


def wait_passively() -> None:
    """Makes OpenMP's threads wait for each other without computing; before torch is imported.

    Where another program holds a core, threads that wait actively hold the others, and training
    falls to a third or less (benchmarks/busy_machine.py).  A setting of the user is kept.
    """
    if "torch" not in sys.modules and "GOMP_SPINCOUNT" not in os.environ:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
