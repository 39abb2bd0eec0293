"""What a declaration may say, and what it says wrong."""

from __future__ import annotations

import difflib
import enum
import importlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import pydantic

from t2t_torch import registry
from t2t_torch.errors import RegistryError
from t2t_torch.mode import Split
from t2t_torch.registry import json_declaration, parse_problem_name

if TYPE_CHECKING:
    from t2t_torch.problem import Problem


LARGEST = 10_000_000
"""The largest number that a declaration may ask for, of ids for instance."""

SPLITS = tuple(split.name.lower() for split in Split)


class _Part(pydantic.BaseModel):
    """A part of a declaration: read-only, and nothing unknown in it."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


class Column(_Part):
    """Where a field of a sample is found in a row.

    In JSON a column's name, or its number from 0 where columns have none ("-1" is the last), or
    a list of columns, or {"column": ..., "split": ","} for a list in one string.

    Attributes:
      column: one column or several.
      split: what separates the parts of a string that is a list, "[]" if Python or JSON wrote it;
        None: white space between words.
      join: what stands between the texts of several columns.
    """

    column: tuple[str, ...]
    split: Annotated[str, pydantic.Field(min_length=1)] | None = None
    join: str = " "

    @pydantic.model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            value = {"column": value}
        names = value.get("column")
        if names is None:
            return value
        names = names if isinstance(names, list | tuple) else [names]
        if not names or not all(_is_column(name) for name in names):
            raise ValueError(
                "expected a column's name or number, a list of them, or "
                '{"column": ..., "split": ...}'
            )
        return {**value, "column": tuple(str(name) for name in names)}


class Rows(_Part):
    """Where the rows of a split are.

    In JSON a path, a list of paths, or {field: path, ...} for files that are read line by line
    together; or a number, the part of the training rows that is held out.

    Attributes:
      paths: files, folders or patterns such as "part-*.csv".
      parallel: by field, a path: line n of the one belongs to line n of the others.
      part: of the training rows, between 0 and 1.
    """

    paths: tuple[str, ...] = ()
    parallel: Mapping[str, str] = {}
    part: float = 0.0

    @pydantic.model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, str) and value:
            return {"paths": (value,)}
        if isinstance(value, list) and value and all(isinstance(x, str) and x for x in value):
            return {"paths": tuple(value)}
        if isinstance(value, float | int) and not isinstance(value, bool) and 0 < value < 1:
            return {"part": float(value)}
        if isinstance(value, Mapping) and value and all(isinstance(x, str) for x in value.values()):
            return {"parallel": value}
        raise ValueError(
            "expected a path, a list of paths, {field: path} of parallel files, or a number "
            f"between 0 and 1, not {value!r}"
        )


class Files(_Part):
    """The rows of each split."""

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
        if self.train.part:
            raise ValueError("'train' needs a path: only 'eval' and 'test' can be a part of it")
        if self.eval.part + (self.test.part if self.test else 0) >= 1:
            raise ValueError("'eval' and 'test' leave no training rows; give smaller parts")
        return self

    def of(self, split: Split) -> Rows:
        """The rows of a split that there is."""
        rows: Rows = getattr(self, split.name.lower())
        return rows

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits there are."""
        return tuple(split for split in Split if getattr(self, split.name.lower()) is not None)


class Dense(_Part):
    """Numbers beside a text: a column for each, or one column with a list of `size` of them."""

    column: Column
    size: Annotated[int, pydantic.Field(ge=1, le=LARGEST)]

    @pydantic.model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return value
        names = value if isinstance(value, list) else [value]
        return {"column": names, "size": len(names)}


class Beside(_Part):
    """What else is known of a row or of its words ("features").

    Attributes:
      characters: characters kept of each word.
      bytes: bytes kept of each word.
      shape: whether each word's capitalization is an input.
      gazetteer: the column with a mapping of labels to weights for each word.
      dense: columns of numbers.
      weight: the column that says how much a row counts in the loss.
      soft_labels: whether the targets are probabilities of the labels.
    """

    characters: Annotated[int, pydantic.Field(ge=1, le=1000)] | None = None
    bytes: Annotated[int, pydantic.Field(ge=1, le=1000)] | None = None
    shape: bool = False
    gazetteer: Column | None = None
    dense: Dense | None = None
    weight: Column | None = None
    soft_labels: bool = False


