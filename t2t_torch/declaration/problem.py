"""From a declaration to a class of its kind's family, which is a problem like others."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

from absl import logging

from t2t_torch.data.learner import Learner
from t2t_torch.declaration.attributes import attributes_of, declared_settings, suggested
from t2t_torch.declaration.kinds import KINDS, MIXTURE
from t2t_torch.declaration.learner import DeclaredLearner
from t2t_torch.declaration.names import check_names
from t2t_torch.declaration.rows import RowFiles
from t2t_torch.declaration.sample import SampleMaker
from t2t_torch.declaration.schema import Declaration, content_of, mistake, nearest
from t2t_torch.declaration.values import MissingColumnError
from t2t_torch.errors import DataError
from t2t_torch.families.mixing_schedule import MixingSchedule
from t2t_torch.families.mixture import MixtureProblem
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.readers.bad_records import BadRecords, Record

_BESIDE = ("gazetteer", "dense", "weight")
"""The fields whose columns "features" names."""
_VARYING = ("jsonl", "json")
"""Formats whose rows need not all have the same columns."""


class FromJson(Problem):
    """A problem that was declared in JSON.

    Attributes:
      declaration: what was declared.
      declared_in: the file.
      said: what stands there, as JSON.
    """

    declaration: ClassVar[Declaration]
    said: ClassVar[str]
    declared_in: ClassVar[Path]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Pickles what was declared: another process need not find, or read, the file."""
        made_from = str(self.declared_in), self.said, self.was_reversed, self.was_copy
        return _made_again, made_from, self.__dict__


class DeclaredMixture(FromJson, MixtureProblem):
    """A mixture that was declared."""


class DeclaredProblem(FromJson):
    """A problem of files that was declared; a class of it has a family too.

    Attributes:
      sample_maker: makes samples of rows.
    """

    sample_maker: ClassVar[SampleMaker]

    def raw_files(self, tmp_dir: Path) -> Sequence[Path]:
        """The files that the declaration names."""
        return self._rows(tmp_dir).raw_files()

    def learners(self) -> Sequence[Learner]:
        """Those of the family; what a declaration has to say otherwise is told by its keys."""
        return [DeclaredLearner(one, self.declared_in) for one in super().learners()]

    def prepare(self, tmp_dir: Path) -> None:
        """Checks that the files are there, and that they have the columns that are named.

        Raises:
          DataError: a file or a column is missing.
          RegistryError: format or options make no sense.
        """
        rows = self._rows(tmp_dir)
        rows.check()
        for split in rows.splits():
            for format_name, records in rows.opened(split, BadRecords("skip")):
                first = next(records, None)
                if first is not None and format_name not in _VARYING:
                    self._check_columns(first)

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the samples of a split's rows.

        Raises:
          DataError: a row is bad, unless bad rows are skipped; or there is no row for the split.
        """
        files = self.declaration.files
        assert files is not None
        held_out = [one for one in files.splits if files.of(one).part]
        parted = split in held_out or (split is Split.TRAIN and bool(held_out))
        # The rows of train that are bad have been told when train was read.
        bad = BadRecords("skip") if split in held_out else self.bad_records
        places = _Places() if getattr(self, "max_queries", 0) else None
        count = elsewhere = 0
        for record in self._rows(tmp_dir).records(split, bad):
            try:
                sample = self.sample_maker.sample(record.values)
                if parted and self.sample_maker.split(record.values, sample) is not split:
                    elsewhere += 1
                    continue
            except DataError as error:
                bad.report(record.place, str(error))
                continue
            except Exception:  # A defect, whose traceback is to tell of which row.
                logging.error("%s: no sample could be made of this row.", record.place)
                raise
            count += 1
            if places is not None:
                sample["place"] = places.next(sample["query"])
            yield sample
        if not count:
            raise self._nothing(split, files.of(split).part, elsewhere)

    def _rows(self, tmp_dir: Path) -> RowFiles:
        return RowFiles(self.declaration, self.declared_in, tmp_dir)

    def _check_columns(self, record: Record) -> None:
        """Raises DataError if a file has not the columns that are named."""
        try:
            sample = self.sample_maker.sample(record.values)
            self.sample_maker.split(record.values, sample)
        except MissingColumnError as error:
            keys = [
                field
                for field, column in self.sample_maker.columns.items()
                if error.wanted in column.column
            ]
            room = "features" if keys and keys[0] in _BESIDE else "fields"
            key = f"{room}.{keys[0]}" if keys else "split_by"
            raise DataError(
                f"{mistake(self.declared_in, key, str(error))} (Columns of {record.place.path}.)"
            ) from None
        except DataError:
            pass  # A bad row: what becomes of it is said when all are read.

    def _nothing(self, split: Split, part: float, elsewhere: int) -> DataError:
        told = f"{self.name!r} ({self.declared_in}): there is no row for {split.name.lower()!r}"
        skipped = self.bad_records.listed[:1]
        if elsewhere and not part:
            return DataError(f"{told}: all rows are held out. Give more rows, or smaller parts.")
        if elsewhere:
            return DataError(
                f"{told}: no training row falls into the {part:.1%} that are held out. Give more "
                "rows, a larger part, or a file of its own: "
                f'"files": {{"{split.name.lower()}": ...}}.'
            )
        why = f"; bad rows were left out, the first: {skipped[0]}" if skipped else ""
        return DataError(f"{told} in its files{why}. Mend the files, or name others.")


class _Places:
    """Numbers queries, and the documents of each, in the order of their rows."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._documents: list[int] = []

    def next(self, query: str) -> list[int]:
        """Returns the numbers of a query and of its next document, both from 0."""
        number = self._numbers.setdefault(query, len(self._documents))
        if number == len(self._documents):
            self._documents.append(0)
        self._documents[number] += 1
        return [number, self._documents[number] - 1]


