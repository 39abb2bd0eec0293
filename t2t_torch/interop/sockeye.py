"""Import of Sockeye's Transformers, of its version 3."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from t2t_torch.errors import CheckpointError, DataError, UsageError
from t2t_torch.files import read_bytes
from t2t_torch.interop import translation
from t2t_torch.interop.huggingface import numbered_tokens
from t2t_torch.interop.importer import ImportedRun
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.interop.translation import Linear, Side, TransformerWeights, Vocabulary, Weights
from t2t_torch.interop.unpickling import load_pickled
from t2t_torch.yaml_file import MAX_YAML, parse_yaml

_SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
_PAD, _UNKNOWN, _BOS, _EOS = range(4)
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "lhuc": (False, None),
    "neural_vocab_selection": (None, "none"),
}
_MUST_BE_OF_STACK: dict[str, tuple[Any, ...]] = {
    "block_prepended_cross_attention": (False, None),
    "decoder_type": ("transformer", None),
    "use_lhuc": (False, None),
}


OPTIONS = frozenset("checkpoint data_dir decode_hparams problem subwords".split())


def detect(source: Path) -> bool:
    """Returns True if a folder has Sockeye's parameters and vocabularies."""
    folder = _folder(source)
    return (folder / "vocab.src.0.json").exists() and any(folder.glob("params.*"))


def read(source: Path, settings: ImportSettings) -> ImportedRun:
    """Returns the run of a Transformer of Sockeye.

    Args:
      source: folder of the model (`--output` of `sockeye-train`), or the one that has it as
        `model`.
      settings: settings of the import.

    Raises:
      CheckpointError: the parameters are damaged, or not those of the configuration.
      DataError: the configuration or a vocabulary is missing or damaged.
      HParamsError: the model computes something that this library does not.
    """
    folder = _folder(source)
    config = _config(folder / "config")
    stacks = {side: _mapping(config, f"config_{side}") for side in ("encoder", "decoder")}
    _check_options(config, stacks)
    read, written = (_vocabulary(settings.data_folder or folder, side) for side in ("src", "trg"))
    path = folder / f"params.{settings.checkpoint or 'best'}"
    if not path.exists():
        raise UsageError(f"{path} does not exist. Name another: --checkpoint=best, or 00012.")
    content = load_pickled(path)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} has no parameters by name. Copy it again.")
    weights = Weights("Sockeye", content)
    unused = weights.drop_if(lambda name: name.startswith("length_ratio."))
    ours, hparams = _converted(weights, stacks, (read, written))
    weights.check_read()
    statistics = _mapping(_mapping(config, "config_data"), "data_statistics")
    ratio = statistics.get("length_ratio_mean", 1.0) + 2 * statistics.get("length_ratio_std", 0.5)
    return translation.translation_run(
        "sockeye",
        settings,
        languages=("source", "target"),
        hparams=hparams,
        weights=ours,
        vocabularies=(read, written),
        decode_hparams={
            "search_rules": "sockeye",
            "beam_size": 5,
            "alpha": 1.0,
            "length_offset": 0.0,
            "length_scale": 1.0,
            "extra_length_ratio": round(float(ratio) - 1.0, 6),
            "extra_length": 1,
        },
        ignored=["the prediction of the length ratio, which is no part of the search"]
        if unused
        else [],
    )


