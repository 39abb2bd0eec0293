"""Names -> things."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from t2t_torch import registry
from t2t_torch.bin.commands import datagen, trainer
from t2t_torch.errors import RegistryError
from t2t_torch.hparam import HParams
from t2t_torch.registry import get_problem_name, parse_problem_name
from t2t_torch.trial.user_code import trials_in

GOLDEN = json.loads((Path(__file__).parent / "golden" / "names.json").read_text("utf-8"))

POETRY = """
    from t2t_torch import registry
    from t2t_torch.registry import register_hparams, register_model

    @registry.register_problem
    class PoetryLines:
        def __init__(self, reverse=False, copy=False):
            self.reverse, self.copy = reverse, copy

    @register_model("bard")
    class Shakespeare:
        pass

    @register_hparams()
    def bard_small():
        from t2t_torch.hparam import HParams
        return HParams().replace(hidden_size=8)
"""

UserDir = Callable[..., Path]

pytestmark = pytest.mark.usefixtures("own_registry")


@pytest.fixture
def usr_dir(tmp_path: Path) -> UserDir:
    """Writes a user's directory; its name is its own, for Python remembers what it has imported."""

    def write(name: str = f"usr_{tmp_path.name}", **files: str) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        for stem, text in files.items():
            (folder / f"{stem}.py").write_text(textwrap.dedent(text), "utf-8")
        return folder

    return write


@pytest.mark.sample(30)
@pytest.mark.parametrize("name", GOLDEN["camelcase_to_snakecase"])
def test_class_names_become_names_as_in_tensor2tensor(name: str) -> None:
    assert registry.camelcase_to_snakecase(name) == GOLDEN["camelcase_to_snakecase"][name]


def test_all_registered_classes_of_tensor2tensor_keep_their_names() -> None:
    for names in GOLDEN["real_registered_class_names"].values():
        assert {name: registry.camelcase_to_snakecase(name) for name in names} == names


