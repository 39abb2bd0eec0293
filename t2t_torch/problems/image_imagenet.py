"""ImageNet (ILSVRC 2012): 1.28 million photographs of 1,000 kinds of things.

Source: Russakovsky et al. 2015, "ImageNet Large Scale Visual Recognition Challenge",
arXiv:1409.0575.  Licence: non-commercial research, after registration at image-net.org.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.problem_types.images import Image2ClassProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem

_FOLDERS = {Split.TRAIN: "train", Split.EVAL: "val"}


@register_problem("image_imagenet224")
class ImageImagenet224(Image2ClassProblem):
    """Classifies photographs of 224 x 224 pixels.

    Files are stored as they are and decoded when they are read.

    The raw files are folders by class in `--tmp_dir`, `imagenet/train/n01440764/*.JPEG` and
    `imagenet/val/n01440764/*.JPEG`: the archives of the training set unpacked, and the validation
    set sorted into folders of the same names.  Subsets such as Imagenette have this layout, too.
    Classes are the names of the training folders, in alphabetical order.  As in tensor2tensor EVAL
    is the validation set.

    Training images are random parts of random shape, scaled and mirrored.  In evaluation the centre
    of 7/8 of the shorter side is scaled.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1024, Split.EVAL: 10}
    height = 224
    width = 224
    channels = 3
    encoded = True
    augmentation = ("resized_crop", "flip")
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "accuracy_top5", "neg_log_perplexity")
    suggested_flags = "--model=resnet --hparams_set=resnet_50"

    def raw_files(self, tmp_dir: Path) -> list[Path]:
        """Returns the folders of both parts."""
        return [tmp_dir / "imagenet" / name for name in _FOLDERS.values()]

    def prepare(self, tmp_dir: Path) -> None:
        """Checks that the folders are there."""
        if missing := [path for path in self.raw_files(tmp_dir) if not path.is_dir()]:
            raise DataError(
                f"{', '.join(map(str, missing))}: ImageNet cannot be downloaded without an "
                "account. Get ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar from "
                "image-net.org, and unpack them there into a folder for each class."
            )

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the files of a part, its classes by turns."""
        folder = tmp_dir / "imagenet" / _FOLDERS[split]
        for record in open_records(
            folder, format="class_folders", bad=self.bad_records, options={"encoded": True}
        ):
            yield {"inputs": record.values["image"], "targets": record.values["label"]}


@register_problem("image_imagenet256")
class ImageImagenet256(ImageImagenet224):
    """Classifies photographs of 256 x 256 pixels."""

    height = 256
    width = 256


@register_problem("image_imagenet64")
class ImageImagenet64(ImageImagenet224):
    """Classifies photographs of 64 x 64 pixels."""

    height = 64
    width = 64
    suggested_flags = "--model=resnet --hparams_set=resnet_imagenet_34"


@register_problem("image_imagenet32")
class ImageImagenet32(ImageImagenet224):
    """Classifies photographs of 32 x 32 pixels."""

    height = 32
    width = 32
    suggested_flags = "--model=resnet --hparams_set=resnet_cifar_32"
