"""Import of OpenNMT-py's Transformers and LSTM models, of its version 3."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2t_torch.errors import CheckpointError, DataError, UsageError
from t2t_torch.interop import translation
from t2t_torch.interop.importer import ImportedRun
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.interop.translation import Linear, Side, TransformerWeights, Vocabulary, Weights
from t2t_torch.interop.unpickling import load_pickled, scalars

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
    if not opt or not isinstance(content.get("model"), dict):
        raise CheckpointError(f"{path} has no model and options, as OpenNMT-py writes them.")
    generator = content.get("generator") or {}
    tops = {f"generator.{name.removeprefix('0.')}": value for name, value in generator.items()}
    weights = Weights("OpenNMT-py", {**content["model"], **tops})
    model = _model_of(opt)
    vocabularies = _vocabularies(content.get("vocab"), path)
    convert = _transformer if model == "transformer" else _lstm
    ours, hparams = convert(weights, opt, vocabularies)
    if model == "transformer":
        distance = max(0, int(opt.get("max_relative_positions") or 0))  # below 0: other positions
        opt = {**opt, "max_relative_positions": distance}
        translation.check_sizes("OpenNMT-py", opt, hparams, _SIZES)
    weights.check_read()
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
    translation.refuse("OpenNMT-py", found)
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


def _embedding(weights: Weights, side: str) -> Any:
    return weights(f"{side}.embeddings.make_embedding.emb_luts.0.weight")


def _transformer(
    weights: Weights, opt: Mapping[str, Any], vocabularies: tuple[Vocabulary, Vocabulary]
) -> tuple[dict[str, Any], Any]:
    """Returns weights by our names, and hyperparameters."""
    ours = TransformerWeights()
    read, written = vocabularies
    source = read.rows(_embedding(weights, "encoder"))
    target = written.rows(_embedding(weights, "decoder"))
    top = written.rows(weights("generator.weight"))
    ours.tables(source, target, top, written.rows(weights("generator.bias")))
    weights.drop_if(lambda name: name.endswith(".pe.pe"))
    heads = int(opt.get("heads") or 8)
    positions = _positions(opt)
    is_interleaved = positions == "rotary" and opt.get("rotary_interleave", True)
    sides = {}
    stacks = {"encoder": "encoder.transformer", "decoder": "decoder.transformer_layers"}
    for side, stack in stacks.items():
        for layer in range(weights.layers(stack)):
            name = f"{side}.{layer}"
            _layer(weights, ours, f"{stack}.{layer}", name, heads, is_interleaved=is_interleaved)
        ours.norm(f"{side}_output", weights.linear(f"{side}.layer_norm"))
        sides[side] = Side(
            num_heads=heads,
            activation=str(opt.get("pos_ffn_activation_fn", "relu")).removeprefix("gated-"),
            norms=translation.PRE_NORM,
            norm_epsilon=float(opt.get("norm_eps") or 1e-6),
            pos=positions,
        )
    return ours.weights, translation.hparams_of(
        "OpenNMT-py",
        "transformer",
        ours.weights,
        sides,
        decoder_start_id=written.our_id(list(written.tokens).index(_BOS)),
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
        translation.refuse("OpenNMT-py", [f"position_encoding with {of_attention} positions"])
    is_interleaved = opt.get("position_encoding_type") != "SinusoidalConcat"
    return "sinusoids_interleaved" if is_interleaved else "timing"


def _first(value: Any) -> float:
    """Returns the first of the values that change during training."""
    if isinstance(value, list):
        value = value[0] if value else 0.0
    return float(value or 0.0)


def _layer(
    weights: Weights,
    ours: TransformerWeights,
    theirs: str,
    name: str,
    heads: int,
    *,
    is_interleaved: bool,
) -> None:
    """Adds the weights of a layer; `is_interleaved`: neighbouring channels are rotated."""
    norms = {"attention_before": "layer_norm", "feed_forward_before": "feed_forward.layer_norm"}
    attentions = {"self_attn": "attention"}
    if name.startswith("decoder"):
        norms["attention_before"] = "layer_norm_1"
        norms["memory_attention_before"] = "layer_norm_2"
        attentions["context_attn"] = "memory_attention"
    for new, old in norms.items():
        ours.norm(f"{name}.{new}", weights.linear(f"{theirs}.{old}"))
    for old, new in attentions.items():
        q, k, v = (
            weights.linear(f"{theirs}.{old}.linear_{p}") for p in ("query", "keys", "values")
        )
        size = len(q[0]) // heads
        output = weights.linear(f"{theirs}.{old}.final_linear")
        if new == "attention":
            if is_interleaved:  # ours rotates the halves of a head
                q, k = (_by_head(one, size, _halves) for one in (q, k))
            ours.self_attention(f"{name}.{new}", q, k, v, output)
        else:
            # Of heads of queries that share keys and values.
            repeated = functools.partial(
                torch.repeat_interleave, repeats=len(q[0]) // len(k[0]), dim=0
            )
            k, v = (_by_head(one, size, repeated) for one in (k, v))
            ours.cross_attention(f"{name}.{new}", q, k, v, output)
        table = f"{theirs}.{old}.relative_positions_embeddings.weight"
        if table in weights:  # one for keys and values
            distances = weights(table)
            ours.weights[f"{name}.{new}.relative.keys.weight"] = distances
            ours.weights[f"{name}.{new}.relative.values.weight"] = distances.T.contiguous()
    ff = f"{theirs}.feed_forward"
    gate = weights.linear(f"{ff}.w_3") if f"{ff}.w_3.weight" in weights else None
    inner, outer = weights.linear(f"{ff}.w_1"), weights.linear(f"{ff}.w_2")
    ours.feed_forward(f"{name}.feed_forward", inner, outer, gate)


def _by_head(linear: Linear, size: int, change: Callable[[Tensor], Tensor]) -> Linear:
    """Returns a linear map whose outputs are changed by head; `change` gets [N, size, ...]."""
    heads = (torch.unflatten(one, 0, (-1, size)) for one in linear if one is not None)
    weight, *bias = (change(one).flatten(0, 1) for one in heads)
    return weight, bias[0] if bias else None


def _halves(x: Tensor) -> Tensor:
    """Returns heads with the first channels of all pairs before the second ones.  [N, D, ...]."""
    return torch.unflatten(x, 1, (-1, 2)).transpose(1, 2).flatten(1, 2)


def _lstm(
    weights: Weights, opt: Mapping[str, Any], vocabularies: tuple[Vocabulary, Vocabulary]
) -> tuple[dict[str, Any], Any]:
    """Returns weights by our names, and hyperparameters."""
    read, written = vocabularies
    mechanism = opt.get("global_attention")
    is_additive, feeds = mechanism == "mlp", bool(opt.get("input_feed"))
    is_bidirectional = opt.get("encoder_type") == "brnn"
    layers = weights.layers("decoder.rnn.layers") if feeds else int(opt.get("dec_layers") or 2)
    ours = TransformerWeights()
    source = read.rows(_embedding(weights, "encoder"))
    target = written.rows(_embedding(weights, "decoder"))
    wrong = [] if mechanism in ("general", "dot", "mlp") else [f"global_attention={mechanism!r}"]
    if weights.shape(f"encoder.rnn.weight_ih_l{layers}"):
        wrong.append("layers of encoder and decoder differ")
    if source.size(1) != target.size(1):
        wrong.append("src_word_vec_size and tgt_word_vec_size differ")
    translation.refuse("OpenNMT-py", wrong)
    top = written.rows(weights("generator.weight"))
    ours.tables(source, target, top, written.rows(weights("generator.bias")))
    for layer in range(layers):
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            for number, suffix in enumerate(("", "_reverse") if is_bidirectional else ("",)):
                name = f"encoder.lstm.layers.{layer}.{number}.{kind}_l0"
                ours.weights[name] = weights(f"encoder.rnn.{kind}_l{layer}{suffix}")
            theirs = f"layers.{layer}.{kind}" if feeds else f"{kind}_l{layer}"
            ours.weights[f"decoder.{layer}.{kind}"] = weights(f"decoder.rnn.{theirs}")
    _attention(weights, ours, str(mechanism), top.size(1))
    hparams = translation.base_hparams(
        "lstm_seq2seq_attention",
        hidden_size=top.size(1),
        embedding_size=source.size(1),
        num_hidden_layers=layers,
        attention_mechanism="bahdanau" if is_additive else "luong",
        attention_activation="none" if is_additive else "tanh",
        attention_bias=is_additive,
        bidirectional_encoder=is_bidirectional,
        reverse_inputs=False,
        input_feeding=feeds,
        decoder_start_id=written.our_id(list(written.tokens).index(_BOS)),
        multiply_embedding_mode="none",
        output_bias=True,
        dropout=_first(opt.get("dropout")),
        label_smoothing=float(opt.get("label_smoothing") or 0.0),
        clip_grad_norm=5.0,
        **translation.sharing(source, target, top),
    )
    return ours.weights, hparams


def _attention(weights: Weights, ours: TransformerWeights, mechanism: str, size: int) -> None:
    """Adds the attention of an LSTM decoder of `size` units."""
    theirs = "decoder.attn"
    if mechanism == "mlp":
        ours.weights["attention.memory_layer.weight"] = weights(f"{theirs}.linear_context.weight")
        ours.linears("attention.query_layer", weights.linear(f"{theirs}.linear_query"))
        ours.weights["attention.match.weight"] = weights(f"{theirs}.v.weight")
    elif mechanism == "general":  # theirs is (W h) . memory, ours h . (W' memory)
        ours.weights["attention.memory_layer.weight"] = weights(f"{theirs}.linear_in.weight").T
    else:
        ours.weights["attention.memory_layer.weight"] = torch.eye(size)
    output, bias = weights.linear(f"{theirs}.linear_out")
    context, state = output.chunk(2, 1)
    ours.linears("attention.layers.0", (torch.cat([state, context], 1), bias))
