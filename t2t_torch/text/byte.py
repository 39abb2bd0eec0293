"""Bytes as ids."""

from __future__ import annotations

from t2t_torch.text.encoder import NUM_RESERVED, TextEncoder, check_unicode


class ByteEncoder(TextEncoder):
    """The UTF-8 bytes of a text, each plus 2.  Nothing is out of vocabulary, and nothing to learn.

    Ids that are not valid UTF-8 decode to U+FFFD, ids that are no byte to nothing.
    Source: tensor2tensor's `ByteTextEncoder`.
    """

    @property
    def vocab_size(self) -> int:
        """258."""
        return 256 + NUM_RESERVED

    def encode(self, text: str) -> list[int]:
        """Returns one id per UTF-8 byte."""
        try:
            return [byte + NUM_RESERVED for byte in text.encode()]
        except UnicodeEncodeError:
            check_unicode(text)
            raise

    def _decode(self, ids: list[int]) -> str:
        byte_ids = range(NUM_RESERVED, self.vocab_size)
        return bytes(i - NUM_RESERVED for i in ids if i in byte_ids).decode(errors="replace")
