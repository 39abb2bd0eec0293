"""Creation of the modalities of a problem, with shared embedding tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.features import Feature, Features, Text
from t2t_torch.hparam import HParams, values_by_target
from t2t_torch.loss import TargetLoss
from t2t_torch.modalities import image, label, speech, tags, words
from t2t_torch.modalities.masked import MaskedTokensModality
from t2t_torch.modalities.text import Embedding, Softmax, TextModality, embedding, padded_size
from t2t_torch.modalities.words import ContextualEmbedding, FrozenLanguageModel, own_width
from t2t_torch.modality import Modality, modality_of

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
            made: Any = modalities[name]
            if isinstance(made, MaskedTokensModality) and feature.refers_to in texts:
                bottom: Any = texts[str(feature.refers_to)].bottom
                made.share(getattr(bottom, "table", bottom).weight)
    for name, loss in target_losses(hparams, features).items():
        modality: Any = modalities[name]
        modality.target_loss = loss
    return modalities


def target_losses(hparams: HParams, features: Features) -> dict[str, TargetLoss | None]:
    """Returns the loss of each target; None if its modality has its own.

    It is chosen by the hparam `loss`, else by the problem, else by the modality.

    Raises:
      HParamsError: a loss does not fit its target, or a type of target has no modality.
    """
    requested = values_by_target("loss", hparams.loss, features.targets)
    losses: dict[str, TargetLoss | None] = {}
    for target, feature in features.targets.items():
        modality = modality_of(target, feature, hparams)
        default = [features.losses.get(target, modality.default_loss)]
        names = requested.get(target, requested.get("", default))
        if len(names) != 1:
            raise HParamsError(f"loss={hparams.loss}: one loss for a target, not {len(names)}.")
        losses[target] = _loss(names[0], target, feature, hparams, modality)
    return losses


def _loss(
    name: str, target: str, feature: Feature, hparams: HParams, modality: type[Modality]
) -> TargetLoss | None:
    """Returns the loss of this name; see `target_losses`."""
    if not modality.default_loss:
        if name:
            raise HParamsError(
                f"target {target!r} has a loss of its own, that of {modality.__name__}; {name!r} "
                "cannot be set for it. Name the other targets alone: loss=[target:name,...]."
            )
        return None
    kind = registry.loss(name)
    if not isinstance(feature, kind.of):
        fit = [n for n in registry.list_names("loss") if isinstance(feature, registry.loss(n).of)]
        raise HParamsError(
            f"the loss {name!r} does not fit target {target!r}, which is a "
            f"{type(feature).__name__}. Those that do: {', '.join(fit)}. "
            f"Set one with --hparams=loss=[{target}:NAME]."
        )
    loss: TargetLoss = kind(feature, hparams)
    return loss


def _check_shared_sizes(hparams: HParams, sizes: Mapping[str, int]) -> None:
    """Raises HParamsError if texts share a table, but have vocabularies of other sizes."""
    share_all = hparams.shared_embedding_and_softmax_weights
    if (share_all or hparams.shared_embedding) and len(set(sizes.values())) > 1:
        flag = "shared_embedding_and_softmax_weights" if share_all else "shared_embedding"
        raise HParamsError(
            f"{flag}=True needs vocabularies of one size, but they are {sizes}. "
            f"Use a joint vocabulary, or --hparams={flag}=False."
        )


def _text_modalities(
    hparams: HParams, features: Features, widths: Mapping[str, int]
) -> dict[str, TextModality]:
    texts = {
        name: feature
        for name, feature in {**features.inputs, **features.targets}.items()
        if isinstance(feature, Text) and modality_of(name, feature, hparams) is TextModality
    }
    share_all = hparams.shared_embedding_and_softmax_weights
    share_top = share_all or hparams.shared_target_embedding_and_softmax_weights
    _check_shared_sizes(hparams, {name: padded_size(one, hparams) for name, one in texts.items()})
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
    if hparams.singleton_dropout and all(table.unknown is None for table in tables):
        raise HParamsError(
            f"singleton_dropout={hparams.singleton_dropout}: no text of this problem has a "
            "vocabulary with a word for all unknown ones, as one of words has (vocab_type word). "
            "Set it to 0, or use word_dropout."
        )
    return modalities
