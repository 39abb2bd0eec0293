"""What a model or a problem may not override, since nothing would call it."""

from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path

import pytest

from t2t_torch import overrides, registry
from t2t_torch.errors import RegistryError
from t2t_torch.features import ClassLabel, Feature
from t2t_torch.model import T2TModel
from t2t_torch.models.transformer import Transformer
from t2t_torch.problem import Problem
from t2t_torch.text_problem import Text2TextProblem


def define(base: type, name: str) -> type:
    """Returns a new subclass that has a method of this name."""
    return type("Mine", (base,), {name: lambda self, *given: None})


@pytest.mark.parametrize("name", overrides.MODEL)
@pytest.mark.parametrize("base", [T2TModel, Transformer])
def test_a_model_that_overrides_what_is_never_called_is_refused_by_name(base, name):
    with pytest.raises(RegistryError, match=rf"Mine overrides '{name}', but") as refused:
        define(base, name)
    assert overrides.MODEL[name] in str(refused.value)


@pytest.mark.parametrize("name", overrides.PROBLEM)
@pytest.mark.parametrize("base", [Problem, Text2TextProblem])
def test_a_problem_that_overrides_what_is_never_called_is_refused_by_name(base, name):
    with pytest.raises(RegistryError, match=rf"Mine overrides '{name}', but") as refused:
        define(base, name)
    assert overrides.PROBLEM[name] in str(refused.value)


@pytest.mark.parametrize("name", overrides.FEATURE)
@pytest.mark.parametrize("base", [Feature, ClassLabel])
def test_a_kind_of_feature_that_overrides_what_is_never_called_is_refused_by_name(base, name):
    with pytest.raises(RegistryError, match=rf"Mine overrides '{name}', but") as refused:
        define(base, name)
    function = overrides.FEATURE[name].split("`")[1].removesuffix(".register")
    module, _, function = function.rpartition(".")
    assert hasattr(importlib.import_module(module), function)
    assert overrides.FEATURE[name] in str(refused.value)


def test_a_mixin_is_refused_and_named():
    class Own:
        def losses(self, logits, features):
            return 0.0

    with pytest.raises(
        RegistryError, match=r"overrides 'losses' \(from .*\.Own\).*Override `loss`"
    ):
        type("Mine", (Own, Transformer), {})


@pytest.mark.parametrize("name", ["bottom", "body", "top", "loss", "encode", "step", "my_loss"])
def test_the_parts_of_a_model_and_other_names_are_the_users(name):
    mine = type("Mine", (Transformer,), {name: lambda *_: {}})
    assert issubclass(mine, Transformer)


@pytest.mark.usefixtures("own_registry")
def test_a_users_file_is_refused_without_a_traceback(tmp_path: Path):
    folder = tmp_path / f"usr_{tmp_path.name}"
    folder.mkdir()
    text = """
        from t2t_torch.models.transformer import Transformer
        from t2t_torch.registry import register_model

        @register_model
        class Constrained(Transformer):
            def infer(self, features):
                return features
    """
    (folder / "constrained.py").write_text(textwrap.dedent(text), "utf-8")
    registry.import_usr_dir(folder)
    with pytest.raises(RegistryError) as refused:
        registry.model("constrained")
    assert "Constrained overrides 'infer'" in str(refused.value)
    assert "Traceback" not in str(refused.value)
    assert not any(name.endswith(".constrained") for name in sys.modules)
