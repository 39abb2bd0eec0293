"""Generates the reference pages of the site, as hooks of MkDocs (`make docs`).

The pages of registered names, hyperparameters, flags and errors are made from their declarations
in `t2t_torch`, and are not committed.  A notebook becomes a page.  A file outside of docs/ to which
a page links, such as an example, becomes a page of its source.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from t2t_torch import errors, registry
from t2t_torch.bin.commands import COMMANDS
from t2t_torch.hparam import HParams
from t2t_torch.params import Params, _bounds, type_name, value_text
from t2t_torch.settings import Setting

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PROJECT = ("ARCHITECTURE", "CHANGELOG", "CONTRIBUTING")
"""Pages of the repository's root that are pages of the site, in `project/`."""
NAMES = {str: "text", bool: "true, false", int: "integer", float: "number"}
_LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?\)")


# Text of tables.


def cell(text: str) -> str:
    """Returns text as the content of a table cell."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    plain = [re.sub(r"([*_<\[])", r"\\\1", part) for part in parts[::2]]
    parts[::2] = [part.replace("\\<", "&lt;") for part in plain]
    return "".join(parts).replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Returns a table in Markdown."""
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def summary(thing: Any) -> str:
    """Returns the first paragraph of a docstring."""
    return cell((inspect.getdoc(thing) or "").split("\n\n")[0])


def source(kind: str, name: str) -> str:
    """Returns the file that declares a name, relative to the repository."""
    entry = next(entry for entry in registry.entries(kind) if entry.name == name)
    return f"`{Path(entry.path).relative_to(ROOT)}`"


# Pages.


def problems() -> str:
    """The page of all registered problems."""
    groups: dict[type, list[list[str]]] = {}
    for name in registry.list_names("problem"):
        made = registry.problem(name)
        bases = type(made).__mro__[1:]
        base = next(one for one in bases if "problems." not in one.__module__)
        metrics = made.metrics
        listed = metrics if isinstance(metrics, tuple) else dict.fromkeys(sum(metrics.values(), ()))
        groups.setdefault(base, []).append(
            [
                f"`{name}`",
                summary(type(made)),
                " ".join(f"`{flag}`{{.nowrap}}" for flag in made.suggested_flags.split()),
                " ".join(f"`{metric}`" for metric in listed),
            ]
        )
    parts = [
        "# Registered problems\n",
        f"All {sum(map(len, groups.values()))} problems by type. The name may end in `_rev` "
        "(inputs and targets exchanged) or `_copy` (the targets are the inputs). [Data sets]"
        "(../problems.md) describes where the raw files come from.",
    ]
    for base, rows in sorted(groups.items(), key=lambda item: item[0].__name__):
        parts += [f"\n## {base.__name__}\n", f"{summary(base)}\n"]
        parts.append(table(("Problem", "Description", "Recommended flags", "Metrics"), rows))
    return "\n".join(parts)


def models() -> str:
    """The page of all registered models."""
    parts = [
        "# Registered models\n",
        "Choose a model with `--model=NAME --hparams_set=SET`. [Models](../models.md) compares "
        "them. A model trains on every problem whose inputs and targets it supports.",
    ]
    sets = _sets_by_class()
    for name in registry.list_names("model"):
        model = registry.model(name)
        fewest, most = model.texts
        texts = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        fields = [field for field, _, _, _, _ in _fields(model.HParams)[-1][1]]
        parts += [
            f"\n## {name}\n",
            f"{summary(model)}\n",
            f"{summary(importlib.import_module(model.__module__))}\n",
            table(
                ("", ""),
                [
                    ["Predicts", _types(model.produces)],
                    ["Reads", f"{_types(model.reads)}; number of texts: {texts}"],
                    ["Sets", " ".join(f"`{one}`" for one in sets.get(model.HParams, ()))],
                    ["Own hyperparameters", " ".join(fields) or "none"],
                    ["Source", source("model", name)],
                ],
            ),
        ]
    return "\n".join(parts)


def _types(kinds: Iterable[type]) -> str:
    return ", ".join(f"`{kind.__name__}`" for kind in kinds) or "no inputs"


def _sets_by_class() -> dict[type, list[str]]:
    made: dict[type, list[str]] = {}
    for name in registry.list_names("hparams"):
        made.setdefault(type(registry.hparams(name)), []).append(name)
    return made


