"""Creation of the modalities of a problem, with shared embedding tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Features, Text
from t2t_torch.hparam import HParams
from t2t_torch.modalities import image, label, speech, tags, words
from t2t_torch.modalities.text import Embedding, Softmax, TextModality, embedding, padded_size
from t2t_torch.modalities.words import ContextualEmbedding, FrozenLanguageModel, own_width
from t2t_torch.modality import modality_of
from t2t_torch.objectives import TargetObjective, objective_of

MODALITIES = (image, label, speech, tags, words)
"""What is imported so that its modalities are known."""


def build_modalities(
    hparams: HParams, features: Features, widths: Mapping[str, int] | None = None
) -> nn.ModuleDict:
    """Returns a modality for each input and target, with shared embedding tables.

    With `shared_embedding_and_softmax_weights` all bottoms of texts and the softmax share a table,
    with `shared_embedding` all bottoms, with `shared_target_embedding_and_softmax_weights` those of
    targets and the softmax.  A modality is built with the `hidden_size` of its side of
    the network: the output width of its bottom, or the input width of its top.

    Args:
      hparams: hyperparameters of the model.
      features: features of the problem.
      widths: input widths of the tops by target; `hidden_size` by default.

    Raises:
      HParamsError: vocabularies of different sizes cannot share a table, a type of feature has no
        modality, or a loss does not fit its target.
    """
    modalities = nn.ModuleDict()
    widths = {
        **{name: hparams.input_width(feature) for name, feature in features.inputs.items()},
        **dict.fromkeys(features.targets, hparams.hidden_size),
        **(widths or {}),
    }
    texts = _text_modalities(hparams, features, widths)
    for name, feature in {**features.inputs, **features.targets}.items():
        if name in texts:
            modalities[name] = texts[name]
        else:
            kind = modality_of(name, feature, hparams)
            is_target = name in features.targets
            sized = hparams.replace(hidden_size=widths[name])
            modalities[name] = kind.build(feature, sized, is_target=is_target)
    for name, objective in objectives(hparams, features).items():
        modality: Any = modalities[name]
        modality.objective = objective
    return modalities


def objectives(hparams: HParams, features: Features) -> dict[str, TargetObjective | None]:
    """Returns the objective of each target; None if its modality has its own loss.

    Raises:
      HParamsError: as `objective_of`; or a type of target has no modality.
    """
    return {
        name: objective_of(name, features, hparams, modality_of(name, feature, hparams))
        for name, feature in features.targets.items()
    }


def _text_modalities(
    hparams: HParams, features: Features, widths: Mapping[str, int]
) -> dict[str, TextModality]:
    texts = {
        name: feature
        for name, feature in {**features.inputs, **features.targets}.items()
        if isinstance(feature, Text) and modality_of(name, feature) is TextModality
    }
    share_all = hparams.shared_embedding_and_softmax_weights
    share_top = share_all or hparams.shared_target_embedding_and_softmax_weights
    sizes = {name: padded_size(feature, hparams) for name, feature in texts.items()}
    if (share_all or hparams.shared_embedding) and len(set(sizes.values())) > 1:
        flag = "shared_embedding_and_softmax_weights" if share_all else "shared_embedding"
        raise HParamsError(
            f"{flag}=True needs vocabularies of one size, but they are {sizes}. "
            f"Use a joint vocabulary, or --hparams={flag}=False."
        )
    modalities = {}
    shared: Embedding | None = None
    context: FrozenLanguageModel | None = None
    tables = []
    for name, text in texts.items():
        is_target = name in features.targets
        # Targets are also read, one step later.
        width = hparams.target_input_width(text) if is_target else hparams.input_width(text)
        own = width if is_target else own_width(hparams, width)
        table = shared or embedding(text, hparams.replace(hidden_size=own))
        tables.append(table)
        if table.weight.size(1) != own:
            raise HParamsError(
                "contextual_embeddings or decoder_hparams: inputs and targets have vectors of "
                "other widths, so they share no table. Set shared_embedding and "
                "shared_embedding_and_softmax_weights to False."
            )
        if share_all or hparams.shared_embedding:
            shared = table
        bottom: nn.Module = table
        if own != width:
            context = context or FrozenLanguageModel(hparams.contextual_architecture, text)
            bottom = ContextualEmbedding(table, context, hparams.contextual_size)
        top = None
        if is_target and share_top and widths[name] != width:
            raise HParamsError(
                "a shared table of embedding and softmax needs vectors of one width, but those "
                f"that are read have {width} and the softmax of {name!r} takes {widths[name]}. Set "
                "shared_embedding_and_softmax_weights and "
                "shared_target_embedding_and_softmax_weights to False."
            )
        if is_target:
            sized = hparams.replace(hidden_size=widths[name])
            weight = table.weight if share_top else embedding(text, sized).weight
            top = Softmax(weight, bias=hparams.output_bias)
        modalities[name] = TextModality(bottom, top)
    if hparams.contextual_embeddings and context is None:
        raise HParamsError("contextual_embeddings: this problem's inputs are no texts.")
    _check_singletons(hparams, tables)
    return modalities


def _check_singletons(hparams: HParams, tables: Iterable[Embedding]) -> None:
    if hparams.singleton_dropout and all(table.unknown is None for table in tables):
        raise HParamsError(
            f"singleton_dropout={hparams.singleton_dropout}: no text of this problem has a "
            "vocabulary with a word for all unknown ones, as one of words has (vocab_type word). "
            "Set it to 0, or use word_dropout."
        )
