"""Declared problems: their samples, splits and settings."""

from __future__ import annotations

import gzip
import json
import pickle
import subprocess
import sys
import textwrap
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.data.generate import generate_data
from t2t_torch.declaration.problem import problem_of
from t2t_torch.declaration.schema import KINDS, MIXTURES
from t2t_torch.errors import DataError, RegistryError
from t2t_torch.mode import Split
from t2t_torch.problem import metric_names
from t2t_torch.readers.text_file import BadRecords
from t2t_torch.text.tree import parse_tree

WORDS = [{"tokens": ["Ann", "left"], "tags": ["B-PER", "O"], "intent": "go", "kind": "x"}]
SQUAD = {
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": f"In {year} it rained.",
                    "qas": [
                        {
                            "id": f"{year}-{n}",
                            "question": f"When, {n}?",
                            "answers": [{"text": str(year), "answer_start": 3}],
                        }
                        for n in range(3)
                    ],
                }
                for year in range(1900, 1960)
            ],
        }
    ]
}


def jsonl(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def split(name: str) -> dict[str, str]:
    return {"train": name, "eval": f"dev.{name}"}


def idx(*shape: int, data: bytes) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in shape)
    return bytes([0, 0, 8, len(shape)]) + sizes + data


CASES: list[tuple[str, dict[str, Any], str, str | bytes, dict[str, Any]]] = [
    (
        "text2class",
        {"fields": {"inputs": ["title", "body"], "targets": "queue"}},
        "train.csv",
        'title,body,queue\r\nHelp,"a, ""b""\nc",sales\r\n,only body,sales\r\n',
        {"inputs": 'Help a, "b"\nc', "targets": "sales"},
    ),
    (
        "text2multilabel",
        {"fields": {"inputs": "text", "targets": {"column": "tags", "split": "|"}}},
        "train.tsv",
        "text\ttags\nhello\ta | b\nbye\t\n",
        {"inputs": "hello", "targets": ["a", "b"]},
    ),
    (
        "textpair2class",
        {"options": {"header": False}, "fields": {"first": 0, "second": "1", "targets": "-1"}},
        "train.tsv",
        "one\ttwo\tx\tyes\nthree\tfour\tx\tno\n",
        {"first": "one", "second": "two", "targets": "yes"},
    ),
    (
        "textpair2real",
        {"fields": {"first": "a", "second": "b", "targets": "how"}},
        "train.jsonl",
        jsonl({"a": "one", "b": "two", "how": 3}, {"a": "x", "b": "y", "how": "4.5"}),
        {"first": "one", "second": "two", "targets": [3.0]},
    ),
    (
        "text2real",
        {"fields": {"inputs": "text", "targets": ["x", "y"]}},
        "train.csv",
        "text,x,y\nhello,1,2e3\nbye,0,-1\n",
        {"inputs": "hello", "targets": [1.0, 2000.0]},
    ),
    (
        "text2tags",
        {"fields": {"inputs": "tokens", "targets": "tags"}},
        "train.jsonl",
        jsonl(*WORDS),
        {"inputs": ["Ann", "left"], "targets": ["B-PER", "O"]},
    ),
    (
        "text2tags",
        {"format": "conll", "fields": {"inputs": 0, "targets": 2}},
        "train.txt",
        "Ann NNP B-PER\nleft VBD O\n\nShe PRP O\n",
        {"inputs": ["Ann", "left"], "targets": ["B-PER", "O"]},
    ),
    (
        "text2tags",
        {},
        "train.conllu",
        "# text = Ann left\n1\tAnn\tAnn\tPROPN\tNNP\t_\t2\tnsubj\t_\t_\n"
        "2\tleft\tleave\tVERB\tVBD\t_\t0\troot\t_\t_\n\n",
        {"inputs": ["Ann", "left"], "targets": ["PROPN", "VERB"]},
    ),
    (
        "intentslot",
        {"fields": {"inputs": "tokens", "intent": "intent", "slots": "tags"}},
        "train.jsonl",
        jsonl(*WORDS),
        {"inputs": ["Ann", "left"], "intent": "go", "slots": ["B-PER", "O"]},
    ),
    (
        "pairranking",
        {},
        "train.csv",
        "query,positive,negative\nq,good,bad\n",
        {"query": "q", "positive": "good", "negative": "bad"},
    ),
    (
        "queryrelevance",
        {
            "options": {"columns": ["label", "q", "d"]},
            "fields": {"query": "q", "document": "d", "targets": "label"},
        },
        "train.tsv",
        "1\twhy\tbecause\n0\twhy\tno\n",
        {"query": "why", "document": "because", "targets": "1"},
    ),
    (
        "spanqa",
        {},
        "train.json",
        json.dumps(SQUAD),
        {
            "question": "When, 0?",
            "context": "In 1900 it rained.",
            "answers": [{"text": "1900", "start": 3}],
        },
    ),
    (
        "spanqa",
        {},
        "train.csv",
        "question,context,answers\nWhen?,In 1900 it rained.,1900\nWhy?,In 1900 it rained.,\n",
        {
            "question": "When?",
            "context": "In 1900 it rained.",
            "answers": [{"text": "1900", "start": 3}],
        },
    ),
    (
        "questioncontext2text",
        {"fields": {"inputs": "q", "context": "c", "targets": "a"}},
        "train.csv",
        "q,c,a\nWhen?,It rained,yesterday\n",
        {"inputs": "When?", "context": "It rained", "targets": "yesterday"},
    ),
    (
        "text2tree",
        {},
        "train.mrg",
        "( (S (NP (NN time))\n     (VP (VBZ flies))) )\n",
        {"inputs": ["time", "flies"], "targets": parse_tree("(S (NP (NN time)) (VP (VBZ flies)))")},
    ),
    (
        "text2tree",
        {"options": {"header": False}, "fields": {"targets": "-1"}},
        "train.tsv",
        "raw\twhat 's on\t[IN:GET_EVENT what 's on ]\n",
        {"inputs": ["what", "'s", "on"], "targets": parse_tree("[IN:GET_EVENT what 's on ]")},
    ),
    (
        "multiturn2class",
        {"fields": {"inputs": "turns", "targets": "end"}},
        "train.jsonl",
        jsonl({"turns": ["hi", "hello there"], "end": True}),
        {"inputs": ["hi", "hello there"], "targets": "true"},
    ),
    (
        "text2text",
        {"fields": {"inputs": "a.de", "targets": "a.en"}},
        "train.jsonl",
        jsonl({"a": {"de": "eins", "en": "one"}}),
        {"inputs": "eins", "targets": "one"},
    ),
    ("text2self", {}, "train.txt", "one\n\nthree\n", {"targets": "one"}),
]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize(
    ("kind", "keys", "name", "text", "first"), CASES, ids=[f"{c[0]}-{c[2]}" for c in CASES]
)
def test_a_row_becomes_a_sample(kind, keys, name, text, first, packed, declare, samples):
    raw = text if isinstance(text, bytes) else text.encode()
    name, raw = (f"{name}.gz", gzip.compress(raw)) if packed else (name, raw)
    problem = declare({name: raw, f"dev.{name}": raw}, kind=kind, files=split(name), **keys)
    assert samples(problem, Split.TRAIN)[0] == first


