"""Forms in which public data sets are published, each made small: what comes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.api import declare
from t2t_torch.declaration.draft import draft
from t2t_torch.declaration.problem import located
from t2t_torch.errors import DataError
from t2t_torch.readers.detection import detect_format

WORDS = "the red parcel came late and nobody at the desk could find my order again today".split()


def text(n: int) -> str:
    """A text of twelve words that no other number has."""
    return " ".join(WORDS[(n * k) % len(WORDS)] for k in range(1, 12)) + f" {n}"


TEXTS = [text(n) for n in range(60)]
LABELS = ["ab"[n % 2] for n in range(60)]
ROWS = [{"text": one, "label": label} for one, label in zip(TEXTS, LABELS, strict=True)]
CSV = "text,label\n" + "".join(f"{row['text']},{row['label']}\n" for row in ROWS)
QUESTIONS = "".join(f"is it number {n}, or not?\tit is {n}, I think.\n" for n in range(60))
WITH_SPANS = [
    {"id": n, "text": f"{one} in Lima", "found": [{"span": [len(one) + 4, len(one) + 8],
     "name": "Lima", "type": "place"}]}
    for n, one in enumerate(TEXTS)
]  # fmt: skip
TAGGED = "".join(f"{word} {'B-X' if n % 5 == 0 else 'O'}\n" for n, word in enumerate(WORDS))

FORMS: dict[str, tuple[dict[str, str | bytes], dict[str, Any]]] = {
    "a label with a list of its texts": (
        {"intents.json": json.dumps({"intents": [
            {"tag": tag, "patterns": TEXTS[k : k + 20], "responses": [tag], "context": [""]}
            for k, tag in ((0, "order"), (20, "delivery"), (40, "goodbye"))
        ]})},
        {"kind": "text2class", "fields": {"inputs": "text", "targets": "intent"}},
    ),
    "an object of rows by their keys": (
        {"rows.json": json.dumps({f"r_{n}": row for n, row in enumerate(ROWS)})},
        {"kind": "text2class", "fields": {"inputs": "text", "targets": "label"}},
    ),
    "spans of unknown keys, whose text stands there": (
        {"rows.json": json.dumps(WITH_SPANS)},
        {"kind": "text2tags", "format": "spans"},
    ),
    "labels in a file of their own": (
        {f"{split}_{what}.txt": "".join(f"{one}\n" for one in lines)
         for split in ("train", "val", "test")
         for what, lines in (("text", TEXTS), ("labels", LABELS))},
        {"kind": "text2class", "files": {
            split: {"inputs": f"{name}_text.txt", "targets": f"{name}_labels.txt"}
            for split, name in (("train", "train"), ("eval", "val"), ("test", "test"))
        }},
    ),
    "several files in a folder of each split": (
        {f"{split}/{name}_{split}.csv": CSV for split in ("train", "dev") for name in "xy"},
        {"kind": "text2class", "files": {"train": "train/*.csv", "eval": "dev/*.csv"}},
    ),
    "splits named as sets": (
        {f"Mail-{name}Set.csv": CSV for name in ("Training", "Validation", "Test")},
        {"files": {"train": "Mail-TrainingSet.csv", "eval": "Mail-ValidationSet.csv",
                   "test": "Mail-TestSet.csv"}},
    ),
    "a file beside one that is held out": (
        {"dataset.csv": CSV, "holdout.csv": CSV}, {"files": {
            "train": "dataset.csv", "test": "holdout.csv", "eval": {"rows": 12}}},
    ),
    "a file beside one that is held out, without labels": (
        {"dataset.csv": CSV, "holdout.csv": "text\n" + "".join(f"{one}\n" for one in TEXTS)},
        {"kind": "text2class", "files": {"train": "dataset.csv", "eval": {"rows": 12}}},
    ),
    "documents without blank lines": (
        {"train.tsv": "".join(f"-DOCSTART- -X- O O\n{TAGGED}" for _ in range(4))},
        {"kind": "text2tags", "format": "conll"},
    ),
    "bytes that no Windows code page has": (
        {"rows.csv": CSV.encode() + b"caf\xe9 na\xefve \x81 word,a\n" * 2},
        {"kind": "text2class", "options": {"encoding": "latin-1"}},
    ),
    "numbers of which some are missing": (
        {"tweets.csv": "text,score\n" + "".join(
            f"{one},{'Nan' if n % 9 == 0 else n * 7 % 60 / 64}\n" for n, one in enumerate(TEXTS)
        )},
        {"kind": "text2real", "fields": {"inputs": "text", "targets": "score"}},
    ),
    "splits in two formats": (
        {f"{split}.{ending}": content for split in ("train", "dev")
         for ending, content in (("csv", CSV), ("txt", "\n".join(TEXTS)))},
        {"kind": "text2class", "files": {"train": "train.csv", "eval": "dev.csv"}},
    ),
    "comments of a form of Rasa's": (
        {"train.conll": "".join(f"# intent: hello\n{TAGGED}\n" for _ in range(20))},
        {"kind": "text2tags"},
    ),
    "a tag on several rows": (
        {"intents.json": json.dumps({"intents": [
            {"tag": "ab"[n % 2], "patterns": TEXTS[10 * n : 10 * n + 10], "responses": ["so"]}
            for n in range(6)
        ]})},
        {"kind": "text2class", "fields": {"inputs": "text", "targets": "intent"}},
    ),
    "a column that names the splits": (
        {"all.csv": "text,label,set\n" + "".join(
            f"{row['text']},{row['label']},{'more' if n == 9 else ('Train', 'valid')[n // 2 % 2]}\n"
            for n, row in enumerate(ROWS)
        )},
        {"kind": "text2class", "fields": {"inputs": "text", "targets": "label"}, "files": {
            "train": {"path": "all.csv", "where": {"set": "Train"}},
            "eval": {"path": "all.csv", "where": {"set": "valid"}}}},
    ),
    "splits as keys, with rows that are lists": (
        {"data_full.json": json.dumps({
            name: [[row["text"], row["label"]] for row in ROWS[:k]]
            for k, name in ((20, "val"), (40, "train"), (21, "test"), (3, "oos_train"))
        })},
        {"kind": "text2class", "fields": {"inputs": "0", "targets": "1"}, "files": {
            split: {"path": "data_full.json", "where": {"_key": name}}
            for split, name in (("train", "train"), ("eval", "val"), ("test", "test"))}},
    ),
    "arrays below several keys": (
        {"faq.json": json.dumps({
            "bank": {"cards": [{"q": TEXTS[n], "a": TEXTS[n + 9]} for n in range(50)]},
            "shop": {"orders": [{"q": TEXTS[n], "a": TEXTS[n - 4]} for n in range(50)]},
        })},
        {"kind": "text2text", "options": {"records": "*.*"}},
    ),
    "a word on each row, and full stops": (
        {"ner.csv": "Word,Tag\n" + "".join(
            f"{word},{'B-X' if k % 5 == 0 else 'O'}\n"
            for one in TEXTS for k, word in enumerate((*one.split(), "."))
        )},
        {"kind": "text2tags", "options": {"word": "Word", "tag": "Tag", "full_stops": True}},
    ),
    "a file for each class": (
        {"names/Arabic.txt": "\n".join(TEXTS[:20]), "names/Greek.txt": "\n".join(TEXTS[20:50])},
        {"kind": "text2class", "format": "class_files", "files": {
            "train": "names", "eval": {"rows": 10}}},
    ),
    "a file for each class in the folder of each split": (
        {f"{split}/{name}.txt": "\n".join(TEXTS[k : k + 20]) for split in ("train", "test")
         for k, name in ((0, "pos"), (30, "neg"))},
        {"kind": "text2class", "files": {"train": "train", "eval": {"rows": 8}, "test": "test"},
         "options": {"files": {"neg": "neg.txt", "pos": "pos.txt"}}},
    ),
    "classes as endings, of as many lines": (
        {"rt-polarity.pos": "\n".join(TEXTS[:30]), "rt-polarity.neg": "\n".join(TEXTS[30:])},
        {"kind": "text2class",
         "options": {"files": {"neg": "rt-polarity.neg", "pos": "rt-polarity.pos"}}},
    ),
    "two languages, each in a file of its name": (
        {"Wolof.txt": "\n".join(TEXTS[:40]),
         "Arabic.txt": "\n".join(one[::-1] for one in TEXTS[:40])},
        {"kind": "text2text", "files": {
            "train": {"inputs": "Arabic.txt", "targets": "Wolof.txt"}, "eval": {"rows": 8}}},
    ),
    "two tables of which one is larger": (
        {"sentences.csv": "n,sentence\n" + "".join(f"{n},{text(n)}\n" for n in range(40)),
         "labelled.csv": CSV},
        {"kind": "text2class"},
    ),
    "numbered parts of splits": (
        {f"{split}-0{n}-of-02.csv": CSV for split, most in (("train", 2), ("dev", 1))
         for n in range(most)},
        {"files": {"train": "train-*-of-*.csv", "eval": "dev-00-of-02.csv"}},
    ),
    "more files of training than are for one split": (
        {"train.csv": CSV, "train-og.csv": CSV, "dev.csv": CSV, "labels.json": '["a", "b"]'},
        {"files": {"train": "train.csv", "eval": "dev.csv"}},
    ),
    "languages before the ending": (
        {f"{split}.{name}.txt": "\n".join(one[::step] for one in TEXTS)
         for split in ("train", "dev") for name, step in (("en", 1), ("yue", -1))},
        {"kind": "text2text", "files": {
            split: {"inputs": f"{name}.en.txt", "targets": f"{name}.yue.txt"}
            for split, name in (("train", "train"), ("eval", "dev"))}},
    ),
    "samples of one sentence beside the data": (
        {"train.txt": f"{TAGGED}\n" * 40,
         **{f"{split}_demo.txt": TAGGED for split in ("train", "dev", "test")}},
        {"kind": "text2tags", "files": {"train": "train.txt", "eval": {"rows": 8}}},
    ),
    "an index that pandas saved three times": (
        {"a.csv": ",Unnamed: 0,Unnamed: 0.1,text,label\n" + "".join(
            f"{n},{n},{n},{row['text']},{row['label']}\n" for n, row in enumerate(ROWS))},
        {"kind": "text2class", "fields": {"inputs": "text", "targets": "label"}},
    ),
    "words with tags of several parts": (
        {"a.txt": "".join(" ".join(
            f"{word}_{('NN', 'PREP+ART', 'PRO-KS', 'V')[k % 4]}"
            for k, word in enumerate(one.split()[:-1])
        ) + "\n" for one in TEXTS)},
        {"kind": "text2tags", "format": "tagged_words"},
    ),
    "samples and a test file of another name": (
        {"sample_10.csv": CSV, "sample_20.csv": CSV + CSV, "bert_test_data.csv": CSV,
         "names.json": '["a", "b"]'},
        {"kind": "text2class", "files": {"train": "sample_20.csv", "eval": {"rows": 24}}},
    ),
    "splits within words": (
        {"samplesVal.csv": CSV, "samplesTest.csv": CSV, "samplesTrain.csv": CSV},
        {"files": {"train": "samplesTrain.csv", "eval": "samplesVal.csv",
                   "test": "samplesTest.csv"}},
    ),
    "a table of ids beside the data of a split": (
        {"bird_dev.json": json.dumps(ROWS), "bird_test.json": json.dumps(ROWS),
         "db_ids.json": json.dumps({"a": "b"})},
        {"kind": "text2class", "files": {
            "train": "bird_dev.json", "eval": {"rows": 12}, "test": "bird_test.json"}},
    ),
    "numbers beside the rows": (
        {"a.json": json.dumps({"version": [2, 1], "rows": ROWS, "empty": []})},
        {"kind": "text2class", "options": {"records": "rows"}},
    ),
    "splits as keys of objects": (
        {"a.json": json.dumps({"train": {"rows": ROWS}, "val": {"rows": ROWS[:40]}})},
        {"kind": "text2class", "options": {"records": "*.rows"}, "files": {
            "train": {"path": "a.json", "where": {"_key": "train"}},
            "eval": {"path": "a.json", "where": {"_key": "val"}}}},
    ),
    "labels that are words of splits": (
        {"jobs.csv": "text,department\n" + "".join(
            f"{one},{('Training', 'Testing', 'Sales', 'Design')[n % 4]}\n"
            for n, one in enumerate(TEXTS)
        )},
        {"kind": "text2class", "fields": {"inputs": "text", "targets": "department"}},
    ),
    "a column of splits, of which few rows are for training": (
        {"a.csv": "text,label,split\n" + "".join(
            f"{text(n)},{'ab'[n % 2]},{'train' if n % 9 == 0 else 'test'}\n" for n in range(450)
        )},
        {"files": {"train": {"path": "a.csv", "where": {"split": "train"}}, "eval": {"rows": 10},
                   "test": {"path": "a.csv", "where": {"split": "test"}}}},
    ),
    "a column of splits, of which the test part has no labels": (
        {"a.csv": "text,label,split\n" + "".join(
            f"{one},{'ab'[n % 2] if n < 40 else '?'},{'train' if n < 40 else 'test'}\n"
            for n, one in enumerate(TEXTS)
        )},
        {"files": {"train": {"path": "a.csv", "where": {"split": "train"}}, "eval": {"rows": 8}}},
    ),
    "sources and targets of splits": (
        {f"{split}.{side}": "\n".join(one[::step] for one in TEXTS) for split in ("train", "val")
         for side, step in (("source", 1), ("target", -1))},
        {"kind": "text2text", "files": {
            split: {"inputs": f"{name}.source", "targets": f"{name}.target"}
            for split, name in (("train", "train"), ("eval", "val"))}},
    ),
    "files of classes that are no UTF-8": (
        {f"{name}.txt": "".join(f"caf\u00e9 {one}\n" for one in TEXTS[k : k + 30]).encode("cp1252")
         for k, name in ((0, "pos"), (30, "neg"))},
        {"kind": "text2class", "options": {
            "files": {"neg": "neg.txt", "pos": "pos.txt"}, "encoding": "cp1252"}},
    ),
    "names of labels beside texts and labels": (
        {"sentences.txt": "\n".join(TEXTS), "labels.txt": "\n".join(LABELS), "names.txt": "a\nb\n"},
        {"kind": "text2class", "files": {
            "train": {"inputs": "sentences.txt", "targets": "labels.txt"}, "eval": {"rows": 12}}},
    ),
    "parts of one document as answers": (
        {"qa.csv": "context,question,answer\n" + "".join(
            f"{' '.join(WORDS)},what is number {n}?,{' '.join(WORDS[n % 12 : n % 12 + 2])}\n"
            for n in range(60)
        )},
        {"kind": "spanqa"},
    ),
    "labels of many words": (
        {"replies.csv": "text,reply\n" + "".join(
            f"{text(n)},{('we are sorry to hear that and will refund it soon'.split() * 3)[n % 3]} "
            f"{' '.join(WORDS)}\n" for n in range(900)
        )},
        {"kind": "text2class", "fields": {"inputs": "text", "targets": "reply"}},
    ),
    "letters of choices": (
        {"quiz.jsonl": "".join(
            json.dumps({"problem": f"which of {n}?", "solution": f"{one} so {one}",
                        "answer": "abcde"[n % 5]}) + "\n" for n, one in enumerate(TEXTS)
        )},
        {"fields": {"inputs": "solution", "targets": "answer"}},
    ),
    "questions and answers without a header": (
        {"dialogs.txt": QUESTIONS}, {"kind": "text2text", "options": {"header": False}},
    ),
}  # fmt: skip


def written(folder: Path, files: dict[str, str | bytes]) -> Path:
    """The folder of some files, or the file if there is one."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder if len(files) > 1 else folder / next(iter(files))


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_detected(tmp_path: Path, form: str):
    files, expected = FORMS[form]
    made = draft(written(tmp_path, files)).content
    assert {key: made.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "content", "doubt"),
    [
        ("a.txt", "".join(f"{one}####{one}\n" for one in TEXTS), "lines hold '####'"),
        ("a.txt", "".join(f"call {{{{person: {one}}}}}\n" for one in TEXTS), "hold '{{person'"),
        ("a.txt", "".join(f"so <START> {one} <END> is\n" for one in TEXTS), "lines hold '<START>'"),
        ("a.jsonl", "".join(json.dumps({**row, "more": [{"x": "y"}]}) + "\n" for row in ROWS),
         "'more' holds lists of objects"),
        ("a.jsonl", "".join(json.dumps({**row, "more": TEXTS[:2]}) + "\n" for row in ROWS),
         "'more' holds lists of texts"),
        ("a.csv", CSV + "".join(f"{one},x,y\n" for one in TEXTS), "rows that cannot be read: 60"),
    ],
)  # fmt: skip
def test_what_may_be_wrong_is_said(tmp_path: Path, name: str, content: str, doubt: str):
    assert any(doubt in one for one in draft(written(tmp_path, {name: content})).doubts)


