"""Hugging Face's tokenizers in an ONNX graph: words, subword models and texts by type.

Normalizers are in `normalizers.py`.  What is built is compared with the tokenizer itself on texts
of its own tokens and of all Unicode: parts that a graph computes otherwise are refused.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from t2t_torch.errors import ExportError
from t2t_torch.export import strings
from t2t_torch.export.graph import EXTENSIONS, Proxy, combine, shifted, take, where
from t2t_torch.export.normalizers import Step, is_space, normalized
from t2t_torch.export.segmentation import PieceTrie, merge_pairs, most_probable
from t2t_torch.text.encoder import NUM_RESERVED
from t2t_torch.text.pieces import HuggingFacePieces, PieceEncoder

META_SPACE = "\u2581"

_BYTES = tuple(f"<0x{number:02X}>" for number in range(256))
# The letter that stands for each byte: one that is printed stands for itself.
_PRINTED = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [one for one in range(256) if one not in _PRINTED]
_LETTERS = dict(zip(map(chr, [*_PRINTED, *range(256, 512)]), _PRINTED + _OTHERS, strict=False))

_OPTIONS = ("dropout", "end_of_word_suffix", "continuing_subword_prefix")
_CLASS = {"tokenizer_class": "GPT2Tokenizer"}  # by which the operator knows BPE of bytes
_BLOCK = 256  # neighboring characters, which are often unchanged or removed all
_NONE = "\0"  # no letter that a text has after substitution


class OurIds(NamedTuple):
    """Ids of the tokens of a tokenizer.

    Attributes:
      by_token: id of each token that texts have.
      unknown: id of all others.
    """

    by_token: Mapping[str, int]
    unknown: int

    def of(self, tokens: Iterable[str]) -> np.ndarray:
        """Returns the id of each token, followed by that of an unknown one."""
        return np.array([*(self.by_token.get(one, self.unknown) for one in tokens), self.unknown])


class Letters(NamedTuple):
    """The characters of all texts.

    Attributes:
      letters: characters, [N] string.
      row: index of the text of each, [N] int64.
      begins: mask of the first character of each word, [N] bool.
    """

    letters: Proxy
    row: Proxy
    begins: Proxy


def tokenizer_ids(
    pieces: HuggingFacePieces, ours: OurIds, field: strings.FieldText
) -> strings.NumberRows:
    """Returns our ids of texts.

    Args:
      pieces: the tokenizer.
      ours: ids of its tokens.
      field: the texts.

    Raises:
      ExportError: the tokenizer has a part that no graph computes.
    """
    config, model = pieces.config, pieces.config["model"]
    splitter = config["pre_tokenizer"] or {}
    steps = [one["type"] for one in splitter.get("pretokenizers", [splitter]) if one]
    is_byte_level = model["type"] == "BPE" and steps in (["ByteLevel"], ["Split", "ByteLevel"])
    if not is_byte_level and not all(one["special"] for one in config["added_tokens"]):
        raise ExportError("it has added tokens that are not special")
    if model["type"] == "WordPiece" and steps == ["BertPreTokenizer"]:
        return _word_pieces(pieces, ours, field)
    if option := next((one for one in _OPTIONS if model.get(one)), None):
        raise ExportError(f"its model has {option}")
    texts = normalized(config["normalizer"], field.texts)
    if is_byte_level:
        return _merged_bytes(config, ours, texts)
    letters, row = strings.nonempty(strings.FieldText(texts).letters)
    words = Letters(letters, row, row != shifted(row, -1, strings.NONE))
    words = _split(config["pre_tokenizer"], words)
    if model["type"] == "Unigram":
        found, word = _unigram(model, ours, words)
    elif model["type"] == "BPE":
        found, word = _merged(model, ours, words)
    else:
        raise ExportError(f"its model is {model['type']}")
    return strings.rows_of(found, words.row.Compress(words.begins, axis=0)[word], texts)


def _split(step: Step | None, words: Letters) -> Letters:
    """Returns the words that a pre-tokenizer makes; ExportError if no graph computes it."""
    match step:
        case None:
            return words
        case {"type": "Sequence", "pretokenizers": steps}:
            return functools.reduce(lambda its, one: _split(one, its), steps, words)
        case {"type": "WhitespaceSplit"}:
            spaces = dict.fromkeys(filter(is_space, strings.characters()), 1)
            space = strings.look_up(words.letters, spaces, 0)
            words = words._replace(begins=words.begins | (shifted(space, -1, 0) == 1))
            return Letters(*(one.Compress(space == 0, axis=0) for one in words))
        case {"type": "Metaspace", "replacement": mark, "prepend_scheme": scheme, "split": split}:
            letters, row, begins = words
            letters = strings.substitute(letters, {" ": mark}, _NONE)
            if scheme != "never":
                first = row != shifted(row, -1, strings.NONE) if scheme == "first" else begins
                letters = where(first & (letters != mark), mark, "").StringConcat(letters)
            letters, of = strings.nonempty(strings.characters_of(letters))
            begins = begins[of] & (of != shifted(of, -1, strings.NONE))
            return Letters(letters, row[of], begins | (letters == mark) if split else begins)
    raise ExportError(f"its words are split by {step['type']}")


def _unigram(model: Step, ours: OurIds, words: Letters) -> tuple[Proxy, Proxy]:
    """Returns our ids of the most probable pieces, and the word of each: Kudo 2018,
    arXiv:1804.10959.
    """
    if model.get("byte_fallback") or model["unk_id"] is None:
        raise ExportError("its Unigram model falls back to bytes, or has no unknown token")
    found, word = most_probable(words.letters, words.begins, model["vocab"], model["unk_id"])
    return take(ours.of(token for token, _ in model["vocab"]), found), word


def _merged(model: Step, ours: OurIds, words: Letters) -> tuple[Proxy, Proxy]:
    """Returns our ids after the merges of BPE whose unknown letters are bytes, and the word of
    each: Sennrich et al. 2016, arXiv:1508.07909.
    """
    vocabulary, letters = model["vocab"], words.letters
    if not model.get("byte_fallback") or any(name not in vocabulary for name in _BYTES):
        raise ExportError("it lacks tokens of bytes")
    if model.get("ignore_merges"):
        raise ExportError("it ignores merges of whole tokens")
    numbers = {token: number for number, token in enumerate(vocabulary)}
    single = {token: number for token, number in numbers.items() if len(token) == 1}
    symbol = strings.look_up(letters, {_NONE: strings.NONE, **single}, strings.NONE).Unsqueeze([1])
    bytes_ = np.array([*map(numbers.__getitem__, _BYTES), strings.NONE])  # the last is of NONE
    own = symbol.Pad([0, 0, 0, 3], strings.NONE)
    wanted = where(symbol >= 0, own, take(bytes_, strings.utf8(letters)))  # [N, 4]
    kept = wanted >= 0
    word = (words.begins.integers().CumSum(0) - 1)[kept.NonZero()[0]]
    symbols = wanted.Reshape([-1]).Compress(kept.Reshape([-1]), axis=0)
    pairs = (tuple(one.split(" ") if isinstance(one, str) else one) for one in model["merges"])
    ranks = {pair: rank for rank, pair in enumerate(pairs)}
    symbols, word = merge_pairs(symbols, word, ranks, numbers)
    return take(ours.of(vocabulary), symbols), word


def _merged_bytes(config: Step, ours: OurIds, texts: Proxy) -> strings.NumberRows:
    """Returns our ids of texts by the operator of onnxruntime-extensions; a text ends at NUL."""
    vocabulary = config["model"]["vocab"]
    added = [one for one in config["added_tokens"] if not one["special"]]
    # The operator needs ids without a gap.
    names = [*sorted(vocabulary, key=vocabulary.get), *(one["content"] for one in added)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    model = {**config["model"], "vocab": {name: numbers[name] for name in vocabulary}}
    added = [{**one, "id": numbers[one["content"]]} for one in added]
    plain = {**config, "added_tokens": added, "normalizer": None, "post_processor": None}
    theirs, mask = texts.graph.several(
        2,
        "HfJsonTokenizer",
        texts,
        domain=EXTENSIONS,
        tokenizer_vocab=json.dumps({**plain, "model": model}),
        tokenizer_config=json.dumps(_CLASS),
    )
    flat = theirs.Reshape([-1]).Compress(mask.Reshape([-1]) == 1, axis=0)
    return strings.of_flat(take(ours.of(numbers), flat), mask.integers().sum(1))


def _word_pieces(
    pieces: HuggingFacePieces, ours: OurIds, field: strings.FieldText
) -> strings.NumberRows:
    """Returns the ids of the pieces of texts: the longest one first, or one unknown piece."""
    model = pieces.config["model"]
    spelled = strings.substitute(field.letters, _bert_letters(pieces), "\n")  # which is in no word
    parts = strings.tokens(strings.joined(spelled), separators=[" +"])
    words, row = strings.nonempty(parts)
    # The first symbol of a word is its start, and only pieces that begin words begin with it.
    letters, word = strings.nonempty(strings.characters_of(combine("StringConcat", "\n", words)))
    alphabet = {one for token in ours.by_token for one in token} - {"\n"}
    numbers = {one: number for number, one in enumerate(["\n", *sorted(alphabet)])}
    prefix = model["continuing_subword_prefix"]
    trie = {}
    for token, number in ours.by_token.items():
        is_inside = token.startswith(prefix)
        text = token.removeprefix(prefix) if is_inside else f"\n{token}"
        if text.strip("\n"):
            trie[tuple(numbers[one] for one in text)] = number
    symbols = strings.look_up(letters, numbers, len(numbers))
    starts = symbols == 0
    cut = PieceTrie(trie, len(numbers)).cut(symbols, starts)
    none = combine("Expand", 0, words.Shape())
    fails = none.ScatterElements(word, (cut.begins & (cut.ids < 0)).integers(), reduction="max")
    sizes = none.ScatterElements(word, combine("Expand", 1, word.Shape()), reduction="add")
    is_unknown = ((fails == 1) | (sizes > int(model["max_input_chars_per_word"]) + 1))[word]
    ids = where(is_unknown, ours.unknown, cut.ids)
    kept = cut.begins & (starts | ~is_unknown)
    ids, row = (one.Compress(kept, axis=0) for one in (ids, row[word]))
    return strings.rows_of(ids, row, parts)


@functools.lru_cache(1)
def _bert_letters(pieces: HuggingFacePieces) -> dict[str, str]:
    """Returns what each character becomes, of those that are changed, with spaces between words.

    BERT's normalization and its split do not depend on the characters around one.
    """
    changed: dict[str, str] = {}
    every = strings.characters()
    for start in range(0, len(every), _BLOCK):
        block = every[start : start + _BLOCK]
        words = pieces.words(f"a{''.join(block)}a")
        if words == ["aa"]:
            changed |= dict.fromkeys(block, "")
        elif words != [f"a{''.join(block)}a"]:
            texts = {one: " ".join(pieces.words(f"a{one}a"))[1:-1] for one in block}
            changed |= {one: text for one, text in texts.items() if text != one}
    return changed


def tokenizer_texts(
    pieces: HuggingFacePieces, encoder: PieceEncoder, ids: Proxy, mask: Proxy
) -> Proxy:
    """Returns the texts of tokens, [B] string; bytes that are not UTF-8 are replaced.

    Args:
      pieces: the tokenizer.
      encoder: the encoder.
      ids: [B, T] int64.
      mask: mask of ids that have a text, [B, T] bool.

    Raises:
      ExportError: the tokenizer has a part that no graph computes.
    """
    names, decoder = encoder.tokens, pieces.config["decoder"] or {}
    kinds = [step.get("type", "no decoder") for step in decoder.get("decoders", [decoder])]
    if kinds == ["Metaspace"]:
        first = mask.integers().CumSum(1) == 1
        inside, lead = ([one.replace(META_SPACE, by) for one in names] for by in (" ", ""))
        return strings.joined(
            where(first, strings.named(lead, ids, mask), strings.named(inside, ids, mask))
        )
    if kinds[:3] == ["Replace", "ByteFallback", "Fuse"]:
        values = {name: bytes([number]) for number, name in enumerate(_BYTES)}
        octets = [values.get(one, one.replace(META_SPACE, " ").encode()) for one in names]
        is_byte = take(np.array([one in values for one in names]), ids).Unsqueeze([2])
        rows = _octets(octets, ids, mask)
        own = (is_byte & (rows >= 0)).integers().Reshape([0, -1])
        return strings.texts_of(rows.Reshape([0, -1]), own, strips=kinds[3:] == ["Strip"])
    if kinds == ["ByteLevel"]:
        texts = ((one, all(letter in _LETTERS for letter in one)) for one in names)
        octets = [
            bytes(map(_LETTERS.__getitem__, one)) if known else one.encode() for one, known in texts
        ]
        return strings.texts_of(_octets(octets, ids, mask).Reshape([0, -1]))
    raise ExportError(f"its texts are made by {' and '.join(kinds)}")


def _octets(octets: list[bytes], ids: Proxy, mask: Proxy) -> Proxy:
    """Returns the bytes of each kept id, padded with `NONE`.  [B, T, most]."""
    table = np.full((len(octets), max(map(len, octets))), strings.NONE, np.int64)
    for line, text in zip(table, octets, strict=True):
        line[: len(text)] = list(text)
    return where(mask.Unsqueeze([2]), take(table, ids), strings.NONE)


_ODD = (
    "a  b", " \u00a0\t", "\r\n", "don't", "I'LL", "12,345.67", "CAF\u00c9", "e\u0301\u0323",
    "\u212b", "\ud55c\uad6d", "\u1112\u1161\u11ab", "\u6570\u5b57", "\ufb01\u2460", "\u0130\u03a3",
    "\U0001f468\u200d\U0001f469", "\u0915\u094d\u0937", "\u2581", "\ufeff", "``", "''", "<0x0A>",
    "[SEP]", "x  1", "a \u00bd \u00b2", "\t\t\tx", "\ufe0f\u200d", "a--------b",
)  # fmt: skip


def trials(encoder: PieceEncoder) -> tuple[list[list[int]], list[str]]:
    """Returns random rows of ids, and their texts with odd and random characters."""
    draw, every, size = random.Random(0), strings.characters()[1:], encoder.vocab_size
    rows = [[draw.randrange(NUM_RESERVED, size) for _ in range(n)] for n in [1, 12] * 100]
    known = [encoder.decode(row) for row in rows]
    texts = ["", *_ODD, *known]
    for length in range(100):
        parts = [*_ODD, *draw.sample(known, 9), *draw.sample(every, 9)]
        texts.append("".join(draw.sample(parts, 1 + length % 8)))
    return rows, [text.replace("\0", "") for text in texts]