def hparams_sets() -> str:
    """The page of all sets and ranges of hyperparameters."""
    parts = [
        "# Sets of hyperparameters\n",
        "The values in which each set differs from the [defaults](../hparams.md). Change values of "
        "a set with `--hparams=name=value,name=value`.",
    ]
    for kind, names in _sets_by_class().items():
        parts.append(f"\n## {kind.__name__}\n")
        rows = []
        for name in names:
            made = registry.hparams(name)
            defaults = type(made)()
            changed = {
                field: value
                for field in type(made).model_fields
                if (value := getattr(made, field)) != getattr(defaults, field)
            }
            shown = " ".join(f"`{field}={value_text(value)}`" for field, value in changed.items())
            rows.append([f"`{name}`", shown or "the defaults"])
        parts.append(table(("Set", "Values"), rows))
    parts += [
        "\n## Ranges\n",
        "Ranges for `--hparams_range` of [t2t-tuner](../../how_to/search.md) and of the trainer's "
        "flags of autotuning.\n",
        table(
            ("Range", "Source"),
            [
                [f"`{name}`", source("ranged_hparams", name)]
                for name in registry.list_names("ranged_hparams")
            ],
        ),
    ]
    return "\n".join(parts)


def _fields(kind: type[Params]) -> list[tuple[type, list[tuple[str, str, str, str, str]]]]:
    """Lists the fields by the class that declares them, as cells of a table."""
    found: dict[type, list[tuple[str, str, str, str, str]]] = {}
    for name, field in kind.model_fields.items():
        home = next(c for c in reversed(kind.__mro__) if name in getattr(c, "model_fields", ()))
        literal = typing.get_origin(field.annotation) is typing.Literal
        values = "one of" if literal else type_name(field.annotation)
        row = (
            f"`{name}`",
            cell(values),
            f"`{value_text(field.default)}`" if field.default not in ("", None) else "",
            cell(_bounds(field).strip(" ()").replace("|", ", ")),
            cell(field.description or ""),
        )
        found.setdefault(home, []).append(row)
    found.setdefault(kind, [])
    return sorted(found.items(), key=lambda item: item[0] is kind)


def hparams() -> str:
    """The page of all hyperparameters, by the class that declares them."""
    import t2t_torch.hparam_groups  # noqa: F401  (its classes are bases of those of models)

    parts = [
        "# Hyperparameters\n",
        "Every field that `--hparams=name=value` takes. `t2t-trainer --help_hparams --model=NAME "
        "--hparams_set=SET` prints the values of a set and their sources. The first tables apply "
        "to every model; those of a model or a family of models follow.",
    ]
    classes = [HParams, *_sets_by_class()]
    seen: set[type] = set()
    head = ("Name", "Type", "Default", "Values", "Meaning")
    for kind in classes:
        for home, rows in _fields(kind):
            if home not in seen and rows:
                seen.add(home)
                parts += [f"\n## {home.__name__}\n", f"{summary(home)}\n", table(head, rows)]
    return "\n".join(parts)


def others() -> str:
    """The page of the other registered names."""
    guides = {
        "optimizer": "`--hparams=optimizer=NAME`; see [Optimizers](../optimizers.md).",
        "schedule": "`--hparams=learning_rate_schedule=NAME`; see [Optimizers](../optimizers.md).",
        "loss": "`--hparams=loss=NAME`; see [Losses](../losses.md).",
        "metric": "`--eval_metrics=NAME,NAME`; see [Metrics](../metrics.md).",
        "hook": "`--hooks=NAME`; see [Watch a run](../../how_to/watch_a_run.md#hooks).",
        "reader": "`format` of a declaration; see [Your own data](../../tutorials/own_data.md).",
    }
    parts = ["# Optimizers, schedules, losses, metrics, hooks and readers\n"]
    for kind, guide in guides.items():
        find = getattr(registry, kind)
        rows = [
            [f"`{name}`", summary(find(name)), source(kind, name)]
            for name in registry.list_names(kind)
        ]
        parts += [f"\n## {kind.capitalize()}s\n", f"{guide}\n".replace("losss", "losses")]
        parts.append(table(("Name", "Description", "Source"), rows))
    return "\n".join(parts).replace("## Losss", "## Losses")


