"""Import of Marian's translation models, as Hugging Face's folders hold them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_torch.errors import CheckpointError, DataError, UsageError
from t2t_torch.interop.fairseq import read_layer
from t2t_torch.interop.importer import ImportedRun, ImportOptions
from t2t_torch.interop.translation import (
    POST_NORM,
    PRE_NORM,
    TransformerWeights,
    Vocabulary,
    Weights,
    base_hparams,
    check_tokens,
    refuse,
    sharing,
    subword_models,
    translation_run,
    with_subwords,
)
from t2t_torch.interop.unpickling import load_pickled

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "swish": "silu",
    "silu": "silu",
}
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "add_bias_logits": (False,),
    "extra_pos_embeddings": (0,),
    "num_hidden_layers_shared": (False,),
    "static_position_embeddings": (True,),
}


def detect(source: Path) -> bool:
    """Returns True if a folder has the configuration and weights of Hugging Face's models."""
    has_weights = any((source / name).exists() for name in _WEIGHTS)
    return (source / "config.json").exists() and has_weights


def read(source: Path, options: ImportOptions) -> ImportedRun:
    """Returns the run of a MarianMTModel.

    Args:
      source: folder of `save_pretrained`.
      options: options of the import.

    Raises:
      CheckpointError: the weights are damaged, or not those of the configuration.
      DataError: the configuration or a vocabulary is missing or damaged.
      HParamsError: the model computes something that this library does not.
      UsageError: the folder has a model of another kind.
    """
    config = read_json(source / "config.json")
    kind = config.get("model_type")
    if kind != "marian":
        raise UsageError(
            f"{source / 'config.json'} is of a {kind!r}; of Hugging Face's models only those of "
            "Marian, such as Helsinki-NLP/opus-mt-en-de, can be imported."
        )
    refuse(
        "Marian",
        [
            f"{name}={config[name]!r}"
            for name, expected in _MUST_BE.items()
            if name in config and config[name] not in expected
        ],
    )
    vocabularies = with_subwords(_vocabularies(source, config), _subwords(source, options))
    weights = Weights("Marian", _tensors(source))
    ours, hparams = _converted(weights, config, vocabularies)
    weights.check_read()
    generation = source / "generation_config.json"
    search = {**config, **(read_json(generation) if generation.exists() else {})}
    languages = [
        str(read_json(source / "tokenizer_config.json").get(f"{side}_lang") or default)
        if (source / "tokenizer_config.json").exists()
        else default
        for side, default in (("source", "source"), ("target", "target"))
    ]
    stop = search.get("early_stopping", False)
    beams = int(search.get("num_beams", 4))
    longest = int(search.get("max_length", 512)) - 1  # without the start symbol
    decode_hparams: dict[str, Any] = {
        "search_rules": "huggingface",
        "beam_size": beams,
        "force_decode_length": True,
        "extra_length": int(search.get("max_new_tokens") or longest),
    }
    if beams > 1:
        decode_hparams |= {
            "alpha": float(search.get("length_penalty", 1.0)),
            "length_offset": 0.0,
            "length_scale": 1.0,
            "early_stopping": stop if stop == "never" else str(bool(stop)).lower(),
        }
    return translation_run(
        "marian",
        options,
        languages=(languages[0], languages[1]),
        hparams=hparams,
        weights=ours,
        vocabularies=vocabularies,
        decode_hparams=decode_hparams,
    )


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file.

    Raises:
      DataError: the file is missing, or holds none.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}. Copy the whole folder.") from None
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} is not JSON: {reason}. Copy it again.") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} is no JSON object. Copy it again.")
    return content


def _tensors(source: Path) -> Mapping[str, Any]:
    path = source / _WEIGHTS[0]
    if not path.exists():
        content = load_pickled(source / _WEIGHTS[1])
        if not isinstance(content, dict):
            raise CheckpointError(f"{source / _WEIGHTS[1]} has no weights by name.")
        return content
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: {error}. Copy it again.") from None


def _vocabularies(source: Path, config: Mapping[str, Any]) -> list[Vocabulary]:
    """Returns the vocabularies of both sides, mostly the same."""
    path, own = source / "vocab.json", source / "target_vocab.json"
    both = [path, own if own.exists() else path]
    return [_vocabulary(one, config) for one in both]


