"""Sixty files as Kaggle, pandas, annotation tools and Hugging Face write them, and their drafts."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from t2t_torch.bin.commands import datagen
from t2t_torch.data.manifest import Manifest
from t2t_torch.features.audio import wav_of

pytestmark = pytest.mark.usefixtures("own_registry")

DRAW = random.Random(5)
SUBJECTS = "the phone,my order,this film,the hotel,our flight,the battery,the service".split(",")
VERBS = "arrived late,works well,broke twice,was a pleasant surprise,never came,cost too much"
ENDS = "and nobody answered,but the staff helped,so I want a refund,after two weeks,in Boston"
WORST = "Nos équipes à Zürich – déçues, 20 € perdus"


def text(n: int) -> str:
    parts = [DRAW.choice(part) for part in (SUBJECTS, VERBS.split(","), ENDS.split(","))]
    return f"{' '.join(parts)}, case {n}."


TEXTS = [text(n) for n in range(240)]
SECOND = [f"Reply: {text(n)}" for n in range(240)]
FEELINGS = [DRAW.choice(("positive", "negative", "neutral")) for _ in TEXTS]
BINARY = [DRAW.choice("01") for _ in TEXTS]
STARS = [DRAW.choice("12345") for _ in TEXTS]
PRICES = [f"{DRAW.uniform(3, 900):.2f}" for _ in TEXTS]
DATES = [f"2023-{DRAW.randint(1, 12):02}-{DRAW.randint(1, 28):02} 10:15:00" for _ in TEXTS]
IDS = [f"{1000 + n}" for n in range(len(TEXTS))]


def table(*, delimiter: str = ",", end: str = "\n", quote: int = csv.QUOTE_MINIMAL, **columns: Any):
    """Returns a table as the csv module writes it; "_" is a column without a name."""
    made = io.StringIO()
    writer = csv.writer(made, delimiter=delimiter, lineterminator=end, quoting=quote)
    writer.writerow(["" if name == "_" else name.replace("__", " ") for name in columns])
    writer.writerows(zip(*columns.values(), strict=False))
    return made.getvalue()


def rows(**columns: Iterable[Any]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=False)) for row in zip(*columns.values(), strict=False)]


def lines(objects: Iterable[Any]) -> str:
    return "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in objects)


def headless(delimiter: str, *columns: Iterable[str]) -> str:
    return "".join(f"{delimiter.join(row)}\n" for row in zip(*columns, strict=False))


# Spans, by tools.

CITIES = ("Boston", "New York", "Denver", "San Francisco")
PEOPLE = ("Ana Lima", "Bob", "Chen Wei")


def spans_of(n: int) -> tuple[str, list[tuple[int, int, str]]]:
    person, city = PEOPLE[n % 3], CITIES[n % 4]
    said = f"On day {n}, {person} flew to {city}."
    places = [(said.index(person), person, "PERSON"), (said.index(city), city, "GPE")]
    return said, [(start, start + len(name), label) for start, name, label in places]


SPANS = [spans_of(n) for n in range(80)]


def prodigy() -> str:
    return lines(
        {
            "text": said,
            "_input_hash": 100 + n,
            "_task_hash": -n,
            "spans": [{"start": s, "end": e, "label": tag} for s, e, tag in spans],
            "_session_id": None,
            "_view_id": "ner_manual",
            "answer": "reject" if n % 10 == 9 else "accept",
        }
        for n, (said, spans) in enumerate(SPANS)
    )


def label_studio() -> str:
    def result(said: str, span: tuple[int, int, str], n: int) -> dict[str, Any]:
        start, end, tag = span
        value = {"start": start, "end": end, "text": said[start:end], "labels": [tag]}
        names = {"id": f"x{n}", "from_name": "label", "to_name": "text", "type": "labels"}
        return {"value": value, **names, "origin": "manual"}

    tasks = []
    for n, (said, spans) in enumerate(SPANS):
        results = [result(said, span, n) for span in spans]
        done = {"id": n + 5, "completed_by": 1, "result": results, "was_cancelled": False}
        task = {"id": n, "annotations": [done], "predictions": [], "data": {"text": said}}
        tasks.append({**task, "meta": {}, "created_at": "2023-05-04T10:00:00Z", "project": 3})
    return json.dumps(tasks)


def label_studio_min() -> str:
    return json.dumps(
        [
            {
                "text": said,
                "id": n,
                "label": [
                    {"start": s, "end": e, "text": said[s:e], "labels": [tag]} for s, e, tag in held
                ],
                "annotator": 1,
                "annotation_id": n,
                "created_at": "2023-05-04T10:00:00Z",
                "lead_time": 4.288,
            }
            for n, (said, held) in enumerate(SPANS)
        ]
    )


def label_studio_choices() -> str:
    return json.dumps(
        [
            {
                "id": n,
                "data": {"text": said},
                "annotations": [
                    {
                        "id": n,
                        "result": [
                            {
                                "value": {"choices": [feeling]},
                                "from_name": "sentiment",
                                "to_name": "text",
                                "type": "choices",
                            }
                        ],
                    }
                ],
            }
            for n, (said, feeling) in enumerate(zip(TEXTS, FEELINGS, strict=True))
        ]
    )


def cut_spans() -> str:
    """Spans of which some end within a word, as annotators leave them."""
    moved = [(said, [[s, e - (n % 8 == 0), tag] for s, e, tag in held]) for n, (said, held) in
             enumerate(SPANS)]  # fmt: skip
    return lines({"id": n, "text": said, "label": held} for n, (said, held) in enumerate(moved))


# Folders, spreadsheets, Hugging Face data sets.


def class_folders(folder: Path, *names: str, ending: str = ".txt", count: int = 30) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)
        for n in range(count):
            (folder / name / f"{n}_7{ending}").write_text(f"{name} {TEXTS[n]}<br />\nEnd.", "utf-8")


def imdb(folder: Path) -> Path:
    for split in ("train", "test"):
        class_folders(folder / "aclImdb" / split, "pos", "neg")
    class_folders(folder / "aclImdb" / "train", "unsup")
    (folder / "aclImdb" / "imdb.vocab").write_text("the\n")
    (folder / "aclImdb" / "README").write_text("Large Movie Review Dataset\n")
    return folder / "aclImdb"


def movie_reviews(folder: Path) -> Path:
    class_folders(folder / "txt_sentoken", "pos", "neg")
    return folder / "txt_sentoken"


def images(folder: Path) -> Path:
    pictures = pytest.importorskip("PIL.Image")
    for name in ("cat", "dog"):
        (folder / "pets" / name).mkdir(parents=True)
        for n in range(20):
            picture = pictures.new("RGB", (16, 16), (n, 9, 200 if name == "cat" else 0))
            picture.save(folder / "pets" / name / f"{name}.{n}.png")
    return folder / "pets"


def audio(folder: Path) -> Path:
    for name in ("yes", "no"):
        (folder / "commands" / name).mkdir(parents=True)
        for n in range(30):
            samples = np.full(400 + n, 9 if name == "yes" else n, np.int16)
            (folder / "commands" / name / f"{n}.wav").write_bytes(wav_of(samples, 11025))
    return folder / "commands"


def parallel(folder: Path) -> Path:
    made = folder / "multi"
    made.mkdir()
    for split, start in (("train", 0), ("valid", 100), ("test", 160)):
        (made / f"{split}.en").write_text("".join(f"{t}\n" for t in TEXTS[start : start + 60]))
        (made / f"{split}.de").write_text("".join(f"{t}\n" for t in SECOND[start : start + 60]))
    return made


def glue(folder: Path) -> Path:
    made = folder / "SST-2"
    made.mkdir()
    for split in ("train", "dev"):
        (made / f"{split}.tsv").write_text(table(delimiter="\t", sentence=TEXTS, label=BINARY))
    (made / "test.tsv").write_text(table(delimiter="\t", index=IDS, sentence=TEXTS))
    return made


def splits(folder: Path) -> Path:
    made = folder / "emotions"
    made.mkdir()
    for split, part in (("training", TEXTS), ("validation", TEXTS[:40]), ("test", TEXTS[40:80])):
        (made / f"{split}.csv").write_text(table(text=part, label=FEELINGS))
    (made / "README.md").write_text("# Emotions\n")
    return made


def atis(folder: Path) -> Path:
    for split in ("train", "valid"):
        made = folder / "atis" / split
        made.mkdir(parents=True)
        (made / "seq.in").write_text("flights from boston\nfares to denver\n" * 30)
        (made / "seq.out").write_text("O O B-city\nO O B-city\n" * 30)
        (made / "label").write_text("flight\nfare\n" * 30)
    return folder / "atis"


def labelled_rows(classes: Any) -> Any:
    datasets = pytest.importorskip("datasets")
    kinds = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=classes)}
    columns = {"text": TEXTS, "label": [int(one) for one in BINARY]}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))


def saved(folder: Path) -> Path:
    labelled_rows(["neg", "pos"]).save_to_disk(folder / "reviews")
    return folder / "reviews"


def saved_splits(folder: Path) -> Path:
    datasets = pytest.importorskip("datasets")
    all_rows = labelled_rows(["neg", "pos"])
    parts = {"train": all_rows, "validation": all_rows.select(range(30))}
    datasets.DatasetDict(parts).save_to_disk(folder / "reviews")
    return folder / "reviews"


def hub(folder: Path) -> Path:
    data = folder / "rotten" / "data"
    data.mkdir(parents=True)
    all_rows = labelled_rows(["neg", "pos"])
    for split in ("train", "validation", "test"):
        all_rows.to_parquet(data / f"{split}-00000-of-00001.parquet")
    (data.parent / "README.md").write_text("---\nlicense: mit\n---\n# Rotten\n")
    return data.parent


def excel(folder: Path) -> Path:
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.title = "Notes"
    sheet = book.create_sheet("Tickets")
    sheet.append(["id", "ticket", "queue", "opened"])
    for n, said in enumerate(TEXTS):
        sheet.append([n, said, FEELINGS[n], DATES[n]])
    book.save(folder / "tickets.xlsx")
    return folder / "tickets.xlsx"


REVIEWS = table(review=TEXTS, sentiment=FEELINGS)


def packed(how: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / how
        raw = REVIEWS.encode()
        if how.endswith(".zip"):
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("reviews.csv", raw)
        elif how.endswith(".tar.gz"):
            inner = folder / "inner"
            movie_reviews(inner)
            with tarfile.open(path, "w:gz") as archive:
                archive.add(inner / "txt_sentoken", "txt_sentoken")
        else:
            pack = {"bz2": bz2.compress, ".xz": lzma.compress, ".gz": gzip.compress}[how[-3:]]
            path.write_bytes(pack(raw))
        return path

    return write


class Case(NamedTuple):
    """A file, and the draft that is right for it."""

    write: str | bytes | Callable[[Path], Path]
    kind: str = ""
    fields: Mapping[str, Any] = {}
    said: str = ""
    """Text that has to be printed; for a file without a kind, of the error."""
    options: Mapping[str, Any] = {}
    files: Mapping[str, Any] = {}


REVIEW = {"inputs": "review", "targets": "sentiment"}
LABELLED = {"inputs": "text", "targets": "label"}
TAGS = {"inputs": "words", "targets": "tags"}
TYPOS = ["bug", "Bug", "bug ", "bugg", "feature", "Feature request", "features"]

CASES: dict[str, Case] = {
    # Tables.
    "imdb_kaggle.csv": Case(REVIEWS, "text2class", REVIEW),
    "lines_in_cells.csv": Case(
        table(review=[f'{t}\n\nHe said "no",\nthen left.' for t in TEXTS], sentiment=FEELINGS),
        "text2class", REVIEW,
    ),
    "semicolons.csv": Case(
        table(delimiter=";", Bemerkung=TEXTS, Preis=[p.replace(".", ",") for p in PRICES]),
        "text2real", {"inputs": "Bemerkung", "targets": "Preis"}, options={"decimal": ","},
    ),
    "semicolons_label.csv": Case(
        table(delimiter=";", Kommentar=TEXTS, Kategorie=FEELINGS, end="\r\n"),
        "text2class", {"inputs": "Kommentar", "targets": "Kategorie"}, options={"delimiter": ";"},
    ),
    "pandas_index.csv": Case(
        table(_=[str(n) for n in range(240)], text=TEXTS, label=FEELINGS), "text2class", LABELLED
    ),
    "dates_and_ids.csv": Case(
        table(tweet_id=IDS, created_at=DATES, user=IDS[::-1], text=TEXTS,
              airline_sentiment=FEELINGS),
        "text2class", {"inputs": "text", "targets": "airline_sentiment"},
    ),
    "price.csv": Case(
        table(id=IDS, description=TEXTS, price=PRICES), "text2real",
        {"inputs": "description", "targets": "price"},
    ),
    "whole_prices.csv": Case(
        table(title=TEXTS, price=[p[:-3] for p in PRICES]), "text2real",
        {"inputs": "title", "targets": "price"},
    ),
    "essay_score.tsv": Case(
        table(delimiter="\t", essay_id=IDS, essay=TEXTS,
              score=[f"{float(p) / 90:.1f}" for p in PRICES]),
        "text2real", {"inputs": "essay", "targets": "score"},
    ),
    "stars.csv": Case(
        table(review=TEXTS, stars=STARS), "text2class", {"inputs": "review", "targets": "stars"},
        '"kind": "text2real"',
    ),
    "amazon.csv": Case(
        table(
            Id=IDS, ProductId=[f"B00{n % 9}X" for n in range(240)], UserId=[f"A{n}" for n in IDS],
            ProfileName=[f"name {n}" for n in IDS], HelpfulnessNumerator=BINARY,
            HelpfulnessDenominator=STARS[::-1], Score=STARS, Time=[f"13{n}86{n}" for n in IDS],
            Summary=[t.split(",")[0] for t in TEXTS], Text=TEXTS,
        ),
        "text2class", {"inputs": ["Summary", "Text"], "targets": "Score"}, '"kind": "text2real"',
    ),
    "few_rows.csv": Case(
        table(text=TEXTS[:6], label=["bug", "feature", "bug", "other", "question", "bug"]),
        "text2class", LABELLED,
    ),
    "few_intents.csv": Case(
        table(utterance=TEXTS[:12], intent=[f"intent_{n % 7}" for n in range(12)]), "text2class",
        {"inputs": "utterance", "targets": "intent"},
    ),
    "no_header.csv": Case(
        headless(",", (t.replace(",", " ") for t in TEXTS), FEELINGS), "text2class",
        {"inputs": "0", "targets": "1"}, options={"header": False},
    ),
    "sentiment140.csv": Case(
        headless(",", *([f'"{one}"' for one in column] for column in (
            [DRAW.choice("04") for _ in TEXTS], IDS, ["Mon Apr 06 22:19:45 PDT 2009"] * 240,
            ["NO_QUERY"] * 240, [f"user{n}" for n in IDS], TEXTS))),
        "text2class", {"inputs": "5", "targets": "0"}, options={"header": False},
    ),
    "header_twice.csv": Case(
        table(text=TEXTS[:90], label=FEELINGS) + table(text=TEXTS[90:], label=FEELINGS),
        "text2class", LABELLED, "header",
    ),
    "tabs.txt": Case(table(delimiter="\t", text=TEXTS, label=FEELINGS), "text2class", LABELLED),
    "sms_collection": Case(
        headless("\t", (("ham", "spam")[int(b)] for b in BINARY), TEXTS), "text2class",
        {"inputs": "1", "targets": "0"}, options={"header": False},
    ),
    "bom_windows.csv": Case(
        b"\xef\xbb\xbf" + table(text=TEXTS, label=FEELINGS, end="\r\n").encode(), "text2class",
        LABELLED,
    ),
    "ragged.csv": Case(
        table(text=TEXTS, label=FEELINGS) + "only one field\na,b,c,d\n", "text2class", LABELLED,
        "--on_bad_record=skip",
    ),
    "spam_latin1.csv": Case(
        b"v1,v2,,,\n" + "".join(
            f'{("ham", "spam")[int(b)]},"{t} £50 – now",,,\n'
            for b, t in zip(BINARY, TEXTS, strict=True)
        ).encode("cp1252"),
        "text2class", {"inputs": "v2", "targets": "v1"}, "cp1252",
        options={"encoding": "cp1252"},
    ),
    "quora.csv": Case(
        table(id=IDS, qid1=IDS, qid2=IDS[::-1], question1=TEXTS, question2=SECOND,
              is_duplicate=BINARY),
        "textpair2class", {"first": "question1", "second": "question2", "targets": "is_duplicate"},
    ),
    "news.csv": Case(
        table(title=[t.split(",")[0] for t in TEXTS], text=TEXTS, subject=FEELINGS, date=DATES),
        "text2class", {"inputs": ["title", "text"], "targets": "subject"},
    ),
    "summaries.csv": Case(
        table(id=IDS, article=[f"{t} {s}" for t, s in zip(TEXTS, SECOND, strict=True)],
              highlights=TEXTS),
        "text2text", {"inputs": "article", "targets": "highlights"},
    ),
    "ner_words.csv": Case(
        table(Sentence__number=[f"Sentence: {n // 8}" if n % 8 == 0 else "" for n in range(240)],
              Word=("On day ten Bob flew to Boston .".split() * 30),
              POS=("IN NN CD NNP VBD TO NNP .".split() * 30),
              Tag=("O O O B-per O O B-geo O".split() * 30)),
        "text2tags", {"inputs": "words", "targets": "tags"}, "one word",
        options={"word": "Word", "tag": "Tag", "sentence": "Sentence number"},
    ),
    # JSON.
    "array.json": Case(json.dumps(rows(text=TEXTS, label=FEELINGS)), "text2class", LABELLED),
    "pretty.json": Case(
        json.dumps(rows(review=TEXTS, stars=[int(s) for s in STARS]), indent=2), "text2class",
        {"inputs": "review", "targets": "stars"}, '"kind": "text2real"',
    ),
    "list_inside.json": Case(
        json.dumps({"version": "1.0", "data": rows(text=TEXTS, label=FEELINGS)}, indent=1),
        "text2class", LABELLED, options={"records": "data"},
    ),
    "pandas_columns.json": Case(
        json.dumps({"text": dict(zip(map(str, IDS), TEXTS, strict=True)),
                    "label": dict(zip(map(str, IDS), FEELINGS, strict=True))}),
        "text2class", LABELLED,
    ),
    "pandas_index.json": Case(
        json.dumps({str(n): row for n, row in enumerate(rows(text=TEXTS, label=FEELINGS))}),
        "text2class", LABELLED,
    ),
    "pandas_split.json": Case(
        json.dumps({"columns": ["text", "label"], "index": list(IDS),
                    "data": [list(row) for row in zip(TEXTS, FEELINGS, strict=True)]}, indent=1),
        "text2class", LABELLED,
    ),
    "to_dict.json": Case(
        json.dumps({"text": list(TEXTS), "label": list(FEELINGS)}), "text2class", LABELLED
    ),
    "rasa.json": Case(
        json.dumps({"rasa_nlu_data": {"common_examples": rows(text=TEXTS, intent=FEELINGS)}}),
        "text2class", {"inputs": "text", "targets": "intent"},
    ),
    "alpaca.json": Case(
        json.dumps(rows(instruction=TEXTS, input=[""] * 200 + TEXTS[:40], output=SECOND)),
        "text2text", {"inputs": ["instruction", "input"], "targets": "output"},
    ),
    "yelp.jsonl": Case(
        lines(rows(review_id=[f"x{n}Y-" for n in IDS], user_id=[f"u{n}" for n in IDS],
                   stars=[float(s) for s in STARS], useful=[int(s) for s in STARS[::-1]],
                   text=TEXTS, date=DATES)),
        "text2class", {"inputs": "text", "targets": "stars"}, '"kind": "text2real"',
    ),
    "news_category.json": Case(
        lines(rows(category=[f.upper() for f in FEELINGS], headline=TEXTS,
                   authors=[f"Ana {n}" for n in IDS], link=[f"https://x.org/{n}" for n in IDS],
                   short_description=SECOND, date=DATES)),
        "text2class", {"inputs": ["headline", "short_description"], "targets": "category"},
    ),
    "snli.jsonl": Case(
        lines(rows(annotator_labels=[[f] * 5 for f in FEELINGS],
                   captionID=[f"{n}.jpg#1" for n in IDS],
                   gold_label=FEELINGS, pairID=[f"{n}.jpg#1r1c" for n in IDS], sentence1=TEXTS,
                   sentence2=SECOND)),
        "textpair2class", {"first": "sentence1", "second": "sentence2", "targets": "gold_label"},
    ),
    "nested.jsonl": Case(
        lines({"id": n, "data": {"text": t, "meta": {"lang": "en"}}, "annotation": {"label": f}}
              for n, t, f in zip(IDS, TEXTS, FEELINGS, strict=True)),
        "text2class", {"inputs": "data.text", "targets": "annotation.label"},
    ),
    "opus.jsonl": Case(
        lines({"translation": {"en": t, "de": s}} for t, s in zip(TEXTS, SECOND, strict=True)),
        "text2text", {"inputs": "translation.en", "targets": "translation.de"},
    ),
    "lists_of_words.jsonl": Case(
        lines({"id": n, "tokens": s.split(), "ner_tags": ["B-x", *["O"] * (len(s.split()) - 1)]}
              for n, s in zip(IDS, TEXTS, strict=True)),
        "text2tags", {"inputs": "tokens", "targets": "ner_tags"},
    ),
    # Spans.
    "prodigy.jsonl": Case(prodigy(), "text2tags", TAGS, "answer"),
    "spacy.json": Case(
        json.dumps([[said, {"entities": held}] for said, held in SPANS]), "text2tags", TAGS
    ),
    "spacy_annotator.json": Case(
        json.dumps({"classes": ["PERSON", "GPE"],
                    "annotations": [[said, {"entities": held}] for said, held in SPANS]}),
        "text2tags", TAGS,
    ),
    "label_studio.json": Case(label_studio(), "text2tags", TAGS),
    "label_studio_min.json": Case(label_studio_min(), "text2tags", TAGS),
    "label_studio_choices.json": Case(
        label_studio_choices(), "text2class", {"inputs": "text", "targets": "label"}
    ),
    "doccano.jsonl": Case(
        cut_spans(), "text2tags", TAGS, "20 of 160",
    ),
    "doccano_relations.jsonl": Case(
        lines({"id": n, "text": said, "relations": [], "Comments": [], "entities": [
            {"id": n * 9 + i, "label": tag, "start_offset": s, "end_offset": e}
            for i, (s, e, tag) in enumerate(held)]} for n, (said, held) in enumerate(SPANS)),
        "text2tags", TAGS,
    ),
    "doccano_classes.jsonl": Case(
        lines({"id": n, "text": t, "label": [f]}
              for n, t, f in zip(IDS, TEXTS, FEELINGS, strict=True)),
        "text2class", LABELLED,
    ),
    # Encodings.
    "excel_unicode.txt": Case(
        table(delimiter="\t", text=[f"{t} {WORST}" for t in TEXTS], label=FEELINGS,
              end="\r\n").encode("utf-16"),
        "text2class", LABELLED, "UTF-16", options={"encoding": "utf-16"},
    ),
    "big_endian.csv": Case(
        b"\xfe\xff"
        + table(text=[f"{t} {WORST}" for t in TEXTS], label=FEELINGS).encode("utf-16-be"),
        "text2class", LABELLED, "UTF-16", options={"encoding": "utf-16"},
    ),
    "cyrillic.csv": Case(
        table(text=[f"Очень хороший фильм, смотрел {n} раз" for n in range(200)],
              label=FEELINGS).encode("cp1251"),
        "", {}, "encoding",
    ),
    # Folders and archives.
    "imdb": Case(imdb, "text2class", LABELLED, "unsup", files={"train": "train", "test": "test"}),
    "movie_reviews": Case(movie_reviews, "text2class", LABELLED),
    "images": Case(images, "image2class", {"inputs": "image", "targets": "label"}),
    "audio": Case(audio, "audio2class", {}),
    "parallel": Case(
        parallel, "text2text", {},
        files={"eval": {"inputs": "valid.de", "targets": "valid.en"}},
    ),
    "glue": Case(glue, "text2class", {"inputs": "sentence", "targets": "label"}, "test.tsv",
                 files={"train": "train.tsv", "eval": "dev.tsv"}),
    "splits": Case(splits, "text2class", LABELLED,
                   files={"train": "training.csv", "eval": "validation.csv", "test": "test.csv"}),
    "atis": Case(atis, "intentslot"),
    "saved": Case(saved, "text2class", LABELLED),
    "saved_splits": Case(saved_splits, "text2class", LABELLED,
                         files={"train": "train", "eval": "validation"}),
    "hub": Case(hub, "text2class", LABELLED,
                files={"train": "train-00000-of-00001.parquet"}),
    "excel": Case(excel, "text2class", {"inputs": "ticket", "targets": "queue"}, "Tickets"),
    "reviews.zip": Case(packed("reviews.zip"), "text2class", REVIEW),
    "reviews.tar.gz": Case(packed("reviews.tar.gz"), "text2class", LABELLED),
    "reviews.csv.gz": Case(packed("reviews.csv.gz"), "text2class", REVIEW),
    "reviews.csv.bz2": Case(packed("reviews.csv.bz2"), "text2class", REVIEW),
    "reviews.csv.xz": Case(packed("reviews.csv.xz"), "text2class", REVIEW),
    # Hostile files.
    "empty.csv": Case("", "", {}, "is empty"),
    "only_header.csv": Case("text,label\n", "", {}, "no row but the first"),
    "one_row.csv": Case("text,label\nthe phone broke twice,bad\n", "text2class", LABELLED,
                        "one label"),
    "binary.csv": Case(random.Random(1).randbytes(4000), "", {}, "is no text"),
    "wide.csv": Case(
        table(**{f"f{n}": PRICES[n:] + PRICES[:n] for n in range(98)}, text=TEXTS, target=FEELINGS),
        "text2class", {"inputs": "text", "targets": "target"},
    ),
    "all_distinct.csv": Case(
        table(text=TEXTS, label=[f"label{n}x" for n in IDS]), "text2self", {"targets": "text"},
        "all values differ",
    ),
    "constant.csv": Case(
        table(text=TEXTS, label=FEELINGS, source=["web"] * 240, lang=["en"] * 240), "text2class",
        LABELLED, "'web' in every row",
    ),
    "label_first.csv": Case(
        table(label=FEELINGS, text=TEXTS), "text2class", LABELLED,
    ),
    "typos.csv": Case(
        table(text=TEXTS, label=[TYPOS[n % 7] for n in range(240)]), "text2class", LABELLED,
        "'bug'",
    ),
    "mixed_types.csv": Case(
        table(text=[*TEXTS[:200], *map(str, range(40))],
              label=[*FEELINGS[:200], *["1"] * 20, *[""] * 20]),
        "text2class", LABELLED, "column 'label' is empty in 20 of 240 rows",
    ),
}  # fmt: skip


def written(name: str, folder: Path) -> Path:
    content = CASES[name].write
    if callable(content):
        return content(folder)
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def fault(name: str, path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Declares a file; returns how the draft differs from the right one, or nothing."""
    case = CASES[name]
    capsys.readouterr()
    try:
        code = datagen.main([f"--declare={path}"])
    except Exception as error:
        return f"CRASH {type(error).__name__}: {error}"
    printed = capsys.readouterr()
    if not case.kind:
        good = code == 2 and case.said in printed.err
        return "" if good else f"refusal with {case.said!r} expected: {printed.out}{printed.err}"
    if code:
        return f"refused: {printed.err}"
    made = json.loads(printed.out)
    fields = made.get("fields", {})
    wrong = [made["kind"]] if made["kind"] != case.kind else []
    wrong += [f"fields {fields}"] if case.fields and fields != case.fields else []
    for key, right in (("options", case.options), ("files", case.files)):
        held = made.get(key, {})
        wrong += [f"{key}.{k} {held.get(k)}" for k, v in right.items() if held.get(k) != v]
    wrong += [f"not said: {case.said}"] if case.said not in printed.err else []
    return "; ".join(wrong) + (f"\n{printed.err}" if wrong else "")


