"""What decides how a problem's examples become batches."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from t2t_torch.errors import HParamsError
from t2t_torch.pipeline.bucketing import NO_LIMIT, BatchingScheme, batching_scheme

if TYPE_CHECKING:
    from t2t_torch.hparam import DataHParams
    from t2t_torch.problem import Problem


@dataclasses.dataclass(frozen=True)
class Batching:
    """The data hparams, and what the problem makes of them.

    Attributes:
      hparams: the data group.
      means_tokens: whether `batch_size` counts tokens (else examples).
      max_length: tokens of the longest example that is trained on; 0: any.
      length_multiplier: tensor2tensor's `batch_size_multiplier`: multiplies the boundaries of the
        buckets and `max_length`, for data of which so many positions cost as much as one token.
      split_length: positions of the pieces that texts are cut in, each an example; 0: not cut.
      longest_row: positions of the longest row of the training split; it bounds evaluation where
        nothing else does.  0: not known.
    """

    hparams: DataHParams
    means_tokens: bool
    max_length: int
    length_multiplier: int = 1
    split_length: int = 0
    longest_row: int = 0

    @classmethod
    def of(cls, problem: Problem, hparams: DataHParams, *, longest_row: int = 0) -> Batching:
        """Returns how examples of a problem become batches.

        A `max_length` of 0 is as many tokens as `batch_size`, but only where that counts tokens.
        """
        given = problem.split_length(hparams) or hparams.max_length
        means_tokens = problem.batch_size_means_tokens and not hparams.use_fixed_batch_size
        return cls(
            hparams,
            means_tokens=means_tokens,
            max_length=problem.max_length(hparams) if means_tokens else given,
            length_multiplier=problem.batch_size_multiplier,
            split_length=problem.split_length(hparams),
            longest_row=longest_row,
        )

    @property
    def bound(self) -> int:
        """To how many positions an evaluation example is cut; 0: it is not.

        So no batch of evaluation is larger than one of training may be.  Where `batch_size` counts
        examples that is `max_length`, or without it the longest row of the training split.
        """
        if self.split_length or (self.hparams.eval_drop_long_sequences and self.max_length):
            return 0  # what is longer is in pieces, or left out
        if not self.means_tokens and not self.max_length:
            return self.longest_row
        return max(self._longest, self.max_length) * self.length_multiplier

    @property
    def packed_length(self) -> int:
        """Positions of a packed row.

        Raises:
          HParamsError: `batch_size` counts examples, and no `max_length` is given.
        """
        if not self.max_length:
            raise HParamsError(
                "pack_dataset makes rows of max_length tokens. Give it: --hparams=max_length=256."
            )
        return self.max_length * self.length_multiplier

    @property
    def training(self) -> BatchingScheme:
        """The buckets of training: longer and shorter examples are left out."""
        return self._scheme(self.max_length, self.hparams.min_length)

    @property
    def evaluation(self) -> BatchingScheme:
        """The buckets of evaluation, which keeps all but what `eval_drop_long_sequences` drops."""
        if self.hparams.eval_drop_long_sequences:
            return self._scheme(self.max_length, 0)
        return self._scheme(self._longest, 0)

    @property
    def _longest(self) -> int:
        """Tokens of the longest example of an evaluation; 0: any.

        A batch of training has `batch_size` tokens, or is one example of `max_length`.
        """
        return max(self.max_length, self.hparams.batch_size) if self.means_tokens else 0

    def _scheme(self, max_length: int, min_length: int) -> BatchingScheme:
        hparams, multiplier = self.hparams, self.length_multiplier
        if not self.means_tokens:
            limit = max_length * multiplier or NO_LIMIT
            return BatchingScheme((), (hparams.batch_size,), min_length, limit)
        return batching_scheme(
            hparams.batch_size,
            max_length,
            hparams.min_length_bucket,
            hparams.length_bucket_step,
            drop_long_sequences=True,
            length_multiplier=multiplier,
            min_length=min_length,
        )
