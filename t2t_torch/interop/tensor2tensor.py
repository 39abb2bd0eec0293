"""Import of tensor2tensor's runs, and conversion of its hyperparameters and weights.

`read` reads a run directory for `importer.py`.  Variables may also come from elsewhere, under their
TensorFlow names, for example from an `.npz` file:

    hparams = transformer_hparams(json.load(open("hparams.json")))
    model = Transformer(hparams, dataclasses.replace(features, target_space_id=3))
    load_variables(model, dict(numpy.load("variables.npz")))
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from t2t_torch import registry
from t2t_torch.errors import CheckpointError, DataError, HParamsError, UsageError
from t2t_torch.hparam import HParams
from t2t_torch.interop.importer import ImportedRun, ImportOptions, load_all
from t2t_torch.interop.tensorflow_checkpoint import TensorFlowCheckpoint, find_checkpoint, step_of

Array = npt.NDArray[np.float32]

MODELS = ("transformer", "transformer_encoder", "lstm_seq2seq", "lstm_seq2seq_attention")
"""Models of tensor2tensor whose runs can be imported."""

_ADAM = {"Adam": "exp_avg", "Adam_1": "exp_avg_sq"}  # slots by tensor2tensor's names
_ADAMS = ("adam", "true_adam", "multistep_adam")
_OF_RUN = frozenset(
    "data_dir eval_freq_in_steps eval_steps eval_timeout_mins model_dir schedule "
    "std_server_protocol train_steps warm_start_from".split()
)
"""Flags of the trainer that tensor2tensor adds to hparams.json."""
_LEGACY = "Set the registered name of the model with --model, one of "


def detect(source: Path) -> bool:
    """Returns True if a folder has TensorFlow checkpoints and tensor2tensor's flags or hparams."""
    named = any((source / name).exists() for name in ("flags_t2t.txt", "flags.txt"))
    has_index = any(source.glob("*.ckpt-*.index"))
    return has_index and (named or (source / "hparams.json").exists())


def read(source: Path, options: ImportOptions) -> ImportedRun:
    """Returns a run of tensor2tensor.

    Model, problem and hyperparameters come from `flags*.txt` and `hparams.json`; vocabularies from
    the data directory.  A problem that is registered here is used, any other is declared: text to
    text, a language model, or text to class with `options.labels`.

    Args:
      source: run directory (`--output_dir` of `t2t-trainer`, or of `t2t-avg-all`).
      options: options of the import.

    Raises:
      CheckpointError: the checkpoint is damaged, or its variables are not those of the model.
      DataError: a vocabulary is missing.
      HParamsError: the model computes something that this library does not.
      UsageError: model or problem are unknown; the message names the option to give.
    """
    flags = _flags_of(source)
    model = options.model or flags.get("model", "")
    if model not in MODELS:
        known = (
            f"tensor2tensor's model {model!r} cannot be imported"
            if model
            else (f"{source} has no flags_t2t.txt, which names the model")
        )
        raise UsageError(f"{known}. {_LEGACY}{', '.join(MODELS)}.")
    values = _hparams_of(source, options)
    checkpoint = TensorFlowCheckpoint(find_checkpoint(source, options.checkpoint))
    variables = {name: checkpoint.read(name) for name in checkpoint.tensors if _is_weight(name)}
    hparams = _converted(model, values, variables)
    convert = _weights if model.startswith("transformer") else _lstm_weights_of
    weights = convert(variables)
    slots = _slots_of(checkpoint, hparams, weights, convert)
    declared = _declared(source, flags, options, variables)
    step = int(checkpoint.read("global_step")) if "global_step" in checkpoint.tensors else 0
    return ImportedRun(
        library="tensor2tensor",
        problem=declared.problem,
        model=model,
        hparams=hparams,
        weights=_with_shared_table(weights, hparams),
        declaration=declared.declaration,
        vocabularies=declared.vocabularies,
        step=step or max(0, step_of(checkpoint.prefix.name)),
        train_steps=int(flags.get("train_steps", "0") or 0),
        slots=slots,
    )


