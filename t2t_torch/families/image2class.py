"""A picture, to one of several classes."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from t2t_torch.features import ClassLabel, Features, Image
from t2t_torch.problem import Problem
from t2t_torch.text.label import ClassLabelEncoder


class Image2ClassProblem(Problem):
    """A picture of a fixed size, to one of several classes.

    `generate_samples` yields {"inputs": uint8 array [height, width, channels], "targets": str}.

    Attributes:
      height: pixels.
      width: pixels.
      channels: 1 for grey, 3 for red, green and blue.
      class_labels: the names of the classes.
    """

    height: ClassVar[int] = 28
    width: ClassVar[int] = 28
    channels: ClassVar[int] = 1
    class_labels: ClassVar[tuple[str, ...]]
    metrics = ("accuracy", "neg_log_perplexity")
    suggested_flags = (
        "--model=transformer_encoder --hparams_set=transformer_encoder_image --train_steps=5000"
    )
    setting_names = ("height", "width", "channels", "class_labels")

    def stored_features(self, directory: Path) -> Features:
        """Returns the picture and the label."""
        image = Image(self.height, self.width, self.channels)
        return Features({"inputs": image}, {"targets": ClassLabel(self._labels)})

    @property
    def _labels(self) -> ClassLabelEncoder:
        return ClassLabelEncoder(self.class_labels)
