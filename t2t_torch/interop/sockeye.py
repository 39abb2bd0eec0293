"""Import of Sockeye's Transformers, of its version 3."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from t2t_torch.errors import CheckpointError, DataError, UsageError
from t2t_torch.files import read_bytes
from t2t_torch.hparam import HParams
from t2t_torch.interop import translation
from t2t_torch.interop.huggingface import numbered_tokens
from t2t_torch.interop.importer import ImportedRun
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.interop.translation import Side, Vocabulary
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
    ours, hparams = _converted(content, stacks, (read, written))
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
        if any(name.startswith("length_ratio.") for name in content)
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
    tensors: Mapping[str, Any],
    stacks: Mapping[str, Mapping[str, Any]],
    vocabularies: tuple[Vocabulary, Vocabulary],
) -> tuple[dict[str, Tensor], HParams]:
    """Returns weights by our names, and hyperparameters."""
    names = {
        r"length_ratio\..*": "",
        r"embedding_source\.embedding": translation.INPUTS,
        r"embedding_target\.embedding": translation.TARGETS,
        "output_layer": translation.TOP,
    }
    sides = {}
    for side, config in stacks.items():
        positions, table = config.get("positional_embedding_type"), f"{side}.pos_embedding.weight"
        is_learned = positions == "learned"
        names[re.escape(table)] = f"{translation.PLACES[side]}.table" if is_learned else ""
        names[rf"{side}\.final_process\.layer_norm"] = f"{side}_output.norm"
        names |= translation.layer_names(rf"{side}\.layers", side, _LAYER)
        before, after = (
            str(config.get(f"{place}process_sequence") or "").replace("r", "a") or "none"
            for place in ("pre", "post")
        )
        sides[side] = Side(
            num_heads=int(config.get("attention_heads", 8)),
            activation=str(config["act_type"]),
            norms=(before, after),
            norm_epsilon=1e-6,
            pos="none" if positions == "none" else "sinusoids",
            limit=len(tensors.get(table, ())),
        )
    ours = translation.by_our_names("Sockeye", tensors, names)
    if f"{translation.INPUTS}.weight" in ours:  # it may be the table of the targets, too
        ours.setdefault(f"{translation.TARGETS}.weight", ours[f"{translation.INPUTS}.weight"])
    translation.order_tables("Sockeye", ours, vocabularies)
    for name, joint in ours.items():
        heads = sides["decoder" if name.startswith("decoder") else "encoder"].num_heads
        if name.endswith(".attention.query_key_value.weight"):
            query, key_value = torch.split(joint, [len(joint) // 3, len(joint) - len(joint) // 3])
            ours[name] = torch.cat([query, _apart(key_value, heads)])
        elif name.endswith(".memory_attention.key_value.weight"):
            ours[name] = _apart(joint, heads)
    config = stacks["encoder"]
    return ours, translation.hparams_of(
        "Sockeye",
        "transformer",
        ours,
        sides,
        decoder_start_id=vocabularies[1].our_id(_BOS),
        layer_prepostprocess_dropout=float(config.get("dropout_prepost") or 0.0),
        attention_dropout=float(config.get("dropout_attention") or 0.0),
        relu_dropout=float(config.get("dropout_act") or 0.0),
    )


_SELF = "(?:self_attention|autoregr_layer)"
_LAYER = {
    rf"{_SELF}\.ff_in": "attention.query_key_value",
    rf"{_SELF}\.ff_out": "attention.output",
    r"enc_attention\.ff_q": "memory_attention.query",
    r"enc_attention\.ff_kv": "memory_attention.key_value",
    r"enc_attention\.ff_out": "memory_attention.output",
    r"ff\.ff1": "feed_forward.inner",
    r"ff\.ff2": "feed_forward.outer",
    r"ff\.linear": "feed_forward.gate",
    **{
        rf"{when}_{old}\.layer_norm": f"{new}_{place}.norm"
        for when, place in (("pre", "before"), ("post", "after"))
        for old, new in (
            (_SELF, "attention"),
            ("enc_attention", "memory_attention"),
            ("ff", "feed_forward"),
        )
    },
}
"""Our names of the parts of a layer."""


def _apart(key_value: Tensor, heads: int) -> Tensor:
    """Returns the maps of keys, then those of values, which alternate by head.  [2 H, H]."""
    if len(key_value) % (2 * heads):
        raise CheckpointError(f"{len(key_value)} rows of keys and values for {heads} heads.")
    return torch.unflatten(key_value, 0, (heads, 2, -1)).transpose(0, 1).flatten(0, 2)