def test_references_that_are_not_used_are_named(tmp_path: Path):
    names = ["training.ta-en.en", "training.ta-en.ta", "dev.ta-en.en.0", "dev.ta-en.en.1"]
    folder = written(tmp_path, {name: "".join(f"{one}\n" for one in TEXTS) for name in names})
    assert any("dev.ta-en.en.0" in one for one in draft(folder / names[0]).doubts)


def test_a_text_that_begins_with_a_bracket_is_no_tree(tmp_path: Path):
    path = written(tmp_path, {"news.txt": "(Reuters) - " + "\n".join(TEXTS) + "\n"})
    assert draft(path).content["kind"] == "text2self"


def test_chinese_sentences_are_no_two_languages(tmp_path: Path):
    rows = [
        f"我今天去北京第{n}次看朋友\t我今天又去北京第{n}次看朋友了\t{n % 2}\n" for n in range(60)
    ]
    made = draft(written(tmp_path, {"pairs.tsv": "".join(rows)}))
    assert made.content["kind"] == "textpair2class"


def test_offsets_of_words_are_no_spans(tmp_path: Path):
    rows = [{**row, "found": [{"name": "parcel", "start": 2, "stop": 2}]} for row in ROWS]
    made = draft(written(tmp_path, {"rows.json": json.dumps(rows)}))
    assert made.content["kind"] == "text2class"


