"""Import of PyText's configurations, as files for `--config`.

PyText's weights are pickles of its own classes and are not read.  A component that has no
equivalent is refused by name; settings that have none are listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from t2t_torch import registry
from t2t_torch.atomic_files import staged_folder
from t2t_torch.errors import HParamsError, UsageError
from t2t_torch.files import read_lines
from t2t_torch.interop.huggingface import read_json
from t2t_torch.params import value_text

_MOST_DEPTH = 50


class _Task(NamedTuple):
    """Equivalents of a task.

    Attributes:
      kind: kind of a declaration.
      columns: PyText's default `field_names`.
      fields: column by field of a sample, for PyText's default names.
      models: model by PyText's representation, the default first; its set is named `MODEL_base`.
    """

    kind: str
    columns: str
    fields: Mapping[str, str]
    models: Mapping[str, str]


_CLASSES = _Task(
    "text2class",
    "label slots text",
    {"inputs": "text", "targets": "label"},
    {
        "BiLSTMDocAttention": "bilstm_attention_classifier",
        "DocNNRepresentation": "text_cnn",
        "PureDocAttention": "fasttext",
    },
)
_TAGS = _Task(
    "text2tags",
    "label slots text",
    {"inputs": "words", "targets": "tags"},
    {"BiLSTMSlotAttention": "bilstm_tagger", "BSeqCNNRepresentation": "bsequential_cnn_tagger"},
)
_JOINT = _Task(
    "intentslot",
    "label slots text",
    {"inputs": "words", "intent": "label", "slots": "tags"},
    {"BiLSTMDocSlotAttention": "joint_bilstm", "JointCNNRepresentation": "joint_cnn"},
)
_TURNS = _Task(
    "multiturn2class",
    "label text_seq",
    {"inputs": "text_seq", "targets": "label"},
    {"SeqRepresentation": "seqnn"},
)
_PAIRS = _Task(
    "textpair2class",
    "text1 text2 label",
    {"first": "text1", "second": "text2", "targets": "label"},
    {"BiLSTMDocAttention": "pair_classifier"},
)
_RANKING = _Task(
    "pairranking",
    "pos_response neg_response query",
    {"query": "query", "positive": "pos_response", "negative": "neg_response"},
    {"BiLSTMDocAttention": "pairwise_ranker"},
)
_TREES = _Task(
    "text2tree",
    "text tokenized_text seqlogical",
    {"inputs": "tokenized_text", "targets": "seqlogical"},
    {"RNNG": "rnng"},
)
_LANGUAGE = _Task("text2self", "text", {"targets": "text"}, {"BiLSTM": "lstm_lm"})
TASKS: Mapping[str, _Task] = {
    name: task
    for names, task in (
        ("DocumentClassificationTask DocClassificationTask NewDocumentClassification", _CLASSES),
        ("WordTaggingTask NewWordTaggingTask", _TAGS),
        ("IntentSlotTask JointTextTask", _JOINT),
        ("SeqNNTask", _TURNS),
        ("PairwiseClassificationTask PairClassificationTask", _PAIRS),
        ("QueryDocumentPairwiseRankingTask QueryDocumentPairwiseRankingTask_Deprecated", _RANKING),
        ("SemanticParsingTask SemanticParsingTask_Deprecated", _TREES),
        ("LMTask", _LANGUAGE),
    )
    for name in names.split()
}
"""PyText's tasks of texts with an equivalent."""

_DISJOINT = ("NewDisjointMultitask", "DisjointMultitask")
_DEFAULTS: Mapping[str, Any] = {
    "batch_size": 16,
    "use_fixed_batch_size": True,
    "optimizer": "adam",
    "optimizer_adam_beta1": 0.9,
    "optimizer_adam_beta2": 0.999,
    "optimizer_adam_epsilon": 1e-8,
    "learning_rate_schedule": "constant",
    "learning_rate_constant": 0.001,
    "weight_decay": 1e-5,
    "clip_grad_norm": 0.0,
    "embedding_size": 100,
    "layer_prepostprocess_dropout": 0.4,
    **dict.fromkeys(("embedding_dropout", "output_dropout", "weight_dropout"), 0.0),
    **dict.fromkeys(("activation_penalty", "change_penalty", "attention_penalty"), 0.0),
    "attention_hops": 1,
    "attention_size": 64,
    "kernel_sizes": (3, 4),
    "num_filters": 100,
    "max_norm": 0.0,
    "ngram_order": 1,
    "pooling": "last",
    "sentence_pooling": "attention",
}
"""PyText's defaults, by our names; a model takes those that it has."""
_EPOCHS = 10
_HELD_OUT, _FEWEST = 0.1, 10  # of a training file that was evaluated on: share, rows

