"""A task's share of a split: generated, encoded, counted, and handed to the shuffle."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pydantic
from tqdm import tqdm

from t2t_torch.data.chunks import Chunks, Share
from t2t_torch.data.samples import samples_of, seeded
from t2t_torch.data.shuffle import Shuffle
from t2t_torch.errors import DataError
from t2t_torch.features import UNKNOWN
from t2t_torch.mode import Split
from t2t_torch.readers.bad_records import MAX_LISTED, BadRecords

if TYPE_CHECKING:
    from t2t_torch.data.encoding import Encoder
    from t2t_torch.data.request import Request
    from t2t_torch.features import Features


class ShareEntry(pydantic.BaseModel):
    """What a share holds; shares add up to the whole split.

    Attributes:
      samples: how many samples the problem gave for the split, those of all shares.
      rows: how many of the share's samples were encoded.
      tokens: the sum of the rows' lengths, by feature.
      max_length: the greatest of the rows' lengths, by feature.
      unread: how many records of the raw files the problem left out, for all shares.
      unread_listed: place and reason of the first of them.
      unknown: by feature, how many labels are none of those of training, where there are such.
      unfit: how many of the share's samples could not be encoded and were left out.
      unfit_listed: number and reason of the first of them.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    samples: int
    rows: int
    tokens: Mapping[str, int]
    max_length: Mapping[str, int]
    unknown: Mapping[str, int] = {}
    unread: int
    unread_listed: Sequence[str]
    unfit: int
    unfit_listed: Sequence[tuple[int, str]]

    @property
    def skipped(self) -> int:
        """How many rows were left out, for whatever reason."""
        return self.unread + self.unfit

    def lines(self) -> list[str]:
        """Place and reason of what was left out; the last line says how many are not listed."""
        told = [*self.unread_listed, *(why for _, why in self.unfit_listed)]
        more = self.skipped - len(told)
        return [*told, f"and {more} more"] if more else told


def encode_share(
    request: Request,
    split: Split,
    features: Features,
    encoder: Encoder,
    shuffle: Shuffle,
    *,
    share: Share | None = None,
    progress: bool,
) -> ShareEntry:
    """Generates all samples of a split, encodes those of a share and gives them to `shuffle`.

    Raises:
      DataError: a raw file is malformed or a sample cannot be encoded, and it is not to be skipped.
    """
    problem, where = request.problem, request.where(split)
    tokens = dict.fromkeys(features.stored, 0)
    longest = dict.fromkeys(features.stored, 0)
    unknown = {name: 0 for name, feature in features.all.items() if feature.lowest_id == UNKNOWN}
    unfit: list[tuple[int, str]] = []
    num_unfit = 0
    problem.bad_records = unread = BadRecords(request.on_bad_record)
    with seeded(request.seed, split.value), _bar(where, show=progress) as bar:
        samples = samples_of(problem, request.raw_folder, split)
        limited = itertools.islice(samples, request.max_cases or None)
        chunks = Chunks(limited, features.sources.values(), where, share)
        for encoded in encoder.encode(chunks):
            for name, column in encoded.rows.items():
                tokens[name] += len(column.values)
                longest[name] = max(longest[name], int(column.lengths.max(initial=0)))
            for name in unknown:
                unknown[name] += int((encoded.rows[name].values == UNKNOWN).sum())
            shuffle.add(encoded.rows, encoded.numbers)
            num_unfit += len(encoded.unfit)
            unfit += encoded.unfit[: MAX_LISTED - len(unfit)]
            bar.update(encoded.chunk_rows)
    prefix = f"{request.raw_folder}/"  # the same lines wherever the raw files are
    return ShareEntry(
        samples=chunks.num_samples,
        rows=shuffle.num_rows,
        tokens=tokens,
        max_length=longest,
        unknown={name: count for name, count in unknown.items() if count},
        unread=unread.count,
        unread_listed=[told.removeprefix(prefix) for told in unread.listed],
        unfit=num_unfit,
        unfit_listed=unfit,
    )


def whole(shares: Sequence[ShareEntry], where: str) -> ShareEntry:
    """What all shares of a split hold together.

    Raises:
      DataError: they were not made from the same samples, or there is no row.
    """
    first = shares[0]
    for task, share in enumerate(shares):
        if (share.samples, share.unread) != (first.samples, first.unread):
            raise DataError(
                f"{where}: generate_samples gave task 0 {first.samples} samples and left out "
                f"{first.unread} records, but task {task} {share.samples} and {share.unread}. It "
                "has to give the same each time. Mend it, and run the tasks with --overwrite."
            )
    rows = sum(share.rows for share in shares)
    if rows == 0:
        raise DataError(_nothing(where, sum(share.skipped for share in shares)))
    unfit = sorted(itertools.chain.from_iterable(share.unfit_listed for share in shares))
    return ShareEntry(
        samples=first.samples,
        rows=rows,
        tokens=functools.reduce(_added, (share.tokens for share in shares)),
        max_length=functools.reduce(_greater, (share.max_length for share in shares)),
        unknown=dict(sum((Counter(share.unknown) for share in shares), Counter())),
        unread=first.unread,
        unread_listed=first.unread_listed,
        unfit=sum(share.unfit for share in shares),
        unfit_listed=unfit[:MAX_LISTED],
    )


def _nothing(where: str, skipped: int) -> str:
    left_out = f"; {skipped} were skipped" if skipped else ""
    return (
        f"{where}: generate_samples gave no sample{left_out}, and at least one was expected. Look "
        "at the raw files (--tmp_dir), or take the split out of the problem's `shards`."
    )


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    return {name: one[name] + other[name] for name in one}


def _greater(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    return {name: max(one[name], other[name]) for name in one}


def _bar(where: str, *, show: bool) -> tqdm[Any]:
    # disable=None: only on a terminal.
    return tqdm(desc=where, unit=" rows", unit_scale=True, disable=None if show else True)