def test_without_a_training_split_dev_is_used_and_said(tmp_path: Path):
    found = draft(written(tmp_path, {"dev.csv": CSV, "test.csv": CSV}))
    assert found.content["files"] == {"train": "dev.csv", "eval": {"rows": 12}, "test": "test.csv"}
    assert "dev.csv is read for training" in found.doubts[0]
    (tmp_path / "test.json").write_text("[]")
    with pytest.raises(DataError, match="not clear what is to be learnt from"):
        draft(tmp_path)


NOT_INTENTS = {
    "tokens with tags": [
        {"id": f"s{n}", "tokens": one.split(), "tags": ["B-X" if n % 2 else "O"] * len(one.split())}
        for n, one in enumerate(TEXTS)
    ],
    "dialogues with a label": [
        {"id": f"d{n}", "turns": TEXTS[n : n + 3], "domain": LABELS[n]} for n in range(40)
    ],
    "documents by title": [{"title": f"Page {n}", "lines": TEXTS[n : n + 4]} for n in range(40)],
    "a row that is none": [*ROWS, None],
}


@pytest.mark.parametrize("name", NOT_INTENTS)
def test_rows_with_a_list_are_no_intents(tmp_path: Path, name: str):
    path = written(tmp_path, {"rows.json": json.dumps({"data": NOT_INTENTS[name]})})
    assert draft(path).content["format"] == "json"


