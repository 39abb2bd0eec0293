"""Import of BERT and DistilBERT, as Hugging Face's folders hold them.

Devlin et al. 2019, arXiv:1810.04805; Sanh et al. 2019, arXiv:1910.01108.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2t_torch.errors import HParamsError
from t2t_torch.hparam import HParams
from t2t_torch.interop import huggingface, translation
from t2t_torch.interop.importer import ImportedRun, class_names, declaration_of
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.interop.translation import Side

_KINDS = ("bert", "distilbert")
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "problem_type": (None, "single_label_classification"),
}
_OTHER_HEADS = ("cls.", "vocab_", "qa_outputs.", "lm_head.")
_NAMES = {
    r"embeddings\.word_embeddings": translation.INPUTS,
    r"embeddings\.position_embeddings\.weight": "join.positions.table",
    r"embeddings\.token_type_embeddings\.weight": "join.which",
    r"embeddings\.LayerNorm": "join.positions.norm",
    r"embeddings\.position_ids": "",
    "classifier": translation.TOP,
    r"pooler\.dense|pre_classifier": "pooler",
    **dict.fromkeys((rf"{head}.*" for head in _OTHER_HEADS), ""),
    **translation.layer_names(
        "(?:encoder|transformer).layer",
        "encoder",
        {
            r"attention\.self\.query|attention\.q_lin": "attention.query_key_value#0",
            r"attention\.self\.key|attention\.k_lin": "attention.query_key_value#1",
            r"attention\.self\.value|attention\.v_lin": "attention.query_key_value#2",
            r"attention\.output\.dense|attention\.out_lin": "attention.output",
            r"attention\.output\.LayerNorm|sa_layer_norm": "attention_after.norm",
            r"intermediate\.dense|ffn\.lin1": "feed_forward.inner",
            r"output\.dense|ffn\.lin2": "feed_forward.outer",
            r"output\.LayerNorm|output_layer_norm": "feed_forward_after.norm",
        },
    ),
}
"""Our names of the weights of both."""
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

_TOKENS: Mapping[str, Any] = {
    "pad": "[PAD]",
    "eos": "[SEP]",
    "unknown": "[UNK]",
    "first": ["[CLS]"],
    "silent": ["[MASK]"],
}

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
      UsageError: the labels do not fit the model.
    """
    config = huggingface.read_json(source / "config.json")
    kind = str(config.get("model_type"))
    translation.refuse(kind, translation.forbidden(config, _MUST_BE))
    tensors = {
        name.removeprefix(f"{kind}.").replace(".gamma", ".weight").replace(".beta", ".bias"): one
        for name, one in huggingface.folder_tensors(source).items()
    }  # older versions called the weights of norms gamma and beta
    heads = [name for name in tensors if name.startswith(_OTHER_HEADS)]
    ours = translation.by_our_names(kind, tensors, _NAMES)
    labels = _labels(ours, config, settings)
    is_pair = settings.kind == "textpair2class"
    _add_types(kind, ours, is_pair=is_pair)
    hparams = _hparams(config, kind, ours, is_pair=is_pair)
    translation.check_sizes(kind, config, hparams, _SIZES)
    table = translation.weight_of(kind, ours, f"{translation.INPUTS}.weight")
    vocabulary = huggingface.read_vocabulary(source, len(table), **_TOKENS)
    made = _add_classifier(ours, kind, hparams.hidden_size, len(labels))
    texts = ("first", "second") if is_pair else ("inputs",)
    del ours[f"{translation.INPUTS}.weight"]
    ours |= {f"modalities.{text}.bottom.weight": vocabulary.rows(table) for text in texts}
    name = settings.problem or translation.free_name(source.resolve().name)
    file = f"vocab.{name}.inputs.pieces"
    return ImportedRun(
        library=kind,
        problem=name,
        model="transformer_encoder",
        hparams=hparams.signed(kind),
        weights=ours,
        declaration=declaration_of(
            name, settings.kind or "text2class", dict.fromkeys(texts, file), labels=labels
        ),
        vocabularies={file: vocabulary.file()},
        ignored=[*sorted({one.split(".")[0] for one in heads}), *made],
    )


def _labels(
    weights: Mapping[str, Tensor], config: Mapping[str, Any], settings: ImportSettings
) -> list[str]:
    """Returns the names of the classes: the options', the configuration's, or numbers."""
    named = config.get("id2label") or {}
    count = len(weights.get(f"{translation.TOP}.weight", ()))
    count = count or len(settings.labels) or len(named) or 2
    labels = class_names(count, settings, [str(named.get(str(n), n)) for n in range(count)])
    if count < 2:
        raise HParamsError(
            "this model has a single output, a number: only classifiers are imported. Leave "
            "classifier.* out of the checkpoint to import the encoder alone."
        )
    return labels


def _add_types(kind: str, weights: dict[str, Tensor], *, is_pair: bool) -> None:
    """Adds the types of a pair, or that of all ids to the positions."""
    positions = translation.weight_of(kind, weights, "join.positions.table")
    types = weights.pop("join.which", torch.zeros(2, positions.size(1)))
    if is_pair:
        weights["join.which"] = types[:2] if len(types) > 1 else types.expand(2, -1).clone()
    else:
        weights["join.positions.table"] = positions + types[0]


def _hparams(
    config: Mapping[str, Any], kind: str, ours: Mapping[str, Tensor], *, is_pair: bool
) -> HParams:
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
        ours,
        {"encoder": side},
        max_length=len(ours["join.positions.table"]),
        joint_positions=is_pair,
        shared_embedding=is_pair,
        summary="first",
        summary_activation="tanh" if kind == "bert" else "relu",
        layer_prepostprocess_dropout=0.1 if setting["dropout"] is None else setting["dropout"],
        attention_dropout=float(setting["attention_dropout"] or 0.0),
        learning_rate_constant=2e-5,
        **huggingface.FINE_TUNING,
    )


def _add_classifier(ours: dict[str, Tensor], kind: str, size: int, classes: int) -> list[str]:
    """Adds new values where the classifier lacks them; returns notes about these."""
    notes, generator = [], torch.Generator().manual_seed(0)
    pooler = "pooler.dense" if kind == "bert" else "pre_classifier"
    for name, theirs, rows in (("pooler", pooler, size), (translation.TOP, "classifier", classes)):
        if f"{name}.weight" not in ours:
            ours[f"{name}.weight"] = torch.empty(rows, size).normal_(0.0, 0.02, generator=generator)
            notes.append(f"{theirs}: the checkpoint has none; the new one is to be trained")
        ours.setdefault(f"{name}.bias", torch.zeros(rows))
    return notes
