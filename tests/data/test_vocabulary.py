"""Whose a vocabulary is, and which raw files it and the data were made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.data.manifest import Manifest, sha256_of
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.problems.text2text_tmpdir import Text2TextTmpdir
from t2t_torch.text_problem import VocabType

SUBWORDS = "vocab.pairs.300.subwords"
TOKENS = "vocab.pairs_tokens.6.tokens"


class Pairs(Text2TextTmpdir):
    """The user's pairs, with a vocabulary that is learnt."""

    name = "pairs"
    approx_vocab_size = 300


class PairsTokens(Pairs):
    """The same with the user's words."""

    name = "pairs_tokens"
    vocab_type = VocabType.TOKEN
    approx_vocab_size = 6
    oov_token = "<UNK>"


class PairsBorrowed(Pairs):
    """The same with the vocabulary of Pairs."""

    name = "pairs_borrowed"
    use_vocab_from_other_problem = "pairs"


def write_raw(folder: Path, text: str = "abc", targets_eval: str = "x\n") -> None:
    folder.mkdir(exist_ok=True)
    for name in ("inputs.train", "targets.train", "inputs.eval"):
        (folder / f"{name}.txt").write_text(f"{text}\n")
    (folder / "targets.eval.txt").write_text(targets_eval)


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.startswith(".")}


@pytest.fixture
def generate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Generates in `data` from the files in `raw`, which hold "abc" at first."""
    monkeypatch.setattr(registry, "problem", {"pairs": Pairs()}.__getitem__)
    write_raw(tmp_path / "raw")

    def call(problem: Pairs | None = None, name: str = "data", **options: Any) -> Manifest:
        return generate_data(
            problem or Pairs(), tmp_path / name, tmp_path / "raw", progress=False, **options
        )

    return call


def test_a_failed_generation_leaves_no_vocabulary(tmp_path: Path, generate: Any) -> None:
    write_raw(tmp_path / "raw", targets_eval="one\ntoo many\n")
    with pytest.raises(DataError, match="Make them parallel"):
        generate()
    assert files(tmp_path / "data") == {}


@pytest.mark.parametrize("problem", [Pairs(), PairsBorrowed()])
def test_a_vocabulary_is_published_with_its_data(
    tmp_path: Path, generate: Any, problem: Pairs
) -> None:
    manifest = generate(problem)
    assert manifest.vocab_files == {SUBWORDS: sha256_of(tmp_path / "data" / SUBWORDS)}
    assert generate(problem) == manifest


@pytest.mark.parametrize("leftover", [True, False])
def test_a_stale_vocabulary_is_learnt_anew(tmp_path: Path, generate: Any, leftover: bool) -> None:
    generate()
    if leftover:  # what a run of an earlier version left when it failed
        (tmp_path / "data" / "pairs.json").unlink()
    write_raw(tmp_path / "raw", "xyzzy")
    generate(overwrite=not leftover)
    generate(name="clean")
    assert files(tmp_path / "data") == files(tmp_path / "clean")


def test_a_damaged_vocabulary_is_learnt_anew(tmp_path: Path, generate: Any) -> None:
    generate()
    expected = files(tmp_path / "data")
    write_raw(tmp_path / "other", "xyzzy")
    generate_data(Pairs(), tmp_path / "b", tmp_path / "other", progress=False)
    (tmp_path / "data" / SUBWORDS).write_bytes((tmp_path / "b" / SUBWORDS).read_bytes())
    generate()
    assert files(tmp_path / "data") == expected


def test_the_users_words_are_kept_and_checked(tmp_path: Path, generate: Any) -> None:
    with pytest.raises(DataError, match=rf"{TOKENS}, which is not there"):
        generate(PairsTokens())
    path = tmp_path / "data" / TOKENS
    path.write_text("<pad>\n<EOS>\n<UNK>\nabc\n")
    generate(PairsTokens())
    path.write_text("<pad>\n<EOS>\nabc\n<UNK>\n")
    with pytest.raises(DataError, match=rf"another vocabulary .*{TOKENS}.*--overwrite"):
        generate(PairsTokens())
    manifest = generate(PairsTokens(), overwrite=True)
    assert path.read_text() == "<pad>\n<EOS>\nabc\n<UNK>\n"
    assert manifest.vocab_files == {TOKENS: sha256_of(path)}


def test_a_borrowed_vocabulary_is_kept(tmp_path: Path, generate: Any) -> None:
    generate()
    before = (tmp_path / "data" / SUBWORDS).read_bytes()
    write_raw(tmp_path / "raw", "xyzzy")
    generate(PairsBorrowed())
    generate(PairsBorrowed(), overwrite=True)
    assert (tmp_path / "data" / SUBWORDS).read_bytes() == before


def test_changed_raw_files_are_noticed(tmp_path: Path, generate: Any) -> None:
    first = generate()
    write_raw(tmp_path / "raw", targets_eval="y\n")
    with pytest.raises(DataError, match=r"(?s)raw/targets\.eval\.txt: .*--overwrite") as told:
        generate()
    assert "inputs" not in str(told.value)
    second = generate(overwrite=True)
    assert second.fingerprint(Split.TRAIN) == first.fingerprint(Split.TRAIN)
    assert second.fingerprint(Split.EVAL) != first.fingerprint(Split.EVAL)


def test_data_outlives_its_raw_files(tmp_path: Path, generate: Any) -> None:
    manifest = generate()
    (tmp_path / "raw").rename(tmp_path / "away")
    assert generate() == manifest


def test_multi30ks_raw_files_are_those_that_are_there(tmp_path: Path) -> None:
    problem = registry.problem("translate_multi30k_ende")
    assert problem.raw_files(tmp_path) == []
    (tmp_path / "raw").mkdir()
    there = [tmp_path / "train.de.gz", tmp_path / "raw" / "val.en"]
    for path in there:
        path.touch()
    assert problem.raw_files(tmp_path) == there


def test_any_flipped_byte_of_a_manifest_is_noticed(tmp_path: Path, generate: Any) -> None:
    manifest = generate()
    path = Manifest.path(tmp_path / "data", "pairs")
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        if content[place : place + 1].isspace():
            continue  # between the fields it says nothing
        flipped = bytearray(content)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(DataError):
            Manifest.load(tmp_path / "data", "pairs")
    path.write_bytes(content)
    assert Manifest.load(tmp_path / "data", "pairs") == manifest


def test_a_file_as_data_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(DataError, match="Not a directory"):
        Manifest.load(tmp_path / "data", "pairs")
