"""The library does what the commands do: from a table to a served model, with clear errors."""

from __future__ import annotations

import importlib
import json
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import t2t_torch as t2t
from t2t_torch.mode import Split
from t2t_torch.models.text_classifier import Fasttext
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.registry import usr_dirs

ROWS = [
    {"text": f"a {word} {thing} {number}", "label": "good" if word in ("great", "fine") else "bad"}
    for word in ("great", "fine", "awful", "poor")
    for thing in ("film", "book", "meal")
    for number in range(12)
]
SMALL = {"batch_size": 32, "learning_rate_warmup_steps": 0}


def declaration(name: str = "opinions", **keys: Any) -> dict[str, Any]:
    return {
        "problem": name,
        "kind": "text2class",
        "files": {"train": ROWS, "eval": 0.2},
        "fields": {"inputs": "text", "targets": "label"},
        **keys,
    }


@pytest.fixture
def trained(tmp_path, own_registry):
    """A run of the declared problem; its folder."""
    t2t.train(
        declaration(),
        "fasttext",
        "fasttext_tiny",
        data_dir=tmp_path / "data",
        output_dir=tmp_path / "run",
        train_steps=60,
        hparams=SMALL,
        local_eval_frequency=20,
    )
    return tmp_path / "run"


def test_a_table_becomes_a_run_like_any_other(trained, tmp_path):
    assert t2t.load(trained)(["a great film", "a poor meal"]) == ["good", "bad"]
    content = json.loads((trained / "config.json").read_text())
    assert content["problem"] == "opinions"
    assert content["hparams"]["batch_size"] == 32
    # In another process, by the command: the declaration and the data are found through the run.
    command = [sys.executable, "-m", "t2t_torch.bin.eval", f"--output_dir={trained}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    metrics = t2t.evaluate(trained)
    assert metrics["accuracy"] == 1.0
    assert f"{metrics['loss']:.6g}" in result.stdout


def test_an_exported_run_is_served(trained, tmp_path):
    artifact = t2t.export(trained, tmp_path / "artifact")
    assert artifact(["a fine book", "an awful book"]) == ["good", "bad"]
    with t2t.serve(tmp_path / "artifact", port=0) as server:
        (prediction,) = server.predict(["a fine book"])
        assert prediction["targets"]["value"] == "good"
        with pytest.raises(t2t.UsageError, match="input 0"):
            server.predict([3])
        with pytest.raises(t2t.UsageError, match="a list"):
            server.predict("a fine book")
    assert "closed" in repr(server)
    with pytest.raises(t2t.UsageError, match="refused"):
        server.predict(["a fine book"])


def test_words_counted_once_are_exported_and_an_empty_text_is_answered(tmp_path, own_registry):
    t2t.train(
        declaration(),
        "fasttext",
        "fasttext_tiny",
        data_dir=tmp_path / "data",
        output_dir=tmp_path / "run",
        train_steps=20,
        hparams={**SMALL, "count_once": True, "ngram_order": 3},
    )
    artifact = t2t.export(tmp_path / "run", tmp_path / "artifact")
    texts = ["", "a", "great great film great"]
    assert artifact(texts) == t2t.load(tmp_path / "run")(texts)


def test_a_run_is_resumed_and_callbacks_are_called(trained, tmp_path):
    steps = []

    class Steps(t2t.Hook):
        def after_step(self, estimator):
            steps.append(estimator.state.step)

    t2t.train(output_dir=trained, train_steps=65, callbacks=[Steps()])
    assert steps == [61, 62, 63, 64, 65]


def test_training_works_outside_the_main_thread(tmp_path, own_registry):
    results: list[Any] = []

    def work() -> None:
        t2t.generate(declaration("elsewhere"), tmp_path)
        hparams = t2t.hparams("fasttext_tiny", **SMALL)
        run = tmp_path / "run"
        results.append(
            t2t.train(
                "elsewhere", Fasttext, hparams, data_dir=tmp_path, output_dir=run, train_steps=40
            )
        )

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results[0](["a great film"]) == ["good"]
    assert json.loads((tmp_path / "run" / "hparams.json").read_text())["batch_size"] == 32


def test_classes_of_a_notebook_can_be_trained(tmp_path, own_registry):
    class Moods(Text2ClassProblem):
        shards: ClassVar = {Split.TRAIN: 1, Split.EVAL: 1}

        def generate_samples(self, tmp_dir, split):
            for row in ROWS:
                yield {"inputs": row["text"], "targets": row["label"]}

    problem = t2t.generate(Moods, tmp_path, num_concurrent_processes=1)
    assert problem.full_name == "moods"
    assert t2t.problem(Moods).full_name == "moods"
    assert len(t2t.Dataset(problem, tmp_path)) == len(ROWS)


def test_a_dataset_has_decoded_rows_and_sized_batches(tmp_path, own_registry):
    t2t.generate(declaration(), tmp_path)
    dataset = t2t.Dataset("opinions", tmp_path)
    dev = t2t.Dataset("opinions", str(tmp_path), "dev")
    assert len(dataset) + len(dev) == len(ROWS)
    rows = [dataset[index] for index in range(len(dataset))]
    assert all({"text": row["inputs"], "label": row["targets"]} in ROWS for row in rows)
    assert dataset[-1] == rows[-1]
    with pytest.raises(IndexError):
        dataset[len(dataset)]
    loader = torch.utils.data.DataLoader(dataset, batch_size=4)
    assert len(next(iter(loader))["inputs"]) == 4

    hparams = t2t.hparams("fasttext_tiny", batch_size=16)
    batches, fixed = dataset.batches(hparams), dev.batches(hparams)
    assert len(batches) == len(list(batches))
    assert sum(len(batch["targets"]) for batch in fixed) == len(dev)
    orders = [
        torch.cat([batch["inputs"].flatten() for batch in dataset.batches(hparams, epoch=epoch)])
        for epoch in (0, 0, 1)
    ]
    assert torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])


