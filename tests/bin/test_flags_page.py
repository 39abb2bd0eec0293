"""docs/reference/flags.md lists the flags of every command, as the settings classes declare them.

`python tests/bin/test_flags_page.py` writes the page.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from t2t_torch.params import value_text
from t2t_torch.settings import Setting

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "flags.md"
COMMANDS = (
    *("datagen", "data", "trainer", "eval", "decoder", "exporter", "server", "tuner", "latency"),
    *("avg_all", "translate_all", "bleu"),
)
NAMES = {str: "text", bool: "true, false", int: "integer", float: "number"}
HEAD = """# Flags

All flags of all commands, made from the settings classes in the sources by
`python tests/bin/test_flags_page.py`. Every command also has `--help`, and reads flags from a JSON
file:

    t2t-trainer --config=run.json --train_steps=1000

The keys of the file are flags; those on the command line win. `hparams` and `decode_hparams` may be
objects. `t2t-trainer --config_schema` prints the JSON schema of the file, for editors and other
programs; so does every other command.
"""


def page() -> str:
    """Returns the page."""
    parts = [HEAD]
    for name in COMMANDS:
        flags = importlib.import_module(f"t2t_torch.bin.{name}").FLAGS
        parts += [f"\n## {flags.command}\n", "| Flag | Value | Default | Meaning |"]
        parts.append("|---|---|---|---|")
        for flag, field in flags.fields.items():
            default = flags[flag].default
            shown = "" if default in (None, "", []) else f"`{value_text(default)}`"
            meaning = field.meaning.replace("|", "\\|").replace("  ", " ")
            meaning = meaning.replace("\n", "<br>")
            parts.append(f"| `--{flag}` | {value_of(field)} | {shown} | {meaning} |")
    return "\n".join(parts) + "\n"


def value_of(field: Setting) -> str:
    """Returns which values a flag takes."""
    if field.choices:
        return ", ".join(field.choices)
    kind = "path" if field.path else NAMES[str if field.is_list else field.kind]
    if field.is_list:
        kind += ", repeated" if field.repeated else ", ..."
    if field.high is not None:
        return f"{kind}, {field.low} to {field.high}"
    return kind if field.low is None else f"{kind}, at least {field.low}"


def test_the_page_is_current():
    assert PAGE.read_text("utf-8") == page(), "write it:  python tests/bin/test_flags_page.py"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
