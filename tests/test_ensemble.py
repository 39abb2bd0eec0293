"""Several models as one: their probabilities, chains, next ids, and what a student learns."""

from __future__ import annotations

import itertools

import pytest
import torch

import t2t_torch
from t2t_torch import registry, testing
from t2t_torch.decode.evaluation import evaluate_ensemble, losses_of_mixtures
from t2t_torch.decode.policies import BeamPolicy
from t2t_torch.decode.search import beam_search
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import HParamsError, UsageError
from t2t_torch.features import (
    Choice,
    ClassLabel,
    Features,
    MultiLabel,
    Real,
    SoftLabel,
    Span,
    Tags,
    Text,
    TreeFeature,
    Words,
)
from t2t_torch.mode import Split
from t2t_torch.objectives.objective import Objective
from t2t_torch.testing import random_batch
from t2t_torch.text.encoder import ClassLabelEncoder, IntegerEncoder
from t2t_torch.text.tree import TransitionEncoder

LABELS = ClassLabelEncoder(["a", "b", "c"])
WORDS = Words(IntegerEncoder(9))
TARGETS = {
    ClassLabel: ClassLabel(LABELS),
    SoftLabel: SoftLabel(LABELS),
    MultiLabel: MultiLabel(LABELS),
    Tags: Tags(LABELS),
    Span: Span("inputs"),
    Real: Real(3),
}
PROBABILITIES = {
    ClassLabel: lambda logits: logits.softmax(-1),
    SoftLabel: lambda logits: logits.softmax(-1),
    MultiLabel: torch.sigmoid,
    Tags: lambda logits: logits.softmax(-1),
    Span: lambda logits: logits.softmax(1),
    Real: lambda logits: logits,
}
BATCH = {"inputs": torch.tensor([[3, 4, 5, 2], [6, 7, 0, 0]])}


def model_of(target, seed, **hparams):
    torch.manual_seed(seed)
    small = testing.small(registry.hparams("transformer_encoder_tiny")).replace(**hparams)
    features = Features({"inputs": WORDS}, {"targets": target})
    model = registry.model("transformer_encoder")(small, features).eval()
    for parameter in model.modalities["targets"].parameters():
        torch.nn.init.normal_(parameter)  # no two models guess alike
    return model


@pytest.mark.parametrize("kind", TARGETS)
@torch.no_grad()
def test_the_probabilities_are_the_mean_of_the_models(kind):
    models = [model_of(TARGETS[kind], seed) for seed in range(3)]
    found = Ensemble(models).logits(BATCH)["targets"]
    each = [PROBABILITIES[kind](model.logits(BATCH)["targets"]) for model in models]
    there = torch.ones_like(each[0], dtype=torch.bool)
    if kind is Tags:
        there = (BATCH["inputs"] != 0)[..., None].expand_as(each[0])
    mean = torch.stack(each).mean(0)
    torch.testing.assert_close(PROBABILITIES[kind](found)[there], mean[there])


@pytest.mark.parametrize("kind", TARGETS)
@torch.no_grad()
def test_an_ensemble_of_one_is_the_model_itself(kind):
    model = model_of(TARGETS[kind], 0)
    found, expected = Ensemble([model]).logits(BATCH), model.logits(BATCH)
    assert torch.equal(found["targets"], expected["targets"])


@torch.no_grad()
def test_a_choice_among_candidates_is_averaged_too():
    features = Features(
        {"query": WORDS, "first": WORDS, "second": WORDS}, {"targets": Choice(("first", "second"))}
    )
    batch = dict.fromkeys(features.inputs, BATCH["inputs"]) | {"second": torch.tensor([[8], [2]])}
    models = []
    for seed in range(2):
        torch.manual_seed(seed)
        small = testing.small(registry.hparams("transformer_encoder_tiny"))
        models.append(registry.model("transformer_encoder")(small, features).eval())
    found = Ensemble(models).logits(batch)["targets"].softmax(-1)
    each = [model.logits(batch)["targets"].softmax(-1) for model in models]
    torch.testing.assert_close(found, torch.stack(each).mean(0))


