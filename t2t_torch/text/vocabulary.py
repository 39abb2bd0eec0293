"""Vocabulary files of pieces of words, whoever made them."""

from __future__ import annotations

from pathlib import Path

from t2t_torch.text.encoder import TextEncoder
from t2t_torch.text.subtoken import SubtokenEncoder, holds_subtokens
from t2t_torch.text.subword import SubwordEncoder


def load_subwords(path: Path) -> TextEncoder:
    """Reads a `vocab.NAME.SIZE.subwords`: tensor2tensor's subtokens, or a sentencepiece model.

    Both have the same name; what is in the file tells them apart.

    Raises:
      DataError: there is no such file, or it is neither.
    """
    return SubtokenEncoder.load(path) if holds_subtokens(path) else SubwordEncoder.load(path)
