"""The sets that docs/reference/models.md recommends for classes of a text beat naive Bayes."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import math
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "models.md"
STEPS = {"fasttext": 600, "bilstm_attention_classifier": 400}
# text_cnn's is the paper's: docs/reference/models.md says that it is below naive Bayes on one.
Rows = list[tuple[str, str]]


def sets_to_begin_with() -> list[tuple[str, str]]:
    """Returns the model and the set of each line of the table whose model reads one text."""
    row = r"^\| `(\w+)` \| classes, numbers \| one text \| `(\w+)` \|"
    return re.findall(row, DOCS.read_text("utf-8"), re.MULTILINE)


def atis(folder: Path) -> tuple[Rows, Rows]:
    """Returns requests and their intents."""
    found = []
    for split in ("train", "valid"):
        names = (folder / "atis" / split / name for name in ("label", "seq.in"))
        columns = [name.read_text("utf-8").splitlines() for name in names]
        found.append(list(zip(*columns, strict=True)))
    return found[0], found[1]


def ag_news(folder: Path) -> tuple[Rows, Rows]:
    """Returns 4,000 and 1,000 articles of the training file and their topics."""
    with gzip.open(folder / "ag_news" / "ag_news_train.txt.gz", "rt", encoding="utf-8") as file:
        rows = [
            (label, " ".join(re.findall(r"[a-z0-9']+|[^\sa-z0-9']", text.lower())))
            for label, text in csv.reader(file, delimiter="\t")
        ]
    random.Random(0).shuffle(rows)
    return rows[:4000], rows[4000:5000]


def top(folder: Path) -> tuple[Rows, Rows]:
    """Returns 4,000 and 1,000 requests and the outermost intent of their trees."""
    found = []
    for name, count in (("train_supported", 4000), ("eval", 1000)):
        with gzip.open(folder / "top" / f"{name}.tsv.gz", "rt", encoding="utf-8") as file:
            cells = [line.rstrip("\n").split("\t") for line in file]
        rows = [
            (match[1], row[-2].strip().lower())
            for row in cells
            if (match := re.match(r"\[(IN:\w+)", row[-1]))
        ]
        random.Random(0).shuffle(rows)
        found.append(rows[:count])
    return found[0], found[1]


def naive_bayes(train: Rows, dev: Rows) -> float:
    """Returns the accuracy of multinomial naive Bayes of words and bigrams, with one added."""

    def grams(text: str) -> Iterable[object]:
        words = text.split()
        return [*words, *itertools.pairwise(words)]

    prior = Counter(label for label, _ in train)
    counts: dict[str, Counter[object]] = {label: Counter() for label in prior}
    for label, text in train:
        counts[label].update(grams(text))
    known = set().union(*counts.values())
    totals = {label: its.total() + len(known) for label, its in counts.items()}

    def score(label: str, features: Sequence[object]) -> float:
        likelihood = sum(math.log((counts[label][f] + 1) / totals[label]) for f in features)
        return math.log(prior[label]) + likelihood

    right = 0
    for label, text in dev:
        features = [gram for gram in grams(text) if gram in known]
        right += max(prior, key=lambda one: score(one, features)) == label
    return right / len(dev)


def test_the_table_names_sets_of_each_model_of_one_text():
    assert [model for model, _ in sets_to_begin_with()] == list(STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("data", [atis, ag_news, top])
@pytest.mark.parametrize(("model", "hparams_set"), sets_to_begin_with())
def test_a_set_to_begin_with_beats_naive_bayes(
    shared_data: Path,
    tmp_path: Path,
    model: str,
    hparams_set: str,
    data: Callable[[Path], tuple[Rows, Rows]],
):
    train, dev = data(shared_data)
    raw = tmp_path / "raw"
    raw.mkdir()
    for split, rows in (("train", train), ("eval", dev)):
        lines = [f"{label}\t{text}\n" for label, text in rows]
        (raw / f"{split}.tsv").write_text("".join(["label\ttext\n", *lines]), "utf-8")
    declared = {
        "problem": "small_set",
        "kind": "text2class",
        "files": {"train": "train.tsv", "eval": "eval.tsv"},
        "format": "tsv",
        "fields": {"inputs": "text", "targets": "label"},
        "vocab_type": "word",
    }
    (raw / "small_set.json").write_text(json.dumps(declared))
    named = ("--t2t_usr_dir=raw", "--problem=small_set", "--data_dir=data")
    chosen = (f"--model={model}", f"--hparams_set={hparams_set}", "--output_dir=run")
    length = (f"--train_steps={STEPS[model]}", "--eval_steps=0", "--local_eval_frequency=0")
    for words in (("t2t-datagen", "--tmp_dir=raw"), ("t2t-trainer", *chosen, *length)):
        command = [Path(sys.executable).with_name(words[0]), *named, *words[1:]]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["metrics-small_set/targets/accuracy"] > naive_bayes(train, dev)
