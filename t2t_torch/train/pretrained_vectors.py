"""The vectors of words that a new model begins with: those of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from t2t_torch.errors import DataError, HParamsError
from t2t_torch.features import Text
from t2t_torch.text.encoder import NUM_RESERVED
from t2t_torch.text.token import TokenEncoder
from t2t_torch.text.vectors import WordVectors, read_vectors, width_of_vectors
from t2t_torch.train.word_counts import count_ids, texts_by_table

if TYPE_CHECKING:
    from torch import nn

    from t2t_torch.modalities.text import Embedding
    from t2t_torch.train.problem_data import ProblemData


def load_pretrained(model: nn.Module, data: ProblemData) -> list[str]:
    """Gives the tables of a new model the vectors that `pretrained_embeddings` names.

    They are given to the inputs that are texts; without inputs, to the targets.  A word's vector is
    looked up as it is written, else in small letters.  Rows without a vector stay drawn, with the
    deviation of those that have one (Kim 2014, arXiv:1408.5882, section 3.2).

    Args:
      model: any, with its first weights.
      data: whose training words are counted.

    Returns:
      what to tell of it; nothing if the hparams name no file.

    Raises:
      HParamsError: a vocabulary is of no words, or the vectors are of another width.
      DataError: the file cannot be read, or has no word of a vocabulary.
    """
    learner: Any = model
    hparams, features = learner.hparams, learner.features
    if not hparams.pretrained_embeddings:
        return []
    path = Path(hparams.pretrained_embeddings).expanduser()
    role = features.inputs or features.targets
    tables = {
        own[0]: (table, own)
        for table, names in texts_by_table(model)
        if (own := [name for name in names if name in role])
    }
    words = {name: _words(name, role[name]) for name in tables}
    if not words:
        raise HParamsError("pretrained_embeddings: this problem has no texts. Leave it out.")
    width = width_of_vectors(path)
    for name, (table, _) in tables.items():
        _check_width(hparams, name, table, path, width)
    wanted = {form for own in words.values() for word in own for form in (word, word.lower())}
    vectors = read_vectors(path, wanted)
    again = f", {vectors.duplicates:,} doubles left out" if vectors.duplicates else ""
    pieces = f", {vectors.composed:,} more from pieces of words" if vectors.composed else ""
    told = f"{vectors.in_file:,} of width {vectors.width}{again}{pieces}"
    lines = [f"word vectors: {path}, {told}"]
    for name, (table, names) in tables.items():
        rows, lowered = _rows(words[name], vectors)
        if not (rows >= 0).any():
            raise DataError(
                f"{path} has a vector of none of the {len(rows):,} words of {name!r}. Is it of "
                "this language?"
            )
        _fill(table, rows, vectors)
        counts = count_ids(data, names, len(table.weight))[NUM_RESERVED:][: len(rows)]
        lines.append("  " + _told(names, rows, lowered, counts))
    return lines


def _words(name: str, feature: Text) -> tuple[str, ...]:
    """Returns the words of a vocabulary, from the first id that is no reserved one."""
    if not isinstance(feature.encoder, TokenEncoder):
        raise HParamsError(
            f"pretrained_embeddings gives words their vectors, and the vocabulary of {name!r} is "
            f"of pieces of words or of characters ({type(feature.encoder).__name__}). Take a "
            "problem with a vocabulary of words (vocab_type word), or leave it out."
        )
    return feature.encoder.tokens[NUM_RESERVED:]


def _check_width(hparams: Any, name: str, table: Embedding, path: Path, width: int) -> None:
    own = table.weight.size(1)
    if own == width:
        return
    setting = "embedding_size" if getattr(hparams, "embedding_size", 0) else "hidden_size"
    value = getattr(hparams, setting) + width - own
    raise HParamsError(
        f"the vectors of {path} have {width} numbers, and those that the model reads for {name!r} "
        f"have {own}. Set --hparams={setting}={value}, or take a file of vectors of {own}."
    )


def _rows(words: tuple[str, ...], vectors: WordVectors) -> tuple[np.ndarray, np.ndarray]:
    """Returns the row of each word's vector, -1 where there is none, and whether it was found in
    small letters alone.
    """
    exact = np.array([vectors.rows.get(word, -1) for word in words], np.int64)
    small = np.array([vectors.rows.get(word.lower(), -1) for word in words], np.int64)
    return np.where(exact >= 0, exact, small), (exact < 0) & (small >= 0)


@torch.no_grad()
def _fill(table: Embedding, rows: np.ndarray, vectors: WordVectors) -> None:
    """Sets a table so that what is read of a word is its vector as it stands in the file."""
    values = torch.from_numpy(vectors.values[rows[rows >= 0]]) / table.scale
    found = torch.zeros(len(table.weight), dtype=torch.bool)
    found[NUM_RESERVED : NUM_RESERVED + len(rows)] = torch.from_numpy(rows >= 0)
    weight = table.weight.detach().cpu().clone()
    drawn = weight[~found]
    weight[~found] = drawn * (values.std(correction=0) / drawn.std(correction=0))
    weight[found] = values
    table.weight.copy_(weight)


def _told(names: list[str], rows: np.ndarray, lowered: np.ndarray, counts: np.ndarray) -> str:
    """Tells how many words, and occurrences of words in the training data, have a vector."""
    there = rows >= 0
    seen = int(counts.sum())
    share = f", {counts[there].sum() / seen:.1%} of the training words" if seen else ""
    return (
        f"{', '.join(names)}: {there.sum():,} of {len(rows):,} words of the vocabulary have one "
        f"({there.mean():.1%}: {there.sum() - lowered.sum():,} as written, {lowered.sum():,} in "
        f"small letters){share}; the others are drawn"
    )
