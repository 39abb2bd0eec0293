"""Random changes of training texts: the hparam `text_augmentation`."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.features import ClassLabel, Features, Span, Tags, Text, Words
from t2t_torch.features import text_augmentation as kinds
from t2t_torch.features.text_augmentation import TextChanges
from t2t_torch.hparams.basic import basic_params1
from t2t_torch.mode import Split
from t2t_torch.text.encoder import (
    EOS,
    ByteEncoder,
    CharacterEncoder,
    ClassLabelEncoder,
    TokenEncoder,
)
from t2t_torch.text.pieces import PieceEncoder, SpaceSplitter
from t2t_torch.text.subword import SubwordEncoder

LABEL = ClassLabel(ClassLabelEncoder(["a", "b"]))
ALL = ("typos", "case", "swap_words", "delete_words", "mask_spans", "sample_subwords")
TEXT = " ".join(f"{a} {b}" for a in ("garden", "the", "playing") for b in ("house", "walks", "on"))


@pytest.fixture(scope="module")
def subwords(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.subwords"
    return SubwordEncoder.train([TEXT] * 50, 330, path)


def change_of(names, encoder, **others):
    features = Features({"inputs": Text(encoder)}, {"targets": LABEL})
    return TextChanges(names).of(features)


def changed(names, ids, encoder, seed=0, mode=Split.TRAIN):
    example = {"inputs": np.array(ids, np.int32), "targets": np.array(1)}
    made = change_of(names, encoder)(example, mode, np.random.default_rng(seed))
    assert made["targets"] == 1
    return made["inputs"].tolist()


def words_of(text):
    return Counter(text.split(" "))


LONG = " ".join(f"word{'abcdefgh'[i % 8]}{'xyz'[i % 3]}{i}" for i in range(4000))


def test_kinds_change_about_the_share_of_their_rate():
    rng = np.random.default_rng(1)
    made = [kinds.typos("ab" * 2000, rng, 0.05) for _ in range(5)]
    assert all(abs(len(one) - 4000) < 60 and one != "ab" * 2000 for one in made)
    before, after = LONG.split(" "), kinds.case(LONG, rng, 0.3).split(" ")
    share = sum(a != b for a, b in zip(before, after, strict=True)) / 4000
    assert 0.17 < share < 0.23  # a third of the forms is that of these words
    assert [a.lower() for a in after] == before
    after = kinds.swap_words(LONG, rng, 0.3).split(" ")
    share = sum(a != b for a, b in zip(before, after, strict=True)) / 4000
    assert 0.22 < share < 0.31 and sorted(after) == sorted(before)
    after = kinds.delete_words(LONG, rng, 0.3).split(" ")
    assert 0.67 < len(after) / 4000 < 0.73 and not words_of(" ".join(after)) - words_of(LONG)


def test_typos_leave_digits_and_the_beginnings_of_words_to_one_of_three_errors():
    made = {kinds.typos("x 12 ab 7", np.random.default_rng(i), 1.0) for i in range(60)}
    assert made == {"x 12 b 7", "x 12 aab 7", "x 12 ba 7", "x 12 ab 7"} - {"x 12 ab 7"}
    near = kinds.typos("abcdefghij" * 500, np.random.default_rng(0), 0.1)
    same = sum(a == b for a, b in itertools.pairwise(near))
    assert 110 < same < 220  # a third of 500 letters are doubled


@pytest.mark.parametrize("unknown", [True, False])
def test_spans_of_a_share_of_the_ids_are_hidden(unknown):
    tokens = ["<pad>", "<EOS>", "[CLS]", "[UNK]", *(f"w{i}" for i in range(500))]
    encoder = PieceEncoder(tokens, 3 if unknown else None, SpaceSplitter(), silent=[2])
    ids = [2, *range(4, 504), EOS]
    made = [changed(["mask_spans:0.3"], ids, encoder, seed) for seed in range(20)]
    shares = [sum(one == 3 for one in its) / 500 for its in made]
    if not unknown:
        shares = [1.0 - (len(its) - 2) / 500 for its in made]
    assert 0.27 < np.mean(shares) < 0.33
    for its in made:
        assert its[0] == 2 and its[-1] == EOS
        inner = its[2:-2] if unknown else []
        runs = [
            len([*run]) for hidden, run in itertools.groupby(one == 3 for one in inner) if hidden
        ]
        assert all(run >= 3 for run in runs[1:-1])


def test_other_subwords_are_those_of_the_same_text(subwords):
    ids = [*subwords.encode(TEXT), EOS]
    sample = kinds.subword_sampler(subwords)
    made = [sample(np.array(ids[:-1]), np.random.default_rng(i), 0.5) for i in range(20)]
    assert all(subwords.decode(one) == TEXT for one in made)
    assert len({tuple(one) for one in made}) > 15
    assert any(len(one) > len(ids) for one in made)
    rates = [len(sample(np.array(ids[:-1]), np.random.default_rng(i), 0.1)) for i in range(50)]
    assert len(ids) - 1 < np.mean(rates) < 1.1 * len(ids)


def test_pieces_with_marks_of_words_are_split_to_pieces_with_marks():
    tokenizers = pytest.importorskip("tokenizers")
    from t2t_torch.text.pieces import HuggingFacePieces

    tokens = ["<pad>", "<EOS>", "[CLS]", "[UNK]", "playing", "play", "ing", "##ing", "##in", "##g"]
    model = tokenizers.models.WordPiece({one: i for i, one in enumerate(tokens)}, unk_token="[UNK]")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.decoder = tokenizers.decoders.WordPiece()
    encoder = PieceEncoder(tokens, 3, HuggingFacePieces(made.to_str()), silent=[2])
    sample = kinds.subword_sampler(encoder)
    ids = np.array([2, 4, 7, 3])
    assert sample(ids, np.random.default_rng(0), 1.0) == [2, 5, 7, 8, 9, 3]


@pytest.mark.parametrize("seed", range(20))
def test_a_changed_text_is_never_longer_and_keeps_its_end(subwords, seed):
    for text in ("", "a", "on", TEXT):
        for end in ([], [EOS]):
            ids = [*subwords.encode(text), *end]
            made = changed([f"{name}:0.6" for name in ALL], ids, subwords, seed)
            assert len(made) <= len(ids) and made[len(made) - len(end) :] == end
            assert EOS not in made[: len(made) - len(end)] and bool(made) == bool(ids)
            assert made == changed([f"{name}:0.6" for name in ALL], ids, subwords, seed)
            assert changed(ALL, ids, subwords, seed, Split.EVAL) == ids


def test_a_text_of_which_nothing_is_left_is_not_changed(subwords):
    ids = [*subwords.encode(TEXT), EOS]
    assert changed(["delete_words:1"], ids, subwords) == ids
    assert changed(["mask_spans:1"], ids, subwords) == ids  # its unknown ids are bytes
    assert changed(["typos:0", "mask_spans:.0"], ids, subwords) == ids


@pytest.mark.parametrize(
    "name", ["blur", "typos:2", "case:-1", "case:x", "case:", "typos:0.1:2", ""]
)
def test_names_and_rates_that_are_none_are_refused(name):
    hparams = basic_params1().replace(text_augmentation=("case", name))
    with pytest.raises(
        HParamsError, match=r"there is no .*expected case, swap_words, .*rate from 0"
    ):
        registry.problem("sentiment_imdb").preprocessing(hparams)


WORDS = Words(TokenEncoder(["a", "<UNK>"], replace_oov="<UNK>"))
TAGS = Tags(ClassLabelEncoder(["O"]))
CONTEXT = Text(ByteEncoder(), add_eos=False)


@pytest.mark.parametrize(
    "features",
    [
        Features({"inputs": WORDS}, {"targets": TAGS}),
        Features({"inputs": WORDS}, {"targets": LABEL}),
        Features({"inputs": CONTEXT}, {"targets": Span("inputs")}),
        Features({}, {"targets": CONTEXT}),
        Features({"inputs": Text(TokenEncoder(["a", "b"]))}, {"targets": LABEL}),
    ],
    ids=["tags", "words", "span", "language model", "no unknown word"],
)
def test_texts_that_cannot_be_changed_are_refused(features):
    with pytest.raises(HParamsError, match="text_augmentation needs inputs that are texts"):
        TextChanges(["case"]).of(features)


@pytest.mark.parametrize(
    "encoder", [ByteEncoder(), CharacterEncoder("abc"), WORDS.encoder], ids=["byte", "char", "word"]
)
def test_a_vocabulary_without_subwords_is_refused(encoder):
    with pytest.raises(HParamsError, match="no subwords"):
        change_of(["sample_subwords"], encoder)


@pytest.mark.parametrize(
    ("problem", "fault"),
    [
        ("languagemodel_ptb10k_masked", "the problem changes texts"),
        ("image_mnist", "are pictures. Set image_augmentation"),
    ],
)
def test_problems_with_other_changes_refuse_it(problem, fault):
    hparams = basic_params1().replace(text_augmentation=("case",))
    with pytest.raises(HParamsError, match=rf"text_augmentation=\('case',\): .*{fault}"):
        registry.problem(problem).preprocessing(hparams)
