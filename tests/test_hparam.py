"""Hyperparameters: types, bounds, named sets, and who set what."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from t2t_torch import registry
from t2t_torch.bin.commands import trainer
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.errors import HParamsError
from t2t_torch.hparam import HParams, Params, hp
from t2t_torch.params import assignments

GOLDEN = Path(__file__).parent / "golden" / "transformer"
OF_TENSOR2TENSORS_RUN = frozenset(
    "data_dir eval_freq_in_steps eval_steps eval_timeout_mins model_dir schedule "
    "std_server_protocol train_steps warm_start_from".split()
)
"""Flags that tensor2tensor writes into hparams.json."""

# tensor2tensor 1.15.7, models/transformer.py.
SETS: dict[str, dict[str, Any]] = {
    "transformer_base": {
        "hidden_size": 512, "filter_size": 2048, "num_heads": 8, "num_hidden_layers": 6,
        "batch_size": 4096, "max_length": 256, "layer_preprocess_sequence": "n",
        "layer_postprocess_sequence": "da", "optimizer_adam_beta2": 0.997,
        "learning_rate_schedule": "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
        "learning_rate_constant": 2.0, "learning_rate_warmup_steps": 8000, "clip_grad_norm": 0.0,
    },
    "transformer_big": {
        "hidden_size": 1024, "filter_size": 4096, "num_heads": 16, "num_hidden_layers": 6,
        "batch_size": 2048, "layer_prepostprocess_dropout": 0.3,
    },
    "transformer_base_single_gpu": {
        "batch_size": 1024, "learning_rate_schedule": "constant*linear_warmup*rsqrt_decay",
        "learning_rate_constant": 0.1, "learning_rate_warmup_steps": 16000, "hidden_size": 512,
    },
    "transformer_big_single_gpu": {
        "hidden_size": 1024, "layer_prepostprocess_dropout": 0.1,
        "learning_rate_warmup_steps": 16000,
    },
    "transformer_small": {
        "hidden_size": 256, "filter_size": 1024, "num_heads": 4, "num_hidden_layers": 2,
    },
    "transformer_tiny": {
        "hidden_size": 128, "filter_size": 512, "num_heads": 4, "num_hidden_layers": 2,
    },
    "transformer_test": {
        "hidden_size": 16, "filter_size": 8, "num_heads": 2, "num_hidden_layers": 2,
    },
}  # fmt: skip


class BakerParams(Params):
    """Baking: one of each type of field."""

    loaves: int = hp(3, "Loaves per hour.", low=1, high=9)
    heat: float = hp(1.5, "Kilowatts.", above=0)
    salted: bool = hp(False, "Whether there is salt in it.")
    glaze: str = hp("egg", "What is brushed on.", pattern="^[a-z]*$")
    limit: float | None = hp(None, "Hours until the shop shuts.")
    sizes: tuple[int, ...] = hp((), "Grams.")


class SeededParams(BakerParams):
    """Baking, and integers without bounds."""

    crumbs: int = hp(0, "Crumbs, more or less.")
    oven_seed: int = hp(0, "Seed of the oven.")


def test_the_defaults_are_tensor2tensors_basic_params1() -> None:
    made = registry.hparams("basic_params1")
    assert made == HParams()
    assert (made.batch_size, made.hidden_size, made.num_hidden_layers) == (4096, 64, 4)
    assert (made.initializer, made.initializer_gain, made.label_smoothing) == (
        "orthogonal",
        1.5,
        0.1,
    )
    assert (made.optimizer_adam_epsilon, made.optimizer_adam_beta1) == (1e-6, 0.85)
    assert (made.learning_rate_schedule, made.learning_rate, made.clip_grad_norm) == (
        "legacy",
        0.1,
        2,
    )
    assert (made.layer_preprocess_sequence, made.layer_postprocess_sequence) == ("none", "dan")
    assert set(made.provenance.values()) == {"default"}


@pytest.mark.parametrize(
    "variant",
    ["v3", "v1_postnorm_unshared", "lm", "relative", "prepend_masked", "prepend_full_decoder_only"],
)
def test_every_value_of_the_transformer_sets_is_tensor2tensors(variant: str) -> None:
    path = GOLDEN / variant / "hparams.json"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    golden = json.loads(path.read_text("utf-8"))
    made = registry.hparams(golden["hparams_set"]).replace(**golden["hparams_overrides"])
    ours = made.model_dump()
    shared = ours.keys() & golden["hparams"].keys()
    assert len(shared) > 45
    shared -= {
        "loss",
        "multiproblem_mixing_schedule",
    }  # registered names here; empty: no MultiProblem
    theirs = {k: "none" if k == "pos" and v is None else v for k, v in golden["hparams"].items()}
    assert {k: ours[k] for k in shared} == {k: theirs[k] for k in shared}


def test_every_hparam_of_tensor2tensors_transformer_is_ours_or_known_as_unsupported() -> None:
    golden = json.loads((GOLDEN / "v3" / "hparams.json").read_text("utf-8"))["hparams"]
    kind = type(registry.hparams("transformer_base"))
    assert golden.keys() <= kind.model_fields.keys() | kind.unsupported.keys()


@pytest.mark.parametrize("run", ["pairs_transformer", "topics_encoder"])
def test_every_hparam_of_a_run_of_tensor2tensor_is_accepted_in_a_string(run: str, caplog) -> None:
    path = Path(__file__).parent / "golden" / "t2t_runs" / run / "hparams.json"
    golden = json.loads(path.read_text("utf-8"))
    made = registry.hparams("transformer_base")
    caplog.set_level("INFO", "t2t_torch.params")
    for name, value in golden.items():
        if name in OF_TENSOR2TENSORS_RUN or (name == "loss" and not value):
            continue
        known = [str(name) for name in value] if isinstance(value, list) else None
        text = "none" if value is None else str(value) if known is None else f"[{','.join(known)}]"
        caplog.clear()
        parsed = made.parse(f"{name}={text}")
        noted = f"--hparams: nothing here reads tensor2tensor's {name}" in caplog.text
        assert noted == (name not in type(made).model_fields), name
        assert noted or getattr(parsed, name) == (
            tuple(value) if known is not None else "none" if name == "pos" and not value else value
        )


def test_a_value_of_tensor2tensors_that_changes_the_model_is_refused_with_the_default() -> None:
    made = registry.hparams("transformer_base")
    for text, told in {
        "num_area_layers=2": "Leave it out, or at 0.",
        "moe_hidden_sizes=4": "Leave it out, or at 2048.",
        "sampling_method=random": "at argmax. It is a setting of decoding: --decode_hparams.",
        "position_features=year": "Leave it out, or at empty.",
        "use_pad_remove=true": "no hyperparameter is named",
        "train_steps=5": "Did you mean the flag --train_steps?",
    }.items():
        with pytest.raises(HParamsError, match=re.escape(told)):
            made.parse(text)
    left_out = "num_area_layers=0,use_pad_remover=0,symbol_modality_num_shards=16,hidden_size=8"
    assert made.parse(left_out) == made.replace(hidden_size=8)
    with pytest.raises(HParamsError, match="nothing here reads"):
        made.replace(use_pad_remover=True)


SETS_OF_OTHERS = [
    ("transformer_encoder", "transformer_base"),
    ("lstm_encoder", "lstm_seq2seq"),
    ("universal_transformer_encoder", "universal_transformer_base"),
    ("text_cnn", "transformer_base"),
    ("transformer", "lstm_seq2seq"),
    ("bilstm_tagger", "transformer_tiny"),
]


@pytest.mark.parametrize(("model", "name"), SETS_OF_OTHERS)
def test_a_set_of_another_model_gives_its_values_to_the_fields_of_the_model(model, name):
    made, of_set = registry.hparams(name, model), registry.hparams(name)
    kind = registry.model(model).HParams
    assert type(made) is kind
    for field in kind.model_fields:
        is_shared = field in type(of_set).model_fields
        assert getattr(made, field) == getattr(of_set if is_shared else kind(), field), field
    assert made.provenance["batch_size"] == of_set.provenance["batch_size"]
    assert registry.hparams(name, registry.model(model)) == made


def test_the_class_of_a_model_is_that_of_its_file_of_hyperparameters():
    for name in registry.list_names("model"):
        assert registry._hparams_of_model(name) is registry.model(name).HParams, name


def test_values_that_the_model_does_not_read_are_listed_and_typing_errors_are_none_of_them():
    made = registry.hparams("transformer_base", "transformer_encoder")
    assert made.unread == ""
    changed = made.parse("num_decoder_layers=3,summary=first,num_encoder_layers=2")
    assert changed.unread == "num_decoder_layers=3"
    assert (changed.summary, changed.num_encoder_layers) == ("first", 2)
    assert changed.replace(hidden_size=8).unread == "num_decoder_layers=3"
    assert type(made)().with_set_of(made).parse("num_decoder_layers=3").unread == changed.unread
    with pytest.raises(HParamsError, match="Did you mean 'num_encoder_layers'"):
        made.parse("num_encodr_layers=3")
    with pytest.raises(HParamsError, match="num_decoder_layers=-1"):
        made.parse("num_decoder_layers=-1")
    assert registry.hparams("transformer_encoder_base", "transformer_encoder").unread == ""


def test_a_set_may_start_from_one_of_another_class() -> None:
    class CakeParams(BakerParams):
        """Cakes, of which there are more."""

        loaves: int = hp(7, "Cakes per hour.", low=1, high=9)
        layers: int = hp(2, "Layers of a cake.")

    bread = BakerParams().replace(heat=2.5).signed("bread")
    cake = CakeParams.starting_from(bread)
    assert cake == CakeParams().replace(heat=2.5)
    assert (cake.provenance["heat"], cake.provenance["loaves"]) == ("bread", "default")
    with pytest.raises(HParamsError, match="layers"):
        BakerParams.starting_from(cake.replace(layers=3))


@pytest.mark.parametrize("name", SETS)
def test_the_named_sets_have_tensor2tensors_values(name: str) -> None:
    made = registry.hparams(name).model_dump()
    assert {key: made[key] for key in SETS[name]} == SETS[name]


def test_each_field_knows_the_set_that_gave_it_its_value() -> None:
    who = registry.hparams("transformer_big_single_gpu").provenance
    assert who["learning_rate_warmup_steps"] == "transformer_big_single_gpu"
    assert who["hidden_size"] == "transformer_big"
    assert who["learning_rate_constant"] == "transformer_base_v3"
    assert who["attention_dropout"] == "transformer_base_v2"
    assert who["num_hidden_layers"] == "transformer_base_v1"
    assert who["norm_epsilon"] == "default"


def test_a_flag_signs_what_it_sets_and_nothing_else() -> None:
    made = registry.hparams("transformer_big").parse("hidden_size=32")
    assert made.hidden_size == 32
    assert made.provenance["hidden_size"] == "--hparams"
    assert made.provenance["num_heads"] == "transformer_big"
    assert BakerParams(loaves=4).parse("heat=2").provenance["loaves"] == "code"


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("loaves=5", "loaves", 5),
        (" loaves = 5 ", "loaves", 5),
        ("heat=2", "heat", 2.0),
        ("heat=1e-3", "heat", 0.001),
        ("salted=true", "salted", True),
        ("salted=True", "salted", True),
        ("salted=1", "salted", True),
        ("salted=false", "salted", False),
        ("salted=0", "salted", False),
        ("glaze=milk", "glaze", "milk"),
        ("glaze=", "glaze", ""),
        ("limit=3", "limit", 3.0),
        ("limit=none", "limit", None),
        ("limit=None", "limit", None),
        ("sizes=[500,750]", "sizes", (500, 750)),
        ("sizes=[500]", "sizes", (500,)),
        ("sizes=[]", "sizes", ()),
    ],
)
def test_values_are_read_by_the_fields_type(text: str, field: str, value: Any) -> None:
    read = getattr(BakerParams().parse(text), field)
    assert (read, type(read)) == (value, type(value))


def test_many_values_are_read_at_once() -> None:
    made = BakerParams().parse("sizes=[1, 2],loaves=2,glaze=oil,")
    assert (made.sizes, made.loaves, made.glaze) == ((1, 2), 2, "oil")


def test_an_equals_sign_may_stand_in_a_value() -> None:
    made = registry.hparams("basic_params1").parse("learning_rate_schedule=constant*linear_warmup")
    assert made.learning_rate_schedule == "constant*linear_warmup"


def test_parsing_nothing_changes_nothing() -> None:
    made = BakerParams(loaves=4)
    assert made.parse("") is made


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("loafs=2", "--hparams: no hyperparameter is named 'loafs'. Did you mean 'loaves'?"),
        ("qqq=2", "BakerParams has: glaze, heat, limit, loaves, salted, sizes"),
        ("loaves=many", r"loaves='many' should be int. \(loaves: Loaves per hour.\)"),
        ("loaves=2.5", "loaves='2.5' should be int"),
        ("loaves=", "loaves='' should be int"),
        ("heat=hot", "heat='hot' should be float"),
        ("heat=nan", "heat=nan: should be a finite number"),
        ("salted=maybe", "salted='maybe' should be bool"),
        ("limit=soon", "limit='soon' should be float or none"),
        ("sizes=500", "sizes='500' should be list of int"),
        ("sizes=[a]", "should be list of int"),
        ("loaves", "'loaves' should be name=value"),
        ("loaves=1,loaves=2", "sets 'loaves' twice"),
        ("loaves=0", "loaves=0: should be greater than or equal to 1"),
        ("loaves=10", "loaves=10: should be less than or equal to 9"),
        ("heat=0", "heat=0.0: should be greater than 0"),
        ("glaze=EGG", "glaze=EGG: .*pattern"),
    ],
)
def test_a_wrong_setting_says_what_was_expected(text: str, complaint: str) -> None:
    with pytest.raises(HParamsError, match=complaint):
        BakerParams().parse(text)


def test_all_wrong_settings_are_told_at_once() -> None:
    with pytest.raises(HParamsError, match=r"(?s)loaves=0.*heat=-1.*'loafs'"):
        BakerParams(loaves=0, heat=-1, loafs=2)  # type: ignore[call-arg]


def test_python_values_are_not_converted() -> None:
    with pytest.raises(HParamsError, match="loaves='3'"):
        BakerParams().replace(loaves="3")
    with pytest.raises(HParamsError, match="loaves=true"):
        BakerParams().replace(loaves=True)


def test_a_field_of_tensor2tensor_that_nothing_reads_is_refused_as_such() -> None:
    with pytest.raises(
        HParamsError, match="'kernel_width': tensor2tensor has it, but nothing here reads"
    ):
        registry.hparams("transformer_base").parse("kernel_width=4")


def test_a_set_cannot_be_changed_in_place() -> None:
    made = BakerParams()
    expected = r"loaves=4: BakerParams is frozen. Write changed = hparams.replace\(loaves=4\)"
    with pytest.raises(HParamsError, match=expected):
        made.loaves = 4  # type: ignore[misc]
    with pytest.raises(HParamsError, match=r"no hyperparameter is named 'loafs'"):
        made.loafs = 4  # type: ignore[attr-defined]
    assert made == BakerParams()


@pytest.mark.parametrize(
    "change",
    [
        lambda settings: SeededParams(**settings),
        lambda settings: SeededParams().replace(**settings),
        lambda settings: SeededParams.model_validate(settings),
        lambda settings: SeededParams.from_json(json.dumps(settings)),
        lambda settings: SeededParams().parse(",".join(f"{k}={v}" for k, v in settings.items())),
    ],
    ids=["keyword", "replace", "validate", "json", "parse"],
)
def test_integers_have_32_bits_and_seeds_64_however_they_are_set(change) -> None:
    assert change({"sizes": [2**31 - 1]}).sizes == (2**31 - 1,)
    with pytest.raises(HParamsError, match=r"sizes=\[2147483648\]: should be .* to 2147483647"):
        change({"sizes": [2**31]})
    with pytest.raises(HParamsError, match=r"crumbs=-2147483648: should be .* -2147483647 to"):
        change({"crumbs": -(2**31)})
    assert change({"oven_seed": 2**63 - 1}).oven_seed == 2**63 - 1
    with pytest.raises(
        HParamsError, match=r"oven_seed=9223372036854775808: .* 9223372036854775807"
    ):
        change({"oven_seed": 2**63})


def test_seeds_of_the_package_may_be_large() -> None:
    assert registry.hparams("transformer_test").parse("bagging_seed=5000000000").bagging_seed == 5e9
    assert DecodeHParams().parse("random_seed=5000000000").random_seed == 5e9


def test_equal_values_are_equal_whoever_set_them() -> None:
    one, other = BakerParams(loaves=5), BakerParams().parse("loaves=5")
    assert one == other
    assert hash(one) == hash(other)
    assert one != BakerParams()


def test_json_keeps_the_values_and_who_set_them() -> None:
    made = registry.hparams("transformer_tiny").parse(
        "learning_rate_boundaries=[10,20],learning_rate_minimum=0.1", source="--hparams"
    )
    read = type(made).from_json(made.to_json())
    assert read == made
    assert read.provenance == made.provenance


def test_a_stored_value_outlives_a_change_of_the_default() -> None:
    class Newer(BakerParams):
        """Baking, years later."""

        loaves: int = hp(7, "Loaves per hour.")

    read = Newer.from_json(BakerParams().to_json())
    assert (read.loaves, read.provenance["loaves"]) == (3, "hparams.json")
    assert read.provenance["heat"] == "default"


def test_json_that_lacks_a_field_gets_its_default() -> None:
    assert BakerParams.from_json('{"loaves": 4}') == BakerParams(loaves=4)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not valid JSON"),
        ("[]", "should be a JSON object"),
        ('{"loafs": 1}', "Did you mean 'loaves'"),
        ('{"loaves": "1"}', "should be a valid integer"),
    ],
)
def test_malformed_json_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(HParamsError, match=complaint):
        BakerParams.from_json(text)


def test_a_set_survives_pickling_with_its_provenance() -> None:
    made = registry.hparams("transformer_tiny")
    read = pickle.loads(pickle.dumps(made))
    assert read == made
    assert read.provenance == made.provenance


def test_the_description_shows_each_field_its_type_value_setter_and_meaning() -> None:
    made = BakerParams().parse("loaves=5,sizes=[1,2]")
    assert made.describe().splitlines() == [
        "Baking: one of each type of field.",
        "  loaves  int            5      --hparams  Loaves per hour. (1 to 9)",
        "  heat    float          1.5    default    Kilowatts. (more than 0)",
        "  salted  bool           false  default    Whether there is salt in it.",
        "  glaze   str            egg    default    What is brushed on.",
        "  limit   float or none  none   default    Hours until the shop shuts.",
        "  sizes   list of int    [1,2]  --hparams  Grams.",
    ]


@pytest.mark.sample(30)
@pytest.mark.parametrize("name", registry.list_names("hparams"))
def test_a_description_parses_back_to_the_set(name: str) -> None:
    made = registry.hparams(name)
    rows = [line.split() for line in made.describe().splitlines() if line.startswith("  ")]
    assert [row[0] for row in rows] == [*dict.fromkeys(row[0] for row in rows)]
    assert {row[0] for row in rows} == type(made).model_fields.keys()
    values = made.model_dump()
    lists = {k: f"[{','.join(map(str, v))}]" for k, v in values.items() if isinstance(v, tuple)}
    plain = {k: v for k, v in values.items() if isinstance(v, int | float | str)}
    text = ",".join(f"{k}={v}" for k, v in {**plain, **lists}.items())
    assert type(made)().parse(text) == made


@pytest.mark.parametrize(
    "field", ["label_smoothing", "layer_prepostprocess_dropout", "optimizer_adam_beta1"]
)
def test_a_probability_of_one_is_refused(field: str) -> None:
    with pytest.raises(HParamsError, match=rf"{field}=1\.0: should be less than 1"):
        HParams().parse(f"{field}=1")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("lr", "Did you mean 'learning_rate_constant'?"),
        ("epochs", "Did you mean the flag --train_epochs?"),
        ("num_layers", "Did you mean 'num_hidden_layers'?"),
        ("dropout", "at 0.2. Did you mean 'layer_prepostprocess_dropout'?"),
        ("zzz", "List all of HParams:  t2t-trainer --hparams_set=SET --help_hparams"),
    ],
)
def test_names_of_other_libraries_are_known_and_nobody_gets_a_list_of_all(name, told):
    with pytest.raises(HParamsError) as refused:
        HParams().parse(f"{name}=1")
    assert told in str(refused.value)
    assert len(str(refused.value)) < 200


def test_each_alias_is_of_a_field_of_some_set_or_a_flag():
    known = {field for name in registry.list_names("hparams")
             for field in type(registry.hparams(name)).model_fields}  # fmt: skip
    meant = {one for one in HParams.aliases.values() if not one.startswith("--")}
    assert meant <= known
    flags = {one.removeprefix("--") for one in HParams.aliases.values() if one.startswith("--")}
    assert flags <= trainer.declared.keys()
    assert set(DecodeHParams.aliases.values()) <= DecodeHParams.model_fields.keys()
    assert not DecodeHParams.aliases.keys() & DecodeHParams.model_fields.keys()


def test_assignments_are_split_at_commas_outside_of_brackets():
    assert assignments("a=1,b=[2,[3,4]], c=x") == ["a=1", "b=[2,[3,4]]", " c=x"]
