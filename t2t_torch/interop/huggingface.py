"""Folders of Hugging Face's `save_pretrained`: configuration, weights, tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_torch import files
from t2t_torch.errors import CheckpointError, DataError
from t2t_torch.interop.translation import check_tokens
from t2t_torch.interop.unpickling import load_pickled
from t2t_torch.text.pretrained import optional_json as optional_json
from t2t_torch.text.pretrained import read_json as read_json

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


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
