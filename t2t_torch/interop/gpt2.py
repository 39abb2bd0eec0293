"""Import of GPT-2's language models, as Hugging Face's folders hold them.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2t_torch.errors import UsageError
from t2t_torch.hparam import HParams
from t2t_torch.interop import huggingface, translation
from t2t_torch.interop.importer import ImportedRun
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.interop.translation import Linear, Side, TransformerWeights, Weights

_MUST_BE: dict[str, tuple[Any, ...]] = {"add_cross_attention": (False,)}
_OTHER_HEADS = ("score.", "classifier.", "multiple_choice_head.", "qa_outputs.")
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
      UsageError: the folder has a model of another kind.
    """
    config = huggingface.read_json(source / "config.json")
    if config.get("model_type") != "gpt2":
        raise UsageError(f"{source / 'config.json'} is of a {config.get('model_type')!r}, no gpt2.")
    translation.refuse("GPT-2", translation.forbidden(config, _MUST_BE))
    stored = huggingface.folder_tensors(source)
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in stored.items()}
    weights = Weights("GPT-2", tensors)
    weights.drop_if(lambda name: name.endswith((".attn.bias", ".attn.masked_bias")))  # masks
    heads = weights.drop_if(lambda name: name.startswith(_OTHER_HEADS))
    table, top = _tables(weights, config)
    named = huggingface.read_json(source / "tokenizer_config.json")
    end = str(named.get("eos_token", "<|endoftext|>"))
    vocabulary = huggingface.read_vocabulary(source, len(table), eos=end)
    ours, hparams = _converted(weights, config, shared=top is table)
    translation.check_sizes("GPT-2", config, hparams, _SIZES)
    weights.check_read()
    padded = (huggingface.with_padding(one, vocabulary) for one in (table, top))
    table, top = map(vocabulary.rows, padded)
    bias = table.new_zeros(len(table)).index_fill_(0, torch.tensor(0), _NEVER)
    name = settings.problem or translation.free_name(source.resolve().name)
    file = f"vocab.{name}.targets.pieces"
    return ImportedRun(
        library="GPT-2",
        problem=name,
        model="transformer_lm",
        hparams=hparams.signed("GPT-2"),
        weights={
            **ours,
            "modalities.targets.bottom.weight": table,
            "modalities.targets.top.weight": top,
            "modalities.targets.top.bias": bias,
        },
        declaration={
            "problem": name,
            "kind": "text2self",
            "files": {split: f"{name}-{split}.txt" for split in ("train", "eval")},
            "vocabularies": {"targets": file},
        },
        vocabularies={file: vocabulary.file()},
        decode_hparams={
            **huggingface.generation_settings(source, config, beams=1, longest=20),
            "force_eos": False,
        },
        ignored=sorted({name.partition(".")[0] for name in heads}),
    )


def _tables(weights: Weights, config: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Returns the table of embeddings and that of the softmax, which are mostly one."""
    table = top = weights("wte.weight")
    if not config.get("tie_word_embeddings", True) and "lm_head.weight" in weights:
        top = weights("lm_head.weight")
    weights.drop(["lm_head.weight"])
    return table, top


def _converted(
    weights: Weights, config: Mapping[str, Any], *, shared: bool
) -> tuple[dict[str, Tensor], HParams]:
    """Returns the weights of the layers by our names, and hyperparameters.

    Args:
      weights: weights by their names.
      config: their configuration.
      shared: True if embeddings and softmax are one table.
    """
    ours = TransformerWeights()
    positions = weights("wpe.weight")
    ours.weights["positions.table"] = positions
    size, heads = positions.size(1), int(config.get("n_head", 12))
    for number in range(weights.layers("h")):
        layer, theirs = f"decoder.{number}", f"h.{number}"
        joint, bias = _transposed(weights, f"{theirs}.attn.c_attn")
        biases: Sequence[Tensor | None] = [None] * 3 if bias is None else torch.split(bias, size)
        query, k, v = zip(torch.split(joint, size), biases, strict=True)
        factor = 1.0 if config.get("scale_attn_weights", True) else (size / heads) ** 0.5
        if config.get("scale_attn_by_inverse_layer_idx", False):
            factor /= number + 1
        q = (query[0] * factor, None if query[1] is None else query[1] * factor)
        ours.norm(f"{layer}.attention_before", weights.linear(f"{theirs}.ln_1"))
        output = _transposed(weights, f"{theirs}.attn.c_proj")
        ours.self_attention(f"{layer}.attention", q, k, v, output)
        ours.norm(f"{layer}.feed_forward_before", weights.linear(f"{theirs}.ln_2"))
        inner, outer = (_transposed(weights, f"{theirs}.mlp.{one}") for one in ("c_fc", "c_proj"))
        ours.feed_forward(f"{layer}.feed_forward", inner, outer, None)
    ours.norm("decoder_output", weights.linear("ln_f"))
    side = Side(
        num_heads=heads,
        activation=str(config.get("activation_function", "gelu_new")),
        norms=translation.PRE_NORM,
        norm_epsilon=float(config.get("layer_norm_epsilon", 1e-5)),
    )
    hparams = translation.hparams_of(
        "GPT-2",
        "transformer_lm",
        ours.weights,
        {"decoder": side},
        shared_embedding_and_softmax_weights=shared,
        output_bias=True,
        predict_first=False,
        layer_prepostprocess_dropout=float(config.get("resid_pdrop", 0.1)),
        attention_dropout=float(config.get("attn_pdrop", 0.1)),
        max_length=len(positions),
        learning_rate_constant=5e-5,
        **huggingface.FINE_TUNING,
    )
    return ours.weights, hparams


def _transposed(weights: Weights, name: str) -> Linear:
    """Returns a linear map whose weight the checkpoint has as [in, out]."""
    weight, bias = weights.linear(name)
    return weight.T, bias