@torch.no_grad()
def test_chains_of_tags_are_averaged_with_their_emissions():
    models = [model_of(TARGETS[Tags], seed, tag_decoder="crf") for seed in range(2)]
    ensemble = Ensemble(models)
    logits = ensemble.logits(BATCH)["targets"]
    each = [model.logits(BATCH)["targets"] for model in models]
    modality = ensemble.modalities["targets"]
    chains = [model.modalities["targets"].crf() for model in models]
    for sequence in itertools.product(range(3), repeat=4):

        def score(emissions, chain, tags=sequence):
            own = sum(emissions[0, place, tag] for place, tag in enumerate(tags))
            follow = sum(chain.follow[a, b] for a, b in itertools.pairwise(tags))
            return own + follow + chain.start[tags[0]] + chain.end[tags[-1]]

        mean = sum(score(*pair) for pair in zip(each, chains, strict=True)) / 2
        torch.testing.assert_close(score(logits, modality.crf()), mean)
    assert [
        len(guess.numbers) for guess in ensemble.modalities["targets"].predict(logits).rows()
    ] == [4, 4]
    untouched = model_of(TARGETS[Tags], 0, tag_decoder="crf").modalities["targets"].crf.follow
    assert torch.equal(chains[0].follow, untouched)


def writers(count, **hparams):
    features = Features({"inputs": Text(IntegerEncoder(9))}, {"targets": Text(IntegerEncoder(9))})
    made = []
    for seed in range(count):
        torch.manual_seed(seed)
        chosen = registry.hparams("transformer_test").replace(**hparams)
        made.append(registry.model("transformer")(chosen, features))
    return [model.eval() for model in made]


@torch.no_grad()
def test_the_log_probabilities_of_the_next_id_are_averaged():
    models = writers(2)
    ensemble, state = Ensemble(models), Ensemble(models).encode(BATCH)
    own = [model.encode(BATCH) for model in models]
    for ids in (torch.tensor([0, 0]), torch.tensor([4, 7])):
        found, state = ensemble.step(ids, state)
        steps = [model.step(ids, its) for model, its in zip(models, own, strict=True)]
        own = [its for _, its in steps]
        mean = torch.stack([logits.log_softmax(-1) for logits, _ in steps]).mean(0)
        torch.testing.assert_close(found, mean)


@torch.no_grad()
def test_what_only_fills_logits_up_counts_in_no_mean():
    (plain,), (filled,) = writers(1), writers(1, vocab_divisor=16)
    both = Ensemble([filled, plain])
    found, _ = both.step(torch.tensor([4, 7]), both.encode(BATCH))
    cut = []
    for model in (plain, filled):
        logits, _ = model.step(torch.tensor([4, 7]), model.encode(BATCH))
        cut.append(logits[:, : both.features.targets["targets"].vocab_size].log_softmax(-1))
    torch.testing.assert_close(found, (cut[0] + cut[1]) / 2)
    targets = torch.tensor([[5, 6, 7, 1], [3, 1, 0, 0]])
    assert both({**BATCH, "targets": targets}).logits["targets"].shape[-1] == found.shape[-1]


@torch.no_grad()
def test_texts_are_evaluated_with_the_probabilities_that_are_searched():
    models = writers(2)
    for model in models:
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.6)  # no two models guess alike
    ensemble, targets = Ensemble(models), torch.tensor([[5, 6, 7, 1], [3, 1, 0, 0]])
    evaluated = ensemble({**BATCH, "targets": targets}).logits["targets"].log_softmax(-1)
    state, last = ensemble.encode(BATCH), torch.tensor([0, 0])
    for place in range(2):
        found, state = ensemble.step(last, state)
        torch.testing.assert_close(found.log_softmax(-1), evaluated[:, place])
        last = targets[:, place]


