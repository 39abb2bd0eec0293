"""The documentation: its commands run, its Python runs, and all that it names exists."""

from __future__ import annotations

import ast
import contextlib
import doctest
import functools
import importlib.util
import io
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml

import t2t_torch
from t2t_torch import registry, testing
from t2t_torch.bin import tensor2tensor_flags
from t2t_torch.bin.commands import COMMANDS
from t2t_torch.declaration.schema import KINDS, MIXTURES, Beside, Declaration
from t2t_torch.decode.hparam import DecodeHParams, parse_decode_hparams
from t2t_torch.readers.formats import FORMATS
from t2t_torch.registry import parse_problem_name

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
USR_DIR = ROOT / "examples" / "my_usr_dir"

CHECKS = "python -m t2t_torch.testing"
# Later flags win: what the pages run for minutes, a test runs for a second.
SMALL = {
    "t2t-avg-all": ["--n=1"],
    "t2t-bleu": [],
    "t2t-build-vocab": [],
    "t2t-compare": [],
    "t2t-data": [],
    "t2t-datagen": ["--num_concurrent_processes=1", "--max_cases=60"],
    "t2t-trainer": [
        "--train_steps=2",
        "--eval_steps=1",
        "--worker_gpu=0",
        "--hparams=hidden_size=16,num_hidden_layers=1,batch_size=256,learning_rate_warmup_steps=1",
    ],
    "t2t-decoder": ["--decode_hparams=extra_length=2"],
    "t2t-eval": ["--worker_gpu=0"],
    "t2t-exporter": [],
    "t2t-import": [],
    "t2t-latency": [],
    "t2t-predict": [],
    "t2t-quick": ["--minutes=0.02"],
    "t2t-query-server": [],
    "t2t-replay": ["--step=0", "--steps=1:2", "--worker_gpu=0"],
    "t2t-server": [],
    "t2t-translate-all": ["--decode_hparams=extra_length=2"],
    "t2t-tuner": [],
}
NOT_OURS = set(
    "--nproc-per-node --max-restarts --logdir --signal --requeue --open-mode --no-deps "
    "--hypothesis-profile --quick --local --test --nodes --gpus-per-node --time --nnodes "
    "--rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf --local-addr".split()
)
"""torchrun's, TensorBoard's, Slurm's, pip's, pytest's, Determined's."""
BENCHMARK_FLAGS = {
    flag
    for script in (ROOT / "benchmarks").glob("*.py")
    for flag in re.findall(r'add_argument\(\s*"(--\w+)"', script.read_text("utf-8"))
}


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATED = _generator()


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def section(page: Path, heading: str) -> str:
    """The text under a heading of the second level."""
    return re.split(r"^## ", page.read_text("utf-8").split(f"\n## {heading}\n")[1], flags=re.M)[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.M | re.S)