class Shards(_Part):
    """Files written for each split; in JSON also one number, that of the training split."""

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
    """A problem, declared.

    Attributes:
      problem: its name.
      kind: what is learnt: one of `kinds.KINDS`, or "mixture".
      description: for readers.
      source: where the data is from; for readers.
      licence: of the data; for readers.
      files: the rows of each split.
      format: of the files; by their ending if None.
      options: of the format, such as {"delimiter": ";", "header": false}.
      fields: by field of a sample, its column.
      split_by: the columns whose rows stay in one split when some are held out.
      vocab_type: what texts are cut into.
      vocab_size: ids wanted of a learnt vocabulary.
      use_vocab_from_other_problem: the name of the problem whose vocabulary is this one's too.
      labels: the labels; if empty, those of the training rows.
      features: what else is known of a row or of its words.
      settings: of the kind, such as {"size": 3} for "text2real".
      shards: files written for each split.
      metrics: the names of what evaluation reports, of all targets or by target; None: the kind's.
      loss: the name of what is trained on, of all targets or by target; None: the kind's.
      model: suggested for it.
      hparams_set: suggested for it.
      problems: the names of a mixture's problems.
      schedule: how a mixture's problems are mixed.
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
    split_by: tuple[str, ...] = ()
    vocab_type: Literal["subword", "word", "character", "symbol", "token"] | None = None
    vocab_size: Annotated[pydantic.StrictInt, pydantic.Field(ge=4, le=LARGEST)] | None = None
    use_vocab_from_other_problem: str | None = None
    labels: tuple[str, ...] = ()
    features: Beside = Beside()
    settings: Mapping[str, Any] = {}
    shards: Shards = Shards()
    metrics: tuple[str, ...] | Mapping[str, tuple[str, ...]] | None = None
    loss: str | Mapping[str, str] | None = None
    model: str | None = None
    hparams_set: str | None = None
    problems: tuple[str, ...] = ()
    schedule: str | None = None

    @pydantic.field_validator("split_by", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @classmethod
    def parse(cls, content: Mapping[str, Any], path: Path) -> Declaration:
        """Makes a declaration of what a file says.

        Raises:
          RegistryError: it says something wrong; all of it is told, by line and key.
        """
        try:
            return cls.model_validate(content)
        except pydantic.ValidationError as error:
            raise RegistryError(_told(path, error)) from None


def content_of(path: Path) -> dict[str, Any]:
    """Reads the file of a declaration.

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
    """Says which of the right names is meant, as far as can be guessed, and all of them."""
    names = sorted(right)
    near = difflib.get_close_matches(wrong.lower(), names, n=1) or difflib.get_close_matches(
        wrong, names, n=1
    )
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{hint} There {'are' if len(names) > 1 else 'is'} {', '.join(names) or 'none'}."


def place(path: Path, key: str) -> str:
    """The file, and the line on which a declaration first says a key."""
    text = path.read_text("utf-8-sig") if path.is_file() else ""
    found = re.search(rf'"{re.escape(key)}"\s*:', text)
    return f"{path}:{text.count(chr(10), 0, found.start()) + 1}" if found else str(path)


def mistake(path: Path, key: str, what: str) -> RegistryError:
    """The error for a key, "fields.inputs" for instance, of the declaration in a file."""
    return RegistryError(f'{place(path, key.split(".")[-1])}: "{key}": {what}')


def _told(path: Path, error: pydantic.ValidationError) -> str:
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
    """The keys that there may be at a place of a declaration."""
    parts: dict[str, type[_Part]] = {"files": Files, "features": Beside, "shards": Shards}
    if not location:
        return list(Declaration.model_fields)
    if len(location) == 1 and location[0] in parts:
        return list(parts[str(location[0])].model_fields)
    return list((Dense if location[-1] == "dense" else Column).model_fields)


def _is_column(name: object) -> bool:
    return isinstance(name, int | str) and not isinstance(name, bool) and name != ""


# The kinds of problem that can be declared: their family, and the fields of their samples.


MIXTURE = "mixture"
"""The kind that names other problems, and has no files of its own."""


class Value(enum.Enum):
    """What a field of a sample holds."""

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
    PROBABILITIES = "a probability for each label"
    GAZETTEER = "for each word, labels and their weights"


