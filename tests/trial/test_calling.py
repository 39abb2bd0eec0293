"""What users wrote is called with as many arguments as it takes."""

from __future__ import annotations

import pytest

from t2t_torch.errors import TrialError
from t2t_torch.trial.user_code import ACCEPTED, call


def given(function, what, count):
    return call(function, *range(count), what=what)


@pytest.mark.parametrize("what", ACCEPTED)
def test_every_signature_of_the_table_is_called_with_what_it_names(what):
    longest = max(map(len, ACCEPTED[what]))
    for names in ACCEPTED[what]:
        function = eval(f"lambda {', '.join(names)}: ({''.join(f'{name}, ' for name in names)})")
        assert given(function, what, longest) == tuple(range(len(names)))


def test_methods_are_counted_without_self():
    class Trial:
        def optimizer(self, model, hparams):
            return model, hparams

        @staticmethod
        def make_data_loaders(experiment_config, hparams):
            return experiment_config, hparams

    assert given(Trial().optimizer, "optimizer", 2) == (0, 1)
    assert given(Trial().make_data_loaders, "make_data_loaders", 3) == (0, 1)
    assert given(Trial.make_data_loaders, "make_data_loaders", 3) == (0, 1)


def test_names_are_the_users_own():
    assert given(lambda cfg, hp: (cfg, hp), "make_data_loaders", 3) == (0, 1)
    assert given(lambda x, y, extra: (x, y, extra), "validation_metrics", 3) == (0, 1, 2)


def test_an_argument_with_a_default_is_given_only_by_its_name():
    assert given(lambda model, lr=0.1: (model, lr), "optimizer", 2) == (0, 0.1)
    assert given(lambda model, hparams=None: (model, hparams), "optimizer", 2) == (0, 1)
    assert given(lambda a, b, download_data_dir="": download_data_dir, "make_data_loaders", 3) == 2


def test_whoever_takes_any_number_is_given_all():
    assert given(lambda *args: args, "validation_metrics", 3) == (0, 1, 2)
    assert given(lambda hparams, *_, **__: hparams, "build_model", 1) == 0


def test_an_argument_named_as_a_hyperparameter_gets_its_value_not_the_dictionary():
    hparams = {"lr": 0.5, "size": 3}
    assert call(lambda size: size, hparams, what="build_model") == 3
    assert call(lambda model, lr: (model, lr), 1, hparams, what="optimizer") == (1, 0.5)
    assert call(lambda model, hp: (model, hp), 1, hparams, what="optimizer") == (1, hparams)
    assert call(lambda config, lr: lr, {"lr": 9}, hparams, "", what="make_data_loaders") == 0.5


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda model: model, "losses"),
        (lambda a, b, c, d: a, "make_data_loaders"),
        (lambda experiment_config: 1, "download_data"),
        (lambda *, experiment_config: 1, "download_data"),
        (lambda batch, model: 1, "train_batch"),
    ],
)
def test_another_number_is_refused_with_those_that_are_accepted(function, what):
    with pytest.raises(TrialError, match=r"takes \(.*Accepted is ") as caught:
        given(function, what, 4)
    for names in ACCEPTED[what]:
        assert f"{what}({', '.join(names)})" in str(caught.value)


def test_what_the_function_raises_is_its_own():
    def losses(predictions, labels):
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        given(losses, "losses", 2)
