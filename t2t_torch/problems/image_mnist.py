"""MNIST: 70,000 greyscale images of handwritten digits, 28 x 28 pixels.

Source: LeCun et al. 1998, "Gradient-Based Learning Applied to Document Recognition".
Licence: none stated.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile
from t2t_torch.mode import Split
from t2t_torch.problem_types.images import Image2ClassProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem

_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_SHA256 = {  # checksums of the original compressed files, as used by public downloaders
    "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
_FILES = {
    name: RawFile(name, ("mnist", ""), [f"{mirror}{name}.gz" for mirror in _MIRRORS], sha256)
    for name, sha256 in _SHA256.items()
}


@register_problem("image_mnist")
class ImageMnist(Image2ClassProblem):
    """Classifies images of handwritten digits.

    The raw files are `{train,t10k}-images-idx3-ubyte` and `{train,t10k}-labels-idx1-ubyte`.  As in
    tensor2tensor EVAL is the 10,000 images of `t10k`.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1}
    sources = tuple(_FILES.values())
    class_labels = tuple("0123456789")

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the digits of a split."""
        yield from self._digits(tmp_dir, "train" if split is Split.TRAIN else "t10k")

    def _digits(self, tmp_dir: Path, part: str) -> Iterator[dict[str, Any]]:
        images = _FILES[f"{part}-images-idx3-ubyte"].get(tmp_dir)
        labels = _FILES[f"{part}-labels-idx1-ubyte"].get(tmp_dir)
        options = {"labels": str(labels.absolute())}
        for record in open_records(images, format="idx", bad=self.bad_records, options=options):
            yield {"inputs": record.values["image"], "targets": record.values["label"]}


@register_problem("image_mnist_tune")
class ImageMnistTune(ImageMnist):
    """The same for tuning: EVAL is the last twelfth of the training digits, TRAIN the rest.

    EVAL has 5,000 of 60,000 digits, as in tensor2tensor.
    """

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the digits of a split."""
        count = sum(1 for _ in self._digits(tmp_dir, "train"))
        cut = count - count // 12
        ends = (0, cut) if split is Split.TRAIN else (cut, count)
        yield from itertools.islice(self._digits(tmp_dir, "train"), *ends)
