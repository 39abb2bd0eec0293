"""Untidy files with something to learn: trained by the advised command, the artifact answers."""

from __future__ import annotations

import csv
import io
import json
import random
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from t2t_torch.bin.commands import datagen, exporter, trainer
from t2t_torch.workflows.run import load

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_registry")]

TRAINED, ASKED = 1500, 200
FILLING = (
    "the my your please thank hello team we have this that about can someone help me need it is "
    "very again today yesterday since monday week order account number"
).split()
TOPICS = {
    "billing": "invoice charged refund payment card".split(),
    "technical": "password error login crash server".split(),
    "shipping": "parcel delivery late courier lost".split(),
}
CITIES, PEOPLE = "Paris Berlin Rome Oslo Lima".split(), "Ann Bob Carla Dieter Eva".split()

Pair = tuple[Any, Any]
"""An input, and its answer."""


class Kind(NamedTuple):
    """A kind of files.

    Attributes:
      pair: draws an input with its answer.
      files: of rows, by name.
      declare: the path that is given.
      score: of answers and right answers, at best 1.
      usual: what a model that looks at no input would answer, of the right answers.
      least: of the score.
    """

    pair: Callable[[random.Random], Pair]
    files: Callable[[Sequence[Pair]], Mapping[str, bytes]]
    declare: str
    score: Callable[[Sequence[Any], Sequence[Any]], float]
    usual: Callable[[Sequence[Any]], Any]
    least: float = 0.9


def _about(topics: Sequence[str], draw: random.Random) -> str:
    words = draw.choices(FILLING, k=draw.randint(6, 12))
    for topic in topics:
        for word in draw.choices(TOPICS[topic], k=2):
            words.insert(draw.randrange(len(words)), word)
    return " ".join(words)


def _ticket(draw: random.Random) -> Pair:
    topic = draw.choices(list(TOPICS), weights=(8, 1, 1))[0]
    words = _about([topic], draw).split()
    words[0], words[-1] = f'"{words[0]}"', f"{words[-1]},\nregards"
    return " ".join(words), topic


def _several(draw: random.Random) -> Pair:
    topics = sorted(draw.sample(list(TOPICS), draw.randint(1, 3)))
    return _about(topics, draw), topics


def _home(draw: random.Random) -> Pair:
    place = draw.choice(("riverside", "downtown", "village"))
    rooms, pool = draw.randint(1, 6), draw.random() < 0.3
    price = {"riverside": 300_000, "downtown": 450_000, "village": 20_000}[place]
    price += 55_000 * rooms + 80_000 * pool + draw.randint(-9000, 9000)
    told = f"a house in {place} with {rooms} rooms{' and a pool' if pool else ''}"
    return f"{told} {' '.join(draw.choices(FILLING, k=4))}", price


def _named(draw: random.Random) -> Pair:
    words, tags = [], []
    for _ in range(draw.randint(2, 4)):
        words += [*draw.choices(FILLING, k=2), "in", draw.choice(CITIES), draw.choice(PEOPLE)]
        tags += ["O", "O", "O", "B-LOC", "B-PER"]
    return {"inputs": words}, tags


