"""MNIST and Fashion-MNIST: 70,000 greyscale images of digits, and of clothing, 28 x 28 pixels.

Sources: LeCun et al. 1998, "Gradient-Based Learning Applied to Document Recognition", no licence
stated; Xiao et al. 2017, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning
Algorithms", arXiv:1708.07747, MIT.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.data.raw_file import RawFile, mirrored, sources_of
from t2t_torch.mode import Split
from t2t_torch.problem_types.images import Image2ClassProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem

_KINDS = ("images-idx3-ubyte.gz", "labels-idx1-ubyte.gz")


def _files(
    folders: Sequence[str], mirrors: Sequence[str], sha256: Sequence[str]
) -> dict[Split, list[RawFile]]:
    """Returns the images and the labels of both splits; checksums in the order of the files."""
    names = [f"{part}-{kind}" for part in ("train", "t10k") for kind in _KINDS]
    files = mirrored(mirrors, dict(zip(names, sha256, strict=True)), *folders)
    return {Split.TRAIN: files[:2], Split.EVAL: files[2:]}


class _MnistProblem(Image2ClassProblem):
    """Base class of images and labels in MNIST's format.  As in tensor2tensor EVAL is `t10k`."""

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the images of a split."""
        images, labels = (file.get(tmp_dir) for file in sources_of(self, split))
        options = {"labels": str(labels.absolute())}
        for record in open_records(images, format="idx", bad=self.bad_records, options=options):
            number = int(record.values["label"])
            if number < len(self.class_labels):
                yield {"inputs": record.values["image"], "targets": self.class_labels[number]}
            else:
                self.bad_records.report(record.place, f"the label {number}, of 0 to 9")


@register_problem("image_mnist")
class ImageMnist(_MnistProblem):
    """Classifies images of handwritten digits.

    The raw files are `{train,t10k}-images-idx3-ubyte` and `{train,t10k}-labels-idx1-ubyte`.  As in
    tensor2tensor EVAL is the 10,000 images of `t10k`.
    """

    sources = _files(
        ("mnist", ""),
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        (  # of the original compressed files, as used by public downloaders
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    )
    class_labels = tuple("0123456789")


@register_problem("image_mnist_tune")
class ImageMnistTune(ImageMnist):
    """The same for tuning: EVAL is the last twelfth of the training digits, TRAIN the rest.

    EVAL has 5,000 of 60,000 digits, as in tensor2tensor.
    """

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the digits of a split."""
        count = sum(1 for _ in super().generate_samples(tmp_dir, Split.TRAIN))
        cut = count - count // 12
        ends = (0, cut) if split is Split.TRAIN else (cut, count)
        yield from itertools.islice(super().generate_samples(tmp_dir, Split.TRAIN), *ends)


@register_problem("image_fashion_mnist")
class ImageFashionMnist(_MnistProblem):
    """Classifies images of clothing into ten classes.

    The raw files have the same names as MNIST's, in the folder `fashion_mnist` of `--tmp_dir`.  As
    in tensor2tensor EVAL is the 10,000 images of `t10k`.
    """

    sources = _files(
        ("fashion_mnist",),  # MNIST's files in `--tmp_dir` have the same names
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        (  # of the compressed files, from TensorFlow Datasets, url_checksums/fashion_mnist.txt
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    )
    class_labels = (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    )