def test_chains_of_tags_go_to_the_device_of_the_models():
    ensemble = Ensemble([model_of(TARGETS[Tags], seed, tag_decoder="crf") for seed in range(2)])
    moved = ensemble.to("meta").modalities["targets"]
    assert {parameter.device.type for parameter in moved.parameters()} == {"meta"}


@torch.no_grad()
def test_search_reorders_the_states_of_all():
    (model,) = writers(1)
    limits = torch.tensor([6, 6])
    options = {"max_lengths": limits, "beam_size": 3, "policy": BeamPolicy(0.6)}
    twice = Ensemble([model, model])
    found = beam_search(twice.step, twice.encode(BATCH), **options)
    expected = beam_search(model.step, model.encode(BATCH), **options)
    assert torch.equal(found.ids, expected.ids)
    torch.testing.assert_close(found.scores, expected.scores)


def test_models_of_other_targets_are_no_ensemble():
    with pytest.raises(HParamsError, match="with the same targets"):
        Ensemble([model_of(TARGETS[ClassLabel], 0), model_of(TARGETS[Tags], 0)])
    with pytest.raises(HParamsError, match="at least one"):
        Ensemble([])


@pytest.mark.sample(1)
@pytest.mark.parametrize(("decoder", "teachers"), [("softmax", 1), ("crf", 2)])
def test_a_student_of_tags_learns_from_teachers_of_any_width(decoder, teachers):
    target = TARGETS[Tags]
    members = [model_of(target, seed, hidden_size=8 * seed) for seed in range(1, teachers + 1)]
    student = model_of(
        target, 9, tag_decoder=decoder, distill_from="run", distill_weight=1.0, symbol_dropout=0.0,
        layer_prepostprocess_dropout=0.0, attention_dropout=0.0, relu_dropout=0.0,
    )  # fmt: skip
    ensemble = Ensemble(members)
    objective = Objective(student, ensemble if teachers > 1 else members[0])
    batch = {**BATCH, "targets": torch.tensor([[0, 1, 2, 0], [1, 0, -100, -100]])}
    wanted = ensemble.logits(BATCH)["targets"].softmax(-1)
    optimizer = torch.optim.Adam(student.parameters(), 0.03)
    for _ in range(70):
        optimizer.zero_grad()
        objective(batch).losses["targets"].sum.backward()
        optimizer.step()
    student.eval()
    modality = student.modalities["targets"]
    with torch.no_grad():
        found = modality.teaching(student.logits(BATCH)["targets"]).softmax(-1)
    there = BATCH["inputs"] != 0
    torch.testing.assert_close(found[there], wanted[there], atol=0.05, rtol=0)


def test_a_student_leaves_out_what_may_not_be_whatever_its_teacher_does():
    tree = TreeFeature(TransitionEncoder(["S", "NP", "VP"]))
    features = Features({"inputs": WORDS}, {"targets": tree})
    small = testing.small(registry.hparams("rnng_tiny"))
    settings = small.replace(distill_from="run", valid_actions_only=True)
    student = registry.model("rnng")(settings, features)
    teacher = registry.model("rnng")(small.replace(valid_actions_only=False), features)
    loss = Objective(student, teacher)(random_batch(features)).losses["targets"]
    assert loss.sum.isfinite()


