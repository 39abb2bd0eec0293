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
CZECH = ["Jeden d\u016fm.", "Dva psi b\u011b\u017e\u00ed."]
CHINESE = ["\u4e00\u680b\u623f\u5b50\u3002", "\u4e24\u6761\u72d7\u5728\u8dd1\u3002"]

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

    commentary = "training-parallel-nc-v13/news-commentary-v13"
    tar(
        folder / "training-parallel-nc-v13.tgz",
        {
            **pair(
                f"{commentary}.de-en",
                "de",
                [GERMAN[0], STRANGE, GERMAN[1], GERMAN[2]],
                [ENGLISH[0], STRANGE, ENGLISH[1], ENGLISH[2]],
            ),
            **pair(f"{commentary}.zh-en", "zh", CHINESE, ENGLISH[:2]),
            **pair(f"{commentary}.cs-en", "cs", CZECH, ENGLISH[:2]),
        },
    )
    tar(
        folder / "data-plaintext-format.tar",
        {
            f"data.plaintext-format/{part}.gz": gzip.compress(lines([f"id\t0.9\t{cs}\t{en}"]))
            for part, cs, en in (
                ("00train", "Jeden d\u016fm.", ENGLISH[0]),
                ("01train", "Dva psi b\u011b\u017e\u00ed.", ENGLISH[1]),
                ("98dtest", "Nic.", "Nothing."),
            )
        },
    )
    # A pair with a blank side, as the real ones have.
    tar(
        folder / "training-parallel-commoncrawl.tgz",
        {
            **pair("commoncrawl.de-en", "de", ["", GERMAN[3]], ["Nobody.", ENGLISH[3]]),
            **pair("commoncrawl.fr-en", "fr", FRENCH[:1], ENGLISH[:1]),
            **pair("commoncrawl.cs-en", "cs", CZECH[:1], ENGLISH[:1]),
        },
    )
    tar(
        folder / "training-parallel-europarl-v7.tgz",
        {
            **pair("training/europarl-v7.de-en", "de", GERMAN, ENGLISH),
            **pair("training/europarl-v7.fr-en", "fr", FRENCH, ENGLISH),
            **pair("training/europarl-v7.cs-en", "cs", CZECH[:1], ENGLISH[:1]),
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
            "dev/newstest2013.cs": lines(CZECH),
            "dev/newsdev2017-enzh-src.en.sgm": sgm(ENGLISH[:2]),
            "dev/newsdev2017-enzh-ref.zh.sgm": sgm(CHINESE),
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


def write_translate_other(folder: Path) -> None:
    """Writes the archives of `translate_other.py` that `write_wmt` does not write."""

    def pack(name: str, stem: str, languages: tuple[str, str] = ("en", "xx")) -> None:
        write = zipped if name.endswith(".zip") else tar
        texts = (ENGLISH, [f"{text} (translated)" for text in ENGLISH])
        pairs = zip(languages, texts, strict=True)
        write(folder / name, {f"{stem}{language}": lines(text) for language, text in pairs})

    pack("envi/train-en-vi.tgz", "train.", ("en", "vi"))
    pack("envi/dev-2012-en-vi.tgz", "tst2012.", ("en", "vi"))
    pack("ro-en.tgz", "europarl-v7.ro-en.", ("en", "ro"))
    pack("en-ro.txt.zip", "SETIMES.en-ro.", ("en", "ro"))
    pack("training-parallel-ep-v8.tgz", "training/europarl-v8.et-en.", ("en", "et"))
    crawl = "paracrawl-release1.en-et.zipporah0-dedup-clean"
    pack(f"{crawl}.tgz", f"{crawl}.", ("en", "et"))
    pack("rapid2016.tgz", "rapid2016.en-et.", ("en", "et"))
    pack("newsdev2018-enet.tar.gz", "newsdev2018-enet-", ("src.en", "ref.et"))
    pack("setimes.en-mk.txt.tgz", "setimes.en-mk.", ("en.txt", "mk.txt"))
    pack("MTE-1984-dev.enmk.tgz", "MTE1984-dev.", ("en", "mk"))
    for name in ("IWSLT17.train.en-id", "IWSLT17.TED.tst2017plus.en-id"):
        pack(f"{name}.tgz", f"{name}.", ("en", "id"))
    for subject, words in (("ECO", "150Kw"), ("INT", "150Kw"), ("SCI", "100Kw"), ("SPO", "100Kw")):
        name = f"PANL-BPPT-{subject}"
        languages = f"EN-{words}.txt", f"ID-{words}.txt"
        pack(f"{name}-EN-ID-{words}.tgz", f"{name}-", languages)
    tar(
        folder / "dev-romanian-updated.tgz",
        {
            "dev/newsdev2016-roen-ref.en.sgm": sgm(ENGLISH[:2]),
            "dev/newsdev2016-roen-src.ro.sgm": sgm(["O casa.", "Doi caini alearga."]),
        },
    )


def write_glue_tasks(folder: Path) -> None:
    """Writes the raw files of `glue.py`."""

    def pack(name: str, rows: list[str], *, header: str = "") -> None:
        text = lines([header, *rows] if header else rows)
        zipped(
            folder / f"{name}.zip",
            {f"{name}/train.tsv": text, f"{name}/dev.tsv": text, f"{name}/test.tsv": b"index\n"},
        )

    pack("CoLA", ['gj04\t1\t\tOur "friends won.', "gj04\t0\t*\tThey drank the pub."])
    pair = "index\tsentence1\tsentence2\tlabel"
    entailed = ["0\tA dog runs.\tIt runs.\tentailment", "1\tA dog.\tA cat.\tnot_entailment"]
    pack("RTE", entailed, header=pair)
    pack("QNLI", entailed, header="index\tquestion\tsentence\tlabel")
    pack("WNLI", ["0\tHe saw it fall.\tThe cup fell.\t1", "1\tA.\tB.\t0"], header=pair)
    questions = [
        "1\t2\t3\tIs it wet?\tDoes it rain?\t1",
        "2\t4\t5\tIs it?",  # broken, as a few rows of the real file are
        "3\t6\t7\t\tWhy?\t0",
        "4\t8\t9\tWho?\tWhere?\t0",
    ]
    pack("QQP", questions, header="id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate")
    head = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    before = "0\tmain-captions\tMSRvid\t2012test\t1\tnone\tnone"
    pack("STS-B", [f"{before}\tA plane.\tAn airplane.\t5.000"] * 2, header=head)
    head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    rows = [head, '1\t10\t11\tA "dog ran.\tA dog was running.', "0\t12\t13\tIt rains.\tIt snows."]
    for part in ("train", "test"):
        (folder / f"msr_paraphrase_{part}.txt").write_bytes(lines(rows))
    (folder / "dev_ids.tsv").write_bytes(lines(["12\t13"]))
    columns = (
        "gold_label sentence1_binary_parse sentence2_binary_parse sentence1_parse "
        "sentence2_parse sentence1 sentence2 captionID pairID label1"
    )
    parses = "\t".join(["( a )"] * 4)
    snli = [
        "\t".join(columns.split()),
        f"neutral\t{parses}\tA dog.\tA red dog.\t1\t1n\tneutral",
        f"-\t{parses}\tA dog.\tA cat.\t2\t2n\tneutral",
    ]
    zipped(
        folder / "snli_1.0.zip",
        {f"snli_1.0/snli_1.0_{part}.txt": lines(snli) for part in ("train", "dev", "test")},
    )


def write_conll2002(folder: Path) -> None:
    """Writes the archive of `conll2002_*_ner`."""
    text = lines(["La DA O", "Coru\u00f1a NC B-LOC", ". Fp O", "", "Juan NP B-PER", "va V O", ""])
    names = [f"{x}.{part}" for x in ("esp", "ned") for part in ("train", "testa", "testb")]
    zipped(folder / "conll2002.zip", {f"conll2002/{name}": text for name in names})


def write_lambada(folder: Path) -> None:
    """Writes the archive of `lambada_*`, with an archive in it."""
    novels = io.BytesIO()
    with tarfile.open(fileobj=novels, mode="w") as archive:
        for name, text in (
            ("Romance/b.txt", "he ran home\n\n"),
            ("Fantasy/a.txt", "the dog ran\n"),
        ):
            info = tarfile.TarInfo(f"train-novels/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    words = [f"{word}\t{count}" for word, count in (("the", 9), ("dog", 5), ("ran", 4), ("he", 1))]
    passages = lines(["the quagga saw the dog", "he ran"])
    tar(
        folder / "lambada-dataset.tar.gz",
        {
            "lambada-vocab-2.txt": lines(words),
            "train-novels.tar": novels.getvalue(),
            "lambada_development_plain_text.txt": passages,
            "lambada_test_plain_text.txt": passages,
            "lambada_control_test_data_plain_text.txt": lines(["the dog ran"]),
        },
    )


def write_yelp(folder: Path) -> None:
    """Writes the archives of `sentiment_yelp_*`."""
    rows = ['"2","Good ""food"", \\nfriendly."', '"1","Bad, slow. "']
    for name in ("full", "polarity"):
        stem = f"yelp_review_{name}_csv"
        tar(
            folder / f"{stem}.tgz",
            {f"{stem}/{part}.csv": lines(rows) for part in ("train", "test")},
        )


def write_deepmind(folder: Path) -> None:
    """Writes the archive of `algorithmic_math_deepmind_all`."""
    parts = ("train-easy", "train-medium", "train-hard", "interpolate", "extrapolate")
    text = lines(["Solve 2*r = 8 for r.", "4", "What is 1 + 1?", "2"])
    tar(
        folder / "mathematics_dataset-v1.0.tar.gz",
        {f"mathematics_dataset-v1.0/{part}/algebra__linear_1d.txt": text for part in parts},
    )


def write_dialogues(folder: Path) -> None:
    """Writes the raw files of `dialog_*`: a hundred dialogues each."""
    spoken = "\n".join(
        f"L{i} +++$+++ u0 +++$+++ m0 +++$+++ BIANCA +++$+++ I don't know {i % 7}\xe9!"
        for i in range(300)
    )
    spoken += "\nL300 +++$+++ u0 +++$+++ m0 +++$+++ BIANCA +++$+++ \n"
    talks = "".join(
        f"u0 +++$+++ u2 +++$+++ m0 +++$+++ ['L{i}', 'L{i + 1}', 'L{i + 2}', 'L300']\n"
        for i in range(100)
    )
    zipped(
        folder / "cornell_movie_dialogs_corpus.zip",
        {
            "cornell movie-dialogs corpus/movie_lines.txt": spoken.encode("latin-1"),
            "cornell movie-dialogs corpus/movie_conversations.txt": talks.encode(),
        },
    )
    words = '<w id="1.1">He</w>\n<w id="1.2">\'s</w>\n<w id="1.3">here</w>\n<w id="1.4">.</w>'
    film = f'<?xml?>\n<document>\n<s id="1">\n{words}\n</s>\n<s id="2">\n{words}\n</s>\n'
    films = {
        f"OpenSubtitles/en/1999/{i:03d}.xml.gz": gzip.compress(film.encode()) for i in range(100)
    }
    for year in (2009, 2011, 2012, 2013, 2016, 2018):
        (folder / f"opensubtitles{year}").mkdir()
        zipped(folder / f"opensubtitles{year}" / "en.zip", films)
    daily = "Say , Jim , how about it ? __eou__ I\u2019d love to . __eou__ Good ! __eou__"
    zipped(
        folder / "ijcnlp_dailydialog.zip",
        {"ijcnlp_dailydialog/dialogues_text.txt": lines([daily] * 100)},
    )
    chat = ["1 hi , how are you ?\ti am fine .", "2 __SILENCE__\tgood .", "3 ok .\tbye ."]
    tar(
        folder / "convai2_fix_723.tgz",
        {f"{part}_none_original_no_cands.txt": lines(chat * 50) for part in ("train", "valid")},
    )


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
    write_translate_other,
    write_glue_tasks,
    write_conll2002,
    write_lambada,
    write_yelp,
    write_deepmind,
    write_dialogues,
)


def write_all(folder: Path) -> None:
    """Writes the raw files of all problems that this file knows."""
    for write in WRITERS:
        write(folder)