_LSTM: Mapping[str, Any] = {"lstm_dim": 32, "num_hidden_layers": 1}
_TAGGER: Mapping[str, Any] = {"tag_decoder": "softmax"}
_BOTH: Mapping[str, Any] = {**_TAGGER, "target_weights": "intent:0.2,slots:0.5"}
_DEFAULTS_OF: Mapping[str, Mapping[str, Any]] = {
    "bilstm_attention_classifier": _LSTM,
    "bilstm_tagger": {**_LSTM, **_TAGGER},
    "bilstm_slot_attention_tagger": {**_LSTM, **_TAGGER},
    "bsequential_cnn_tagger": _TAGGER,
    "joint_bilstm": {**_LSTM, **_BOTH, "slot_attention": "none"},
    "joint_cnn": _BOTH,
    "seqnn": _LSTM,
    "pair_classifier": {"lstm_dim": 32},
    "pairwise_ranker": {"lstm_dim": 32},
    "rnng": {**_LSTM, "layer_prepostprocess_dropout": 0.1},
    "lstm_lm": {
        **_LSTM,
        "stream_length": 0,
        "locked_dropout": False,
        "shared_embedding_and_softmax_weights": False,
    },
}
"""PyText's defaults by our model, and what our sets have that PyText lacks."""

_SEVERAL = ("EnsembleTask", *_DISJOINT)
_TRANSPARENT = """
    AnnotationNumberizer Batcher BiLSTM BiLSTMDocAttention CNN ClassificationMetricReporter
    ClassificationOutputLayer CompositionalMetricReporter CrossEntropyLoss Data EnsembleTrainer
    HogwildTrainer IntentSlotMetricReporter IntentSlotModelDecoder IntentSlotOutputLayer
    LMOutputLayer LabelTensorizer LanguageModelMetricReporter MLPDecoder
    PairwiseRankingMetricReporter PairwiseRankingOutputLayer PoolingBatcher RNNGParser SelfAttention
    SeqRepresentation SeqTokenTensorizer SequenceTaggingMetricReporter SlotAttention
    SlotLabelTensorizer TSVDataSource TaskTrainer TokenTensorizer Tokenizer Trainer WordEmbedding
    WordTaggingMetricReporter WordTaggingOutputLayer
    DocModel DocModel_Deprecated IntentSlotModel JointModel LMLSTM PairClassificationModel
    PairwiseModel QueryDocPairwiseRankingModel SeqNNModel SeqNNModel_Deprecated
    WordTaggingModel WordTaggingModel_Deprecated
""".split()
"""Components that only say which of several classes is meant."""


@dataclass
class _ConvertedSettings:
    """Settings by our names, and the paths of settings without an equivalent.

    Attributes:
      hparams: hyperparameters.
      flags: flags of t2t-trainer.
      left: paths with their values.
      optimizer: PyText's name of the optimizer.
    """

    optimizer: str = "Adam"
    hparams: dict[str, Any] = field(default_factory=dict)
    flags: dict[str, Any] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


