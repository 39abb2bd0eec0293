"""Changed vocabularies: words added to a vocabulary file, and the old ids of each new id."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import Path

from t2t_torch.errors import DataError, UsageError
from t2t_torch.files import MAX_VOCABULARY, read_bytes, read_entries, read_json
from t2t_torch.text.encoder import EOS, PAD, CharacterEncoder, TextEncoder


@dataclasses.dataclass(frozen=True)
class RowSources:
    """The old ids whose vectors the vector of each new id is made of.

    Attributes:
      sources: old ids by new id: the one of the same token, or those of the pieces of the token's
        text; none if the old vocabulary has no pieces of it.
      matched: number of new ids with the token of an old one.
      composed: number of new ids made of pieces.
      dropped: number of old ids whose token is in the new vocabulary no more.
    """

    sources: tuple[tuple[int, ...], ...]
    matched: int
    composed: int
    dropped: int

    @property
    def averaged(self) -> int:
        """Number of new ids without a source."""
        return len(self.sources) - self.matched - self.composed

    @property
    def is_same(self) -> bool:
        """True if all ids are as they were."""
        return self.sources == tuple((number,) for number in range(self.matched + self.dropped))


def same_rows(size: int) -> RowSources:
    """Returns the sources of a vocabulary of `size` tokens in itself."""
    return RowSources(tuple((number,) for number in range(size)), size, 0, 0)


def row_sources(old: TextEncoder, new: TextEncoder) -> RowSources | None:
    """Returns the old ids of each new id; None if both vocabularies have the same tokens.

    Padding, the end and the unknown token correspond to each other.  The other tokens are compared
    by name if both encoders are of one kind.  A token that the old vocabulary lacks is split by the
    old encoder into known pieces, whose vectors are averaged: Gee et al. 2022, "Fast Vocabulary
    Transfer for Language Model Compression", arXiv:2402.09977, section 3.  A token without such
    pieces begins as the mean of all vectors: Hewitt 2021, "Initializing New Word Embeddings for
    Pretrained Language Models", https://nlp.stanford.edu/~johnhew/vocab-expansion.html.
    """
    theirs, ours = _keys(old), _keys(new)
    is_alike = _kind(old) == _kind(new)
    if is_alike and theirs == ours:
        return None
    known = {key: number for number, key in enumerate(theirs) if is_alike or key[0] is None}
    unknown, ours_unknown = old.unknown_ids, new.unknown_ids
    sources: list[tuple[int, ...]] = []
    for number, key in enumerate(ours):
        if key in known:
            sources.append((known[key],))
            continue
        pieces: list[int] = []
        if number not in ours_unknown:  # whose names are no text
            with contextlib.suppress(DataError):
                pieces = old.encode(new.decode([number]))
        sources.append(tuple(piece for piece in pieces if piece not in unknown))
    matched = sum(key in known for key in ours)
    composed = sum(map(bool, sources)) - matched
    return RowSources(tuple(sources), matched, composed, len(theirs) - matched)


def _keys(encoder: TextEncoder) -> list[tuple[str | None, int]]:
    """Returns a unique key of each id; those of padding, end and unknown begin with None."""
    special = [PAD, EOS, *(encoder.unknown_ids if len(encoder.unknown_ids) == 1 else ())]
    places = {number: place for place, number in enumerate(special)}
    seen: Counter[str] = Counter()
    keys: list[tuple[str | None, int]] = []
    for number, token in enumerate(encoder.tokens):
        keys.append((None, places[number]) if number in places else (token, seen[token]))
        seen[token] += number not in places
    return keys


def _kind(encoder: TextEncoder) -> Hashable:
    """Returns the kind of an encoder, by which names of tokens are comparable."""
    return type(encoder), type(getattr(encoder, "pieces", None))


_ANOTHER = (
    "Take a larger vocabulary in place of words added to this one: learn one (a new problem with a "
    "larger vocab_size), or give another model; --warm_start_from matches its rows by token."
)


def add_words(file: Path, words: Sequence[str], *, lower_case: bool = False) -> bytes:
    """Returns the content of a vocabulary file with further words; known ones are skipped.

    Args:
      file: vocabulary of whole words, or of characters.
      words: words without spaces; in an alphabet their characters are added.
      lower_case: True if the vocabulary has words in lower case.

    Raises:
      DataError: the file cannot be read, or a word has a space.
      UsageError: words cannot be added to such a vocabulary.
    """
    words = list(filter(None, words))
    if not words:
        return read_bytes(file, max_bytes=MAX_VOCABULARY)
    if bad := next((word for word in words if len(word.split()) != 1 or word != word.strip()), ""):
        raise DataError(f"{bad!r} is not one word. Write a word a line, without spaces.")
    if lower_case:
        words = [word.lower() for word in words]
    if file.suffix == ".symbols":
        alphabet = CharacterEncoder.load(file).characters
        return f"{json.dumps(list(dict.fromkeys([*alphabet, *''.join(words)])))}\n".encode()
    if file.suffix in (".tokens", ".words"):
        lines = dict.fromkeys([*read_entries(file), *words])
        return "".join(f"{line}\n" for line in lines).encode()
    content = read_json(file, max_bytes=MAX_VOCABULARY) if file.suffix == ".pieces" else {}
    if "tokenizer" in content:
        raise UsageError(
            f"{file} is the tokenizer of a pretrained model, with which it has to agree. Add the "
            "words to both: tokenizer.add_tokens(words), model.resize_token_embeddings("
            "len(tokenizer)), and save_pretrained(NEW) of both, with transformers. Then:  "
            "t2t-datagen --pretrained=NEW, and t2t-trainer --hparams=pretrained=NEW "
            "--warm_start_from=RUN"
        )
    if not content or {"sentencepiece", "bpe"} & content.keys():
        kind = next((one for one in ("sentencepiece", "bpe") if one in content), "subword")
        raise UsageError(
            f"{file} is a {kind} vocabulary, which has pieces of every word: a new entry would "
            f"split other texts in another way. {_ANOTHER}"
        )
    content["tokens"] = list(dict.fromkeys([*content["tokens"], *words]))
    return json.dumps(content, ensure_ascii=False).encode()
