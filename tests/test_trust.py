"""Code that comes with a run is executed only if its user says so."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

import pytest

from t2t_torch import registry, trust
from t2t_torch.bin.commands import (
    decoder,
    evaluation,
    exporter,
    latency,
    server,
    trainer,
    translate_all,
    tuner,
)
from t2t_torch.errors import UsageError, in_python
from t2t_torch.trial.experiment import check_functions, module_file_of, place_of_code
from t2t_torch.trial.user_code import CodeSource, load
from t2t_torch.workflows import search_settings
from t2t_torch.workflows.search_settings import SearchSettings


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    imported: list[str] = []
    monkeypatch.setattr(registry, "import_usr_dir", lambda one: imported.append(str(one)))
    monkeypatch.setattr(registry, "imported", imported, raising=False)
    for name in ("run/own", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "run" / "own")
    (tmp_path / "run" / "out").symlink_to("../elsewhere")
    (tmp_path / "other_run").symlink_to("run")
    return tmp_path


def test_code_elsewhere_on_this_machine_is_imported_and_what_is_gone_is_returned(
    folder: Path,
) -> None:
    elsewhere, gone = str(folder / "elsewhere"), str(folder / "gone")
    assert trust.import_usr_dirs(folder / "run", (elsewhere, gone)) == [gone]
    assert registry.imported == [elsewhere]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "code", ["elsewhere", "run/own", "./run", "{}/run/own", "{}/link", "{}/run/out"]
)
def test_code_that_comes_with_the_run_needs_trust(folder: Path, code: str) -> None:
    code = code.format(folder)
    with pytest.raises(UsageError, match=r"--trust_code .*trust_code=True") as refused:
        trust.import_usr_dirs(folder / "run", (code,))
    assert f"--t2t_usr_dir={code} (in Python" in str(refused.value)
    assert registry.imported == []  # type: ignore[attr-defined]
    with trust.trusting(True), trust.trusting(False):
        trust.import_usr_dirs(folder / "run", (code,))
    assert registry.imported == [code]  # type: ignore[attr-defined]
    with pytest.raises(UsageError):
        trust.import_usr_dirs(folder / "run", (code,))


def test_a_link_of_a_run_that_leads_out_of_it_needs_trust_by_each_name_of_the_run(
    folder: Path,
) -> None:
    for run in (folder / "run", folder / "other_run", Path("run"), Path("other_run")):
        for code in (run.absolute() / "out", folder / "run" / "out"):
            with pytest.raises(UsageError, match="inside it"):
                trust.check_code(run, code)


@pytest.mark.parametrize(
    "code",
    [
        "/proc/self/cwd/elsewhere",
        "/proc/thread-self/cwd/elsewhere",
        "/usr/../proc/self/cwd/elsewhere",
        "/proc/self/root/{}/elsewhere",
        "/dev/fd/{descriptor}/elsewhere",
        "{}/to_current/elsewhere",
        "{}/to_link/elsewhere",
        "{}/to_proc/self/cwd/elsewhere",
    ],
)
def test_code_that_is_reached_through_the_kernel_needs_trust(folder: Path, code: str) -> None:
    (folder / "to_current").symlink_to("/proc/self/cwd")
    (folder / "to_link").symlink_to("to_current")
    (folder / "to_proc").symlink_to("/proc")
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        code = code.format(folder, descriptor=descriptor)
        assert Path(code).is_dir()
        with pytest.raises(UsageError, match="relative in fact"):
            trust.import_usr_dirs(folder / "run", (code,))
    finally:
        os.close(descriptor)
    assert registry.imported == []  # type: ignore[attr-defined]


def test_links_that_lead_in_a_circle_are_followed_no_further(folder: Path) -> None:
    (folder / "a").symlink_to("b/x/y")
    (folder / "b").symlink_to("a/x/y")
    with pytest.raises(UsageError):
        trust.check_code(folder / "run", folder / "a" / "code")


@pytest.mark.parametrize("place", ["evil.py", "evil/__init__.py", "run/evil.py"])
def test_a_module_beside_a_run_needs_trust(
    folder: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / place
    file.parent.mkdir(exist_ok=True)
    file.touch()
    for paths in ([], [str(folder)], [""], [str(folder / "run")]):
        monkeypatch.setattr(sys, "path", paths)
        importlib.invalidate_caches()
        with pytest.raises(UsageError, match=r"--trust_code"):
            trust.check_module(folder / "run", "evil")
        with trust.trusting(True):
            trust.check_module(folder / "run", "evil")


def test_an_installed_module_is_trusted_and_a_part_of_python_is_not(folder: Path) -> None:
    trust.check_module(folder / "run", "yaml.nodes")
    with pytest.raises(UsageError):
        trust.check_module(folder / "run", "antigravity")  # starts a browser


@pytest.mark.parametrize("name", ["", ".x", "a b", "__main__", "yaml.gone", "../evil"])
def test_what_is_no_module_needs_trust(folder: Path, name: str) -> None:
    with pytest.raises(UsageError):
        trust.check_module(folder / "run", name)


def test_a_module_that_the_current_folder_adds_to_an_installed_package_needs_trust(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("installed/spaced/good.py", "spaced/evil.py", "installed/whole/__init__.py"):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).touch()
    paths = [str(folder / "installed"), *(one for one in sys.path if one)]
    monkeypatch.setattr(sys, "path", [*paths])
    importlib.invalidate_caches()
    for name in ("spaced.evil", "spaced.good", "spaced", "whole.evil"):
        with pytest.raises(UsageError):
            trust.check_module(folder / "run", name)
    trust.check_module(folder / "run", "whole")
    load(CodeSource.of("whole"))
    assert sys.path == paths  # nothing is imported from the current folder


def test_a_module_of_the_current_folder_is_trusted_if_it_is_the_one_of_the_beginning(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mine_here").mkdir()
    for name in ("__init__.py", "trial.py"):
        (folder / "mine_here" / name).touch()
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one not in ("", str(folder))])
    spec, run = "mine_here.trial:Net", folder / "run"
    file = module_file_of(spec)
    assert file == str(folder / "mine_here" / "trial.py")
    assert place_of_code(spec, run, file) == spec
    for other in ("", "mine_here/trial.py", str(folder / "mine_here" / "other.py"), file + "c"):
        with pytest.raises(UsageError):
            place_of_code(spec, run, other)
    with pytest.raises(UsageError):  # the record would name the file of any part of Python
        place_of_code("antigravity", run, module_file_of("antigravity"))


def test_a_function_of_a_configuration_is_in_the_folder_of_the_trial(folder: Path) -> None:
    for name in ("data.py", "part/__init__.py"):
        (folder / "elsewhere" / name).parent.mkdir(exist_ok=True)
        (folder / "elsewhere" / name).touch()
    (folder / "evil.py").touch()
    trial = f"{folder / 'elsewhere'}:Net"
    for place in ("data:load", "elsewhere.data:load", "part:load", "yaml.nodes:load"):
        check_functions(trial, folder / "run", {"make_data_loaders": place})
    for place in ("evil:load", "os:system", "gone:load", "/evil:load", f"{folder}/evil:load"):
        for spec in (trial, "yaml.nodes", "yaml.nodes:Net"):
            with pytest.raises(UsageError):
                check_functions(spec, folder / "run", {"make_data_loaders": place})


def test_python_itself_is_no_code_of_the_user(folder: Path) -> None:
    place = os.path.dirname(os.__file__)  # noqa: PTH120
    for code in (place, os.__file__, f"{place}/encodings"):
        with pytest.raises(UsageError, match="part of Python"):
            trust.check_code(folder / "run", code)


def test_a_folder_that_was_given_on_the_command_line_is_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "usr_dirs", lambda: [str(folder / "run" / "own")])
    trust.import_usr_dirs(folder / "run", ("run/own",))
    assert registry.imported == ["run/own"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "command",
    [decoder, evaluation, exporter, latency, server, trainer, translate_all, tuner],
    ids=lambda command: command.name,
)
def test_every_command_that_opens_runs_has_the_flags_that_the_message_names(command) -> None:
    assert {"trust_code", "t2t_usr_dir"} <= command.declared.keys()


@pytest.mark.parametrize("known", [{"t2t_usr_dir": ["evil"]}, {"trial": "evil"}])
def test_code_that_a_search_recalls_needs_trust(folder: Path, known: dict[str, object]) -> None:
    (folder / "evil").mkdir()
    (folder / search_settings.NAME).write_text(json.dumps(known), "utf-8")
    with pytest.raises(UsageError, match="--trust_code"):
        search_settings.recall(SearchSettings(), folder)


def test_a_search_recalls_no_trust(folder: Path) -> None:
    known = {"trust_code": True, "max_trials": 3}
    (folder / search_settings.NAME).write_text(json.dumps(known), "utf-8")
    settings, _ = search_settings.recall(SearchSettings(), folder)
    assert (settings.trust_code, settings.max_trials) == (False, 3)


def test_functions_that_a_search_recalls_need_trust(folder: Path) -> None:
    (folder / "evil.py").touch()
    (folder / "exp.yaml").write_text("entrypoints: {data_loaders_function: 'evil:load'}\n")
    known = {"trial": str(folder / "elsewhere"), "config": str(folder / "exp.yaml")}
    (folder / search_settings.NAME).write_text(json.dumps(known), "utf-8")
    with pytest.raises(UsageError, match="--trust_code"):
        search_settings.recall(SearchSettings(), folder)


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        ("give --train_steps=50, or --hparams.", "give train_steps=50, or hparams."),
        ("--data_dir=/tmp/a b: no data", "data_dir='/tmp/a' b: no data"),
        ("set --overwrite (--noprofile)", "set overwrite=True (profile=False)"),
        ('--hparams="a=1,b=2": --on=true', 'hparams="a=1,b=2": on=True'),
        ("  --problem=NAME, --run=...", "  problem=NAME, run=..."),
        ("run:  t2t-datagen --problem=x \\\n  --data_dir=y", None),
        ("pip install --extra-index-url URL", None),
    ],
)
def test_settings_in_errors_are_spelt_as_arguments_of_python(flags, arguments):
    with pytest.raises(UsageError) as caught, in_python(["overwrite", "profile"]):
        raise UsageError(flags)
    assert str(caught.value) == (flags if arguments is None else arguments)
