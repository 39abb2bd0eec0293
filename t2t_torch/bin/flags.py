"""Shared by all commands: common flags, `--help` and error reporting.

Each command has its own `CommandFlags`, so several commands can run in one process:

    class BakingOptions(Settings):
        loaves: int = hp(2, "Loaves in the oven.", low=1)

    FLAGS = shared.CommandFlags("t2t-baker", BakingOptions, common=("problem", "data_dir"))

    def main(argv: Sequence[str] | None = None) -> int:
        return shared.run_main(_run, FLAGS, __doc__, argv)
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import gc
import json
import logging as python_logging
import math
import os
import re
import shlex
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from absl import flags, logging

from t2t_torch import registry
from t2t_torch.bin import config_file, tensor2tensor_flags
from t2t_torch.errors import (
    EXIT_CODE,
    DataError,
    RegistryError,
    T2TError,
    UsageError,
    did_you_mean,
    in_python,
    shortened,
)
from t2t_torch.files import check_target, report_streams
from t2t_torch.settings import Setting, Settings, hp
from t2t_torch.trust import trusting

if TYPE_CHECKING:
    from t2t_torch.mode import Split
    from t2t_torch.params import Params
    from t2t_torch.problem import Problem
    from t2t_torch.train.run_directory import TaskRecord


# The interpreter's last collection of torch's objects takes 1 to 2 s and frees nothing.
atexit.register(gc.freeze)


INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells: 128 + SIGINT."""

_R = TypeVar("_R")
_LARGEST = 2**31 - 1
_LARGEST_SEED = 2**63 - 1
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_HELP = ("-h", "-help", "--help", "-helpfull", "--helpfull", "-helpshort", "--helpshort")
_LIBRARIES = (
    "PIL",
    "datasets",
    "filelock",
    "fsspec",
    "matplotlib",
    "onnx_ir",
    "onnxscript",
    "urllib3",
)
"""Loggers of other libraries; only their warnings are shown."""


class CommonOptions(Settings):
    """Flags that several commands share; `run_main` executes those from `t2t_usr_dir` on."""

    problem: str | None = hp(
        None, "Problem to learn; ..._rev swaps inputs and targets.  Names: --registry_help."
    )
    model: str | None = hp(
        None, "Model to train; auto: the recommended one.  Names: --registry_help."
    )
    hparams_set: str | None = hp(
        None,
        "Named set of hyperparameters; auto: the recommended one.  Names: --registry_help.",
    )
    hparams: str = hp("", 'Changes to the set: "hidden_size=512,label_smoothing=0".')
    data_dir: str | None = hp(None, "Directory of the generated data.", path=True)
    tmp_dir: str | None = hp(
        None, "Directory of raw files; missing files are downloaded.", path=True
    )
    output_dir: str | None = hp(
        None, "Run directory: checkpoints, hyperparameters, vocabularies, summaries.", path=True
    )
    eval_metrics: tuple[str, ...] = hp(
        (), "Metrics besides the problem's, each for the targets it fits: a,b,c."
    )
    random_seed: int | None = hp(None, "Random seed.")
    verify_data: Literal["changed", "full"] = hp(
        "changed",
        "Shards of --data_dir that are compared with their checksums.  changed: if their size or "
        "times changed since the last check; full: all of them; finds disk errors.",
    )
    t2t_usr_dir: tuple[str, ...] = hp(
        (),
        "Directory of your own problems, models and sets; may be given repeatedly.",
        repeated=True,
    )
    trust_code: bool = hp(
        False, "Executes Python code that comes with the run; see docs/explanation/security.md."
    )
    registry_help: bool = hp(
        False,
        "Lists all names: problems, models, sets, optimizers, metrics ...; with --problem the "
        "models and sets that fit it; exits.",
    )
    config: str | None = hp(
        None, "JSON file of flags; flags given on the command line win.", path=True
    )
    config_schema: bool = hp(False, "Prints the JSON schema of --config's file, and exits.")
    verbosity: int = hp(0, "Logging level: -1 warnings, 0 information, 1 everything.")


RUN_FLAGS = ("problem", "model", "hparams_set")
"""Names of the flags of what a run trains."""

CODE_FLAGS = ("t2t_usr_dir", "trust_code", "registry_help")
"""Names of the flags of commands that import a user's code."""

_OF_ALL_COMMANDS = ("config", "config_schema", "verbosity")


