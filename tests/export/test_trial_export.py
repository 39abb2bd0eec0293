"""A trial as an artifact: what can be a graph answers as the model does, the rest is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_run import DOCUMENTED, code, made_run

import t2t_torch
from t2t_torch.bin.commands import exporter as command
from t2t_torch.errors import ArtifactError, ExportError, UsageError
from t2t_torch.export.settings import ExportSettings
from t2t_torch.runtime.prediction import InputError
from t2t_torch.runtime.session import Artifact, TensorArtifact
from t2t_torch.runtime.signature import Signature
from t2t_torch.trial import exporter, pytorch_trial, user_code

TRIALS = Path(__file__).parents[1] / "trial" / "trials"

NESTED = """left, (right, nothing) = x["left"], x["rest"]
assert nothing is None
return Pair(self.linear(left), {"sum": left.sum(1) + right[0], "kept": [right[0] > 0, None]})"""
COLLATE = """left = torch.stack([record(n) for n in numbers])
return {"left": left, "rest": ([left[:, 0]], None)}, torch.zeros(len(numbers))"""
METHODS = """
    def train_batch(self, batch, model, epoch_idx, batch_idx):
        return model(batch["x"]).mean()
"""


@pytest.fixture(autouse=True)
def forgets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No trial is left."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(pytorch_trial._Current, "context", None)
    yield
    user_code._Loaded.forget()


def _export(folder: Path, trial: str | Path, **more: Any) -> Any:
    run = made_run(folder / "made", trial, **more)
    settings = ExportSettings(output_dir=str(run), export_dir=str(folder / "artifact"))
    return exporter.TrialExporter.export(settings)


def _refused(folder: Path, **parts: Any) -> str:
    with pytest.raises(ExportError) as error:
        _export(folder, code(**parts))
    assert not (folder / "artifact").exists()
    return str(error.value)


@pytest.mark.slow
def test_a_tensor_goes_in_and_one_comes_out(tmp_path: Path) -> None:
    done = _export(tmp_path, code())
    assert done.verified.rows == 25 and done.verified.batches == 4
    assert done.verified.difference < 1e-5
    assert "verified  25 rows of the validation loader" in str(done)
    assert [one.name for one in done.signature.fields] == ["input"]
    assert [one.name for one in done.signature.targets] == ["output"]
    artifact, predictor = (
        t2t_torch.load(tmp_path / "artifact"),
        t2t_torch.load(tmp_path / "made/run"),
    )
    assert isinstance(artifact, TensorArtifact)
    rows = [np.random.default_rng(n).normal(size=3).astype(np.float32) for n in range(70)]
    np.testing.assert_allclose(artifact(rows), predictor(rows), atol=1e-5)
    np.testing.assert_allclose(
        artifact.batch(np.stack(rows)), predictor.batch(np.stack(rows)), atol=1e-5
    )
    assert artifact([]) == []
    alone = artifact([[1, 2, 3.5]])[0]
    np.testing.assert_allclose(alone, predictor([np.float32([1, 2, 3.5])])[0], atol=1e-5)


@pytest.mark.slow
def test_nested_inputs_and_outputs_have_dotted_names(tmp_path: Path) -> None:
    done = _export(tmp_path, code(NESTED, collate=COLLATE))
    assert [one.name for one in done.signature.fields] == ["left", "rest.0.0"]
    names = [one.name for one in done.signature.targets]
    assert names == ["output.left", "output.right.sum", "output.right.kept.0"]
    rows = [{"left": np.ones(3, np.float32), "rest": ([np.float32(n)], None)} for n in (-1, 1)]
    one, other = t2t_torch.load(tmp_path / "artifact")(rows)
    again, _ = t2t_torch.load(tmp_path / "made/run")(rows)
    assert one.right["kept"][0] == np.False_ and other.right["kept"] == [np.True_, None]
    np.testing.assert_allclose(one.left, again.left, atol=1e-6)
    assert type(one).__name__ == "Pair" and one.right["sum"] == again.right["sum"] == 2
    lines = (tmp_path / "artifact" / "examples.jsonl").read_text().splitlines()
    examples = [json.loads(line) for line in lines]
    assert len(examples) == 20
    assert set(examples[0]["answer"]) == {"left", "right"}
    first = t2t_torch.load(tmp_path / "artifact")([examples[0]["input"]])[0]
    np.testing.assert_allclose(first.left, examples[0]["answer"]["left"], atol=1e-6)


def test_what_users_wrote_is_exported(tmp_path: Path) -> None:
    done = _export(tmp_path, TRIALS / "multi_input.py", hparams={"net": {"hidden": 4}})
    kinds = [(one.name, one.dtype, one.shape) for one in done.signature.fields]
    assert kinds == [
        ("text.words", "int64", (6,)),
        ("text.lengths", "int64", ()),
        ("more.0.picture", "float32", (5,)),
    ]
    (tmp_path / "digits").mkdir()
    data = {"path": str(tmp_path / "images"), "valid_records": 40}
    hparams = {"n_filters1": 2, "n_filters2": 2, "dropout": 0.5}
    done = _export(tmp_path / "digits", TRIALS / "mnist", hparams=hparams, data=data)
    assert done.verified.rows == 40
    assert done.signature.fields[0].shape == (1, 28, 28)


@pytest.mark.slow
def test_sizes_that_vary_in_the_loader_vary_in_the_graph(tmp_path: Path) -> None:
    collate = """length = 2 + max(numbers) % 5
