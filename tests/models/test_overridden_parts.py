"""A model's own `bottom`, `body`, `top` and `loss` run wherever a model does."""

from __future__ import annotations

import dataclasses
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import t2t_torch
from t2t_torch import registry, testing
from t2t_torch.bin.commands import datagen, trainer
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import UsageError
from t2t_torch.export.exporter import OnnxExporter
from t2t_torch.export.settings import ExportSettings
from t2t_torch.features import ClassLabel, Features, Text
from t2t_torch.model import Hidden, T2TModel
from t2t_torch.models.transformer import Transformer
from t2t_torch.objectives.objective import Objective
from t2t_torch.text.encoder import ClassLabelEncoder, IntegerEncoder

PARTS = """
    import torch
    from torch import nn

    from t2t_torch.hparam import HParams
    from t2t_torch.model import Hidden, Loss, T2TModel
    from t2t_torch.registry import register_hparams, register_model

    CALLS = []


    @register_hparams
    def own_tiny():
        return HParams().replace(hidden_size=8, batch_size=256)


    @register_model("own_body")
    class OwnBody(T2TModel):
        HParams = HParams

        def __init__(self, hparams, features):
            super().__init__(hparams, features)
            self.join = nn.Linear(2 * hparams.hidden_size, hparams.hidden_size)

        def body(self, features):
            CALLS.append(("body", self.training))
            inputs, targets = features["inputs"], features["targets"]
            mask = inputs.mask[..., None]
            mean = (inputs.embedded * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
            before = nn.functional.pad(targets.embedded, (0, 0, 1, -1))
            return {"targets": Hidden(self.join(torch.cat([before, mean.expand_as(before)], -1)))}


    @register_model("own_bottom")
    class OwnBottom(OwnBody):
        def bottom(self, batch):
            CALLS.append(("bottom", self.training))
            return super().bottom({name: ids.clamp(max=2) for name, ids in batch.items()})


    @register_model("own_top")
    class OwnTop(OwnBody):
        def top(self, hidden, target):
            CALLS.append(("top", self.training))
            logits = super().top(hidden, target)
            return logits - 1e4 * (torch.arange(logits.size(-1), device=logits.device) == 2)


    @register_model("own_loss")
    class OwnLoss(OwnBody):
        def loss(self, hidden, target, batch):
            CALLS.append(("loss", self.training))
            plain = super().loss(hidden, target, batch)
            return Loss(plain.sum * 0.0 + 7.0 * plain.weight, plain.weight)
"""


@pytest.fixture
def folder(tmp_path: Path, own_registry: None) -> Path:
    """A user's folder with the models, and data to train them on."""
    usr_dir = tmp_path / f"usr_{tmp_path.name}"
    usr_dir.mkdir()
    (usr_dir / "own_parts.py").write_text(textwrap.dedent(PARTS), "utf-8")
    return usr_dir


_SLOW = [pytest.param(part, marks=pytest.mark.slow) for part in ("top", "bottom", "body", "loss")]


