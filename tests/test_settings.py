"""Declared settings of commands and runs."""

from __future__ import annotations

from typing import Literal

import pytest

from t2t_torch.errors import HParamsError
from t2t_torch.settings import Settings, hp


class BakingOptions(Settings):
    """Flags of `bake`."""

    loaves: int = hp(2, "Loaves.", low=1, high=9)
    heat: float | None = hp(None, "Degrees.", low=0.0)
    oven: Literal["wood", "gas"] = hp("wood", "What burns.")
    seeds: tuple[str, ...] = hp((), "What is sprinkled.")
    steam: bool = hp(False, "Whether there is steam.")


class CakeOptions(BakingOptions):
    """Flags of `bake --cake`."""

    loaves: int = hp(1, "Cakes.", low=1)


def test_fields_have_defaults_and_can_be_replaced():
    made = BakingOptions(loaves=3, seeds=["a"], heat=180)
    assert (made.loaves, made.heat, made.oven, made.seeds, made.steam) == (
        3, 180, "wood", ("a",), False,
    )  # fmt: skip
    assert made == BakingOptions().replace(loaves=3, seeds=("a",), heat=180) != BakingOptions()
    assert hash(made) == hash(made.replace())
    assert repr(CakeOptions()).startswith("CakeOptions(loaves=1, heat=None")
    with pytest.raises(HParamsError, match="BakingOptions is frozen"):
        made.loaves = 4


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"loaves": 0}, r"^loaves=0: should be at least 1. \(loaves: Loaves.\)$"),
        ({"loaves": 10}, "loaves=10: should be at most 9"),
        ({"loaves": 1.5}, "loaves=1.5: should be an integer"),
        ({"loaves": True}, "loaves=True: should be an integer"),
        ({"loaves": None}, "loaves=None: should be an integer"),
        ({"heat": float("nan")}, "heat=nan: should be a finite number"),
        ({"heat": "hot"}, "heat=hot: should be a number"),
        ({"oven": "coal"}, "oven=coal: should be 'wood' or 'gas'"),
        ({"seeds": "a"}, "seeds=a: should be a list of strings"),
        ({"steam": 1}, "steam=1: should be true or false"),
        ({"yeast": 1}, "there is no setting 'yeast'"),
        ({"yeast": 1, "loaves": 0}, "(?s)'yeast'.*loaves=0"),
    ],
)
def test_a_wrong_value_is_refused_by_name(values, fault):
    with pytest.raises(HParamsError, match=fault):
        BakingOptions(**values)


def test_a_declaration_knows_its_type():
    declared = CakeOptions.declared()
    assert list(declared) == list(BakingOptions.declared())
    kinds = {name: setting.kind for name, setting in declared.items()}
    assert kinds == {"loaves": int, "heat": float, "oven": str, "seeds": tuple, "steam": bool}
    assert declared["oven"].choices == ("wood", "gas")
    assert (declared["loaves"].meaning, declared["loaves"].high) == ("Cakes.", None)