return torch.ones(len(numbers), length, 3), torch.zeros(len(numbers))"""
    trial = code("return self.more(x).softmax(-1)", collate=collate, more="nn.Linear(3, 4)")
    done = _export(tmp_path, trial)
    assert done.signature.fields[0].shape == (-1, 3)
    assert done.signature.targets[0].shape == (-1, 4)
    artifact = t2t_torch.load(tmp_path / "artifact")
    rows = [np.ones((size, 3), np.float32) for size in (1, 9, 1)]
    assert [one.shape for one in artifact(rows)] == [(1, 4), (9, 4), (1, 4)]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("forward", "more"),
    [
        ("return self.more(x.unflatten(1, (3, 1)))[0][:, -1]", "nn.LSTM(1, 4, batch_first=True)"),
        pytest.param(
            "return self.more(x.unflatten(1, (3, 1)))[0]",
            "nn.GRU(1, 4, batch_first=True)",
            marks=pytest.mark.slow,
        ),
        (
            "return self.more(self.linear(x)[:, None].expand(-1, 3, -1))",
            "nn.TransformerEncoderLayer(2, 1, 8, batch_first=True)",
        ),
        ("return self.more(self.linear(x))", "nn.Sequential(nn.BatchNorm1d(2), nn.Dropout())"),
        ("return torch.where(x > 0, x, -x).topk(2).indices", "None"),
    ],
)
def test_usual_layers_are_exported(tmp_path: Path, forward: str, more: str) -> None:
    done = _export(tmp_path, code(forward, more=more))
    assert done.verified.rows == 25


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "judge",
    [
        "def evaluate_batch(self, batch, model):\n        "
        "return {'loss': model(batch['x'], batch['y']).mean()}",
        "def evaluate_full_dataset(self, data_loader, model):\n        return {'loss': "
        "torch.stack([model(b['x'], b['y']).mean() for b in data_loader]).mean()}",
    ],
)
def test_a_trial_that_evaluates_itself_is_watched(tmp_path: Path, judge: str) -> None:
    collate = """x = torch.stack([record(n) for n in numbers])