class PathParser(flags.ArgumentParser[str]):
    """Parses a path and expands `~`, which shells do not expand in `--data_dir=~/data`."""

    def parse(self, argument: str) -> str:
        """Returns the path with `~` expanded."""
        return os.path.expanduser(argument)  # noqa: PTH111 -- Path would eat "./" and a last "/".

    def flag_type(self) -> str:
        """Names the type for `--help`."""
        return "path"


class CommandFlags(flags.FlagValues):
    """The flags of a command, created from the fields of settings classes.

    A flag has the type, bounds and choices of its field.  A trailing `_` of the name is dropped.

    Args:
      command: name of the command.
      *settings: classes whose fields become flags.
      common: names of `CommonOptions` that become flags too, and come first; a field of the same
        name in `settings` replaces one.  Every command has `--config`, `--config_schema` and
        `--verbosity`.
      without: fields of `settings` that do not become flags.

    Raises:
      ValueError: `CommonOptions` has no field of a name in `common`.
    """

    def __init__(
        self,
        command: str,
        *settings: type[Settings],
        common: Sequence[str] = (),
        without: Sequence[str] = (),
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        own = {
            name.rstrip("_"): field
            for one in settings
            for name, field in one.declared().items()
            if name not in without
        }
        shared = CommonOptions.declared()
        if unknown := [name for name in common if name not in shared]:
            known = ", ".join(shared)
            raise ValueError(f"{unknown[0]!r} is not a shared flag; those are {known}.")
        fields = {name: own.get(name, shared[name]) for name in common}
        fields |= {name: field for name, field in own.items() if name not in fields}
        fields |= {name: shared[name] for name in _OF_ALL_COMMANDS if name not in fields}
        for name, field in fields.items():
            flags.DEFINE_flag(_flag_of(name, field), flag_values=self)
        # FlagValues would make flags of attributes.
        self.__dict__["command"], self.__dict__["fields"] = command, fields
        self.__dict__["shared"] = frozenset(shared)
        self.__dict__["declaration"] = None  # of the problem, in the file of `--config`

    def value_of(self, name: str) -> Any:
        """Returns the value of a flag."""
        return self[name].value

    def set(self, settings: Mapping[str, Any]) -> None:
        """Sets all flags from Python values; those without a value, or with None, get defaults.

        Args:
          settings: values by flag.  A path may be a `Path`, and a flag of `config_file.OBJECTS` a
            mapping.

        Raises:
          UsageError: there is no such flag, or a value does not fit; all are reported.
        """
        self.reset()
        faults = []
        for name, value in settings.items():
            field: Setting | None = self.__dict__["fields"].get(name)
            if field is None:
                faults.append(f"unknown setting {name!r}.{_flag_hint(self, name, ())}")
                continue
            if value is None:
                continue
            if field.is_list:
                items = [value] if not isinstance(value, list | tuple) else value
                value = tuple(str(one) if isinstance(one, Path) else one for one in items)
            elif isinstance(value, Path):
                value = str(value)
            elif name in config_file.OBJECTS and isinstance(value, Mapping):
                value = config_file.pairs(value)
            if fault := field.fault(value):
                faults.append(f"{name}={value!r}: {fault}. ({name}: {field.meaning})")
            elif field.path:
                value = os.path.expanduser(value)  # noqa: PTH111 -- as `PathParser`
            self[name].value = list(value) if field.is_list else value
            self[name].present = 1
        if faults:
            self.reset()
            raise UsageError(f"{self.__dict__['command']}: " + "\n".join(faults))
        for name in settings:
            _check_size(name, self[name])

    def reset(self) -> None:
        """Sets all flags to their defaults."""
        self.__dict__["declaration"] = None
        for name in self:
            self[name].unparse()
            self[name].present = 0

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
            for name, field in self.__dict__["fields"].items()
            if name not in ("config", "config_schema")
        }
        made = create_model(self.__dict__["command"], __config__={"extra": "forbid"}, **fields)
        schema = made.model_json_schema()
        properties = {
            name.removesuffix("_"): {key: value for key, value in field.items() if key != "title"}
            for name, field in schema["properties"].items()
        }
        for name in config_file.OBJECTS & properties.keys():
            properties[name]["type"] = [properties[name]["type"], "object"]
        if "problem" in properties:
            kinds = properties["problem"].pop("anyOf", [{"type": "string"}])
            properties["problem"].pop("type", None)
            declaration = {"type": "object", "description": "Declaration of a problem."}
            properties["problem"]["anyOf"] = [*kinds, declaration]
        for name in config_file.COMMANDS:
            properties[name] = {"type": "object", "description": f"Flags of t2t-{name}."}
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
        return {**head, **schema, "properties": properties}


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


