"""Labels that were exchanged are the first of the list, for one label and for several."""

from __future__ import annotations

import random

import pytest

from t2t_torch.data.generate import generate_data
from t2t_torch.declaration.problem import problem_of
from t2t_torch.reports.label_errors import label_errors_of, write_label_errors

TOPICS = {"tea": "leaf pot cup kettle", "rain": "cloud drop wet storm", "dog": "bark tail paw bone"}


def _generated(tmp_path, kind, label_of):
    choose = random.Random(2)
    rows = []
    for number in range(400):
        topic = choose.choice(list(TOPICS))
        words = choose.choices(TOPICS[topic].split(), k=3) + choose.choices("abcdefgh", k=3)
        given = choose.choice([t for t in TOPICS if t != topic]) if number < 20 else topic
        rows.append(f"{' '.join(words)} n{number}\t{label_of(given)}\n")
    choose.shuffle(rows)
    (tmp_path / "rows.tsv").write_text("".join(["text\tlabel\n", *rows]))
    column = "label" if kind == "text2class" else {"column": "label", "split": ","}
    content = {
        "problem": "topics",
        "kind": kind,
        "files": {"train": "rows.tsv", "eval": 0.02},
        "fields": {"inputs": "text", "targets": column},
        "vocab_type": "word",
    }
    problem = problem_of(content, tmp_path / "topics.json")
    generate_data(problem, tmp_path / "data", tmp_path, num_processes=1)
    return problem


@pytest.mark.parametrize("kind", ["text2class", "text2multilabel"])
def test_exchanged_labels_are_first(tmp_path, kind):
    problem = _generated(tmp_path, kind, str if kind == "text2class" else lambda t: f"{t},all")
    (found,) = label_errors_of(problem, tmp_path / "data")
    first = found.errors[:20]
    wrong = [int(one.text.split()[-1][1:]) < 20 for one in first if "<UNK>" not in one.text]
    assert found.accuracy > 0.9 and 15 <= found.estimate <= 25
    topics = [
        next(t for t, words in TOPICS.items() if one.text.split()[0] in words) for one in first
    ]
    assert sum(topic not in one.given for topic, one in zip(topics, first, strict=True)) >= 18
    assert all(wrong[:10])
    suggested = [one.suggested.strip("+-") for one in first]
    if kind == "text2class":
        assert suggested == topics
    assert first[0].score >= first[-1].score > 0.5
    file = tmp_path / "wrong.tsv"
    (section,) = write_label_errors(problem, tmp_path / "data", file)
    lines = file.read_text().splitlines()
    assert len(lines) == 1 + len(found.errors) and len(section.blocks[0].rows) == 20
    assert lines[1].split("\t")[1:4] == [str(one) for one in first[0][:3]]
