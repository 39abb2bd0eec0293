"""Metrics as exact sums: values and weights, added over batches and processes, divided once.

What is measured of a kind of target by default is a `functools.singledispatch` function of the
feature.  A user's kind registers its own:

    @label_metrics.register
    def _(feature: Grade) -> tuple[str, ...]:
        return ("f1_per_label",)
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from t2t_torch.features import (
    ClassLabel,
    Feature,
    MultiLabel,
    PixelSequence,
    SoftLabel,
    Span,
    Tags,
    Text,
    Transcript,
    TreeFeature,
)
from t2t_torch.text.tags import scheme_of

if TYPE_CHECKING:
    from torch import Tensor

_PER_LABEL = tuple(f"{name}_per_label" for name in ("precision", "recall", "f1", "support"))


@functools.singledispatch
def default_scores(feature: Feature) -> tuple[str, ...]:
    """Returns the names of the default scores that compare outputs with references."""
    return ("exact_match",)


default_scores.register(Text, lambda feature: ("bleu", "chrf"))
default_scores.register(PixelSequence, lambda feature: ("exact_match",))
default_scores.register(Transcript, lambda feature: ("word_error_rate", "character_error_rate"))


@default_scores.register
def _(feature: TreeFeature) -> tuple[str, ...]:
    return ("bracket_f1", "tree_f1", "tree_frame_accuracy", "malformed_trees")


default_scores.register(Span, lambda feature: ("squad_exact_match", "squad_f1"))


@functools.singledispatch
def label_metrics(feature: Feature) -> tuple[str, ...]:
    """Returns registered metrics of the table of precision, recall, F1 and support by label."""
    return ()


label_metrics.register(ClassLabel | MultiLabel, lambda feature: _PER_LABEL)


@label_metrics.register
def _(feature: Tags) -> tuple[str, ...]:
    """Returns metrics of each label, or of each kind of span where tags mark spans."""
    marks_spans = bool(scheme_of(feature.labels).letters)
    return tuple(f"span_{name}" for name in _PER_LABEL) if marks_spans else _PER_LABEL


@functools.singledispatch
def is_compared(feature: Feature) -> bool:
    """Returns whether `right_rows` applies to a target: not to numbers."""
    return bool(feature.vocab_size or feature.labels)


@is_compared.register
def _(feature: Span) -> bool:
    return True


is_compared.register(SoftLabel, lambda feature: False)


@functools.singledispatch
def right_rows(feature: Feature, logits: Tensor, targets: Tensor) -> Tensor:
    """Returns the examples whose target is predicted correctly as a whole, [B] bool.

    Args:
      feature: one for which `is_compared`.
      logits: the target's logits.
      targets: as in the batch.
    """
    from t2t_torch.metrics.metric import counted

    right = (logits.argmax(-1) == targets) | ~counted(feature, targets)
    return right if right.dim() == 1 else right.all(-1)


@right_rows.register(Span)
def _(feature: Span, logits: Tensor, targets: Tensor) -> Tensor:
    from t2t_torch.modalities.label import best_spans

    return (best_spans(logits) == targets).all(-1)


@right_rows.register(MultiLabel)
def _(feature: MultiLabel, logits: Tensor, targets: Tensor) -> Tensor:
    return ((logits > 0) == (targets > 0)).all(-1)
