"""Tables of labels, and where results are written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from t2t_torch.decode.evaluation import EvaluationFiles, confusion, format_tables, label_tables
from t2t_torch.errors import UsageError
from t2t_torch.features import ClassLabel, Real, Tags
from t2t_torch.metrics import label_metrics
from t2t_torch.reports.section import aligned
from t2t_torch.text.encoder import ClassLabelEncoder

COLUMNS = ("precision", "recall", "f1", "support")


def metrics(problem: str, target: str, values: dict[str, list[float]]) -> dict[str, float]:
    return {
        f"metrics-{problem}/{target}/{column}_per_label/{label}": number
        for label, row in values.items()
        for column, number in zip(COLUMNS, row, strict=True)
    }


def test_the_numbers_of_a_label_stand_in_a_row() -> None:
    given = {"loss": 1.0, **metrics("p", "t", {"a/b": [0.5, 1, 0.75, 2], "c": [0, 0, 0, 1200]})}
    tables, others = label_tables(given)
    assert others == {"loss": 1.0}
    assert tables["t"]["a/b"] == {"precision": 0.5, "recall": 1, "f1": 0.75, "support": 2}
    assert list(format_tables(tables)) == [
        "",
        "t:",
        "  label  precision  recall      f1  support",
        "  c         0.0000  0.0000  0.0000    1,200",
        "  a/b       0.5000  1.0000  0.7500        2",
    ]


def test_a_number_alone_is_no_table() -> None:
    given = {"metrics-p/t/f1_per_label/a": 0.5}
    assert label_tables(given) == ({}, given)


def test_targets_of_several_problems_are_told_apart() -> None:
    row = {"a": [1.0, 1.0, 1.0, 1.0]}
    tables, _ = label_tables({**metrics("p", "t", row), **metrics("q", "t", row)})
    assert list(tables) == ["p/t", "q/t"]


def test_of_many_labels_those_with_most_examples_are_told() -> None:
    row = {f"l{number}": [0.0, 0.0, 0.0, float(number)] for number in range(50)}
    lines = list(format_tables(label_tables(metrics("p", "t", row))[0]))
    assert lines[3].split()[0] == "l49"
    assert lines[-1] == "  ... and 10 labels with fewer examples"


def test_spans_are_counted_where_tags_mark_some() -> None:
    labels = ClassLabelEncoder(["O", "B-a"])
    assert label_metrics(Tags(labels))[0] == "span_precision_per_label"
    assert label_metrics(Tags(ClassLabelEncoder(["NN"])))[0] == "precision_per_label"
    assert label_metrics(ClassLabel(labels))[-1] == "support_per_label"
    assert label_metrics(Real(1)) == ()


def test_columns_are_aligned() -> None:
    assert list(aligned([("a", "bb"), ("ccc", "1")])) == ["a    bb", "ccc   1"]
    assert list(aligned([("a", "bb"), ("ccc", "1")], left=())) == ["  a  bb", "ccc   1"]


def test_one_name_is_that_of_both_files(tmp_path: Path) -> None:
    assert (
        EvaluationFiles.of("e/x.tsv")
        == EvaluationFiles.of("e/x.json")
        == (Path("e/x.json"), Path("e/x.tsv"))
    )
    assert EvaluationFiles.of("e").rows == Path("e/rows.tsv")
    assert EvaluationFiles.of("e").rows_of("p") == Path("e/rows.p.tsv")
    (tmp_path / "old.tsv").mkdir()
    assert (
        EvaluationFiles.of(str(tmp_path / "old.tsv")).results
        == tmp_path / "old.tsv" / "results.json"
    )
    assert EvaluationFiles.of("e/run.1/").rows == Path("e/run.1/rows.tsv")
    with pytest.raises(UsageError, match=r"--output=e/x\.xlsx: expected a folder, or a file"):
        EvaluationFiles.of("e/x.xlsx")


def test_confusion_has_a_row_for_what_is_right() -> None:
    counts = Counter({("a", "b"): 2, ("a", "a"): 1, (None, "b"): 3})
    assert confusion(counts) == {
        "labels": ["(unknown)", "a", "b"],
        "counts": [[0, 0, 3], [0, 1, 2], [0, 0, 0]],
    }
