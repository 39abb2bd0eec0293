"""Rows to samples, as a declaration says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_torch.declaration import values as value_conversion
from t2t_torch.declaration.kinds import Kind, Value
from t2t_torch.declaration.schema import Column, Declaration, nearest
from t2t_torch.declaration.values import MissingColumnError, UnfitError, converted, picked
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.text.tree import parse_tree


class SampleMaker:
    """Makes samples of rows.

    Args:
      declaration: what says it.
      kind: its kind.
      columns: by field of a sample, where it is.
      sizes: by field of numbers, how many there are to be.
    """

    def __init__(
        self,
        declaration: Declaration,
        kind: Kind,
        columns: Mapping[str, Column],
        sizes: Mapping[str, int],
    ) -> None:
        self._kind = kind
        self._labels = frozenset(declaration.labels)
        self._sizes = sizes
        assert declaration.files is not None
        files = declaration.files
        self._parts = [(split, files.of(split).part) for split in files.splits]
        self._split_by = declaration.split_by
        beside = declaration.features
        fields = {field: kind.fields[field] for field in columns}
        if beside.soft_labels:
            fields["targets"] = Value.PROBABILITIES
        self._fields = [(field, value, columns[field]) for field, value in fields.items()]
        if beside.gazetteer:
            self._fields.append(("gazetteer", Value.GAZETTEER, beside.gazetteer))
        if beside.dense:
            self._fields.append(("dense", Value.NUMBERS, beside.dense.column))
        if beside.weight:
            self._fields.append(("weight", Value.NUMBERS, beside.weight))
        # Most fields are texts of one column, and are taken as they are.
        self._texts = [
            (field, column, column.column[0])
            for field, value, column in self._fields
            if value is Value.TEXT and len(column.column) == 1
        ]
        texts = [field for field, *_ in self._texts]
        self._others = [one for one in self._fields if one[0] not in texts]
        aligned = (Value.TREE, Value.TAGS, Value.GAZETTEER)
        self._is_aligned = any(value in aligned for _, value, _ in self._fields)

    @property
    def columns(self) -> dict[str, Column]:
        """By field of a sample, also of what is known beside, where it is."""
        return {field: column for field, _, column in self._fields}

    def sample(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the sample of a row, by field.

        Raises:
          MissingColumnError: the row has not all columns.
          UnfitError: a value is not what its field needs; names the column.
        """
        made: dict[str, Any] = {}
        for field, column, name in self._texts:
            held = row.get(name)
            if type(held) is str and held and not held.isspace():
                made[field] = held
            else:
                self._make(made, row, field, Value.TEXT, column)
        for field, value, column in self._others:
            self._make(made, row, field, value, column)
        if self._is_aligned:
            self._check_words(made)
        if "weight" in made:
            made["weight"] = made["weight"][0]
        return made

    def _make(
        self, made: dict[str, Any], row: Mapping[str, Any], field: str, value: Value, column: Column
    ) -> None:
        """Adds a field to a sample."""
        try:
            made[field] = converted(value, picked(row, column), column)
            self._check(field, value, made)
        except MissingColumnError:
            raise
        except UnfitError as error:
            names = ", ".join(map(repr, column.column))
            told = str(error).rstrip(".")
            raise UnfitError(f"column {names} ({field!r}): {told}.") from None

    def _check(self, field: str, value: Value, made: dict[str, Any]) -> None:
        """Raises UnfitError if a value does not fit what is declared, or the other fields."""
        if self._labels and value in (Value.LABEL, Value.LABELS, Value.TAGS, Value.PROBABILITIES):
            held = made[field] if isinstance(made[field], list | dict) else [made[field]]
            unknown = next((label for label in held if label not in self._labels), None)
            if unknown is not None:
                raise UnfitError(f"{unknown!r} is no label.{nearest(unknown, self._labels)}")
        if value is Value.NUMBERS and len(made[field]) != self._sizes[field]:
            raise UnfitError(f"{len(made[field])} numbers, not {self._sizes[field]}")
        if field == "weight" and made[field][0] < 0:
            raise UnfitError(f"{made[field][0]} is no weight: it is below 0")
        if value is Value.ANSWERS:
            made[field] = value_conversion.located(made[field], made["context"])

    def _check_words(self, made: dict[str, Any]) -> None:
        """Parses trees; UnfitError unless words, tags and leaves are as many."""
        for field, value, _ in self._fields:
            if value is Value.TREE:
                try:
                    made[field] = parse_tree(made[field])
                except DataError as error:
                    raise UnfitError(f"no tree ({field!r}): {error}") from None
                leaves = made[field].words
                if made.setdefault("inputs", leaves) != leaves:
                    raise UnfitError(f"the words are not those of the tree: {' '.join(leaves)!r}.")
        for field, value, _ in self._fields:
            if value not in (Value.TAGS, Value.GAZETTEER):
                continue
            held, words = made[field], len(made["inputs"])
            count = len(held) if value is Value.TAGS else max(held, default=-1) + 1
            if count > words or (value is Value.TAGS and count < words):
                raise UnfitError(f"{words} words, but {count} in {field!r}.")
            if value is Value.GAZETTEER:
                made[field] = [held.get(place, {}) for place in range(words)]

    def split(self, row: Mapping[str, Any], sample: Mapping[str, Any]) -> Split:
        """Returns the split that a training row belongs to when a part is held out.

        It follows from what the row says alone: from what the model is given (of questions about a
        text, the text; of documents for a query, the query), or from the columns of "split_by".  So
        equal rows, and rows that would give an answer away, are never on both sides; and a row
        stays where it is when others come.

        Raises:
          MissingColumnError: the row has not all columns of "split_by".
        """
        if self._split_by:
            group = picked(row, Column(column=self._split_by))
        else:
            group = [sample[field] for field in self._kind.group]
        if not all(type(one) is str for one in group):
            held = [one.tolist() if isinstance(one, np.ndarray) else one for one in group]
            group = [json.dumps(held, sort_keys=True, default=str)]
        # A lone surrogate has no bytes of its own.
        key = "\0".join(group).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(key, digest_size=8).digest()
        share = int.from_bytes(digest, "big") / 2**64
        for split, part in self._parts:
            if share < part:
                return split
            share -= part
        return Split.TRAIN
