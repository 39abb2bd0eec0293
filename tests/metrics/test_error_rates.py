"""Word and character error rates are those of jiwer."""

from __future__ import annotations

import pytest
import torch

from t2t_torch.features import Transcript
from t2t_torch.metrics.metric import metric_of
from t2t_torch.metrics.text_scores import score
from t2t_torch.text.encoder import ByteEncoder

REFERENCES = [
    "the cat sat on the mat",
    "one two three",
    "nine",
    "zero  zero one ",
    "caf\u00e9 \u65e5\u672c",
]
OUTPUTS = ["the cat sit on mat", "one two two three four", "", "zero one", "cafe \u65e5\u672c"]


def test_scores_of_texts_are_those_of_jiwer() -> None:
    jiwer = pytest.importorskip("jiwer")
    found = score(OUTPUTS, REFERENCES, ("word_error_rate", "character_error_rate"))
    assert found["word_error_rate"].value == pytest.approx(jiwer.wer(REFERENCES, OUTPUTS))
    assert found["character_error_rate"].value == pytest.approx(jiwer.cer(REFERENCES, OUTPUTS))
    assert found["character_error_rate"].line.startswith("CER = ")


@pytest.mark.parametrize("name", ["word_error_rate", "character_error_rate"])
def test_metrics_of_free_outputs_are_those_of_the_texts(name: str) -> None:
    feature = Transcript(ByteEncoder())
    rows = [feature.encode(text) for text in REFERENCES]
    targets = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    ids = torch.zeros(len(rows), targets.size(1) + 9, dtype=torch.int64)  # longer: not forced
    for number, (row, text) in enumerate(zip(rows, OUTPUTS, strict=True)):
        targets[number, : len(row)] = torch.tensor(row)
        own = feature.encode(text)
        ids[number, : len(own)] = torch.tensor(own)
    metric = metric_of(name, feature)
    sums = metric.update(torch.nn.functional.one_hot(ids, 258).float(), targets)
    expected = score(OUTPUTS, REFERENCES, (name,))[name].value
    assert metric.result(sums) == pytest.approx(expected)
