"""What the commands share: flags of the same name and meaning, `--help`, and how errors are told.

A command keeps its own `FlagValues`, so that several of them live in one process:

    FLAGS = flags.FlagValues()
    shared.define(FLAGS, "problem", "data_dir", "t2t_usr_dir", "registry_help")
    flags.DEFINE_integer("train_steps", 250000, "Steps in all.", flag_values=FLAGS)

    def main(argv: Sequence[str] | None = None) -> int:
        return shared.run_main(_run, FLAGS, __doc__, argv)
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import json
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags, logging

from t2t_torch import registry
from t2t_torch.errors import EXIT_CODE, T2TError, UsageError
from t2t_torch.trust import trusting

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 + SIGINT."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_HELP = ("-h", "-help", "--help", "-helpfull", "--helpfull", "-helpshort", "--helpshort")
_STRINGS = {
    "problem": "What is learnt; ..._rev swaps inputs and targets.  Names: --registry_help.",
    "model": "What learns it.  Names: --registry_help.",
    "hparams_set": "How: a named set of hyperparameters.  Names: --registry_help.",
}
_PATHS = {
    "data_dir": "Directory of the generated data.",
    "tmp_dir": "Directory of raw files; what is there is used, what is not is downloaded.",
    "output_dir": "Run directory: checkpoints, hyperparameters, vocabularies, summaries.",
}
_OTHERS = ("hparams", "eval_metrics", "t2t_usr_dir", "trust_code", "random_seed", "registry_help")


class PathParser(flags.ArgumentParser[str]):
    """Reads a path: shells leave the `~` of `--data_dir=~/data` as it is."""

    def parse(self, argument: str) -> str:
        """Returns the path with `~` expanded."""
        return os.path.expanduser(argument)  # noqa: PTH111 -- Path would eat "./" and a last "/".

    def flag_type(self) -> str:
        """Names the type for `--help`."""
        return "path"


def define_path(values: flags.FlagValues, name: str, default: str | None, meaning: str) -> None:
    """Defines a flag whose value is a path."""
    flags.DEFINE(PathParser(), name, default, meaning, flag_values=values)


def define(values: flags.FlagValues, *names: str) -> None:
    """Defines some of the shared flags; all but `hparams` are None, empty or False by default.

    Of t2t_usr_dir and registry_help, `run_main` takes care.
    """
    for name in names:
        if name in _STRINGS:
            flags.DEFINE_string(name, None, _STRINGS[name], flag_values=values)
        elif name in _PATHS:
            define_path(values, name, None, _PATHS[name])
        elif name == "hparams":
            meaning = 'Changes to the set: "hidden_size=512,label_smoothing=0".'
            flags.DEFINE_string(name, "", meaning, flag_values=values)
        elif name == "eval_metrics":
            meaning = "Metrics beside the problem's, each for the targets that it is of: a,b,c."
            flags.DEFINE_list(name, [], meaning, flag_values=values)
        elif name == "t2t_usr_dir":
            meaning = "Directory of your own problems, models and sets; may be given repeatedly."
            flags.DEFINE_multi_string(name, [], meaning, flag_values=values)
            values[name].help = meaning  # absl adds a line of its own.
        elif name == "trust_code":
            meaning = "Executes Python code that comes with the run; see docs/security.md."
            flags.DEFINE_boolean(name, False, meaning, flag_values=values)
        elif name == "random_seed":
            flags.DEFINE_integer(name, None, "Seed of everything random.", flag_values=values)
        elif name == "registry_help":
            meaning = "Lists all names: problems, models, sets, optimizers, metrics ...; exits."
            flags.DEFINE_boolean(name, False, meaning, flag_values=values)
        else:
            known = ", ".join([*_STRINGS, *_PATHS, *_OTHERS])
            raise ValueError(f"{name!r} is not a shared flag; those are {known}.")


def require(values: flags.FlagValues, *names: str) -> None:
    """Checks that flags were given.

    Raises:
      UsageError: some were not; all are named, with their meanings.
    """
    missing = [name for name in names if not values[name].value]
    if missing:
        told = "\n".join(f"  --{name}=...  {values[name].help}" for name in missing)
        raise UsageError(f"missing flags:\n{told}")


def run_main(
    main: Callable[[], int | None],
    values: flags.FlagValues,
    doc: str | None,
    argv: Sequence[str] | None = None,
    *,
    prepare: Callable[[flags.FlagValues, Sequence[str]], list[str]] | None = None,
) -> int:
    """Parses the flags, runs a command, and tells its errors.

    `--help` and `--registry_help` are answered here, before anything heavy is imported; every
    `--t2t_usr_dir` becomes a shelf.  A `T2TError`, or what the system says of a file or of a full
    disk, is printed without a traceback.

    Args:
      main: the command's work; reads `values`, imports what is heavy, returns an exit code or None.
      values: the command's flags.
      doc: the command's documentation, printed by `--help`.
      argv: arguments without the program's name; those of the process by default.
      prepare: makes arguments of the flags and arguments, before they are parsed.

    Returns:
      The exit code: 0, what `main` returned, that of an error, or `INTERRUPTED`.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if "verbosity" not in values:
        meaning = "How much is logged: -1 warnings, 0 information, 1 everything."
        flags.DEFINE_integer("verbosity", 0, meaning, flag_values=values)
    try:
        if any(argument in _HELP for argument in arguments):
            print(_help(values, doc))
            return 0
        if prepare is not None:
            arguments = prepare(values, arguments)
        _parse(values, arguments)
        code = _answer(main, values)
        sys.stdout.flush()
        return code
    except T2TError as error:
        print(f"error: {error}", file=sys.stderr)
        _tell_torchrun(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # The reader, say `head`, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None and error.errno not in _FULL:
            raise
        place = f"{error.filename}: " if error.filename is not None else ""
        print(f"error: {place}{error.strerror or error}", file=sys.stderr)
        logging.debug("Where it was met:", exc_info=True)
        return EXIT_CODE


def _tell_torchrun(message: str) -> None:
    """Hands a message to torchrun, which ends with what it finds in this file of its choice."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not file:
        return
    extra = {"py_callstack": message, "timestamp": str(int(time.time()))}
    content = {"message": {"message": message, "extraInfo": extra}}
    with contextlib.suppress(OSError):  # the message was printed
        Path(file).write_text(json.dumps(content), encoding="utf-8")


def _answer(main: Callable[[], int | None], values: flags.FlagValues) -> int:
    """Opens the users' folders, and lists all names or runs the command; returns its exit code."""
    _start_logging(values["verbosity"].value or 0)
    asked_for_names = "registry_help" in values and values["registry_help"].value
    try:
        if "t2t_usr_dir" in values:
            for directory in values["t2t_usr_dir"].value or ():
                registry.import_usr_dir(directory)
    finally:  # A user's file that cannot be read does not hide the other names.
        if asked_for_names:
            print(registry.help_string(), end="")
    with trusting("trust_code" in values and bool(values["trust_code"].value)):
        return 0 if asked_for_names else main() or 0


def _parse(values: flags.FlagValues, arguments: list[str]) -> None:
    """Sets the flags from the arguments; those not given get their defaults."""
    for name in values:
        values[name].unparse()
    try:
        rest = values(["", *arguments])[1:]
    except flags.UnrecognizedFlagError as error:
        near = difflib.get_close_matches(error.flagname, list(values), n=3)
        hint = f" Did you mean {' or '.join(f'--{name}' for name in near)}?" if near else ""
        raise UsageError(f"there is no flag --{error.flagname}.{hint} All flags: --help") from None
    except (flags.Error, ValueError) as error:
        raise UsageError(_told(values, str(error))) from None
    if rest:
        raise UsageError(f"unexpected argument {rest[0]!r}; flags are written --name=value.")


def _told(values: flags.FlagValues, message: str) -> str:
    """Adds to what absl says of a value what its flag takes."""
    match = re.match(r"flag --(\w+)=", message)
    if match is None or match[1] not in values or "should be one of" in message:
        return message
    flag: Any = values[match[1]]
    bounds = getattr(flag.parser, "syntactic_help", "")
    taken = f" It takes {bounds}." if bounds else ""
    return f"{message}.{taken} --{match[1]}: {flag.help}"


def _start_logging(verbosity: int) -> None:
    """Sends the log to stderr, from this level on."""
    if not flags.FLAGS.is_parsed():  # absl's own flags: they keep their defaults.
        flags.FLAGS.mark_as_parsed()
    logging.use_absl_handler()
    logging.set_verbosity(verbosity)


def _help(values: flags.FlagValues, doc: str | None) -> str:
    """Writes what a command does and all its flags."""
    lines = [textwrap.dedent(doc or "").strip(), "", "Flags:"]
    for name in values:
        flag: Any = values[name]
        default = "" if flag.default in (None, "", [], False) else f" (default: {flag.default})"
        value = "" if flag.boolean else "=..."
        lines.append(f"  --{name}{value}")
        text = f"{flag.help}{default}"
        lines += textwrap.wrap(text, 92, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)
