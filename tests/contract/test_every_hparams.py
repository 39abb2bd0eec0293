"""Every set holds the contract."""

import pytest

from t2t_torch import registry, testing


@pytest.mark.sample(40)
@pytest.mark.parametrize("name", registry.list_names("hparams"))
def test_the_set_builds_and_reads_its_own_description(name):
    testing.check_hparams(name)


def test_a_set_that_loses_a_value_is_caught(monkeypatch):
    hparams = registry.hparams("transformer_test")
    monkeypatch.setattr(type(hparams), "to_json", lambda self: "{}")
    with pytest.raises(AssertionError, match="reads back as something else"):
        testing.check_hparams("transformer_test")