def test_every_kind_is_declared_here():
    tested = {case[0] for case in CASES} | {"image2class", "audio2class", "speech2text", *MIXTURES}
    assert tested == {*KINDS, *MIXTURES}


def test_every_declared_kind_is_generated(declare, tmp_path):
    for kind, keys, name, text, _ in CASES:
        problem = declare(
            {name: text, f"dev.{name}": text},
            kind=kind,
            problem=f"of_{kind}",
            files=split(name),
            **keys,
        )
        manifest = generate_data(
            problem, tmp_path / "data", tmp_path, overwrite=True, progress=False, num_processes=1
        )
        assert manifest.splits["train"].rows >= 1


def test_pictures_of_idx_files(declare, samples):
    pixels = bytes(range(12))
    files = {
        "train-images-idx3-ubyte": idx(2, 2, 3, data=pixels),
        "train-labels-idx1-ubyte": idx(2, data=bytes([7, 1])),
    }
    files |= {name.replace("train", "t10k"): text for name, text in files.items()}
    named = {"train": "train-images-idx3-ubyte", "eval": "t10k-images-idx3-ubyte"}
    shape = {"height": 2, "width": 3, "channels": 1}
    problem = declare(files, kind="image2class", files=named, labels=["1", "7"], settings=shape)
    first = samples(problem, Split.TRAIN)[0]
    assert first["targets"] == "7"
    np.testing.assert_array_equal(first["inputs"][:, :, 0], [[0, 1, 2], [3, 4, 5]])


