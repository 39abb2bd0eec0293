"""A target of each kind, with logits for it as a model gives them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from t2t_torch import registry
from t2t_torch.features import (
    IGNORED,
    UNKNOWN,
    Choice,
    ClassLabel,
    Feature,
    Features,
    MultiLabel,
    Real,
    SoftLabel,
    Span,
    Tags,
    Text,
    Words,
)
from t2t_torch.hparam import HParams
from t2t_torch.layers.tokens import Hidden
from t2t_torch.loss import Loss, TargetOutputs, TeacherOutput
from t2t_torch.modalities.build import build_modalities
from t2t_torch.objectives.objective import item_terms
from t2t_torch.text.encoder import ClassLabelEncoder, IntegerEncoder

LABELS = ClassLabelEncoder(["a", "b", "c"])
TEXT = Text(IntegerEncoder(9))
B, W, C, V = 4, 5, 3, TEXT.vocab_size

TARGETS: dict[type[Feature], Feature] = {
    Text: TEXT,
    ClassLabel: ClassLabel(LABELS),
    Tags: Tags(LABELS),
    Choice: Choice(("first", "second", "third")),
    Span: Span("inputs"),
    SoftLabel: SoftLabel(LABELS),
    MultiLabel: MultiLabel(LABELS),
    Real: Real(3),
}
PAIRS = [
    (name, kind)
    for name in registry.list_names("loss")
    for kind in TARGETS
    if issubclass(kind, registry.loss(name).of)
]
"""Each loss with each kind of target that it is of."""


def features_of(kind: type[Feature], **losses: str) -> Features:
    """Features with one target of a kind."""
    inputs = {"inputs": Words(IntegerEncoder(9))}
    return Features(inputs, {"targets": TARGETS[kind]}, losses=losses)


def modality_of(kind: type[Feature], **hparams: Any) -> Any:
    """The modality of a target."""
    torch.manual_seed(0)
    made = HParams().replace(hidden_size=6, label_smoothing=0.0, **hparams)
    return build_modalities(made, features_of(kind))["targets"]


def training_loss(
    modality: Any,
    passes: list[Tensor],
    targets: Tensor,
    weights: Tensor | None = None,
    taught: TeacherOutput | None = None,
    **hparams: Any,
) -> Loss:
    """The training loss of the states of each pass, with the terms of the hyperparameters."""
    terms = item_terms(HParams().replace(**hparams), modality, taught)
    hidden = [Hidden(one) for one in passes]
    return modality.training_loss(TargetOutputs(hidden, targets, weights, terms=terms))


def batch_of(kind: type[Feature]) -> tuple[Tensor, Tensor]:
    """Logits and targets, one of them unknown or padding where there may be such."""
    generator = torch.Generator().manual_seed(3)

    def logits(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) * 2

    if kind is Text:
        ids = torch.tensor([[3, 4, 1, 0, 0], [5, 6, 7, 8, 1], [2, 1, 0, 0, 0], [9, 9, 2, 1, 0]])
        return logits(B, W, V), ids
    if kind is Tags:
        tags = torch.tensor([[0, 1, 2, UNKNOWN], [2, 2, IGNORED, IGNORED]])
        return logits(2, 4, C), tags
    if kind is ClassLabel:
        return logits(B, C), torch.tensor([2, UNKNOWN, 0, 1])
    if kind is Choice:
        return logits(B, 3), torch.tensor([0, 0, 2, 1])
    if kind is Span:
        there = torch.tensor([6, 3, 4, 6])[:, None] > torch.arange(6)
        masked = logits(B, 6, 2).masked_fill(~there[..., None], -torch.inf)
        return masked, torch.tensor([[1, 3], [-1, -1], [0, 0], [2, 4]])
    if kind is SoftLabel:
        rows = [[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.1, 0.1, 0.8]]
        return logits(B, C), torch.tensor(rows)
    if kind is MultiLabel:
        rows = [[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]]
        return logits(B, C), torch.tensor(rows, dtype=torch.uint8)
    return logits(B, 3), logits(B, 3)
