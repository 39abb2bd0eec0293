"""CIFAR-10 and CIFAR-100: 60,000 colour images of 32 x 32 pixels each.

Source: Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images".
Licence: none stated.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from t2t_torch.data.raw_file import RawFile, both_schemes, member, published, sources_of
from t2t_torch.errors import DataError
from t2t_torch.features.picture import resize_by_area
from t2t_torch.files import open_bytes
from t2t_torch.mode import Split
from t2t_torch.problem_types.images import Class2ImageProblem, Image2ClassProblem
from t2t_torch.readers.text_file import Place
from t2t_torch.registry import register_problem

# The binary versions: the others are pickles, which can execute code.  The checksums are from
# TensorFlow Datasets, url_checksums/cifar10.txt and cifar100.txt.
_CIFAR_10 = published(
    "cifar",
    *both_schemes("www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"),
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
_CIFAR_100 = published(
    "cifar",
    *both_schemes("www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"),
    sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
)
_SIDE = 32
_TRAINING_IMAGES = 50_000
_PIXELS = 3 * _SIDE * _SIDE

# Names from batches.meta.txt, coarse_label_names.txt and fine_label_names.txt.
_TEN = """
    airplane automobile bird cat deer dog frog horse ship truck
""".split()
_TWENTY = """
    aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices
    household_furniture insects large_carnivores large_man-made_outdoor_things
    large_natural_outdoor_scenes large_omnivores_and_herbivores medium_mammals
    non-insect_invertebrates people reptiles small_mammals trees vehicles_1 vehicles_2
""".split()
_HUNDRED = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
    butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch
    crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo
    keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse
    mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy
    porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper
    snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television
    tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
""".split()


