"""Draft of a declaration for the files of a user."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from t2t_torch import registry
from t2t_torch.declaration.columns import MAX_ROWS, FileColumns, Inspected, first_rows, inspect
from t2t_torch.declaration.files import DetectedFiles, detect_files, unpacked
from t2t_torch.declaration.problem import problem_of
from t2t_torch.declaration.proposal import CLOSE, Proposal, margin, propose
from t2t_torch.declaration.schema import USUAL_COLUMNS, Rows
from t2t_torch.errors import DataError, UsageError, listed
from t2t_torch.mode import Split
from t2t_torch.readers.detection import DetectedFormat, detect_format
from t2t_torch.readers.formats import usual_format_of
from t2t_torch.readers.head import Head
from t2t_torch.readers.spans import TOKENIZED, TOKENIZER
from t2t_torch.readers.text_file import BadRecords
from t2t_torch.text.tokenizer import tokenize, word_expression

_SAMPLES = 2
_FEW_ROWS = 500
_ALTERNATIVES = 2  # maximum alternatives that are printed
_LEAST_LIKELY = 0.45  # score of an alternative, compared to the best
_TAGGED = ("intentslot", "text2tags")
_WITHOUT_VOCAB_SIZE = (
    "intentslot text2tags text2tree spanqa image2class speech2text audio2class".split()
)


@dataclass(frozen=True)
class Draft:
    """A drafted declaration.

    Attributes:
      content: content of the declaration.
      path: suggested path; the file does not exist.
      samples: the first samples it yields.
      doubts: warnings about uncertain results, as sentences.
      notes: facts about the data, as sentences.
      alternatives: other declarations, with what they learn.
      has_bad_rows: some rows cannot be read or lack required values.
      margin: difference of the scores of the declaration and the best alternative; 1 without one.
      meaning: what the declaration learns, as a phrase.
    """

    content: Mapping[str, Any]
    path: Path
    samples: list[dict[str, Any]]
    doubts: list[str]
    notes: list[str]
    alternatives: list[tuple[str, Mapping[str, Any]]]
    has_bad_rows: bool
    margin: float = 1.0
    meaning: str = ""

    @property
    def is_unsure(self) -> bool:
        """True if an alternative is as likely."""
        return self.margin < CLOSE

    @property
    def choices(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The declaration and its alternatives, with what they learn."""
        return [(self.meaning or str(self.content["kind"]), self.content), *self.alternatives]


