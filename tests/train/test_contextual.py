"""A trained language model's states are a part of what another model reads."""

from __future__ import annotations

import json
import shutil
from typing import ClassVar

import pytest
import torch

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.errors import CheckpointError, HParamsError
from t2t_torch.hparam import hp
from t2t_torch.hparams.lstm_lm import LstmLmHParams
from t2t_torch.mode import Split
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.text_problem import Text2SelfProblem, VocabType
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.problem_task import ProblemTask, with_architecture
from t2t_torch.train.run_config import RunConfig

SHARDS = {Split.TRAIN: 1, Split.EVAL: 1}
SAMPLES = [("Paris is big", "city"), ("cats are small and quick", "animal")] * 8
SMALL = (
    "num_hidden_layers=1,hidden_size=12,num_heads=1,filter_size=8,batch_size=64,"
    "learning_rate_warmup_steps=1"
)


class Named(Text2ClassProblem):
    """Labelled texts."""

    vocab_type = VocabType.WORD
    shards: ClassVar = SHARDS

    def generate_samples(self, tmp_dir, split):
        """Yields `SAMPLES`."""
        for text, label in SAMPLES:
            yield {"inputs": text, "targets": label}


class Foretold(Text2SelfProblem):
    """The same texts, with the same vocabulary."""

    vocab_type = VocabType.WORD
    use_vocab_from_other_problem = "named_places"
    shards: ClassVar = SHARDS

    def generate_samples(self, tmp_dir, split):
        """Yields `SAMPLES`."""
        for text, _ in SAMPLES:
            yield {"targets": text}


class Alone(Foretold):
    """With a vocabulary of its own."""

    use_vocab_from_other_problem = None
    min_word_count = 9


@pytest.fixture
def made(tmp_path, own_registry):
    """Makes runs: of a problem and a model, trained for some steps."""
    problems = {"named_places": Named, "foretold_places": Foretold, "alone_places": Alone}
    for name, kind in problems.items():
        registry.register_problem(name)(kind)
    estimators = []

    def run(folder, name, model, hparams, steps):
        record = TaskRecord(problem=name, model=model, hparams_set="none")
        directory = RunDirectory(tmp_path / folder)
        before = directory.hparams(type(hparams)) if directory.exists else None
        hparams = with_architecture(hparams, before)
        problem = registry.problem(name)
        if not list(tmp_path.glob(f"{name}-train*")):
            generate_data(problem, tmp_path, tmp_path, num_processes=1, progress=False)
        directory.begin(record, hparams)
        directory.copy_vocabularies(problem.vocab_files, tmp_path)
        task = ProblemTask(
            problem, registry.model(model), hparams, data_dir=tmp_path, vocab_dir=tmp_path
        )
        config = RunConfig(train_steps=9, local_eval_frequency=0)
        estimators.append(Estimator(task, directory, config))
        estimators[-1].train(steps)
        estimators[-1].close()
        return estimators[-1]

    yield run
    for estimator in estimators:
        estimator.close()


def language_model(made, name="foretold_places", more=""):
    hparams = registry.hparams("lstm_lm_tiny").parse("hidden_size=8,embedding_size=6,stream_rows=2")
    hparams = hparams.parse("learning_rate_warmup_steps=1,stream_length=4" + more)
    return made("lm", name, "lstm_lm", hparams, 3)


def labelled(made, folder="run", more="", steps=2):
    hparams = registry.hparams("transformer_encoder_tiny").parse(SMALL).parse(more)
    return made(folder, "named_places", "transformer_encoder", hparams, steps)