def _flags_of(source: Path) -> dict[str, str]:
    """Returns the flags that `t2t-trainer` has written, by name."""
    flags: dict[str, str] = {}
    for name in ("flags.txt", "flags_t2t.txt"):
        try:
            lines = (source / name).read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
        for line in lines:
            flag, _, value = line.strip().removeprefix("--").partition("=")
            if value and value != "None":
                flags[flag] = value
    return flags


def _hparams_of(source: Path, options: ImportOptions) -> dict[str, Any]:
    """Returns the hyperparameters by tensor2tensor's names, without those of its training loop."""
    path = source / "hparams.json"
    try:
        values = json.loads(path.read_bytes())
    except OSError:
        raise UsageError(
            f"{path} is missing: tensor2tensor writes it beside the checkpoints. Copy it there."
        ) from None
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}. Copy it again.") from None
    if not isinstance(values, dict):
        raise DataError(f"{path} is not an object of hyperparameters. Copy it again.")
    values = values.get("values", values)
    for item in filter(None, options.hparams.split(",")):
        name, is_set, value = item.partition("=")
        if not is_set or name not in values:
            raise UsageError(f"--hparams={item}: {path.name} has no {name!r}.")
        values[name] = json.loads(value) if re.fullmatch(r"[-\d.e]+|true|false", value) else value
    return {name: value for name, value in values.items() if name not in _OF_RUN}


def _is_weight(name: str) -> bool:
    return not is_training_state(name) and not name.startswith(("train_stats/", "losses_avg/"))


def _converted(model: str, values: dict[str, Any], variables: Mapping[str, Array]) -> HParams:
    """Returns our hyperparameters, with what the variables show."""
    if not model.startswith("transformer"):
        return lstm_hparams(model, values)
    hparams = transformer_hparams(values, model)
    has_space = any(name.endswith("target_space_embedding/kernel") for name in variables)
    changes: dict[str, Any] = {"use_target_space_embedding": has_space}
    if model == "transformer" and not any("/body/encoder/" in name for name in variables):
        changes = {"encode_inputs": False} if values.get("prepend_mode") != "none" else {}
    return hparams.replace(**changes).signed("tensor2tensor") if changes else hparams


def _with_shared_table(weights: dict[str, Tensor], hparams: HParams) -> dict[str, Tensor]:
    """Returns the weights with the softmax's table under its own name, if it is shared."""
    top, bottom = "modalities.targets.top.weight", "modalities.targets.bottom.weight"
    shares = getattr(hparams, "shared_embedding_and_softmax_weights", False)
    return {**weights, top: weights[bottom]} if shares and bottom in weights else weights


def _slots_of(
    checkpoint: TensorFlowCheckpoint, hparams: HParams, weights: Mapping[str, Tensor], convert: Any
) -> dict[str, dict[str, Tensor | int | float]] | None:
    """Returns Adam's moments by our names; None if the checkpoint has none, as an average."""
    if hparams.optimizer not in _ADAMS or "global_step" not in checkpoint.tensors:
        return None
    steps = torch.tensor(float(checkpoint.read("global_step")))
    slots: dict[str, dict[str, Tensor | int | float]] = {}
    for theirs, ours in _ADAM.items():
        pattern = re.compile(rf"training/(.+)/{theirs}")
        found = {
            match[1]: checkpoint.read(name)
            for name in checkpoint.tensors
            if (match := pattern.fullmatch(name))
        }
        if not found:
            return None
        for name, moment in convert(found).items():
            slots.setdefault(name, {"step": steps.clone()})[ours] = moment
    complete = {name for name, one in slots.items() if len(one) == 1 + len(_ADAM)}
    return slots if complete >= weights.keys() else None


class _Declared(NamedTuple):
    """Problem of a run.

    Attributes:
      problem: its name, with `_rev` and `_copy`.
      declaration: its declaration; None if it is registered.
      vocabularies: contents of its vocabulary files by name.
    """

    problem: str
    declaration: dict[str, Any] | None
    vocabularies: dict[str, bytes]


