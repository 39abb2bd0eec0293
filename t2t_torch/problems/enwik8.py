"""enwik8: the first 100,000,000 bytes of the English Wikipedia of 2006, including XML.

Source: Mahoney 2006, "Large Text Compression Benchmark", mattmahoney.net/dc/text.html; split as in
Chung et al. 2015, "Gated Feedback Recurrent Neural Networks".  Licence: Wikipedia's, GFDL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, ClassVar

from t2t_torch.data.raw_file import RawFile, member
from t2t_torch.errors import DataError
from t2t_torch.files import open_regular
from t2t_torch.mode import Split
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import Text2SelfProblem, VocabType

_ARCHIVE = RawFile(
    "enwik8.zip",
    urls=("http://mattmahoney.net/dc/enwik8.zip", "https://mattmahoney.net/dc/enwik8.zip"),
    # From Hugging Face datasets, datasets/enwik8/dataset_infos.json.
    sha256="547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
)
_FILE = member(_ARCHIVE, "enwik8")
# The splits' sizes in bytes: 90, 5 and 5 million.
_SHARES = {Split.TRAIN: (0, 90), Split.EVAL: (90, 95), Split.TEST: (95, 100)}
_PIECES = 16  # per generated text


@register_problem("enwik8_l65k")
class Enwik8L65k(Text2SelfProblem):
    """Wikipedia bytes, in sequences of 65,536.

    TRAIN is the first 90 %, EVAL the next 5 %, TEST the last 5 %; a character at a boundary belongs
    to the earlier split.  tensor2tensor's training sequences overlap by three quarters; here they
    do not overlap.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 16, Split.EVAL: 1, Split.TEST: 1}
    sources = (_FILE,)
    vocab_type = VocabType.CHARACTER
    chop_length = 2**16
    setting_names = (*Text2SelfProblem.setting_names, "chop_length")
    metrics = ("accuracy", "accuracy_top5", "neg_log_perplexity", "perplexity")
    target_space_id = 2  # tensor2tensor's SpaceID.EN_CHR

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields a split as texts of many sequences each, without losing a byte."""
        path = _FILE.get(tmp_dir)
        size = path.stat().st_size
        with open_regular(path) as file:
            start, end = (_border(file, size * share // 100) for share in _SHARES[split])
            while start < end:
                # Including the end of the text, a whole number of sequences.
                stop = _border(file, min(start + _PIECES * self.chop_length - 4, end))
                file.seek(start)
                raw = file.read(stop - start)
                try:
                    yield {"targets": raw.decode()}
                except UnicodeDecodeError as error:
                    raise DataError(
                        f"{path}, byte {start + error.start + 1:,} is not UTF-8 ({error.reason}). "
                        "It is not the file that was expected: remove it and fetch it again."
                    ) from None
                start = stop


@register_problem("enwik8_l32k")
class Enwik8L32k(Enwik8L65k):
    """Wikipedia bytes, in sequences of 32,768."""

    chop_length = 2**15


@register_problem("enwik8_l2k")
class Enwik8L2k(Enwik8L65k):
    """Wikipedia bytes, in sequences of 2,048."""

    chop_length = 2**11


@register_problem("enwik8_l512")
class Enwik8L512(Enwik8L65k):
    """Wikipedia bytes, in sequences of 512."""

    chop_length = 2**9


def _border(file: BinaryIO, place: int) -> int:
    """Returns the first offset from `place` on where a character begins, or the end of the file."""
    file.seek(place)
    rest = file.read(3)
    return place + next((i for i, byte in enumerate(rest) if byte & 0xC0 != 0x80), len(rest))