def commands(text: str) -> Iterator[str]:
    """Yields the commands of a text's shell blocks, one a line."""
    for block in blocks(text, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip():
                yield line.strip()


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a command as a shell would, our own in this process and small."""
    if command.startswith(CHECKS):
        monkeypatch.setattr(sys, "argv", shlex.split(command)[2:])
        assert testing.main() == 0, command
        return
    name, *arguments = shlex.split(command)
    if name not in COMMANDS:
        subprocess.run(["bash", "-c", command], check=True)
        return
    monkeypatch.setattr(sys, "stdin", io.StringIO("one two\nns=2\none two\nq\n"))
    small = SMALL[name]
    if "--runner=local" in arguments:  # its tasks are the processes
        small = [one for one in small if not one.startswith("--num_concurrent_processes")]
    if ">" in arguments:  # what a shell would do with it
        *arguments, _, file = arguments
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            assert COMMANDS[name].main([*arguments, *small]) == 0, command
        Path(file).write_text(printed.getvalue(), "utf-8")
        return
    if name == "t2t-decoder":  # Joined: the page's own settings are to be read too.
        own = [one for one in arguments if one.startswith("--decode_hparams=")]
        small = [",".join([*small, *(one.partition("=")[2] for one in own)])]
    assert COMMANDS[name].main([*arguments, *small]) == 0, command


pytestmark = pytest.mark.usefixtures("own_registry")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a reader is: a clone, as far as the pages look at it."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, after "Your own data" of docs/tutorials/commands.md."""
    words = ["one", "two", "three", "four", "five"]
    orders = [" ".join(order) for order in itertools.permutations(words, 3)]
    backwards = [" ".join(reversed(order.split())) for order in orders]
    for side, texts in (("inputs", orders), ("targets", backwards)):
        for part, chosen in (("train", texts[6:]), ("eval", texts[:6])):
            file = folder / "mine" / f"{side}.{part}.txt"
            file.parent.mkdir(exist_ok=True)
            file.write_text("\n".join(chosen) + "\n", "utf-8")
    for command in commands(section(DOCS / "tutorials" / "commands.md", "Your own data")):
        run(command, monkeypatch)
    return folder


def test_the_commands_for_your_own_data_run_and_so_does_the_python_after_them(own_data: Path):
    assert len((own_data / "outputs.txt").read_text("utf-8").splitlines()) == 6
    (own_data / "run" / "multi30k").symlink_to(own_data / "run" / "mine")
    for block in blocks(section(DOCS / "tutorials" / "commands.md", "Python"), "python"):
        exec(block, {})


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "page", ["how_to/decoding.md", "reference/run_directory.md", "how_to/training.md"]
)
def test_what_a_page_says_about_a_run_runs(page: str, own_data: Path, monkeypatch):
    text = (DOCS / page).read_text("utf-8")
    assert blocks(text, "sh")
    for command in commands(text):
        run(command, monkeypatch)
    for block in blocks(text, "python"):
        exec(block, {})


@pytest.fixture
def raw_data(folder: Path) -> Path:
    """Where a reader of own_data.md is: the files that the page begins with."""
    queues = ("sales", "billing", "delivery")
    tickets = [f'T{n},"my ticket, number {n}",{queues[n % 3]},{n % 5 + 1}' for n in range(600)]
    (folder / "raw").mkdir()
    (folder / "raw" / "tickets.csv").write_text(
        "\n".join(["ticket,body,queue,stars", *tickets]) + "\n", "utf-8"
    )
    page = (DOCS / "tutorials" / "own_data.md").read_text("utf-8")
    for line in re.findall(r"^requests/train/.*", page, re.M):
        path, text = line.split(maxsplit=1)
        for part in ("train", "valid", "test"):
            file = folder / path.replace("train", part)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n" * 30, "utf-8")
    return folder


def test_the_page_on_own_data_goes_from_files_to_trained_models(raw_data: Path, monkeypatch):
    page = (DOCS / "tutorials" / "own_data.md").read_text("utf-8")
    declared = {json.loads(text)["problem"]: text for text in blocks(page, "json")}
    for command in commands(page):
        run(command, monkeypatch)
        if "--declare=raw" in command:
            printed = (raw_data / "my_problems" / "tickets.json").read_text("utf-8")
            assert printed == declared["tickets"]
        if "--declare=requests" in command:
            (raw_data / "my_problems" / "requests.json").write_text(declared["requests"], "utf-8")
    for block in blocks(page, "python"):
        exec(block, {})