@pytest.mark.parametrize("part", _SLOW)
def test_a_model_trains_evaluates_decodes_and_exports_with_its_own_part(
    part: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = [f"--data_dir={tmp_path}", "--problem=algorithmic_reverse_binary40_test"]
    datagen.main([*data, f"--tmp_dir={tmp_path}", "--max_cases=30"])
    run = tmp_path / "run"
    assert not trainer.main(
        [*data, f"--output_dir={run}", f"--t2t_usr_dir={folder}", f"--model=own_{part}",
         "--hparams_set=own_tiny", "--worker_gpu=0", "--train_steps=3",
         "--eval_steps=1", "--local_eval_frequency=3"]
    )  # fmt: skip
    calls = sys.modules[f"{folder.name}.own_parts"].CALLS
    assert {(part, True), (part, False)} <= set(calls)
    if part == "loss":
        assert "loss 7.0000" in capsys.readouterr().err
    calls.clear()
    predictor = t2t_torch.load(run)
    capsys.readouterr()
    texts = ["0 1 1", "1 0"]
    outputs = predictor(texts)
    assert capsys.readouterr().err.count("decoding is slow") == 1
    if part != "loss":
        assert (part, False) in calls
    calls.clear()
    places = {"output_dir": run, "export_dir": tmp_path / "artifact", "data_dir": tmp_path}
    OnnxExporter.export(ExportSettings(**{name: str(path) for name, path in places.items()}))
    if part != "loss":  # of targets that are generated the loss is not exported
        assert (part, False) in calls
    assert t2t_torch.load(tmp_path / "artifact")(texts) == outputs
    if part == "top":
        assert not any("0" in text for text in outputs)


class Halved(Transformer):
    """Halves embeddings and logits, doubles losses, and counts the calls."""

    name = "halved"

    def __init__(self, hparams, features):
        super().__init__(hparams, features)
        self.calls: list[str] = []

    def bottom(self, batch):
        """Returns the features with smaller embeddings."""
        self.calls.append("bottom")
        found = super().bottom(batch)
        return {n: dataclasses.replace(f, embedded=f.embedded / 2) for n, f in found.items()}

    def top(self, hidden, target):
        """Returns smaller logits."""
        self.calls.append("top")
        return super().top(hidden, target) / 2

    def loss(self, hidden, target, batch):
        """Returns a larger loss."""
        self.calls.append("loss")
        loss = super().loss(hidden, target, batch)
        return loss._replace(sum=2 * loss.sum)


HPARAMS = registry.hparams("transformer_test").replace(
    layer_prepostprocess_dropout=0.1, attention_dropout=0.0, relu_dropout=0.0
)


def halved(**hparams) -> Halved:
    torch.manual_seed(0)
    return Halved(testing.small(HPARAMS.replace(**hparams)), testing.text_features())


def test_steps_use_the_models_bottom_and_top():
    model = halved().eval()
    batch = testing.random_batch(model.features)
    with torch.no_grad():
        testing._check_steps(model, batch)


@pytest.mark.parametrize(
    ("hparams", "passes"),
    [
        ({}, 1),
        ({"r_drop_alpha": 1.0}, 2),
        ({"confidence_penalty": 0.1}, 1),
        ({"distill_from": "x"}, 1),
    ],
    ids=str,
)
def test_every_objective_calls_the_models_loss_and_top(hparams, passes):
    model, teacher = halved(**hparams), halved()
    batch = testing.random_batch(model.features)
    objective = Objective(model, teacher if "distill_from" in hparams else None)
    loss = objective(batch).losses["targets"]
    loss.sum.backward()
    assert loss.sum.isfinite()
    assert model.calls.count("loss") == passes
    assert model.calls.count("bottom") == passes
    assert model.calls.count("top") >= passes
    assert teacher.calls.count("top") == ("distill_from" in hparams)


def test_the_loss_of_a_teacher_and_of_the_data_are_both_weighed():
    torch.manual_seed(0)
    losses = {}
    for weight in (0.0, 0.25, 1.0):
        model = halved(distill_from="x", distill_weight=weight, layer_prepostprocess_dropout=0.0)
        batch = testing.random_batch(model.features)
        teacher = halved(layer_prepostprocess_dropout=0.0)
        torch.nn.init.normal_(teacher.modalities["targets"].top.weight)
        losses[weight] = Objective(model, teacher)(batch).losses["targets"].sum
    torch.testing.assert_close(losses[0.25], 0.75 * losses[0.0] + 0.25 * losses[1.0])


def test_scheduled_sampling_draws_from_the_models_top(monkeypatch):
    model = halved(scheduled_sampling_prob=1.0, scheduled_sampling_warmup_steps=0)
    Objective(model)(testing.random_batch(model.features))
    assert model.calls.count("bottom") == 2
    assert model.calls.count("top") >= 2


def test_an_ensemble_calls_the_tops_and_losses_of_its_members():
    members = [halved().eval(), halved().eval()]
    ensemble, batch = Ensemble(members), testing.random_batch(members[0].features)
    with torch.no_grad():
        expected = members[0](batch)
        found = ensemble(batch)
    torch.testing.assert_close(found.losses["targets"], expected.losses["targets"])
    torch.testing.assert_close(found.logits["targets"], expected.logits["targets"].log_softmax(-1))


def test_a_top_of_classes_is_called_in_answers():
    class Flipped(registry.model("fasttext")):
        """Prefers what its parent rejects."""

        name = "flipped"

        def top(self, hidden, target):
            """Returns the negative logits."""
            return -super().top(hidden, target)

    text = Text(IntegerEncoder(9))
    features = Features({"inputs": text}, {"targets": ClassLabel(ClassLabelEncoder(["a", "b"]))})
    hparams = testing.small(registry.hparams("fasttext_tiny"))
    plain = registry.model("fasttext")(hparams, features).eval()
    own = Flipped(hparams, features).eval()
    own.load_state_dict(plain.state_dict())
    batch = testing.random_batch(features)
    inputs = {"inputs": batch["inputs"]}
    assert torch.equal(own.logits(inputs)["targets"], -plain.logits(inputs)["targets"])
    assert torch.equal(own(batch).logits["targets"], -plain(batch).logits["targets"])


class Prefix(T2TModel):
    """A model with a body alone: the sum of all targets before."""

    name = "prefix"

    def body(self, features):
        """Returns the sums."""
        before = torch.nn.functional.pad(features["targets"].embedded, (0, 0, 1, -1))
        return {"targets": Hidden(before.cumsum(1))}


@pytest.mark.parametrize("has_inputs", [True, False])
def test_a_body_alone_generates_what_a_teacher_forced_pass_predicts(has_inputs, capsys):
    features = testing.text_features(has_inputs=has_inputs)
    model = Prefix(testing.small(registry.hparams("transformer_test")), features).eval()
    batch = testing.random_batch(features)
    with torch.no_grad():
        testing._check_steps(model, batch)
        state = model.encode(batch).expand(2)
        _, state = model.step(torch.zeros(6, dtype=torch.int64), state)
        ids = torch.tensor([4, 5, 6, 7, 8, 9])
        _, state = model.step(ids, state)
        assert state.reorder(torch.tensor([5, 0])).ids.tolist() == [[0, 9], [0, 4]]
    assert capsys.readouterr().err.count("Prefix has no encode and step") <= 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda states: states, r"the keys \['targets'\]; got Tensor"),
        (lambda states: {"target": Hidden(states)}, r"keys \['targets'\]; got \['target'\]"),
        (lambda states: {"targets": states}, r"Hidden\(states\) for 'targets'; got Tensor"),
        (lambda states: {"targets": Hidden(states[..., :7])}, r"\[3, 9, 16\].*; got \[3, 9, 7\]"),
        (lambda states: {"targets": Hidden(states[:, 1:])}, r"\[3, 9, 16\].*; got \[3, 8, 16\]"),
        (lambda states: {"targets": Hidden(states.mean(1))}, r"\[3, 9, 16\].*; got \[3, 16\]"),
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_a_body_that_returns_something_else_is_named_with_what_is_expected(change, said, training):
    class Bent(T2TModel):
        """Its body breaks the contract."""

        name = "bent"

        def body(self, features):
            return change(features["targets"].embedded)

    features = testing.text_features(has_inputs=False)
    model = Bent(testing.small(registry.hparams("transformer_tiny")), features)
    batch = {"targets": testing.random_batch(features)["targets"][:, :1].expand(3, 9)}
    with pytest.raises(UsageError, match=rf"^Bent.body returns .*{said}\.$"):
        Objective(model).train(training)(batch)
