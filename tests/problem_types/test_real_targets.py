"""Targets that are numbers: learned standardized, answered and measured in their own units."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from t2t_torch import registry
from t2t_torch.data.generate import generate_data, run_task
from t2t_torch.data.manifest import Manifest
from t2t_torch.data.raw_file import samples_of
from t2t_torch.data.shards import Ragged, Shards
from t2t_torch.data.vocabulary_builder import learn, vocab_files_in
from t2t_torch.errors import CheckpointError, DataError, HParamsError
from t2t_torch.features import Features, Real, WordReal
from t2t_torch.features.text import meanings
from t2t_torch.hparam import HParams
from t2t_torch.losses.numbers import Cosine
from t2t_torch.metrics.evaluation import Evaluation
from t2t_torch.mode import Split
from t2t_torch.model import Loss, Output
from t2t_torch.reports.column_statistics import scale_warnings
from t2t_torch.run.checkpoint import Checkpoint, Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.testing import check_problem, small
from t2t_torch.text_problem import Text2SelfProblem
from t2t_torch.train.distillation import _other_features, load_teachers
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.problem_task import ProblemTask
from t2t_torch.train.run_config import RunConfig
from t2t_torch.workflows import generate
from t2t_torch.workflows.run import load

TINY = "bilstm_attention_classifier_tiny"
MOMENTS = "moments.flat_prices.targets.json"
PRICES = {"Oslo": 450_000, "Lima": 150_000, "Quito": 120_000, "Paris": 900_000}

pytestmark = pytest.mark.usefixtures("own_registry")


def write_rows(folder: Path, counts: dict[str, int]) -> None:
    """Writes flats and their prices, of a scale of 100,000."""
    drawn = random.Random(0)
    for split, count in counts.items():
        lines = ["text,price"]
        for _ in range(count):
            city, rooms = drawn.choice(list(PRICES)), drawn.randint(1, 5)
            price = round(PRICES[city] * (0.6 + 0.2 * rooms) * drawn.uniform(0.95, 1.05))
            lines.append(f"a flat with {rooms} rooms in {city},{price}")
        (folder / f"{split}.csv").write_text("\n".join(lines) + "\n")
    declared = {
        "problem": "flat_prices",
        "kind": "text2real",
        "files": {"train": "train.csv", "eval": "eval.csv"},
        "fields": {"inputs": "text", "targets": "price"},
        "vocab_type": "word",
    }
    (folder / "flat_prices.json").write_text(json.dumps(declared))


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """A folder with 60 flats for training, 12 for evaluation, and the declaration."""
    folder = tmp_path / "raw"
    folder.mkdir()
    write_rows(folder, {"train": 60, "eval": 12})
    return folder


@pytest.fixture
def data(raw: Path, tmp_path: Path) -> Path:
    """The generated data."""
    registry.import_usr_dir(raw)
    problem = registry.problem("flat_prices")
    generate_data(problem, tmp_path / "data", raw, num_processes=1, progress=False)
    return tmp_path / "data"


def prices(folder: Path, split: str) -> torch.Tensor:
    """Returns the prices of a file, [N] float64."""
    lines = (folder / f"{split}.csv").read_text().splitlines()[1:]
    return torch.tensor([float(line.rpartition(",")[2]) for line in lines], dtype=torch.float64)


def begin_run(path: Path, data: Path, usr_dir: Path) -> None:
    """Writes a run of two steps' worth of nothing: its weights are as they were drawn."""
    problem, model = registry.problem("flat_prices"), registry.model("bilstm_attention_classifier")
    hparams = small(registry.hparams(TINY))
    run = RunDirectory(path)
    task = TaskRecord(
        problem="flat_prices",
        model="bilstm_attention_classifier",
        hparams_set=TINY,
        usr_dirs=(str(usr_dir),),
    )
    names = vocab_files_in(problem, data)
    run.begin(task, hparams)
    run.copy_vocabularies(names, data)
    network = model(hparams, problem.features(path))
    adam = torch.optim.Adam(network.parameters())
    checkpoints = CheckpointDirectory(path)
    checkpoints.save(Snapshot.take(network, adam, TrainerState(step=1)))
    run.unlock()


