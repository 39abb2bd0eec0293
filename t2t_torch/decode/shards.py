"""Inputs that are decoded in parts, by several processes, and what is joined of them.

tensor2tensor's `shards` (utils/decoding.py): part n of the outputs is a file whose name ends in its
number.  Each part has a journal (`journal.py`), which stays until all are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import t2t_torch
from t2t_torch.decode.hparam import OF_SHARDS, OF_WRITING, DecodeHParams
from t2t_torch.decode.journal import (
    Journal,
    digest_of_hparams,
    digest_of_weights,
    journal_of,
    journal_path,
)
from t2t_torch.decode.target import is_replaced
from t2t_torch.errors import UsageError

T = TypeVar("T")


class Shard(NamedTuple):
    """A part of some inputs.

    Attributes:
      number: from 0.
      count: how many parts there are.
    """

    number: int
    count: int

    def rows(self, total: int) -> slice:
        """Returns which of so many inputs are its own: parts of like sizes, in their order."""
        first, after = (total * number // self.count for number in (self.number, self.number + 1))
        return slice(first, after)

    def name(self, path: Path, hparams: DecodeHParams) -> Path:
        """Returns the name of its part of a file, as tensor2tensor gives it.

        A dot keeps the number apart from a name that ends in one.
        """
        end = f".{self.number:03d}" if path.name[-1:].isdigit() else f"{self.number:03d}"
        if hparams.shard_google_format:
            end = f"-{self.number:05d}-of-{self.count:05d}"
        return path.with_name(path.name + end)


def shard_of(hparams: DecodeHParams) -> Shard | None:
    """Returns the part that is asked for; None if all are."""
    if hparams.shards == 1 or hparams.shard_id < 0:
        return None
    return Shard(hparams.shard_id + hparams.shards_start_offset, hparams.shards)


def rows_of_shard(hparams: DecodeHParams, total: int) -> slice:
    """Returns which of so many inputs are asked for."""
    shard = shard_of(hparams)
    return slice(0, total) if shard is None else shard.rows(total)


def name_of_shard(path: Path, hparams: DecodeHParams, shard: Shard | None) -> Path:
    """Returns the name of a part of a file; of no part the file's own."""
    return path if shard is None else shard.name(path, hparams)


def part_of(path: Path, hparams: DecodeHParams) -> Path:
    """Returns the file of a part that was cut before, as tensor2tensor expects it; else the path.

    So in.txt002 is read for shard_id=2 where there is no in.txt.
    """
    part = name_of_shard(path, hparams, shard_of(hparams))
    return part if not path.exists() and part.exists() else path


class Decoding(NamedTuple, Generic[T]):
    """Inputs that are decoded to a file, in parts or at once.

    Attributes:
      total: how many inputs there are.
      hparams: how they are decoded, and which part.
      name_of: the file of outputs of a part; of all without one.
      made_of: what all outputs depend on but the inputs; see `made_of` below.
      digest_of: a checksum of some inputs.
      find: decodes some inputs, but those that the journal has.
      write: writes what was found for some inputs.
    """

    total: int
    hparams: DecodeHParams
    name_of: Callable[[Shard | None], Path]
    made_of: Callable[[], Mapping[str, Any]]
    digest_of: Callable[[slice], str]
    find: Callable[[slice, Journal], list[T]]
    write: Callable[[Path, slice, list[T]], None]

    def run(self) -> list[T]:
        """Decodes what is asked for and writes it; returns it.

        Of all parts those are decoded that are not there yet, and the whole is written.

        Raises:
          DecodeError: the journal cannot be written.
          UsageError: another process decodes to the same file; or a part that is there was decoded
            otherwise, or is to be written to no file.
        """
        target, shard = self.name_of(None), shard_of(self.hparams)
        is_file = is_replaced(target)
        if self.hparams.shards > 1 and not is_file:
            raise UsageError(
                f"{target} is no regular file, and shards={self.hparams.shards} decodes to several "
                "files. Name one with --decode_to_file, or leave the shards out."
            )
        if shard is None and self.hparams.shards > 1:
            return self._join()
        rows = slice(0, self.total) if shard is None else shard.rows(self.total)
        file, keep = self.name_of(shard), shard is not None
        made_of = self._made_of(rows, shard, self.made_of()) if is_file else {}
        with journal_of(file if is_file else None, made_of, keep=keep) as journal:
            found = self.find(rows, journal)
            self.write(file, rows, found)
        return found

    def _join(self) -> list[T]:
        """Decodes the parts that are not there yet, and writes the whole."""
        shards = [Shard(number, self.hparams.shards) for number in range(self.hparams.shards)]
        files = [self.name_of(shard) for shard in shards]
        each, common = [shard.rows(self.total) for shard in shards], self.made_of()
        parts = [self._made_of(*pair, common) for pair in zip(each, shards, strict=True)]
        for file, made_of in zip(files, parts, strict=True):
            if journal_path(file).exists():  # Before anything is decoded for nothing.
                with journal_of(file, made_of, keep=True, same=True):
                    pass
        found = []
        for file, made_of, rows in zip(files, parts, each, strict=True):
            with journal_of(file, made_of, keep=True, same=True) as journal:
                found += self.find(rows, journal)
        self.write(self.name_of(None), slice(0, self.total), found)
        for file in files:
            journal_path(file).unlink(missing_ok=True)
        return found

    def _made_of(
        self, rows: slice, shard: Shard | None, common: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        told = {} if shard is None else {"shard": f"{shard.number} of {shard.count}"}
        return {"inputs": self.digest_of(rows), **common, **told}


def made_of(predictor: Any, hparams: DecodeHParams) -> dict[str, Any]:
    """Returns what the outputs of a predictor depend on beside the inputs, by name.

    Args:
      predictor: of texts or labels.
      hparams: how they are decoded.
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