_HPARAMS: Mapping[str, str] = dict(
    pair.split("=")
    for pair in """
    embed_dim=embedding_size pretrained_embeddings_path=pretrained_embeddings lstm_dim=lstm_dim
    num_layers=num_hidden_layers dropout=layer_prepostprocess_dropout attention_type=slot_attention
    attn_dimension=attention_size kernel_num=num_filters kernel_sizes=kernel_sizes
    hidden_dims=hidden_dims lr=learning_rate_constant weight_decay=weight_decay
    momentum=optimizer_momentum_momentum max_clip_norm=clip_grad_norm train_batch_size=batch_size
    tied_weights=shared_embedding_and_softmax_weights compositional_type=composition
    shared_representations=tied_encoders
    """.split()
)
_FIXED_SIZE = {"train_batch_size": {"use_fixed_batch_size": True}}
_NUMBERS = ("dropout", "lr", "weight_decay", "momentum", "max_clip_norm")
"""Fields that may also be text, "0.001"."""
_FLAGS: Mapping[str, str] = {
    "epochs": "train_epochs",
    "early_stop_after": "eval_patience",
    "random_seed": "random_seed",
}
_UNREAD = frozenset(
    """
    report_train_metrics do_eval num_workers sort_key in_memory pool_num_batches
    eval_batch_size test_batch_size embedding_init_strategy test_filename eval_filename
    train_filename field_names quoted
    train_path eval_path test_path columns_to_read text_column_name
    output_path use_tensorboard use_cuda_if_available save_snapshot_path export_caffe2_path
    export_torchscript_path export_onnx_path export test_out_path debug_path version
    modules_save_dir save_module_checkpoints report_eval_results distributed_world_size
    """.split()
)
"""PyText's fields: what they set; a name means the same wherever it is."""

_OPTIMIZERS: Mapping[str, Mapping[str, Any]] = {
    "Adam": {},
    "SGD": {"optimizer": "momentum", "optimizer_momentum_momentum": 0.0, "weight_decay": 0.0},
    "AdamW": {"optimizer": "adam_w", "weight_decay": 0.01},
    "Adagrad": {"optimizer": "adagrad", "learning_rate_constant": 0.01},
}
"""PyText's optimizers, with their defaults."""
_FIXED: Mapping[str, Any] = {
    **dict.fromkeys(("use_buffer", "use_stack", "use_action"), True),
    **dict.fromkeys(("intent_slot_nesting", "no_slots_inside_unsupported"), True),
    **dict.fromkeys(("use_last_open_NT_feature", "ignore_loss_for_unsupported"), False),
    "max_open_NT": 10,
    "beam_size": 1,
    "top_k": 1,
    "encode_relations": True,
}
"""PyText's fields of which only the default has an equivalent."""
_INPUTS = ("dense_feat", "dense", "dict_feat", "gazetteer_feat", "char_feat", "contextual_feat")
"""PyText's features besides words; none has an equivalent in a declaration of its files."""

_CHOICES: Mapping[str, Mapping[str, Any]] = {
    "CRFOutputLayer": {"tag_decoder": "crf", "tag_constraints": "decode"},
    "BinaryCrossEntropyLoss": {"loss": "binary_cross_entropy"},
    "FocalLoss": {"loss": "focal"},
    "MaxPool": {"pooling": "max"},
    "MeanPool": {"pooling": "mean"},
    "CosineAnnealingLR": {"learning_rate_schedule": "constant*cosine_annealing"},
    "ExponentialLR": {"learning_rate_schedule": "constant*exp_decay"},
}
"""Components that are hyperparameters here."""


_OLD_NAMES: Mapping[str, str] = {
    "BiLSTMPooling": "BiLSTMDocAttention",
    "JointBLSTMRepresentation": "BiLSTMDocSlotAttention",
    "output_config": "output_layer",
}
"""Names before PyText 0.1, as in figure 1 of its paper, arXiv:1812.08729."""

OPTIONS = frozenset("problem".split())


def detect(path: Path) -> bool:
    """Returns True if a file is a configuration of PyText."""
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        content = read_json(path)
    except Exception:
        return False
    inner = content.get("config", content)
    return isinstance(inner, dict) and "task" in inner


