"""Import of OpenNMT-py's Transformers and LSTM models, of its version 3."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from t2t_torch.errors import CheckpointError, DataError, UsageError
from t2t_torch.interop.importer import ImportedRun, ImportOptions
from t2t_torch.interop.translation import (
    PRE_NORM,
    TRANSFORMER,
    TransformerWeights,
    Vocabulary,
    Weights,
    base_hparams,
    check_sizes,
    check_tokens,
    forbidden,
    refuse,
    sharing,
    subword_models,
    translation_run,
    with_subwords,
)
from t2t_torch.interop.unpickling import load_pickled, scalars

_UNKNOWN, _PAD, _BOS, _EOS = "<unk>", "<blank>", "<s>", "</s>"
_ACTIVATIONS = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "silu": ("silu", False),
    "gated-gelu": ("gelu", True),
    "gated-silu": ("silu", True),
}
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "aan_useffn": (False,),
    "copy_attn": (False,),
    "context_gate": (None,),
    "coverage_attn": (False,),
    "layer_norm": ("standard",),
    "model_task": ("seq2seq",),
    "multiquery": (False,),
    "num_experts": (0,),
    "num_kv": (0,),
    "parallel_residual": (False,),
    "relative_positions_buckets": (0,),
    "rotary_dim": (0,),
    "shared_layer_norm": (False,),
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
}
"""Our names of sizes in a configuration."""

OPTIONS = frozenset("checkpoint decode_hparams problem subwords".split())
"""Options of `ImportOptions` that are used."""


def detect(source: Path) -> bool:
    """Returns True if a folder, or a file, has a checkpoint as OpenNMT-py names them."""
    names = [path.name for path in ([source] if source.is_file() else source.glob("*.pt"))]
    names = [name for name in names if name.endswith(".pt")]
    return bool(names) and not any(name.startswith("checkpoint") for name in names)


def read(source: Path, options: ImportOptions) -> ImportedRun:
    """Returns the run of a model of OpenNMT-py 3.

    Args:
      source: folder with the checkpoint and the subword models, or the checkpoint.
      options: options of the import.

    Raises:
      CheckpointError: the checkpoint is damaged, or its weights are not those of its options.
      HParamsError: the model computes something that this library does not.
    """
    path = _checkpoint(source, options.checkpoint)
    content = load_pickled(path)
    opt = scalars(content.get("opt")) if isinstance(content, dict) else {}
    if not opt or not isinstance(content.get("model"), dict):
        raise CheckpointError(f"{path} has no model and options, as OpenNMT-py writes them.")
    generator = content.get("generator") or {}
    tops = {f"generator.{name.removeprefix('0.')}": value for name, value in generator.items()}
    weights = Weights("OpenNMT-py", {**content["model"], **tops})
    model = _model_of(opt)
    vocabularies = with_subwords(
        _vocabularies(content.get("vocab"), path),
        subword_models(options, _subwords_in(opt, source)),
    )
    convert = _transformer if model == "transformer" else _lstm
    ours, hparams = convert(weights, opt, vocabularies)
    if model == "transformer":
        check_sizes("OpenNMT-py", opt, hparams, _SIZES)
    weights.check_read()
    optim = content.get("optim")
    return translation_run(
        "opennmt",
        options,
        languages=(str(opt.get("src_lang") or "src"), str(opt.get("tgt_lang") or "tgt")),
        hparams=hparams,
        weights=ours,
        vocabularies=vocabularies,
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
    found = forbidden(opt, _MUST_BE)
    kinds = {str(opt.get("encoder_type")), str(opt.get("decoder_type"))}
    is_lstm = kinds <= {"rnn", "brnn"} and opt.get("rnn_type") == "LSTM"
    if kinds != {"transformer"} and not is_lstm:
        found += [f"encoder_type={opt.get('encoder_type')!r}, rnn_type={opt.get('rnn_type')!r}"]
    refuse("OpenNMT-py", found)
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


def _vocabularies(vocab: Any, path: Path) -> list[Vocabulary]:
    sides = [vocab.get(side) if isinstance(vocab, dict) else None for side in ("src", "tgt")]
    found = []
    for number, tokens in enumerate(sides):
        if not isinstance(tokens, list):
            raise CheckpointError(
                f"{path} has its vocabulary in another form than OpenNMT-py 3. Convert it with "
                "OpenNMT-py's tools/convertv2_v3.py."
            )
        check_tokens(tokens)
        if missing := [token for token in (_UNKNOWN, _PAD, _BOS, _EOS) if token not in tokens]:
            raise DataError(f"the vocabulary of {path} has no {', '.join(missing)}.")
        pad, eos, unknown, bos = map(tokens.index, (_PAD, _EOS, _UNKNOWN, _BOS))
        found.append(Vocabulary(tokens, pad, eos, unknown, silent=(bos,), add_eos=number == 1))
    return found


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
    first = "encoder.transformer.0"
    biased = {
        "attention_bias": f"{first}.self_attn.linear_query.bias" in weights,
        "ffn_bias": f"{first}.feed_forward.w_1.bias" in weights,
    }
    filters = weights.shape(f"{first}.feed_forward.w_1.weight") or [4 * source.size(1)]
    relative = int(opt.get("max_relative_positions") or 0)
    stacks = {"encoder": "encoder.transformer", "decoder": "decoder.transformer_layers"}
    layers = {}
    for side, stack in stacks.items():
        layers[side] = weights.layers(stack)
        for layer in range(layers[side]):
            _layer(weights, ours, side, f"{stack}.{layer}", f"{side}.{layer}")
        ours.norm(f"{side}_output", weights.linear(f"{side}.layer_norm"))
    activation = str(opt.get("pos_ffn_activation_fn", "relu"))
    wrong = [] if activation in _ACTIVATIONS else [f"pos_ffn_activation_fn={activation!r}"]
    refuse("OpenNMT-py", [*wrong, *(["max_relative_positions=-1"] if relative < 0 else [])])
    name, gated = _ACTIVATIONS[activation]
    hparams = base_hparams(
        "transformer",
        hidden_size=source.size(1),
        num_heads=int(opt.get("heads") or 8),
        filter_size=filters[0],
        num_encoder_layers=layers["encoder"],
        num_decoder_layers=layers["decoder"],
        **biased,
        ffn_activation=name,
        ffn_gated=gated,
        **_positions(opt),
        self_attention_type="dot_product_relative" if relative else "dot_product",
        max_relative_position=relative,
        norm_epsilon=float(opt.get("norm_eps") or 1e-6),
        output_bias=True,
        decoder_start_id=written.our_id(list(written.tokens).index(_BOS)),
        layer_prepostprocess_dropout=_first(opt.get("dropout")),
        relu_dropout=_first(opt.get("dropout")),
        attention_dropout=_first(opt.get("attention_dropout")),
        label_smoothing=float(opt.get("label_smoothing") or 0.0),
        **PRE_NORM,
        **sharing(source, target, top),
        **TRANSFORMER,
    )
    return ours.weights, hparams


def _positions(opt: Mapping[str, Any]) -> dict[str, str]:
    """Returns the kind of positions; without them embeddings are not scaled."""
    if not opt.get("position_encoding"):
        return {"pos": "none", "multiply_embedding_mode": "none"}
    is_interleaved = opt.get("position_encoding_type") != "SinusoidalConcat"
    return {"pos": "sinusoids_interleaved" if is_interleaved else "timing"}


def _first(value: Any) -> float:
    """Returns the first of the values that change during training."""
    if isinstance(value, list):
        value = value[0] if value else 0.0
    return float(value or 0.0)


def _layer(weights: Weights, ours: TransformerWeights, side: str, theirs: str, name: str) -> None:
    """Adds the weights of a layer."""
    norms = {"attention_before": "layer_norm", "feed_forward_before": "feed_forward.layer_norm"}
    attentions = {"self_attn": "attention"}
    if side == "decoder":
        norms["attention_before"] = "layer_norm_1"
        norms["memory_attention_before"] = "layer_norm_2"
        attentions["context_attn"] = "memory_attention"
    for new, old in norms.items():
        ours.norm(f"{name}.{new}", weights.linear(f"{theirs}.{old}"))
    for old, new in attentions.items():
        parts = [weights.linear(f"{theirs}.{old}.linear_{p}") for p in ("query", "keys", "values")]
        add = ours.self_attention if new == "attention" else ours.cross_attention
        add(f"{name}.{new}", *parts, weights.linear(f"{theirs}.{old}.final_linear"))
        table = f"{theirs}.{old}.relative_positions_embeddings.weight"
        if table in weights:  # one for keys and values
            distances = weights(table)
            ours.weights[f"{name}.{new}.relative.keys.weight"] = distances
            ours.weights[f"{name}.{new}.relative.values.weight"] = distances.T.contiguous()
    ff = f"{theirs}.feed_forward"
    gate = weights.linear(f"{ff}.w_3") if f"{ff}.w_3.weight" in weights else None
    inner, outer = weights.linear(f"{ff}.w_1"), weights.linear(f"{ff}.w_2")
    ours.feed_forward(f"{name}.feed_forward", inner, outer, gate)


def _lstm(
    weights: Weights, opt: Mapping[str, Any], vocabularies: tuple[Vocabulary, Vocabulary]
) -> tuple[dict[str, Any], Any]:
    """Returns weights by our names, and hyperparameters."""
    read, written = vocabularies
    mechanism = opt.get("global_attention")
    is_bidirectional = opt.get("encoder_type") == "brnn"
    wrong = [] if mechanism == "general" else [f"global_attention={mechanism!r}"]
    wrong += [] if opt.get("input_feed") else ["input_feed=0"]
    wrong += [] if is_bidirectional else ["encoder_type='rnn'"]
    layers = weights.layers("decoder.rnn.layers")
    if len(weights.shape(f"encoder.rnn.weight_ih_l{layers}")):
        wrong.append("layers of encoder and decoder differ")
    refuse("OpenNMT-py", wrong)
    ours = TransformerWeights()
    source = read.rows(_embedding(weights, "encoder"))
    target = written.rows(_embedding(weights, "decoder"))
    top = written.rows(weights("generator.weight"))
    ours.tables(source, target, top, written.rows(weights("generator.bias")))
    for layer in range(layers):
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            for number, suffix in enumerate(("", "_reverse")):
                name = f"encoder.lstm.layers.{layer}.{number}.{kind}_l0"
                ours.weights[name] = weights(f"encoder.rnn.{kind}_l{layer}{suffix}")
            ours.weights[f"decoder.{layer}.{kind}"] = weights(f"decoder.rnn.layers.{layer}.{kind}")
    # Theirs is (W h) . memory, ours h . (W' memory).
    ours.weights["attention.memory_layer.weight"] = weights("decoder.attn.linear_in.weight").T
    output = weights("decoder.attn.linear_out.weight")
    context, state = output.chunk(2, 1)
    ours.weights["attention.layers.0.weight"] = torch.cat([state, context], 1)
    hparams = base_hparams(
        "lstm_seq2seq_attention",
        hidden_size=top.size(1),
        embedding_size=source.size(1),
        num_hidden_layers=layers,
        attention_mechanism="luong",
        attention_activation="tanh",
        bidirectional_encoder=True,
        decoder_start_id=written.our_id(list(written.tokens).index(_BOS)),
        multiply_embedding_mode="none",
        output_bias=True,
        dropout=_first(opt.get("dropout")),
        label_smoothing=float(opt.get("label_smoothing") or 0.0),
        clip_grad_norm=5.0,
        **sharing(source, target, top),
    )
    return ours.weights, hparams