def test_parallel_files_are_read_line_by_line(declare, samples):
    files = {"a.de": "eins\nzwei\n", "a.en": "one\ntwo\n", "b.de": "x\n", "b.en": "y\n"}
    train, held_out = ({"inputs": f"{name}.de", "targets": f"{name}.en"} for name in "ba")
    problem = declare(files, kind="text2text", files={"train": train, "eval": held_out})
    assert samples(problem, Split.EVAL) == [
        {"inputs": "eins", "targets": "one"},
        {"inputs": "zwei", "targets": "two"},
    ]


def test_bio_folders_are_read(declare, samples):
    files = {"a/seq.in": "go home\n", "a/seq.out": "O B-to\n", "a/label": "walk\n"}
    files |= {name.replace("a/", "b/"): text for name, text in files.items()}
    problem = declare(files, kind="intentslot", files={"train": "a", "eval": "b"})
    assert samples(problem, Split.TRAIN) == [
        {"inputs": ["go", "home"], "intent": "walk", "slots": ["O", "B-to"]}
    ]


def test_patterns_and_lists_name_several_files(declare, samples):
    files = {f"part{n}.csv": f"inputs,targets\ntext {n},x\n" for n in (2, 0, 1)}
    files["last.csv"] = "inputs,targets\nlast,x\n"
    problem = declare(files, files={"train": ["part*.csv", "last.csv"], "eval": 0.01})
    texts = [sample["inputs"] for sample in samples(problem, Split.TRAIN)]
    assert texts == ["text 0", "text 1", "text 2", "last"]


def test_the_folder_of_raw_files_comes_before_that_of_the_declaration(declare, tmp_path):
    problem = declare({"train.csv": "inputs,targets\nbeside,x\n"})
    raw = tmp_path / "raw"
    raw.mkdir()
    assert problem.raw_files(raw) == [tmp_path / "train.csv"]
    (raw / "train.csv").write_text("inputs,targets\nraw,x\n")
    assert problem.raw_files(raw) == [raw / "train.csv"]


@pytest.mark.parametrize(
    ("kind", "keys", "name", "text", "told"),
    [
        (
            "text2class",
            {},
            "t.csv",
            "inputs,targets\n ,x\n",
            r"line 2: column 'inputs'.*empty text",
        ),
        ("text2class", {}, "t.csv", "inputs,targets\na,\n", "line 2: column 'targets'.*empty"),
        ("text2class", {"labels": ["yes"]}, "t.csv", "inputs,targets\na,yess\n", "mean 'yes'"),
        ("text2real", {}, "t.csv", "inputs,targets\na,1\nb,x\n", "line 3: .*'x' is no number"),
        ("text2real", {}, "t.csv", "inputs,targets\na,nan\n", "no finite number"),
        ("text2real", {}, "t.jsonl", jsonl({"inputs": "a", "targets": [1, 2]}), "2 numbers, not 1"),
        ("text2tags", {}, "t.jsonl", jsonl({"inputs": ["a"], "targets": ["b", "c"]}), "1 words"),
        ("text2tags", {}, "t.jsonl", jsonl({"inputs": [], "targets": []}), "no words"),
        ("text2tags", {}, "t.jsonl", jsonl({"inputs": [""], "targets": ["c"]}), "word 1 is"),
        ("text2multilabel", {}, "t.csv", "inputs,targets\na,b\n", r'"split": ","'),
        ("multiturn2class", {}, "t.jsonl", jsonl({"inputs": [], "targets": "x"}), "empty list"),
        ("spanqa", {}, "t.csv", "question,context,answers\nq,c d,e\n", "'e' is not in its context"),
        ("text2tree", {}, "t.jsonl", jsonl({"inputs": "a", "targets": "(S (X a)"}), "no tree"),
        (
            "text2tree",
            {"fields": {"inputs": "inputs", "targets": "targets"}},
            "t.jsonl",
            jsonl({"inputs": "b", "targets": "(S a)"}),
            "not those of the tree",
        ),
        ("text2class", {}, "t.jsonl", jsonl({"inputs": "a", "label": "b"}), "no column 'targets'"),
        ("text2class", {}, "t.jsonl", jsonl({"inputs": {"a": 1}, "targets": "b"}), "is no text"),
    ],
)
def test_a_row_that_is_no_sample_is_told_or_skipped(kind, keys, name, text, told, declare, samples):
    good = text.replace(text.splitlines()[-1], "") if name.endswith("csv") else ""
    files = {name: text, f"dev.{name}": text}
    problem = declare(files, kind=kind, files=split(name), **keys)
    with pytest.raises(DataError, match=told):
        samples(problem, Split.TRAIN)
    problem.bad_records = BadRecords("skip")
    if len(good.split("\n")) < 4:
        with pytest.raises(DataError, match=r"no row for 'train' in its files; bad rows were left"):
            samples(problem, Split.TRAIN)
    else:
        samples(problem, Split.TRAIN)
    assert problem.bad_records.count == 1


