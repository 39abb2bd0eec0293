"""The commands: their table (commands.py), and the parser of flags (command.py)."""