class _CifarProblem(Image2ClassProblem):
    """Classifies images; as in tensor2tensor EVAL is the 10,000 test images.

    The raw files are the binary ones: for each image its labels, one byte each, then 1,024 bytes
    each of red, green and blue.

    Attributes:
      label_bytes: number of labels of each image.
      label_byte: index of the label used as the target.
      held_out: training images at the end of the files that are EVAL in place of the test images.
      resized_to: side to which images are scaled, by the mean of each area; 0: as they are.
    """

    height = _SIDE
    width = _SIDE
    channels = 3
    label_bytes: ClassVar[int] = 1
    label_byte: ClassVar[int] = 0
    held_out: ClassVar[int] = 0
    resized_to: ClassVar[int] = 0
    augmentation: ClassVar[Sequence[str]] = ("crop:4", "flip")
    suggested_flags = "--model=resnet --hparams_set=resnet_cifar_small --train_steps=30000"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the images of a split."""
        if not self.held_out:
            yield from self._samples(tmp_dir, split)
            return
        count = sum(1 for _ in self._samples(tmp_dir, Split.TRAIN))
        cut = count - max(1, count * self.held_out // _TRAINING_IMAGES)
        ends = (0, cut) if split is Split.TRAIN else (cut, count)
        yield from itertools.islice(self._samples(tmp_dir, Split.TRAIN), *ends)

    def _samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        for file in sources_of(self, split):
            for sample in self._pictures(file.get(tmp_dir)):
                if self.resized_to:
                    sample["inputs"] = resize_by_area(sample["inputs"], self.resized_to)
                yield sample

    def _pictures(self, path: Path) -> Iterator[dict[str, Any]]:
        size = self.label_bytes + _PIXELS
        number = 0
        with open_bytes(path) as file:
            while record := file.read(size):
                number += 1
                if len(record) < size:
                    raise DataError(
                        f"{path} ends within picture {number:,}, after {len(record):,} of its "
                        f"{size:,} bytes. It is damaged, or of another data set: fetch it again."
                    )
                label = record[self.label_byte]
                if label < len(self.class_labels):
                    planes = np.frombuffer(record, np.uint8, offset=self.label_bytes)
                    picture = planes.reshape(3, _SIDE, _SIDE).transpose(1, 2, 0)
                    yield {"inputs": picture, "targets": self.class_labels[label]}
                else:
                    why = f"the label {label}, of 0 to {len(self.class_labels) - 1}"
                    self.bad_records.report(Place(path, number, unit="picture"), why)


@register_problem("image_cifar10")
class ImageCifar10(_CifarProblem):
    """Classifies images into ten classes."""

    sources: ClassVar[Mapping[Split, Sequence[RawFile]]] = {
        Split.TRAIN: tuple(
            member(_CIFAR_10, f"cifar-10-batches-bin/data_batch_{i}.bin") for i in range(1, 6)
        ),
        Split.EVAL: (member(_CIFAR_10, "cifar-10-batches-bin/test_batch.bin"),),
    }
    class_labels = tuple(_TEN)


@register_problem("image_cifar100")
class ImageCifar100(_CifarProblem):
    """Classifies images into 100 classes."""

    sources: ClassVar[Mapping[Split, Sequence[RawFile]]] = {
        Split.TRAIN: (member(_CIFAR_100, "cifar-100-binary/train.bin"),),
        Split.EVAL: (member(_CIFAR_100, "cifar-100-binary/test.bin"),),
    }
    class_labels = tuple(_HUNDRED)
    label_bytes = 2
    label_byte = 1


@register_problem("image_cifar20")
class ImageCifar20(ImageCifar100):
    """Classifies the images of CIFAR-100 into 20 superclasses."""

    class_labels = tuple(_TWENTY)
    label_byte = 0


@register_problem("image_cifar10_tune")
class ImageCifar10Tune(ImageCifar10):
    """The same for tuning: EVAL is the last 2,000 training images, TRAIN the rest."""

    held_out = 2000


@register_problem("image_cifar10_plain")
class ImageCifar10Plain(ImageCifar10):
    """The same without random changes of training images."""

    augmentation: ClassVar[Sequence[str]] = ()


class _Scaled(_CifarProblem):
    """Settings of the problems with small images."""

    height = 8
    width = 8
    resized_to = 8


@register_problem("image_cifar10_plain8")
class ImageCifar10Plain8(_Scaled, ImageCifar10Plain):
    """The same, scaled to 8 x 8 pixels, without random changes of training images."""


@register_problem("image_cifar100_tune")
class ImageCifar100Tune(ImageCifar100):
    """The same for tuning: EVAL is the last 2,000 training images, TRAIN the rest."""

    held_out = 2000


@register_problem("image_cifar100_plain")
class ImageCifar100Plain(ImageCifar100):
    """The same without random changes of training images."""

    augmentation: ClassVar[Sequence[str]] = ()


@register_problem("image_cifar100_plain8")
class ImageCifar100Plain8(_Scaled, ImageCifar100Plain):
    """The same, scaled to 8 x 8 pixels, without random changes of training images."""


@register_problem("image_cifar20_tune")
class ImageCifar20Tune(ImageCifar20):
    """The same for tuning: EVAL is the last 2,000 training images, TRAIN the rest."""

    held_out = 2000


@register_problem("image_cifar20_plain")
class ImageCifar20Plain(ImageCifar20):
    """The same without random changes of training images."""

    augmentation: ClassVar[Sequence[str]] = ()


@register_problem("image_cifar20_plain8")
class ImageCifar20Plain8(_Scaled, ImageCifar20Plain):
    """The same, scaled to 8 x 8 pixels, without random changes of training images."""


@register_problem("image_cifar10_plain_random_shift")
class ImageCifar10PlainRandomShift(ImageCifar10Plain):
    """The same, with training images moved by up to a tenth of their sides."""

    augmentation = ("shift:0.1",)


@register_problem("image_cifar10_plain_gen")
class ImageCifar10PlainGen(Class2ImageProblem):
    """Generates images of a class; in tensor2tensor with the suffix `_rev`."""

    height = _SIDE
    width = _SIDE
    channels = 3
    class_labels: ClassVar[tuple[str, ...]] = ImageCifar10.class_labels
    suggested_flags = "--model=imagetransformer --hparams_set=imagetransformer_cifar10_base"
    sources = ImageCifar10.sources
    classes: ClassVar[_CifarProblem] = ImageCifar10Plain()

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the images of a split."""
        self.classes.bad_records = self.bad_records
        for sample in self.classes.generate_samples(tmp_dir, split):
            yield {"inputs": sample["targets"], "targets": sample["inputs"]}


@register_problem("image_cifar100_plain_gen")
class ImageCifar100PlainGen(ImageCifar10PlainGen):
    """Generates images of one of 100 classes; in tensor2tensor with the suffix `_rev`."""

    class_labels = ImageCifar100.class_labels
    sources = ImageCifar100.sources
    classes: ClassVar[_CifarProblem] = ImageCifar100Plain()


@register_problem("image_cifar20_plain_gen")
class ImageCifar20PlainGen(ImageCifar10PlainGen):
    """Generates images of one of 20 superclasses; in tensor2tensor with the suffix `_rev`."""

    class_labels = ImageCifar20.class_labels
    sources = ImageCifar20.sources
    classes: ClassVar[_CifarProblem] = ImageCifar20Plain()