def _csv(name: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Mapping[str, bytes]:
    file = io.StringIO()
    csv.writer(file).writerows([head, *rows])
    return {name: file.getvalue().encode()}


def _tickets_csv(pairs: Sequence[Pair]) -> Mapping[str, bytes]:
    rows = [(n, "" if n % 60 == 7 else text, label) for n, (text, label) in enumerate(pairs)]
    return _csv("tickets.csv", ["", "body", "queue"], rows)


def _homes_csv(pairs: Sequence[Pair]) -> Mapping[str, bytes]:
    rows = [(n, f"{n % 28 + 1}/{n % 12 + 1}/2023", *pair) for n, pair in enumerate(pairs)]
    return _csv("homes.csv", ["home_id", "listed", "description", "price"], rows)


def _tags_csv(pairs: Sequence[Pair]) -> Mapping[str, bytes]:
    return _csv("many.csv", ["text", "tags"], [(text, ";".join(tags)) for text, tags in pairs])


def _conll(pairs: Sequence[Pair]) -> Mapping[str, bytes]:
    texts = (
        "".join(f"{word} NN {tag}\n" for word, tag in zip(given["inputs"], tags, strict=True))
        for given, tags in pairs
    )
    return {"ner.conll": ("-DOCSTART- -X- O\n\n" + "\n".join(texts)).encode()}


def _right(answers: Sequence[Any], expected: Sequence[Any]) -> float:
    pairs = list(zip(answers, expected, strict=True))
    return sum(one == other for one, other in pairs) / len(pairs)


def _right_sets(answers: Sequence[Any], expected: Sequence[Any]) -> float:
    return _right([sorted(one) for one in answers], [sorted(one) for one in expected])


def _right_words(answers: Sequence[Any], expected: Sequence[Any]) -> float:
    flat = [(list(one), list(other)) for one, other in zip(answers, expected, strict=True)]
    assert all(len(one) == len(other) for one, other in flat)
    return _right([x for one, _ in flat for x in one], [x for _, other in flat for x in other])


def _explained(answers: Sequence[Any], expected: Sequence[Any]) -> float:
    """The part of the variance of the right numbers that the answers explain."""
    found, right = np.array(answers, float).ravel(), np.array(expected, float)
    return float(1 - np.square(found - right).sum() / np.square(right - right.mean()).sum())


def _most_frequent(expected: Sequence[Any]) -> list[Any]:
    usual = Counter(map(json.dumps, expected)).most_common(1)[0][0]
    return [json.loads(usual)] * len(expected)


def _all_outside(expected: Sequence[Any]) -> list[Any]:
    return [["O"] * len(tags) for tags in expected]


def _mean(expected: Sequence[Any]) -> list[Any]:
    return [[float(np.mean(expected))]] * len(expected)


KINDS = {
    "a majority class": Kind(_ticket, _tickets_csv, "tickets.csv", _right, _most_frequent),
    "prices": Kind(_home, _homes_csv, "homes.csv", _explained, _mean),
    "labels with marks between them": Kind(
        _several, _tags_csv, "many.csv", _right_sets, _most_frequent, least=0.85
    ),
    "CoNLL": Kind(_named, _conll, "ner.conll", _right_words, _all_outside),
}


def _commanded(told: str, name: str) -> list[str]:
    """Returns the arguments of the command that is advised first; a race may follow."""
    advised, *others = [one for one in told.splitlines() if one.strip().startswith(f"{name} --")]
    assert all("--model=auto --hparams_set=auto" in one for one in others) and len(others) < 2
    assert "--model=auto" not in advised
    return shlex.split(advised)[1:]


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_what_is_trained_as_advised_answers_better_than_the_usual_answer(
    kind: Kind, tmp_path: Path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    draw = random.Random(5)
    pairs = [kind.pair(draw) for _ in range(TRAINED)]
    for name, content in kind.files(pairs).items():
        path = tmp_path / "raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert datagen.main([f"--declare=raw/{kind.declare}", "--declare_to=declared/it.json"]) == 0
    advised = _commanded(capsys.readouterr().err, "t2t-datagen")
    assert datagen.main([*advised, "--num_concurrent_processes=1"]) == 0
    advised = _commanded(capsys.readouterr().out, "t2t-trainer")
    assert trainer.main(advised) == 0
    exporting = ["--output_dir=run", "--data_dir=data", "--export_dir=artifact"]
    assert exporter.main([*exporting, "--t2t_usr_dir=declared"]) == 0

    asked = [kind.pair(draw) for _ in range(ASKED)]
    answers = load("artifact")([one for one, _ in asked])
    right = [other for _, other in asked]
    assert kind.score(answers, right) >= kind.least
    assert kind.score(answers, right) > kind.score(kind.usual(right), right) + 0.1