def test_what_is_known_beside_a_text(declare, samples):
    row = {
        "words": "Ann left Paris",
        "tags": "B O B",
        "where": [{}, {}, {"city": 0.9, "name": 0.1}],
        "age": "3",
        "x": 2,
        "how_much": 0.5,
    }
    beside = {
        "characters": 8,
        "bytes": 4,
        "shape": True,
        "gazetteer": "where",
        "dense": ["age", "x"],
        "weight": "how_much",
    }
    fields = {"inputs": "words", "targets": "tags"}
    problem = declare(
        {"t.jsonl": jsonl(row), "dev.jsonl": jsonl(row)},
        kind="text2tags",
        files={"train": "t.jsonl", "eval": "dev.jsonl"},
        fields=fields,
        features=beside,
    )
    assert samples(problem, Split.TRAIN) == [
        {
            "inputs": ["Ann", "left", "Paris"],
            "targets": ["B", "O", "B"],
            "gazetteer": [{}, {}, {"city": 0.9, "name": 0.1}],
            "dense": [3.0, 2.0],
            "weight": 0.5,
        }
    ]
    assert (problem.word_characters, problem.word_bytes, problem.word_shape) == (8, 4, True)


def test_a_gazetteer_may_be_written_as_pytext_does(declare, samples):
    row = {
        "inputs": "a b c",
        "targets": "x y z",
        "g": '[{"tokenIdx": 1, "features": {"city": 0.5}}]',
    }
    problem = declare(
        {"t.jsonl": jsonl(row), "dev.jsonl": jsonl(row)},
        kind="text2tags",
        files={"train": "t.jsonl", "eval": "dev.jsonl"},
        features={"gazetteer": "g"},
    )
    assert samples(problem, Split.TRAIN)[0]["gazetteer"] == [{}, {"city": 0.5}, {}]


def test_soft_labels_are_columns_or_a_mapping(declare, samples):
    columns = {
        "fields": {"inputs": "t", "targets": ["no", "yes"]},
        "features": {"soft_labels": True},
        "files": {"train": "train.csv", "eval": "dev.csv"},
    }
    text = "t,no,yes\nhello,0.25,0.75\n"
    problem = declare({"train.csv": text, "dev.csv": text}, **columns)
    assert problem.class_labels == ("no", "yes")
    assert samples(problem)[0]["targets"] == {"no": 0.25, "yes": 0.75}
    text = "t,no,yes\nhello,0.25,0.5\n"
    problem = declare({"train.csv": text, "dev.csv": text}, **columns)
    with pytest.raises(DataError, match="no distribution"):
        samples(problem)


ROWS = st.lists(
    st.tuples(st.text("abc", min_size=1, max_size=3), st.sampled_from("xy")),
    min_size=1,
    max_size=60,
)


@given(rows=ROWS, evaluated=st.floats(0.01, 0.6), tested=st.floats(0.01, 0.39))
@settings(max_examples=30, deadline=None)
def test_rows_held_out_are_neither_lost_nor_doubled_and_equal_ones_stay_together(
    tmp_path_factory, rows, evaluated, tested
):
    folder = tmp_path_factory.mktemp("rows")
    text = "inputs,targets\n" + "".join(f"{a},{b}\n" for a, b in rows)
    (folder / "train.csv").write_text(text)
    content = {
        "problem": "mine",
        "kind": "text2class",
        "files": {"train": "train.csv", "eval": evaluated, "test": tested},
    }
    problem = problem_of(content, folder / "mine.json")
    found: dict[Split, list[tuple[str, str]]] = {split: [] for split in Split}
    for split in Split:
        try:
            for sample in problem.generate_samples(folder, split):
                found[split].append((sample["inputs"], sample["targets"]))
        except DataError:
            assert not found[split]
    assert sorted(rows) == sorted(pair for pairs in found.values() for pair in pairs)
    texts = [{text for text, _ in pairs} for pairs in found.values()]
    assert sum(map(len, texts)) == len(set().union(*texts))


