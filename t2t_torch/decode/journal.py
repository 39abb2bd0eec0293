"""Journal of predictions on disk, from which an interrupted decoding resumes, also in parts.

A journal is a file next to the output file, `<outputs>.part`.  Each line is a checksum (crc32) and
JSON: the first describes the decoding's settings, each other one the predictions of a batch.  A
line is flushed to disk before the next batch starts.  Reading ends at a broken line, left by a
process killed while writing.  The writing process holds a lock on the file, which the kernel
releases when the process ends in any way.

Sharded decoding is tensor2tensor's `shards` (utils/decoding.py): part n of the outputs is a file
whose name ends in its number.  Each part has a journal, which is kept until all parts are joined.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import nn

import t2t_torch
from t2t_torch.decode.hparam import OF_SHARDS, OF_WRITING, DecodeHParams
from t2t_torch.errors import DecodeError, UsageError
from t2t_torch.files import UnreadableFileError, read_bytes
from t2t_torch.reporter import message
from t2t_torch.run.metrics_file import locked
from t2t_torch.runtime.prediction import Hypothesis, Prediction

SUFFIX = ".part"
"""Suffix of a journal's name, after the name of the outputs."""

_FIRST = b"journal of t2t_torch\n"
_FORMAT = 1
_DIGEST = "sha256:"


class Journal:
    """Predictions for some inputs; without a file nothing is kept.

    Attributes:
      path: path of the file; None if there is none.
      predictions: predictions by the number of the input, in JSON form.

    Args:
      path: path of the file.
      file: the file, opened and locked by `journal_of`.
    """

    def __init__(self, path: Path | None = None, file: BinaryIO | None = None) -> None:
        self.path = path
        self.predictions: dict[int, Any] = {}
        self._file = file

    def add(self, rows: Sequence[tuple[int, Any]]) -> None:
        """Adds the predictions of a batch.

        Args:
          rows: numbers of inputs, and the prediction for each in JSON form.

        Raises:
          DecodeError: the journal cannot be written.
        """
        self._write({"found": rows})
        self.predictions.update(rows)

    def open(self, made_of: Mapping[str, Any], *, same: bool = False) -> None:
        """Reads the journal of the same decoding; otherwise restarts it and reports why.

        Args:
          made_of: see `journal_of`.
          same: True to reject the journal of another decoding.

        Raises:
          DecodeError: the journal cannot be written.
          UsageError: the file is not a journal, or belongs to another decoding.
        """
        assert self._file is not None and self.path is not None
        lines, size = _whole_lines(self._file, self.path)
        header = {"format": _FORMAT, "made_of": json.loads(json.dumps(made_of))}
        if not lines or lines[0] != header:
            if lines:
                other = f"{self.path} is {_differences(lines[0], header)}"
                if same:
                    raise UsageError(
                        f"{other}. Give the settings that the parts were decoded with, or remove "
                        "it, and that part is decoded again."
                    )
                message(f"{other}: all inputs are decoded again")
            self._file.truncate(0)
            self._write(header, _FIRST)
            lines = []
        else:
            self._file.truncate(size)
        for line in lines[1:]:
            self.predictions.update(line.get("found", ()))
        self._write({"process": f"{os.getpid()} on {socket.gethostname()}"})

    def _write(self, content: Any, before: bytes = b"") -> None:
        if self._file is None:
            return
        left = before + _line(content)
        try:
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise DecodeError(
                f"{self.path} cannot be written: {error.strerror or error}. It holds the "
                f"predictions for {len(self.predictions):,} inputs: free space, or repair the "
                "disk, and run the same command again."
            ) from None