def _check_options(config: Mapping[str, Any], stacks: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises HParamsError if the model has parts that ours has not."""
    found = translation.forbidden(config, _MUST_BE)
    for stack in stacks.values():
        found += translation.forbidden(stack, _MUST_BE_OF_STACK)
    for side in ("source", "target"):
        if _mapping(config, f"config_embed_{side}").get("num_factors", 1) != 1:
            found.append(f"factors of the {side}")
    translation.refuse("Sockeye", sorted(set(found)))


def _folder(source: Path) -> Path:
    return source / "model" if (source / "model" / "config").exists() else source


def _mapping(values: Any, name: str) -> dict[str, Any]:
    found = values.get(name) if isinstance(values, dict) else None
    return found if isinstance(found, dict) else {}


class _SockeyeLoader(yaml.SafeLoader):
    """YAML with Sockeye's tags as plain mappings and lists; runs no code."""


def _as_mapping(loader: _SockeyeLoader, suffix: str, node: yaml.Node) -> dict[Any, Any]:
    if not isinstance(node, yaml.MappingNode) or not suffix.endswith(("Config", "Statistics")):
        raise yaml.YAMLError(f"the tag !{suffix} is none of Sockeye's")
    return loader.construct_mapping(node, deep=True)


def _as_list(loader: _SockeyeLoader, node: yaml.SequenceNode) -> list[Any]:
    return loader.construct_sequence(node, deep=True)


_SockeyeLoader.add_multi_constructor("!", _as_mapping)
_SockeyeLoader.add_constructor("tag:yaml.org,2002:python/tuple", _as_list)


def _config(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = parse_yaml(read_bytes(path, max_bytes=MAX_YAML), _SockeyeLoader)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}. Copy the whole folder.") from None
    except (yaml.YAMLError, TypeError) as error:
        reason = getattr(error, "problem", None) or error  # without the text: it may be a link
        raise DataError(f"{path} is no configuration of Sockeye: {reason}.") from None
    sides = [_mapping(content, f"config_{side}") for side in ("encoder", "decoder")]
    if not all("act_type" in side for side in sides):
        raise DataError(
            f"{path} is no configuration of Sockeye 3: it has no act_type of encoder and decoder. "
            "Copy it again."
        )
    return content


def _vocabulary(folder: Path, side: str) -> Vocabulary:
    path = folder / f"vocab.{side}.0.json"
    tokens = numbered_tokens(path)
    if tuple(tokens[: len(_SPECIAL)]) != _SPECIAL:
        raise DataError(f"{path} does not begin with {', '.join(_SPECIAL)}. Copy it again.")
    return Vocabulary(tokens, pad=_PAD, eos=_EOS, unknown=_UNKNOWN, silent=(_BOS,))


def _converted(
    weights: Weights,
    stacks: Mapping[str, Mapping[str, Any]],
    vocabularies: tuple[Vocabulary, Vocabulary],
) -> tuple[dict[str, Any], Any]:
    """Returns weights by our names, and hyperparameters."""
    ours = TransformerWeights()
    read, written = vocabularies
    source = read.rows(weights("embedding_source.embedding.weight"))
    name = "embedding_target.embedding.weight"
    target = written.rows(weights(name)) if name in weights else source
    name = "output_layer.weight"
    top = written.rows(weights(name)) if name in weights else target
    ours.tables(source, target, top, written.rows(weights("output_layer.bias")))
    sides = {}
    for side, config in stacks.items():
        table = f"{side}.pos_embedding.weight"
        limit = (weights.shape(table) or [0])[0]
        if config.get("positional_embedding_type") == "learned":
            places = "join.positions" if side == "encoder" else "positions"
            ours.weights[f"{places}.table"] = weights(table)
        weights.drop([table])  # of sinusoids
        heads = int(config.get("attention_heads", 8))
        for layer in range(weights.layers(f"{side}.layers")):
            _layer(weights, ours, f"{side}.layers.{layer}", f"{side}.{layer}", heads)
        if f"{side}.final_process.layer_norm.weight" in weights:
            ours.norm(f"{side}_output", weights.linear(f"{side}.final_process.layer_norm"))
        before, after = (
            str(config.get(f"{place}process_sequence") or "").replace("r", "a") or "none"
            for place in ("pre", "post")
        )
        sides[side] = Side(
            num_heads=heads,
            activation=str(config["act_type"]),
            norms=(before, after),
            norm_epsilon=1e-6,
            pos="none" if config.get("positional_embedding_type") == "none" else "sinusoids",
            limit=limit,
        )
    config = stacks["encoder"]
    return ours.weights, translation.hparams_of(
        "Sockeye",
        "transformer",
        ours.weights,
        sides,
        decoder_start_id=written.our_id(_BOS),
        layer_prepostprocess_dropout=float(config.get("dropout_prepost") or 0.0),
        attention_dropout=float(config.get("dropout_attention") or 0.0),
        relu_dropout=float(config.get("dropout_act") or 0.0),
    )


def _layer(weights: Weights, ours: TransformerWeights, theirs: str, name: str, heads: int) -> None:
    """Adds the weights of a layer."""
    own = "autoregr_layer" if name.startswith("decoder") else "self_attention"
    parts = {own: "attention", "enc_attention": "memory_attention", "ff": "feed_forward"}
    joint = weights(f"{theirs}.{own}.ff_in.weight")
    query, key_value = torch.split(joint, [len(joint) // 3, len(joint) - len(joint) // 3])
    output = weights.linear(f"{theirs}.{own}.ff_out")
    ours.self_attention(f"{name}.attention", (query, None), *_apart(key_value, heads), output)
    if f"{theirs}.enc_attention.ff_q.weight" in weights:
        ours.cross_attention(
            f"{name}.memory_attention",
            weights.linear(f"{theirs}.enc_attention.ff_q"),
            *_apart(weights(f"{theirs}.enc_attention.ff_kv.weight"), heads),
            weights.linear(f"{theirs}.enc_attention.ff_out"),
        )
    gate = f"{theirs}.ff.linear"
    inner, outer = weights.linear(f"{theirs}.ff.ff1"), weights.linear(f"{theirs}.ff.ff2")
    linear = weights.linear(gate) if f"{gate}.weight" in weights else None
    ours.feed_forward(f"{name}.feed_forward", inner, outer, linear)
    for old, new in parts.items():
        for when, place in (("pre", "before"), ("post", "after")):
            norm = f"{theirs}.{when}_{old}.layer_norm"
            if f"{norm}.weight" in weights:
                ours.norm(f"{name}.{new}_{place}", weights.linear(norm))


def _apart(key_value: torch.Tensor, heads: int) -> tuple[Linear, Linear]:
    """Returns the maps of keys and of values, which alternate by head.  [2 H, H]."""
    if len(key_value) % (2 * heads):
        raise CheckpointError(f"{len(key_value)} rows of keys and values for {heads} heads.")
    by_head = torch.unflatten(key_value, 0, (heads, 2, -1))
    return (by_head[:, 0].flatten(0, 1), None), (by_head[:, 1].flatten(0, 1), None)