def test_a_plain_loop_learns(tmp_path, own_registry):
    t2t.generate(declaration(), tmp_path)
    dataset = t2t.Dataset("opinions", tmp_path)
    hparams = t2t.hparams("fasttext_tiny", batch_size=16)
    model = t2t.model("fasttext", dataset.features, hparams)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(6):
        for batch in dataset.batches(hparams, epoch=epoch):
            optimizer.zero_grad()
            model(batch).loss.backward()
            optimizer.step()
    model.eval()
    batch = next(iter(t2t.Dataset("opinions", tmp_path, "dev").batches(hparams)))
    output = model(batch)
    loss = output.losses["targets"]
    assert output.loss.item() == pytest.approx((loss.sum / loss.weight).item())
    assert torch.equal(output.logits["targets"].argmax(-1), batch["targets"])


def test_pandas_and_arrow_tables_are_declared(tmp_path, own_registry):
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    for kind, table in {
        "frame": pandas.DataFrame(ROWS),
        "arrow": pyarrow.Table.from_pylist(ROWS),
    }.items():
        drafted = t2t.declare(table, name=f"opinions_{kind}")
        assert drafted["kind"] == "text2class"
        assert drafted["fields"] == {"inputs": "text", "targets": "label"}
        problem = t2t.generate(drafted, tmp_path)
        assert len(t2t.Dataset(problem, tmp_path)) > 100
    assert str(tmp_path / "declarations") in usr_dirs()