def test_a_row_stays_in_its_split_whatever_other_rows_there_are(declare, samples):
    lines = [f"text number {n},x\n" for n in range(400)]
    files = {"train": "train.csv", "eval": 0.2}
    all_rows = declare({"train.csv": "inputs,targets\n" + "".join(lines)}, files=files)
    held_out = {sample["inputs"] for sample in samples(all_rows, Split.EVAL)}
    assert 50 < len(held_out) < 110  # 0.2 of 400, give or take four standard deviations
    some = declare({"train.csv": "inputs,targets\n" + "".join(lines[::-3])}, files=files)
    kept = {line.partition(",")[0] for line in lines[::-3]}
    assert {sample["inputs"] for sample in samples(some, Split.EVAL)} == held_out & kept


@pytest.mark.parametrize(
    ("rows", "wanted"), [(1000, 200), (240, 48), (4000, 400), (60, 12)], ids=str
)
def test_a_number_of_rows_is_held_out_with_the_shares_of_the_labels(declare, samples, rows, wanted):
    labels = (
        "usual",
        "usual",
        "usual",
        "often",
        "rare",
        *("usual", "usual", "often", "seldom") * 2,
    )
    texts = [f"text {n},{labels[n % 13]}" for n in range(rows - rows // 5)]
    text = "\n".join(["inputs,targets", *texts, *texts[: rows // 5]]) + "\n"
    problem = declare({"train.csv": text}, files={"train": "train.csv", "eval": {"rows": wanted}})
    train, held = samples(problem, Split.TRAIN), samples(problem, Split.EVAL)
    assert len(train) + len(held) == rows and wanted <= len(held) <= 1.1 * wanted + 4
    assert not {one["inputs"] for one in train} & {one["inputs"] for one in held}
    counts = [Counter(one["targets"] for one in side) for side in (train, held)]
    assert counts[0].keys() == counts[1].keys() == {"usual", "often", "seldom", "rare"}
    assert abs(counts[1]["usual"] / len(held) - counts[0]["usual"] / len(train)) < 0.06 + 2 / wanted
    assert samples(problem, Split.EVAL) == held


@pytest.mark.parametrize(
    ("rows", "texts", "labels", "wanted", "least", "most"),
    [
        (2500, 15, 2, 250, 125, 375),
        (2500, 15, 15, 250, 125, 375),  # each text has its own label
        (2500, 15, 5, 250, 125, 375),
        (3000, 60, 20, 300, 300, 450),
        (50, 50, 50, 10, 10, 10),
        (1000, 3, 1, 200, 333, 334),  # one text is in more rows than are wanted
        (2, 2, 2, 1, 1, 1),
    ],
)
def test_about_as_many_rows_of_few_distinct_texts_are_held_out_as_declared(
    declare, samples, rows, texts, labels, wanted, least, most
):
    lines = "".join(f"text {n % texts},label {n % texts % labels}\n" for n in range(rows))
    problem = declare(
        {"train.csv": f"inputs,targets\n{lines}"},
        files={"train": "train.csv", "eval": {"rows": wanted}},
    )
    said: list[str] = []
    problem.sample_maker.say = said.append
    train, held = samples(problem, Split.TRAIN), samples(problem, Split.EVAL)
    assert len(train) + len(held) == rows and least <= len(held) <= most
    assert not {one["inputs"] for one in train} & {one["inputs"] for one in held}
    there, known = ({one["targets"] for one in side} for side in (held, train))
    absent = {"training": there - known, "eval": known - there}
    expected = [f"{len(some)} labels are absent from '{p}': " for p, some in absent.items() if some]
    assert len(said) == len(expected) and all(map(str.startswith, said, expected))


def test_half_of_the_distinct_texts_stay_in_training(declare, samples):
    texts = ["much"] * 500 + ["more"] * 500 + [f"text {n}" for n in range(10)]
    lines = "".join(f"{text},{n % 2}\n" for n, text in enumerate(texts))
    problem = declare(
        {"train.csv": f"inputs,targets\n{lines}"},
        files={"train": "train.csv", "eval": {"rows": 200}},
    )
    assert len(samples(problem, Split.EVAL)) == 6


@pytest.mark.parametrize(
    ("texts", "held_out", "message"),
    [
        (2, {"eval": {"rows": 100}}, "can be held out for 'eval': .* only 2 are distinct"),
        (400, {"eval": {"rows": 5000}}, r'5,000 of 400 .* at most {"rows": 200}'),
        (400, {"eval": {"rows": 150}, "test": {"rows": 100}}, "250 of 400 training rows"),
    ],
)
def test_no_more_than_half_of_the_rows_is_held_out(declare, samples, texts, held_out, message):
    lines = "".join(f"text {n % texts},{n % texts % 2}\n" for n in range(400))
    problem = declare(
        {"train.csv": f"inputs,targets\n{lines}"}, files={"train": "train.csv", **held_out}
    )
    with pytest.raises(DataError, match=message):
        samples(problem, Split.EVAL)


def test_rows_of_several_labels_are_held_out_by_their_rarest(declare, samples):
    lines = "".join(f'text {n},"usual{",rare" * (n % 10 == 0)}"\n' for n in range(100))
    problem = declare(
        {"train.csv": f"inputs,targets\n{lines}"},
        kind="text2multilabel",
        files={"train": "train.csv", "eval": {"rows": 20}},
        fields={"inputs": "inputs", "targets": {"column": "targets", "split": ","}},
    )
    assert sum("rare" in one["targets"] for one in samples(problem, Split.EVAL)) == 2


def test_questions_about_one_text_stay_together(declare, samples):
    problem = declare(
        {"train.json": json.dumps(SQUAD)}, kind="spanqa", files={"train": "train.json", "eval": 0.3}
    )
    sides = [{one["context"] for one in samples(problem, s)} for s in (Split.TRAIN, Split.EVAL)]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 60


def test_split_by_keeps_the_rows_of_a_customer_together(declare, samples):
    lines = "".join(f"text {n},x,{n % 20}\n" for n in range(200))
    problem = declare({"train.csv": f"inputs,targets,customer\n{lines}"}, split_by="customer")
    train, held_out = (
        {int(one["inputs"].split()[1]) % 20 for one in samples(problem, split)}
        for split in (Split.TRAIN, Split.EVAL)
    )
    assert not train & held_out
    assert len(train | held_out) == 20


def test_a_bad_row_of_parted_files_is_counted_once(declare, samples):
    lines = "".join(f"text {n},x\n" for n in range(50))
    problem = declare({"train.csv": f"inputs,targets\n,x\n{lines}"})
    problem.bad_records = BadRecords("skip")
    assert len(samples(problem)) == 50
    assert problem.bad_records.count == 1


def test_data_of_another_declaration_is_not_taken_for_this_ones(declare, tmp_path):
    text = "inputs,targets,other\n" + "".join(f"text {n},x,y\n" for n in range(20))
    first = declare({"train.csv": text})
    generate_data(first, tmp_path / "data", tmp_path, progress=False, num_processes=1)
    described = declare(description="The same data.", source="somewhere", licence="CC0")
    generate_data(described, tmp_path / "data", tmp_path, progress=False, num_processes=1)
    other = declare(fields={"inputs": "inputs", "targets": "other"})
    with pytest.raises(DataError, match=r"declared_fields: there None, requested .*'other'"):
        generate_data(other, tmp_path / "data", tmp_path, progress=False, num_processes=1)


def test_a_changed_raw_file_is_noticed_beside_the_declaration_too(declare, tmp_path):
    files = {
        f"{split}/{name}": text
        for split in ("train", "test")
        for name, text in (("seq.in", "go home\n"), ("seq.out", "O B-to\n"), ("label", "walk\n"))
    }
    problem = declare(files, kind="intentslot", files={"train": "train", "eval": "test"})
    where = tmp_path / "data", tmp_path / "raw"
    manifest = generate_data(problem, *where, progress=False, num_processes=1)
    assert sorted(manifest.raw_files) == sorted(files)
    (tmp_path / "train" / "label").write_text("run\n")
    with pytest.raises(DataError, match="other raw files"):
        generate_data(problem, *where, progress=False, num_processes=1)


def test_a_declared_problem_is_pickled_with_what_it_was_told(declare):
    problem = declare({"train.csv": "inputs,targets\na,b\n"})
    problem.bad_records = BadRecords("skip")
    again = pickle.loads(pickle.dumps(problem))
    assert type(again) is type(problem)
    assert again.bad_records.policy == "skip"


@pytest.mark.slow
def test_spawned_processes_encode_a_declared_problem(declare, tmp_path):
    lines = "".join(f"text {n},x\n" for n in range(50))
    declare({"train.csv": f"inputs,targets\n{lines}"})
    script = f"""
        from t2t_torch import registry
        from t2t_torch.data.generate import generate_data
        if __name__ == "__main__":
            registry.import_usr_dir({str(tmp_path)!r})
            problem = registry.problem("mine")
            made = generate_data(problem, "data", "raw", num_processes=2, progress=False)
            print(sum(split.rows for split in made.splits.values()))
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "50\n", done.stderr


def test_a_declaration_says_the_vocabulary_the_shards_and_how_to_train(declare):
    problem = declare(
        {"train.csv": "inputs,targets\na,b\n"},
        vocab_type="word",
        vocab_size=500,
        shards={"train": 3},
        hparams_set="transformer_encoder_tiny",
        settings={"min_word_count": 2},
        metrics=["accuracy"],
        description="Letters.",
        licence="CC0",
    )
    assert metric_names(problem, "targets") == ("accuracy",)
    assert type(problem).__doc__ == "Letters.\nLicence: CC0"
    assert problem.vocab_filename == "vocab.mine.500.words"
    assert problem.shards == {Split.TRAIN: 3, Split.EVAL: 1}
    flags = "--model=transformer_encoder --hparams_set=transformer_encoder_tiny"
    assert problem.suggested_flags.startswith(flags)
    assert problem.min_word_count == 2


def test_a_mixture_is_declared_by_its_problems(declare):
    problem = declare(
        kind="mixture",
        files=None,
        problems=["algorithmic_identity_binary40", "algorithmic_reverse_binary40"],
        schedule="step @0 .7 .3",
    )
    assert [one.name for one in problem.components] == list(problem.problem_names)
    assert problem.mixing_schedule == "step @0 .7 .3"
    assert problem.suggested_flags == problem.components[0].suggested_flags
    assert pickle.loads(pickle.dumps(problem)).problem_names == problem.problem_names


def test_tasks_of_a_language_model_are_declared_by_their_problems(declare):
    names = ["languagemodel_ptb10k", "sentiment_imdb_words"]
    problem = declare(kind="taskmixture", files=None, problems=names, max_input_length=100)
    assert problem.mixing_schedule == "0.5 0.5"
    assert problem.max_input_length == 100
    again = pickle.loads(pickle.dumps(problem.components[1]))
    assert again.full_name == f"{problem.name}__sentiment_imdb_words"
    assert again.task_settings == problem.components[1].task_settings


def test_problems_of_different_kinds_are_declared_with_their_models(declare):
    names = ["languagemodel_ptb10k", "intent_atis"]
    models = {names[0]: "lstm_lm/lstm_lm_ptb_cpu/stream_length=0"}
    problem = declare(kind="multi", files=None, problems=names, models=models)
    assert (problem.models, problem.mixing_schedule) == (models, "round_robin")
    assert problem.component("intent_atis").name == "intent_atis"
    with pytest.raises(RegistryError, match=r'"models": a mixture has no data of its own'):
        declare(kind="mixture", files=None, problems=names, schedule="1 1", models=models)


def test_a_saved_data_set_of_hugging_face_is_read(declare, samples, tmp_path):
    datasets = pytest.importorskip("datasets")
    labels = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    rows = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=labels)
    datasets.DatasetDict(train=rows, validation=rows).save_to_disk(str(tmp_path / "saved"))
    problem = declare(
        files={"train": "saved/train", "eval": "saved/validation"},
        fields={"inputs": "text", "targets": "label"},
    )
    assert samples(problem, Split.TRAIN) == [
        {"inputs": "a", "targets": "yes"},
        {"inputs": "b", "targets": "no"},
    ]
    assert all(path.is_file() for path in problem.raw_files(tmp_path))


def test_a_declared_query_is_known_by_its_text(declare, samples):
    rows = ["a,x,1", "b,y,0", "a,z,0"]
    text = "\n".join(["query,document,targets", *rows]) + "\n"
    files = {"train": "train.csv", "eval": "dev.csv"}
    problem = declare({"train.csv": text, "dev.csv": text}, kind="queryrelevance", files=files)
    feature = problem.weights()["targets_query"]
    ids = [feature.encode(one[feature.source]) for one in samples(problem, Split.EVAL)]
    assert ids[0] == ids[2] != ids[1]
    assert metric_names(problem, "targets")[0] == "query_map"
