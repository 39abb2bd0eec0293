"""Import of GPT-2's language models, as Hugging Face's folders hold them.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from t2t_torch.errors import UsageError
from t2t_torch.hparam import HParams
from t2t_torch.interop.huggingface import (
    folder_tensors,
    model_type,
    read_json,
    read_vocabulary,
    with_padding,
)
from t2t_torch.interop.importer import ImportedRun, ImportOptions
from t2t_torch.interop.translation import (
    PRE_NORM,
    TRANSFORMER,
    Linear,
    TransformerWeights,
    Weights,
    base_hparams,
    check_sizes,
    forbidden,
    free_name,
    refuse,
)

_ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu": "gelu", "relu": "relu", "silu": "silu"}
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
}
_NEVER = -1e9  # logit of padding, which the vocabulary of GPT-2 lacks


_SIZES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_target_positions",
}
"""Our names of sizes in a configuration."""

OPTIONS = frozenset("decode_hparams problem".split())
"""Options of `ImportOptions` that are used."""


def detect(source: Path) -> bool:
    """Returns True if a folder has a GPT-2 and its weights."""
    return model_type(source) == "gpt2"


def read(source: Path, options: ImportOptions) -> ImportedRun:
    """Returns the run of a GPT2LMHeadModel, or of the model without its head, which is tied.

    Args:
      source: folder of `save_pretrained`.
      options: options of the import.

    Raises:
      CheckpointError: the weights are damaged, or not those of the configuration.
      DataError: the configuration or the vocabulary is missing or damaged.
      HParamsError: the model computes something that this library does not.
      UsageError: the folder has a model of another kind.
    """
    config = read_json(source / "config.json")
    if config.get("model_type") != "gpt2":
        raise UsageError(f"{source / 'config.json'} is of a {config.get('model_type')!r}, no gpt2.")
    refuse("GPT-2", forbidden(config, _MUST_BE))
    tensors = {
        name.removeprefix("transformer."): tensor for name, tensor in folder_tensors(source).items()
    }
    weights = Weights("GPT-2", tensors)
    weights.drop_if(lambda name: name.endswith((".attn.bias", ".attn.masked_bias")))  # masks
    weights.drop(["lm_head.weight"])
    table = weights("wte.weight")
    end = str(read_json(source / "tokenizer_config.json").get("eos_token", "<|endoftext|>"))
    vocabulary = read_vocabulary(source, len(table), eos=end)
    ours, hparams = _converted(weights, config)
    check_sizes("GPT-2", config, hparams, _SIZES)
    weights.check_read()
    table = vocabulary.rows(with_padding(table, vocabulary))
    bias = table.new_zeros(len(table))
    bias[0] = _NEVER
    name = options.problem or free_name(source.resolve().name)
    file = f"vocab.{name}.targets.pieces"
    return ImportedRun(
        library="GPT-2",
        problem=name,
        model="transformer_lm",
        hparams=hparams.signed("GPT-2"),
        weights={
            **ours,
            "modalities.targets.bottom.weight": table,
            "modalities.targets.top.weight": table,
            "modalities.targets.top.bias": bias,
        },
        declaration={
            "problem": name,
            "kind": "text2self",
            "files": {split: f"{name}-{split}.txt" for split in ("train", "eval")},
            "vocabularies": {"targets": file},
        },
        vocabularies={file: vocabulary.file()},
        decode_hparams=_decoding(source, config),
    )


def _decoding(source: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of `generate`, by our names."""
    path = source / "generation_config.json"
    search = {**config, **(read_json(path) if path.exists() else {})}
    stop, beams = search.get("early_stopping", False), int(search.get("num_beams", 1) or 1)
    settings: dict[str, Any] = {
        "search_rules": "huggingface",
        "beam_size": beams,
        "force_decode_length": True,
        "force_eos": False,
        "extra_length": int(search.get("max_new_tokens") or 20),
    }
    if beams > 1:
        settings |= {
            "alpha": float(search.get("length_penalty") or 1.0),
            "length_offset": 0.0,
            "length_scale": 1.0,
            "early_stopping": stop if stop == "never" else str(bool(stop)).lower(),
        }
    return settings


def _converted(weights: Weights, config: Mapping[str, Any]) -> tuple[dict[str, Tensor], HParams]:
    """Returns the weights of the layers by our names, and hyperparameters."""
    ours = TransformerWeights()
    positions = weights("wpe.weight")
    ours.weights["positions.table"] = positions
    size, layers = positions.size(1), weights.layers("h")
    for number in range(layers):
        layer, theirs = f"decoder.{number}", f"h.{number}"
        joint, bias = _transposed(weights, f"{theirs}.attn.c_attn")
        biases = [None] * 3 if bias is None else bias.split(size)
        q, k, v = zip(joint.split(size), biases, strict=True)
        ours.norm(f"{layer}.attention_before", weights.linear(f"{theirs}.ln_1"))
        output = _transposed(weights, f"{theirs}.attn.c_proj")
        ours.self_attention(f"{layer}.attention", q, k, v, output)
        ours.norm(f"{layer}.feed_forward_before", weights.linear(f"{theirs}.ln_2"))
        inner, outer = (_transposed(weights, f"{theirs}.mlp.{one}") for one in ("c_fc", "c_proj"))
        ours.feed_forward(f"{layer}.feed_forward", inner, outer, None)
    ours.norm("decoder_output", weights.linear("ln_f"))
    activation = str(config.get("activation_function", "gelu_new"))
    refuse("GPT-2", [] if activation in _ACTIVATIONS else [f"activation_function={activation!r}"])
    hparams = base_hparams(
        "transformer_lm",
        hidden_size=size,
        num_heads=int(config.get("n_head", 12)),
        filter_size=int(config.get("n_inner") or 4 * size),
        num_hidden_layers=layers,
        attention_bias=True,
        ffn_activation=_ACTIVATIONS[activation],
        pos="learned",
        max_target_positions=len(positions),
        norm_epsilon=float(config.get("layer_norm_epsilon", 1e-5)),
        multiply_embedding_mode="none",
        shared_embedding_and_softmax_weights=True,
        output_bias=True,
        predict_first=False,
        layer_prepostprocess_dropout=float(config.get("resid_pdrop", 0.1)),
        attention_dropout=float(config.get("attn_pdrop", 0.1)),
        relu_dropout=0.0,
        label_smoothing=0.0,
        max_length=len(positions),
        optimizer="adam_w",
        optimizer_adam_beta2=0.999,
        optimizer_adam_epsilon=1e-8,
        weight_decay=0.01,
        learning_rate_constant=5e-5,
        clip_grad_norm=1.0,
        **PRE_NORM,
        **TRANSFORMER,
    )
    return ours.weights, hparams


def _transposed(weights: Weights, name: str) -> Linear:
    """Returns a linear map whose weight the checkpoint has as [in, out]."""
    weight, bias = weights.linear(name)
    return weight.T, bias
