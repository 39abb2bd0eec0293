"""Import of fairseq's Transformers, of its releases from 0.6 to 0.12."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2t_torch.errors import CheckpointError, DataError, UsageError
from t2t_torch.files import read_entries
from t2t_torch.hparam import HParams
from t2t_torch.interop import translation
from t2t_torch.interop.importer import ImportedRun
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.interop.translation import Side, Vocabulary
from t2t_torch.interop.unpickling import load_pickled, scalars

_CHECKPOINTS = ("checkpoint_best.pt", "checkpoint_last.pt", "model.pt")
_SUBWORDS = ("*.model", "*codes*", "code")
_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
_BOS, _PAD, _EOS, _UNKNOWN = range(4)
_DEFAULTS = {  # of architectures of old releases, whose arguments lack these names
    "activation_fn": "relu",
    "decoder_normalize_before": False,
    "encoder_normalize_before": False,
}
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "adaptive_input": (False, None),
    "adaptive_softmax_cutoff": (None,),
    "character_embeddings": (False, None),
    "cross_self_attention": (False, None),
    "no_cross_attention": (False, None),
    "decoder_output_dim": (None,),
    "tie_adaptive_weights": (False, None),
}
# The fused kernel of 0.12 adds copies when it loads a checkpoint; the real weights have dots.
_UNUSED = (
    r"encoder\.layers\.\d+\.(?:in_proj|out_proj|fc1|fc2)_(?:weight|bias)|.*version|.*_float_tensor"
)

_SIZES = {
    "encoder_embed_dim": "hidden_size",
    "decoder_embed_dim": "hidden_size",
    "encoder_layers": "num_encoder_layers",
    "decoder_layers": "num_decoder_layers",
    "encoder_ffn_embed_dim": "filter_size",
    "decoder_ffn_embed_dim": "filter_size",
}
"""Our names of sizes in a configuration."""

OPTIONS = frozenset("checkpoint data_dir decode_hparams problem subwords".split())


def detect(source: Path) -> bool:
    """Returns True if a folder has checkpoints as fairseq names them."""
    folders = (source, source / "checkpoints")
    *named, any_model = _CHECKPOINTS  # others have a model.pt, too
    if any((one / name).exists() for one in folders for name in named):
        return True
    return any((one / any_model).exists() for one in folders) and bool(_dictionaries(source))


def read(source: Path, settings: ImportSettings) -> ImportedRun:
    """Returns a run of fairseq.

    The dictionaries and the subword model are read from `data_dir`, the source, or its
    folder `data-bin`.

    Args:
      source: folder with the checkpoint or with `checkpoints`.
      settings: settings of the import.

    Raises:
      CheckpointError: the checkpoint is damaged, or its weights are not those of a Transformer.
      DataError: a dictionary is missing.
      HParamsError: the model computes something that this library does not.
    """
    content = load_pickled(_checkpoint(source, settings.checkpoint))
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise CheckpointError("the checkpoint has no model, as fairseq writes it. Copy it again.")
    config = scalars(content.get("cfg"))
    arguments = scalars(config.get("model")) or scalars(content.get("args"))
    task = {**arguments, **scalars(config.get("task"))}
    arguments = {**_DEFAULTS, **arguments}
    folder = settings.data_folder or source
    dictionaries = _dictionaries(folder)
    languages = _languages(task, dictionaries, folder)
    found: list[Path] = []  # that of the inputs first, if there are two in a folder
    for one in (folder, folder / "data-bin"):
        models = {path for pattern in _SUBWORDS for path in one.glob(pattern) if path.is_file()}
        found += sorted(models)
    read, written = (_vocabulary(dictionaries[language]) for language in languages)
    kind = str(arguments.get("_name") or arguments.get("arch") or "transformer")
    width = arguments.get("decoder_embed_dim")
    expected = {name: (*known, width) for name, known in _MUST_BE.items()}
    other = [] if "transformer" in kind else [f"--arch {kind}"]
    translation.refuse("fairseq", [*other, *translation.forbidden(arguments, expected)])
    ours, hparams = _converted(content["model"], arguments, (read, written))
    translation.check_sizes("fairseq", arguments, hparams, _SIZES)
    return translation.translation_run(
        "fairseq",
        settings,
        languages=languages,
        hparams=hparams,
        weights=ours,
        vocabularies=(read, written),
        subwords=found,
        decode_hparams={
            **_DECODING,
            "max_length": int(arguments.get("max_target_positions") or 1024),
        },
        step=int(scalars((content.get("optimizer_history") or [{}])[-1]).get("num_updates", 0)),
        ignored=["the optimizer's state"] if content.get("last_optimizer_state") else [],
    )


_DECODING = {
    "search_rules": "fairseq",
    "beam_size": 5,
    "alpha": 1.0,
    "length_offset": 0.0,
    "length_scale": 1.0,
    "force_decode_length": True,
    "extra_length": 201,  # max_len_b, and the end symbol
}
"""Settings of fairseq-generate, by our names."""


def _checkpoint(source: Path, name: str) -> Path:
    """Returns the file of a checkpoint: the best, the last, or a named one."""
    folders = [source / "checkpoints", source] if source.is_dir() else [source.parent]
    names = [name, f"{name}.pt", f"checkpoint{name}.pt", f"checkpoint_{name}.pt"]
    for folder in folders:
        for candidate in names if name else _CHECKPOINTS:
            if (folder / candidate).is_file():
                return folder / candidate
    raise UsageError(
        f"{source} has no checkpoint {name or ' or '.join(_CHECKPOINTS)}. Name one: --checkpoint."
    )


def _dictionaries(folder: Path) -> dict[str, Path]:
    """Returns the dictionary files by language."""
    found = {}
    for one in (folder / "data-bin", folder):
        for path in sorted(one.glob("dict.*.txt")):
            found[path.name.removeprefix("dict.").removesuffix(".txt")] = path
    return found


def _languages(
    task: Mapping[str, Any], dictionaries: Mapping[str, Path], folder: Path
) -> tuple[str, str]:
    source, target = task.get("source_lang"), task.get("target_lang")
    if not isinstance(source, str) or not isinstance(target, str):
        raise UsageError(
            "the checkpoint does not name its languages: it is no model of fairseq's task "
            "translation. Other tasks cannot be imported."
        )
    for language in (source, target):
        if language not in dictionaries:
            raise DataError(
                f"{folder} has no dict.{language}.txt. Give the folder of fairseq-preprocess with "
                "--data_dir."
            )
    return source, target


def _vocabulary(path: Path) -> Vocabulary:
    """Returns the vocabulary of a `dict.txt`: a token and its count per line."""
    tokens = list(_SPECIAL)
    for number, line in enumerate(read_entries(path), 1):
        token, _, rest = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not rest.isdecimal():  # the line is not shown: the file may be a link to another one
            raise DataError(f"{path}:{number} is no token with its count.")
        tokens.append(token)
    translation.check_tokens(tokens)
    return Vocabulary(tokens, pad=_PAD, eos=_EOS, unknown=_UNKNOWN, silent=(_BOS,))


def _converted(
    tensors: Mapping[str, Any],
    arguments: Mapping[str, Any],
    vocabularies: tuple[Vocabulary, Vocabulary],
) -> tuple[dict[str, Tensor], HParams]:
    """Returns weights by our names, and hyperparameters."""
    names = {_UNUSED: "", r"decoder\.output_projection": translation.TOP}
    names[r"decoder\.embed_out"] = f"{translation.TOP}.weight"
    has_none = _is_on(arguments, "no_token_positional_embeddings")
    sides = {}
    for side, places in translation.PLACES.items():
        pre_norm = _is_on(arguments, f"{side}_normalize_before")
        names |= stack_names(side, side, pre_norm=pre_norm)
        names[rf"{side}\.embed_positions\.weight"] = f"{places}.table"
        sides[side] = Side(
            num_heads=int(arguments.get(f"{side}_attention_heads", 8)),
            activation=str(arguments["activation_fn"]),
            norms=translation.PRE_NORM if pre_norm else translation.POST_NORM,
            norm_epsilon=1e-5,
            pos="none" if has_none else "timing",
            position_offset=0 if has_none else _PAD + 1,
        )
    ours = translation.by_our_names("fairseq", tensors, names)
    for name in [one for one in ours if ".memory_attention.query_key_value." in one]:
        query, *key_value = ours.pop(name).chunk(3)
        ours[name.replace("query_key_value", "query")] = query
        ours[name.replace("query_key_value", "key_value")] = torch.cat(key_value)
    translation.order_tables("fairseq", ours, vocabularies)
    for places in translation.PLACES.values():
        if f"{places}.table" in ours:
            ours[f"{places}.table"] = ours[f"{places}.table"][_PAD + 1 :]
    return ours, translation.hparams_of(
        "fairseq",
        "transformer",
        ours,
        sides,
        decoder_start_id=vocabularies[1].our_id(_EOS),
        multiply_embedding_mode="none" if _is_on(arguments, "no_scale_embedding") else "sqrt_depth",
        **_training(arguments),
    )


def _training(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the hyperparameters of training."""
    names = {
        "layer_prepostprocess_dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "relu_dropout": "activation_dropout",
        "label_smoothing": "label_smoothing",
    }
    found: dict[str, Any] = {ours: float(arguments.get(name) or 0) for ours, name in names.items()}
    rate = arguments.get("lr") or 5e-4
    rate = float(rate[0] if isinstance(rate, list) else rate)
    warmup = int(arguments.get("warmup_updates") or 4000)
    if arguments.get("lr_scheduler") == "inverse_sqrt":
        found |= {
            "learning_rate_schedule": "constant*linear_warmup*rsqrt_decay",
            "learning_rate_constant": rate * math.sqrt(warmup),
            "learning_rate_warmup_steps": warmup,
        }
    return found


