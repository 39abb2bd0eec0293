"""Import of GPT-2's language models, as Hugging Face's folders hold them.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch.hparam import HParams
from t2t_torch.interop import huggingface, translation
from t2t_torch.interop.importer import ImportedRun, declaration_of
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.interop.translation import Side

_MUST_BE: dict[str, tuple[Any, ...]] = {"add_cross_attention": (False,)}
_OTHER_HEADS = ("score", "classifier", "multiple_choice_head", "qa_outputs")
_NEVER = -1e9  # logit of padding, which the vocabulary of GPT-2 lacks


_SIZES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_inner": "filter_size",
    "n_positions": "max_target_positions",
}
"""Our names of sizes in a configuration."""

OPTIONS = frozenset("decode_hparams problem".split())


def detect(source: Path) -> bool:
    """Returns True if a folder has a GPT-2 and its weights."""
    return huggingface.model_type(source) == "gpt2"


def read(source: Path, settings: ImportSettings) -> ImportedRun:
    """Returns the run of a GPT2LMHeadModel, or of the model without a head, which is tied.

    Heads of other tasks are left out.  Factors of attention become a part of the queries' weights.

    Args:
      source: folder of `save_pretrained`.
      settings: settings of the import.

    Raises:
      CheckpointError: the weights are damaged, or not those of the configuration.
      DataError: the configuration or the vocabulary is missing or damaged.
      HParamsError: the model computes something that this library does not.
    """
    config = huggingface.read_json(source / "config.json")
    translation.refuse("GPT-2", translation.forbidden(config, _MUST_BE))
    stored = huggingface.folder_tensors(source)
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in stored.items()}
    heads = {name.partition(".")[0] for name in tensors} & set(_OTHER_HEADS)
    ours, hparams = _converted(tensors, config)
    tables = [f"{translation.TARGETS}.weight", f"{translation.TOP}.weight"]
    named = huggingface.read_json(source / "tokenizer_config.json")
    end = str(named.get("eos_token", "<|endoftext|>"))
    vocabulary = huggingface.read_vocabulary(source, len(ours[tables[0]]), eos=end)
    translation.check_sizes("GPT-2", config, hparams, _SIZES)
    for name in tables:
        added = len(vocabulary.tokens) - len(ours[name])  # a token of padding, or none
        ours[name] = vocabulary.rows(nn.functional.pad(ours[name], (0, 0, 0, added)))
    bias = torch.zeros(len(vocabulary.tokens)).index_fill_(0, torch.tensor(0), _NEVER)
    name = settings.problem or translation.free_name(source.resolve().name)
    file = f"vocab.{name}.targets.pieces"
    return ImportedRun(
        library="GPT-2",
        problem=name,
        model="transformer_lm",
        hparams=hparams.signed("GPT-2"),
        weights={**ours, f"{translation.TOP}.bias": bias},
        declaration=declaration_of(name, "text2self", {"targets": file}),
        vocabularies={file: vocabulary.file()},
        decode_hparams={
            **huggingface.generation_settings(source, config, beams=1, longest=20),
            "force_eos": False,
        },
        ignored=sorted(heads),
    )


_NAMES = {
    "wte": f"{translation.TARGETS}",
    "lm_head": f"{translation.TOP}",
    r"wpe\.weight": "positions.table",
    "ln_f": "decoder_output.norm",
    r"h\.\d+\.attn\.(?:masked_)?bias": "",  # masks
    **dict.fromkeys((rf"{head}\..*" for head in _OTHER_HEADS), ""),
    **translation.layer_names(
        "h",
        "decoder",
        {
            "ln_1": "attention_before.norm",
            r"attn\.c_attn": "attention.query_key_value",
            r"attn\.c_proj": "attention.output",
            "ln_2": "feed_forward_before.norm",
            r"mlp\.c_fc": "feed_forward.inner",
            r"mlp\.c_proj": "feed_forward.outer",
        },
    ),
}


def _converted(
    tensors: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[dict[str, Tensor], HParams]:
    """Returns weights by our names, and hyperparameters."""
    ours = translation.by_our_names("GPT-2", tensors, _NAMES)
    positions, table = (
        translation.weight_of("GPT-2", ours, name)
        for name in ("positions.table", f"{translation.TARGETS}.weight")
    )
    top = f"{translation.TOP}.weight"
    is_tied = top not in ours or bool(config.get("tie_word_embeddings", True))
    if is_tied:  # mostly stored as well
        ours[top] = table
    size, heads = positions.size(1), int(config.get("n_head", 12))
    factor = 1.0 if config.get("scale_attn_weights", True) else (size / heads) ** 0.5
    for name, weight in ours.items():
        if name.startswith("decoder.") and weight.ndim == 2:  # [in, out]
            ours[name] = weight = weight.T
        if ".attention.query_key_value." in name:
            by_layer = config.get("scale_attn_by_inverse_layer_idx", False)
            layer = int(name.split(".")[1]) + 1 if by_layer else 1
            ours[name] = torch.cat([weight[:size] * (factor / layer), weight[size:]])
    side = Side(
        num_heads=heads,
        activation=str(config.get("activation_function", "gelu_new")),
        norms=translation.PRE_NORM,
        norm_epsilon=float(config.get("layer_norm_epsilon", 1e-5)),
    )
    return ours, translation.hparams_of(
        "GPT-2",
        "transformer_lm",
        ours,
        {"decoder": side},
        shared_embedding_and_softmax_weights=is_tied,
        output_bias=True,
        predict_first=False,
        layer_prepostprocess_dropout=float(config.get("resid_pdrop", 0.1)),
        attention_dropout=float(config.get("attn_pdrop", 0.1)),
        max_length=len(positions),
        learning_rate_constant=5e-5,
        **huggingface.FINE_TUNING,
    )
