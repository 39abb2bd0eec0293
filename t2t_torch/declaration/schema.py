"""Schema of declarations, and error messages for invalid ones."""

from __future__ import annotations

import enum
import pkgutil
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import pydantic

from t2t_torch import registry
from t2t_torch.errors import RegistryError, did_you_mean
from t2t_torch.files import read_text
from t2t_torch.mode import Split
from t2t_torch.registry import json_declaration, parse_problem_name

if TYPE_CHECKING:
    from t2t_torch.problem import Problem


LARGEST = 10_000_000
"""Maximum of any number in a declaration, such as the number of ids."""

_Text = Annotated[str, pydantic.Field(min_length=1)]

SPLITS = tuple(split.name.lower() for split in Split)


class _Part(pydantic.BaseModel):
    """Base class of a declaration's parts: read-only, no unknown keys."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


class Column(_Part):
    """Location of a sample's field in a row.

    JSON form: a column's name, its number from 0 if columns have no names ("-1" is the last), a
    list of columns, {"column": ..., "split": ","} for a list in one string, or {"column": [...],
    "one_hot": true} for labels that have a column each.

    Attributes:
      column: one column or several.
      split: separator of a list in string form, "[]" for Python or JSON notation; None: whitespace
        between words.
      join: separator inserted between the texts of several columns.
      one_hot: the columns are named after labels, and are 1 or true where the label applies.
    """

    column: tuple[str, ...]
    split: _Text | None = None
    join: str = " "
    one_hot: bool = False

    @pydantic.model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            value = {"column": value}
        names = value.get("column")
        if names is None:
            return value
        names = _listed(names)
        if not names or any(
            isinstance(name, bool) or not isinstance(name, int | str) or name == ""
            for name in names
        ):
            raise ValueError(
                "expected a column's name or number, a list of them, or "
                '{"column": ..., "split": ...}'
            )
        return {**value, "column": tuple(str(name) for name in names)}


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _are_texts(values: Collection[Any]) -> bool:
    return bool(values) and all(isinstance(one, str) and one for one in values)


def _as_text(value: Any) -> str:
    """Returns a value as CSV has it: 1 also for 1.0, true for True."""
    if isinstance(value, bool):
        return str(value).lower()
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if is_whole else value)


class Rows(_Part):
    """Source of a split's rows.

    JSON form: a path, a list of paths, {"path": ..., "where": {column: value}} for some rows of
    files, {field: path, ...} for parallel files read line by line, or a number, the fraction of the
    training rows to hold out by a hash of each; or {"rows": 200}, the number of rows to hold out,
    with the same shares of the labels and tags as in training.

    Attributes:
      paths: files, folders or patterns such as "part-*.csv".
      where: by column, the values of the rows that are read.
      parallel: by field, a path: line n of the files forms one row.
      part: fraction of the training rows, between 0 and 1.
      rows: number of training rows.
    """

    paths: tuple[str, ...] = ()
    where: Mapping[str, tuple[str, ...]] = {}
    parallel: Mapping[str, str] = {}
    part: float = 0.0
    rows: int = 0

    @property
    def is_held_out(self) -> bool:
        """True for a part of the training rows."""
        return bool(self.part or self.rows)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Returns whether a row of the files is read."""
        return all(
            name in values and _as_text(values[name]) in wanted
            for name, wanted in self.where.items()
        )

    def excludes(self, other: Rows) -> bool:
        """Returns whether no row of a file is read by both."""
        both = self.where.keys() & other.where.keys()
        return any(set(self.where[name]).isdisjoint(other.where[name]) for name in both)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if _are_texts(_listed(value)):
            return {"paths": tuple(_listed(value))}
        if isinstance(value, float | int) and not isinstance(value, bool) and 0 < value < 1:
            return {"part": float(value)}
        if isinstance(value, Mapping) and "path" in value:
            where, paths = value.get("where"), _listed(value["path"])
            listed = {k: _listed(v) for k, v in where.items()} if isinstance(where, Mapping) else {}
            held = [one for wanted in listed.values() for one in wanted]
            are_values = all(isinstance(one, str | int | float) and one == one for one in held)
            is_whole = value.keys() == {"path", "where"} and listed and all(listed.values())
            if is_whole and _are_texts(paths) and are_values:
                texts = {k: tuple(map(_as_text, v)) for k, v in listed.items()}
                return {"paths": tuple(paths), "where": texts}
        elif isinstance(value, Mapping) and _are_texts(value.values()):
            return {"parallel": value}
        rows = value.get("rows") if isinstance(value, Mapping) and len(value) == 1 else None
        if type(rows) is int and rows > 0:
            return value
        raise ValueError(
            'expected a path, a list of paths, {"path": PATH, "where": {COLUMN: VALUE}}, {field: '
            'path} of parallel files, a number between 0 and 1, or {"rows": NUMBER}, not '
            f"{value!r}"
        )


