"""Every model holds the contract."""

import typing
from typing import Any, Literal

import pytest
import torch

from t2t_torch import registry, testing
from t2t_torch.errors import HParamsError
from t2t_torch.hparam import DataHParams, MultiProblemHParams, SamplingHParams
from t2t_torch.model import Hidden
from t2t_torch.models.transformer import Transformer
from t2t_torch.run.resuming import fields_that_may_change


@pytest.mark.parametrize("name", registry.list_names("model"))
def test_the_model_holds_the_contract(name):
    model_class = registry.model(name)
    testing.check_model(model_class, model_class.HParams())


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", registry.list_names("model"))
def test_the_model_holds_the_contract_with_post_norm_and_separate_tables(name):
    model_class = registry.model(name)
    hparams = model_class.HParams().replace(
        layer_preprocess_sequence="none",
        layer_postprocess_sequence="dan",
        shared_embedding_and_softmax_weights=False,
    )
    testing.check_model(model_class, hparams)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("transformer", "transformer_relative_tiny"),
        ("transformer", "transformer_prepend"),
        ("transformer", "transformer_decoder_only_tiny"),
        ("transformer", "transformer_prefix_lm_tiny"),
        ("transformer_lm", "transformer_lm_relative"),
        ("universal_transformer", "adaptive_universal_transformer_tiny"),
        ("universal_transformer", "adaptive_universal_transformer_global_base"),
        ("universal_transformer", "universal_transformer_skip_base"),
        ("universal_transformer", "universal_transformer_highway_base"),
        ("universal_transformer", "universal_transformer_dwa_base"),
        ("universal_transformer", "universal_transformer_gru_base"),
        ("universal_transformer", "universal_transformer_lstm_base"),
        ("transformer", "transformer_tiny_moe"),
        ("transformer", "transformer_tiny_local_moe"),
        ("transformer", "transformer_tiny_local"),
        ("transformer_lm", "transformer_lm_tiny_relative_v2"),
    ],
)
def test_other_kinds_of_transformers_hold_the_contract(model, name):
    hparams = registry.hparams(name)
    has_inputs = (True, False) if hparams.prepend_mode == "none" else (True,)
    testing.check_model(registry.model(model), hparams, has_inputs=has_inputs)


@pytest.mark.parametrize("name", registry.list_names("model"))
def test_no_layers_are_refused_or_work(name):
    model_class = registry.model(name)
    try:
        hparams = testing.small(model_class.HParams()).parse("num_hidden_layers=0")
    except HParamsError as error:
        assert "num_hidden_layers=0: should be greater" in str(error)
        return
    for features in testing.features_for(model_class):
        if hparams.reads_pretrained:
            with pytest.raises(HParamsError, match="does not read it"):
                model_class(hparams, features)
            continue
        logits = model_class(hparams, features).eval()(testing.random_batch(features)).logits
        assert logits.keys() == features.targets.keys()


def other_values(field: Any, value: Any) -> list[Any]:
    """Values of a hyperparameter that are not its own; empty for kinds without an obvious one."""
    kind = field.annotation
    if typing.get_origin(kind) is Literal:
        return [choice for choice in typing.get_args(kind) if choice != value]
    if kind is int:
        return [value + 1, value * 2, value // 2, value + 2]
    return [not value] if kind is bool else [value * 2 + 0.1, value / 2] if kind is float else []


OF_TRAINING_OR_DATA = {
    *fields_that_may_change(),
    *DataHParams.model_fields,
    *SamplingHParams.model_fields,
    *MultiProblemHParams.model_fields,
    *("initializer", "initializer_gain", "vocab_divisor"),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", registry.list_names("model"))
def test_what_equal_weights_compute_depends_on_declared_hyperparameters_alone(name):
    """A warm start compares those of `Params.computing`."""
    model_class = registry.model(name)
    hparams = testing.small(model_class.HParams())
    features = list(testing.features_for(model_class))[-1]
    batch = testing.random_batch(features)
    model = model_class(hparams, features).eval()
    generator = torch.Generator().manual_seed(1)
    weights = {
        name: value + 0.3 * torch.randn(value.shape, generator=generator)
        if value.is_floating_point()
        else value
        for name, value in model.state_dict().items()
    }

    def outputs(hparams):
        torch.manual_seed(0)
        try:
            model = model_class(hparams, features).eval()
            model.load_state_dict(weights)
            with torch.inference_mode():
                return model({name: one.clone() for name, one in batch.items()}).logits
        except (HParamsError, RuntimeError):
            return None  # refused, or the weights have other shapes

    expected = outputs(hparams)
    undeclared = {
        f"{field}={value}"
        for field, declared in model_class.HParams.model_fields.items()
        if field not in OF_TRAINING_OR_DATA and field not in model_class.HParams.computing()
        for value in other_values(declared, getattr(hparams, field))
        if (found := changed_outputs(outputs, hparams, field, value)) is not None
        and any(
            found[target].shape != expected[target].shape
            or not torch.equal(found[target], expected[target])
            for target in expected
        )
    }
    assert undeclared == set()


def changed_outputs(outputs, hparams, field, value):
    """Outputs of equal weights with another value of a hyperparameter; None if it is refused."""
    try:
        return outputs(hparams.replace(**{field: value}))
    except HParamsError:
        return None


class Peeking(Transformer):
    """Looks at the targets it has to predict."""

    name = "peeking"

    def body(self, features):
        """Returns the body's states and a little of the target itself."""
        hidden = super().body(features)
        return {"targets": Hidden(hidden["targets"].states + features["targets"].embedded)}


class ReadingPadding(Transformer):
    """Lets padding into its states."""

    name = "reading_padding"

    def body(self, features):
        """Returns the body's states plus the length of the row, padding counted."""
        hidden = super().body(features)
        return {"targets": Hidden(hidden["targets"].states + features["targets"].values.size(1))}


@pytest.mark.parametrize(
    ("model_class", "complaint"),
    [(Peeking, "differs from the teacher-forced pass"), (ReadingPadding, "padding changes")],
)
def test_the_checks_catch_what_they_are_for(model_class, complaint):
    torch.manual_seed(0)
    with pytest.raises(AssertionError, match=complaint):
        testing.check_model(model_class, registry.hparams("transformer_base_v1"))
