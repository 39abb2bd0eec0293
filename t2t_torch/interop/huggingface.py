"""Folders of Hugging Face's `save_pretrained`: configuration, weights, tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_torch import files
from t2t_torch.errors import CheckpointError, DataError, require
from t2t_torch.interop.translation import Vocabulary, check_tokens
from t2t_torch.interop.unpickling import load_pickled
from t2t_torch.text.pretrained import optional_json as optional_json
from t2t_torch.text.pretrained import read_json as read_json

OTHERS = ("bert", "distilbert", "gpt2")
"""`model_type`s besides marian that are imported."""

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")

FINE_TUNING: Mapping[str, Any] = {
    "multiply_embedding_mode": "none",
    "relu_dropout": 0.0,
    "label_smoothing": 0.0,
    "optimizer": "adam_w",
    "optimizer_adam_beta2": 0.999,
    "optimizer_adam_epsilon": 1e-8,
    "weight_decay": 0.01,
    "clip_grad_norm": 1.0,
}
"""Hyperparameters of BERT and GPT-2, and of their fine-tuning."""


def model_type(source: Path) -> str | None:
    """Returns the `model_type` of a folder, "" if it names none; None if it is no such folder."""
    config = source / "config.json"
    if not config.exists() or not any((source / name).exists() for name in _WEIGHTS):
        return None
    try:
        return str(read_json(config).get("model_type") or "")
    except DataError:
        return ""


def numbered_tokens(path: Path) -> list[str]:
    """Returns the tokens of a JSON file that numbers them, by their numbers.

    Raises:
      DataError: the file is missing or damaged, or numbers are missing.
    """
    numbers = read_json(path)
    tokens = sorted(numbers, key=lambda token: str(numbers[token]).zfill(9))
    if [numbers[token] for token in tokens] != list(range(len(tokens))):
        raise DataError(f"{path} does not number its pieces from 0. Copy it again.")
    check_tokens(tokens)
    return tokens


def generation_settings(
    source: Path, config: Mapping[str, Any], *, beams: int, longest: int = 0
) -> dict[str, Any]:
    """Returns the settings of `generate`, by our names.

    Args:
      source: folder, perhaps with a `generation_config.json`.
      config: configuration of the model, which older versions used.
      beams: default number of beams.
      longest: default number of new tokens; 0: `max_length` without the start token.
    """
    search = {**config, **optional_json(source / "generation_config.json")}
    stop, beams = search.get("early_stopping", False), int(search.get("num_beams") or beams)
    penalty = search.get("length_penalty")
    longest = longest or int(search.get("max_length", 512)) - 1
    settings: dict[str, Any] = {
        "search_rules": "huggingface",
        "beam_size": beams,
        "force_decode_length": True,
        "extra_length": int(search.get("max_new_tokens") or longest),
    }
    if beams > 1:
        settings |= {
            "alpha": 1.0 if penalty is None else float(penalty),
            "length_offset": 0.0,
            "length_scale": 1.0,
            "early_stopping": stop if stop == "never" else str(bool(stop)).lower(),
        }
    return settings


def folder_tensors(source: Path) -> Mapping[str, Any]:
    """Returns the weights of a folder; CheckpointError if they are damaged."""
    path = source / _WEIGHTS[0]
    if not path.exists():
        content = load_pickled(source / _WEIGHTS[1])
        if not isinstance(content, dict):
            raise CheckpointError(f"{source / _WEIGHTS[1]} has no weights by name.")
        return content
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(files.check_regular(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: {error}. Copy it again.") from None


def tokenizer_file(source: Path) -> bytes:
    """Returns the content of `tokenizer.json`, made of the files of old folders if it is missing.

    Raises:
      DataError: there is no vocabulary, or the package tokenizers is missing.
    """
    path = source / "tokenizer.json"
    if path.exists():
        return files.read_bytes(path, max_bytes=files.MAX_VOCABULARY)
    named = optional_json(source / "tokenizer_config.json")
    words, pieces, merges = (source / n for n in ("vocab.txt", "vocab.json", "merges.txt"))
    purpose = "tokenizers of Hugging Face are read by a package"
    tokenizers = require("tokenizers", "hf", purpose, DataError)
    if words.exists():
        made = tokenizers.BertWordPieceTokenizer.from_file(
            str(words),
            lowercase=bool(named.get("do_lower_case", True)),
            strip_accents=named.get("strip_accents"),
            handle_chinese_chars=bool(named.get("tokenize_chinese_chars", True)),
        )
    elif pieces.exists() and merges.exists():
        made = tokenizers.ByteLevelBPETokenizer.from_file(
            str(pieces), str(merges), add_prefix_space=bool(named.get("add_prefix_space", False))
        )
    else:
        raise DataError(
            f"{source} has no tokenizer: neither tokenizer.json, nor vocab.txt, nor vocab.json "
            "with merges.txt. Copy the whole folder."
        )
    text: str = made.to_str()
    return text.encode()


def read_vocabulary(
    source: Path,
    rows: int,
    *,
    eos: str,
    unknown: str | None = None,
    pad: str | None = None,
    first: Sequence[str] = (),
    silent: Sequence[str] = (),
) -> Vocabulary:
    """Reads the vocabulary of a folder.

    Args:
      source: the folder.
      rows: rows of the embeddings; tokens that the tokenizer lacks have no text.
      eos: token that ends texts.
      unknown: token of unknown pieces; None: there are none.
      pad: token of padding; None: there is none, and one is added at the end.
      first: tokens before each text.
      silent: further tokens without a text, where there are any.

    Raises:
      DataError: the tokenizer is missing or damaged, or has other tokens.
    """
    content = tokenizer_file(source)
    try:
        known = json.loads(content)
        numbers = dict(known["model"]["vocab"])
        numbers |= {one["content"]: one["id"] for one in known.get("added_tokens") or ()}
        by_id = {int(number): str(token) for token, number in numbers.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{source / 'tokenizer.json'} is no tokenizer. Copy it again.") from None
    needed = [one for one in (eos, unknown, pad, *first) if one is not None]
    if lacking := [one for one in needed if one not in numbers]:
        raise DataError(f"the tokenizer of {source} has no {', '.join(lacking)}.")
    if by_id and max(by_id) >= rows:
        raise DataError(
            f"the tokenizer of {source} has {max(by_id) + 1:,} tokens and the model {rows:,} "
            "vectors: they are of different models. Copy the whole folder again."
        )
    tokens = [by_id.get(number, f"<token {number}>") for number in range(rows)]
    extra = [number for number in range(rows) if number not in by_id]
    if pad is None:
        tokens.append("<pad>")
    without = {numbers[one] for one in (*first, *silent) if one in numbers}
    return Vocabulary(
        tokens,
        pad=len(tokens) - 1 if pad is None else numbers[pad],
        eos=numbers[eos],
        unknown=None if unknown is None else numbers[unknown],
        silent=(*sorted(without), *extra),
        subwords=("tokenizer", content),
        first=tuple(numbers[one] for one in first),
    )