def test_a_file_is_declared_from_any_folder(tmp_path, own_registry, monkeypatch):
    (tmp_path / "raw").mkdir()
    lines = ["text,label", *(f"{row['text']},{row['label']}" for row in ROWS)]
    (tmp_path / "raw" / "opinions.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    problem = t2t.generate(t2t.declare("raw/opinions.csv"), "data")
    assert problem.full_name == "opinions"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    t2t.generate("opinions", tmp_path / "data", overwrite=True)
    assert len(t2t.Dataset("opinions", tmp_path / "data")) > 100


def test_another_declaration_of_the_same_name_does_not_replace_data(tmp_path, own_registry):
    t2t.generate(declaration(), tmp_path)
    t2t.generate(declaration(), tmp_path)
    file = tmp_path / "declarations" / "opinions.json"
    before = file.read_bytes()
    with pytest.raises(t2t.UsageError, match="another declaration of 'opinions'"):
        t2t.generate(declaration(vocab_size=300), tmp_path)
    assert file.read_bytes() == before
    t2t.generate(declaration(vocab_size=300), tmp_path, overwrite=True)
    assert file.read_bytes() != before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 3}, "'batch_size' is a hyperparameter"),
        ({"train_step": 3}, "Did you mean train_steps or"),
        ({"train_steps": "3"}, "train_steps='3': should be an integer"),
        ({"train_steps": 0}, "at least 1"),
        ({"data_dir": 3}, "data_dir=3: should be a string"),
        ({"output_dir": None}, r"\n  output_dir=\.\.\.  "),
        ({"schedule": "train_and_evaluat"}, "schedule='train_and_evaluat'"),
        ({"problem": 3}, "not int"),
        ({"model": 3}, "model=3: expected a name"),
        ({"hparams_set": 3}, "hparams_set=3: expected a name"),
        ({"callbacks": ["checkpoint"]}, "is no t2t.Hook"),
        ({"callbacks": None}, "expected a list of hooks"),
        ({"hparams": [3]}, "expected a dict"),
        ({"hooks": 5}, "should be a list of strings"),
        ({"hparams": {"batchsize": 3}}, "Did you mean 'batch_size'"),
        ({"hooks": ["nosuchhook"]}, "nosuchhook"),
        ({"problem": {"kind": "text2class"}}, '"problem": is missing'),
        ({"problem": {"problem": "x", "kind": "text2class", "files": {"train": object()}}}, "JSON"),
    ],
)
def test_wrong_arguments_are_refused_and_nothing_is_written(
    arguments, message, tmp_path, own_registry
):
    usual = {
        "problem": "translate_multi30k_ende",
        "model": "transformer",
        "hparams_set": "transformer_tiny",
        "data_dir": tmp_path / "data",
        "output_dir": tmp_path / "run",
    }
    with pytest.raises(t2t.T2TError, match=message):
        t2t.train(**{**usual, **arguments})
    assert list(tmp_path.iterdir()) == []


def test_unusable_tables_and_servers_are_refused(tmp_path):
    with pytest.raises(t2t.DataError, match="one type"):
        t2t.declare([{"a": 1}, {"a": "x"}], name="mixed")
    with pytest.raises(t2t.UsageError, match="no name of its own"):
        t2t.declare(ROWS)
    with pytest.raises(t2t.UsageError, match="no artifact"):
        t2t.serve(tmp_path / "nothing")
    with pytest.raises(t2t.UsageError, match="'valid'"):
        t2t.Dataset("translate_multi30k_ende", tmp_path, "valid")