class Files(_Part):
    """The sources of each split."""

    train: Rows
    eval: Rows
    test: Rows | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _by_split(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError('expected {"train": PATH, "eval": PATH or a number such as 0.05}')
        return value

    @pydantic.model_validator(mode="after")
    def _parts(self) -> Files:
        if self.train.is_held_out:
            raise ValueError("'train' needs a path: only 'eval' and 'test' can be a part of it")
        if self.eval.part + (self.test.part if self.test else 0) >= 1:
            raise ValueError("'eval' and 'test' leave no training rows; give smaller parts")
        return self

    def of(self, split: Split) -> Rows:
        """Returns the source of an existing split."""
        rows: Rows = getattr(self, split.name.lower())
        return rows

    @property
    def splits(self) -> tuple[Split, ...]:
        """The existing splits."""
        return tuple(split for split in Split if getattr(self, split.name.lower()) is not None)


class Dense(_Part):
    """Numeric inputs of a row: one column each, or one column with a list of `size` numbers."""

    column: Column
    size: Annotated[int, pydantic.Field(ge=1, le=LARGEST)]

    @pydantic.model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return value
        return {"column": _listed(value), "size": len(_listed(value))}


class Beside(_Part):
    """Additional features of a row or its words ("features").

    Attributes:
      characters: maximum characters per word.
      bytes: maximum bytes per word.
      shape: use the capitalization of each word as an input.
      gazetteer: the column with a mapping of labels to weights for each word.
      dense: columns of numbers.
      weight: the column with the weight of a row in the loss.
      soft_labels: the targets are probabilities of the labels.
    """

    characters: Annotated[int, pydantic.Field(ge=1, le=1000)] | None = None
    bytes: Annotated[int, pydantic.Field(ge=1, le=1000)] | None = None
    shape: bool = False
    gazetteer: Column | None = None
    dense: Dense | None = None
    weight: Column | None = None
    soft_labels: bool = False


class ShardCounts(_Part):
    """Number of files per split; JSON form also a single number, for the training split."""

    train: Annotated[pydantic.StrictInt, pydantic.Field(ge=1, le=99999)] = 10
    eval: Annotated[pydantic.StrictInt, pydantic.Field(ge=1, le=99999)] = 1
    test: Annotated[pydantic.StrictInt, pydantic.Field(ge=1, le=99999)] = 1

    @pydantic.model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError(f"expected a number of files, not {value!r}")
        return {"train": value} if isinstance(value, int) else value


class Declaration(_Part):
    """A declared problem.

    Attributes:
      problem: the problem's name.
      kind: kind of problem: one of `KINDS` or `MIXTURES`.
      description: free text.
      source: source of the data; free text.
      licence: licence of the data; free text.
      files: the rows of each split.
      format: format of the files; None: inferred from the file extension.
      options: options of the format, such as {"delimiter": ";", "header": false}.
      fields: by field of a sample, its column.
      split_by: columns whose equal rows stay in one split when rows are held out.
      vocab_type: units of the vocabulary, such as words or subwords.
      vocab_size: target number of ids of a learned vocabulary.
      use_vocab_from_other_problem: the problem whose vocabulary is shared.
      vocabularies: by text field, the user's vocabulary file in the data folder.
      labels: the labels; if empty, those of the training rows.
      merge_labels: for spellings of labels, the labels that they are replaced by.
      features: additional features of a row or its words.
      settings: settings of the kind, such as {"size": 3} for "text2real".
      shards: number of files per split.
      metrics: names of evaluation metrics, for all targets or by target; None: the kind's.
      loss: name of the training loss, for all targets or by target; None: the kind's.
      model: suggested model.
      hparams_set: suggested hparams set.
      problems: names of a mixture's problems.
      schedule: mixing schedule of a mixture.
      models: for kind "multi": by problem, its model, as "model/hparams_set/name=value".
      max_input_length: for kind "taskmixture": number of ids kept of inputs; 0 for all.
    """

    problem: str
    kind: str
    description: str = ""
    source: str = ""
    licence: str = ""
    files: Files | None = None
    format: str | None = None
    options: Mapping[str, Any] = {}
    fields: Mapping[str, Column] = {}
    split_by: Annotated[tuple[_Text, ...], pydantic.BeforeValidator(_listed)] = ()
    vocab_type: Literal["subword", "word", "character", "symbol", "token"] | None = None
    vocab_size: Annotated[pydantic.StrictInt, pydantic.Field(ge=4, le=LARGEST)] | None = None
    use_vocab_from_other_problem: str | None = None
    vocabularies: Mapping[str, str] = {}
    labels: tuple[str, ...] = ()
    merge_labels: Mapping[str, str] = {}
    features: Beside = Beside()
    settings: Mapping[str, Any] = {}
    shards: ShardCounts = ShardCounts()
    metrics: tuple[str, ...] | Mapping[str, tuple[str, ...]] | None = None
    loss: str | Mapping[str, str] | None = None
    model: str | None = None
    hparams_set: str | None = None
    problems: tuple[str, ...] = ()
    schedule: str | None = None
    models: Mapping[str, str] = {}
    max_input_length: Annotated[pydantic.StrictInt, pydantic.Field(ge=0)] = 0

    @property
    def own_files(self) -> Files:
        """The files, which all declarations but mixtures have."""
        assert self.files is not None
        return self.files

    @classmethod
    def parse(cls, content: Mapping[str, Any], path: Path) -> Declaration:
        """Parses the content of a declaration file.

        Raises:
          RegistryError: the content is invalid; reports all mistakes by line and key.
        """
        try:
            return cls.model_validate(content)
        except pydantic.ValidationError as error:
            raise RegistryError(_format_error(path, error)) from None


def content_of(path: Path) -> dict[str, Any]:
    """Reads a declaration file.

    Raises:
      RegistryError: it cannot be read, is not valid JSON, or declares no problem.
    """
    try:
        content = json_declaration(path)
    except OSError as error:
        raise RegistryError(f"Cannot read {path}: {error.strerror}.") from None
    if content is None:
        raise RegistryError(f'{path} declares no problem: "problem" and "kind" were expected.')
    return content


def nearest(wrong: str, right: Iterable[str]) -> str:
    """Returns a hint with the closest valid name, if any, and all valid names."""
    names = sorted(right)
    hint = did_you_mean(wrong.lower(), names, limit=1) or did_you_mean(wrong, names, limit=1)
    return f"{hint} There {'are' if len(names) > 1 else 'is'} {', '.join(names) or 'none'}."


def place(path: Path, key: str) -> str:
    """Returns the file, and the line where a declaration first uses a key."""
    text = read_text(path) if path.is_file() else ""
    found = re.search(rf'"{re.escape(key)}"\s*:', text)
    return f"{path}:{text.count(chr(10), 0, found.start()) + 1}" if found else str(path)


def mistake(path: Path, key: str, what: str) -> RegistryError:
    """Returns the error for a key, such as "fields.inputs", of the declaration in a file."""
    return RegistryError(f'{place(path, key.split(".")[-1])}: "{key}": {what}')


def _format_error(path: Path, error: pydantic.ValidationError) -> str:
    lines = []
    for fault in error.errors():
        key = ".".join(str(part) for part in fault["loc"])
        last = str(fault["loc"][-1]) if fault["loc"] else ""
        if fault["type"] == "extra_forbidden":
            what = f"there is no such key.{nearest(last, _keys(fault['loc'][:-1]))}"
            if len(fault["loc"]) == 1 and last in SPLITS:
                what = f'it belongs into "files": {{"{last}": ...}}.'
        elif fault["type"] == "missing":
            what = "is missing."
            if last == "eval":
                what = "is missing: a path, or a part of the training rows such as 0.05."
        else:
            what = fault["msg"].removeprefix("Value error, ").rstrip(".") + "."
        lines.append(f'{place(path, last)}: "{key}": {what}')
    return "\n".join(lines)


def _keys(location: tuple[int | str, ...]) -> list[str]:
    """Returns the valid keys at a location of a declaration."""
    parts: dict[str, type[_Part]] = {"files": Files, "features": Beside, "shards": ShardCounts}
    if not location:
        return list(Declaration.model_fields)
    if len(location) == 1 and location[0] in parts:
        return list(parts[str(location[0])].model_fields)
    return list((Dense if location[-1] == "dense" else Column).model_fields)


class FieldType(enum.Enum):
    """Type of a sample's field."""

    TEXT = "a text"
    ANY_TEXT = "a text, also an empty one"
    TEXTS = "a list of texts"
    WORDS = "a list of words"
    TAGS = "a list of tags, one for each word"
    LABEL = "a label"
    LABELS = "a list of labels"
    NUMBERS = "a number, or a list of numbers"
    ANSWERS = "answers, each a part of the context"
    TREE = "a bracketed tree"
    IMAGE = "a picture"
    SOUND = "the path of a sound file, from the folder of its list"
    PROBABILITIES = "a probability for each label"
    GAZETTEER = "for each word, labels and their weights"


LABELLED = (FieldType.LABEL, FieldType.LABELS, FieldType.TAGS, FieldType.PROBABILITIES)


@dataclass(frozen=True)
class ProblemKind:
    """A kind of problem.

    Attributes:
      family: module in the package and class, separated by a colon.
      fields: by field of a sample, its type.
      group: fields whose equal rows stay in one split when rows are held out.
      optional: fields that need no column.
    """

    family: str
    fields: Mapping[str, FieldType]
    group: tuple[str, ...] = ("inputs",)
    optional: tuple[str, ...] = ()

    def family_class(self) -> type[Problem]:
        """Imports the problem type."""
        return cast("type[Problem]", pkgutil.resolve_name(f"t2t_torch.{self.family}"))


_CLASSIFICATION, _OF_WORDS = "problem_types.classification", "problem_types.words"
_INPUTS, _TARGETS = {"inputs": FieldType.TEXT}, {"targets": FieldType.TEXT}
_LABEL, _NUMBERS = {"targets": FieldType.LABEL}, {"targets": FieldType.NUMBERS}
_PAIR = {"first": FieldType.TEXT, "second": FieldType.TEXT}
_COLUMNS_OF_SOUNDS = {
    "speech2text": {"inputs": "path", "targets": "text"},
    "audio2class": {"inputs": "path", "targets": "label"},
}

KINDS: Mapping[str, ProblemKind] = {
    "text2text": ProblemKind("text_problem:Text2TextProblem", _INPUTS | _TARGETS),
    "text2self": ProblemKind(
        "text_problem:Text2SelfProblem", {"targets": FieldType.ANY_TEXT}, ("targets",)
    ),
    "text2class": ProblemKind(f"{_CLASSIFICATION}:Text2ClassProblem", _INPUTS | _LABEL),
    "text2multilabel": ProblemKind(
        f"{_CLASSIFICATION}:Text2MultiLabelProblem", {**_INPUTS, "targets": FieldType.LABELS}
    ),
    "textpair2class": ProblemKind(
        f"{_CLASSIFICATION}:TextPair2ClassProblem", _PAIR | _LABEL, ("first", "second")
    ),
    "textpair2real": ProblemKind(
        f"{_CLASSIFICATION}:TextPair2RealProblem", _PAIR | _NUMBERS, ("first", "second")
    ),
    "text2real": ProblemKind(f"{_CLASSIFICATION}:Text2RealProblem", _INPUTS | _NUMBERS),
    "text2tags": ProblemKind(
        f"{_OF_WORDS}:Text2TagsProblem", {"inputs": FieldType.WORDS, "targets": FieldType.TAGS}
    ),
    "intentslot": ProblemKind(
        f"{_OF_WORDS}:IntentSlotProblem",
        {"inputs": FieldType.WORDS, "intent": FieldType.LABEL, "slots": FieldType.TAGS},
    ),
    "pairranking": ProblemKind(
        f"{_CLASSIFICATION}:PairRankingProblem",
        {"query": FieldType.TEXT, "positive": FieldType.TEXT, "negative": FieldType.TEXT},
        ("query",),
    ),
    "queryrelevance": ProblemKind(
        f"{_CLASSIFICATION}:QueryRelevanceProblem",
        {"query": FieldType.TEXT, "document": FieldType.TEXT, **_LABEL},
        ("query",),
    ),
    "spanqa": ProblemKind(
        f"{_OF_WORDS}:SpanQAProblem",
        {"question": FieldType.TEXT, "context": FieldType.TEXT, "answers": FieldType.ANSWERS},
        ("context",),
    ),
    "text2tree": ProblemKind(
        f"{_OF_WORDS}:Text2TreeProblem",
        {"inputs": FieldType.WORDS, "targets": FieldType.TREE},
        optional=("inputs",),
    ),
    "multiturn2class": ProblemKind(
        f"{_CLASSIFICATION}:MultiTurn2ClassProblem", {"inputs": FieldType.TEXTS, **_LABEL}
    ),
    "image2class": ProblemKind(
        "problem_types.images:Image2ClassProblem", {"inputs": FieldType.IMAGE, **_LABEL}
    ),
    "speech2text": ProblemKind(
        "problem_types.speech:Speech2TextProblem", {"inputs": FieldType.SOUND, **_TARGETS}
    ),
    "audio2class": ProblemKind(
        "problem_types.speech:Audio2ClassProblem", {"inputs": FieldType.SOUND, **_LABEL}
    ),
    "questioncontext2text": ProblemKind(
        "problem_types.text2text:QuestionContext2TextProblem",
        {**_INPUTS, "context": FieldType.TEXT, **_TARGETS},
        ("context",),
    ),
}
"""Kinds by their name in a declaration."""

MIXTURES: Mapping[str, ProblemKind] = {
    "mixture": ProblemKind("problem_types.mixture:MixtureProblem", {}),
    "taskmixture": ProblemKind("problem_types.task_mixture:TaskMixtureProblem", {}),
    "multi": ProblemKind("problem_types.multi:MultiProblem", {}),
}
"""The kinds that refer to other problems and have no files of their own."""

USUAL_COLUMNS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("bio", "intentslot"): {"inputs": "words", "intent": "label", "slots": "tags"},
    ("bio", "text2tags"): {"inputs": "words", "targets": "tags"},
    ("bio", "text2class"): {"inputs": "words", "targets": "label"},
    ("conllu", "text2tags"): {"inputs": "form", "targets": "upos"},
    ("lines", "text2self"): {"targets": "text"},
    ("trees", "text2tree"): {"inputs": "words", "targets": "tree"},
    ("idx", "image2class"): {"inputs": "image", "targets": "label"},
    ("class_folders", "audio2class"): {"inputs": "audio", "targets": "label"},
    **{
        (name, kind): columns
        for name in ("tsv", "csv", "jsonl")
        for kind, columns in _COLUMNS_OF_SOUNDS.items()
    },
}
"""Default columns by format and kind, used without "fields"; otherwise the columns have the
fields' names."""


