"""Import of OpenNMT-py's Transformers and LSTM models, of its version 3."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2t_torch.errors import CheckpointError, DataError, UsageError
from t2t_torch.hparam import HParams
from t2t_torch.interop import translation
from t2t_torch.interop.importer import ImportedRun
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.interop.translation import Side, Vocabulary
from t2t_torch.interop.unpickling import load_pickled, scalars

_LIBRARY = "OpenNMT-py"
_UNKNOWN, _PAD, _BOS, _EOS = "<unk>", "<blank>", "<s>", "</s>"
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "aan_useffn": (False,),
    "copy_attn": (False,),
    "context_gate": (None,),
    "coverage_attn": (False,),
    "model_task": ("seq2seq",),
    "num_experts": (0,),
    "parallel_residual": (False,),
    "relative_positions_buckets": (0,),
    "rotary_dim": (0,),
    "rotary_theta": (10000,),
    "shared_layer_norm": (False,),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash"),
    "sliding_window": (0,),
    "generator_function": ("softmax",),
    "global_attention_function": ("softmax",),
    "n_src_feats": (0,),
    "bridge": (False,),
}


_SIZES = {
    "enc_layers": "num_encoder_layers",
    "dec_layers": "num_decoder_layers",
    "hidden_size": "hidden_size",
    "transformer_ff": "filter_size",
    "max_relative_positions": "max_relative_position",
}
"""Our names of sizes in a configuration."""

OPTIONS = frozenset("checkpoint decode_hparams problem subwords".split())


def detect(source: Path) -> bool:
    """Returns True if a folder, or a file, has a checkpoint as OpenNMT-py names them."""
    names = [path.name for path in ([source] if source.is_file() else source.glob("*.pt"))]
    names = [name for name in names if name.endswith(".pt")]
    return bool(names) and not any(name.startswith("checkpoint") for name in names)


def read(source: Path, settings: ImportSettings) -> ImportedRun:
    """Returns the run of a model of OpenNMT-py 3.

    Args:
      source: folder with the checkpoint and the subword models, or the checkpoint.
      settings: settings of the import.

    Raises:
      CheckpointError: the checkpoint is damaged, or its weights are not those of its options.
      HParamsError: the model computes something that this library does not.
    """
    path = _checkpoint(source, settings.checkpoint)
    content = load_pickled(path)
    opt = scalars(content.get("opt")) if isinstance(content, dict) else {}
    if not opt or not all(isinstance(content.get(one), dict) for one in ("model", "generator")):
        raise CheckpointError(f"{path} has no model and options, as OpenNMT-py writes them.")
    top = content["generator"].items()
    tops = {f"generator.{name.removeprefix('0.')}": value for name, value in top}
    model = _model_of(opt)
    vocabularies = _vocabularies(content.get("vocab"), path)
    convert = _transformer if model == "transformer" else _lstm
    ours, hparams = convert({**content["model"], **tops}, opt, vocabularies)
    if model == "transformer":
        distance = max(0, int(opt.get("max_relative_positions") or 0))  # below 0: other positions
        opt = {**opt, "max_relative_positions": distance}
        translation.check_sizes(_LIBRARY, opt, hparams, _SIZES)
    optim = content.get("optim")
    return translation.translation_run(
        "opennmt",
        settings,
        languages=(str(opt.get("src_lang") or "src"), str(opt.get("tgt_lang") or "tgt")),
        hparams=hparams,
        weights=ours,
        vocabularies=vocabularies,
        subwords=_subwords_in(opt, source),
        model=model,
        decode_hparams=_DECODING,
        step=int(scalars(optim).get("training_step", 1)) - 1 if optim else 0,
        ignored=["the optimizer's state"] if optim else [],
    )


_DECODING = {
    "search_rules": "opennmt",
    "force_eos": False,
    "beam_size": 5,
    "alpha": 1.0,
    "length_offset": 1.0,
    "length_scale": 1.0,
    "extra_length_ratio": 0.25,
    "extra_length": 5,
    "max_length": 250,
}
"""Settings of onmt_translate, by our names."""


def _model_of(opt: Mapping[str, Any]) -> str:
    """Returns our name of a model; HParamsError if it has parts that ours has not."""
    found = translation.forbidden(opt, _MUST_BE)
    kinds = {str(opt.get("encoder_type")), str(opt.get("decoder_type"))}
    is_lstm = kinds <= {"rnn", "brnn"} and opt.get("rnn_type") == "LSTM"
    if kinds != {"transformer"} and not is_lstm:
        found += [f"encoder_type={opt.get('encoder_type')!r}, rnn_type={opt.get('rnn_type')!r}"]
    translation.refuse(_LIBRARY, found)
    return "lstm_seq2seq_attention" if is_lstm else "transformer"


def _checkpoint(source: Path, name: str) -> Path:
    """Returns the newest checkpoint, or a named one."""
    if source.is_file():
        return source
    steps = {path: path.stem.rpartition("_step_")[2] for path in sorted(source.glob("*.pt"))}
    if name:
        found = [path for path in steps if name in (path.name, path.stem, steps[path])]
    else:
        found = sorted(steps, key=lambda path: (steps[path].isdecimal(), steps[path].zfill(12)))
    if not found:
        raise UsageError(f"{source} has no checkpoint {name or '*.pt'}. Name one: --checkpoint.")
    return found[-1]


def _subwords_in(opt: Mapping[str, Any], source: Path) -> list[Path]:
    """Returns the subword models that the options name, where they are beside the checkpoint."""
    folder = source if source.is_dir() else source.parent
    names = [opt.get("src_subword_model"), opt.get("tgt_subword_model")]
    paths = [folder / Path(name).name for name in names if isinstance(name, str) and name]
    return paths if len(paths) == 2 and all(path.exists() for path in paths) else []


def _vocabularies(vocab: Any, path: Path) -> tuple[Vocabulary, Vocabulary]:
    sides = [vocab.get(side) if isinstance(vocab, dict) else None for side in ("src", "tgt")]
    found = []
    for number, tokens in enumerate(sides):
        if not isinstance(tokens, list):
            raise CheckpointError(
                f"{path} has its vocabulary in another form than OpenNMT-py 3. Convert it with "
                "OpenNMT-py's tools/convertv2_v3.py."
            )
        translation.check_tokens(tokens)
        if missing := [token for token in (_UNKNOWN, _PAD, _BOS, _EOS) if token not in tokens]:
            raise DataError(f"the vocabulary of {path} has no {', '.join(missing)}.")
        pad, eos, unknown, bos = map(tokens.index, (_PAD, _EOS, _UNKNOWN, _BOS))
        found.append(Vocabulary(tokens, pad, eos, unknown, silent=(bos,), add_eos=number == 1))
    return found[0], found[1]


_TABLES = {
    rf"{side}\.embeddings\.make_embedding\.emb_luts\.0": table
    for side, table in translation.BOTTOMS.items()
} | {"generator": translation.TOP}
_LAYER = {
    r"self_attn\.linear_query": "attention.query_key_value#0",
    r"self_attn\.linear_keys": "attention.query_key_value#1",
    r"self_attn\.linear_values": "attention.query_key_value#2",
    r"self_attn\.final_linear": "attention.output",
    r"self_attn\.relative_positions_embeddings": "attention.relative.keys",
    r"layer_norm|layer_norm_1": "attention_before.norm",
    r"context_attn\.linear_query": "memory_attention.query",
    r"context_attn\.linear_keys": "memory_attention.key_value#0",
    r"context_attn\.linear_values": "memory_attention.key_value#1",
    r"context_attn\.final_linear": "memory_attention.output",
    r"layer_norm_2": "memory_attention_before.norm",
    r"feed_forward\.w_1": "feed_forward.inner",
    r"feed_forward\.w_2": "feed_forward.outer",
    r"feed_forward\.w_3": "feed_forward.gate",
    r"feed_forward\.layer_norm": "feed_forward_before.norm",
}
_OF_TRANSFORMER = {
    **_TABLES,
    r".*\.pe\.pe": "",
    r"(encoder|decoder)\.layer_norm": r"\1_output.norm",
    **translation.layer_names(r"encoder\.transformer", "encoder", _LAYER),
    **translation.layer_names(r"decoder\.transformer_layers", "decoder", _LAYER),
}
_OF_LSTM = {
    **_TABLES,
    r"encoder\.rnn\.(\w+_[ih]h)_l(\d+)": r"encoder.lstm.layers.\2.0.\1_l0",
    r"encoder\.rnn\.(\w+_[ih]h)_l(\d+)_reverse": r"encoder.lstm.layers.\2.1.\1_l0",
    r"decoder\.rnn\.(\w+_[ih]h)_l(\d+)": r"decoder.\2.\1",
    r"decoder\.rnn\.layers\.(\d+)\.(\w+_[ih]h)": r"decoder.\1.\2",
    r"decoder\.attn\.linear_(?:context|in)": "attention.memory_layer",
    r"decoder\.attn\.linear_query": "attention.query_layer",
    r"decoder\.attn\.v": "attention.match",
    r"decoder\.attn\.linear_out": "attention.layers.0",
}
"""Our names of the weights of both models."""


def _transformer(
    tensors: Mapping[str, Any], opt: Mapping[str, Any], vocabularies: tuple[Vocabulary, Vocabulary]
) -> tuple[dict[str, Tensor], HParams]:
    """Returns weights by our names, and hyperparameters."""
    ours = translation.by_our_names(_LIBRARY, tensors, _OF_TRANSFORMER)
    translation.order_tables(_LIBRARY, ours, vocabularies)
    heads, positions = int(opt.get("heads") or 8), _positions(opt)
    side = Side(
        num_heads=heads,
        activation=str(opt.get("pos_ffn_activation_fn", "relu")).removeprefix("gated-"),
        norms=translation.PRE_NORM,
        norm_epsilon=float(opt.get("norm_eps") or 1e-6),
        pos=positions,
    )
    width = ours[f"{translation.INPUTS}.weight"].size(1)
    is_interleaved = positions == "rotary" and opt.get("rotary_interleave", True)
    for name, weight in list(ours.items()):
        if name.endswith(".relative.keys.weight"):  # one for keys and values
            ours[name.replace(".keys.", ".values.")] = weight.T.contiguous()
        elif ".memory_attention.key_value." in name:  # of heads of queries that share them
            by_head = torch.unflatten(weight, 0, (-1, width // heads))
            ours[name] = by_head.repeat_interleave(2 * width // len(weight), 0).flatten(0, 1)
        elif ".attention.query_key_value." in name and is_interleaved:  # ours: halves of a head
            rotated, values = weight.tensor_split([(len(weight) + width) // 2])
            pairs = torch.unflatten(rotated, 0, (-1, width // heads // 2, 2))
            ours[name] = torch.cat([pairs.transpose(1, 2).flatten(0, 2), values])
    return ours, translation.hparams_of(
        _LIBRARY,
        "transformer",
        ours,
        {"encoder": side, "decoder": side},
        decoder_start_id=_start_id(vocabularies[1]),
        multiply_embedding_mode="sqrt_depth" if opt.get("position_encoding") else "none",
        layer_prepostprocess_dropout=_first(opt.get("dropout")),
        relu_dropout=_first(opt.get("dropout")),
        attention_dropout=_first(opt.get("attention_dropout")),
        label_smoothing=float(opt.get("label_smoothing") or 0.0),
    )


def _positions(opt: Mapping[str, Any]) -> str:
    """Returns the kind of positions, besides relative ones, which weights show."""
    of_attention = {-1: "rotary", -2: "alibi"}.get(int(opt.get("max_relative_positions") or 0))
    if not opt.get("position_encoding"):
        return of_attention or "none"
    if of_attention:
        translation.refuse(_LIBRARY, [f"position_encoding with {of_attention} positions"])
    is_interleaved = opt.get("position_encoding_type") != "SinusoidalConcat"
    return "sinusoids_interleaved" if is_interleaved else "timing"


def _first(value: Any) -> float:
    """Returns the first of the values that change during training."""
    if isinstance(value, list):
        value = value[0] if value else 0.0
    return float(value or 0.0)


def _start_id(written: Vocabulary) -> int:
    """Returns our id of the start symbol."""
    return written.our_id(list(written.tokens).index(_BOS))


def _lstm(
    tensors: Mapping[str, Any], opt: Mapping[str, Any], vocabularies: tuple[Vocabulary, Vocabulary]
) -> tuple[dict[str, Tensor], HParams]:
    """Returns weights by our names, and hyperparameters."""
    mechanism = opt.get("global_attention")
    is_additive = mechanism == "mlp"
    ours = translation.by_our_names(_LIBRARY, tensors, _OF_LSTM)
    translation.order_tables(_LIBRARY, ours, vocabularies)
    tables = (translation.INPUTS, translation.TARGETS, translation.TOP)
    source, target, top = (ours[f"{name}.weight"] for name in tables)
    layers = translation.count_layers(ours, "decoder")
    wrong = [] if mechanism in ("general", "dot", "mlp") else [f"global_attention={mechanism!r}"]
    if any(name.startswith(f"encoder.lstm.layers.{layers}.") for name in ours):
        wrong.append("layers of encoder and decoder differ")
    if source.size(1) != target.size(1):
        wrong.append("src_word_vec_size and tgt_word_vec_size differ")
    translation.refuse(_LIBRARY, wrong)
    name = "attention.memory_layer.weight"
    if mechanism == "general":  # theirs is (W h) . memory, ours h . (W' memory)
        ours[name] = translation.weight_of(_LIBRARY, ours, name).T
    elif mechanism == "dot":
        ours[name] = torch.eye(top.size(1))
    name = "attention.layers.0.weight"
    context, state = translation.weight_of(_LIBRARY, ours, name).chunk(2, 1)
    ours[name] = torch.cat([state, context], 1)
    return ours, translation.base_hparams(
        "lstm_seq2seq_attention",
        hidden_size=top.size(1),
        embedding_size=source.size(1),
        num_hidden_layers=layers,
        attention_mechanism="bahdanau" if is_additive else "luong",
        attention_activation="none" if is_additive else "tanh",
        attention_bias=is_additive,
        bidirectional_encoder=opt.get("encoder_type") == "brnn",
        reverse_inputs=False,
        input_feeding=bool(opt.get("input_feed")),
        decoder_start_id=_start_id(vocabularies[1]),
        multiply_embedding_mode="none",
        output_bias=True,
        dropout=_first(opt.get("dropout")),
        label_smoothing=float(opt.get("label_smoothing") or 0.0),
        clip_grad_norm=5.0,
        **translation.sharing(source, target, top),
    )