def test_the_notebook_of_the_tutorial_runs(tmp_path, own_registry, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Text2ClassProblem, "portfolio", ("linear/linear_tiny",))  # is faster
    file = Path(__file__).parents[1] / "docs" / "tutorials" / "first_model.ipynb"
    cells = [cell for cell in json.loads(file.read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    for cell in cells:
        exec("".join(cell["source"]), names)
    assert names["model"](["my camera has not arrived yet"]) == ["delivery"]
    assert names["artifact"](["I was charged twice"]) == ["billing"]
    assert "accuracy" in capsys.readouterr().out
    ten_lines = next(cell for cell in cells if "t2t.train(" in "".join(cell["source"]))
    assert len(ten_lines["source"]) <= 10


def test_modules_of_the_same_names_can_still_be_imported():
    from t2t_torch import export, hparams, model, problem, train

    assert problem.Problem is t2t.Problem
    assert model.T2TModel is t2t.T2TModel
    assert t2t.hparams("fasttext_tiny").batch_size == hparams.fasttext.fasttext_tiny().batch_size
    assert callable(export) and callable(train)
    assert t2t.problem("translate_multi30k_ende").full_name == "translate_multi30k_ende"


def test_two_data_directories_may_have_the_same_problem(tmp_path, own_registry):
    for folder in ("one", "two"):
        t2t.generate(declaration(), tmp_path / folder)
        problem = t2t.problem("opinions", tmp_path / folder)
        assert problem.features(str(tmp_path / folder)).targets.keys() == {"targets"}
    assert len(t2t.Dataset("opinions", tmp_path / "one")) > 100


def test_hyperparameters_may_be_given_in_place_of_a_set(tmp_path, own_registry):
    hparams = t2t.hparams("fasttext_tiny", **SMALL)
    data, run = tmp_path / "data", tmp_path / "run"
    t2t.train(
        declaration(), "fasttext", hparams=hparams, data_dir=data, output_dir=run, train_steps=2
    )
    assert json.loads((run / "hparams.json").read_text())["batch_size"] == 32


def test_a_callback_may_train_another_run(trained, tmp_path):
    class Nested(t2t.Hook):
        def after_step(self, estimator):
            if estimator.state.step == 62:
                t2t.train(
                    "opinions",
                    "fasttext",
                    "fasttext_tiny",
                    data_dir=tmp_path / "data",
                    output_dir=tmp_path / "inner",
                    train_steps=4,
                    hparams=SMALL,
                )

    t2t.train(output_dir=trained, train_steps=65, callbacks=[Nested()])
    steps = [
        json.loads((run / "latest.json").read_text())["step"]
        for run in (trained, tmp_path / "inner")
    ]
    assert steps == [65, 4]
    assert json.loads((trained / "config.json").read_text())["train_steps"] == 65


def test_the_library_prints_no_advice_for_the_shell_and_nothing_with_verbosity_of_minus_one(
    tmp_path, own_registry, capfd
):
    t2t.generate(declaration(), tmp_path / "data")
    printed = capfd.readouterr().out
    assert "A trained model should exceed" in printed
    assert "t2t-trainer" not in printed
    known = {"data_dir": tmp_path / "data", "verbosity": -1}
    run = tmp_path / "run"
    small = {"output_dir": run, "train_steps": 5, "hparams": SMALL}
    t2t.train("opinions", "fasttext", "fasttext_tiny", **small, **known)
    t2t.evaluate(run, **known)
    t2t.export(run, tmp_path / "artifact", **known)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["print_config", "help_hparams", "dry_run", "test_mode"])
def test_what_trains_nothing_is_refused(name, tmp_path):
    with pytest.raises(t2t.UsageError, match=f"{name} trains no model"):
        t2t.train(output_dir=tmp_path / "run", **{name: True})


def test_a_search_is_no_training(tmp_path):
    with pytest.raises(t2t.UsageError, match="hparams_range='any' starts a search"):
        t2t.train("any", "any", "any", output_dir=tmp_path / "run", hparams_range="any")


def test_a_wrong_verbosity_is_refused(tmp_path):
    with pytest.raises(t2t.UsageError, match="verbosity='x': expected an integer"):
        t2t.evaluate(tmp_path, verbosity="x")


def test_a_file_of_settings_is_read_by_every_function(tmp_path):
    file = tmp_path / "all.json"
    content = {"output_dir": str(tmp_path / "nothing"), "exporter": {"export_dir": "there"}}
    file.write_text(json.dumps(content))
    with pytest.raises(t2t.T2TError, match="nothing' is not a run directory"):
        t2t.evaluate(None, config=file)
    with pytest.raises(t2t.T2TError, match="nothing' is not a run directory"):
        t2t.export(None, None, config=file)


def test_the_package_and_modules_with_names_of_functions_are_pickled_by_name():
    """Ray and Spark pickle them with the functions of a script that use them."""
    for name in ("t2t_torch", "t2t_torch.export", "t2t_torch.problem"):
        module = importlib.import_module(name)
        assert pickle.loads(pickle.dumps(module)) is module