def import_config(source: Path, output_dir: Path, problem: str = "") -> list[str]:
    """Writes the configuration file, or those of an ensemble, for a configuration of PyText.

    Args:
      source: the JSON file.
      output_dir: new folder, with `run.json`, or `run1.json`, `run2.json` and so on.
      problem: name of the problem; default: the name of the file.

    Returns:
      Lines for the user.

    Raises:
      DataError: the file is no JSON.
      HParamsError: the configuration has a component without an equivalent.
      UsageError: it is of a task without an equivalent.
    """
    content = _renamed(read_json(source))
    content = content.get("config", content)
    tasks = content.get("task")
    if not isinstance(tasks, dict) or len(tasks) != 1:
        raise UsageError(f'{source} has no "task" with one component: it is none of PyText.')
    ((name, task),) = tasks.items()
    base = problem or "".join(c if c.isalnum() else "_" for c in source.stem.lower())
    rest = {key: value for key, value in content.items() if key != "task"}
    lines: list[str] = []
    runs: list[dict[str, Any]] = []
    for part_name, part, own in _parts(name, task, base):
        run, left = _converted(part_name, part, own, rest, source.absolute().parent)
        runs.append(run)
        lines.append(f"{part_name}: problem {own}, model {run['model']}")
        lines += [f"without an equivalent: {one}" for one in left]
        if isinstance(share := run["problem"]["files"]["eval"], float):
            lines.append(f"evaluated on {share:.0%} of the training file, which are held out")
        files = [one for one in run["problem"]["files"].values() if isinstance(one, str)]
        lines += [f"not found: {one}" for one in files if not Path(one).exists()]
    if name in _DISJOINT:
        weights = task.get("task_weights") or {}
        names = {f"{base}_{key.lower()}": float(weights.get(key, 1)) for key in task["tasks"]}
        runs = [_joined(runs, base, names)]
        lines.append("shared: weights of equal name and shape; multiproblem_shared chooses others")
    elif len(runs) > 1:
        for number, run in enumerate(runs):
            run["hparams"] |= {"bagging_share": 1.0, "bagging_seed": number}
    with staged_folder(output_dir) as folder:
        for number, run in enumerate(runs, 1):
            file = folder / ("run.json" if len(runs) == 1 else f"run{number}.json")
            text = json.dumps(run, indent=2, ensure_ascii=False) + "\n"
            file.write_text(text, encoding="utf-8")
    return lines


def _renamed(content: Any) -> Any:
    """Returns a configuration with the present names of components and fields."""
    if isinstance(content, list):
        return [_renamed(one) for one in content]
    if not isinstance(content, dict):
        return content
    return {_OLD_NAMES.get(key, key): _renamed(value) for key, value in content.items()}


def _parts(name: str, task: dict[str, Any], base: str) -> list[tuple[str, dict[str, Any], str]]:
    """Returns the tasks of one: name, content and the problem's name."""
    if name == "EnsembleTask":
        model = task.get("model") or {}
        if set(model) & {"BaggingDocEnsembleModel", "BaggingIntentSlotEnsembleModel"}:
            ((kind, inner),) = model.items()
            models = inner.get("models", [])
            copies = int(inner.get("num_models") or len(models) or 1)
            models = models if len(models) > 1 else [*models, *models] * copies
            of = "IntentSlotTask" if "IntentSlot" in kind else "DocumentClassificationTask"
            rest = {key: value for key, value in task.items() if key != "model"}
            return [(of, {**rest, "model": one}, base) for one in models[: max(copies, 1)]]
    if name in _DISJOINT:
        found = []
        for key, inner in (task.get("tasks") or {}).items():
            ((kind, content),) = inner.items()
            if "trainer" in task:
                content = {**content, "trainer": task["trainer"]}
            found.append((kind, content, f"{base}_{key.lower()}"))
        if found:
            return found
    return [(name, task, base)]


def _joined(
    runs: Sequence[dict[str, Any]], problem: str, weights: Mapping[str, float]
) -> dict[str, Any]:
    """Returns the run of several problems, each with its model, or all with the same.

    Args:
      runs: the runs of the problems.
      problem: name of the new problem.
      weights: factor on the loss by problem.

    Raises:
      HParamsError: a value of a model of its own cannot be written.
    """
    first, *others = runs
    members: Any = [run["problem"] for run in runs]
    joined = {"problem": problem, "kind": "mixture", "problems": members, "schedule": "round_robin"}
    is_one_model = all(run["model"] == first["model"] for run in others)
    if is_one_model and len(set(weights.values())) < 2:
        return {**first, "problem": joined}
    models = {run["problem"]["problem"]: _choice_of(run) for run in others}
    joined |= {"kind": "multi", "models": models}
    listed = ",".join(f"{name}:{weight}" for name, weight in weights.items())
    hparams = {"multiproblem_weights": f"[{listed}]"} if len(set(weights.values())) > 1 else {}
    return {**first, "problem": joined, "hparams": {**first["hparams"], **hparams}}


