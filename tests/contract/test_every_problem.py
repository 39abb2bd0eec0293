"""Every problem holds the contract."""

import gzip
import runpy
import shutil
from pathlib import Path

import pytest
import tiny_raw_files

from t2t_torch import registry, testing
from t2t_torch.data import raw_file
from t2t_torch.errors import UsageError
from t2t_torch.features import Text

# Sentences of our own, in the layout of the data sets' raw files.
ENGLISH = [
    "A man in a red shirt is climbing a wall.",
    "Two dogs run along the beach.",
    "A girl with a yellow umbrella waits for the bus.",
    "Three people are sitting at a table outside.",
]
GERMAN = [
    "Ein Mann in einem roten Hemd klettert eine Wand hinauf.",
    "Zwei Hunde laufen am Strand entlang.",
    "Ein Mädchen mit einem gelben Regenschirm wartet auf den Bus.",
    "Drei Personen sitzen draußen an einem Tisch.",
]


SPOKEN = "speech_espeak_"
"""Prefix of the problems that need the program espeak-ng."""

PROBLEM_TESTS = sorted((Path(__file__).parents[1] / "problems").glob("test_*.py"))


@pytest.fixture(scope="session")
def raw_files(tmp_path_factory):
    """A `--tmp_dir` that holds the raw files of every problem that reads some.

    The tests of a problem say with a function `write_raw_files` what these are.
    """
    tmp_dir = tmp_path_factory.mktemp("raw")
    for split in ("train", "val", "test_2016_flickr"):
        for language, lines in (("en", ENGLISH), ("de", GERMAN)):
            text = "".join(f"{line}\n" for line in lines * 10)
            with gzip.open(tmp_dir / f"{split}.{language}.gz", "wt", encoding="utf-8") as file:
                file.write(text)
    for split in ("train", "eval"):
        for side, lines in (("inputs", ENGLISH), ("targets", GERMAN)):
            text = "".join(f"{line}\n" for line in lines * 10)
            (tmp_dir / f"{side}.{split}.txt").write_text(text, encoding="utf-8")
    words = dict.fromkeys(word for line in ENGLISH for word in line.split())
    (tmp_dir / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    for path in PROBLEM_TESTS:
        write = runpy.run_path(str(path)).get("write_raw_files")
        if write is not None:
            write(tmp_dir)
    tiny_raw_files.write_all(tmp_dir)
    return tmp_dir


@pytest.fixture
def no_network(monkeypatch):
    """Makes a problem whose raw files nobody has written fail, where it would download them."""

    def fetch(urls, *_, **__):
        raise AssertionError(f"no test of this problem writes its raw files: {urls}")

    monkeypatch.setattr(raw_file, "fetch", fetch)


def skip_what_is_not_installed(name):
    if name.startswith(SPOKEN) and not shutil.which("espeak-ng"):
        pytest.skip("needs espeak-ng")


@pytest.mark.parametrize("name", registry.list_names("problem"))
def test_the_problem_holds_the_contract(name, raw_files, tmp_path, no_network):
    skip_what_is_not_installed(name)
    testing.check_problem(registry.problem(name), tmp_path, raw_files)


SEVERAL = [n for n in registry.list_names("problem") if registry.problem(n).mixing_schedule]


@pytest.mark.parametrize("name", SEVERAL)
def test_several_problems_have_no_suffix(name):
    for suffix in ("_rev", "_copy"):
        with pytest.raises(UsageError, match="that it names"):
            registry.problem(name + suffix)


@pytest.mark.sample(20)
@pytest.mark.parametrize("suffix", ["_rev", "_copy"])
@pytest.mark.parametrize("name", sorted(set(registry.list_names("problem")) - set(SEVERAL)))
def test_a_suffix_is_for_texts_on_both_sides(name, suffix, raw_files, tmp_path, no_network):
    skip_what_is_not_installed(name)
    problem = registry.problem(name + suffix)
    problem.prepare(raw_files)
    problem.build_vocab(tmp_path, raw_files)
    stored = problem.stored_features(tmp_path)
    sides = stored.inputs.get("inputs"), stored.targets.get("targets")
    if all(type(side) is Text for side in sides):
        testing.check_problem(problem, tmp_path, raw_files)
    else:
        with pytest.raises(UsageError, match="Name the problem without the suffix"):
            problem.features(tmp_path)


def test_a_problem_that_cannot_read_back_is_caught(raw_files, tmp_path, monkeypatch):
    problem = registry.problem("tiny_algo")
    samples = [{"inputs": "1  0", "targets": "0"}]  # two spaces: they come back as one
    monkeypatch.setattr(type(problem), "generate_samples", lambda *_: iter(samples))
    with pytest.raises(AssertionError, match="1  0"):
        testing.check_problem(problem, tmp_path, raw_files)