def test_targets_are_stored_standardized_by_the_training_split_and_decoded(data, raw):
    train = prices(raw, "train")
    mean, std = train.mean().item(), train.std(correction=0).item()
    feature = registry.problem("flat_prices").features(data).targets["targets"]
    assert isinstance(feature, Real)
    assert (feature.mean[0], feature.std[0]) == pytest.approx((mean, std))
    shards = Shards.open(data, "flat_prices", Split.EVAL)
    ((values, _),) = shards.column("targets")
    stored = torch.tensor(values.tolist(), dtype=torch.float64)
    torch.testing.assert_close(stored.sort()[0] * std + mean, prices(raw, "eval").sort()[0])
    assert [feature.decode([x])[0] for x in stored.tolist()] == pytest.approx(
        (stored * std + mean).tolist()
    )
    assert MOMENTS in Manifest.load(data, "flat_prices").vocab_files


def test_metrics_are_in_the_targets_own_units():
    feature = Real(mean=(500.0,), std=(100.0,))
    logits, targets = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.5], [1.0]])
    names = ("rmse", "mean_absolute_error", "unpadded_mse", "pearson", "r_squared")
    evaluation = Evaluation({"targets": feature}, {"targets": names}, "p")
    loss = Loss(torch.tensor(0.25), torch.tensor(2.0))
    evaluation.update(Output({"targets": logits}, {"targets": loss}), {"targets": targets})
    found = {key.rpartition("/")[2]: value for key, value in evaluation.result().items()}
    # 500 and 600 were predicted, 550 and 600 were right.
    assert found["rmse"] == pytest.approx((50**2 / 2) ** 0.5)
    assert (found["mean_absolute_error"], found["unpadded_mse"]) == pytest.approx((25, 1250))
    assert (found["pearson"], found["r_squared"]) == pytest.approx((1.0, 1 - 2500 / 1250))
    assert found["loss"] == pytest.approx(0.125)  # what is trained on, standardized


def test_the_loss_cosine_is_of_the_numbers_themselves():
    feature = Real(2, mean=(10.0, 0.0), std=(1.0, 5.0))
    loss = Cosine(feature, HParams())
    ours, theirs = torch.tensor([[1.0, 2.0]]), torch.tensor([[-1.0, 1.0]])
    expected = torch.cosine_similarity(torch.tensor([[11.0, 10.0]]), torch.tensor([[9.0, 5.0]]))
    torch.testing.assert_close(loss.values(ours, theirs), 1 - expected)