def require(values: flags.FlagValues, *names: str) -> None:
    """Checks that flags are given.

    Raises:
      UsageError: flags are missing; lists all of them with their meanings.
    """
    missing = [name for name in names if not values[name].value]
    if missing:
        raise UsageError(missing_flags(values, missing))


def missing_flags(values: flags.FlagValues, names: Iterable[str]) -> str:
    """Returns the error message for missing flags, with the first example of `--help`."""
    lines = ["missing flags:", *(f"  --{name}=...  {values[name].help}" for name in names)]
    lines += ["Example:", example] if (example := values.__dict__.get("example")) else []
    return "\n".join(lines)


def _example(doc: str | None) -> str:
    """Returns the first command of a command's documentation, with its continuation lines."""
    match = re.search(r"^ +\S(?:.*\\\n)*.*$", doc or "", re.MULTILINE)
    return match[0] if match else ""


def take_data_dir_of_run(values: flags.FlagValues) -> None:
    """Sets `--data_dir` to the folder that the run of `--output_dir` was trained on, if not given.

    Raises:
      CheckpointError: there is no run.
      UsageError: the run does not record the folder, or it no longer exists.
    """
    if values["data_dir"].value:
        return
    from t2t_torch.train.run_directory import RunDirectory

    directory = RunDirectory(str(values["output_dir"].value).split(",")[0])
    directory.task()  # reports a missing run
    names = ["data_dir", config_file.DATA_FROM_RUN]
    recorded = config_file.remembered(directory.path, names, values)
    known = recorded.get("data_dir")
    beside = directory.path / str(recorded.get(config_file.DATA_FROM_RUN, ""))
    if known and not Path(known).is_dir() and len(recorded) == len(names) and beside.is_dir():
        known = str(beside.resolve())  # moved together with the run
    if known and not Path(known).is_dir():
        raise UsageError(
            f"--data_dir is needed: '{directory.path}' was trained on {known}, which no longer "
            "exists. Give its present location, or generate it again with t2t-datagen."
        )
    if not known:
        require(values, "data_dir")
    values["data_dir"].value = known


def file_to_write(values: flags.FlagValues, name: str, *, stdout: bool = False) -> Path | None:
    """Returns the file that a flag names, checked before any work; None if the flag is not set.

    Args:
      values: the flags.
      name: name of the flag.
      stdout: True if `-` means the standard output; it is returned unchecked.

    Raises:
      UsageError: it is a folder, its folder does not exist, or it cannot be written.
    """
    value = values[name].value
    if not value:
        return None
    file = Path(value)
    if stdout and value == "-":
        return file
    if file.is_dir():
        raise UsageError(f"--{name}={file} is a folder; name a file.")
    if not file.resolve().parent.is_dir():
        raise UsageError(
            f"--{name}={file}: there is no folder {file.parent}. Make it:  "
            f"mkdir -p {shlex.quote(str(file.parent))}"
        )
    check_target(file, flag=f"--{name}")
    return file


_SILENCE = 8.0  # seconds


