"""Readers of JSON: one object per line, one array of objects, or SQuAD."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from t2t_torch.errors import DataError, listed
from t2t_torch.files import unique_keys
from t2t_torch.readers.head import MAX_HEAD_LINES, SURE, Head, Match
from t2t_torch.readers.text_file import BadRecords, Place, Record, TextFile, read_whole
from t2t_torch.registry import register_reader

SURROGATE = "a lone surrogate (\\ud800 to \\udfff), which is no text"
"""Error message for a record with a lone surrogate."""

_KINDS = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}


def _match_jsonl(head: Head) -> Match | None:
    if not head.full_lines:
        return None
    objects = sum(isinstance(value, dict) for value in head.json_lines)
    if objects < SURE * len(head.full_lines):
        return Match(0.3) if head.has_ending(".jsonl", ".ndjson") else None
    if objects == 1 and not head.has_ending(".jsonl", ".ndjson"):
        # One row, unless the object holds the rows.
        is_row = not all(isinstance(value, dict | list) for value in head.json_lines[0].values())
        return Match(0.6) if is_row else None
    return Match(0.9)


@register_reader("jsonl", matches=_match_jsonl, endings=(".jsonl", ".ndjson"))
def read_jsonl(path: Path, bad: BadRecords, *, encoding: str = "") -> Iterator[Record]:
    r"""Yields the objects of a file, one per line, by key; the values are JSON's.

    Nested values are included under keys joined by dots: `{"a": {"b": 1}}` has the values "a" and
    "a.b", unless a key of that name exists.  Blank lines are skipped.  Bad records are invalid JSON
    (including NaN and Infinity), values that are not objects, duplicate keys, and lone surrogates
    ("\ud800"), which are not valid text.

    Args:
      path: the file, gzip-compressed or not.
      bad: policy for bad lines.
      encoding: the file's, empty for UTF-8.

    Raises:
      DataError: the file cannot be read.
    """
    decoder = json.JSONDecoder(object_pairs_hook=unique_keys, parse_constant=_refuse_constant)
    for number, line in TextFile(path, bad, encoding):
        if line is None or not line.strip(" \t\r\n"):
            continue
        try:
            values = decoder.decode(line)
            if "\\u" in line:
                json.dumps(values, ensure_ascii=False).encode()
        except json.JSONDecodeError as error:
            # JSON reports an error at the end of the line as one of the next line.
            column = min(error.pos, len(line.rstrip("\r\n"))) + 1
            bad.report(Place(path, number, column), f"no JSON: {error.msg}")
        except UnicodeEncodeError:
            bad.report(Place(path, number), SURROGATE)
        except ValueError as error:
            bad.report(Place(path, number), f"no JSON: {error}")
        except RecursionError:
            bad.report(Place(path, number), "nested too deeply")
        else:
            if isinstance(values, dict):
                yield Record(Place(path, number), with_dotted(values))
            else:
                bad.report(Place(path, number, 1), _no_object(values))


_NO_ROWS = (
    "is JSON, but neither of SQuAD's form, nor an array of objects, nor one object on each line. "
    "Write one object on each line, as data frames do:  to_json(..., orient='records', lines=True)"
)


def _match_json(head: Head) -> Match | None:
    if not head.full_lines or not head.full_lines[0].lstrip("\ufeff \t").startswith(("{", "[")):
        return None
    if head.json is None:
        if head.json_lines or not head.has_ending(".json"):
            return None
        try:
            load_json(head.path, head.encoding)
        except DataError as error:
            return Match(0.3, refusal=str(error))
    records, rows = array_in(head.json)
    if sum(isinstance(row, dict) for row in rows) >= SURE * len(rows) > 0:
        return _of_arrays(head.json, records)
    if rows_of_table(head.json):
        return Match(0.9, doubts=["the file is read as a table, not as an array."])
    records, rows = array_in(
        head.json,
        lambda row: isinstance(row, list) and len(row) > 1 and any(isinstance(x, str) for x in row),
    )
    if rows:
        match = _of_arrays(head.json, records)
        doubt = "each row is a list; its columns are numbers from 0."
        return match._replace(doubts=[*match.doubts, doubt])
    return Match(0.5, refusal=f"{head.path} {_NO_ROWS}")


_DEEPEST = 3  # objects around an array of rows
_MOST_ARRAYS = 100  # that are read together
_ALIKE = 0.6  # least part of the keys of their first rows that they share


def array_in(
    loaded: Any, is_row: Callable[[Any], bool] = lambda row: isinstance(row, dict), depth: int = 0
) -> tuple[str, list[Any]]:
    """Returns the longest array of rows in a JSON value, and the keys that lead to it.

    Args:
      loaded: content of a JSON file.
      is_row: returns whether a value is a row; nearly all of the array are.
      depth: number of objects around the value.
    """
    if isinstance(loaded, list):
        good = sum(map(is_row, loaded[:MAX_HEAD_LINES]))
        return "", loaded if loaded and good >= SURE * len(loaded[:MAX_HEAD_LINES]) else []
    best: tuple[str, list[Any]] = ("", [])
    if isinstance(loaded, dict) and depth < _DEEPEST:
        for key, value in loaded.items():
            inner, rows = array_in(value, is_row, depth + 1)
            if len(rows) > max(1, len(best[1])) and "." not in key:
                best = f"{key}.{inner}" if inner else key, rows
    return best


def rows_in(head: Head, is_row: Callable[[Any], bool]) -> tuple[Sequence[Any], dict[str, str]]:
    """Returns the values of the lines, or of the longest array of rows, and its option.

    There are none unless nearly all of the first ones are rows.
    """
    has_lines = len(head.json_lines) > 1 or head.json is None
    records, rows = array_in([*head.json_lines] if has_lines else head.json, is_row)
    return rows, {"records": records} if records else {}


KEY = "_key"
"""Column of the key of a row's array, if the rows of several are read."""


