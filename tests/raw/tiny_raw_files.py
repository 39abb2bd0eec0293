"""Tiny raw files of our own, in the layout of those of the data sets that cannot be had in tests.

`write_all` puts those of every such problem into one folder, as a user would: archives where the
data set is an archive.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

# The characters within a line that Python's str.splitlines takes for ends of it.
STRANGE = "a\u2028b\u0085c\x0bd\re"

ENGLISH = ["One house.", "Two dogs run.", "A girl waits for the bus.", "Three people sit outside."]
GERMAN = ["Ein Haus.", "Zwei Hunde laufen.", "Ein Mädchen wartet auf den Bus.", "Drei sitzen."]
FRENCH = ["Une maison.", "Deux chiens courent.", "Une fille attend le bus.", "Trois sont assis."]

LM1B = "1-billion-word-language-modeling-benchmark-r13output"
STORIES = {  # address -> publisher, article, points
    "http://cnn.com/a": ("cnn", ["LONDON (CNN) A dog ran", "It barked!"], ["Dog runs", "It barks"]),
    "http://cnn.com/b": ("cnn", [], ["Only a caption"]),
    "http://dailymail.co.uk/c": ("dailymail", ["Rain fell all day."], ["Wet"]),
    "http://dailymail.co.uk/d": ("dailymail", ["Sun shone \u2028 bright"], ["Dry\u2019"]),
    "http://cnn.com/e": ("cnn", ["Snow came."], ["White."]),
}
LISTS = {
    "train": ["http://dailymail.co.uk/c", "http://cnn.com/a", "http://cnn.com/b"],
    "val": ["http://dailymail.co.uk/d"],
    "test": ["http://cnn.com/e"],
}


def lines(texts: list[str]) -> bytes:
    """Returns texts as the lines of a file."""
    return "".join(f"{text}\n" for text in texts).encode()


def tar(path: Path, files: Mapping[str, bytes]) -> None:
    """Writes a tar archive, packed as its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def zipped(path: Path, files: Mapping[str, bytes]) -> None:
    """Writes a zip archive."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def sgm(texts: list[str]) -> bytes:
    """Returns texts as an evaluation set of WMT."""
    escaped = [text.replace("&", "&amp;").replace('"', "&quot;") for text in texts]
    segments = "".join(f'<seg id="{i}">{text}</seg>\n' for i, text in enumerate(escaped, 1))
    return f'<refset setid="news">\n<doc docid="x">\n<p>\n{segments}</p>\n</doc>\n'.encode()


def write_wmt(folder: Path) -> None:
    """Writes the archives of `translate_ende_*` and `translate_enfr_*`."""

    def pair(stem: str, other: str, texts: list[str], english: list[str]) -> dict[str, bytes]:
        return {f"{stem}.{other}": lines(texts), f"{stem}.en": lines(english)}

    tar(
        folder / "training-parallel-nc-v13.tgz",
        pair(
            "training-parallel-nc-v13/news-commentary-v13.de-en",
            "de",
            [GERMAN[0], STRANGE, GERMAN[1], GERMAN[2]],
            [ENGLISH[0], STRANGE, ENGLISH[1], ENGLISH[2]],
        ),
    )
    # A pair with a blank side, as the real ones have.
    tar(
        folder / "training-parallel-commoncrawl.tgz",
        {
            **pair("commoncrawl.de-en", "de", ["", GERMAN[3]], ["Nobody.", ENGLISH[3]]),
            **pair("commoncrawl.fr-en", "fr", FRENCH[:1], ENGLISH[:1]),
        },
    )
    tar(
        folder / "training-parallel-europarl-v7.tgz",
        {
            **pair("training/europarl-v7.de-en", "de", GERMAN, ENGLISH),
            **pair("training/europarl-v7.fr-en", "fr", FRENCH, ENGLISH),
        },
    )
    tar(
        folder / "training-parallel-nc-v9.tgz",
        pair("training/news-commentary-v9.fr-en", "fr", FRENCH[1:2], ENGLISH[1:2]),
    )
    giga = pair("giga-fren.release2.fixed", "fr", FRENCH[2:3], ENGLISH[2:3])
    tar(folder / "training-giga-fren.tar", {f"{n}.gz": gzip.compress(c) for n, c in giga.items()})
    tar(
        folder / "training-parallel-un.tgz",
        pair("un/undoc.2000.fr-en", "fr", FRENCH[3:], ENGLISH[3:]),
    )
    quoted = ['He said "A & B".', *ENGLISH[:1]]
    tar(
        folder / "dev.tgz",
        {
            "dev/newstest2013.en": lines(ENGLISH[:2]),
            "dev/newstest2013.de": lines(GERMAN[:2]),
            "dev/newstest2013.fr": lines(FRENCH[:2]),
            "dev/newstest2014-deen-src.en.sgm": sgm(quoted),
            "dev/newstest2014-deen-ref.de.sgm": sgm(['Er sagte "A & B".', *GERMAN[:1]]),
            "dev/newstest2014-fren-src.en.sgm": sgm(quoted),
            "dev/newstest2014-fren-ref.fr.sgm": sgm(['Il a dit "A & B".', *FRENCH[:1]]),
        },
    )
    tar(
        folder / "baseline-1M-enfr.tgz",
        {
            **pair("baseline-1M-enfr/baseline-1M_train", "fr", FRENCH, ENGLISH),
            **pair("baseline-1M-enfr/baseline-1M_valid", "fr", FRENCH[:1], ENGLISH[:1]),
        },
    )


def write_iwslt14(folder: Path) -> None:
    """Writes the archive of `translate_ende_iwslt14`: 47 pairs of talks with their titles."""

    def talk(title: str, text: str) -> bytes:
        head = [
            "<url>http://www.ted.com/talks/x</url>",
            "<speaker>A. Speaker</speaker>",
            f"<title>{title}</title>",
        ]
        return lines([*head, *(f" {text} {i}. " for i in range(1, 47))])

    files = {
        "de-en/train.tags.de-en.en": talk("On Dogs", "Dog"),
        # Only in one of the two is there a translator.
        "de-en/train.tags.de-en.de": b"<translator>B.</translator>\n" + talk("Von Hunden", "Hund"),
    }
    for part in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"):
        files[f"de-en/IWSLT14.{part}.de-en.en.xml"] = sgm([f" {part} in English "])
        files[f"de-en/IWSLT14.{part}.de-en.de.xml"] = sgm([f" {part} auf Deutsch "])
    tar(folder / "de-en.tgz", files)


def write_wikitext(folder: Path) -> None:
    """Writes the four archives of `languagemodel_wikitext*`."""
    text = lines([" ", " = Dogs = ", " ", " A <unk> dog , \u2028 it @-@ barks . ", " It runs . "])
    for number in (2, 103):
        for version, name, ending in (("", "", "tokens"), ("-raw", "-raw", "raw")):
            inside = f"wikitext-{number}{name}"
            zipped(
                folder / f"wikitext-{number}{version}-v1.zip",
                {f"{inside}/wiki.{p}.{ending}": text for p in ("train", "valid", "test")},
            )


ENWIK8 = ("<page>Zürich \u2028 東京</page>\r\n" * 415).encode()
"""The borders of whose parts, at 90 and 95 of 100, cut characters."""


def write_enwik8(folder: Path) -> None:
    """Writes the archive of `enwik8_*`."""
    zipped(folder / "enwik8.zip", {"enwik8": ENWIK8})


def write_lm1b(folder: Path) -> None:
    """Writes the archive and the vocabulary of `languagemodel_lm1b*`."""
    train = f"{LM1B}/training-monolingual.tokenized.shuffled/news.en"
    files = {
        f"{train}-{i:05d}-of-00100": lines([f"The dog ran {i} times ."]) for i in range(1, 100)
    }
    held_out = f"{LM1B}/heldout-monolingual.tokenized.shuffled/news.en.heldout-00000-of-00050"
    files[held_out] = lines(["The quagga ran .", "The dog \u0085 ran ."])
    tar(folder / f"{LM1B}.tar.gz", files)
    words = ["<S>", "</S>", "<UNK>", "The", "dog", "ran", "times", ".", *map(str, range(1, 100))]
    (folder / "vocab-2016-09-10.txt").write_bytes(lines(words))


def write_cnn_dailymail(folder: Path) -> None:
    """Writes the archives and lists of `summarize_cnn_dailymail32k`."""
    stories: dict[str, dict[str, bytes]] = {"cnn": {}, "dailymail": {}}
    for address, (publisher, article, points) in STORIES.items():
        told = [*article, *(part for point in points for part in ("", "@highlight", "", point))]
        name = hashlib.sha1(address.encode()).hexdigest()
        stories[publisher][f"{publisher}/stories/{name}.story"] = lines(told)
    for publisher, files in stories.items():
        tar(folder / f"{publisher}_stories.tgz", files)
    for part, addresses in LISTS.items():
        (folder / f"all_{part}.txt").write_bytes(lines(addresses))


def write_snips(folder: Path) -> None:
    """Writes the files of `intent_slot_snips`."""
    for part in ("train", "valid", "test"):
        place = folder / "snips" / part
        place.mkdir(parents=True)
        (place / "seq.in").write_bytes(lines(["play jazz", "play rain", "will it rain in paris"]))
        (place / "seq.out").write_bytes(lines(["O B-genre", "O B-track", "O O O O B-city"]))
        (place / "label").write_bytes(lines(["PlayMusic", "PlayMusic", "GetWeather"]))


def write_glue(folder: Path) -> None:
    """Writes the archives of `sentiment_sst_binary*` and `multi_nli*`."""
    rows = ["sentence\tlabel", 'a "fine film \t1', "dull \t0", "a film \u2028 to see \t1"]
    files = {f"SST-2/{part}.tsv": lines(rows) for part in ("train", "dev")}
    zipped(folder / "SST-2.zip", {**files, "SST-2/test.tsv": lines(["index\tsentence", "0\tx"])})
    head = "index\tpromptID\tpairID\tgenre\tparse1\tparse2\tbinary1\tbinary2\tsentence1\tsentence2"
    before = "0\t31193n\t31193n\tgovernment\t( a )\t( b )\t(ROOT a)\t(ROOT b)"
    train = [
        f"{head}\tlabel1\tgold_label",
        f'{before}\tIt "rains.\tIt is wet.\tneutral\tentailment',
    ]
    votes = "\t".join(f"label{i}" for i in range(1, 6))
    said = "\t".join(["neutral"] * 5)
    matched = [f"{head}\t{votes}\tgold_label", f"{before}\tA dog.\tA cat.\t{said}\tcontradiction"]
    other = [f"{head}\t{votes}\tgold_label", f"{before}\tA bus.\tA red bus.\t{said}\tneutral"]
    zipped(
        folder / "MNLI.zip",
        {
            "MNLI/train.tsv": lines(train),
            "MNLI/dev_matched.tsv": lines(matched),
            "MNLI/dev_mismatched.tsv": lines(other),
        },
    )


def write_trec(folder: Path) -> None:
    """Writes the files of `question_trec*`, in Latin-1."""
    text = "DESC:manner How did serfdom develop ?\nLOC:city What is the capital of Curaçao ?\n"
    (folder / "train_5500.label").write_bytes(text.encode("latin-1"))
    (folder / "TREC_10.label").write_bytes(b"NUM:date When was it ?\nLOC:city Where is it ?\n")


def write_conll2003(folder: Path) -> None:
    """Writes the files of `ner_conll2003`."""
    text = (
        "-DOCSTART- -X- O O\n\n"
        "EU NNP I-NP I-ORG\nrejects VBZ I-VP O\nGerman JJ I-NP I-MISC\n. . O O\n\n"
        "-DOCSTART- -X- -X- O\n\n"
        "Peter NNP I-NP I-PER\nBlackburn NNP I-NP I-PER\n\n"
    )
    for part in ("train", "testa", "testb"):
        (folder / f"eng.{part}").write_text(text, encoding="utf-8")


def write_squad(folder: Path) -> None:
    """Writes the files of `squad*`."""
    context = "The dog, \u2028 Rex, ran to Rome in 1999."
    answered = {
        "id": "1",
        "question": "Where did Rex run?",
        "answers": [
            {"text": "Rome", "answer_start": context.index("Rome")},
            {"text": "to Rome", "answer_start": context.index("to Rome")},
        ],
    }
    unanswered = {"id": "2", "question": "Why?", "answers": [], "is_impossible": True}
    for version, questions in (("1.1", [answered]), ("2.0", [answered, unanswered])):
        paragraphs = [{"context": context, "qas": questions}]
        squad = {"version": version, "data": [{"title": "Rex", "paragraphs": paragraphs}]}
        for part in ("train", "dev"):
            path = folder / f"{part}-v{version}.json"
            path.write_text(json.dumps(squad), encoding="utf-8")


def cifar_picture(labels: list[int], red: int) -> bytes:
    """Returns a record of CIFAR: green is 1, blue 2, and red so much but in the first pixel."""
    return bytes([*labels, 77, *[red] * 1023, *[1] * 1024, *[2] * 1024])


def write_cifar(folder: Path) -> None:
    """Writes the archives of `image_cifar*`."""
    batches = {f"data_batch_{i}": cifar_picture([i], 10 * i) for i in range(1, 6)}
    ten = {**batches, "test_batch": cifar_picture([9], 200)}
    tar(
        folder / "cifar-10-binary.tar.gz",
        {f"cifar-10-batches-bin/{name}.bin": content for name, content in ten.items()},
    )
    train = cifar_picture([19, 99], 5) + cifar_picture([0, 4], 6)
    tar(
        folder / "cifar-100-binary.tar.gz",
        {
            "cifar-100-binary/train.bin": train,
            "cifar-100-binary/test.bin": cifar_picture([3, 1], 7),
        },
    )


def write_fashion_mnist(folder: Path) -> None:
    """Writes the files of `image_fashion_mnist`."""
    place = folder / "fashion_mnist"
    place.mkdir()
    for part, labels in (("train", [9, 0, 3]), ("t10k", [2, 4])):
        size = len(labels)
        images = struct.pack(">4B3I", 0, 0, 8, 3, size, 28, 28) + bytes(range(size)) * 784
        (place / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        told = struct.pack(">4BI", 0, 0, 8, 1, size) + bytes(labels)
        (place / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(told))


WRITERS = (
    write_wmt,
    write_iwslt14,
    write_wikitext,
    write_enwik8,
    write_lm1b,
    write_cnn_dailymail,
    write_snips,
    write_glue,
    write_trec,
    write_conll2003,
    write_squad,
    write_cifar,
    write_fashion_mnist,
)


def write_all(folder: Path) -> None:
    """Writes the raw files of all problems that this file knows."""
    for write in WRITERS:
        write(folder)