@contextlib.contextmanager
def journal_of(
    target: Path | None, made_of: Mapping[str, Any], *, keep: bool = False, same: bool = False
) -> Iterator[Journal]:
    """Opens and locks the journal of an output file.

    It is deleted when the body ends normally, and when it is empty.

    Args:
      target: the output file; None: nothing is kept.
      made_of: everything that the predictions depend on, by name, in JSON form; see `digest`.
      keep: True to keep the journal at the end.
      same: True to reject a journal with another `made_of`, instead of restarting it.

    Raises:
      DecodeError: the journal cannot be written.
      UsageError: another process decodes to the same file, the file is not a journal, or the
        journal is rejected.
    """
    if target is None:
        yield Journal()
        return
    path = journal_path(target)
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(locked(path, waits=False))
        except BlockingIOError:
            raise UsageError(
                f"another process ({_holder(path)}) decodes to {target}: {path} is its own. "
                "Wait for it, stop it, or name another file with --decode_to_file."
            ) from None
        journal = Journal(path, file)
        journal.open(made_of, same=same)
        try:
            yield journal
        except BaseException:
            if not journal.predictions:
                path.unlink(missing_ok=True)
            raise
        if not keep:
            path.unlink(missing_ok=True)


def journal_path(target: Path) -> Path:
    """Returns the path of the journal of an output file; links are followed."""
    file = Path(os.path.realpath(target))
    return file.with_name(file.name + SUFFIX)


def journal_record(prediction: Prediction) -> list[list[Any]] | dict[str, list[Any]]:
    """Returns a prediction in a journal's form: its texts, or its values by target."""
    if not prediction.hypotheses:
        probabilities, scores = prediction.probabilities, prediction.scores
        return {
            name: [value, probabilities.get(name), scores.get(name)]
            for name, value in prediction.values.items()
        }
    return [
        [one.text, one.ids, one.score, one.repaired, one.alignment] for one in prediction.hypotheses
    ]


def prediction_of(target: str, record: Sequence[Any] | Mapping[str, Any]) -> Prediction:
    """Returns the prediction of a text target, or of labels, from a journal's form."""
    if isinstance(record, Mapping):
        return Prediction.joined(Prediction.of_value(name, *one) for name, one in record.items())
    return Prediction.of_texts(
        target,
        [
            Hypothesis(text, tuple(ids), score, repaired, tuple((i, j) for i, j in alignment))
            for text, ids, score, repaired, alignment in record
        ],
    )


def digest(parts: Iterable[Any]) -> str:
    """Returns a checksum of a sequence of JSON values, in which arrays may stand."""
    total = hashlib.sha256()
    for part in parts:
        text = json.dumps(
            part, sort_keys=True, default=lambda array: hashlib.sha256(array.tobytes()).hexdigest()
        )
        total.update(f"{text}\n".encode())
    return _DIGEST + total.hexdigest()