@pytest.mark.sample(40)
@pytest.mark.parametrize("case", GOLDEN["parse_problem_name"], ids=lambda case: case["name"])
def test_problem_names_come_apart_as_in_tensor2tensor(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(RegistryError, match="twice"):
            parse_problem_name(case["name"])
    else:
        spec = parse_problem_name(case["name"])
        assert spec == (case["base_name"], case["was_reversed"], case["was_copy"], "")


@pytest.mark.parametrize("case", GOLDEN["get_problem_name"])
def test_problem_names_go_together_as_in_tensor2tensor(case: dict[str, Any]) -> None:
    parts = case["base_name"], case["was_reversed"], case["was_copy"]
    if "error" in case:
        with pytest.raises(RegistryError):
            get_problem_name(*parts)
    else:
        assert get_problem_name(*parts) == case["name"]


def test_listing_a_users_directory_imports_nothing(usr_dir: UserDir) -> None:
    folder = usr_dir(poetry=POETRY)
    registry.import_usr_dir(folder)
    assert "poetry_lines" in registry.list_names("problem")
    assert "bard" in registry.list_names("model")
    assert "bard_small" in registry.list_names("hparams")
    assert not [name for name in sys.modules if name.startswith(folder.name)]


def test_one_file_may_hold_a_problem_a_model_and_a_set(usr_dir: UserDir) -> None:
    registry.import_usr_dir(usr_dir(poetry=POETRY))
    problem: Any = registry.problem("poetry_lines")
    assert (problem.name, problem.reverse, problem.copy) == ("poetry_lines", False, False)
    assert registry.model("bard").__name__ == "Shakespeare"
    assert registry.model("bard").name == "bard"
    assert registry.hparams("bard_small").hidden_size == 8
    assert registry.hparams("bard_small").provenance["hidden_size"] == "bard_small"


def test_rev_and_copy_reach_the_problem(usr_dir: UserDir) -> None:
    registry.import_usr_dir(usr_dir(poetry=POETRY))
    problem: Any = registry.problem("poetry_lines_copy_rev")
    assert (problem.reverse, problem.copy) == (True, True)


def test_looking_up_imports_only_the_file_that_declares_the_name(usr_dir: UserDir) -> None:
    raises = (
        'from t2t_torch.registry import *\n@register_model\nclass Bad: pass\nraise OSError("!")'
    )
    registry.import_usr_dir(usr_dir(poetry=POETRY, bad=raises))
    assert registry.model("bard").__name__ == "Shakespeare"


def test_files_of_a_users_directory_import_each_other(usr_dir: UserDir) -> None:
    odes = "from .poetry import Shakespeare\nfrom t2t_torch.registry import *\n"
    odes += "@register_model\nclass OdeWriter(Shakespeare): pass\n"
    registry.import_usr_dir(usr_dir(poetry=POETRY, odes=odes))
    assert registry.model("ode_writer").__mro__[1] is registry.model("bard")


def test_a_users_classes_pickle_into_spawned_processes(usr_dir: UserDir, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import multiprocessing
            from t2t_torch import registry

            def name_of(problem):
                return problem.name

            if __name__ == "__main__":
                registry.import_usr_dir({str(usr_dir(poetry=POETRY))!r})
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    print(pool.apply(name_of, (registry.problem("poetry_lines"),)))
            """
        )
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == "poetry_lines\n"


def test_a_name_made_in_a_loop_is_found(usr_dir: UserDir) -> None:
    loop = """
        from t2t_torch.registry import register_model
        for size in (1, 2):
            register_model(f"looped_{size}")(type("Looped", (), {}))
    """
    with pytest.raises(RegistryError, match="no model is named 'looped_2'"):
        registry.model("looped_2")
    registry.import_usr_dir(usr_dir(loop=loop))
    assert registry.model("looped_2").name == "looped_2"


def test_packages_inside_a_users_directory_are_read(usr_dir: UserDir) -> None:
    folder = usr_dir(poetry=POETRY)
    (folder / "drama").mkdir()
    (folder / "drama" / "__init__.py").touch()
    (folder / "drama" / "acts.py").write_text(
        "from t2t_torch import registry\n@registry.register_model\nclass Tragedy: pass\n"
    )
    (folder / "notes").mkdir()
    (folder / "notes" / "old.py").write_text("@register_model\nclass Forgotten: pass\n")
    registry.import_usr_dir(folder)
    assert registry.model("tragedy").__module__ == f"{folder.name}.drama.acts"
    assert "forgotten" not in registry.list_names("model")


def test_a_miss_tells_the_nearest_names_where_it_looked_and_how_to_list(usr_dir: UserDir) -> None:
    folder = usr_dir(poetry=POETRY)
    registry.import_usr_dir(folder)
    with pytest.raises(RegistryError) as told:
        registry.problem("poetry_line_rev")
    assert "no problem is named 'poetry_line'. Did you mean 'poetry_lines'?" in str(told.value)
    assert str(folder) in str(told.value)
    assert "--registry_help" in str(told.value)
    assert "t2t_torch/problems\n" in str(told.value)
    assert "optimizer.py" not in str(told.value)


def test_a_name_of_another_kind_is_told() -> None:
    with pytest.raises(RegistryError, match="'transformer_base' is among the hparams sets"):
        registry.model("transformer_base")


def test_a_name_declared_twice_shows_both_places(usr_dir: UserDir) -> None:
    folder = usr_dir(poetry=POETRY, prose=POETRY)
    with pytest.raises(RegistryError) as told:
        registry.import_usr_dir(folder)
    assert f"{folder / 'poetry.py'}:6" in str(told.value)
    assert f"{folder / 'prose.py'}:6" in str(told.value)
    assert registry.usr_dirs() == []


def test_a_built_in_name_cannot_be_taken(usr_dir: UserDir) -> None:
    taken = "@register_hparams\ndef transformer_base(): pass\n"
    with pytest.raises(RegistryError, match="'transformer_base' is declared twice"):
        registry.import_usr_dir(usr_dir(sets=taken))


def test_a_name_registered_twice_while_running_shows_both_places() -> None:
    @registry.register_metric("planted")
    def first() -> None: ...

    with pytest.raises(
        RegistryError, match=r"(?s)twice.*test_registry.py:\d+.*test_registry.py:\d"
    ):

        @registry.register_metric("planted")
        def second() -> None: ...

    assert registry.metric("planted") is first


def test_saying_the_same_again_is_no_second_declaration() -> None:
    for _ in range(2):

        @registry.register_metric
        def planted() -> None: ...

    assert registry.metric("planted") is planted
    assert "planted" in registry.list_names("metric")


def test_an_error_in_a_users_file_comes_with_the_users_traceback(usr_dir: UserDir) -> None:
    broken = "from t2t_torch.registry import *\nx = 1 / 0\n@register_model\nclass Broken: pass\n"
    folder = usr_dir(broken=broken)
    registry.import_usr_dir(folder)
    with pytest.raises(RegistryError) as told:
        registry.model("broken")
    assert f"looking for model 'broken', importing {folder / 'broken.py'} failed" in str(told.value)
    assert f'File "{folder / "broken.py"}", line 2' in str(told.value)
    assert str(told.value).endswith("ZeroDivisionError: division by zero")
    assert "importlib" not in str(told.value)
    assert isinstance(told.value.__cause__, ZeroDivisionError)


def test_a_users_file_that_is_not_python_is_named(usr_dir: UserDir) -> None:
    folder = usr_dir(broken="register_model = 1\ndef f(:\n")
    with pytest.raises(RegistryError, match=r"broken\.py:2 is not valid Python"):
        registry.import_usr_dir(folder)


@pytest.mark.parametrize("expression", ["(" * 100_000, "-" * 90_000 + "1", "\0"])
def test_a_users_file_that_python_cannot_parse_is_named(usr_dir: UserDir, expression: str) -> None:
    folder = usr_dir(deep=f"register_model = {expression}\n")
    with pytest.raises(RegistryError, match=r"deep\.py:1 is not valid Python: \w"):
        registry.import_usr_dir(folder)
    assert "deep.py:1" in str(registry.not_readable(folder / "deep.py"))
    assert not trials_in(folder)


def test_a_directory_whose_name_is_taken_is_refused(usr_dir: UserDir) -> None:
    with pytest.raises(RegistryError, match=r"the name 'json' belongs to .*json"):
        registry.import_usr_dir(usr_dir("json", poetry=POETRY))


def test_a_directory_with_a_dot_in_its_name_is_refused(usr_dir: UserDir) -> None:
    with pytest.raises(RegistryError, match="without a dot"):
        registry.import_usr_dir(usr_dir("my.dir", poetry=POETRY))


def test_a_missing_directory_and_a_file_are_refused(usr_dir: UserDir) -> None:
    folder = usr_dir(poetry=POETRY)
    with pytest.raises(RegistryError, match="there is no directory"):
        registry.import_usr_dir(folder / "absent")
    with pytest.raises(RegistryError, match=f"--t2t_usr_dir={folder}"):
        registry.import_usr_dir(folder / "poetry.py")


def test_adding_a_directory_again_changes_nothing(usr_dir: UserDir) -> None:
    folder = usr_dir(poetry=POETRY)
    registry.import_usr_dir(folder)
    registry.import_usr_dir(f"{folder}/")
    assert registry.usr_dirs() == [str(folder)]


@pytest.mark.parametrize("name", ["poetry_rev", "poetry_copy"])
def test_a_problem_may_not_be_called_rev_or_copy(name: str) -> None:
    with pytest.raises(RegistryError, match="may not end in"):
        registry.register_problem(name)(type("Poetry", (), {}))


def test_a_set_that_asks_for_arguments_is_refused() -> None:
    with pytest.raises(RegistryError, match=r"requires \['size'\]"):

        @registry.register_hparams
        def sized(size: int) -> HParams:
            return HParams(hidden_size=size)


def test_a_set_that_returns_no_hparams_is_refused() -> None:
    registry.register_hparams("nothing")(lambda: None)
    with pytest.raises(RegistryError, match="must return an HParams; it returned None"):
        registry.hparams("nothing")


def test_what_is_registered_must_be_callable() -> None:
    with pytest.raises(RegistryError, match="decorates a class or a function"):
        registry.register_metric("three")(3)  # type: ignore[type-var]


def test_a_decorated_function_keeps_its_name_and_documentation() -> None:
    @registry.register_hparams
    def planted_set() -> HParams:
        """Nothing special."""
        return HParams()

    assert (planted_set.__name__, planted_set.__doc__) == ("planted_set", "Nothing special.")


def test_entries_tell_where_a_name_is_declared() -> None:
    entry = next(e for e in registry.entries("hparams") if e.name == "basic_params1")
    lines = Path(entry.path).read_text("utf-8").splitlines()
    assert lines[entry.line - 1].startswith("def basic_params1(")


def test_the_help_has_a_line_for_each_name_with_its_documentation() -> None:
    lines = registry.help_string().splitlines()
    listed = {line.split()[0]: line.strip() for line in lines if line.startswith("    ")}
    for kind in registry.KINDS:
        for name in registry.list_names(kind):
            assert name in listed
    assert listed["transformer_tiny"].split(maxsplit=1)[1] == "Two layers of 128."
    assert max(map(len, lines)) <= 140
    without = [name for name, line in listed.items() if line == name]
    assert without == []


def test_the_models_that_fit_a_problem_are_listed(tmp_path, capsys) -> None:
    arguments = ["--registry_help", "--problem=algorithmic_reverse_binary40_test"]
    assert datagen.main([*arguments[1:], f"--data_dir={tmp_path}", f"--tmp_dir={tmp_path}"]) == 0
    capsys.readouterr()
    assert trainer.main([*arguments, f"--data_dir={tmp_path}"]) == 0
    printed = capsys.readouterr().out
    assert "--model=transformer  " in printed and "transformer_tiny" in printed
    assert "--model=fasttext" not in printed
    assert "Recommended:  --model=transformer" in printed
    arguments[1] = "--problem=translate_multi30k_ende"
    assert trainer.main(arguments) == 2
    assert "give its --data_dir" in capsys.readouterr().err


def test_the_help_names_users_files_that_are_not_python(usr_dir: UserDir) -> None:
    folder = usr_dir(poetry=POETRY, broken="def f(:\n")
    registry.import_usr_dir(folder)
    assert f"{folder / 'broken.py'}:1: invalid syntax" in registry.help_string()


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(RegistryError, match="there is no kind 'poem'"):
        registry.list_names("poem")
