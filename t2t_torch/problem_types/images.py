"""Classification of images, and the changes of training images that are made when they are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from t2t_torch.errors import HParamsError, UsageError
from t2t_torch.features import Features, Image, PixelSequence, Text
from t2t_torch.features.image_augmentation import Change, fits_first, parse
from t2t_torch.features.picture import center_fit
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.problem_types.labelled import LabelTargets
from t2t_torch.text.encoder import TokenEncoder

if TYPE_CHECKING:
    import numpy as np

    from t2t_torch.hparam import DataHParams


class Image2ClassProblem(LabelTargets):
    """Classification of images of a fixed size.

    `generate_samples` yields {"inputs": uint8 array [height, width, channels], "targets": str}.  If
    `encoded`, "inputs" may also be the bytes of a JPEG or PNG file of any size, which are stored as
    they are and decoded when an example is read.

    Attributes:
      height: pixels.
      width: pixels.
      channels: 1 for greyscale, 3 for RGB.
      encoded: True to store files instead of pixels.
      augmentation: random changes of training images, such as ("crop:4", "flip"); see
        `features/image_augmentation.py`.  The hparam `image_augmentation` replaces them.
    """

    height: ClassVar[int] = 28
    width: ClassVar[int] = 28
    channels: ClassVar[int] = 1
    encoded: ClassVar[bool] = False
    augmentation: ClassVar[Sequence[str]] = ()
    suggested_flags = "--model=resnet --hparams_set=resnet_mnist --train_steps=5000"
    portfolio = ("again",)
    setting_names = ("height", "width", "channels", "class_labels")
    optional_setting_names = ("encoded",)

    def stored_features(self, directory: Path) -> Features:
        """Returns the features of the image and the label."""
        image = Image(self.height, self.width, self.channels, is_file=self.encoded)
        return Features({"inputs": image}, {"targets": self.target(directory)})

    def preprocessing(self, hparams: DataHParams) -> Callable[..., Mapping[str, Any]] | None:
        """Returns the function that changes training images; see `Problem.preprocessing`.

        A subclass's `preprocess_example` reads images that are already changed.

        Raises:
          HParamsError: there is no such change, or it is one of texts.
        """
        hparams.refuse(["text_augmentation"], ": the inputs are pictures. Set image_augmentation.")
        own: Any = super().preprocessing(hparams)
        try:
            size = (self.height, self.width)
            names = hparams.image_augmentation or self.augmentation
            changes = parse(names, size)
        except UsageError as error:
            raise HParamsError(str(error)) from None
        fits = size if fits_first(names) else None
        return ImageChanges(changes, own, fits) if changes else own


@dataclasses.dataclass(frozen=True)
class ImageChanges:
    """Changes of training images; called as `Problem.preprocess_example`.

    Attributes:
      changes: changes of "inputs", in their order.
      then: a problem's own `preprocess_example`, called afterwards.
      fits: height and width to which a picture file is fitted before the changes; None: a change
        reads the whole file.
    """

    changes: Sequence[Change]
    then: Callable[..., Mapping[str, Any]] | None = None
    fits: tuple[int, int] | None = None

    def __call__(
        self, example: dict[str, Any], mode: Split, rng: np.random.Generator
    ) -> Mapping[str, Any]:
        """Returns the changed example; in evaluation only `then` changes it."""
        if mode is Split.TRAIN:
            if self.fits is not None and example["inputs"].shape[:2] != self.fits:
                example["inputs"] = center_fit(example["inputs"], self.fits)
            for change in self.changes:
                example["inputs"] = change(example["inputs"], rng)
        return example if self.then is None else self.then(example, mode, rng)


class Class2ImageProblem(Problem):
    """Generation of images of a fixed size, given a class.

    `generate_samples` yields {"inputs": str, "targets": uint8 array [height, width, channels]}.
    The hparam `unconditional` of the model ignores the class.

    Attributes:
      height: pixels.
      width: pixels.
      channels: 1 for greyscale, 3 for RGB.
      class_labels: the names of the classes, without spaces.
    """

    height: ClassVar[int] = 28
    width: ClassVar[int] = 28
    channels: ClassVar[int] = 1
    class_labels: ClassVar[tuple[str, ...]] = ()
    metrics: ClassVar[tuple[str, ...]] = ("bits_per_dim", "accuracy", "neg_log_perplexity")
    suggested_flags = "--model=imagetransformer --hparams_set=imagetransformer_base"
    setting_names = ("height", "width", "channels", "class_labels")

    def stored_features(self, directory: Path) -> Features:
        """Returns the features of the class and the image."""
        label = Text(TokenEncoder(self.class_labels), add_eos=False)
        image = PixelSequence(height=self.height, width=self.width, channels=self.channels)
        return Features({"inputs": label}, {"targets": image})