def _declared(
    source: Path,
    flags: Mapping[str, str],
    options: ImportOptions,
    variables: Mapping[str, Array],
) -> _Declared:
    full = options.problem or flags.get("problem", "")
    if not full:
        raise UsageError(f"{source} has no flags_t2t.txt, which names the problem: give --problem.")
    name = registry.parse_problem_name(full).base_name
    folders = _data_folders(source, flags, options)
    if name in registry.list_names("problem"):
        known = registry.problem(full)
        files = {file: _found(file, folders) for file in known.vocab_files}
        return _Declared(full, None, files)
    labels = [
        int(match[1])
        for one in variables
        if (match := re.search(r"class_label_modality_(\d+)_\d+/dense/bias$", one))
    ]
    vocabulary = _vocabulary(flags.get("problem", name), folders)
    content = {vocabulary.name: vocabulary.read_bytes()}
    declaration: dict[str, Any] = {"problem": name, "kind": "text2text"}
    has_inputs = bool(labels) or any(
        re.search(r"/body/encoder/|/input_emb/|/encoder/rnn/", one) for one in variables
    )
    fields = ["inputs", "targets"] if has_inputs else ["targets"]
    if labels:
        declaration |= {"kind": "text2class", "labels": _labels(labels[0], options)}
    elif not has_inputs:
        declaration["kind"] = "text2self"
    declaration["files"] = {
        split: {field: f"{name}-{split}.{field}" for field in fields} for split in ("train", "eval")
    }
    if labels:  # one file, a column for each
        declaration["files"] = {split: f"{name}-{split}.tsv" for split in ("train", "eval")}
    elif not has_inputs:
        declaration["files"] = {split: f"{name}-{split}.txt" for split in ("train", "eval")}
    texts = ["inputs"] if labels else fields
    declaration["vocabularies"] = dict.fromkeys(texts, vocabulary.name)
    return _Declared(full, declaration, content)


def _labels(count: int, options: ImportOptions) -> list[str]:
    labels = list(options.labels) or [str(number) for number in range(count)]
    if len(labels) != count or len(set(labels)) != count:
        raise UsageError(
            f"--labels={','.join(labels)}: the model has {count} classes. Name each of them once, "
            "in the order of their numbers."
        )
    return labels


def _data_folders(
    source: Path, flags: Mapping[str, str], options: ImportOptions
) -> tuple[Path, ...]:
    """Returns the folders where vocabularies may be."""
    if options.data_dir is not None:
        if not options.data_dir.is_dir():
            raise UsageError(f"--data_dir={options.data_dir} is not a directory.")
        return (options.data_dir,)
    given = Path(flags.get("data_dir", "data")).expanduser()
    places = [source, given, source / given, *(one / given for one in list(source.parents)[:2])]
    return tuple(dict.fromkeys(one for one in places if one.is_dir()))


def _found(file: str, folders: Sequence[Path]) -> bytes:
    for folder in folders:
        if (folder / file).is_file():
            return (folder / file).read_bytes()
    raise _no_vocabulary(file, folders)


def _vocabulary(problem: str, folders: Sequence[Path]) -> Path:
    """Returns the vocabulary file of a problem that is not registered, `vocab.<problem>.*`."""
    base = registry.parse_problem_name(problem).base_name
    for folder in folders:
        own = sorted(folder.glob(f"vocab.{base}.*")) or sorted(folder.glob("vocab.*"))
        if len(own) == 1:
            return own[0]
        if own:
            names = ", ".join(path.name for path in own)
            raise DataError(
                f"{folder} has several vocabularies: {names}. Copy the one of {base!r} into a "
                "folder of its own and give it as --data_dir."
            )
    raise _no_vocabulary(f"vocab.{base}.*", folders)


def _no_vocabulary(file: str, folders: Sequence[Path]) -> DataError:
    places = ", ".join(map(str, folders)) or "no folder"
    return DataError(
        f"the vocabulary {file} is not in {places}. Give the old run's data directory: --data_dir."
    )


