"""Import of fairseq's Transformers, of its releases from 0.6 to 0.12."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_torch.errors import CheckpointError, DataError, UsageError
from t2t_torch.files import read_entries
from t2t_torch.interop import translation
from t2t_torch.interop.importer import ImportedRun
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.interop.translation import Side, TransformerWeights, Vocabulary, Weights
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
# Written by the fused kernel of 0.12 when a checkpoint was loaded; the real weights have dots.
_FUSED = re.compile(r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)")


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
    weights = Weights("fairseq", content["model"])
    ours, hparams = _converted(weights, arguments, (read, written))
    translation.check_sizes("fairseq", arguments, hparams, _SIZES)
    weights.check_read()
    history = content.get("optimizer_history") or [{}]
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
        step=int(scalars(history[-1]).get("num_updates", 0)),
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
    weights: Weights, arguments: Mapping[str, Any], vocabularies: tuple[Vocabulary, Vocabulary]
) -> tuple[dict[str, Any], Any]:
    """Returns weights by our names, and hyperparameters."""
    weights.drop_if(
        lambda name: bool(_FUSED.fullmatch(name)) or name.endswith(("version", "_float_tensor"))
    )
    ours = TransformerWeights()
    source, target = (
        vocabulary.rows(weights(f"{side}.embed_tokens.weight"))
        for side, vocabulary in zip(_SIDES, vocabularies, strict=True)
    )
    tops = ("decoder.output_projection.weight", "decoder.embed_out")
    top = next((vocabularies[1].rows(weights(name)) for name in tops if name in weights), target)
    ours.tables(source, target, top, None)
    has_none = _is_on(arguments, "no_token_positional_embeddings")
    sides = {}
    for side, places in zip(_SIDES, _PLACES, strict=True):
        norms = (
            translation.PRE_NORM
            if _is_on(arguments, f"{side}_normalize_before")
            else translation.POST_NORM
        )
        read_stack(weights, ours, side, side, norms)
        if f"{side}.embed_positions.weight" in weights:
            ours.weights[places] = weights(f"{side}.embed_positions.weight")[_PAD + 1 :]
        sides[side] = Side(
            num_heads=int(arguments.get(f"{side}_attention_heads", 8)),
            activation=str(arguments["activation_fn"]),
            norms=norms,
            norm_epsilon=1e-5,
            pos="none" if has_none else "timing",
            position_offset=0 if has_none else _PAD + 1,
        )
    return ours.weights, translation.hparams_of(
        "fairseq",
        "transformer",
        ours.weights,
        sides,
        decoder_start_id=vocabularies[1].our_id(_EOS),
        multiply_embedding_mode="none" if _is_on(arguments, "no_scale_embedding") else "sqrt_depth",
        **_training(arguments),
    )


_SIDES = ("encoder", "decoder")
_PLACES = ("join.positions.table", "positions.table")  # of learned positions


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


def read_stack(
    weights: Weights, ours: TransformerWeights, side: str, theirs: str, norms: tuple[str, str]
) -> None:
    """Adds the layers and norms of a stack, by the names of fairseq and of models made after it.

    Args:
      weights: weights of the library.
      ours: weights by our names, which are extended.
      side: "encoder" or "decoder".
      theirs: their name of the stack.
      norms: operations before and after a sublayer.
    """
    place = "before" if norms == translation.PRE_NORM else "after"
    for layer in range(weights.layers(f"{theirs}.layers")):
        _layer(weights, ours, f"{theirs}.layers.{layer}", f"{side}.{layer}", place)
    for name in ("layernorm_embedding", "emb_layer_norm"):
        if f"{theirs}.{name}.weight" in weights:
            places = "join.positions" if side == "encoder" else "positions"
            ours.norm(places, weights.linear(f"{theirs}.{name}"))
    if place == "before" and f"{theirs}.layer_norm.weight" in weights:
        ours.norm(f"{side}_output", weights.linear(f"{theirs}.layer_norm"))


def _is_on(arguments: Mapping[str, Any], name: str) -> bool:
    """Returns the value of a switch, which may be text in old checkpoints."""
    return str(arguments.get(name, False)).lower() in ("true", "1")


def _layer(weights: Weights, ours: TransformerWeights, theirs: str, name: str, place: str) -> None:
    """Adds the weights of a layer, whose norms are before or after its sublayers."""
    attentions = {"self_attn": "attention"}
    if name.startswith("decoder"):
        attentions["encoder_attn"] = "memory_attention"
    for old, new in attentions.items():
        q, k, v = _projections(weights, f"{theirs}.{old}")
        add = ours.self_attention if new == "attention" else ours.cross_attention
        add(f"{name}.{new}", q, k, v, weights.linear(f"{theirs}.{old}.out_proj"))
        ours.norm(f"{name}.{new}_{place}", _norm(weights, theirs, f"{old}_layer_norm", 0))
    inner, outer = weights.linear(f"{theirs}.fc1"), weights.linear(f"{theirs}.fc2")
    ours.feed_forward(f"{name}.feed_forward", inner, outer, None)
    ours.norm(f"{name}.feed_forward_{place}", _norm(weights, theirs, "final_layer_norm", 1))


def _norm(weights: Weights, layer: str, name: str, number: int) -> Any:
    """Returns a layer norm, which before 0.7 had a number in encoders."""
    old = f"{layer}.layer_norms.{number}"
    return weights.linear(old if f"{old}.weight" in weights else f"{layer}.{name}")


def _projections(weights: Weights, name: str) -> list[Any]:
    """Returns the maps of queries, keys and values, which before 0.8 were one."""
    if f"{name}.in_proj_weight" not in weights:
        return [weights.linear(f"{name}.{part}_proj") for part in "qkv"]
    parts = weights(f"{name}.in_proj_weight").chunk(3)
    biases: tuple[Any, ...] = (None, None, None)
    if f"{name}.in_proj_bias" in weights:
        biases = weights(f"{name}.in_proj_bias").chunk(3)
    return list(zip(parts, biases, strict=True))