@pytest.fixture
def old(data: Path, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data as versions without moments generated it."""
    with monkeypatch.context() as patch:
        kind = type(registry.problem("flat_prices"))
        of_words = kind.learners
        patch.setattr(kind, "learners", lambda self: of_words(self)[:1], raising=False)
        folder = tmp_path / "old"
        generate_data(registry.problem("flat_prices"), folder, raw, num_processes=1, progress=False)
    assert not (folder / MOMENTS).exists()
    return folder


def test_data_and_runs_of_earlier_versions_go_on_as_before(data, old, raw, tmp_path):
    problem = registry.problem("flat_prices")
    assert vocab_files_in(problem, old) == ("vocab.flat_prices.32768.words",)
    assert problem.features(old).targets["targets"] == Real(1)
    before = Manifest.load(old, "flat_prices")
    # It is complete: nothing is made anew.
    assert generate_data(problem, old, raw, num_processes=1, progress=False) == before
    begin_run(tmp_path / "run", old, raw)
    assert load(tmp_path / "run").features.targets["targets"] == Real(1)
    for there, run in ((data, tmp_path / "run"), (old, tmp_path / "new_run")):
        if run.name == "new_run":
            begin_run(run, data, raw)
        with pytest.raises(CheckpointError, match="on numbers of another scale"):
            vocab_files_in(problem, there, run)


def test_an_estimator_trains_on_data_of_an_earlier_version(data, old, tmp_path):
    model = registry.model("bilstm_attention_classifier")
    problem, hparams = registry.problem("flat_prices"), small(registry.hparams(TINY))
    hparams = hparams.replace(learning_rate_warmup_steps=0)

    def estimator(folder: Path) -> Estimator:
        task = ProblemTask(problem, model, hparams, data_dir=folder, vocab_dir=folder)
        return Estimator(
            task, RunDirectory(tmp_path / "run"), RunConfig(train_steps=2, resume_data="approx")
        )

    with estimator(old) as first:
        first.train(1)
    assert load(tmp_path / "run").features.targets["targets"] == Real(1)
    with estimator(data) as other, pytest.raises(CheckpointError, match="another scale"):
        other.train(2)


def test_a_problem_may_build_its_vocabulary_without_moments(raw, tmp_path, monkeypatch):
    registry.import_usr_dir(raw)
    problem = registry.problem("flat_prices")

    def only_words(self: Any, data_dir: Path, tmp_dir: Path) -> None:
        learn(self.learners()[:1], samples_of(self, tmp_dir, Split.TRAIN), data_dir)

    monkeypatch.setattr(type(problem), "build_vocab", only_words, raising=False)
    folder = tmp_path / "data"
    outcome = run_task(problem, folder, raw, task_id=0, num_tasks=1, progress=False)
    assert outcome.manifest is not None
    assert problem.features(folder).targets["targets"] == Real(1)
    (tmp_path / "checked").mkdir()
    check_problem(problem, tmp_path / "checked", raw)


def test_a_problem_that_borrows_the_words_of_older_data_leaves_its_numbers_raw(data, old, raw):
    class Borrowed(Text2SelfProblem):
        use_vocab_from_other_problem = "flat_prices"
        name = "borrowed"

        def generate_samples(self, tmp_dir: Path, split: Split) -> Any:
            yield {"targets": "a flat"}

    generate_data(Borrowed(), old, raw, num_processes=1, progress=False)
    assert not (old / MOMENTS).exists()


def test_a_damaged_vocabulary_of_an_older_run_is_named_alone(data, old, raw, tmp_path):
    begin_run(tmp_path / "run", old, raw)
    (word_file,) = vocab_files_in(registry.problem("flat_prices"), old)
    (tmp_path / "run" / word_file).write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match="is damaged") as told:
        load(tmp_path / "run")
    assert MOMENTS not in str(told.value) and f"cp DATA_DIR/{word_file}" in str(told.value)


def test_runs_of_numbers_of_different_scales_are_no_ensemble(data, old, raw, tmp_path):
    for name, folder in {"one": data, "alike": data, "unscaled": old}.items():
        begin_run(tmp_path / name, folder, raw)
    assert len(load([tmp_path / "one", tmp_path / "alike"]).model.models) == 2
    unlike = r"'targets' differs.*1 number, standardized with mean.*1 number, not standardized"
    with pytest.raises(HParamsError, match=unlike):
        load([tmp_path / "one", tmp_path / "unscaled"])


def test_meanings_of_numbers_are_their_count_mean_and_deviation():
    kinds = [Real(), Real(2), Real(1, [0.0], [1.0]), Real(1, [0.5], [1.0]), Real(1, [0.0], [2.0])]
    kinds.append(Real(1, [0.0], [1.0 + 1e-12]))  # its message looks like another's
    found = {meanings(Features({}, {"targets": kind}), "targets") for kind in kinds}
    assert len(found) == len(kinds)
    alike = Features({}, {"targets": Real(1, (0.5,), (1.0,))})  # tuples for lists
    assert meanings(alike, "targets") in found


@pytest.mark.parametrize("student", ["standardized", "raw"])
def test_a_teacher_of_numbers_of_another_scale_is_refused(student, data, old, raw, tmp_path):
    ours, theirs = (data, old) if student == "standardized" else (old, data)
    problem, hparams = registry.problem("flat_prices"), small(registry.hparams(TINY))
    for name, folder in {"alike": ours, "unlike": theirs}.items():
        begin_run(tmp_path / name, folder, raw)
    given = {"flat_prices": (problem, problem.features(ours))}, ours, hparams
    assert load_teachers(str(tmp_path / "alike"), *given).keys() == {"flat_prices"}
    with pytest.raises(HParamsError, match=r"its targets is Real \(1 number, .*standardized"):
        load_teachers(str(tmp_path / "unlike"), *given)


def test_a_teacher_with_another_count_of_numbers_is_refused():
    two, three = (Features({}, {"targets": Real(size)}) for size in (2, 3))
    (told,) = _other_features(two, three, HParams(), HParams())
    assert told.startswith("its targets is Real (3 numbers, not standardized), not Real (2 numbers")


def test_a_run_that_has_lost_its_moments_is_refused(data, raw, tmp_path):
    run = tmp_path / "run"
    begin_run(run, data, raw)
    Checkpoint(1, run / "ckpt-1").check_vocabularies(run)
    (run / MOMENTS).unlink()
    with pytest.raises(CheckpointError, match=f"{MOMENTS} is missing: the mean and deviation"):
        load(run)


def test_numbers_are_left_as_they_are_where_the_declaration_says_so(raw, tmp_path):
    path = raw / "flat_prices.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"settings": {"raw_targets": 1}}))
    registry.import_usr_dir(raw)
    problem = registry.problem("flat_prices")
    generate_data(problem, tmp_path / "data", raw, num_processes=1, progress=False)
    assert problem.features(tmp_path / "data").targets["targets"] == Real(1)


def test_extreme_scales_of_numbers_are_told():
    rows: dict[str, Any] = {
        "words": [[1e5, 0.5], [2e5, 0.1, 3e5, 0.2]],
        "near": [[1.0, -1.0], [0.5, 2.0]],
        "far": [[0.0]] * 20_000 + [[1.0]],
    }

    class Stored:
        def column(self, name: str) -> list[Any]:
            ragged = Ragged.from_lists(rows[name], np.dtype(np.float32))
            return [(ragged.values, ragged.offsets)]

    features = Features(
        {"words": WordReal("inputs", 2, "words"), "near": Real(2), "far": Real()}, {}
    )
    told = list(scale_warnings(features, Stored()))  # type: ignore[arg-type]
    assert len(told) == 2
    assert told[0].startswith("number 1 of 'words' is learned as it is: mean 2e+05")
    assert told[1].startswith("'far' is learned as it is: mean 5e-05")
    standardized = Features({}, {"far": Real(1, [300.0], [2.0])})
    rows["far"] = [[0.0]] * 20_000 + [[200.0]]  # a mean of 0.01, a deviation of 1.41
    (line,) = scale_warnings(standardized, Stored())  # type: ignore[arg-type]
    assert line.startswith("'far' goes from 300 to 700: up to 141 standard deviations")


def test_datagen_warns_of_them(data, raw, tmp_path, capsys):
    generate._warn_of_scales("flat_prices", data)
    assert not capsys.readouterr().out
    (data / MOMENTS).unlink()  # the numbers are taken for raw ones, of a usual scale
    with pytest.raises(DataError, match="damaged"):
        generate._warn_of_scales("flat_prices", data)


@pytest.mark.slow
def test_prices_are_learned_in_a_short_run_and_the_artifact_answers_in_prices(raw, tmp_path):
    write_rows(raw, {"train": 1000, "eval": 200})
    bin_folder = Path(sys.executable).parent

    def command(name: str, *words: str) -> str:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [bin_folder / name, *words], cwd=tmp_path, env=environment, text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    named = ("--t2t_usr_dir=raw", "--problem=flat_prices", "--data_dir=data")
    command("t2t-datagen", *named, "--tmp_dir=raw")
    model = ("bilstm_attention_classifier", TINY)
    flags = (f"--model={model[0]}", f"--hparams_set={model[1]}", "--hparams=batch_size=512")
    command("t2t-trainer", *named, *flags, "--output_dir=run", "--train_steps=150")
    last = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    found = {key: value for line in last for key, value in line.items()}
    (pearson,) = [value for key, value in found.items() if key.endswith("/pearson")]
    (rmse,) = [value for key, value in found.items() if key.endswith("/rmse")]
    assert pearson > 0.9
    assert 1e3 < rmse < 2e5
    command("t2t-exporter", "--output_dir=run", "--export_dir=artifact", "--data_dir=data")
    texts = [f"a flat with {rooms} rooms in {city}" for rooms in (1, 5) for city in PRICES]
    registry.import_usr_dir(raw)
    ours, theirs = (
        torch.tensor([float(row[0]) for row in load(tmp_path / path)(texts)])
        for path in ("run", "artifact")
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1.0)
    expected = [PRICES[city] * (0.6 + 0.2 * rooms) for rooms in (1, 5) for city in PRICES]
    assert torch.corrcoef(torch.stack([theirs, torch.tensor(expected)]))[0, 1] > 0.9