def is_training_state(name: str) -> bool:
    """Returns True if a tensor2tensor variable belongs to the optimizer or counts steps."""
    return name.startswith(("training/", "global_step", "losses_avg")) or bool(
        re.search(r"/(Adam(_1)?|Momentum|[vm][rc]?|grad_acc)$", name)
    )


# The values for which tensor2tensor's Transformer equals ours.  Any other value changes the
# function or the weights.
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "attention_key_channels": (0,),
    "attention_value_channels": (0,),
    "attention_variables_3d": (False,),
    "area_key_mode": ("none",),
    "area_value_mode": ("none",),
    "bottom": ({},),
    "causal_decoder_self_attention": (True,),
    "factored_logits": (False,),
    "ffn_layer": ("dense_relu_dense",),
    "hard_attention_k": (0,),
    "loss": ({},),
    "max_area_height": (1,),
    "max_area_width": (1,),
    "memory_height": (1,),
    "name": ({},),
    "nbr_decoder_problems": (1,),
    "norm_type": ("layer",),
    "num_area_layers": (0,),
    "position_features": ("",),
    "proximity_bias": (False,),
    "split_targets_chunk_length": (0,),
    "top": ({},),
    "unidirectional_encoder": (False,),
    "weights_fn": ({},),
}

_SUBLAYERS = {
    "self_attention": "attention",
    "encdec_attention": "memory_attention",
    "ffn": "feed_forward",
}
_NORMS = {"layer_norm_scale": "weight", "layer_norm_bias": "bias"}
_LINEARS = {"conv1": "inner", "conv2": "outer"}
# (our matrix, index of the part in it) by sublayer and tensor2tensor's name.
_PROJECTIONS = {
    ("attention", "q"): ("query_key_value", 0),
    ("attention", "k"): ("query_key_value", 1),
    ("attention", "v"): ("query_key_value", 2),
    ("attention", "output_transform"): ("output", 0),
    ("memory_attention", "q"): ("query", 0),
    ("memory_attention", "k"): ("key_value", 0),
    ("memory_attention", "v"): ("key_value", 1),
    ("memory_attention", "output_transform"): ("output", 0),
}
_TABLES = {
    "input_emb": ("modalities.inputs.bottom.weight",),
    "target_emb": ("modalities.targets.bottom.weight",),
    "softmax": ("modalities.targets.top.weight",),
    "shared": ("modalities.inputs.bottom.weight", "modalities.targets.bottom.weight"),
}


def transformer_hparams(values: Mapping[str, Any], model: str = "transformer") -> HParams:
    """Returns our hyperparameters for those of tensor2tensor, as stored in its `hparams.json`.

    Hyperparameters that only affect its training infrastructure (shards, summaries, TPUs, the noise
    shape of dropout ...) are dropped.  `values` do not determine whether a model with prepended
    inputs has an encoder: tensor2tensor omits it if the problem has no `inputs`.  In this case use
    `.replace(encode_inputs=False)`.

    Args:
      values: values by tensor2tensor's names.
      model: "transformer" or "transformer_encoder", which ignores the settings of a decoder.

    Raises:
      HParamsError: a value requires a model that differs from ours, or is out of bounds; all are
        named.
    """
    prepends = values.get("prepend_mode", "none") != "none"
    other = [
        f"{name}={values[name]!r} (expected {expected[0]!r})"
        for name, expected in _MUST_BE.items()
        if name in values
        and values[name] not in expected
        # With prepend_mode tensor2tensor itself sets weights_fn to the weights that we use, too.
        and not (name == "weights_fn" and prepends)
    ]
    if other:
        raise HParamsError(
            "this tensor2tensor model computes what our Transformer does not: " + ", ".join(other)
        )
    transformer = registry.model("transformer").HParams
    unknown = values.keys() - transformer.model_fields.keys() - transformer.unsupported
    if unknown:
        raise HParamsError(
            f"tensor2tensor's Transformer has no hyperparameter {', '.join(sorted(unknown))}. "
            "Expected the contents of an hparams.json of tensor2tensor 1.15."
        )
    kind = registry.model(model).HParams
    kept = {k: v for k, v in values.items() if k in kind.model_fields and k not in _MUST_BE}
    if "pos" in kept and kept["pos"] is None:
        kept["pos"] = "none"
    return kind().replace(**kept).signed("tensor2tensor")