return {"x": x, "y": x[:, 0]}"""
    trial = code("return self.linear(x) * y[:, None]", takes="x, y", collate=collate,
                 methods=f"{METHODS}\n    {judge}\n", count=300)  # fmt: skip
    done = _export(tmp_path, trial)
    assert done.verified.rows == 200
    assert [one.name for one in done.signature.fields] == ["0", "1"]
    (found,) = t2t_torch.load(tmp_path / "artifact")([([1, 2, 3], 0.0)])
    np.testing.assert_array_equal(found, [0, 0])


@pytest.mark.parametrize(
    "forward",
    [
        "y = self.linear(x)\nif y.sum() > 0:\n    return y\nreturn -y",
        "y = self.linear(x)\nfor _ in range(int(y.sum())):\n    y = y * 2\nreturn y",
    ],
)
def test_a_way_that_numbers_decide_is_told_with_its_line(tmp_path: Path, forward: str) -> None:
    told = _refused(tmp_path, forward=forward)
    assert "Model cannot be exported: forward at small.py, line" in told
    assert "if y.sum() > 0:" in told or "in range(int(y.sum()))" in told
    assert "depends on a number in a tensor" in told
    assert told.endswith("t2t_torch.load of the run itself answers, with PyTorch.")
    assert "\n" not in told


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (
            {"forward": "return self.linear(x) - self.linear(x).mean(0)"},
            "(?s)depend on the rest of its batch.*row 0 ",
        ),
        ({"forward": "return {'loss': x.mean()}"}, r"loss', float32 \[\].* not the batch"),
        ({"forward": "return {'a': self.linear(x), 'n': 3}"}, "'n', int: a graph has tensors"),
        ({"forward": "return {1: self.linear(x)}"}, "the key 1 is no string"),
        ({"forward": "return {'a.b': x, 'a': {'b': x}}"}, "two parts of it would be called 'a.b'"),
        ({"forward": "return self.linear(torch.from_numpy(x.numpy()))"}, "cannot be exported"),
        ({"forward": "return self.linear(x) + torch.rand_like(x[:, :2])"}, "draws random numbers"),
        (
            {
                "forward": "return self.linear(x[0])",
                "collate": "x = torch.stack([record(n) for n in numbers])\n"
                "return (x, ['a'] * len(x)), x",
            },
            r"takes '1', list|takes '1.0', str",
        ),
        (
            {
                "forward": "return self.linear(x[0])",
                "collate": "x = torch.stack([record(n) for n in numbers])\nreturn (x, x[:2]), x",
            },
            "first axis is not the batch",
        ),
    ],
)
def test_what_is_no_graph_says_why(tmp_path: Path, parts: Any, expected: str) -> None:
    with pytest.raises(ExportError, match=expected):
        _export(tmp_path, code(**parts))
    assert not (tmp_path / "artifact").exists()


@pytest.mark.slow
def test_an_artifact_that_answers_otherwise_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = exporter.graph_of

    def wrong(model: torch.nn.Module, *given: Any) -> Any:
        with torch.no_grad():
            model.linear.bias += 1e-3  # type: ignore[union-attr, operator]
            graph = real(model, *given)
            model.linear.bias -= 1e-3  # type: ignore[union-attr, operator]
        return graph

    monkeypatch.setattr(exporter, "graph_of", wrong)
    told = _refused(tmp_path)
    assert "differ from those of the model, run in its batch" in told
    assert "row 0 of the validation loader: output = [" in told and "\n  and [" in told


@pytest.mark.slow
def test_the_command_exports_a_trial_and_refuses_what_is_for_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made_run(tmp_path / "made", code(methods=DOCUMENTED))
    target = tmp_path / "artifact"
    arguments = [f"--output_dir={run}", f"--export_dir={target}"]
    for more in ("--format=torch", "--format=ctranslate2",
                 "--quantize=int8", "--data_dir=x", "--problem=x", f"--output_dir={run},{run}",
                 "--decode_hparams=beam_size=2"):  # fmt: skip
        assert command.main([*arguments, more]) == 2
        assert more.removeprefix("--").split("=")[0][:6] in capsys.readouterr().err or "run" in more
        assert not target.exists()
    assert command.main([*arguments, "--checkpoint=best"]) == 0
    assert "Model of SmallTrial, step 2" in capsys.readouterr().out
    assert command.main(arguments) == 2  # it is there already
    assert command.main([*arguments, "--overwrite", "--checkpoint=average:2"]) == 0
    assert Signature.read(target).checkpoint == "mean of steps 2, 3"


def test_an_artifact_is_checked_and_says_who_reads_it(tmp_path: Path) -> None:
    _export(tmp_path, code())
    folder = tmp_path / "artifact"
    with pytest.raises(ArtifactError, match=r"is of a trial: t2t_torch\.load"):
        Artifact(folder)
    with pytest.raises(UsageError, match="device='cuda' is for a run"):
        t2t_torch.load(folder, device="cuda")
    with pytest.raises(UsageError, match=r"artifact\(\[record\]\)"):
        t2t_torch.load(folder)(np.ones(3))
    for given, why in (
        ([1, 2], r"shape \[2\], where \[3\]"),
        ([[1], [2, 3]], "different lengths"),
        ("go", r"shape \[\]"),
        (["a", "b", "c"], "where float32 was expected"),
        ([1, None, 2], "where float32 was expected"),
    ):
        with pytest.raises(InputError, match=f"input 1 .*{why}"):
            t2t_torch.load(folder)([[1, 2, 3], given])
    with (folder / "model.onnx").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ArtifactError, match="is not as it was exported"):
        t2t_torch.load(folder)


def test_weights_are_a_folder_that_is_loaded_as_the_run(tmp_path: Path, capsys: Any) -> None:
    run = made_run(tmp_path / "made", code())
    target = tmp_path / "weights"
    arguments = [f"--output_dir={run}", f"--export_dir={target}", "--format=safetensors"]
    assert command.main([*arguments, "--verify_rows=300"]) == 2
    assert "--verify_rows: --format=safetensors does not read this" in capsys.readouterr().err
    for _ in range(2):
        assert command.main([*arguments, "--checkpoint=best", "--overwrite"]) == 0
    assert "Model of SmallTrial, step 2" in capsys.readouterr().out
    rows = [np.float32([1, 2, 3])]
    expected = t2t_torch.load(run, "best")(rows)
    (tmp_path / "made" / "small.py").unlink()
    np.testing.assert_array_equal(t2t_torch.load(target, trust_code=True)(rows), expected)
    with pytest.raises(UsageError, match="is an exported model of step 2"):
        t2t_torch.load(target, 1, trust_code=True)
    (target / "code" / "small.py").write_text("")
    with pytest.raises(ArtifactError, match="is not as it was exported"):
        t2t_torch.load(target)


@pytest.mark.slow
def test_it_answers_without_torch(tmp_path: Path) -> None:
    _export(tmp_path, code(NESTED, collate=COLLATE))
    program = f"""