def test_the_page_on_own_data_tells_all_kinds_formats_and_keys():
    page = DOCS / "tutorials" / "own_data.md"
    firsts = {
        heading: " ".join(re.findall(r"^\| ([^|]*) \|", section(page, heading), re.M))
        for heading in ("Kinds", "Formats", "Keys")
    }
    told = {heading: set(re.findall(r"`(\w+)`", text)) for heading, text in firsts.items()}
    assert told["Kinds"] - {"kind"} == {*KINDS, *MIXTURES}
    assert told["Formats"] - {"format"} == {*FORMATS} - {"parallel"}
    of_mixtures = {"problems", "schedule", "models", "max_input_length"}
    keys = {*Declaration.model_fields, *Beside.model_fields} - of_mixtures
    assert told["Keys"] - {"key"} == keys
    rows = dict(re.findall(r"^\| `(\w+)` (\|.*)$", section(page, "Kinds"), re.M))
    for name, kind in KINDS.items():
        assert set(kind.fields) <= set(re.findall(r"`(\w+)`", rows[name])), name


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "page",
    [
        "how_to/add_a_problem.md",
        "how_to/add_a_model.md",
        "how_to/look_at_your_data.md",
        "how_to/large_data.md",
        "how_to/watch_a_run.md",
    ],
)
def test_what_a_page_says_about_the_examples_runs(page: str, folder: Path, monkeypatch):
    for command in commands((DOCS / page).read_text("utf-8")):
        run(command, monkeypatch)
    assert not list(folder.glob("run/*/ckpt-1000")), "the test was to be a small one"


def test_the_life_of_an_example_is_told_as_it_is(folder: Path):
    page = DOCS / "explanation" / "life_of_an_example.md"
    told = "\n".join(blocks(page.read_text("utf-8"), "pycon"))
    session = doctest.DocTestParser().get_doctest(told, {}, page.name, str(page), 0)
    assert len(session.examples) > 20
    assert doctest.DocTestRunner().run(session).failed == 0


@pytest.mark.parametrize(
    ("page", "kind", "name"),
    [
        ("how_to/add_a_problem.md", "problem", "normalize_spelling"),
        ("how_to/large_data.md", "problem", "tabbed_pairs"),
        ("how_to/add_a_model.md", "model", "bag_of_words"),
        ("how_to/add_a_model.md", "model", "cool_bag_of_words"),
        ("how_to/add_a_model.md", "hparams", "bag_small"),
    ],
)
def test_the_code_that_a_page_shows_is_found_by_its_name(page, kind, name, folder: Path):
    shelf = folder / "pages"
    shelf.mkdir()
    for number, block in enumerate(blocks((DOCS / page).read_text("utf-8"), "python")):
        (shelf / f"block{number}.py").write_text(block, "utf-8")
    registry.import_usr_dir(shelf)
    found = getattr(registry, kind)(name)
    if kind == "model":
        features = testing.text_features()
        model = found(registry.hparams("basic_params1"), features)
        batch = testing.random_batch(features)
        assert model(batch).losses["targets"].sum > 0
        model.train()(batch).losses["targets"].sum.backward()
        with torch.no_grad():
            testing._check_steps(model.eval(), batch)
    if kind == "hparams":
        testing.check_hparams(name)


def without_others(page: Path) -> str:
    """The text of a page; without the first cells of tables, if those are of another library."""
    text = page.read_text("utf-8")
    if page.stem.startswith("from_"):
        text = re.sub(r"^\| .*? \|", "|", text, flags=re.M)
    return text


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_flag_that_is_named_exists(page: Path):
    text = without_others(page)
    known = {command: set(one.declared) for command, one in COMMANDS.items()}
    for command in commands(text):
        name = command.split()[0]
        for flag in re.findall(r"--(\w+)", command) if name in known else ():
            assert flag in known[name], f"{name} has no --{flag}: {command}"
    everywhere = set().union(*known.values()) | {"help"}
    if page.name == "from_tensor2tensor.md":
        everywhere |= tensor2tensor_flags.OLD.keys()
        everywhere |= set().union(*tensor2tensor_flags.OF_COMMAND.values())
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text)) - NOT_OURS - BENCHMARK_FLAGS
    named = {flag[2:] for flag in named if not flag.startswith("--hp_")}  # one of any hparam
    assert not {name for name in named if not {name, name.removeprefix("no")} & everywhere}