def digest_of_weights(model: nn.Module) -> str:
    """Returns a checksum of a model's weights and class."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        total.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        total.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    total.update(repr([type(module).__qualname__ for module in model.modules()]).encode())
    return _DIGEST + total.hexdigest()


def digest_of_hparams(model: Any) -> str:
    """Returns a checksum of a model's settings beyond its features: hparams and spaces.

    Args:
      model: a `T2TModel`, or an ensemble.
    """
    return digest(
        [
            one.hparams.model_dump(mode="json"),
            one.features.input_space_id,
            one.features.target_space_id,
        ]
        for one in getattr(model, "models", [model])
    )


def _holder(path: Path) -> str:
    content = b""
    with contextlib.suppress(FileNotFoundError, UnreadableFileError):  # ended, or is too large
        content = read_bytes(path)
    contents = [_content(line) for line in content.split(b"\n")]
    processes = [one["process"] for one in contents if isinstance(one, dict) and "process" in one]
    return f"process {processes[-1]}" if processes else "unknown"


def _whole_lines(file: BinaryIO, path: Path) -> tuple[list[Any], int]:
    """Returns the contents of a journal's lines up to the first broken one, and its position.

    Raises:
      UsageError: the file is not a journal.
    """
    file.seek(0)
    content = file.read()
    _, *rest = content.split(b"\n")
    # An incomplete first line, or a file of zeros after a power failure, is empty.
    is_empty = _FIRST.startswith(content) or not content.strip(b"\0")
    if not is_empty and not content.startswith(_FIRST):
        raise UsageError(
            f"{path} is in the way: what was found so far is kept in a file of that name, and this "
            "one is something else. Move it, or name another file with --decode_to_file."
        )
    lines, size = [], len(_FIRST)
    for line in rest[:-1]:  # Text after the last end of a line is incomplete.
        said = _content(line)
        if said is None:
            break
        lines.append(said)
        size += len(line) + 1
    return lines, size


def _line(content: Any) -> bytes:
    text = json.dumps(content).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _content(line: bytes) -> Any:
    """Returns the content of a line; None if it is broken."""
    checksum, _, text = line.partition(b" ")
    return json.loads(text) if checksum == b"%08x" % zlib.crc32(text) else None


def _differences(before: Any, now: Mapping[str, Any]) -> str:
    """Returns a description of the differences to another decoding."""
    if not isinstance(before, dict) or before.get("format") != now["format"]:
        return "of another version"
    then, parts = before.get("made_of", {}), []
    for name in {**then, **now["made_of"]}:
        was, is_now = then.get(name), now["made_of"].get(name)
        if was == is_now:
            continue
        is_digest = str(was).startswith(_DIGEST) or str(is_now).startswith(_DIGEST)
        parts.append(f"other {name}" if is_digest else f"{name}={was} (now {is_now})")
    return f"of {', '.join(parts)}"


class Shard(NamedTuple):
    """A part of the inputs, or all of them.

    Attributes:
      number: number of the part, from 0.
      parts: number of parts; 1: all inputs.
    """

    number: int = 0
    parts: int = 1

    def rows(self, total: int) -> slice:
        """Returns the inputs of this part: parts are contiguous and of similar size."""
        first, after = (total * number // self.parts for number in (self.number, self.number + 1))
        return slice(first, after)

    def name(self, path: Path, hparams: DecodeHParams) -> Path:
        """Returns the file name of this part, as in tensor2tensor; of all inputs, the path.

        A dot separates the number from a name that ends in a digit.
        """
        if self.parts == 1:
            return path
        end = f".{self.number:03d}" if path.name[-1:].isdigit() else f"{self.number:03d}"
        if hparams.shard_google_format:
            end = f"-{self.number:05d}-of-{self.parts:05d}"
        return path.with_name(path.name + end)


def shard_of(hparams: DecodeHParams) -> Shard:
    """Returns the requested part."""
    if hparams.shards == 1 or hparams.shard_id < 0:
        return Shard()
    return Shard(hparams.shard_id + hparams.shards_start_offset, hparams.shards)


def part_of(path: Path, hparams: DecodeHParams) -> Path:
    """Returns the file of an input part that was split before, as in tensor2tensor; else the path.

    For example, in.txt002 is read for shard_id=2 if in.txt does not exist.
    """
    part = shard_of(hparams).name(path, hparams)
    return part if not path.exists() and part.exists() else path


def made_of(predictor: Any, hparams: DecodeHParams) -> dict[str, Any]:
    """Returns everything except the inputs that a predictor's outputs depend on, by name.

    Args:
      predictor: predictor of texts or labels.
      hparams: decoding settings.
    """
    left_out = {*OF_WRITING, *OF_SHARDS}
    values = {name: getattr(hparams, name) for name in DecodeHParams.model_fields}
    return {
        "weights": digest_of_weights(predictor.model),
        "problem": predictor.problem.full_name,
        "hparams": digest_of_hparams(predictor.model),
        "step": predictor.run.step if predictor.run is not None else None,
        "t2t_torch": t2t_torch.__version__,
        **{name: value for name, value in values.items() if name not in left_out},
    }