def _of_arrays(loaded: Any, records: str) -> Match:
    """Returns the match of the array at keys, and of all arrays beside it with like rows."""
    keys, best = records.split("."), (records, [records])
    for n in range(len(keys)):
        for m in range(n + 1, len(keys) + 1):
            option = ".".join([*keys[:n], *"*" * (m - n), *keys[m:]])
            found = {name: rows for name, rows in _arrays(loaded, option) if rows}
            names = [{*rows[0]} for rows in found.values() if isinstance(rows[0], dict)]
            sizes = {len(rows[0]) for rows in found.values() if isinstance(rows[0], list)}
            alike = all(len(one & names[0]) >= _ALIKE * len(one | names[0]) for one in names)
            is_one_kind = len(names) == len(found) or (not names and len(sizes) == 1)
            if _MOST_ARRAYS >= len(found) > len(best[1]) and alike and is_one_kind:
                best = option, [*found]
    option, at = best
    doubts = [f"the rows are the array at the key {records!r}."] if records else []
    if at[1:]:
        doubts = [f"the rows are the arrays at {listed(at)}; the column {KEY!r} has the key."]
    return Match(0.9, {"records": option} if option else {}, doubts)


def _arrays(loaded: Any, records: str, named: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Yields the arrays at keys joined by dots, where "*" is any key, with the keys that it is."""
    key, _, rest = records.partition(".")
    if not records and isinstance(loaded, list):
        yield named, loaded
    elif records and isinstance(loaded, dict):
        for name in loaded if key == "*" else [key]:
            inner = ".".join(filter(None, [named, name])) if key == "*" else named
            yield from _arrays(loaded.get(name), rest, inner)


def raw_rows(
    path: Path, bad: BadRecords, records: str = "", encoding: str = ""
) -> Iterator[tuple[Place, Any]]:
    """Yields the values of an array, or those of the lines, with their places.

    Raises:
      DataError: the file cannot be read, or has no array.
    """
    lines = ((n, line) for n, line in TextFile(path, bad, encoding) if line and line.strip())
    heads = list(itertools.islice(lines, 2))
    if not heads:
        return
    lined = any(ending in path.name for ending in (".jsonl", ".ndjson"))
    with contextlib.suppress(ValueError):  # or else the first lines are one JSON value each
        values = [json.loads(line) for _, line in heads]
        lined = lined or len(values) > 1 or isinstance(values[0], dict)
    if lined and not records:
        for number, line in itertools.chain(heads, lines):
            try:
                yield Place(path, number), json.loads(line)
            except ValueError as error:
                bad.report(Place(path, number), f"no JSON: {error}")
        return
    found = dict(_arrays(load_json(path, encoding), records))
    if not found:
        raise DataError(f"{path}: there is no array of annotated texts at {records or 'its top'}.")
    for number, row in enumerate(itertools.chain.from_iterable(found.values()), 1):
        yield Place(path, number, unit="object"), row


@register_reader("json", matches=_match_json)
def read_json(
    path: Path, bad: BadRecords, *, records: str = "", encoding: str = ""
) -> Iterator[Record]:
    """Yields the objects of a JSON array, or the rows of a JSON table; loads the file into memory.

    A table has the form of pandas' `to_json` (orient "columns", "index" or "split") or is an object
    of lists of one length, as `to_dict` of a Hugging Face dataset.

    Keys and values are those of `read_jsonl`, except that NaN is an empty value.  If the first
    element is a list, as in `[["a text", "label"], ...]`, elements are lists as long, and the keys
    are "0", "1" and so on.  A place holds the number of the element, from 1.  Elements that are not
    of this form, or with a lone surrogate, are bad.

    Args:
      path: the file, gzip-compressed or not.
      bad: policy for bad elements.
      records: the key of the array if it is in an object, such as "data" or "data.rows"; "*" is any
        key, which the column `KEY` then holds.
      encoding: the file's, empty for UTF-8.

    Raises:
      DataError: the file cannot be read, or is neither a JSON array nor a table.
    """
    loaded = load_json(path, encoding)
    if not records:
        loaded = rows_of_table(loaded) or loaded
    found = dict(_arrays(loaded, records))
    if not found:
        where = (
            f"there is no array at the key {records!r}" if records else "not an array of objects"
        )
        raise DataError(
            f"{path}: {where}: [{{...}}, ...]. The format jsonl reads one object on each line, the "
            "format squad the form of SQuAD; the option records names the key of an array in an "
            "object."
        )
    first = next(itertools.chain.from_iterable(found.values()), None)
    width = len(first) if isinstance(first, list) else 0
    held = ((key, values) for key, rows in found.items() for values in rows)
    for number, (key, values) in enumerate(held, 1):
        place = Place(path, number, unit="object")
        if width and isinstance(values, list) and len(values) == width:
            values = dict(zip(map(str, range(width)), values, strict=True))
        if not isinstance(values, dict):
            bad.report(place, _no_object(values))
            continue
        try:
            json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            bad.report(place, SURROGATE)
        else:
            yield Record(place, with_dotted({KEY: key, **values} if key else values))


_FEWEST_ROWS = 10  # of an object of objects


def rows_of_table(loaded: Any) -> list[dict[str, Any]]:
    """Returns the rows of a table by columns, by index or as lists; empty if it is none.

    Args:
      loaded: content of a JSON file.
    """
    if not isinstance(loaded, dict) or not loaded:
        return []
    if {"columns", "data"} <= loaded.keys() <= {"columns", "data", "index", "schema"}:
        names, rows = loaded["columns"], loaded["data"]
        is_table = isinstance(names, list) and isinstance(rows, list)
        if is_table and all(isinstance(row, list) and len(row) == len(names) for row in rows):
            return [dict(zip(map(str, names), row, strict=True)) for row in rows]
        return []
    columns = list(loaded.values())
    if all(isinstance(one, list) and len(one) == len(columns[0]) > 1 for one in columns):
        is_array = any(isinstance(value, dict) for one in columns for value in one)
        rows = zip(*columns, strict=True)
        return [] if is_array else [dict(zip(loaded, row, strict=True)) for row in rows]
    if not all(isinstance(one, dict) and one.keys() == columns[0].keys() for one in columns):
        return []
    if len(columns[0]) > 1 and all(map(str.isdecimal, columns[0])):
        return [{name: column[row] for name, column in loaded.items()} for row in columns[0]]
    if all(map(str.isdecimal, loaded)):
        return columns
    are_rows = len(columns) >= _FEWEST_ROWS and "index" not in columns[0]
    return [{"index": name, **row} for name, row in loaded.items()] if are_rows else []


def load_json(path: Path, encoding: str = "") -> Any:
    """Loads a JSON file, compressed or not.

    Raises:
      DataError: it cannot be read, is not UTF-8, or is not JSON.
    """
    text = read_whole(path, encoding)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{Place(path, error.lineno, error.colno)}: no JSON: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise DataError(f"{path} is no JSON that can be read: {error}") from None


def _no_object(value: Any) -> str:
    return f"{_KINDS.get(type(value), 'a number')}, where an object was expected"


def with_dotted(values: dict[str, Any]) -> dict[str, Any]:
    """Returns an object with its nested values added, under keys such as "a.b"."""
    nested = {name: value for name, value in values.items() if isinstance(value, dict)}
    if not nested:
        return values
    flat: dict[str, Any] = {}
    while nested:
        inner = {
            f"{name}.{key}": value for name, held in nested.items() for key, value in held.items()
        }
        flat.update(inner)
        nested = {name: value for name, value in inner.items() if isinstance(value, dict)}
    return {**flat, **values}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _match_squad(head: Head) -> Match | None:
    if not head.full_lines or '"paragraphs"' not in head.text:
        return None
    articles = head.json.get("data") if isinstance(head.json, dict) else None
    is_squad = isinstance(articles, list) and any("paragraphs" in one for one in articles[:1])
    return Match(1.0) if is_squad else None


@register_reader("squad", matches=_match_squad, endings=(".json",))
def read_squad(path: Path, bad: BadRecords, *, encoding: str = "") -> Iterator[Record]:
    """Yields the questions of a file of version 1.1 or 2.0, which is loaded into memory.

    A record has "id", "title", "question", "context", "is_impossible" (version 2.0; else False) and
    "answers", a list of {"text", "start"}, where "start" is a character offset in the context;
    empty if the question is impossible.  A place holds the number of the question, from 1.  A
    question is bad if a part is missing or is not text, if an answer does not occur at its offset,
    or if a possible question has no answer.

    SQuAD's JSON format.  Rajpurkar et al. 2016 and 2018.

    Args:
      path: the file, gzip-compressed or not.
      bad: policy for bad questions.
      encoding: the file's, empty for UTF-8.

    Raises:
      DataError: the file cannot be read, is not JSON, or not in SQuAD's format down to paragraphs.
    """
    for number, (title, context, question) in enumerate(_questions(path, encoding), 1):
        place = Place(path, number, unit="question")
        try:
            values = _question(title, context, question)
            json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            bad.report(place, SURROGATE)
        except ValueError as fault:
            identity = question.get("id", "?") if isinstance(question, dict) else "?"
            bad.report(place, f"(id {identity}) {fault}")
        else:
            yield Record(place, values)


def _questions(path: Path, encoding: str) -> list[tuple[Any, str, Any]]:
    """Returns the title, the context and the content of each question of a file."""
    loaded = load_json(path, encoding)
    articles = loaded.get("data") if isinstance(loaded, dict) else None
    if not isinstance(articles, list):
        raise DataError(
            f'{path} is not of SQuAD\'s form, which is {{"data": [{{"paragraphs": [{{"context": '
            '..., "qas": [...]}]}]}. '
            "A file with one object on each line is of the format jsonl, "
            "an array of objects of the format json."
        )
    questions = []
    for i, article in enumerate(articles, 1):
        where = f"{path}, article {i}"
        for j, paragraph in enumerate(_part(article, "paragraphs", list, where), 1):
            within = f"{where}, paragraph {j}"
            asked = _part(paragraph, "qas", list, within)
            context = _part(paragraph, "context", str, within)
            questions += [(article.get("title", ""), context, one) for one in asked]
    return questions


def _part(held: Any, key: str, kind: type, where: str) -> Any:
    value = held.get(key) if isinstance(held, dict) else None
    if not isinstance(value, kind):
        raise DataError(f'{where}: no {"list" if kind is list else "text"} "{key}".')
    return value


def _question(title: Any, context: str, question: Any) -> dict[str, Any]:
    if not isinstance(question, dict) or not isinstance(question.get("question"), str):
        raise ValueError('no text "question"')
    impossible = question.get("is_impossible", False)
    answers = question.get("answers", [])
    if not isinstance(impossible, bool) or not isinstance(answers, list):
        raise ValueError('"is_impossible" is not true or false, or "answers" no list')
    if not answers and not impossible:
        raise ValueError('no answer, though not "is_impossible"')
    return {
        "id": str(question.get("id", "")),
        "title": str(title),
        "question": question["question"],
        "context": context,
        "answers": [] if impossible else [_answer(context, answer) for answer in answers],
        "is_impossible": impossible,
    }


def _answer(context: str, answer: Any) -> dict[str, Any]:
    text = answer.get("text") if isinstance(answer, dict) else None
    start = answer.get("answer_start") if isinstance(answer, dict) else None
    if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
        raise ValueError('an answer without a text "text" and a number "answer_start"')
    if start < 0 or not text or not context.startswith(text, start):
        there = context[max(start, 0) : max(start, 0) + len(text)]
        raise ValueError(f"the answer {text!r} does not stand at character {start}; {there!r} does")
    return {"text": text, "start": start}