@pytest.mark.parametrize(
    "more",
    [{"name": "votes", "up": 3, "down": 9}, {"url": "http://a.b", "start": 3, "end": 9}, {"w": 1}],
)
def test_objects_with_numbers_are_no_spans(tmp_path: Path, more: dict[str, Any]):
    rows = [{**row, "more": [more]} for row in ROWS]
    made = draft(written(tmp_path, {"rows.json": json.dumps(rows)})).content
    assert made["kind"] == "text2class" and made["fields"]["targets"] == "label"


@pytest.mark.parametrize(
    "files",
    [
        {"classes.txt": "a\nb\n", "dev.csv": CSV, "test.csv": CSV},
        {f"{split}/{split}{n}.txt": "\n".join(TEXTS) for split in ("train", "dev") for n in "ab"},
    ],
)
def test_folders_that_are_not_clear_are_refused(tmp_path: Path, files: dict[str, str]):
    with pytest.raises(DataError, match=r"not clear what is to be learnt from|has one class"):
        draft(written(tmp_path, {**files}))


@pytest.mark.parametrize("encoding", ["cp850", "cp437", "shift-jis"])
def test_other_encodings_are_refused(tmp_path: Path, encoding: str):
    word = "日本、東京。" if encoding == "shift-jis" else "müde café"
    rows = "".join(f"{one} {word},a\n" for one in TEXTS).encode(encoding)
    with pytest.raises(DataError, match="its encoding is not clear"):
        draft(written(tmp_path, {"rows.csv": b"text,label\n" + rows}))