@functools.cache
def registered_names(kind: str) -> frozenset[str]:
    """The names of a kind, those of the examples included."""
    registry.import_usr_dir(USR_DIR)
    return frozenset(registry.list_names(kind))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_registered_name_that_a_flag_takes_exists(page: Path):
    shown = "\n".join(blocks(page.read_text("utf-8"), "python"))  # what the page itself declares
    declared = "\n".join(blocks(page.read_text("utf-8"), "json"))
    for flag, kind in (("problem", "problem"), ("model", "model"), ("hparams_set", "hparams")):
        known = registered_names(kind) | set(re.findall(r"def (\w+)", shown))
        known |= {"auto", *re.findall(r'"problem": "(\w+)"', declared)}
        for name in re.findall(rf"--{flag}=(\w+)", page.read_text("utf-8")):
            base = parse_problem_name(name).base_name
            assert base in known or name.isupper() or len(name) == 1, f"--{flag}={name}"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_and_path_leads_to_something(page: Path):
    text = page.read_text("utf-8")
    for link, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", shown_text(text)):
        target = Path(os.path.normpath(page.parent / link)) if link else page
        if "://" in link or target.suffix != ".md":
            assert "://" in link or target.exists(), link
        elif anchor:
            assert anchor[1:] in anchors(page_text(target)), f"{link}{anchor}"
        else:
            assert page_text(target), link
    roots = "t2t_torch|tests|docs|examples|benchmarks|.ci"
    quoted = re.findall(rf"`((?:{roots})/[\w./*-]*)`", text)
    missing = [path for path in quoted if not list(ROOT.glob(path.rstrip("/")))]
    names = re.findall(r"`(?:\w+/)?(\w+\.py)`", text)
    sources = {
        path.name
        for top in ("t2t_torch", "tests", "examples")
        for path in (ROOT / top).rglob("*.py")
    }
    assert not missing + [name for name in names if name not in sources]


def shown_text(text: str) -> str:
    """The text of a page without its code."""
    return re.sub(r"^(`{3,})\w*\n.*?^\1$|`[^`\n]*`", "", text, flags=re.M | re.S)


def page_text(page: Path) -> str:
    """The text of a page, also of one that is generated."""
    if page.exists():
        return page.read_text("utf-8")
    if page.with_suffix(".ipynb").exists():
        return GENERATED.notebook_page(page.with_suffix(".ipynb"))
    return GENERATED.PAGES[page.relative_to(DOCS).as_posix()]()