def _vocabulary(path: Path, config: Mapping[str, Any]) -> Vocabulary:
    numbers = read_json(path)
    tokens = sorted(numbers, key=lambda token: str(numbers[token]).zfill(9))
    if [numbers[token] for token in tokens] != list(range(len(tokens))):
        raise DataError(f"{path} does not number its pieces from 0. Copy it again.")
    check_tokens(tokens)
    eos, pad = int(config.get("eos_token_id", 0)), int(config.get("pad_token_id", -1))
    if "<unk>" not in numbers or pad not in range(len(tokens)) or eos not in range(len(tokens)):
        raise DataError(f"{path} and config.json are of different models: copy them together.")
    unknown = int(numbers["<unk>"])
    return Vocabulary(tokens, pad=pad, eos=eos, unknown=unknown, silent=(unknown,), strip=True)


def _subwords(source: Path, options: ImportOptions) -> Any:
    found = [source / f"{side}.spm" for side in ("source", "target")]
    return subword_models(options, [path for path in found if path.exists()])


def _converted(
    weights: Weights, config: Mapping[str, Any], vocabularies: tuple[Vocabulary, Vocabulary]
) -> tuple[dict[str, Any], Any]:
    """Returns weights by our names, and hyperparameters."""
    ours = TransformerWeights()
    _, written = vocabularies
    tables = []
    shared = weights("model.shared.weight") if "model.shared.weight" in weights else None
    for side, vocabulary in zip(("encoder", "decoder"), vocabularies, strict=True):
        name = f"model.{side}.embed_tokens.weight"
        table = weights(name) if name in weights else shared
        if table is None:
            raise CheckpointError(f"the checkpoint has neither model.shared.weight nor {name}.")
        tables.append(vocabulary.rows(table))
    weights.drop([f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")])
    top = written.rows(weights("lm_head.weight")) if "lm_head.weight" in weights else tables[1]
    bias = weights("final_logits_bias") if "final_logits_bias" in weights else None
    if bias is not None:
        bias = written.rows(bias.reshape(-1))
    ours.tables(*tables, top, bias)
    pre_norm = bool(config.get("normalize_before", False))
    heads = {int(config.get(f"{side}_attention_heads", 8)) for side in ("encoder", "decoder")}
    filters = {int(config.get(f"{side}_ffn_dim", 0)) for side in ("encoder", "decoder")}
    activation = str(config.get("activation_function", "relu"))
    refuse(
        "Marian",
        [
            *(["heads of encoder and decoder differ"] if len(heads) > 1 else []),
            *(["ffn_dim of encoder and decoder differ"] if len(filters) > 1 else []),
            *([] if activation in _ACTIVATIONS else [f"activation_function={activation!r}"]),
        ],
    )
    layers = {}
    for side in ("encoder", "decoder"):
        layers[side] = weights.layers(f"model.{side}.layers")
        for layer in range(layers[side]):
            theirs, name = f"model.{side}.layers.{layer}", f"{side}.{layer}"
            read_layer(weights, ours, side, theirs, name, pre_norm)
        places = "join.positions" if side == "encoder" else "positions"
        if f"model.{side}.layernorm_embedding.weight" in weights:
            ours.norm(places, weights.linear(f"model.{side}.layernorm_embedding"))
        if pre_norm and f"model.{side}.layer_norm.weight" in weights:
            ours.norm(f"{side}_output", weights.linear(f"model.{side}.layer_norm"))
    start = int(config.get("decoder_start_token_id", written.pad))
    hparams = base_hparams(
        hidden_size=tables[0].size(1),
        num_heads=heads.pop(),
        filter_size=filters.pop(),
        num_encoder_layers=layers["encoder"],
        num_decoder_layers=layers["decoder"],
        attention_bias=True,
        ffn_activation=_ACTIVATIONS.get(activation, "relu"),
        pos="sinusoids",
        embedding_norm="positions.norm.weight" in ours.weights,
        norm_epsilon=1e-5,
        output_bias=bias is not None,
        decoder_start_id=written.our_id(start),
        multiply_embedding_mode="sqrt_depth" if config.get("scale_embedding") else "none",
        layer_prepostprocess_dropout=float(config.get("dropout", 0.1)),
        attention_dropout=float(config.get("attention_dropout", 0.0)),
        relu_dropout=float(config.get("activation_dropout", 0.0)),
        **(PRE_NORM if pre_norm else POST_NORM),
        **sharing(tables[0], tables[1], top),
    )
    return ours.weights, hparams