@pytest.mark.parametrize("name", ["piano_tuning.csv", "course_evaluation.csv"])
def test_a_word_of_a_name_is_no_split(tmp_path: Path, name: str):
    made = draft(written(tmp_path, {name: CSV, "other.csv": CSV})).content
    assert made["files"]["train"] == "*.csv"


def test_the_command_of_a_refusal_names_the_file(tmp_path: Path):
    path = written(tmp_path, {"MY_FILE.csv": b"PK\x03\x04" + bytes(100)})
    with pytest.raises(DataError) as refused:
        detect_format(path)
    assert str(refused.value).count(str(path)) == 2


@pytest.mark.parametrize("form", ["a file for each class", "numbered parts of splits"])
def test_a_draft_of_a_folder_in_a_folder_is_of_files_that_are_there(tmp_path: Path, form: str):
    written(tmp_path / "top" / "data", FORMS[form][0])
    files = declare(tmp_path / "top")["files"]
    assert files["train"].startswith(str(tmp_path.resolve()))


def test_values_of_a_column_are_no_paths(tmp_path: Path):
    (tmp_path / "train").mkdir()
    path = written(tmp_path, {"a.csv": CSV})
    where = {"path": "a.csv", "where": {"split": "train"}}
    assert located(where, tmp_path) == {"path": str(path.resolve()), "where": {"split": "train"}}