def test_the_states_are_those_of_the_language_model_frozen(made, tmp_path, capsys):
    teacher = language_model(made)
    requested = f"contextual_embeddings={tmp_path / 'lm'},contextual_size=5"
    run = labelled(made, more=requested)
    assert f"contextual vectors: lstm_lm of {tmp_path / 'lm'}, step 3, 6" in capsys.readouterr().err
    bottom = run.model.train().modalities["inputs"].bottom
    weights = teacher.model.state_dict()
    result = bottom.context.model.state_dict()
    assert result and all(torch.equal(result[name], weights[name]) for name in result)
    # Nothing is remembered of streams, so nothing is saved of them or sent to other processes.
    assert weights.keys() - result.keys() == {"carried.layer_0", "carried.layer_1"}

    ids = torch.tensor([[4, 5, 6, 1], [7, 1, 0, 0]])
    states = bottom.context(ids)
    model = teacher.model.eval()
    for row, length in ((0, 4), (1, 2)):
        for read in range(1, length + 1):  # the state that foretells what follows
            prefix = torch.cat([ids[row, :read], torch.tensor([3])])[None]
            with torch.no_grad():
                expected = model.body(model.bottom({"targets": prefix}))["targets"].states[0, -1]
            torch.testing.assert_close(states[row, read - 1], expected)
    vectors = bottom.eval()(ids)
    assert vectors.shape == (2, 4, 12) and not vectors[1, 2:].any()
    torch.testing.assert_close(vectors[..., 7:][0], bottom.map(states)[0])
    padded = torch.nn.functional.pad(ids, (0, 3))
    torch.testing.assert_close(bottom(padded)[:, :4], vectors)


def test_a_run_goes_on_and_answers_without_the_language_models_directory(made, tmp_path):
    language_model(made)
    requested = f"contextual_embeddings={tmp_path / 'lm'},contextual_size=5"
    first = labelled(made, more=requested)
    before = {name: tensor.clone() for name, tensor in first.model.state_dict().items()}
    shutil.rmtree(tmp_path / "lm")
    second = labelled(made, more=requested, steps=4)
    assert second.state.step == 4
    after = second.model.state_dict()
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert {name for name in before if ".context." in name} <= same
    assert "modalities.inputs.bottom.map.weight" in set(before) - same

    from t2t_torch.decode.loading import load

    assert load(tmp_path / "run", device="cpu")(["Paris is quick"])[0] in ("city", "animal")


def test_another_vocabulary_is_refused(made, tmp_path):
    language_model(made, "alone_places")
    requested = f"contextual_embeddings={tmp_path / 'lm'},contextual_size=5"
    with pytest.raises(HParamsError, match=r"another vocabulary.*use_vocab_from_other_problem"):
        labelled(made, more=requested)


def test_what_is_no_language_model_is_refused(made, tmp_path):
    labelled(made, "other")
    with pytest.raises(HParamsError, match="is no language model"):
        labelled(made, more=f"contextual_embeddings={tmp_path / 'other'}")
    with pytest.raises(CheckpointError, match="is not a run directory"):
        labelled(made, more=f"contextual_embeddings={tmp_path / 'nowhere'}")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("contextual_size=12", "leaves nothing of the 12 numbers"),
        ("contextual_size=5,pack_dataset=true", r"Set pack_dataset=False"),
    ],
)
def test_hparams_that_do_not_fit_are_refused(more, message, made, tmp_path):
    language_model(made)
    with pytest.raises(HParamsError, match=message):
        labelled(made, more=f"contextual_embeddings={tmp_path / 'lm'},{more}")


def test_the_architecture_is_kept_with_the_run(made, tmp_path):
    language_model(made)
    labelled(made, more=f"contextual_embeddings={tmp_path / 'lm'},contextual_size=5")
    retained = json.loads((tmp_path / "run" / "hparams.json").read_text())[
        "contextual_architecture"
    ]
    assert json.loads(retained)["model"] == "lstm_lm"
    assert json.loads(retained)["hparams"]["embedding_size"] == 6


class LongerHParams(LstmLmHParams):
    """Those of the model and one more."""

    note: str = hp("", "What a user wants to remember.")


def test_hparams_of_the_language_model_may_be_of_a_subclass(made, tmp_path):
    @registry.register_hparams
    def lstm_lm_longer() -> LongerHParams:
        return LongerHParams(hidden_size=8, embedding_size=6, stream_rows=2, note="by hand")

    hparams = registry.hparams("lstm_lm_longer").parse("stream_length=4")
    made("lm", "foretold_places", "lstm_lm", hparams, 3)
    labelled(made, more=f"contextual_embeddings={tmp_path / 'lm'},contextual_size=5")


def test_float16_that_cannot_be_trained_is_refused_before_the_first_step(made, tmp_path):
    with torch.autocast("cpu", dtype=torch.float16):
        try:
            torch.nn.LSTM(1, 1)(torch.zeros(1, 1, 1))
            pytest.skip("this CPU trains LSTMs in float16")
        except RuntimeError:
            pass
    with pytest.raises(HParamsError, match="activation_dtype=bfloat16"):
        language_model(made, more=",activation_dtype=float16")
