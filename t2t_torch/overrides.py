"""Methods that a subclass must not define, because nothing here calls them (any more)."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import getattr_static
from typing import Final

from t2t_torch.errors import RegistryError

_MISSING = object()
_BODY = "Override `body` instead; it returns the hidden states of each target."
_LOSS = "Override `loss` instead; it returns the loss of one target."
_SEARCH = "Override `encode` and `step` instead; search calls them (docs/how_to/add_a_model.md)."
_SETTINGS = "Set the hyperparameters in a set of the model instead (@register_hparams)."
_METRICS = "Set the attribute `metrics` to a tuple of names instead (docs/reference/metrics.md)."
_SAMPLES = "Override `generate_samples` or `examples_of` instead."
_SPLITS = "Set the attribute `shards` instead, for example to {Split.TRAIN: 10, Split.EVAL: 1}."
_FEATURES = "Override `stored_features` instead (docs/how_to/add_a_problem.md)."

MODEL: Final[Mapping[str, str]] = {
    **dict.fromkeys(("losses", "loss_single"), _LOSS),
    **dict.fromkeys(("forward", "call", "logits", "hidden_states"), _BODY),
    **dict.fromkeys(("model_fn", "model_fn_sharded", "model_fn_body", "body_sharded"), _BODY),
    **dict.fromkeys(("infer", "sample", "eval_autoregressive"), _SEARCH),
    **dict.fromkeys(("_greedy_infer", "_beam_decode", "_slow_greedy_infer"), _SEARCH),
    "optimize": "Register the optimizer with @register_optimizer and set --hparams=optimizer=NAME.",
    "estimator_model_fn": "Write a hook instead (@register_hook).",
}
"""Method that a `T2TModel` must not define -> what to do instead."""

PROBLEM: Final[Mapping[str, str]] = {
    **dict.fromkeys(("eval_metrics", "eval_metric_fns", "metrics_of"), _METRICS),
    **dict.fromkeys(("generate_encoded_samples",), _SAMPLES),
    **dict.fromkeys(("dataset_splits", "is_generate_per_split"), _SPLITS),
    **dict.fromkeys(("feature_encoders", "example_reading_spec", "features"), _FEATURES),
    "hparams": _SETTINGS,
    "loss_of": "Set the attribute `loss` to a name, or to names by target, instead.",
    "split_length": "Set the attribute `chop_length` instead.",
    "input_columns": "Set the attributes `column_names` and `column_forms` instead.",
    "kept_vocab_files_in": "Override `kept_vocab_files` instead.",
    "optional_vocab_files": "Set `is_optional` of the file's builder in `learners` instead.",
    "settings": "List the attributes that change the generated data in `setting_names`.",
    "generate_data": "Override `generate_samples` instead; t2t-datagen writes the files.",
    "dataset_filename": "Override `dataset_name` instead.",
    "source_data_files": "List the raw files in the attribute `sources` instead.",
}
"""Method or attribute that a `Problem` must not define -> what to do instead."""

_OF_KIND = (
    "Register a function for your class with `{}.register` instead (docs/how_to/add_a_feature.md)."
)
_OF_OUTPUTS = "table_columns table_value console_lines from_line named_scores search_settings"
_MOVED = {
    **{f"t2t_torch.decode.outputs.{name}": name for name in _OF_OUTPUTS.split()},
    "t2t_torch.decode.outputs.value_line": "line",
    "t2t_torch.reports.describe": "describe",
    "t2t_torch.reports.describe_value": "describe_value",
    "t2t_torch.reports.summarize": "summary",
    "t2t_torch.reports.draw": "picture",
    "t2t_torch.metrics.label_metrics": "label_metrics",
    "t2t_torch.metrics.default_scores": "text_scores",
    "t2t_torch.pipeline.reader.restore": "restore",
    "t2t_torch.export.encode_graph": "encode_graph",
    "t2t_torch.export.decode_graph": "decode_graph",
    "t2t_torch.export.verification.unusual_values": "unusual_values",
    "t2t_torch.reports.is_listed_by_word": "is_listed_by_word",
    "t2t_torch.reports.empty_length": "empty_length",
    "t2t_torch.decode.outputs.has_verdict": "is_discrete",
    "t2t_torch.pipeline.reader.file_decoder": "is_encoded",
}

FEATURE: Final[Mapping[str, str]] = {
    **{name: _OF_KIND.format(function) for function, name in _MOVED.items()},
    "table_cells": _OF_KIND.format("t2t_torch.decode.outputs.table_value"),
}
"""Method that a `Feature` must not define -> what to do instead."""


def refuse_overrides(cls: type, base: type, names: Mapping[str, str]) -> None:
    """Raises if a subclass defines, or inherits from another base, a method that is never called.

    Args:
      cls: the subclass.
      base: the class whose own definitions of `names`, if any, are allowed.
      names: name -> what to do instead.

    Raises:
      RegistryError: names the class, the method and what to do instead.
    """
    for name, instead in names.items():
        own = getattr_static(cls, name, _MISSING)
        if own is not getattr_static(base, name, _MISSING):
            owner = next(one for one in cls.__mro__ if name in one.__dict__)
            by = "" if owner is cls else f" (from {owner.__module__}.{owner.__qualname__})"
            raise RegistryError(
                f"{base.__name__} {cls.__module__}.{cls.__qualname__} overrides {name!r}{by}, but "
                f"t2t_torch never calls {name!r}, so the override would have no effect. {instead} "
                f"If {name!r} is your own helper, rename it."
            )