@contextlib.contextmanager
def phase(what: str) -> Iterator[None]:
    """Prints on stderr that a phase without output lasts, after eight seconds and ever more rarely.

    Args:
      what: name of the phase.
    """
    stream, over, start = sys.stderr, threading.Event(), time.monotonic()
    if getattr(stream, "is_silent", False):
        yield
        return

    def report() -> None:
        wait = _SILENCE
        while not over.wait(wait):
            with contextlib.suppress(OSError, ValueError):  # the stream was closed
                print(f"{what}: {time.monotonic() - start:.0f} s so far", file=stream, flush=True)
            wait = min(2 * wait, 60.0)

    thread = threading.Thread(target=report, name="phase", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def verify_data(values: flags.FlagValues, problem: Problem, *splits: Split) -> None:
    """Compares all of a problem's data with its checksums if `--verify_data=full` is set.

    Args:
      values: the command's flags.
      problem: the problem; of a mixture all components are verified.
      splits: the splits to verify; default: all.

    Raises:
      DataError: files differ; names all of them.
    """
    if values["verify_data"].value != "full":
        return
    from t2t_torch.data.manifest import Manifest

    data_dir = Path(str(values["data_dir"].value))
    for name in dict.fromkeys(component.dataset_name for component in problem.components):
        manifest = Manifest.load(data_dir, name)
        manifest.verify(data_dir, splits or None, thorough=True)


def run_main(
    main: Callable[[], int | None],
    values: CommandFlags,
    doc: str | None,
    argv: Sequence[str] | None = None,
    *,
    prepare: Callable[[CommandFlags, Sequence[str]], list[str]] | None = None,
) -> int:
    """Parses the flags, runs a command and reports its errors.

    `--help` and `--registry_help` are answered here, before heavy imports; every `--t2t_usr_dir` is
    imported.  A `T2TError`, or an `OSError` of a file or a full disk, is printed without a
    traceback.

    Args:
      main: the command; reads `values`, does the heavy imports, returns an exit code or None.
      values: the command's flags.
      doc: the command's documentation, printed by `--help`.
      argv: arguments without the program's name; default: those of the process.
      prepare: called with the flags and the arguments; returns the arguments to parse.

    Returns:
      The exit code: 0, the result of `main`, that of an error, or `INTERRUPTED`.
    """
    wait_passively()
    with report_streams():
        return _reported(main, values, doc, list(sys.argv[1:] if argv is None else argv), prepare)


def _reported(
    main: Callable[[], int | None],
    values: CommandFlags,
    doc: str | None,
    arguments: list[str],
    prepare: Callable[[CommandFlags, Sequence[str]], list[str]] | None,
) -> int:
    """Runs a command as `run_main`; prints its error, and returns its exit code."""
    values.__dict__["example"], values.__dict__["declaration"] = _example(doc), None
    try:
        if any(argument in _HELP for argument in arguments):
            print(_help(values, doc))
            return 0
        _parse(values, (prepare or config_file.expanded)(values, arguments))
        if values["config_schema"].value:
            print(json.dumps(values.json_schema(), indent=2))
            return 0
        code = _execute(main, values)
        sys.stdout.flush()
        return code
    except T2TError as error:
        print(f"error: {error}", file=sys.stderr)
        _write_error_file(f"error: {error}")
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


def arguments_of(values: CommandFlags, settings: Mapping[str, Any]) -> list[str]:
    """Returns the arguments of a command for values given in Python.

    Raises:
      UsageError: as `CommandFlags.set`.
    """
    with _set_in_python(values, settings):
        given = [name for name in values if values[name].present]
        return [config_file.argument(values, name, values[name].value) for name in given]


_LOCK = threading.RLock()
"""Held by a function of a command that is called from Python: the flags are global."""

_in_python = 0  # Number of calls in progress, one inside the other.


def is_called_from_python() -> bool:
    """Returns True inside a function of the library, which prints no advice for the shell."""
    return _in_python > 0


@contextlib.contextmanager
def _set_in_python(values: CommandFlags, settings: Mapping[str, Any]) -> Iterator[None]:
    """Sets flags from Python; restores those of the call around this one at the end."""
    global _in_python
    with _LOCK:
        before = {name: (values[name].value, values[name].present) for name in values}
        _in_python += 1
        try:
            with in_python([name for name in values if values[name].boolean]):
                values.set(settings)
                yield
        finally:
            _in_python -= 1
            for name, (value, present) in before.items():
                values[name].value, values[name].present = value, present


def call(values: CommandFlags, main: Callable[[], _R], settings: Mapping[str, Any]) -> _R:
    """Calls a function of a command with the flags set from Python.

    With `verbosity=-1` it prints nothing; what other threads print is not held back.

    Args:
      values: flags of the command.
      main: function that reads the flags.
      settings: values by flag; see `CommandFlags.set`.

    Returns:
      The result of `main`.

    Raises:
      T2TError: as the command; it is not printed.
      KeyboardInterrupt: SIGINT ended the command, after it had saved.
      SystemExit: another signal ended it, after it had saved.
    """
    with _set_in_python(values, settings), contextlib.ExitStack() as streams:
        if (values["verbosity"].value or 0) < 0:
            streams.enter_context(report_streams(silenced=threading.get_ident()))
        try:
            return _within(main, values)
        except SystemExit as stop:
            if stop.code == INTERRUPTED:
                raise KeyboardInterrupt from None
            raise


def _write_error_file(message: str) -> None:
    """Writes an error message to the file that torchrun prints when it ends."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not file:
        return
    extra = {"py_callstack": message, "timestamp": str(int(time.time()))}
    content = {"message": {"message": message, "extraInfo": extra}}
    with contextlib.suppress(OSError):  # the message was printed
        Path(file).write_text(json.dumps(content), encoding="utf-8")


def _execute(main: Callable[[], int | None], values: flags.FlagValues) -> int:
    """Imports the users' folders; lists all names or runs the command; returns the exit code."""
    _start_logging(values["verbosity"].value or 0)
    if "registry_help" not in values or not values["registry_help"].value:
        return _within(main, values) or 0
    if "problem" in values and values["problem"].value:
        return _within(lambda: _print_fitting(values), values)
    try:
        return _within(lambda: 0, values)
    finally:  # A user's file that cannot be read does not hide the other names.
        print(registry.help_string(), end="")


def _print_fitting(values: flags.FlagValues) -> int:
    """Prints the models that fit `--problem`, and their hparams sets; returns 0.

    Raises:
      UsageError: the features of the problem depend on its data, which is not given.
    """
    from t2t_torch.model import fitting_models

    problem = registry.problem(str(values["problem"].value))
    data_dir = values["data_dir"].value if "data_dir" in values else None
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
    suggested = problem.suggested_flags
    print(f"\nRecommended:  {suggested}")
    return 0


def _within(main: Callable[[], _R], values: flags.FlagValues) -> _R:
    """Imports the users' folders; calls a function that may execute the code of trusted runs."""
    if "t2t_usr_dir" in values:
        for directory in values["t2t_usr_dir"].value or ():
            registry.import_usr_dir(directory)
    if "data_dir" in values:
        registry.add_declarations(values["data_dir"].value)
    if declaration := values.__dict__.get("declaration"):
        _write_declaration(declaration, values)
    with trusting("trust_code" in values and bool(values["trust_code"].value)):
        return main()


def _write_declaration(declaration: Mapping[str, Any], values: flags.FlagValues) -> None:
    """Writes the declaration of a `--config` file into the data directory."""
    from t2t_torch.declaration.problem import write_declaration

    if "data_dir" not in values:
        return
    require(values, "data_dir")
    overwrite = "overwrite" in values and bool(values["overwrite"].value)
    write_declaration(declaration, Path(str(values["data_dir"].value)), overwrite=overwrite)


def _parse(values: flags.FlagValues, arguments: list[str]) -> None:
    """Sets the flags from the arguments; missing ones get their defaults."""
    for name in values:
        values[name].unparse()
    command = values.__dict__["command"]
    arguments = tensor2tensor_flags.without_unused(list(values), arguments, command)
    try:
        rest = values(["", *arguments])[1:]
    except flags.UnrecognizedFlagError as error:
        hint = _flag_hint(values, error.flagname, arguments)
        raise UsageError(f"unknown flag --{error.flagname}.{hint} All flags: --help") from None
    except (flags.Error, ValueError) as error:
        raise UsageError(_with_expected_values(values, str(error))) from None
    for name in values:
        _check_size(name, values[name])
    if rest:
        raise UsageError(f"unexpected argument {rest[0]!r}; flags are written --name=value.")


def _check_size(name: str, flag: flags.Flag[Any]) -> None:
    """Raises UsageError for nan, infinity and integers that are too large."""
    value = flag.value
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"--{name}={value}: expected a finite number. --{name}: {flag.help}")
    largest = _LARGEST_SEED if name == "random_seed" else _LARGEST
    if isinstance(value, int) and abs(value) > largest:
        raise UsageError(f"--{name}={value}: expected at most {largest:,}. --{name}: {flag.help}")


