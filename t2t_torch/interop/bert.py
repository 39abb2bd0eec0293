"""Import of BERT and DistilBERT, as Hugging Face's folders hold them.

Devlin et al. 2019, arXiv:1810.04805; Sanh et al. 2019, arXiv:1910.01108.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2t_torch.errors import HParamsError, UsageError
from t2t_torch.hparam import HParams
from t2t_torch.interop import huggingface, translation
from t2t_torch.interop.importer import ImportedRun, class_names
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.interop.translation import Linear, Side, TransformerWeights, Weights

_KINDS = ("bert", "distilbert")
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "problem_type": (None, "single_label_classification"),
}
_OTHER_HEADS = ("cls.", "vocab_", "qa_outputs.", "lm_head.")
_NAMES: Mapping[str, Mapping[str, str]] = {
    "bert": {
        "layers": "encoder.layer",
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "inner": "intermediate.dense",
        "outer": "output.dense",
        "feed_forward_norm": "output.LayerNorm",
        "pooler": "pooler.dense",
    },
    "distilbert": {
        "layers": "transformer.layer",
        "query": "attention.q_lin",
        "key": "attention.k_lin",
        "value": "attention.v_lin",
        "output": "attention.out_lin",
        "attention_norm": "sa_layer_norm",
        "inner": "ffn.lin1",
        "outer": "ffn.lin2",
        "feed_forward_norm": "output_layer_norm",
        "pooler": "pre_classifier",
    },
}
"""Names of the parts of a layer, and of the map before the classifier."""
_CONFIG: Mapping[str, tuple[str, str]] = {  # names of settings, of BERT and of DistilBERT
    "heads": ("num_attention_heads", "n_heads"),
    "activation": ("hidden_act", "activation"),
    "dropout": ("hidden_dropout_prob", "dropout"),
    "attention_dropout": ("attention_probs_dropout_prob", "attention_dropout"),
}


_SIZES = {
    **dict.fromkeys(("hidden_size", "dim"), "hidden_size"),
    **dict.fromkeys(("num_hidden_layers", "n_layers"), "num_hidden_layers"),
    **dict.fromkeys(("intermediate_size", "hidden_dim"), "filter_size"),
    "max_position_embeddings": "max_source_positions",
}
"""Our names of sizes in a configuration, of BERT and of DistilBERT."""

OPTIONS = frozenset("kind labels problem".split())


def detect(source: Path) -> bool:
    """Returns True if a folder has a model of the BERT family and its weights."""
    return huggingface.model_type(source) in _KINDS


def read(source: Path, settings: ImportSettings) -> ImportedRun:
    """Returns the run of an encoder with a classifier of its first position.

    The heads of pretraining and of other tasks are left out.  What a classifier needs and the
    checkpoint lacks is initialized.

    Args:
      source: folder of `save_pretrained`.
      settings: settings of the import; `labels` names the classes, and `kind` says whether they are
        of a text or of two.

    Raises:
      CheckpointError: the weights are damaged, or not those of the configuration.
      DataError: the configuration or the vocabulary is missing or damaged.
      HParamsError: the model computes something that this library does not.
      UsageError: the folder has a model of another kind, or the labels do not fit it.
    """
    config = huggingface.read_json(source / "config.json")
    kind = str(config.get("model_type"))
    if kind not in _KINDS:
        raise UsageError(f"{source / 'config.json'} is of a {kind!r}; expected one of {_KINDS}.")
    translation.refuse(kind, translation.forbidden(config, _MUST_BE))
    tensors = {
        _standard(name, kind): one for name, one in huggingface.folder_tensors(source).items()
    }
    heads = [name for name in tensors if name.startswith(_OTHER_HEADS)]
    weights = Weights(kind, tensors)
    weights.drop([*heads, "embeddings.position_ids"])
    labels = _labels(weights, config, settings)
    is_pair = settings.kind == "textpair2class"
    ours, hparams = _encoder(weights, config, kind, is_pair=is_pair)
    translation.check_sizes(kind, config, hparams, _SIZES)
    rows = len(ours["modalities.inputs.bottom.weight"])
    vocabulary = huggingface.read_vocabulary(
        source, rows, pad="[PAD]", eos="[SEP]", unknown="[UNK]", first=["[CLS]"], silent=["[MASK]"]
    )
    table = vocabulary.rows(ours.pop("modalities.inputs.bottom.weight"))
    made = _classifier(weights, ours, kind, hparams.hidden_size, len(labels))
    weights.check_read()
    texts = ("first", "second") if is_pair else ("inputs",)
    ours |= {f"modalities.{text}.bottom.weight": table for text in texts}
    name = settings.problem or translation.free_name(source.resolve().name)
    file = f"vocab.{name}.inputs.pieces"
    return ImportedRun(
        library=kind,
        problem=name,
        model="transformer_encoder",
        hparams=hparams.signed(kind),
        weights=ours,
        declaration={
            "problem": name,
            "kind": settings.kind or "text2class",
            "files": {split: f"{name}-{split}.tsv" for split in ("train", "eval")},
            "vocabularies": dict.fromkeys(texts, file),
            "labels": labels,
        },
        vocabularies={file: vocabulary.file()},
        ignored=[*sorted({one.split(".")[0] for one in heads}), *made],
    )


def _standard(name: str, kind: str) -> str:
    """Returns a weight's name without that of the encoder, and as newer versions have it."""
    name = name.removeprefix(f"{kind}.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def _labels(weights: Weights, config: Mapping[str, Any], settings: ImportSettings) -> list[str]:
    """Returns the names of the classes: the options', the configuration's, or numbers."""
    named = config.get("id2label") or {}
    shape = weights.shape("classifier.weight")
    count = shape[0] if shape else len(settings.labels) or len(named) or 2
    labels = class_names(count, settings, [str(named.get(str(n), n)) for n in range(count)])
    if count < 2:
        raise HParamsError(
            "this model has a single output, a number: only classifiers are imported. Leave "
            "classifier.* out of the checkpoint to import the encoder alone."
        )
    return labels


def _encoder(
    weights: Weights, config: Mapping[str, Any], kind: str, *, is_pair: bool
) -> tuple[dict[str, Tensor], HParams]:
    """Returns the weights of embeddings and layers, and hyperparameters."""
    ours = TransformerWeights()
    table = weights("embeddings.word_embeddings.weight")
    positions = weights("embeddings.position_embeddings.weight")
    types = torch.zeros(2, table.size(1))
    if weights.shape("embeddings.token_type_embeddings.weight"):
        types = weights("embeddings.token_type_embeddings.weight")
    if is_pair:
        ours.weights["join.which"] = types[:2] if len(types) > 1 else types.expand(2, -1).clone()
    else:
        positions = positions + types[0]  # all ids have this type
    ours.weights["join.positions.table"] = positions
    ours.norm("join.positions", weights.linear("embeddings.LayerNorm"))
    ours.weights["modalities.inputs.bottom.weight"] = table
    _layers(weights, ours, _NAMES[kind])
    hparams = _hparams(config, kind, ours).replace(
        max_length=len(positions), joint_positions=is_pair, shared_embedding=is_pair
    )
    return ours.weights, hparams


def _layers(weights: Weights, ours: TransformerWeights, names: Mapping[str, str]) -> None:
    """Adds the weights of all layers."""
    for number in range(weights.layers(names["layers"])):

        def part(name: str, number: int = number) -> Linear:
            return weights.linear(f"{names['layers']}.{number}.{names[name]}")

        layer = f"encoder.{number}"
        q, k, v, output = (part(name) for name in ("query", "key", "value", "output"))
        ours.self_attention(f"{layer}.attention", q, k, v, output)
        ours.norm(f"{layer}.attention_after", part("attention_norm"))
        ours.feed_forward(f"{layer}.feed_forward", part("inner"), part("outer"), None)
        ours.norm(f"{layer}.feed_forward_after", part("feed_forward_norm"))


def _hparams(config: Mapping[str, Any], kind: str, ours: TransformerWeights) -> HParams:
    """Returns the hyperparameters of the model, and those of fine-tuning."""
    setting = {key: config.get(both[_KINDS.index(kind)]) for key, both in _CONFIG.items()}
    side = Side(
        num_heads=int(setting["heads"] or 12),
        activation=str(setting["activation"] or "gelu"),
        norms=translation.POST_NORM,
        norm_epsilon=float(config.get("layer_norm_eps", 1e-12)),
    )
    return translation.hparams_of(
        kind,
        "transformer_encoder",
        ours.weights,
        {"encoder": side},
        summary="first",
        summary_activation="tanh" if kind == "bert" else "relu",
        layer_prepostprocess_dropout=0.1 if setting["dropout"] is None else setting["dropout"],
        attention_dropout=float(setting["attention_dropout"] or 0.0),
        learning_rate_constant=2e-5,
        **huggingface.FINE_TUNING,
    )


def _classifier(
    weights: Weights, ours: dict[str, Tensor], kind: str, size: int, classes: int
) -> list[str]:
    """Adds the classifier, with new values where there are none; returns notes about these."""
    notes, generator = [], torch.Generator().manual_seed(0)
    shapes = {
        "pooler": (_NAMES[kind]["pooler"], size),
        "modalities.targets.top": ("classifier", classes),
    }
    for name, (theirs, rows) in shapes.items():
        if f"{theirs}.weight" in weights:
            weight, bias = weights.linear(theirs)
        else:
            weight = torch.empty(rows, size).normal_(0.0, 0.02, generator=generator)
            bias = None
            notes.append(f"{theirs}: the checkpoint has none; the new one is to be trained")
        ours[f"{name}.weight"] = weight
        ours[f"{name}.bias"] = torch.zeros(rows) if bias is None else bias
    return notes