def flags() -> str:
    """The page of the flags of all commands."""
    parts = [
        "# Flags\n",
        textwrap.dedent("""\
            All flags of all commands, from their declarations. Every command also has `--help`, and
            reads flags from a JSON file:

                t2t-trainer --config=run.json --train_steps=1000

            The keys of the file are flags; flags on the command line win. `hparams` and
            `decode_hparams` may be objects. `t2t-trainer --config_schema` prints the JSON schema of
            the file, for editors and other programs; so does every other command."""),
    ]
    for name, command in COMMANDS.items():
        parts.append(f"\n## {name}\n")
        rows = []
        for flag, field in command.declared.items():
            default = field.default
            shown = "" if default in (None, "", ()) else f"`{value_text(default)}`"
            meaning = "<br>".join(map(cell, field.meaning.split("\n")))
            rows.append([f"`--{flag}`", _values(field), shown, meaning])
        parts.append(table(("Flag", "Value", "Default", "Meaning"), rows))
    return "\n".join(parts)


def _values(field: Setting) -> str:
    """Returns the values that a flag takes."""
    if field.choices:
        return ", ".join(field.choices)
    kind = "path" if field.path else NAMES[str if field.is_list else field.kind]
    if field.is_list:
        kind += ", repeated" if field.repeated else ", ..."
    if field.high is not None:
        return f"{kind}, {field.low} to {field.high}"
    return kind if field.low is None else f"{kind}, at least {field.low}"


def error_classes() -> Iterator[type[errors.T2TError]]:
    """Yields the classes of errors that users can fix, the base class first."""
    for name in ("runtime.prediction", "trial.pytorch_trial"):  # declare further public ones
        importlib.import_module(f"t2t_torch.{name}")
    todo: list[type[errors.T2TError]] = [errors.T2TError]
    while todo:
        kind = todo.pop(0)
        yield kind
        todo += [one for one in kind.__subclasses__() if one.__module__.startswith("t2t_torch.")]


def error_page() -> str:
    """The page of the classes of errors."""
    rows = [
        [
            f"`{kind.__name__}`",
            f"`{kind.__bases__[0].__name__}`",
            str(kind.exit_code),
            summary(kind),
            f"`{kind.__module__}`",
        ]
        for kind in error_classes()
    ]
    return "\n".join(
        [
            "# Errors and exit codes\n",
            "Errors that a user can fix are subclasses of `T2TError`. A command prints the message "
            "without a traceback and ends with the exit code of the class; in Python the exception "
            "is raised. Any other exception is a defect of the library and keeps its traceback. "
            "[Troubleshooting](../how_to/troubleshooting.md) lists frequent messages.\n",
            table(("Class", "Base class", "Exit code", "Meaning", "Module"), rows),
            "\n## Exit codes\n",
            table(
                ("Code", "Meaning"),
                [
                    ["0", "The command has done its work."],
                    ["1", "A defect of the library, with a traceback; any failure under torchrun."],
                    [f"{errors.EXIT_CODE}", "An error of the table above: fix it and run again."],
                    ["3", "The hyperparameters of a trial are impossible (`InvalidHP`)."],
                    [f"{errors.NOT_FINITE_CODE}", "The training has diverged (`NotFiniteError`)."],
                    ["128 + n", "Stopped by signal n, after a checkpoint if it trained; 130 is "
                     "Ctrl-C, 143 SIGTERM. `--signal_exit_code` sets another code."],
                ],
            ),
            "\n[The run directory](run_directory.md) describes what a stopped run leaves, and "
            "[Reliability](../explanation/reliability.md#exit-codes-and-starting-again) how to "
            "start it again automatically.\n",
        ]
    )  # fmt: skip


PAGES: dict[str, Callable[[], str]] = {
    "reference/registry/problems.md": problems,
    "reference/registry/models.md": models,
    "reference/registry/hparams_sets.md": hparams_sets,
    "reference/registry/others.md": others,
    "reference/hparams.md": hparams,
    "reference/flags.md": flags,
    "reference/errors.md": error_page,
}
"""Generated pages: address in docs/ -> function that returns the page."""


# Pages from files outside of docs/, and from notebooks.


def linked_file(page: str, target: str) -> str:
    """Returns the address in the site of a file of the repository that a page links to.

    Args:
      page: file of the page, relative to docs/; or that of a page in `project/`.
      target: the link in it.

    Returns:
      The address relative to docs/; "" if the link is external or leads into docs/.
    """
    if "://" in target or target.startswith("mailto:"):
        return ""
    home = ROOT if page.startswith("project/") else (DOCS / page).parent
    file = Path(os.path.normpath(home / target))
    if not file.is_file() or not file.is_relative_to(ROOT):
        return ""
    if file.is_relative_to(DOCS):
        inside = file.relative_to(DOCS).as_posix()
        return inside if page.startswith("project/") else ""
    if file.parent == ROOT and file.stem in PROJECT:
        return f"project/{file.name}"
    if file.name == "README.md":
        return "index.md"
    return f"source/{file.relative_to(ROOT).as_posix()}.md"


