"""A language model that reads streams, in a run: what it remembers outlives a stop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from together import run_together

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.data.shards import Shards
from t2t_torch.mode import Split
from t2t_torch.pipeline.plan import ORDER_VERSION
from t2t_torch.pipeline.streams import STREAMS_MARK, StreamPlan
from t2t_torch.run.checkpoint import TrainerState
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.run.resuming import same_position
from t2t_torch.run.tensors import StoredTensors, tensors_at
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.problem_task import ProblemTask
from t2t_torch.train.run_config import RunConfig

PROGRAM = Path(__file__).with_name("process_of_two.py")
PROBLEM = "languagemodel_ptb10k"
SET = "lstm_lm_tiny"
HPARAMS = (
    "hidden_size=16,embedding_size=8,stream_length=5,stream_rows=4,eval_stream_rows=3,"
    "learning_rate_warmup_steps=2,change_penalty=1.0"
)
STILL = (
    "learning_rate_schedule=constant,learning_rate_constant=0.01,input_dropout=0.0,"
    "between_dropout=0.0,output_dropout=0.0"
)
STEPS = 9  # of 6 an epoch


@pytest.fixture(scope="module")
def text_dir(tmp_path_factory):
    """Shards of a little Treebank."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "ptb").mkdir()
    for part, count in (("train", 12), ("valid", 9), ("test", 9)):
        lines = (
            f" the <unk> of {'N ' * (k % 4)}dogs {'bark ' * (k % 3)}\n" for k in range(2 * count)
        )
        (folder / "ptb" / f"ptb.{part}.txt").write_text("".join(lines), "utf-8")
    generate_data(registry.problem(PROBLEM), folder, folder, num_processes=1, progress=False)
    return folder


@pytest.fixture
def train(text_dir, tmp_path):
    """Trains up to some steps, one after another, each time in an estimator of its own."""

    def trained(name, steps, hparams=""):
        task = ProblemTask(
            registry.problem(PROBLEM),
            registry.model("lstm_lm"),
            registry.hparams(SET).parse(HPARAMS).parse(hparams),
            data_dir=text_dir,
            vocab_dir=text_dir,
        )
        directory = RunDirectory(tmp_path / name)
        directory.begin(TaskRecord(problem=PROBLEM, model="lstm_lm", hparams_set=SET), task.hparams)
        config = RunConfig(train_steps=steps[-1], local_eval_frequency=0, eval_steps=0)
        for step in steps:
            with Estimator(task, directory, RunConfig(**dict(config))) as estimator:
                estimator.train_steps = STEPS
                estimator.train(step)
                metrics = estimator.evaluate(Split.TEST)
        return tensors(directory.path, steps[-1]), metrics

    return trained


def tensors(output_dir, step):
    folder = output_dir / f"ckpt-{step}"
    return {
        f"{kind}/{name}": tensor
        for kind in ("model", "optimizer")
        for name, tensor in StoredTensors(tensors_at(folder, kind)).read().items()
    }


def check(first, second, **close):
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        if close:
            torch.testing.assert_close(tensor, second[name], **close, msg=lambda m, n=name: n + m)
        else:
            assert torch.equal(tensor, second[name]), name


@pytest.mark.sample(1)
@pytest.mark.parametrize("stops", [[1], [4], [6], [2, 7]])
@pytest.mark.parametrize(
    "hparams", ["weight_dropout=0.2", "optimizer_multistep_accumulate_steps=2"]
)
def test_a_resumed_run_remembers_to_the_last_bit(train, stops, hparams):
    whole, metrics = train("whole", [STEPS], hparams)
    assert any(values.any() for name, values in whole.items() if "carried" in name)
    parts, metrics_of_parts = train("parts", [*stops, STEPS], hparams)
    check(whole, parts)
    assert metrics == metrics_of_parts


def start(text_dir, output_dir, hparams, steps, processes=2):
    """Trains in so many processes to their end."""
    settings = {
        "problem": PROBLEM,
        "data_dir": str(text_dir),
        "output_dir": str(output_dir),
        "hparams": f"{HPARAMS},{hparams}",
        "steps": steps,
        "model": "lstm_lm",
        "hparams_set": SET,
    }
    codes, errors = run_together([PROGRAM, json.dumps(settings)], processes)
    assert codes == [0] * processes, errors


@pytest.mark.slow
def test_processes_have_streams_of_their_own_and_remember_all_of_them(text_dir, tmp_path, train):
    """Two processes, stopped in between, come to what one does with two batches a step."""
    for step in (2, 4):
        start(text_dir, tmp_path / "two", STILL, step)
    alone, _ = train("one", [4], f"{STILL},optimizer_multistep_accumulate_steps=2")
    check(tensors(tmp_path / "two", 4), alone, atol=2e-5, rtol=1e-4)


def test_a_changed_setting_of_streams_is_named(text_dir):
    problem, shards = registry.problem(PROBLEM), Shards.open(text_dir, PROBLEM, Split.TRAIN)
    features = problem.features(text_dir)
    hparams = registry.hparams(SET).parse(HPARAMS)

    def fault(before, now):
        prints = [
            StreamPlan.of(
                shards, features, hparams.replace(**changes), seed=1, batches_per_step=1
            ).fingerprint
            for changes in (before, now)
        ]
        state = TrainerState(batches_per_step=1, plan_fingerprint=prints[0])
        options = {"fingerprint": prints[1], "batches_per_step": 1, "processes": 1}
        return same_position(state, "ckpt-1", **options)

    assert fault({}, {}) == ""
    for changes in ({"stream_length": 4}, {"stream_rows": 2}):
        assert "stream_length, stream_rows or --random_seed changed" in fault({}, changes)


@pytest.mark.parametrize(("before", "now"), [(0, 5), (5, 0)])
def test_streams_in_place_of_examples_are_told_apart_from_another_version(before, now):
    examples, streams = f"{ORDER_VERSION}-0123", f"{ORDER_VERSION}{STREAMS_MARK}1-4567"
    state = TrainerState(batches_per_step=1, plan_fingerprint=streams if before else examples)
    options = {"fingerprint": streams if now else examples, "batches_per_step": 1, "processes": 1}
    text = same_position(state, "ckpt-1", **options)
    assert "Set stream_length as it was" in text and "version" not in text
    assert text.index("streams" if before else "example by example") < text.index("here it is")
