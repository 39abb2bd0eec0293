"""What learns a declared problem's vocabulary, and tells its faults by the declaration's keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from t2t_torch.data.learner import Learner, Sample
from t2t_torch.declaration.schema import mistake
from t2t_torch.text.subword import SmallVocabularyError


class DeclaredLearner(Learner):
    """Learns what another learner does.

    Args:
      learner: the other.
      path: where the declaration stands.
    """

    def __init__(self, learner: Learner, path: Path) -> None:
        super().__init__(learner.file)
        self._learner = learner
        self._path = path

    def learn(self, samples: Iterator[Sample], path: Path) -> Iterator[Sample]:
        """Passes all samples on.

        Raises:
          RegistryError: "vocab_size" is too small; names file and line.
        """
        try:
            yield from self._learner.learn(samples, path)
        except SmallVocabularyError as error:
            raise mistake(self._path, "vocab_size", error.why) from None
