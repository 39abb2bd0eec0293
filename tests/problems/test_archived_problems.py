"""Problems whose data cannot be had here, on tiny raw files of the same layout."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny_raw_files

from t2t_torch import registry
from t2t_torch.data import raw_file
from t2t_torch.data.generate import generate_data
from t2t_torch.errors import DataError
from t2t_torch.mode import Split

CIFAR_VARIANTS = ("plain", "plain8", "plain_gen")
# Rows of TRAIN, EVAL and TEST in the tiny raw files.
ROWS = {
    "translate_ende_wmt32k": (9, 2, 2),
    "translate_ende_wmt8k": (9, 2, 2),
    "translate_ende_wmt_characters": (9, 2, 2),
    "translate_enfr_wmt32k": (8, 2, 2),
    "translate_enfr_wmt_characters": (8, 2, 2),
    "translate_enfr_wmt_small32k": (4, 1),
    "translate_enfr_wmt_small8k": (4, 1),
    "translate_enfr_wmt_small_characters": (4, 1),
    "translate_ende_iwslt14": (45, 2, 5),
    "languagemodel_wikitext2": (3, 3, 3),
    "languagemodel_wikitext2_characters": (3, 3, 3),
    "languagemodel_wikitext103": (3, 3, 3),
    "languagemodel_wikitext103_characters": (3, 3, 3),
    "languagemodel_wikitext103_l4k": (1, 1, 1),
    "languagemodel_wikitext103_l16k": (1, 1, 1),
    "enwik8_l512": (2, 1, 1),
    "enwik8_l2k": (1, 1, 1),
    "enwik8_l32k": (1, 1, 1),
    "enwik8_l65k": (1, 1, 1),
    "languagemodel_lm1b32k": (99, 2),
    "languagemodel_lm1b8k": (99, 2),
    "languagemodel_lm1b_characters": (99, 2),
    "summarize_cnn_dailymail32k": (2, 1, 1),
    "intent_slot_snips": (3, 3, 3),
    "sentiment_sst_binary": (3, 3),
    "sentiment_sst_binary_characters": (3, 3),
    "question_trec": (2, 2),
    "question_trec_fine": (2, 2),
    "ner_conll2003": (2, 2, 2),
    "squad": (1, 1),
    "squad_v2": (2, 2),
    "squad_context2text": (1, 1),
    "image_cifar10": (5, 1),
    "image_cifar100": (2, 1),
    "image_cifar20": (2, 1),
    "image_cifar10_plain_random_shift": (5, 1),
    "image_cifar10_tune": (4, 1),
    "image_cifar100_tune": (1, 1),
    "image_cifar20_tune": (1, 1),
    **dict.fromkeys((f"image_cifar10_{name}" for name in CIFAR_VARIANTS), (5, 1)),
    **dict.fromkeys((f"image_cifar100_{name}" for name in CIFAR_VARIANTS), (2, 1)),
    **dict.fromkeys((f"image_cifar20_{name}" for name in CIFAR_VARIANTS), (2, 1)),
    "image_fashion_mnist": (3, 2),
    "multi_nli": (1, 1, 1),
    "multi_nli_characters": (1, 1, 1),
    "translate_envi_iwslt32k": (4, 4),
    "translate_enzh_wmt8k": (2, 2),
    "translate_enzh_wmt32k": (2, 2),
    "translate_encs_wmt32k": (6, 2),
    "translate_encs_wmt_characters": (6, 2),
    "translate_enro_wmt8k": (8, 2),
    "translate_enro_wmt32k": (8, 2),
    "translate_enro_wmt_characters": (8, 2),
    "translate_enet_wmt32k": (12, 4),
    "translate_enet_wmt_characters": (12, 4),
    "translate_enmk_setimes32k": (4, 4),
    "translate_enmk_setimes_characters": (4, 4),
    "translate_enid_iwslt32k": (20, 4),
    "cola": (2, 2),
    "cola_characters": (2, 2),
    "msr_paraphrase_corpus": (2, 1, 2),
    "msr_paraphrase_corpus_characters": (2, 1, 2),
    "question_nli": (2, 2),
    "question_nli_characters": (2, 2),
    "quora_question_pairs": (4, 2),
    "quora_question_pairs_characters": (4, 2),
    "rte": (2, 2),
    "rte_characters": (2, 2),
    "winograd_nli": (2, 2),
    "winograd_nli_characters": (2, 2),
    "stanford_nli": (1, 1, 1),
    "stanford_nli_characters": (1, 1, 1),
    "stanford_nli_shared_vocab": (1, 1, 1),
    "stsb": (2, 2),
    "stsb_characters": (2, 2),
    "conll2002_es_ner": (2, 2, 2),
    "conll2002_nl_ner": (2, 2, 2),
    "lambada_lm": (2, 2, 2),
    "lambada_lm_control": (2, 1),
    "lambada_rc": (2, 2, 2),
    "lambada_rc_control": (2, 1),
    "sentiment_yelp_full": (2, 2),
    "sentiment_yelp_full_characters": (2, 2),
    "sentiment_yelp_polarity": (2, 2),
    "sentiment_yelp_polarity_characters": (2, 2),
    "algorithmic_math_deepmind_all": (6, 4),
    "dialog_cornell32k": (160, 20, 20),
    "dialog_opensubtitles64k2009": (80, 10, 10),
    "dialog_opensubtitles64k2011": (80, 10, 10),
    "dialog_opensubtitles64k2012": (80, 10, 10),
    "dialog_opensubtitles64k2013": (80, 10, 10),
    "dialog_opensubtitles64k2016": (80, 10, 10),
    "dialog_opensubtitles64k2018": (80, 10, 10),
    "dialog_dailydialog16k": (160, 20, 20),
    "dialog_personachat16k": (80, 10, 10),
}
# What the first sample of TRAIN is.
FIRST: dict[str, dict[str, Any]] = {
    "translate_enfr_wmt32k": {"inputs": "One house.", "targets": "Une maison."},
    "translate_enfr_wmt_small32k": {"inputs": "One house.", "targets": "Une maison."},
    "languagemodel_wikitext2_characters": {"targets": "= Dogs ="},
    "intent_slot_snips": {
        "inputs": ["play", "jazz"],
        "slots": ["O", "B-genre"],
        "intent": "PlayMusic",
    },
    "sentiment_sst_binary": {"inputs": 'a "fine film', "targets": "pos"},
    "question_trec": {"inputs": "How did serfdom develop ?", "targets": "DESC"},
    "question_trec_fine": {"inputs": "How did serfdom develop ?", "targets": "DESC:manner"},
    "ner_conll2003": {
        "inputs": ["EU", "rejects", "German", "."],
        "targets": ["I-ORG", "O", "I-MISC", "O"],
    },
    "squad": {
        "question": "Where did Rex run?",
        "context": "The dog, \u2028 Rex, ran to Rome in 1999.",
        "answers": [{"text": "Rome", "start": 23}, {"text": "to Rome", "start": 20}],
    },
    "squad_context2text": {
        "inputs": "Where did Rex run?",
        "context": "The dog, \u2028 Rex, ran to Rome in 1999.",
        "targets": "Rome",
    },
    "multi_nli": {"first": 'It "rains.', "second": "It is wet.", "targets": "entailment"},
    "translate_encs_wmt32k": {"inputs": "One house.", "targets": "Jeden d\u016fm."},
    "translate_enmk_setimes32k": {"inputs": "One house.", "targets": "One house. (translated)"},
    "cola": {"inputs": 'Our "friends won.', "targets": "acceptable"},
    "msr_paraphrase_corpus": {
        "first": 'A "dog ran.',
        "second": "A dog was running.",
        "targets": "paraphrase",
    },
    "question_nli": {"first": "A dog runs.", "second": "It runs.", "targets": "entailment"},
    "winograd_nli": {
        "first": "He saw it fall.",
        "second": "The cup fell.",
        "targets": "entailment",
    },
    "stanford_nli": {"first": "A dog.", "second": "A red dog.", "targets": "neutral"},
    "stsb": {"first": "A plane.", "second": "An airplane.", "targets": 5.0},
    "conll2002_nl_ner": {"inputs": ["La", "Coru\u00f1a", "."], "targets": ["O", "B-LOC", "O"]},
    "lambada_lm": {"targets": "the dog ran"},
    "lambada_rc": {"inputs": "the dog", "targets": "ran"},
    "sentiment_yelp_full": {"inputs": 'Good "food", \\nfriendly.', "targets": "2"},
    "algorithmic_math_deepmind_all": {"inputs": "Solve 2*r = 8 for r.", "targets": "4"},
    "dialog_cornell32k": {"inputs": "i do n't know 0 !", "targets": "i do n't know 1 !"},
    "dialog_opensubtitles64k2018": {"inputs": "he 's here .", "targets": "he 's here ."},
    "dialog_dailydialog16k": {"inputs": "say jim how about it ?", "targets": "id love to ."},
    "dialog_personachat16k": {"inputs": "hi how are you ?", "targets": "i am fine ."},
}
# Of the other splits, where their files are others.
OTHERS: dict[tuple[str, Split], list[dict[str, Any]]] = {
    ("multi_nli", Split.EVAL): [
        {"first": "A dog.", "second": "A cat.", "targets": "contradiction"}
    ],
    ("msr_paraphrase_corpus", Split.EVAL): [
        {"first": "It rains.", "second": "It snows.", "targets": "not_paraphrase"}
    ],
    ("quora_question_pairs", Split.TRAIN): [
        {"first": "Is it wet?", "second": "Does it rain?", "targets": "duplicate"},
        {"first": "Does it rain?", "second": "Is it wet?", "targets": "duplicate"},
        {"first": "Who?", "second": "Where?", "targets": "not_duplicate"},
        {"first": "Where?", "second": "Who?", "targets": "not_duplicate"},
    ],
    ("lambada_rc_control", Split.EVAL): [{"inputs": "the dog", "targets": "ran"}],
    ("multi_nli", Split.TEST): [{"first": "A bus.", "second": "A red bus.", "targets": "neutral"}],
    ("question_trec", Split.EVAL): [
        {"inputs": "When was it ?", "targets": "NUM"},
        {"inputs": "Where is it ?", "targets": "LOC"},
    ],
    ("translate_enfr_wmt_small8k", Split.EVAL): [
        {"inputs": "One house.", "targets": "Une maison."}
    ],
}
TRANSLATIONS = [name for name in ROWS if name.startswith("translate_")]
LICENSED = ["ner_conll2003"]
DOWNLOAD = raw_file.fetch  # before fixtures replace it


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_raw_files.write_all(folder)
    return folder


@pytest.mark.sample(15)
@pytest.mark.parametrize("name", ROWS)
def test_the_data_is_generated_whole(
    name: str, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = registry.problem(name)
    # A hundred files for a few rows take time and show nothing.
    monkeypatch.setattr(type(problem), "shards", dict.fromkeys(problem.shards, 2))
    manifest = generate_data(problem, tmp_path, raw, num_processes=1, progress=False)
    assert tuple(manifest.splits[split.value].rows for split in problem.shards) == ROWS[name]
    assert manifest.raw_files
    manifest.verify(tmp_path)


OF_OTHER_TESTS = frozenset(
    """
    chunking_conll2000 chunking_conll2000_pos image_mnist image_mnist_tune intent_atis
    intent_slot_atis languagemodel_lm1b_multi_nli languagemodel_lm1b_multi_nli_subwords
    languagemodel_lm1b_sentiment_imdb languagemodel_ptb10k languagemodel_ptb_characters
    languagemodel_tiny_shakespeare_characters multi_intent_slot_atis pos_ud_english_ewt
    sentiment_imdb sentiment_imdb_characters sentiment_imdb_words slots_atis xquad_en
    """.split()
)
"""Problems in the same files whose data has tests of its own."""


def test_every_problem_of_the_tiny_raw_files_is_here() -> None:
    files = {Path(entry.path) for entry in registry.entries("problem") if entry.name in ROWS}
    there = {entry.name for entry in registry.entries("problem") if Path(entry.path) in files}
    assert there - OF_OTHER_TESTS == set(ROWS)


@pytest.mark.parametrize("name", FIRST)
def test_the_first_sample_is_what_stands_in_the_file(name: str, raw: Path) -> None:
    sample = next(iter(registry.problem(name).generate_samples(raw, Split.TRAIN)))
    assert sample == FIRST[name]


@pytest.mark.parametrize(("name", "split"), OTHERS)
def test_the_other_splits_are_those_of_their_files(name: str, split: Split, raw: Path) -> None:
    assert list(registry.problem(name).generate_samples(raw, split)) == OTHERS[name, split]


@pytest.mark.parametrize("name", TRANSLATIONS)
def test_a_translation_can_be_reversed(name: str, raw: Path, tmp_path: Path) -> None:
    problem, forward = registry.problem(f"{name}_rev"), registry.problem(name)
    spaces = problem.input_space_id, problem.target_space_id
    assert spaces == (forward.target_space_id, forward.input_space_id)
    assert (spaces[0] in (5, 6, 7, 8) and spaces[1] in (2, 3)) or spaces == (0, 0)
    problem.build_vocab(tmp_path, raw)
    features = problem.features(tmp_path)
    assert features.columns == {"inputs": "targets", "targets": "inputs"}
    assert problem.dataset_name == name


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the tiny raw files, whatever the folders before their names are."""

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def served(raw: Path) -> Iterator[str]:
    handler = functools.partial(Handler, directory=str(raw))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # seconds
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.sample(15)
@pytest.mark.parametrize("name", [name for name in ROWS if name not in LICENSED])
def test_what_is_absent_is_downloaded_unpacked_and_read(
    name: str, raw: Path, served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = {}

    def fetch(urls: Sequence[str], tmp_dir: Path, *, filename: str, sha256: str | None) -> Path:
        assert urls and all(url.startswith(("https://", "http://")) for url in urls)
        sums[filename] = sha256
        path = next(
            path for path in raw.rglob(filename) if path.parent.name in (*tmp_dir.parts, raw.name)
        )
        place = path.relative_to(raw).as_posix()
        return DOWNLOAD(f"{served}/{place}", tmp_dir, filename=filename)

    monkeypatch.setattr(raw_file, "fetch", fetch)
    problem = registry.problem(name)
    problem.prepare(tmp_path)
    assert sums
    assert all(sha256 is None or len(bytes.fromhex(sha256)) == 32 for sha256 in sums.values())
    here, there = (problem.generate_samples(place, Split.TRAIN) for place in (tmp_path, raw))
    assert list(map(str, here)) == list(map(str, there))
    assert problem.raw_files(tmp_path)


@pytest.mark.parametrize("name", LICENSED)
def test_what_may_not_be_downloaded_is_asked_for(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"eng\.train is not there\. Put it"):
        registry.problem(name).prepare(tmp_path)


# A file of each archive, and a problem that wants it.
ARCHIVES = {
    "training-parallel-nc-v13.tgz": "translate_ende_wmt32k",
    "training-giga-fren.tar": "translate_enfr_wmt32k",
    "baseline-1M-enfr.tgz": "translate_enfr_wmt_small8k",
    "de-en.tgz": "translate_ende_iwslt14",
    "wikitext-2-v1.zip": "languagemodel_wikitext2",
    "enwik8.zip": "enwik8_l512",
    f"{tiny_raw_files.LM1B}.tar.gz": "languagemodel_lm1b32k",
    "cnn_stories.tgz": "summarize_cnn_dailymail32k",
    "SST-2.zip": "sentiment_sst_binary",
    "cifar-10-binary.tar.gz": "image_cifar10",
    "MNLI.zip": "multi_nli",
    "QQP.zip": "quora_question_pairs",
    "conll2002.zip": "conll2002_es_ner",
    "lambada-dataset.tar.gz": "lambada_lm",
    "yelp_review_full_csv.tgz": "sentiment_yelp_full",
    "setimes.en-mk.txt.tgz": "translate_enmk_setimes32k",
}


@pytest.fixture
def copied(raw: Path, tmp_path: Path) -> Path:
    """A folder with the raw files that a test may spoil: links, which it may replace."""
    for path in raw.iterdir():
        if path.is_file() and not path.name.startswith("."):
            (tmp_path / path.name).symlink_to(path)
    return tmp_path


@pytest.mark.parametrize("archive", ARCHIVES)
def test_a_damaged_archive_is_a_clear_error(archive: str, copied: Path) -> None:
    content = (copied / archive).read_bytes()
    (copied / archive).unlink()
    (copied / archive).write_bytes(content[: min(len(content) // 2, 540)])
    with pytest.raises(DataError, match=r"seems damaged: delete it") as error:
        registry.problem(ARCHIVES[archive]).prepare(copied)
    assert archive in str(error.value)


@pytest.mark.parametrize("archive", ARCHIVES)
def test_an_archive_without_the_file_is_a_clear_error(archive: str, copied: Path) -> None:
    (copied / archive).unlink()
    write = tiny_raw_files.zipped if archive.endswith(".zip") else tiny_raw_files.tar
    write(copied / archive, {"readme.txt": b"another archive"})
    with pytest.raises(DataError, match="not the archive that was expected") as error:
        registry.problem(ARCHIVES[archive]).prepare(copied)
    assert archive in str(error.value)


def test_unpacked_files_do_without_the_archive(raw: Path, tmp_path: Path) -> None:
    tiny_raw_files.write_wmt(tmp_path)
    problem = registry.problem("translate_ende_wmt_characters")
    problem.prepare(tmp_path)
    before = list(problem.generate_samples(tmp_path, Split.TRAIN))
    for archive in tmp_path.glob("*.tgz"):
        archive.unlink()
    problem.prepare(tmp_path)
    assert list(problem.generate_samples(tmp_path, Split.TRAIN)) == before


def test_files_unpacked_by_hand_are_found(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for language in ("en", "fr"):
        (tmp_path / "dev" / f"newstest2013.{language}").write_text(f"in {language}\n", "utf-8")
    problem = registry.problem("translate_enfr_wmt32k")
    samples = list(problem.generate_samples(tmp_path, Split.EVAL))
    assert samples == [{"inputs": "in en", "targets": "in fr"}]