def check_names(declaration: Declaration, path: Path) -> None:
    """Checks that all names exist; imports the user's files for names that none declares.

    Args:
      declaration: the declaration.
      path: path of the declaration.

    Raises:
      RegistryError: a name is unknown, or a mixture contains itself.
    """
    for key, kind, said in (
        ("model", "model", declaration.model or ()),
        ("hparams_set", "hparams", declaration.hparams_set or ()),
        ("metrics", "metric", declaration.metrics),
        ("loss", "loss", declaration.loss),
    ):
        known = registry.list_names(kind)
        for name in _names_in(said):
            if name not in known:
                raise mistake(path, key, f"there is no {kind} {name!r}.{nearest(name, known)}")
    if (other := declaration.use_vocab_from_other_problem) is not None:
        _check_problem(other, "use_vocab_from_other_problem", path, (declaration.problem,))
    for name in declaration.problems:
        _check_problem(name, "problems", path, (declaration.problem,))


def _names_in(said: Any) -> list[str]:
    """Returns the names of a value: one, several, or those of each target."""
    held = said.values() if isinstance(said, Mapping) else said or ()
    return [said] if isinstance(said, str) else [name for one in held for name in _names_in(one)]


def _check_problem(name: str, key: str, path: Path, within: tuple[str, ...]) -> None:
    """Raises RegistryError if there is no such problem, or it is one of those that name it.

    The problems of a declared mixture are checked, too.
    """
    try:
        base = parse_problem_name(name).base_name
        if base not in (*within, *registry.list_names("problem")):
            registry.problem(base)  # names created in a loop are known only after the import
    except RegistryError as error:
        raise mistake(path, key, str(error)) from None
    if base in within:
        circle = " -> ".join([*within[within.index(base) :], base])
        raise mistake(path, key, f"names the problem itself: {circle}.")
    places = {entry.name: Path(entry.path) for entry in registry.entries("problem")}
    if key == "problems" and base in places and places[base].suffix == ".json":
        inner = content_of(places[base])
        if inner.get("kind") in MIXTURES:
            for one in Declaration.parse(inner, places[base]).problems:
                _check_problem(one, key, path, (*within, base))