def _flag_hint(values: flags.FlagValues, name: str, arguments: Sequence[str]) -> str:
    """Returns a sentence that suggests a replacement for an unknown flag, or nothing."""
    if old := tensor2tensor_flags.hint(name, values.__dict__["command"]):
        return old
    given = {
        flag: value
        for flag, _, value in (argument.lstrip("-").partition("=") for argument in arguments)
    }
    for flag, kind in (("hparams", "hyperparameter"), ("decode_hparams", "setting of decoding")):
        if flag not in values:
            continue
        field = _field_of(flag, name, given.get("hparams_set", ""))
        if field.startswith("--"):
            return f" Did you mean {field}={given.get(name) or 'VALUE'}?"
        if field:
            meant = f"{name!r} is" if field == name else f"Did you mean {field!r}? It is"
            return f" {meant} a {kind}: --{flag}={field}={given.get(name) or 'VALUE'}"
    return did_you_mean(name, values, cutoff=0.7, form="--{}")


def _field_of(flag: str, name: str, hparams_set: str) -> str:
    """Returns the field of --hparams or --decode_hparams, or the flag, that a name stands for."""
    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.hparam import HParams

    kind: type[Params] = DecodeHParams if flag == "decode_hparams" else HParams
    if flag == "hparams" and hparams_set:
        with contextlib.suppress(T2TError):
            kind = type(registry.hparams(hparams_set))
    meant = name if name in kind.model_fields else kind.aliases.get(name, "")
    return meant if meant in kind.model_fields or meant.startswith("--") else ""


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
    detailed = verbosity > 0
    logging.get_absl_handler().setFormatter(
        logging.PythonFormatter() if detailed else _PlainFormatter()
    )
    for library in _LIBRARIES:
        python_logging.getLogger(library).setLevel(python_logging.WARNING)


