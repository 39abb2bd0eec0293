"""Runs a command by name: python -m t2t_torch.bin t2t-datagen --problem=...; or `datagen`."""

import sys

from t2t_torch.bin.commands import COMMANDS

if __name__ == "__main__":
    name, arguments = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    command = COMMANDS.get(name) or COMMANDS.get(f"t2t-{name.replace('_', '-')}")
    if command is None:
        sys.exit(f"python -m t2t_torch.bin NAME: expected one of {', '.join(COMMANDS)}.")
    sys.exit(command.main(arguments))