def problem_class(path: Path) -> type[Problem]:
    """Makes the class of the problem that a file declares.

    Raises:
      RegistryError: the declaration says something wrong; names the file, the line and the key.
    """
    made = _class_of(json.dumps(content_of(path)), path)
    check_names(made.declaration, path)
    return made


def problem_of(content: Mapping[str, Any], path: Path) -> Problem:
    """Makes the problem of a declaration that need not be saved yet.

    Args:
      content: of the declaration.
      path: where it would be saved.

    Raises:
      RegistryError: it says something wrong.
    """
    made = _class_of(json.dumps(content), path)
    check_names(made.declaration, path)
    return made(reverse=False, copy=False)


def _made_again(path: str, content: str, reverse: bool, copy: bool) -> Problem:
    """Makes a problem that was pickled."""
    return _class_of(content, Path(path))(reverse=reverse, copy=copy)


@functools.lru_cache(maxsize=256)  # What is said the same is the same class.
def _class_of(content: str, path: Path) -> type[FromJson]:
    said = json.loads(content)
    declaration = Declaration.parse(said, path)
    common = {
        "__doc__": _told(declaration) or f"Declared in {path}.",
        "__module__": __name__,
        "name": declaration.problem,
        "declaration": declaration,
        "declared_in": path,
        "said": content,
    }
    name = f"Declared_{declaration.problem}"
    if declaration.kind == MIXTURE:
        attributes = {**common, **_mixture(declaration, path)}
        return type(name, (DeclaredMixture,), attributes)
    if declaration.kind not in KINDS:
        what = (
            f"there is no kind {declaration.kind!r}.{nearest(declaration.kind, (*KINDS, MIXTURE))}"
        )
        raise mistake(path, "kind", what)
    kind = KINDS[declaration.kind]
    family = kind.family_class()
    attributes = {**common, **attributes_of(declaration, path, kind, family)}
    attributes |= declared_settings(said, family)
    return cast("type[FromJson]", type(name, (DeclaredProblem, family), attributes))


def _told(declaration: Declaration) -> str:
    """What a declaration tells its readers."""
    told = {"Source": declaration.source, "Licence": declaration.licence}
    lines = [declaration.description, *(f"{key}: {said}" for key, said in told.items() if said)]
    return "\n".join(line for line in lines if line)


def _mixture(declaration: Declaration, path: Path) -> dict[str, Any]:
    """The class attributes of a mixture."""
    known = ("problem", "kind", "description", "source", "licence", "problems", "schedule")
    for key in declaration.model_fields_set - {*known, "model", "hparams_set"}:
        raise mistake(path, key, f"a mixture has no data of its own.{nearest(key, known)}")
    for key in ("problems", "schedule"):
        if not getattr(declaration, key):
            raise mistake(path, key, "is missing; a mixture needs it.")
    try:
        MixingSchedule.parse(str(declaration.schedule), len(declaration.problems))
    except DataError as error:
        raise mistake(path, "schedule", str(error)) from None
    flags_said = declaration.model or declaration.hparams_set  # else the first problem's
    return {
        "problem_names": declaration.problems,
        "mixing_schedule": declaration.schedule,
        **(suggested(declaration, MixtureProblem) if flags_said else {}),
    }