def _choice_of(run: Mapping[str, Any]) -> str:
    """Returns model, set and hyperparameters as `MultiProblem.models` has them."""
    values = {name: value_text(value) for name, value in run["hparams"].items()}
    for name, text in values.items():
        if "/" in text:
            raise HParamsError(
                f"{name}={text} of {run['problem']['problem']}: a model of one of several problems "
                "cannot have a value with a slash. Leave it out, and set it in the result."
            )
    changes = [f"{name}={text}" for name, text in values.items() if text]
    return "/".join([run["model"], run["hparams_set"], *changes])


def _converted(
    name: str, task: dict[str, Any], problem: str, rest: Mapping[str, Any], folder: Path
) -> tuple[dict[str, Any], list[str]]:
    """Returns the content of a file for `--config`, and the settings without an equivalent."""
    if name not in TASKS:
        tasks = ", ".join([*TASKS, *_SEVERAL])
        raise UsageError(f"PyText's {name} has no equivalent here. Tasks that have: {tasks}.")
    known = TASKS[name]
    found = _ConvertedSettings()
    model = task.get("model") or {}
    own_model = known.models[_chosen(_inner(model).get("representation"), known)]
    by_lower = {one.lower(): one for one in _OPTIMIZERS}
    fixed = {**_FIXED, "bidirectional": known is not _LANGUAGE}
    for section in (task, rest):
        for path, key, value in _leaves(section):
            if set(path.split(".")) & set(_INPUTS):
                raise HParamsError(
                    f"{path}: features besides words are not imported. Declare them as a user of "
                    "this library: docs/tutorials/own_data.md."
                )
            if key in _UNREAD:
                continue
            if key in _FLAGS:
                found.flags[_FLAGS[key]] = value
            elif key in _HPARAMS:
                found.hparams |= _hparam_of(key, value)
            elif key in _CHOICES:
                found.hparams |= _CHOICES[key]
            elif key in _OPTIMIZERS:
                found.optimizer = key
            elif key in fixed:
                _check_fixed(path, value, fixed[key])
            elif key == "type" and str(value).lower() in by_lower:  # of the first versions
                found.optimizer = by_lower[value.lower()]
            elif key == "freeze":
                _check_fixed(path, value, value if "embedding" in path else False)
                found.hparams |= {"freeze": ["modalities", "tokens"]} if value else {}
            elif not key[:1].isupper():
                if value is not None:
                    found.left.append(f"{path}={json.dumps(value)}")
            elif key not in _TRANSPARENT and key not in known.models:
                raise HParamsError(
                    f"PyText's {key} ({path}) has no equivalent here; docs/how_to/from_pytext.md "
                    "lists those that have."
                )
    if own_model == "bilstm_tagger" and found.hparams.get("slot_attention", "none") != "none":
        own_model = "bilstm_slot_attention_tagger"
    if known is _TAGS and "representation" not in _inner(model):
        found.left.append("PassThroughRepresentation, the default: the model has a BiLSTM")
    declaration = _declaration(known, task, problem, folder)
    return {"problem": declaration, **_flags(found, own_model)}, found.left


def _hparam_of(key: str, value: Any) -> dict[str, Any]:
    """Returns the hyperparameter that a field sets, with what belongs to it."""
    if key in _NUMBERS and isinstance(value, str):
        value = float(value)
    if key == "attention_type":
        value = value.lower().replace("no_attention", "none")
    if key == "max_clip_norm":
        value = value or 0.0
    return {_HPARAMS[key]: value, **_FIXED_SIZE.get(key, {})}