import sys
for name in ("torch", "pydantic", "absl", "sentencepiece", "onnx"):
    sys.modules[name] = None
import t2t_torch
artifact = t2t_torch.load({str(tmp_path / "artifact")!r})
print(artifact([{{"left": [1, 2, 3], "rest": [[0.5], None]}}])[0].right["sum"])
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip() == "6.5"


BY_NAME = """
    def train_batch(self, batch, model, epoch_idx, batch_idx):
        return model(input_ids=batch[0], mask=batch[1]).mean()

    def evaluate_batch(self, batch, model):
        return {"loss": model(CALL).mean()}
"""


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("call", ["input_ids=batch[0], mask=batch[1]", "batch[0], batch[1]"])
def test_arguments_by_name_and_optional_ones_are_inputs(tmp_path: Path, call: str) -> None:
    parts = {
        "takes": "input_ids, mask=None, other=None",
        "forward": "return self.linear(input_ids) * mask.unsqueeze(1)",
        "collate": "return torch.stack([record(n) for n in numbers]), torch.arange(len(numbers))",
        "methods": BY_NAME.replace("CALL", call),
    }
    done = _export(tmp_path, code(**parts))
    assert [field.name for field in done.signature.fields] == ["input_ids", "mask"]
    artifact = t2t_torch.load(tmp_path / "artifact")
    rows = [{"input_ids": np.ones(3, np.float32), "mask": np.int64(n)} for n in (1, 3)]
    one, other = artifact(rows)
    np.testing.assert_allclose(np.asarray(other), 3 * np.asarray(one), rtol=1e-5)


@pytest.mark.slow
def test_len_of_a_tensor_is_a_size_that_varies(tmp_path: Path) -> None:
    forward = "return self.linear(x.reshape(len(x), -1)) + torch.zeros(len(x), 2)"
    assert _export(tmp_path, code(forward)).verified.rows == 25


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("forward", "said"),
    [
        (
            "return torch.stack([self.linear(x[i]) for i in range(x.size(0))])",
            "It is read as a number at small.py, line 39 (return torch.stack([self.linear(x[i]) "
            "for i in range(x.size(0))])). A graph has no loop over a size",
        ),
        ("return self.linear(x) + torch.zeros(int(x.size(0)), 2)", "line 39 (return self.linear"),
    ],
)
def test_a_size_that_a_graph_would_fix_is_refused_with_its_line(
    tmp_path: Path, forward: str, said: str
) -> None:
    told = _refused(tmp_path, forward=forward)
    assert said in told
    assert "len()" not in told


def test_packed_sequences_are_refused_as_such(tmp_path: Path) -> None:
    forward = """lengths = torch.clamp(x[:, 0].abs().long() + 1, max=3)
packed = nn.utils.rnn.pack_padded_sequence(x.unsqueeze(2), lengths, batch_first=True,
                                           enforce_sorted=False)
_, (last, _) = self.more(packed)
return last[-1]"""
    told = _refused(tmp_path, forward=forward, more="nn.LSTM(1, 1, batch_first=True)")
    assert "line 42 (_, (last, _) = self.more(packed)): it packs sequences" in told
    assert "FakeTensor" not in told