@dataclass(frozen=True)
class Kind:
    """A kind of problem.

    Attributes:
      family: the module in `problem_types/` (or the package) and the class, with a colon between.
      fields: of a sample, and what each holds.
      group: the fields whose equality keeps rows in one split, when some are held out.
      settings: the class attributes that "settings" of a declaration may set.
      optional: the fields that need no column.
    """

    family: str
    fields: Mapping[str, Value]
    group: tuple[str, ...]
    settings: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    def family_class(self) -> type[Problem]:
        """Imports the family."""
        module, _, name = self.family.partition(":")
        return cast("type[Problem]", getattr(importlib.import_module(module), name))


_VOCABULARY = ("max_samples_for_vocab", "min_word_count", "oov_token")
_INPUTS = ("inputs",)
_WORD = (*_VOCABULARY, "gazetteer_width")
_TEXT_TO_LABEL = {"inputs": Value.TEXT, "targets": Value.LABEL}
_PAIR = {"first": Value.TEXT, "second": Value.TEXT}

KINDS: Mapping[str, Kind] = {
    "text2text": Kind(
        "t2t_torch.text_problem:Text2TextProblem",
        {"inputs": Value.TEXT, "targets": Value.TEXT},
        _INPUTS,
        _VOCABULARY,
    ),
    "text2self": Kind(
        "t2t_torch.text_problem:Text2SelfProblem",
        {"targets": Value.ANY_TEXT},
        ("targets",),
        (*_VOCABULARY, "chop_length"),
    ),
    "text2class": Kind(
        "t2t_torch.problem_types.classification:Text2ClassProblem",
        _TEXT_TO_LABEL,
        _INPUTS,
        _VOCABULARY,
    ),
    "text2multilabel": Kind(
        "t2t_torch.problem_types.classification:Text2MultiLabelProblem",
        {"inputs": Value.TEXT, "targets": Value.LABELS},
        _INPUTS,
        _VOCABULARY,
    ),
    "textpair2class": Kind(
        "t2t_torch.problem_types.classification:TextPair2ClassProblem",
        {**_PAIR, "targets": Value.LABEL},
        ("first", "second"),
        _VOCABULARY,
    ),
    "textpair2real": Kind(
        "t2t_torch.problem_types.classification:TextPair2RealProblem",
        {**_PAIR, "targets": Value.NUMBERS},
        ("first", "second"),
        (*_VOCABULARY, "target_size", "raw_targets"),
    ),
    "text2real": Kind(
        "t2t_torch.problem_types.classification:Text2RealProblem",
        {"inputs": Value.TEXT, "targets": Value.NUMBERS},
        _INPUTS,
        (*_VOCABULARY, "target_size", "raw_targets"),
    ),
    "text2tags": Kind(
        "t2t_torch.problem_types.words:Text2TagsProblem",
        {"inputs": Value.WORDS, "targets": Value.TAGS},
        _INPUTS,
        _WORD,
    ),
    "intentslot": Kind(
        "t2t_torch.problem_types.words:IntentSlotProblem",
        {"inputs": Value.WORDS, "intent": Value.LABEL, "slots": Value.TAGS},
        _INPUTS,
        _WORD,
    ),
    "pairranking": Kind(
        "t2t_torch.problem_types.classification:PairRankingProblem",
        {"query": Value.TEXT, "positive": Value.TEXT, "negative": Value.TEXT},
        ("query",),
        _VOCABULARY,
    ),
    "queryrelevance": Kind(
        "t2t_torch.problem_types.classification:QueryRelevanceProblem",
        {"query": Value.TEXT, "document": Value.TEXT, "targets": Value.LABEL},
        ("query",),
        (*_VOCABULARY, "max_queries", "max_documents"),
    ),
    "spanqa": Kind(
        "t2t_torch.problem_types.words:SpanQAProblem",
        {"question": Value.TEXT, "context": Value.TEXT, "answers": Value.ANSWERS},
        ("context",),
        (*_WORD, "max_context", "context_stride"),
    ),
    "text2tree": Kind(
        "t2t_torch.problem_types.words:Text2TreeProblem",
        {"inputs": Value.WORDS, "targets": Value.TREE},
        _INPUTS,
        _WORD,
        optional=("inputs",),
    ),
    "multiturn2class": Kind(
        "t2t_torch.problem_types.classification:MultiTurn2ClassProblem",
        {"inputs": Value.TEXTS, "targets": Value.LABEL},
        _INPUTS,
        (*_VOCABULARY, "max_turns"),
    ),
    "image2class": Kind(
        "t2t_torch.problem_types.classification:Image2ClassProblem",
        {"inputs": Value.IMAGE, "targets": Value.LABEL},
        _INPUTS,
        ("height", "width", "channels"),
    ),
    "questioncontext2text": Kind(
        "t2t_torch.problem_types.text2text:QuestionContext2TextProblem",
        {"inputs": Value.TEXT, "context": Value.TEXT, "targets": Value.TEXT},
        ("context",),
        _VOCABULARY,
    ),
}
"""By what a declaration says as "kind"."""