def _flags(found: _ConvertedSettings, model: str) -> dict[str, Any]:
    """Returns flags of t2t-trainer, with hyperparameters by the names of the model."""
    hparams_set = f"{model}_base"
    made = registry.hparams(hparams_set)
    fields = type(made).model_fields
    defaults = {**_DEFAULTS, **_DEFAULTS_OF.get(model, {})}
    values = {**defaults, **_OPTIMIZERS.get(found.optimizer, {}), **found.hparams}
    if (width := values.pop("lstm_dim", None)) is not None:
        names = ("lstm_size", "encoder_size", "hidden_size")
        values[next(name for name in names if name in fields)] = int(width)
    if model == "lstm_lm":
        values["input_dropout"] = values["between_dropout"] = values["layer_prepostprocess_dropout"]
    dims = values.pop("hidden_dims", None)
    if dims and model in ("bilstm_attention_classifier", "pair_classifier"):
        values["hidden_size"] = int(dims[0])
        values["mlp_layers"] = len(dims)
    elif dims:
        found.left.append(f"decoder.hidden_dims={json.dumps(dims)}")
    for name in [name for name in values if name not in fields]:
        value = values.pop(name)
        if name in found.hparams:
            found.left.append(f"{name}={json.dumps(value)}")
    made.replace(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
    flags = {"train_epochs": _EPOCHS, **found.flags}
    return {"model": model, "hparams_set": hparams_set, "hparams": values, "trainer": flags}


def _inner(component: Any) -> dict[str, Any]:
    """Returns the fields of a component, which may be in {"ClassName": {...}}."""
    if isinstance(component, dict) and len(component) == 1:
        ((key, value),) = component.items()
        if key[:1].isupper() and isinstance(value, dict):
            return value
    return component if isinstance(component, dict) else {}


def _chosen(component: Any, task: _Task) -> str:
    """Returns the name of a representation; HParamsError if it has no equivalent."""
    if isinstance(component, dict):
        named = [key for key in component if key[:1].isupper()]
        for name in named:
            if name not in task.models and name not in _TRANSPARENT:
                raise HParamsError(
                    f"PyText's {name} has no equivalent for a {task.kind} problem; there are "
                    f"{', '.join(task.models)}."
                )
            if name in task.models:
                return str(name)
    return next(iter(task.models))


def _leaves(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str, Any]]:
    """Yields (path, key, value) of settings, and of components without settings."""
    if depth > _MOST_DEPTH:
        raise HParamsError(f"{path[:80]}...: nested too deeply for a configuration.")
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        place = f"{path}.{key}" if path else key
        if key[:1].isupper():
            yield place, key, {}
        if isinstance(inner, dict):
            yield from _leaves(inner, place, depth + 1)
        elif not key[:1].isupper():
            yield place, key, inner


def _check_fixed(path: str, value: Any, expected: Any) -> None:
    if value not in (expected, None):
        raise HParamsError(
            f"{path}={json.dumps(value)} has no equivalent here; only {json.dumps(expected)} has."
        )


def _declaration(
    known: _Task, task: Mapping[str, Any], problem: str, folder: Path
) -> dict[str, Any]:
    """Returns the declaration of the data of a task."""
    data = _inner(task.get("data") or {})
    source = _inner(data.get("source") or {})
    handler = task.get("data_handler") or {}
    named = source.get("field_names") or handler.get("columns_to_read") or known.columns.split()
    old = {"doc_label": "label", "word_label": "slots"}
    columns = [old.get(name, name) for name in named]
    paths: dict[str, Any] = {}
    for split in ("train", "eval", "test"):
        path = source.get(f"{split}_filename") or handler.get(f"{split}_path")
        if path:
            found = next((one for one in (folder / path, Path(path)) if one.exists()), None)
            paths[split] = str(found.resolve()) if found else path
    if "train" not in paths:
        raise UsageError("the configuration names no training file: train_filename of its source.")
    if paths.get("eval", paths["train"]) == paths["train"]:
        file = Path(paths["train"])  # a share of it, which is larger of a small one
        rows = sum(1 for _ in read_lines(file)) if file.exists() else 0
        paths["eval"] = max(_HELD_OUT, min(0.5, _FEWEST / rows)) if rows else _HELD_OUT
    if paths.get("test") in (paths["train"], paths["eval"]):
        del paths["test"]  # a file is measured once
    declaration: dict[str, Any] = {
        "problem": problem,
        "kind": known.kind,
        "files": paths,
        "format": "pytext",
        "options": {"columns": columns, **({"quoted": True} if source.get("quoted") else {})},
        "fields": dict(known.fields),
    }
    if known.kind not in ("text2tree", "text2self"):
        declaration["vocab_type"] = "word"
    return declaration