def anchors(text: str) -> set[str]:
    """The anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.*)", text, re.M)
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[-\s]+", "-", heading) for heading in plain}


def nav_pages(items: list[Any]) -> Iterator[str]:
    """Yields the pages of a part of the navigation."""
    for item in items:
        value = next(iter(item.values())) if isinstance(item, dict) else item
        yield from nav_pages(value) if isinstance(value, list) else [value]


def test_the_navigation_lists_every_page_once_in_four_parts():
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    named = list(nav_pages(GENERATED.with_pages_of_notebooks(site["nav"])))
    written = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    notebooks = {
        page.relative_to(DOCS).with_suffix(".md").as_posix() for page in DOCS.rglob("*.ipynb")
    }
    project = {f"project/{name}.md" for name in GENERATED.PROJECT}
    assert sorted(named) == sorted(written | notebooks | project | {*GENERATED.PAGES})
    parts = [next(iter(part)) for part in site["nav"]]
    assert parts == ["Home", "Tutorials", "How-to", "Reference", "Explanation"]
    assert site["theme"]["font"] is False


def test_the_generated_pages_list_every_name():
    pages = {name: make() for name, make in GENERATED.PAGES.items()}
    names = {
        name: set(re.findall(r"^(?:\| `|## )([\w-]+)", text, re.M)) for name, text in pages.items()
    }
    folder = "reference/registry"
    assert set(registry.list_names("problem")) <= names[f"{folder}/problems.md"]
    assert set(registry.list_names("model")) <= names[f"{folder}/models.md"]
    for kind in ("hparams", "ranged_hparams"):
        assert set(registry.list_names(kind)) <= names[f"{folder}/hparams_sets.md"]
    for kind in ("optimizer", "schedule", "loss", "metric", "hook", "reader"):
        assert set(registry.list_names(kind)) <= names[f"{folder}/others.md"]
    for made in map(registry.hparams, registry.list_names("hparams")):
        assert set(type(made).model_fields) <= names["reference/hparams.md"]
    for command, one in COMMANDS.items():
        assert command in names["reference/flags.md"]
        for flag in one.declared:
            assert f"| `--{flag}` |" in pages["reference/flags.md"]
    for kind in GENERATED.error_classes():
        assert f"| `{kind.__name__}` |" in pages["reference/errors.md"]


def test_the_pages_of_the_python_api_name_what_there_is():
    pages = {page: page.read_text("utf-8") for page in (DOCS / "reference" / "api").glob("*.md")}
    public = {name for name in t2t_torch.__all__ if not name.startswith("_")}
    assert set(re.findall(r"`t2t\.(\w+)`", pages[DOCS / "reference/api/index.md"])) == public
    for name in re.findall(r"^::: (\S+)", "\n".join(pages.values()), re.M):
        if name in ("t2t_torch.registry", "t2t_torch.testing"):
            continue
        module, _, inside = name.rpartition(".")
        assert getattr(importlib.import_module(module), inside).__doc__, name


def literals() -> Iterator[str]:
    """Yields the strings of the package; what an f-string puts in is a null character."""
    for path in (ROOT / "t2t_torch").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    one.value if isinstance(one, ast.Constant) else "\0" for one in node.values
                ]
                yield "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_every_message_of_the_page_on_troubleshooting_is_one_of_the_package():
    page = (DOCS / "how_to" / "troubleshooting.md").read_text("utf-8")
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.M)
    assert len(messages) == page.count("\n| ") - page.count("| Message |") > 40
    known = "\n\n".join(literals())
    for message in messages:
        pieces = [re.escape(piece.strip("'\" ")) for piece in re.split(r"\.{3}", message)]
        assert re.search(r"[^\n]*?\0[^\n]*?".join(filter(None, pieces)), known), message


MIGRATIONS = sorted(DOCS.glob("how_to/from_*.md"))


@functools.cache
def names_of_settings() -> frozenset[str]:
    """The names of all hyperparameters, and of what `--decode_hparams` sets."""
    made = map(registry.hparams, registry.list_names("hparams"))
    return frozenset({*DecodeHParams.model_fields}.union(*(type(h).model_fields for h in made)))


@pytest.mark.parametrize(
    "page", [p for p in MIGRATIONS if "tensor2tensor" not in p.name], ids=page_id
)
def test_a_page_on_migration_names_what_there_is(page: Path):
    quoted = re.findall(r"`([^`]+)`", without_others(page))
    names = {
        *names_of_settings(),
        *t2t_torch.__all__,
        *COMMANDS,
        *KINDS,
        *FORMATS,
        *Declaration.model_fields,
    }
    names |= {name for kind in registry.KINDS for name in registry.list_names(kind)}
    names |= {flag for one in COMMANDS.values() for flag in one.declared}
    known_elsewhere = set(
        "build_model optimizer losses validation_metrics evaluation_reducer hparams "
        "create_lr_scheduler make_data_loaders batch_size logits loss "
        "targets_prefix constraints forbidden best latest".split()
    )
    for one in quoted:
        for setting in (
            re.findall(r"(?<![\w-])([a-z]\w*)=", one)
            if not re.search("t2t|Scheduler|--", one)
            else ()
        ):
            assert setting in names_of_settings(), f"{one}: {setting}"
        if re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", one):
            assert one in names | known_elsewhere, one
    for schedule in re.findall(r"learning_rate_schedule=([\w*]+)", " ".join(quoted)):
        assert {*schedule.split("*")} <= {*registry.list_names("schedule")}


def test_the_table_of_problem_types_names_classes_where_they_are():
    page = (DOCS / "how_to" / "add_a_problem.md").read_text("utf-8")
    rows = re.findall(r"^\| (`\w+Problem`.*?) \| `([\w.]+)` \|", page, re.M)
    assert len(rows) > 10
    for classes, module in rows:
        for name in re.findall(r"`(\w+)`", classes):
            assert hasattr(importlib.import_module(f"t2t_torch.{module}"), name), name


GONE = re.compile(
    r"\b(shel(f|ves)|census|ledgers?|tally|learners?|told|tells?|begun|anew|joints|lockstep|"
    r"made up|(go|goes|going|gone|went) on|rehearsals?|rectangles?|sniff\w*|guess(es|ed)?|"
    r"strangers|beside|asked|asks|mend(s|ed)?|doors?|houses?|rooms?|neighbours)\b",
    re.I,
)
"""Words that only this project used for what the field has names for."""


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=page_id)
def test_a_page_is_written_in_the_words_of_the_field(page: Path):
    text = re.sub(
        r"^    .*$|^\|[-| ]+\|$|\]\([^)]*\)", "", shown_text(page.read_text("utf-8")), flags=re.M
    )
    assert not [match[0] for match in GONE.finditer(text)]
    sentences = re.split(r"(?<=[.:;!])\s+|\n\s*\n|\n#+ |\n(?=[-|])", text)
    assert not [one for one in sentences if re.match(r"(What|Whoever|Which) (?!.*\?)", one.strip())]


@pytest.mark.slow
def test_the_python_of_the_first_page_trains_and_serves(folder: Path):
    (block,) = blocks((DOCS / "index.md").read_text("utf-8"), "python")
    subprocess.run([sys.executable, "-c", block], check=True, cwd=folder)


def test_the_decoding_page_tells_the_defaults():
    rows = re.findall(
        r"^\| `(\w+)` \| (\S+) \|", (DOCS / "how_to" / "decoding.md").read_text("utf-8"), re.M
    )
    assert len(rows) > 5
    assert parse_decode_hparams(",".join(map("=".join, rows))) == DecodeHParams()


def test_the_tables_of_problems_tell_their_flags_and_none_is_missing():
    text = (DOCS / "reference" / "problems.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)`.* \| `(--[^`]+)` \|$", text, flags=re.M)
    flags = dict(rows)
    assert len(rows) == len(flags) > 20
    assert flags == {name: registry.problem(name).suggested_flags for name in flags}
    told = set(flags) | {n for n in registry.list_names("problem") if n.startswith("babi_qa_")}
    assert sorted(set(registry.list_names("problem")) - told) == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_word_for_make_is_one(page: Path):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.M))
    text = page.read_text("utf-8")
    named = re.findall(r"`make ([a-z]+)`|^(?:    )make ([a-z]+)\b", text, flags=re.M)
    assert {first or second for first, second in named} <= targets


def test_the_readme_is_read_in_four_minutes():
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 900


def test_the_tree_of_the_architecture_is_that_of_the_repository():
    tree = blocks(section(ROOT / "ARCHITECTURE.md", "Repository layout"), "text")[0]
    top, inside = [], []
    for line in tree.splitlines():
        words = re.split(r"\s{2,}", line.strip())[0].split()
        (inside if line.startswith("  ") else top).extend(words)
    assert not [name for name in top if not (ROOT / name).exists()]
    assert not [name for name in inside if not (ROOT / "t2t_torch" / name).exists()]
    told = {name.rstrip("/") for name in inside}
    told |= set(re.findall(r"(\w+\.py)", tree))
    here = {path.name for path in (ROOT / "t2t_torch").iterdir() if not path.name.startswith("_")}
    assert here - told <= {"py.typed"}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_no_line_is_longer_than_a_screen(page: Path):
    lines = page.read_text("utf-8").splitlines()
    prose = [line for line in lines if not line.startswith("|")]
    assert not [line for line in prose if len(line) > 140]


def test_the_page_on_models_lists_at_most_eight_concepts():
    page = (DOCS / "how_to" / "add_a_model.md").read_text("utf-8")
    assert len(re.findall(r"^\| \d\. ", page, re.MULTILINE)) == 8


# Every command of the pages, also those that no test runs: flags, values and names exist.


PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*|.*\.\.\.|<.*>|.*\$.*|N")


def command_lines(text: str) -> Iterator[str]:
    """Yields the t2t commands in code: fenced blocks and indented lines."""
    code = re.findall(r"^```(?:sh|text|bash|console)?\n(.*?)^```$", text, re.M | re.S)
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    code += re.findall(r"(?:^    .*\n?)+", outside, re.M)
    for block in code:
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|;|\|", line):
                words = part.strip().removeprefix("$ ").strip()
                if re.match(r"(\.venv/bin/)?t2t-[\w-]+( |$)", words):
                    yield words


@pytest.fixture
def known_names(own_registry: None) -> dict[str, set[str]]:
    """The registered names and those of the examples, by the flag that takes them."""
    with contextlib.suppress(Exception):
        registry.import_usr_dir(USR_DIR)
    kinds = {"problem": "problem", "model": "model", "hparams_set": "hparams"}
    return {flag: {*registry.list_names(kind), "auto"} for flag, kind in kinds.items()}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_the_flags_and_names_of_every_command_exist(page: Path, known_names):
    text = page.read_text("utf-8")
    own = {*re.findall(r'"problem": "(\w+)"', text), *re.findall(r"^class (\w+)", text, re.M)}
    own |= {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in own}
    own |= set(re.findall(r"^def (\w+)", text, re.M))
    faults = []
    for line in command_lines(text):
        name, *arguments = shlex.split(line.partition(" > ")[0].partition(" 2>")[0], comments=True)
        flags = COMMANDS[name.removeprefix(".venv/bin/")].new_flags()
        for argument in arguments:
            if not argument.startswith("--"):
                continue
            flag, has_value, value = argument[2:].partition("=")
            is_negated = flag.startswith("no") and flag not in flags
            flag = flag.removeprefix("no") if is_negated else flag
            if flag == "help":
                continue
            if flag not in flags:
                faults.append(f"{line}: no flag --{flag}")
            elif has_value and not PLACEHOLDER.fullmatch(value):
                try:
                    flags[flag].parser.parse(value)
                except ValueError as error:
                    faults.append(f"{line}: --{flag}: {error}")
                if flag in known_names and name != "t2t-datagen":
                    bare = re.sub(r"(_rev|_copy|_masked|_spans|_noised)+$", "", value)
                    if bare not in known_names[flag] | own:
                        faults.append(f"{line}: --{flag}={value} is not registered")
    assert not faults, "\n".join(faults)


def test_every_extra_that_is_named_exists_and_is_installed_in_the_same_way():
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    table = project.split("[project.optional-dependencies]\n")[1].split("\n[")[0]
    extras = set(re.findall(r"^(\w+) = ", table, re.M))
    named: dict[str, set[str]] = {}
    files = [*PAGES, *(ROOT / "t2t_torch").rglob("*.py"), DOCS / "tutorials" / "first_model.ipynb"]
    files += [ROOT / "Makefile", ROOT / "noxfile.py", *ROOT.glob("Dockerfile*")]
    for file in files:
        text = file.read_text("utf-8")
        for group in re.findall(r"(?:\.|/source)\[([\w,]+)\]['\"]", text):
            named.setdefault(file.name, set()).update(group.split(","))
        named.setdefault(file.name, set()).update(re.findall(r"install_extra\(['\"](\w+)", text))
        for line in re.findall(r"pip install [^\n`]*t2t[-_]torch\[[^\n`]*", text):
            raise AssertionError(f"{file}: the package is installed from its source: {line}")
    unknown = {name: found - extras - {"NAME"} for name, found in named.items()}
    assert not any(unknown.values()), unknown
    documented = set().union(*(found for name, found in named.items() if name.endswith(".md")))
    for_developers = {"dev", "bench", "docs", "engines"}
    assert extras - for_developers <= documented, "an extra that no page names"


def test_the_version_is_that_of_the_changelog():
    newest = re.search(r"^## \[(\d.*?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert newest is not None and newest[1] == t2t_torch.__version__
