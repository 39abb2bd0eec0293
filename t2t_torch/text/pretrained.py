"""Pretrained models as Hugging Face's libraries save them: their files and their tokenizers.

Nothing in a folder is executed or unpickled: weights are safetensors, and a folder whose model is
code is refused.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_torch import files
from t2t_torch.errors import CheckpointError, DataError, HParamsError, UsageError, require
from t2t_torch.text.pieces import vocabulary_file

PURPOSE = "pretrained models are read by the package transformers"

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_NAME = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
_READ = ("*.json", "*.safetensors", "*.txt", "*.model", "*.spm")
_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "*.spm")
_POINTER = b"version https://git-lfs"


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file.

    Raises:
      DataError: the file is missing, or holds none.
    """
    try:
        content = files.read_json(path, max_bytes=files.MAX_VOCABULARY)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}. Copy the whole folder.") from None
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} is not JSON: {reason}. Copy it again.") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} is no JSON object. Copy it again.")
    return content


def optional_json(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file; empty if there is no such file."""
    return read_json(path) if path.exists() else {}


@dataclass(frozen=True)
class Architecture:
    """Description of a pretrained model in a run, besides its weights and its vocabulary.

    Attributes:
      config: content of `config.json`.
      special: the model's ids of padding and of the end of a text, and whether it has padding.
      rows: number of vectors of tokens.
      width: size of the states.
      before: ids before the first text, as [CLS] in [CLS] a [SEP] b [SEP].
      between: ids between two texts.
      after: ids after the last text.
      types: token types of the first text with the ids around it, and of the others.
      longest: tokens of the longest text that the model reads, with those ids; 0: no limit.
      start: ids that a decoder reads before the first one that it writes.
      tokenizer: content of `tokenizer_config.json`.
      vocabulary: sha256 of the vocabulary file; "" fits any.
      weights: sha256 of each file of the weights.
      revision: commit of the repository that the folder was downloaded from, or "".
      transformers: version of the package.
    """

    config: Mapping[str, Any]
    special: tuple[int, int, bool]
    rows: int
    width: int
    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    types: tuple[int, int]
    longest: int
    start: tuple[int, ...]
    tokenizer: Mapping[str, Any]
    vocabulary: str
    weights: Mapping[str, str]
    revision: str
    transformers: str

    @classmethod
    def parse(cls, text: str) -> Architecture:
        """Returns what `text` describes; HParamsError if it is no such description."""
        try:
            content = json.loads(text)
            lists = {
                name: tuple(value) for name, value in content.items() if isinstance(value, list)
            }
            return cls(**{**content, **lists})
        except (ValueError, TypeError):
            raise HParamsError(
                "pretrained_architecture describes no pretrained model. t2t-trainer writes it: "
                "leave it out, and give pretrained."
            ) from None

    @property
    def text(self) -> str:
        """The description as JSON."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @property
    def longest_text(self) -> int:
        """The tokens of the longest single text, without the ids around it; 0: no limit."""
        around = max(len(self.before) + len(self.after), len(self.start))
        return max(1, self.longest - around) if self.longest else 0

    @functools.cached_property
    def order(self) -> list[int]:
        """The model's id of each of our ids: padding, the end, and the others as they are.

        Where the model has no padding, ours has the id of the end.
        """
        return _ordered(*self.special[:2], self.rows)


class PretrainedFolder:
    """A folder of a pretrained model.

    Attributes:
      path: the folder.
      revision: commit of the repository that it was downloaded from; "" for a folder of the user.
      config: content of `config.json`.

    Args:
      place: folder, or name of a repository, such as org/name or org/name@revision, which the
        package huggingface_hub downloads.

    Raises:
      CheckpointError: there are no weights in safetensors, or some are missing or damaged.
      DataError: the configuration is missing or damaged.
      UsageError: there is no such folder, or its model is code.
    """

    def __init__(self, place: str) -> None:
        self.path, self.revision = Path(place).expanduser(), ""
        if not self.path.is_dir():
            self.path, self.revision = _downloaded(place)
        self.config = read_json(self.path / "config.json")
        if code := [*self.config.get("auto_map", ()), *self.path.glob("*.py")]:
            raise UsageError(
                f"{self.path} brings code of its own ({Path(code[0]).name}), which is not "
                "executed. Give a model of an architecture that the package transformers has."
            )
        if not isinstance(self.config.get("model_type"), str):
            raise DataError(
                f"{self.path / 'config.json'} names no model_type: it is no configuration of "
                "transformers. Save the model with save_pretrained."
            )

    @functools.cached_property
    def weights(self) -> tuple[Path, ...]:
        """The files of the weights; CheckpointError if one is missing or no safetensors file."""
        names = [_WEIGHTS]
        if not (self.path / _WEIGHTS).exists():
            if not (self.path / _INDEX).exists():
                others = sorted(path.name for path in self.path.glob("*.bin"))
                pickled = f" {others[0]} is a pickle, which is not read." if others else ""
                raise CheckpointError(
                    f"{self.path} has no {_WEIGHTS}.{pickled} Save the model again with "
                    "save_pretrained, which writes safetensors."
                )
            index = read_json(self.path / _INDEX).get("weight_map") or {}
            names = sorted(set(map(str, index.values())))
        for name in names:
            _check_weights(self.path / name)
        return tuple(self.path / name for name in names)

    @functools.cached_property
    def _tokenizer(self) -> Any:
        transformers = require("transformers", "hf", PURPOSE, DataError)
        if not any(next(self.path.glob(name), None) for name in _VOCABULARIES):
            raise DataError(
                f"{self.path} has no tokenizer: none of {', '.join(_VOCABULARIES)}. Copy the whole "
                "folder."
            )
        try:
            made = transformers.AutoTokenizer.from_pretrained(
                str(self.path), local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # of many classes
            raise DataError(
                f"the tokenizer of {self.path} cannot be read: {str(error).splitlines()[0]} Copy "
                "the whole folder."
            ) from None
        if not getattr(made, "is_fast", False):
            raise DataError(
                f"the tokenizer of {self.path} is a {type(made).__name__}, which has no form as a "
                "tokenizer.json. Models of Marian are imported:  t2t-import --source=FOLDER"
            )
        made.backend_tokenizer.no_truncation()
        made.backend_tokenizer.no_padding()
        return made

    @functools.cached_property
    def special_ids(self) -> tuple[int | None, int]:
        """The model's id of padding, None if it has none, and that of the end of a text.

        Raises:
          DataError: no token ends a text.
        """
        tokenizer, end = self._tokenizer, self._config_value("eos_token_id")
        end = end[0] if isinstance(end, list) and end else end
        if not isinstance(end, int) or end < 0:
            end = tokenizer.eos_token_id
        end = tokenizer.sep_token_id if end is None else end
        if end is None:
            raise DataError(
                f"neither config.json nor the tokenizer of {self.path} names a token that ends a "
                "text (eos_token, sep_token). Name it in config.json: eos_token_id."
            )
        pad = self._config_value("pad_token_id")
        pad = tokenizer.pad_token_id if not isinstance(pad, int) or pad < 0 else pad
        if not all(0 <= one < self.rows for one in (end, pad) if one is not None):
            raise DataError(
                f"padding {pad} or end {end} is no id of {self.path}, which has {self.rows:,}. "
                "Correct pad_token_id and eos_token_id in config.json and generation_config.json."
            )
        return None if pad == end else pad, end

    def _config_value(self, name: str) -> Any:
        generation = optional_json(self.path / "generation_config.json")
        return generation.get(name, self.config.get(name))

    @functools.cached_property
    def settings(self) -> Any:
        """The configuration as an object of transformers; DataError if it has no such model."""
        transformers = require("transformers", "hf", PURPOSE, DataError)
        try:
            made = transformers.AutoConfig.from_pretrained(
                str(self.path), local_files_only=True, trust_remote_code=False
            )
            _ = made.vocab_size, made.hidden_size
        except Exception as error:  # of many classes
            raise DataError(
                f"transformers {transformers.__version__} reads no model of texts from "
                f"{self.path}: {str(error).splitlines()[0]}"
            ) from None
        return made

    @property
    def rows(self) -> int:
        """The number of vectors of tokens."""
        return int(self.settings.vocab_size)

    @functools.cached_property
    def vocabulary(self) -> bytes:
        """The content of a vocabulary file (`text/pieces.py`), which has all tokens.

        Raises:
          DataError: the tokenizer is damaged, or has tokens that the model lacks.
        """
        tokenizer = self._tokenizer
        by_id = {number: token for token, number in tokenizer.get_vocab().items()}
        if by_id and max(by_id) >= self.rows:
            raise DataError(
                f"the tokenizer of {self.path} has {max(by_id) + 1:,} tokens and the model "
                f"{self.rows:,} vectors: they are of different models. Copy the whole folder again."
            )
        pad, end = self.special_ids
        order = _ordered(end if pad is None else pad, end, self.rows)
        our_ids = {number: ours for ours, number in enumerate(order)}
        tokens = [by_id.get(number, f"<token {number}>") for number in order]
        if pad is None:
            tokens[0] = "<padding>"
        unknown = tokenizer.unk_token_id
        unknown = None if unknown in (pad, end) else unknown
        silent = {*tokenizer.all_special_ids, *(set(range(self.rows)) - set(by_id))}
        silent -= {pad, end, unknown}
        return vocabulary_file(
            ("tokenizer", tokenizer.backend_tokenizer.to_str().encode()),
            tokens=tokens,
            unknown=None if unknown is None else our_ids[unknown],
            silent=sorted(our_ids[number] for number in silent if number in our_ids),
            add_eos=True,
            strip=False,
        )

    def architecture(self) -> Architecture:
        """Returns what a run keeps of the model.

        Raises:
          DataError: the tokenizer sets other ids around one text than around two, or gives none.
        """
        tokenizer = self._tokenizer.backend_tokenizer
        texts = ("a", *tokenizer.get_vocab(with_added_tokens=False))
        given = next((a for a in texts if tokenizer.encode(a, add_special_tokens=False).ids), None)
        if given is None:
            raise DataError(f"the tokenizer of {self.path} gives no token of any text.")
        one, two = tokenizer.encode(given), tokenizer.encode(given, given)
        first, second = (
            [place for place, its in enumerate(two.sequence_ids) if its == text] for text in (0, 1)
        )
        before, after = tuple(two.ids[: first[0]]), tuple(two.ids[second[-1] + 1 :])
        if one.ids != [*before, *two.ids[first[0] : first[-1] + 1], *after]:
            raise DataError(
                f"the tokenizer of {self.path} sets other ids around one text than around two, "
                "which is not supported."
            )
        limits = [self._tokenizer.model_max_length]
        limits.append(getattr(self.settings, "max_position_embeddings", None))
        known = [one for one in limits if isinstance(one, int) and 0 < one < 1 << 24]
        pad, end = self.special_ids
        has_types = "token_type_ids" in self._tokenizer.model_input_names
        return Architecture(
            config=self.settings.to_dict(),
            width=self.settings.hidden_size,
            special=(end if pad is None else pad, end, pad is not None),
            rows=self.rows,
            before=before,
            between=tuple(two.ids[first[-1] + 1 : second[0]]),
            after=after,
            types=(two.type_ids[first[0]], two.type_ids[second[0]]) if has_types else (0, 0),
            longest=min(known, default=0),
            start=self._start(before),
            tokenizer={
                **optional_json(self.path / "tokenizer_config.json"),
                **{name: str(token) for name, token in self._tokenizer.special_tokens_map.items()},
            },
            vocabulary=hashlib.sha256(self.vocabulary).hexdigest(),
            weights={path.name: _sha256(path) for path in self.weights},
            revision=self.revision,
            transformers=importlib.metadata.version("transformers"),
        )

    def _start(self, before: tuple[int, ...]) -> tuple[int, ...]:
        """Returns what a decoder reads first; `before` are the ids before a text."""
        forced = self._config_value("forced_bos_token_id")
        begins = (forced,) if isinstance(forced, int) else before
        if self.config.get("is_encoder_decoder"):
            first = self._config_value("decoder_start_token_id")
            first = self._config_value("bos_token_id") if first is None else first
            return (first, *begins) if isinstance(first, int) else begins
        return before

    def check_is(self, architecture: Architecture) -> None:
        """Raises CheckpointError if the weights are no longer those of a description."""
        for path in self.weights:
            if _sha256(path) != architecture.weights.get(path.name):
                raise CheckpointError(
                    f"{path} is not the file that this run began with: it has changed, or is of "
                    "another model. Bring the old file back, or start a new run."
                )


def _downloaded(place: str) -> tuple[Path, str]:
    """Returns the copy of a repository on this machine, and its commit."""
    if not _NAME.fullmatch(place):
        raise UsageError(
            f"pretrained={place}: there is no such folder. Give a folder that save_pretrained "
            "wrote, or the name of a repository, such as org/name."
        )
    hub = require(
        "huggingface_hub", "hf", f"{place} is no folder; names are downloaded by a package"
    )
    name, _, revision = place.partition("@")
    try:
        folder = hub.snapshot_download(name, revision=revision or None, allow_patterns=list(_READ))
    except Exception as error:  # of many classes
        raise UsageError(
            f"pretrained={place} is no folder here, and cannot be downloaded: "
            f"{str(error).splitlines()[0]}"
        ) from None
    return Path(folder), Path(folder).name


def _check_weights(path: Path) -> None:
    """Raises CheckpointError if a file is missing, shorter than its header says, or a pointer."""
    if not path.exists():
        raise CheckpointError(f"{path} is missing. Copy the whole folder.")
    size = path.stat().st_size
    with files.open_regular(path) as stream:
        head = stream.read(len(_POINTER))
        if head == _POINTER:
            raise CheckpointError(
                f"{path} is a pointer of Git LFS, not the weights. Fetch them:  git lfs pull"
            )
        length = int.from_bytes(head[:8], "little")
        try:
            stream.seek(8)
            header: Mapping[str, Any] = json.loads(stream.read(min(length, size)))
            ends = [one["data_offsets"][1] for name, one in header.items() if name[:2] != "__"]
            whole = 8 + length + max(ends, default=0)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            raise CheckpointError(f"{path} is no file of safetensors. Copy it again.") from None
    if whole != size:
        raise CheckpointError(
            f"{path} has {size:,} bytes, and its header names {whole:,}. Copy it again."
        )


def _ordered(pad: int, end: int, rows: int) -> list[int]:
    return [pad, end, *(number for number in range(rows) if number not in (pad, end))]


def _sha256(path: Path) -> str:
    with files.open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
