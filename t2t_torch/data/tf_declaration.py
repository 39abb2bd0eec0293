"""A guess at the problem that tensor2tensor's records are of, for who has not declared it yet."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_torch.data.segments import SUFFIX
from t2t_torch.data.tf_example import Values, int64_rows, parse_example
from t2t_torch.data.tf_shards import find_shards, vocabularies
from t2t_torch.data.tfrecord import read_records
from t2t_torch.errors import DataError
from t2t_torch.text.byte import ByteEncoder

_MAX_READ = 10_000  # records of each split
_TARGETS = ("targets", "label")
_NO_INPUTS = [0]  # what tensor2tensor stores as the inputs of a language model, when it packs


def declaration_of(source: Path, name: str) -> str:
    """Returns a declaration, in JSON, that fits the records of a data set.

    Raises:
      DataError: there are no records of this name, or they are of nothing that can be declared.
    """
    shards = find_shards(source, name)
    examples = [example for files in shards.values() for example in _first_examples(files)]
    names = set().union(*examples)
    key = next((key for key in _TARGETS if key in names), None)
    if not examples or key is None or any(name.startswith("image/") for name in names):
        there = ", ".join(sorted(names)) or "nothing"
        raise DataError(
            f"The records of {name!r} in {source} hold {there}; only those with inputs of ids, and "
            "'targets' or 'label', can be taken over. Make the data anew with t2t-datagen."
        )
    targets = [example[key] for example in examples if key in example]
    has_inputs = any(
        values.to_list() != _NO_INPUTS for example in examples if (values := example.get("inputs"))
    )
    declared = {"problem": name, **_kind(targets, names, has_inputs=has_inputs)}
    ending = ".txt" if declared["kind"] == "text2self" else ".jsonl"
    files = {split.name.lower(): split.value + ending for split in shards}
    declared["files"] = {"train": "", "eval": f"dev{ending}", **files}
    declared |= _vocabulary(source, name, examples)
    return json.dumps(declared, indent=2, ensure_ascii=False)


def _first_examples(files: Sequence[Path]) -> list[dict[str, Values]]:
    examples: list[dict[str, Values]] = []
    for file in files:
        for records in read_records(file):
            for index, content in enumerate(records.contents):
                try:
                    examples.append(parse_example(content))
                except ValueError as error:
                    raise DataError(f"{records.place(index)}: {error}.") from None
            if len(examples) >= _MAX_READ:
                return examples
    return examples


def _kind(targets: Sequence[Values], names: set[str], *, has_inputs: bool) -> dict[str, Any]:
    if not has_inputs:
        return {"kind": "text2self"}
    if targets[0].kind == "float":
        size = len(targets[0].to_list())
        return {"kind": "text2real", **({"settings": {"target_size": size}} if size > 1 else {})}
    if "context" in names:
        return {"kind": "questioncontext2text"}
    rows = int64_rows([values.packed for values in targets])
    if (rows.lengths == 1).all() and f"targets{SUFFIX}" not in names:
        labels = [str(number) for number in range(int(rows.values.max()) + 1)]
        return {"kind": "text2class", "labels": labels}
    return {"kind": "text2text"}


def _vocabulary(
    source: Path, name: str, examples: Sequence[Mapping[str, Values]]
) -> dict[str, Any]:
    """What the declaration says of the vocabulary, so that its file is the one that is there."""
    kinds = {"subwords": "subword", "tokens": "token"}
    others = []
    for file in vocabularies(source):
        if match := re.fullmatch(r"vocab\.(.+)\.(\d+)\.(subwords|tokens)", file):
            if match[1] == name:
                return {"vocab_type": kinds[match[3]], "vocab_size": int(match[2])}
            others.append(match[1])
    ids = [
        int(np.max(int64_rows([values.packed]).values))
        for example in examples
        for key, values in example.items()
        if key in ("inputs", "targets") and values.kind == "int64" and not values.is_empty
    ]
    if max(ids, default=0) < ByteEncoder().vocab_size:
        return {"vocab_type": "character"}
    return {"use_vocab_from_other_problem": others[0]} if others else {}
