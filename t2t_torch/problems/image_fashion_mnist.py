"""Fashion-MNIST: 70,000 greyscale images of clothing, 28 x 28 pixels.

Source: Xiao et al. 2017, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning
Algorithms", arXiv:1708.07747.  Licence: MIT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile
from t2t_torch.mode import Split
from t2t_torch.problem_types.images import Image2ClassProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem

_MIRRORS = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
)
# Checksums of the compressed files, from TensorFlow Datasets, url_checksums/fashion_mnist.txt.
_SHA256 = {
    "train-images-idx3-ubyte": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}
# A subfolder, because MNIST's files in `--tmp_dir` have the same names.
_FILES = {
    name: RawFile(name, ("fashion_mnist",), [f"{mirror}{name}.gz" for mirror in _MIRRORS], sha256)
    for name, sha256 in _SHA256.items()
}


@register_problem("image_fashion_mnist")
class ImageFashionMnist(Image2ClassProblem):
    """Classifies images of clothing into ten classes.

    The raw files have the same names as MNIST's, in the folder `fashion_mnist` of `--tmp_dir`.  As
    in tensor2tensor EVAL is the 10,000 images of `t10k`.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1}
    sources = tuple(_FILES.values())
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

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the images of a split."""
        part = "train" if split is Split.TRAIN else "t10k"
        images = _FILES[f"{part}-images-idx3-ubyte"].get(tmp_dir)
        labels = _FILES[f"{part}-labels-idx1-ubyte"].get(tmp_dir)
        options = {"labels": str(labels.absolute())}
        for record in open_records(images, format="idx", bad=self.bad_records, options=options):
            number = int(record.values["label"])
            if number < len(self.class_labels):
                yield {"inputs": record.values["image"], "targets": self.class_labels[number]}
            else:
                self.bad_records.report(record.place, f"the label {number}, of 0 to 9")