def load_variables(model: nn.Module, variables: Mapping[str, Array]) -> None:
    """Loads the trainable variables of a tensor2tensor Transformer.

    Args:
      model: our Transformer with the same hyperparameters and vocabulary sizes.
      variables: arrays by TensorFlow's names; optimizer slots and counters are ignored.

    Raises:
      CheckpointError: a variable is unknown to the model, a weight is missing, or a shape differs.
    """
    weights = _weights(variables)
    shared = model.state_dict()
    top, bottom = "modalities.targets.top.weight", "modalities.targets.bottom.weight"
    if top not in weights and shared[top].data_ptr() == shared[bottom].data_ptr():
        weights[top] = weights.get(bottom, shared[bottom])
    if "modalities.inputs.bottom.weight" not in shared and "shared" in _table_kinds(variables):
        weights.pop("modalities.inputs.bottom.weight", None)  # a language model has no inputs
    load_all(model, weights)


def _weights(variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns all variables as weights by our names."""
    parts: dict[str, dict[int, Array]] = {}
    unknown = []
    for name, value in variables.items():
        place = _place(name)
        if place is None:
            unknown.append(name)
            continue
        for ours in place[0]:
            parts.setdefault(ours, {})[place[1]] = _as_ours(name, value)
    unknown = [name for name in unknown if not is_training_state(name)]
    if unknown:
        raise CheckpointError(
            "not variables of a Transformer that we know: " + ", ".join(unknown[:10])
        )
    return {
        name: torch.from_numpy(np.concatenate([pieces[i] for i in sorted(pieces)]))
        for name, pieces in parts.items()
    }


def _place(name: str) -> tuple[tuple[str, ...], int] | None:
    """Returns our names of a variable, and the index of its part; None if it is unknown."""
    if match := re.search(r"symbol_modality_\d+_\d+/(\w+)/weights_(\d+)$", name):
        return (_TABLES[match[1]], int(match[2])) if match[1] in _TABLES else None
    if name.endswith("body/target_space_embedding/kernel"):
        return ("target_space",), 0
    if match := re.search(r"class_label_modality_\d+_\d+/dense/(kernel|bias)$", name):
        return (f"modalities.targets.top.{'weight' if match[1] == 'kernel' else 'bias'}",), 0
    if match := re.search(r"body/(encoder|decoder)/layer_prepostprocess/layer_norm/(\w+)$", name):
        return (f"{match[1]}_output.norm.{_NORMS[match[2]]}",), 0
    match = re.search(r"body/(encoder|decoder)/layer_(\d+)/(\w+)/(.+)$", name)
    if match is None or match[3] not in _SUBLAYERS:
        return None
    sublayer = _SUBLAYERS[match[3]]
    inside = _inside_sublayer(sublayer, match[4])
    return inside and ((f"{match[1]}.{match[2]}.{inside[0]}",), inside[1])


def _inside_sublayer(sublayer: str, name: str) -> tuple[str, int] | None:
    """Like `_place` in a sublayer: "feed_forward", "conv1/bias" -> "feed_forward.inner.bias"."""
    if match := re.fullmatch(r"layer_(prepostprocess|postprocess)/layer_norm/(\w+)", name):
        where = "before" if match[1] == "prepostprocess" else "after"
        return f"{sublayer}_{where}.norm.{_NORMS[match[2]]}", 0
    if match := re.fullmatch(r"(conv[12])/(kernel|bias)", name):
        kind = "weight" if match[2] == "kernel" else "bias"
        return f"{sublayer}.{_LINEARS[match[1]]}.{kind}", 0
    relative = r"multihead_attention/dot_product_attention_relative/relative_positions_(\w+)/.+"
    if match := re.fullmatch(relative, name):
        return f"{sublayer}.relative.{match[1]}.weight", 0
    if match := re.fullmatch(r"multihead_attention/(\w+)/kernel", name):
        ours = _PROJECTIONS.get((sublayer, match[1]))
        return ours and (f"{sublayer}.{ours[0]}.weight", ours[1])
    return None


def _as_ours(name: str, value: Array) -> Array:
    """Returns a kernel [in, out] transposed to torch's [out, in]; embeddings are unchanged."""
    is_kernel = name.endswith("/kernel") and "target_space" not in name
    is_kernel |= "relative_positions_values" in name  # here a map from attention weights
    return np.ascontiguousarray(value.T if is_kernel else value, dtype=np.float32)


def _table_kinds(variables: Mapping[str, Array]) -> set[str]:
    return {match[1] for name in variables if (match := re.search(r"/(\w+)/weights_\d+$", name))}


# Conversion of hyperparameters and weights of tensor2tensor's LSTM models.
#
# They are `lstm_seq2seq` and `lstm_seq2seq_attention`; variables have their TensorFlow names, for
# example in an `.npz` file:
#
#     hparams = lstm_hparams("lstm_seq2seq_attention", json.load(open("hparams.json")))
#     model = LSTMSeq2seqAttention(hparams, features)
#     load_lstm_variables(model, dict(numpy.load("variables.npz")))
#
# tensor2tensor's attention includes the padding of a batch, ours does not: they are equal for
# inputs without padding.


# The values for which tensor2tensor's models equal ours.
_LSTM_MUST_BE: dict[str, tuple[Any, ...]] = {
    "area_key_mode": ("none",),
    "area_value_mode": ("none",),
    "bottom": ({},),
    "factored_logits": (False,),
    "loss": ({},),
    "max_area_height": (1,),
    "max_area_width": (1,),
    "memory_height": (1,),
    "name": ({},),
    "num_area_layers": (0,),
    "prepend_mode": ("none",),
    "top": ({},),
    "weights_fn": ({},),
}
_LSTM_TABLES = {
    "input_emb": ("modalities.inputs.bottom.weight",),
    "target_emb": ("modalities.targets.bottom.weight",),
    "softmax": ("modalities.targets.top.weight",),
    "shared": (
        "modalities.inputs.bottom.weight",
        "modalities.targets.bottom.weight",
        "modalities.targets.top.weight",
    ),
}
_FORGET_BIAS = 1.0  # added by TensorFlow's LSTMCell at each step


def lstm_hparams(model: str, values: Mapping[str, Any]) -> HParams:
    """Returns our hyperparameters for those of tensor2tensor, as stored in its `hparams.json`.

    Hyperparameters that only affect its training infrastructure are dropped.

    Args:
      model: "lstm_seq2seq" or "lstm_seq2seq_attention".
      values: values by tensor2tensor's names.

    Raises:
      HParamsError: a value requires a model that differs from ours, or is out of bounds; all are
        named.
    """
    other = [
        f"{name}={values[name]!r} (expected {expected[0]!r})"
        for name, expected in _LSTM_MUST_BE.items()
        if name in values and values[name] not in expected
    ]
    if other:
        raise HParamsError(
            f"this tensor2tensor model computes what our {model} does not: " + ", ".join(other)
        )
    kind = registry.model(model).HParams
    unknown = values.keys() - kind.model_fields.keys() - kind.unsupported
    if unknown:
        raise HParamsError(
            f"tensor2tensor's {model} has no hyperparameter {', '.join(sorted(unknown))}. "
            "Expected the contents of an hparams.json of tensor2tensor 1.15."
        )
    kept = {k: v for k, v in values.items() if k in kind.model_fields and k not in _LSTM_MUST_BE}
    return kind().replace(**kept).signed("tensor2tensor")


def load_lstm_variables(model: nn.Module, variables: Mapping[str, Array]) -> None:
    """Loads the trainable variables of tensor2tensor's model.

    Args:
      model: our model with the same hyperparameters and vocabulary sizes.
      variables: arrays by TensorFlow's names; optimizer slots and counters are ignored.

    Raises:
      CheckpointError: a variable is unknown to the model, a weight is missing, or a shape differs.
    """
    weights = _lstm_weights_of(variables)
    if "modalities.inputs.bottom.weight" not in model.state_dict():
        weights.pop("modalities.inputs.bottom.weight", None)  # a language model has no inputs
    load_all(model, weights)


def _lstm_weights_of(variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns all variables of an LSTM model as weights by our names."""
    tables: dict[str, dict[int, Array]] = {}
    weights: dict[str, Array] = {}
    unknown = []
    for name, value in variables.items():
        if match := re.search(r"symbol_modality_\d+_\d+/(\w+)/weights_(\d+)$", name):
            for ours in _LSTM_TABLES.get(match[1], ()):
                tables.setdefault(ours, {})[int(match[2])] = value
            continue
        found = dict(_lstm_weights(name, value, variables))
        weights |= found
        if not found and not is_training_state(name):
            unknown.append(name)
    if unknown:
        raise CheckpointError(
            "not variables of an LSTM model that we know: " + ", ".join(unknown[:10])
        )
    for ours, pieces in tables.items():
        weights[ours] = np.concatenate([pieces[number] for number in sorted(pieces)])
    return {name: torch.from_numpy(np.array(value, np.float32)) for name, value in weights.items()}


def _lstm_weights(
    name: str, value: Array, variables: Mapping[str, Array]
) -> Iterator[tuple[str, Array]]:
    """Yields the weights of a variable with our names; nothing if it is unknown."""
    cell = re.search(
        r"/(encoder|decoder)/rnn/(attention_wrapper/)?multi_rnn_cell/cell_(\d+)/lstm_cell/(\w+)$",
        name,
    )
    if cell:
        ours, suffix = f"{cell[1]}.{cell[3]}", ""
        if not cell[2]:  # layers over a whole sequence, not single steps
            stack = "encoder.lstm" if cell[1] == "encoder" else "decoder"
            ours, suffix = f"{stack}.layers.{cell[3]}.0", "_l0"
        yield from _of_cell(cell[4], value, ours, suffix)
    elif name.endswith("/memory_layer/kernel"):
        yield "attention.memory_layer.weight", value.T
    elif name.endswith("/query_layer/kernel"):
        yield "attention.query_layer.weight", value.T
    elif match := re.fullmatch(r"(.*/bahdanau_attention)(?:_\d+)?/attention_v", name):
        heads = [n for n in variables if n.startswith(match[1]) and n.endswith("/attention_v")]
        heads.sort(key=lambda one: (len(one), one))  # attention, attention_1 ... attention_10
        yield "attention.match.weight", np.stack([variables[head] for head in heads])
    elif match := re.search(r"/attention_layer(?:_(\d+))?/kernel$", name):
        yield f"attention.layers.{match[1] or 0}.weight", value.T
    elif match := re.search(r"/decoder/dense/(kernel|bias)$", name):
        yield f"join_heads.{'bias' if match[1] == 'bias' else 'weight'}", value.T


def _of_cell(kind: str, value: Array, ours: str, suffix: str) -> Iterator[tuple[str, Array]]:
    """Yields the weights of an LSTMCell: its gates are input, cell, forget and output; torch has
    the second and third swapped.
    """
    gates, cells, forget, output = np.split(value, 4, axis=-1)
    if kind == "bias":
        forget = forget + _FORGET_BIAS
    turned = np.concatenate([gates, forget, cells, output], axis=-1)
    if kind == "bias":
        yield f"{ours}.bias_ih{suffix}", turned
        yield f"{ours}.bias_hh{suffix}", np.zeros_like(turned)
        return
    size = turned.shape[-1] // 4
    yield f"{ours}.weight_ih{suffix}", turned[:-size].T
    yield f"{ours}.weight_hh{suffix}", turned[-size:].T