def test_a_student_of_numbers_learns_a_teachers_numbers():
    teacher = model_of(TARGETS[Real], 1)
    rates = ("symbol_dropout", "layer_prepostprocess_dropout", "attention_dropout", "relu_dropout")
    dropped = dict.fromkeys(rates, 0.0)
    student = model_of(TARGETS[Real], 2, distill_from="run", distill_weight=0.25, **dropped)
    plain = model_of(TARGETS[Real], 2, **dropped)
    objective = Objective(student, teacher)
    batch = {**BATCH, "targets": torch.randn(2, 3)}
    found = objective(batch).losses["targets"].sum
    own = plain.train()(batch).losses["targets"].sum
    like = plain(BATCH | {"targets": teacher.logits(BATCH)["targets"]}).losses["targets"].sum
    torch.testing.assert_close(found, 0.75 * own + 0.25 * like)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two short runs of one problem, and its data."""
    from t2t_torch.bin.commands import datagen, trainer

    folder = tmp_path_factory.mktemp("runs")
    name = "algorithmic_reverse_binary40_test"
    data = [f"--data_dir={folder}", f"--problem={name}"]
    datagen.main([*data, f"--tmp_dir={folder}", "--max_cases=60"])
    made = [folder / "one", folder / "other"]
    for seed, run in enumerate(made):
        hparams = f"batch_size=256,bagging_share=1,bagging_seed={seed}"
        assert not trainer.main(
            [*data, f"--output_dir={run}", "--model=transformer", "--train_steps=3",
             "--hparams_set=transformer_test", f"--hparams={hparams}", "--worker_gpu=0",
             f"--random_seed={seed}", "--schedule=train"]
        )  # fmt: skip
    return folder, made


def test_runs_are_loaded_decoded_and_evaluated_as_one(runs):
    folder, made = runs
    alone, one = t2t_torch.load(made[0]), t2t_torch.load([made[0]])
    inputs = ["0 1 1", "1 0"]
    assert one(inputs) == alone(inputs)
    both = t2t_torch.load([made[0], made[1] / "ckpt-3"])
    assert len(both.model.models) == 2 and len(both(inputs)) == 2
    results = evaluate_ensemble(made, folder, Split.EVAL, device="cpu")
    single = evaluate_ensemble(made[:1], folder, Split.EVAL, device="cpu")
    assert results.keys() == single.keys()
    assert results["loss"] != single["loss"]
    with pytest.raises(UsageError, match="is a run of algorithmic_reverse_binary40_test, not of"):
        t2t_torch.load(made, problem="sentiment_imdb")


def test_a_run_that_stands_there_twice_has_twice_the_weight_and_is_loaded_once(runs):
    folder, made = runs
    three = t2t_torch.load([made[0], made[1], made[0]]).model
    assert three.models[0] is three.models[2] is not three.models[1]
    losses = losses_of_mixtures(made, [(0, 0), (0, 1), (0, 0, 1)], folder, Split.EVAL)
    alone, equal, twice = losses.sum(1)
    for members, summed in (([0], alone), ([0, 1], equal), ([0, 1, 0], twice)):
        found = evaluate_ensemble([made[i] for i in members], folder, Split.EVAL, device="cpu")
        tokens = alone / evaluate_ensemble(made[:1], folder, Split.EVAL, device="cpu")["loss"]
        assert summed / tokens == pytest.approx(found["loss"], rel=1e-5)


def test_commands_take_several_runs_and_several_teachers(runs, tmp_path, capsys):
    from t2t_torch.bin.commands import decoder, trainer
    from t2t_torch.bin.commands import evaluation as evaluate

    folder, made = runs
    named = ",".join(map(str, made))
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("0 1 1\n", encoding="utf-8")
    files = [f"--decode_from_file={source}", f"--decode_to_file={target}"]
    assert not decoder.main([f"--output_dir={named}", *files])
    assert len(target.read_text(encoding="utf-8").splitlines()) == 1
    assert not evaluate.main([f"--output_dir={named}", f"--data_dir={folder}", "--worker_gpu=0"])
    assert "loss" in capsys.readouterr().out
    run = tmp_path / "student"
    assert not trainer.main(
        [f"--data_dir={folder}", "--problem=algorithmic_reverse_binary40_test",
         "--model=transformer", "--hparams_set=transformer_test", "--hparams=batch_size=256",
         f"--output_dir={run}", f"--teacher={named}", "--train_steps=2", "--worker_gpu=0",
         "--schedule=train"]
    )  # fmt: skip
    assert f'distill_from": "[{named}]"' in (run / "hparams.json").read_text(encoding="utf-8")