def stack_names(side: str, theirs: str, *, pre_norm: bool) -> dict[str, str]:
    """Returns the names of a stack and its embeddings in fairseq and in models made after it.

    Args:
      side: "encoder" or "decoder".
      theirs: pattern of their name of the stack.
      pre_norm: True if norms are before sublayers; else they are after them.
    """
    place = "before" if pre_norm else "after"
    names = {
        rf"{theirs}\.embed_tokens": translation.BOTTOMS[side],
        rf"{theirs}\.(?:layernorm_embedding|emb_layer_norm)": f"{translation.PLACES[side]}.norm",
    }
    if pre_norm:
        names[rf"{theirs}\.layer_norm"] = f"{side}_output.norm"
    parts = {
        r"self_attn\.in_proj_(weight|bias)": r"attention.query_key_value.\2",
        r"self_attn\.q_proj": "attention.query_key_value#0",
        r"self_attn\.k_proj": "attention.query_key_value#1",
        r"self_attn\.v_proj": "attention.query_key_value#2",
        r"self_attn\.out_proj": "attention.output",
        r"self_attn_layer_norm|layer_norms\.0": f"attention_{place}.norm",
        r"encoder_attn\.in_proj_(weight|bias)": r"memory_attention.query_key_value.\2",
        r"encoder_attn\.q_proj": "memory_attention.query",
        r"encoder_attn\.k_proj": "memory_attention.key_value#0",
        r"encoder_attn\.v_proj": "memory_attention.key_value#1",
        r"encoder_attn\.out_proj": "memory_attention.output",
        r"encoder_attn_layer_norm": f"memory_attention_{place}.norm",
        r"fc1": "feed_forward.inner",
        r"fc2": "feed_forward.outer",
        r"final_layer_norm|layer_norms\.1": f"feed_forward_{place}.norm",
    }  # maps of attention were one before 0.8; norms had numbers in encoders before 0.7
    return names | translation.layer_names(rf"{theirs}\.layers", side, parts)


def _is_on(arguments: Mapping[str, Any], name: str) -> bool:
    """Returns the value of a switch, which may be text in old checkpoints."""
    return str(arguments.get(name, False)).lower() in ("true", "1")