def text_of(content: Mapping[str, Any]) -> str:
    """Returns a declaration as JSON, with one line per key."""
    lines = [f"  {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in content.items()]
    return "{\n" + ",\n".join(lines) + "\n}"


def draft(path: Path, choice: int = 1) -> Draft:
    """Inspects a file or folder, and drafts a declaration.

    Args:
      path: the file or folder.
      choice: number of the problem, of the likely ones; of those after the first, no alternatives
        are drafted.

    Raises:
      DataError: it cannot be read, or no problem can be inferred.
      UsageError: there is no such choice.
    """
    path, unpacking = unpacked(path)
    found = detect_files(path)
    inspected = found.file("train")
    of_lines = DetectedFormat("lines") if found.is_parallel else None
    detected = found.format or of_lines or detect_format(inspected)
    table = inspect(inspected, of_lines or detected)
    found, table = _by_column(found, detected, table)
    best, *others = _of_parallel(found) if found.is_parallel else _proposals(table)
    likely = [best, *(one for one in others if one.score >= _LEAST_LIKELY * best.score)]
    likely = likely[: 1 + _ALTERNATIVES]
    if not 1 <= choice <= len(likely):
        named = [f"{number} ({one.explained})" for number, one in enumerate(likely, 1)]
        raise UsageError(f"{path} has no problem {choice}; choose {' or '.join(named)}.")
    best, others = likely[choice - 1], others if choice == 1 else []
    fitting, unfit = _fitting(found, detected, best, table)
    content = _content(fitting, detected, best, table)
    beside = _absent(found.folder, content["problem"])
    closeness = margin([best, *others])
    notes = [*unpacking, *unfit, *_unused(table, best)]
    doubts = [*found.doubts, *detected.doubts]
    if closeness < CLOSE:
        rival = others[0].meaning
        doubts.append(f"another problem is as likely: {rival}. It is the first alternative.")
    doubts += best.doubts
    doubts += _of_empty_and_nested(table, best)
    (doubts if table.bad.count * 10 > table.rows else notes).extend(_of_rows(table))
    if "eval" not in fitting.files:
        try:
            chosen = _of_held_out(content, beside, found.folder, best.filled_rows(table), notes)
            notes.append(f"no evaluation file was found: {chosen}; equal texts stay together.")
        except DataError as error:
            doubts.append(f"no evaluation file was found: {error}")
    problem, samples = _samples(content, beside, found.folder)
    first = list(itertools.islice(samples, _SAMPLES))
    for _ in itertools.islice(samples, _FEW_ROWS):
        pass  # its report of bad rows is used below
    bad = table.bad.count or problem.bad_records.count or best.lacks(table)
    alternatives: list[tuple[str, Mapping[str, Any]]] = []
    for other in likely[1:] if choice == 1 else ():
        files, _ = _fitting(found, detected, other, table)
        alternatives.append((other.explained, _content(files, detected, other, table)))
    return Draft(
        content, beside, first, doubts, notes, alternatives, bool(bad), closeness, best.explained
    )


def _by_column(
    found: DetectedFiles, detected: DetectedFormat, table: FileColumns
) -> tuple[DetectedFiles, FileColumns]:
    """Returns a single file's splits by a column that names them, and its training rows."""
    if len(found.files) > 1:
        return found, table
    named = next((one for one in table if one.splits), None)
    if table.rows == MAX_ROWS and named is None:  # the splits may be sorted
        names = [one.name for one in table if one.is_named("split splits set subset partition")]
        every = first_rows(found.file("train"), detected, BadRecords("skip"), None) if names else []
        whole = (Inspected(name, [row.get(name) for row in every]) for name in names)
        named = next((one for one in whole if one.splits), None)
    if named is None:
        return found, table
    by_split = {split: values for split, values in named.splits.items() if split}
    path = found.files["train"]
    files = {
        split: {"path": path, "where": {named.name: values[0] if len(values) == 1 else values}}
        for split, values in by_split.items()
    }
    parts = (f"{s or 'not read'}: {', '.join(values)}" for s, values in named.splits.items())
    doubt = f"the split of each row is its {named.name!r} ({'; '.join(parts)})."
    kept = [str(value) in by_split["train"] for value in table.columns[named.name].rows]
    kept = kept if any(kept) else [True] * table.rows  # it begins with another split
    columns = {
        name: Inspected(name, list(itertools.compress(one.rows, kept)))
        for name, one in table.columns.items()
    }
    found = replace(found, files=files, doubts=[*found.doubts, doubt])
    return found, replace(table, columns=columns, rows=sum(kept))


_MOST_LABELS = 200


def _of_parallel(found: DetectedFiles) -> list[Proposal]:
    """Returns the proposals of parallel files: labels of texts if few lines repeat, else texts."""
    train = found.files["train"]
    assert not isinstance(train, str)
    lines = Head(found.folder / train["targets"]).full_lines
    are_labels = len(set(lines)) <= min(_MOST_LABELS, len(lines) / 3)
    kinds = ("text2class", "text2text") if are_labels else ("text2text",)
    return [Proposal(kind, score=1 - n / 2) for n, kind in enumerate(kinds)]


def _proposals(table: FileColumns) -> list[Proposal]:
    """Returns the ranked proposals of a table.

    Raises:
      DataError: there is none.
    """
    _check_no_word_rows(table)
    if ranked := propose(table):
        return ranked
    if len(table.columns) == 1 and all(one.is_list for one in table):
        raise DataError("There is one column, where words and tags were expected.")
    raise DataError(
        f"There is no column of texts among its columns ({listed(table.columns)}), so "
        "no declaration is drafted. Write it by hand: see docs/tutorials/own_data.md."
    )


_WORD_NAMES = "word words token tokens"
_TAG_NAMES = "tag tags ner pos label iob bio"


def _check_no_word_rows(table: FileColumns) -> None:
    """Raises DataError if each row is a word and its tag, without sentences."""
    plain = [one for one in table if one.is_plain]
    words = [one for one in plain if one.is_named(_WORD_NAMES) and one.mean_words < 1.2]
    tags = [one for one in plain if one.is_named(_TAG_NAMES) and one.repeats]
    if not words or not tags or any(one.mean_words > 3 for one in plain):
        return
    word, tag = words[0].name, tags[-1].name
    how = "Add a column with the number of each row's sentence."
    if sentence := next((one.name for one in plain if one.is_named("sentence sent id")), ""):
        how = (
            f"Group the rows with pandas:\n  df.groupby({sentence!r}, sort=False)[[{word!r}, "
            f"{tag!r}]].agg(list).to_json('sentences.jsonl', orient='records', lines=True)"
        )
    raise DataError(
        f"each row is one word ({word!r}) with its tag ({tag!r}), not a sentence. {how}"
    )


def _unused(table: FileColumns, made: Proposal) -> Iterable[str]:
    """Yields notes on empty values of the used columns, and one on the unused columns."""
    used = {list(table.columns)[-1] if name == "-1" else name for name in made.columns}
    unused = []
    for name, one in table.columns.items():
        if name in used:
            if one.empty:
                yield f"column {name!r} is empty in {one.empty:,} of {table.rows:,} rows."
        elif made.fields and not any(isinstance(value, Mapping) for value in one.values):
            why = _why_not(one, table).replace("NAME", name)
            unused.append((repr(name), f" ({why})" if why else ""))
    if unused:
        few = len(unused) <= 6
        yield f"unused columns: {listed(name + why * few for name, why in unused)}."


def _of_empty_and_nested(table: FileColumns, made: Proposal) -> Iterator[str]:
    """Yields warnings about targets that are mostly empty, and objects that are not read."""
    target = made.fields.get("targets")
    for name, one in table.columns.items():
        if name == target and one.empty * 2 > table.rows:
            yield f"the target {name!r} is empty in most rows."
        held = [
            part for value in one.values[:_FEW_ROWS] if isinstance(value, list) for part in value
        ]
        if name in made.columns or not held:
            continue
        if any(isinstance(part, Mapping) for part in held):
            yield f"{name!r} holds lists of objects, of which nothing is used."
        elif sum(" " in str(part) for part in held) * 2 > len(held):
            yield f"{name!r} holds lists of texts, which are not used."


def _why_not(one: Inspected, table: FileColumns) -> str:
    """Returns why a column is unused, "" if only its kind is; NAME stands for its name."""
    first, other = next(iter(one.values), ""), table.derived.get(one.name)
    all_differ = one.is_identity and one.distinct == len(one.values)
    is_quantity = one.is_number and not one.is_named("unnamed id uuid guid index key")
    reasons = {
        "empty": not one.values,
        "dates": one.is_date,
        f"not plain numbers, such as {first!r}; write 1234.5": one.is_money,
        'all values differ; to predict it: "targets": "NAME" of "text2real"': all_differ
        and is_quantity,
        "all values differ": all_differ,
        "names of splits": one.splits,
        "an identifier, by its name": one.is_identity,
        f"{first!r} in every row": one.is_plain and one.distinct == 1,
        "addresses or paths": one.is_address,
        f"follows from {other!r}": other,
        "metadata of the row, by its name": one.is_about_rows,
        "nearly the same words in every row": one.boilerplate > 0.5,
        'numbers; "features": {"dense": ["NAME"]} makes them inputs': one.is_number
        and not one.label,
        f"{one.distinct} labels": one.label > 0.5,
        "text": one.text > 0.2,
    }
    return next((why for why, holds in reasons.items() if holds), "")


_WORDS = 20_000  # words from which a tokenizer is chosen
_WHOLE = 0.95  # minimum fraction of them that it must not split


def _of_words(made: Proposal, table: FileColumns, format_name: str) -> dict[str, Any]:
    """Returns the features of words, and the tokenizer for texts in place of words."""
    if made.kind not in _TAGGED:
        return {}
    inputs = made.fields["inputs"]
    words = table.columns[inputs["column"] if isinstance(inputs, dict) else inputs].tokens
    tokenizer = TOKENIZER if format_name in TOKENIZED else _tokenizer(words)
    settings = {"settings": {"tokenizer": tokenizer}} if tokenizer else {}
    # The model then reads unknown words, and words that occur once, by their characters.
    return {"features": {"characters": 12, "shape": True}, **settings}


def _tokenizer(words: Sequence[Sequence[str] | None]) -> str:
    """Returns the tokenizer that splits the fewest words; "" if it splits too many."""
    taken = list(itertools.islice((word for row in words for word in row or ()), _WORDS))
    whole = {
        name: sum(len(tokenize(word, word_expression(name))) == 1 for word in taken)
        for name in ("words", "clitics", "punctuation")
    }
    best = max(whole, key=whole.__getitem__)
    return best if taken and whole[best] >= _WHOLE * len(taken) else ""


def _samples(
    content: Mapping[str, Any], path: Path, folder: Path
) -> tuple[Any, Iterator[dict[str, Any]]]:
    """Returns the problem of a declaration, and its training samples without bad rows."""
    problem: Any = problem_of(content, path)
    problem.bad_records = BadRecords("skip")
    problem.prepare(folder)
    return problem, problem.generate_samples(folder, Split.TRAIN)


def _of_held_out(
    content: Mapping[str, Any], path: Path, folder: Path, rows: int, notes: list[str]
) -> str:
    """Returns which of the training rows are held out; adds notes about their labels.

    Raises:
      DataError: none can be held out.
    """
    part = content["files"]["eval"]
    if isinstance(part, float):
        return f"{part:.0%} of the training rows are held out, chosen by a hash of their content"
    problem, _ = _samples(content, path, folder)
    problem.sample_maker.say = notes.append
    count = sum(1 for _ in problem.generate_samples(folder, Split.EVAL))
    chosen = f"{count:,} of the {rows:,} training rows are held out"
    shares = ", with the same shares of the labels" if problem.sample_maker.labelled else ""
    return chosen + shares


def _fitting(
    found: DetectedFiles, detected: DetectedFormat, made: Proposal, table: FileColumns
) -> tuple[DetectedFiles, list[str]]:
    """Leaves out splits without the used columns, or without labels, such as a test set."""
    files, messages = dict(found.files), []
    target = made.fields.get("targets")
    for split in ("eval", "test"):
        name = files.get(split)
        if name is None or not (made.fields or found.is_parallel):
            continue
        if isinstance(name, dict) and "targets" in name:
            if not Head(found.folder / name["targets"]).full_lines:
                messages.append(f"{name['targets']} is not used: all of its lines are empty.")
                del files[split]
            continue
        source, most = Rows.model_validate(name), _FEW_ROWS if isinstance(name, str) else MAX_ROWS
        rows = first_rows(found.file(split), detected, BadRecords("skip"), most)
        rows = list(filter(source.holds, rows))
        missing = sorted(made.columns - {"-1"} - set(rows[0] if rows else ()))
        why = f"it has no column {', '.join(map(repr, missing))}" if missing else ""
        if not missing and isinstance(target, str) and target in table.columns:
            held = {str(row.get(target)) for row in rows}
            if len(held) == 1 and not held & table.columns[target].counts.keys():
                why = f"{target!r} is {held.pop()!r} in all of its rows, so it has no labels"
        if why:
            messages.append(f"{name if isinstance(name, str) else split} is not used: {why}.")
            del files[split]
    return replace(found, files=files), messages


def _content(
    found: DetectedFiles, detected: DetectedFormat, made: Proposal, table: FileColumns
) -> dict[str, Any]:
    files: dict[str, Any] = dict(found.files)
    if "eval" not in files:
        # From 10 to 20 % of few rows, aiming at 200.
        rows = made.filled_rows(table)
        number = max(1, round(min(max(200, 0.1 * rows), 0.2 * rows)))
        files["eval"] = 0.05 if rows >= 20_000 else {"rows": number}
    content: dict[str, Any] = {
        "problem": _free_name(found.name),
        "kind": made.kind,
        "files": {split: files[split] for split in ("train", "eval", "test") if split in files},
    }
    if not found.is_parallel and usual_format_of(found.file("train")) != detected.format:
        content["format"] = detected.format
    if detected.options:
        content["options"] = dict(detected.options)
    usual = USUAL_COLUMNS.get((detected.format, made.kind))
    if made.fields and (made.fields != usual or detected.format == "bio"):
        content["fields"] = dict(made.fields)
    if made.kind not in _WITHOUT_VOCAB_SIZE:
        content |= _vocabulary(made, table)
    return {**content, **made.more, **_of_words(made, table, detected.format)}


_VOCAB_SIZES = (400, 8000)
_SHORT = 30, 2.5  # characters and words of texts that are read by characters, such as names


def _vocabulary(made: Proposal, table: FileColumns) -> dict[str, Any]:
    """Returns the vocabulary: a piece for each word that repeats, as others are known by heart.

    Texts as short as names are read by characters.
    """
    used = [table.columns[name] for name in made.columns or table.columns if name in table.columns]
    texts = [one for one in used if one.is_plain and (one.text or len(table.columns) == 1)]
    texts = [one for one in texts if one.name != made.fields.get("targets")] or texts
    words = Counter(word for one in texts for row in one.tokens for word in row or ())
    letters = len({letter for word in words for letter in word})
    characters = max((one.mean_characters for one in texts), default=_SHORT[0])
    is_short = all(one.mean_words < _SHORT[1] for one in texts) and characters < _SHORT[0]
    if made.kind != "text2self" and texts and is_short and letters < _VOCAB_SIZES[0]:
        return {"vocab_type": "character"}
    repeated = sum(count > 1 for count in words.values())
    size = max(repeated, letters + 100, _VOCAB_SIZES[0])
    return {"vocab_size": min(_VOCAB_SIZES[1], 100 * round(size / 100))}


def _free_name(name: str) -> str:
    """Returns a name that no other problem has."""
    taken = set(registry.list_names("problem"))
    name = re.sub(r"(_rev|_copy)+$", "", name) or "mine"
    for candidate in (name, f"my_{name}", *(f"my_{name}{n}" for n in range(2, 100))):
        if candidate not in taken:
            return candidate
    return name


def _absent(folder: Path, name: str) -> Path:
    """Returns an unused path for a declaration in a folder."""
    stems = itertools.chain((name, f"{name}_problem"), (f"{name}_{n}" for n in itertools.count(2)))
    return next(path for path in (folder / f"{s}.json" for s in stems) if not os.path.lexists(path))


def _of_rows(table: FileColumns) -> list[str]:
    messages = []
    if table.bad.count:
        messages.append(
            f"rows that cannot be read: {table.bad.count:,}, the first: "
            f"{table.bad.listed[0].rstrip('.')}. Correct them, or skip them with "
            "--on_bad_record=skip."
        )
    if table.rows == MAX_ROWS:
        messages.append(f"only the first {MAX_ROWS:,} rows were inspected.")
    return messages
