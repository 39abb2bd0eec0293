"""Batches of random values, for the checks of models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from t2t_torch.features import (
    Feature,
    Features,
    Image,
    SoftLabel,
    Span,
    Text,
    TreeFeature,
    Turns,
)
from t2t_torch.layers.valid_transitions import ValidTransitions
from t2t_torch.text.encoder import EOS, NUM_RESERVED


def random_batch(features: Features, *, rows: int = 3, seed: int = 0) -> dict[str, Tensor]:
    """Returns a padded batch of random values, each row of a text ended by EOS."""
    generator = torch.Generator().manual_seed(seed)
    lengths: dict[str, list[int]] = {}
    batch = {}
    for k, (name, feature) in enumerate(features.all.items()):
        if isinstance(feature, TreeFeature):
            batch[name] = _random_trees(feature, lengths[feature.of], generator)
        elif feature.is_sequence:
            # What belongs to words has as many entries; rows differ in length.
            of = feature.aligned_to or name
            width = lengths.setdefault(of, [6 + k - 2 * (i % 3) + 1 for i in range(rows)])
            batch[name] = _random_rows(feature, width, generator)
        else:
            batch[name] = _random_values(feature, rows, generator)
    return batch


def _random_rows(feature: Feature, lengths: list[int], generator: torch.Generator) -> Tensor:
    low = NUM_RESERVED if isinstance(feature, Text) else int(feature.padding == 0)
    shape = (len(lengths), max(lengths), *feature.shape[1:])
    if feature.vocab_size:
        ids = torch.randint(low, feature.vocab_size, shape, generator=generator)
    else:  # numbers, which are no ids
        ids = torch.rand(shape, generator=generator) + 0.1
    for i, length in enumerate(lengths):
        if feature.generates:
            ids[i, length - 1] = EOS
        if isinstance(feature, Turns):
            ids[i, length // 2] = EOS
        ids[i, length:] = feature.padding
    return ids


def _random_trees(feature: TreeFeature, words: Sequence[int], generator: torch.Generator) -> Tensor:
    """Returns the transitions of trees over so many words."""
    rules = ValidTransitions(feature, 3, torch.device("cpu"))
    progress = rules.start(torch.tensor(words))
    trees = []
    while len(trees) < 2 or bool((trees[-1] > EOS).any()):
        weights = rules.valid(progress) * torch.tensor([1.0] * 5 + [0.3] * (feature.vocab_size - 5))
        ids = torch.multinomial(weights, 1, generator=generator)[:, 0]
        ids = ids.masked_fill(trees[-1] <= EOS, 0) if trees else ids
        progress = rules.after(ids, progress)
        trees.append(ids)
    return torch.stack(trees, 1)


def _random_values(feature: Feature, rows: int, generator: torch.Generator) -> Tensor:
    if isinstance(feature, Span):
        return torch.tensor([[1, 2], [-1, -1], [0, 0]])[torch.arange(rows) % 3]
    if feature.vocab_size:
        return torch.randint(feature.vocab_size, (rows,), generator=generator)
    shape = (rows, *(size or 1 for size in feature.shape))
    if feature.arrow_type == "list<uint8>":
        top = 256 if isinstance(feature, Image) else 2
        return torch.randint(top, shape, generator=generator, dtype=torch.uint8)
    values = torch.rand(shape, generator=generator) + 0.1
    if isinstance(feature, SoftLabel):  # peaked: there is something to learn
        values = values**6
        return values / values.sum(-1, keepdim=True)
    return values