@pytest.mark.parametrize("name", CASES)
def test_the_draft_is_right(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fault(name, written(name, tmp_path), capsys) == ""


def test_there_are_more_than_sixty_files() -> None:
    assert len(CASES) >= 60


GENERATED = (
    "semicolons.csv header_twice.csv spam_latin1.csv list_inside.json alpaca.json prodigy.jsonl "
    "label_studio.json label_studio_choices.json doccano.jsonl excel_unicode.txt imdb images glue "
    "saved_splits hub excel reviews.zip reviews.tar.gz reviews.csv.xz yelp.jsonl"
).split()


@pytest.mark.sample(7)
@pytest.mark.parametrize("name", GENERATED)
def test_a_draft_generates_data(name: str, tmp_path: Path, capsys) -> None:
    path = written(name, tmp_path)
    target = tmp_path / "declared" / "it.json"
    assert datagen.main([f"--declare={path}", f"--declare_to={target}"]) == 0
    said = capsys.readouterr().err
    command = next(line for line in said.splitlines() if line.startswith("  t2t-datagen ")).split()
    arguments = [one for one in command[1:] if not one.startswith("--data_dir=")]
    data = tmp_path / "made"
    code = datagen.main([*arguments, f"--data_dir={data}", "--num_concurrent_processes=1"])
    assert code == 0, capsys.readouterr().err
    name = json.loads(target.read_text("utf-8"))["problem"]
    counts = Manifest.load(data, name).splits
    assert sum(one.rows for one in counts.values()) >= 40