USUAL_COLUMNS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("bio", "intentslot"): {"inputs": "words", "intent": "label", "slots": "tags"},
    ("bio", "text2tags"): {"inputs": "words", "targets": "tags"},
    ("bio", "text2class"): {"inputs": "words", "targets": "label"},
    ("conllu", "text2tags"): {"inputs": "form", "targets": "upos"},
    ("lines", "text2self"): {"targets": "text"},
    ("trees", "text2tree"): {"inputs": "words", "targets": "tree"},
    ("idx", "image2class"): {"inputs": "image", "targets": "label"},
}
"""By format and kind, where the fields are when "fields" does not say; else in columns of the
fields' own names."""


# The names in a declaration of what stands elsewhere: problems, models and hparams sets.


_KINDS = {"model": "model", "hparams_set": "hparams"}
"""By key, the kind of its name in the registry."""


def check_names(declaration: Declaration, path: Path) -> None:
    """Checks that all names are known; it imports a user's files for a name that none declares.

    Args:
      declaration: what names them.
      path: where it stands.

    Raises:
      RegistryError: one is not, or a mixture names itself.
    """
    for key, kind in _KINDS.items():
        name, known = getattr(declaration, key), registry.list_names(kind)
        if name and name not in known:
            raise mistake(path, key, f"there is no {key} {name!r}.{nearest(name, known)}")
    for name in _metrics(declaration):
        known = registry.list_names("metric")
        if name not in known:
            raise mistake(path, "metrics", f"there is no metric {name!r}.{nearest(name, known)}")
    for name in _losses(declaration):
        known = registry.list_names("loss")
        if name not in known:
            raise mistake(path, "loss", f"there is no loss {name!r}.{nearest(name, known)}")
    other = declaration.use_vocab_from_other_problem
    if other is not None:
        if _base_name(other, "use_vocab_from_other_problem", path) == declaration.problem:
            raise mistake(path, "use_vocab_from_other_problem", "names the problem itself.")
        _check_problem(other, "use_vocab_from_other_problem", path)
    _check_circle(declaration.problems, path, (declaration.problem,))
    for name in declaration.problems:
        _check_problem(name, "problems", path)


def _metrics(declaration: Declaration) -> list[str]:
    said = declaration.metrics or ()
    return [*said] if isinstance(said, tuple) else [name for of in said.values() for name in of]


def _losses(declaration: Declaration) -> list[str]:
    said = declaration.loss
    if said is None:
        return []
    return [said] if isinstance(said, str) else [*said.values()]


def _base_name(name: str, key: str, path: Path) -> str:
    """A problem's name without `_rev` and `_copy`."""
    try:
        return parse_problem_name(name).base_name
    except RegistryError as error:
        raise mistake(path, key, str(error)) from None


def _check_problem(name: str, key: str, path: Path) -> None:
    """Raises RegistryError if there is no problem of this name."""
    base = _base_name(name, key, path)
    if base in registry.list_names("problem"):
        return
    try:
        registry.problem(base)  # A name made in a loop is known when its file is imported.
    except RegistryError as error:
        raise mistake(path, key, str(error)) from None


def _check_circle(names: tuple[str, ...], path: Path, within: tuple[str, ...]) -> None:
    """Raises RegistryError if a mixture is among what it mixes, also in declared mixtures of it."""
    places = {entry.name: Path(entry.path) for entry in registry.entries("problem")}
    for name in names:
        base = _base_name(name, "problems", path)
        if base in within:
            told = " -> ".join([*within[within.index(base) :], base])
            raise mistake(path, "problems", f"a mixture cannot mix itself: {told}.")
        if base in places and places[base].suffix == ".json":
            inner = content_of(places[base])
            if inner.get("kind") == MIXTURE:
                named = Declaration.parse(inner, places[base]).problems
                _check_circle(named, places[base], (*within, base))
