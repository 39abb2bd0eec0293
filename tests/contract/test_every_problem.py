"""Every problem holds the contract."""

import gzip

import pytest

from t2t_torch import registry, testing

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


@pytest.fixture(scope="session")
def raw_files(tmp_path_factory):
    """A `--tmp_dir` that holds the raw files of every problem that reads some."""
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
    return tmp_dir


@pytest.mark.parametrize("suffix", ["", "_rev", "_copy"])
@pytest.mark.parametrize("name", registry.list_names("problem"))
def test_the_problem_holds_the_contract(name, suffix, raw_files, tmp_path):
    testing.check_problem(registry.problem(name + suffix), tmp_path, raw_files)


def test_a_problem_that_cannot_read_back_is_caught(raw_files, tmp_path, monkeypatch):
    problem = registry.problem("tiny_algo")
    samples = [{"inputs": "1  0", "targets": "0"}]  # two spaces: they come back as one
    monkeypatch.setattr(type(problem), "generate_samples", lambda *_: iter(samples))
    with pytest.raises(AssertionError, match="1  0"):
        testing.check_problem(problem, tmp_path, raw_files)