def with_links(page: str, text: str) -> str:
    """Returns a page with links to files replaced by those to their pages."""

    def replaced(match: re.Match[str]) -> str:
        if match[2].endswith(".ipynb"):
            return match[0].replace(".ipynb", ".md")
        address = linked_file(page, match[2])
        if not address:
            return match[0]
        anchor = "" if address == "index.md" else match[3] or ""
        return f"{match[1]}{os.path.relpath(address, Path(page).parent)}{anchor})"

    return _LINK.sub(replaced, text)


def source_page(address: str) -> str:
    """Returns the page of a source file."""
    path = address.removeprefix("source/").removesuffix(".md")
    text = (ROOT / path).read_text("utf-8").rstrip()
    return f"# {path}\n\n````{Path(path).suffix[1:]}\n{text}\n````\n"


def notebook_page(path: Path) -> str:
    """Returns a notebook as Markdown: its cells and their outputs."""
    parts = [f"[Download this page as a notebook]({path.name}){{: download }}\n"]
    cells = json.loads(path.read_text("utf-8"))["cells"]
    for one in cells:
        text = "".join(one["source"])
        if one["cell_type"] == "markdown":
            parts.append(text)
        elif one["cell_type"] == "code" and text.strip():
            parts.append(f"```python\n{text}\n```")
            outputs = [_output(output) for output in one.get("outputs", ())]
            if any(outputs):
                parts.append("```text\n" + "".join(outputs).rstrip() + "\n```")
    first = next((i for i, part in enumerate(parts) if part.startswith("# ")), None)
    if first is not None:  # The title comes first.
        parts.insert(0, parts.pop(first))
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    plain = output.get("data", {}).get("text/plain", output.get("text", ""))
    return "".join(plain) + ("" if "text" in output else "\n")


# Hooks of MkDocs.


def on_config(config: Any) -> Any:
    """Replaces notebooks in the navigation by their pages."""
    config.nav = with_pages_of_notebooks(config.nav)
    return config


def with_pages_of_notebooks(nav: Any) -> Any:
    """Returns a part of the navigation with `.md` for `.ipynb`."""
    if isinstance(nav, list):
        return [with_pages_of_notebooks(item) for item in nav]
    if isinstance(nav, dict):
        return {title: with_pages_of_notebooks(item) for title, item in nav.items()}
    return nav.replace(".ipynb", ".md")


def on_files(files: Any, *, config: Any) -> Any:
    """Adds the generated pages."""
    from mkdocs.structure.files import File

    made = {address: make() for address, make in PAGES.items()}
    made |= {f"project/{name}.md": (ROOT / f"{name}.md").read_text("utf-8") for name in PROJECT}
    for notebook in DOCS.rglob("*.ipynb"):
        made[notebook.relative_to(DOCS).with_suffix(".md").as_posix()] = notebook_page(notebook)
    texts = {
        page.relative_to(DOCS).as_posix(): page.read_text("utf-8") for page in DOCS.rglob("*.md")
    }
    for page, text in {**made, **texts}.items():
        for match in _LINK.finditer(text):
            address = linked_file(page, match[2])
            if address.startswith("source/"):
                made[address] = source_page(address)
    for address, content in made.items():
        file = File.generated(config, address, content=content)
        if address.startswith("source/"):
            from mkdocs.structure.files import InclusionLevel

            file.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(file)
    return files


def on_post_page(output: str, **_: Any) -> str:
    """Replaces the script of the search without a server, which the theme takes from a CDN."""
    shim = re.search(r"https://unpkg\.com/iframe-worker[^\"]*", output)
    local = re.search(r'(?<=href=")[^"]*(?=site\.css")', output)
    return output.replace(shim[0], f"{local[0]}offline_search.js") if shim and local else output


def on_post_template(output_content: str, **_: Any) -> str:
    """Changes the page of unknown addresses as `on_post_page`."""
    return on_post_page(output_content)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Links to the pages of files outside of docs/."""
    return with_links(page.file.src_uri, markdown)
