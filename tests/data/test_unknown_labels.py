"""Labels that the evaluation data has and training has not are counted, and told."""

from __future__ import annotations

from t2t_torch import registry
from t2t_torch.data.generate import generate_data, run_task
from t2t_torch.features import ClassLabel, Features, Text
from t2t_torch.mode import Split
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder
from t2t_torch.workflows import generate

from .counting import Counting


class Kinds(Counting):
    """Numbers, even or odd; in the evaluation data some are of a kind of their own."""

    name = "kinds"

    def stored_features(self, directory):
        label = ClassLabel(ClassLabelEncoder(["even", "odd"]), allow_unknown=True)
        return Features({"inputs": Text(ByteEncoder())}, {"targets": label})

    def generate_samples(self, tmp_dir, split):
        for number in range(20):
            strange = split is Split.EVAL and number % 5 == 0
            label = "a fifth" if strange else ("even", "odd")[number % 2]
            yield {"inputs": str(number), "targets": label}


def test_they_are_counted_by_one_process_and_by_several_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr("t2t_torch.data.encoding.CHUNK_ROWS", 3)
    one = generate_data(Kinds(), tmp_path / "one", tmp_path, progress=False)
    assert {key: dict(entry.unknown) for key, entry in one.splits.items()} == {
        "train": {},
        "dev": {"targets": 4},
    }
    for task in (1, 0):
        options = {"task_id": task, "num_tasks": 2, "progress": False}
        outcome = run_task(Kinds(), tmp_path / "two", tmp_path, **options)
    assert outcome.manifest == one


def test_the_summary_tells_them(tmp_path, capsys, own_registry):
    registry.register_problem("kinds")(Kinds)
    manifest = generate_data(Kinds(), tmp_path / "data", tmp_path, progress=False)
    generate._report(manifest, "kinds", tmp_path / "data", 0.0)
    told = capsys.readouterr().out
    assert "dev: 4 'targets' labels never occur in training: a fifth\n" in told
    assert "train: " not in told


def test_a_single_unknown_label_is_named_in_the_singular():
    line = generate.unknown_line("dev", "intent", 1, ["day_name"])
    assert line == "dev: 1 'intent' label never occurs in training: day_name"