def _help(values: flags.FlagValues, doc: str | None) -> str:
    """Returns the help text: the documentation of a command and all its flags."""
    lines = [textwrap.dedent(doc or "").strip(), "", "Flags:"]
    for name in values:
        flag: Any = values[name]
        default = "" if flag.default in (None, "", [], False) else f" (default: {flag.default})"
        value = "" if flag.boolean else "=..."
        lines.append(f"  --{name}{value}")
        text = f"{flag.help}{default}"
        lines += textwrap.wrap(text, 92, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)


# How a process keeps the memory that tensors are made of.


# glibc, <malloc.h>
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGE = 2**30  # bytes: larger than the tensors of a step


def wait_passively() -> None:
    """Makes OpenMP's threads wait for each other without computing; before torch is imported.

    Where another program holds a core, threads that wait actively hold the others, and training
    falls to a third or less (benchmarks/busy_machine.py).  A setting of the user is kept.
    """
    if "torch" not in sys.modules and "GOMP_SPINCOUNT" not in os.environ:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def keep_freed_memory() -> bool:
    """Makes this process keep up to a gigabyte of freed memory instead of returning it each time.

    By default glibc returns large tensors to the kernel, and the next step pays for every page
    again.  The cost depends on the machine and on the size of the tensors: a training step of
    `transformer_multi30k` on two idle cores takes 0.42 s with and 0.44 s without this setting; a
    step that computes all logits 0.56 s and 0.90 s (docs/reference/benchmarks.md).
    Without glibc nothing changes.

    Returns:
      True if the C library accepted both settings.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all([mallopt(_M_MMAP_THRESHOLD, _LARGE), mallopt(_M_TRIM_THRESHOLD, _LARGE)])


# Flags that repeat facts of a run are checked against it.


def check_is_of_run(
    values: flags.FlagValues,
    task: TaskRecord,
    run: str | Path,
    names: Sequence[str] = RUN_FLAGS,
    *,
    of_several: bool = True,
) -> None:
    """Checks `--problem`, `--model` and `--hparams_set` against a run.

    Args:
      values: the flags.
      task: the record of the run.
      run: the run directory, for errors.
      names: the flags to check.
      of_several: True if `--problem` may be one of several problems of the run; `load` checks it.

    Raises:
      UsageError: a flag differs from the run.
    """
    for name in names:
        requested, here = values[name].value, getattr(task, name)
        if requested in (None, "", here):
            continue
        if of_several and name == "problem" and _is_of_several(here):
            continue
        raise UsageError(
            f"--{name}={requested}, but '{run}' is a run of {name} {here!r}. Leave "
            f"--{name} out, or give the --output_dir of another run."
        )


def _is_of_several(problem: str) -> bool:
    try:
        return registry.problem(problem).mixing_schedule is not None
    except RegistryError:  # of a folder of the user's, which is imported later
        return True


def check_is_of_trial(values: CommandFlags, of_problems: tuple[str, ...]) -> None:
    """Checks that no flag is given that a run of a trial does not use.

    Args:
      values: the flags.
      of_problems: names of flags that only apply to runs of problems.

    Raises:
      UsageError: such flags are given; lists all of them.
    """
    named = [f"--{name}" for name in of_problems if values[name].present]
    if "," in str(values["output_dir"].value):
        named.append("several runs in --output_dir")
    if named:
        are = "are" if len(named) > 1 else "is"
        raise UsageError(
            f"{', '.join(named)} {are} for a run of a problem, and '{values['output_dir'].value}' "
            f"is one of a trial: leave {'them' if are == 'are' else 'it'} out."
        )
