"""Import of models that Hugging Face's transformers saved with all that predicts.

The run wraps the module of transformers (`layers/pretrained.py`): classifiers and taggers with
their heads, language models, encoder-decoders.  A body without a head predicts nothing by itself;
new models begin with it (`--hparams=pretrained=FOLDER`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_torch import registry
from t2t_torch.errors import HParamsError, UsageError
from t2t_torch.features import ClassLabel, MultiLabel, Tags
from t2t_torch.interop import huggingface, translation
from t2t_torch.interop.importer import ImportedRun, class_names, declaration_of
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.layers.pretrained import HEADS, PretrainedNetwork
from t2t_torch.text.pretrained import PretrainedFolder

OPTIONS = frozenset("kind labels problem decode_hparams".split())

_NOT_READ: Mapping[str, Any] = {
    "do_sample": False,
    "repetition_penalty": 1.0,
    "bad_words_ids": None,
    "suppress_tokens": None,
}
"""Settings of `generate` that change outputs and have no counterpart, with their defaults."""


def detect(source: Path) -> bool:
    """Returns True if a folder has a model of transformers that has no mapping of its own."""
    return huggingface.model_type(source) not in (None, "marian")


def read(source: Path, settings: ImportSettings) -> ImportedRun:
    """Returns the run of a model with its head.

    Args:
      source: folder of `save_pretrained`.
      settings: settings of the import; `labels` names the classes, and `kind` is textpair2class for
        a classifier of two texts.

    Raises:
      CheckpointError: the weights are missing or damaged, or not those of the configuration.
      DataError: the configuration or the tokenizer is missing or damaged.
      HParamsError: the model has no head that this library reads.
      UsageError: the labels do not fit the model, or the folder is code.
    """
    folder = PretrainedFolder(str(source))
    config = {**folder.config, "num_labels": folder.settings.num_labels}
    kind, model, auto = _kind(source, config, settings)
    labels = _labels(folder, settings) if model == "pretrained_encoder" else []
    hparams: Any = registry.hparams(f"{model}_base").replace(pretrained=str(source))
    if labels:
        hparams = hparams.replace(pretrained_head=True)
    hparams = hparams.completed(None).replace(pretrained="")
    its = hparams.architecture()
    if labels:
        its = dataclasses.replace(its, config={**its.config, "id2label": dict(enumerate(labels))})
        hparams = hparams.replace(pretrained_architecture=its.text)
    network = PretrainedNetwork(its, auto)
    network.load(folder)
    texts = {"textpair2class": ("first", "second"), "text2self": ("targets",)}
    fields = texts.get(kind, ("inputs", "targets") if kind == "text2text" else ("inputs",))
    name = settings.problem or translation.free_name(source.resolve().name)
    file = f"vocab.{name}.pieces"
    decoding: dict[str, Any] = {}
    search = {**config, **huggingface.optional_json(source / "generation_config.json")}
    if not labels:
        decoding = _decoding(source, search, len(its.start) if kind == "text2text" else 0)
        if hparams.max_positions and kind == "text2text":
            decoding["max_length"] = hparams.max_positions
    return ImportedRun(
        library=str(config["model_type"]),
        problem=name,
        model=model,
        hparams=hparams.signed("transformers"),
        weights={f"network.{key}": value for key, value in network.state_dict().items()},
        declaration=declaration_of(name, kind, dict.fromkeys(fields, file), labels=labels),
        vocabularies={file: folder.vocabulary},
        decode_hparams=decoding,
        ignored=[
            f"{name}={search[name]!r}"
            for name, default in _NOT_READ.items()
            if not labels and search.get(name) not in (None, default)
        ],
    )


def _labels(folder: PretrainedFolder, settings: ImportSettings) -> list[str]:
    """Returns the names of the classes, by their numbers."""
    named = {int(number): str(name) for number, name in folder.settings.id2label.items()}
    usual = [named[number] for number in sorted(named)]
    if [*sorted(named)] != [*range(len(named))] or len({*usual}) < len(usual):
        raise HParamsError(
            f"id2label in {folder.path / 'config.json'} should have one name for each class, "
            f"numbered from 0: {named}. Correct it."
        )
    return class_names(len(named), settings, usual)


def _kind(
    source: Path, config: Mapping[str, Any], settings: ImportSettings
) -> tuple[str, str, str]:
    """Returns the kind of problem, the model, and the class of transformers."""
    saved = str(next(iter(config.get("architectures") or ()), ""))
    if saved.endswith("ForSequenceClassification"):
        is_multi = config.get("problem_type") == "multi_label_classification"
        if config.get("problem_type") == "regression" or config["num_labels"] == 1:
            raise HParamsError(
                f"{source} gives a number: only classifiers are imported. Train a new head:  "
                "t2t-trainer --model=pretrained_encoder --hparams=pretrained=FOLDER"
            )
        kind = "text2multilabel" if is_multi else settings.kind or "text2class"
        return kind, "pretrained_encoder", HEADS[MultiLabel if is_multi else ClassLabel]
    if saved.endswith("ForTokenClassification"):
        return "text2tags", "pretrained_encoder", HEADS[Tags]
    if settings.kind:
        raise UsageError(f"kind={settings.kind} is for classifiers; {source} has a {saved}.")
    if config.get("is_encoder_decoder") and saved.endswith("ForConditionalGeneration"):
        return "text2text", "pretrained_seq2seq", "AutoModelForSeq2SeqLM"
    if saved.endswith(("ForCausalLM", "LMHeadModel")):
        return "text2self", "pretrained_lm", "AutoModelForCausalLM"
    raise HParamsError(
        f"{source} has a {saved or 'model without a name'}, which has no head that is imported. A "
        "new model begins with it:  t2t-datagen --problem=PROBLEM --pretrained=FOLDER, and "
        "t2t-trainer --model=pretrained_encoder --hparams_set=pretrained_encoder_base "
        "--hparams=pretrained=FOLDER (docs/how_to/pretrained.md)"
    )


def _decoding(source: Path, search: Mapping[str, Any], start: int) -> dict[str, Any]:
    """Returns the settings of `generate` that decoding has, too.

    Args:
      source: the folder.
      search: settings of `generate`, and of the model.
      start: number of ids that a decoder reads first; 0 of a language model.
    """
    longest = int(search.get("max_length") or 20) - start
    settings = huggingface.generation_settings(source, search, beams=1, longest=longest)
    for name in ("no_repeat_ngram_size", "min_length"):
        if value := int(search.get(name) or 0):
            settings[name] = value
    return {**settings, "force_eos": search.get("forced_eos_token_id") is not None}
