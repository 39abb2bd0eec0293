"""Scores of decoded outputs against references, with signatures of how they were computed.

BLEU, chrF and TER come from sacreBLEU (Post 2018, "A call for clarity in reporting BLEU scores"),
with its signatures; `t2t_bleu` equals the result of tensor2tensor's own `t2t-bleu`.

SQuAD's exact match and F1 of answers: Rajpurkar et al. 2016, arXiv:1606.05250, section 5, and 2018,
arXiv:1806.03822, for questions without answers; normalization as in their `evaluate-v1.1.py` and
`evaluate-v2.0.py`.
"""

from __future__ import annotations

import functools
import json
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t2t_torch.atomic_files import write_text
from t2t_torch.errors import DataError, UsageError
from t2t_torch.features import Features
from t2t_torch.files import read_text
from t2t_torch.metrics import default_scores
from t2t_torch.metrics.bleu import SIZE, bleu_counts, bleu_of, ngrams
from t2t_torch.text.tree import NO_TREES, TreeCounts, compare_texts

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def plain_answer(text: str) -> str:
    """Returns an answer in lower case, without ASCII punctuation, articles and extra spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, references: Sequence[str]) -> float:
    """Returns 1 if an answer equals one of the references after normalization, else 0.

    Args:
      answer: "" for no answer.
      references: accepted answers; an empty list if there is no answer.
    """
    return max(float(plain_answer(answer) == plain_answer(one)) for one in references or [""])


def f1(answer: str, references: Sequence[str]) -> float:
    """Returns the maximum F1 of an answer's words with those of a reference, as multisets.

    If either is empty it is 1 if both are, else 0.

    Args:
      answer: "" for no answer.
      references: as in `exact_match`.
    """
    return max(_f1(plain_answer(answer), plain_answer(one)) for one in references or [""])


def _f1(answer: str, reference: str) -> float:
    ours, theirs = Counter(answer.split()), Counter(reference.split())
    if not ours or not theirs:
        return float(ours == theirs)
    return 2.0 * (ours & theirs).total() / (ours.total() + theirs.total())


def answers_of(line: str) -> list[str]:
    """Returns the answers in a line of a reference file: a JSON list, or the text itself."""
    if line.startswith("["):
        try:
            given = json.loads(line)
        except ValueError:
            return [line]
        if isinstance(given, list) and all(isinstance(answer, str) for answer in given):
            return given
    return [line]


TOKENIZERS = ("13a", "intl", "char", "zh", "flores200", "none")
"""Names of sacreBLEU's tokenizers."""

_BRACKETS = "micro|root:yes|punctuation:yes|parts of speech:no"

_BACKSLASH = "\ufdd0"  # placeholder that occurs in no text; neither punctuation nor a symbol
_WORD = re.compile(r"[^\W_]+")
_ANSWERS = "best of all answers|case:lc|punctuation:no|articles:no|SQuAD 2.0"


class Score(NamedTuple):
    """A corpus score with the settings of its computation.

    Attributes:
      value: in its own unit: BLEU, chrF and TER 0 to 100, the others 0 to 1.
      signature: equal for scores computed in the same way.
      line: human-readable, `<name> = <value>` with details.
    """

    value: float
    signature: str
    line: str


def score(
    outputs: Sequence[str],
    references: Sequence[str],
    names: Sequence[str] = ("bleu", "chrf", "exact_match"),
    *,
    tokenize: str = "13a",
) -> dict[str, Score]:
    """Scores outputs with one reference each; all scores are 0 without outputs.

    Args:
      outputs: lines.
      references: lines.
      names: keys of `SCORES`.
      tokenize: one of `TOKENIZERS`, for BLEU.

    Returns:
      scores by name.

    Raises:
      DataError: the numbers of references and outputs differ.
      UsageError: a score or the tokenizer is unknown.
    """
    check_counts(len(outputs), len(references))
    if unknown := [name for name in names if name not in SCORES]:
        known = ", ".join(SCORES)
        raise UsageError(f"there is no score {', '.join(map(repr, unknown))}; scores are {known}.")
    if tokenize not in TOKENIZERS:
        known = ", ".join(TOKENIZERS)
        raise UsageError(f"BLEU has no tokenizer {tokenize!r}; there are {known}.")
    return {name: SCORES[name](outputs, references, tokenize) for name in names}


def check_counts(outputs: int, references: int, name: str = "the reference") -> None:
    """Checks that there is one reference per output.

    Raises:
      DataError: the numbers differ.
    """
    if outputs != references:
        raise DataError(
            f"{name} has {references:,} lines, but there are {outputs:,} outputs: line n of the "
            "one belongs to line n of the other. Give the reference of the file that is decoded."
        )


def table(
    outputs: Sequence[str],
    references: Sequence[str],
    names: Sequence[str] = ("bleu", "chrf"),
    *,
    tokenize: str = "13a",
) -> str:
    """Returns scores as lines, each followed by its signature.

    Arguments and errors are those of `score`.
    """
    found = score(outputs, references, names, tokenize=tokenize)
    if not outputs:
        return "nothing to score (no outputs)"
    return "\n".join(f"{each.line}\n{each.signature}" for each in found.values())


def t2t_tokens(line: str) -> list[str]:
    r"""Returns a line's words as tokenized by tensor2tensor's BLEU, `bleu_hook.bleu_tokenize`.

    Same as sacreBLEU's "intl", except that a backslash is not punctuation.
    """
    from sacrebleu.tokenizers.tokenizer_intl import TokenizerV14International

    tokenizer: Any = TokenizerV14International
    cut: str = tokenizer()(line.replace("\\", _BACKSLASH))
    return [word.replace(_BACKSLASH, "\\") for word in cut.split()]


def _sacrebleu(
    outputs: Sequence[str], references: Sequence[str], tokenize: str, *, name: str, **settings: bool
) -> Score:
    """Returns the score of a sacreBLEU metric, whose signature depends on the references."""
    from sacrebleu import metrics

    if not outputs:
        return Score(0.0, "nothing to score", "nothing to score (no outputs)")
    of_words = {"tokenize": tokenize} if name == "BLEU" else {}
    metric: Any = getattr(metrics, name)(**of_words, **settings)
    found = metric.corpus_score(list(outputs), [list(references)])
    return Score(float(found.score), f"{found.name}|{metric.get_signature()}", str(found))


def _tensor2tensor(
    outputs: Sequence[str], references: Sequence[str], _: str, *, lowercase: bool
) -> Score:
    sums = [0] * SIZE
    for pair in zip(outputs, references, strict=True):
        output, reference = (t2t_tokens(line.lower() if lowercase else line) for line in pair)
        counts = bleu_counts(output, reference)
        sums = [total + count for total, count in zip(sums, counts, strict=True)]
    value = 100.0 * bleu_of(sums)
    case, name = ("lc", "BLEU_uncased") if lowercase else ("mixed", "BLEU_cased")
    signature = f"t2t-bleu|nrefs:1|case:{case}|tok:intl-t2t|smooth:exp"
    return Score(value, signature, f"{name} = {value:6.2f}")


def _exact_match(outputs: Sequence[str], references: Sequence[str], _: str) -> Score:
    right = sum(output == reference for output, reference in zip(outputs, references, strict=True))
    line = f"exact match = {right / max(len(outputs), 1):.4f} ({right:,} of {len(outputs):,})"
    return Score(right / max(len(outputs), 1), "exact match|case:mixed|lines", line)


def _squad_exact_match(outputs: Sequence[str], references: Sequence[str], _: str) -> Score:
    pairs = zip(outputs, references, strict=True)
    right = sum(exact_match(output, answers_of(line)) for output, line in pairs)
    value = right / max(len(outputs), 1)
    line = f"SQuAD exact match = {value:.4f} ({right:,.0f} of {len(outputs):,})"
    return Score(value, f"exact match|{_ANSWERS}", line)


def _squad_f1(outputs: Sequence[str], references: Sequence[str], _: str) -> Score:
    pairs = zip(outputs, references, strict=True)
    total = sum(f1(output, answers_of(line)) for output, line in pairs)
    value = total / max(len(outputs), 1)
    return Score(value, f"F1 of words|{_ANSWERS}", f"SQuAD F1 = {value:.4f}")


def _trees(outputs: Sequence[str], references: Sequence[str]) -> TreeCounts:
    pairs = zip(outputs, references, strict=True)
    counts = (compare_texts(output, reference) for output, reference in pairs)
    return functools.reduce(TreeCounts.plus, counts, NO_TREES)


def _bracket_f1(outputs: Sequence[str], references: Sequence[str], _: str) -> Score:
    found = _trees(outputs, references)
    line = (
        f"bracket F1 = {found.f1:.4f} (precision {found.precision:.4f}, recall {found.recall:.4f};"
        f" {found.right:,} right, {found.predicted:,} found, {found.expected:,} there)"
    )
    return Score(found.f1, f"bracket F1|{_BRACKETS}", line)


def _tree_f1(outputs: Sequence[str], references: Sequence[str], _: str) -> Score:
    found = _trees(outputs, references)
    return Score(found.tree_f1, f"tree F1|{_BRACKETS}", f"tree F1 = {found.tree_f1:.4f}")


def _tree_frame_accuracy(outputs: Sequence[str], references: Sequence[str], _: str) -> Score:
    found = _trees(outputs, references)
    value = found.frames / max(found.trees, 1)
    return Score(value, "frames|outermost and next brackets", f"frame accuracy = {value:.4f}")


def _malformed_trees(outputs: Sequence[str], references: Sequence[str], _: str) -> Score:
    found = _trees(outputs, references)
    value = found.malformed / max(found.trees, 1)
    line = f"malformed = {value:.4f} ({found.malformed:,} of {found.trees:,})"
    return Score(value, "malformed|no tree over the words", line)


def _error_rate(
    outputs: Sequence[str], references: Sequence[str], _: str, *, by_word: bool
) -> Score:
    from t2t_torch.metrics.alignment import word_errors

    sides = [
        [line.split() if by_word else list(line.strip()) for line in side]
        for side in (outputs, references)
    ]
    errors, count = word_errors(*sides)
    rate = errors / max(count, 1)
    name, units = ("WER", "spaces") if by_word else ("CER", "characters")
    line = f"{name} = {rate:.4f} ({errors:,} of {count:,})"
    return Score(rate, f"{name}|case:mixed|tok:{units}", line)


def _rouge_n(outputs: Sequence[str], references: Sequence[str], _: str, *, order: int) -> Score:
    counts = []
    for pair in zip(outputs, references, strict=True):
        ours, theirs = (Counter(ngrams(_rouge_words(line), order)) for line in pair)
        counts.append(((ours & theirs).total(), ours.total() + theirs.total()))
    return _rouge(counts, str(order))


def _rouge_l(outputs: Sequence[str], references: Sequence[str], _: str) -> Score:
    from t2t_torch.metrics.alignment import common_lengths, padded_ids

    sides = padded_ids(*(list(map(_rouge_words, side)) for side in (outputs, references)))
    both = sides[1] + sides[3]
    return _rouge(list(zip(common_lengths(*sides).tolist(), both.tolist(), strict=True)), "L")


def _rouge_words(line: str) -> list[str]:
    return _WORD.findall(line.lower())


def _rouge(counts: Sequence[tuple[int, int]], which: str) -> Score:
    """Returns the mean F1 of lines, from the common parts of each pair and the parts of both."""
    total = 0.0
    for common, both in counts:
        total += 2 * common / both if both else 0.0
    value, name = total / max(len(counts), 1), f"ROUGE-{which}"
    signature = f"{name}|F1|mean of lines|case:lc|tok:letters and digits|stem:no"
    return Score(value, signature, f"{name} = {value:.4f}")


SCORES: Mapping[str, Callable[[Sequence[str], Sequence[str], str], Score]] = {
    "bleu": functools.partial(_sacrebleu, name="BLEU", lowercase=False),
    "bleu_uncased": functools.partial(_sacrebleu, name="BLEU", lowercase=True),
    "t2t_bleu": functools.partial(_tensor2tensor, lowercase=False),
    "t2t_bleu_uncased": functools.partial(_tensor2tensor, lowercase=True),
    "chrf": functools.partial(_sacrebleu, name="CHRF"),
    "ter": functools.partial(_sacrebleu, name="TER"),
    "rouge_1": functools.partial(_rouge_n, order=1),
    "rouge_2": functools.partial(_rouge_n, order=2),
    "rouge_l": _rouge_l,
    "word_error_rate": functools.partial(_error_rate, by_word=True),
    "character_error_rate": functools.partial(_error_rate, by_word=False),
    "exact_match": _exact_match,
    "squad_exact_match": _squad_exact_match,
    "squad_f1": _squad_f1,
    "bracket_f1": _bracket_f1,
    "tree_f1": _tree_f1,
    "tree_frame_accuracy": _tree_frame_accuracy,
    "malformed_trees": _malformed_trees,
}
"""Scores of outputs, by name."""


def scores_of(features: Features) -> tuple[str, ...]:
    """Returns the names of the scores that outputs are reported with by default."""
    names = {default_scores(target) for target in features.targets.values()}
    return names.pop() if len(names) == 1 else ("exact_match",)


_NAME = re.compile(r".*-(\d+)")
_TAGS = {"t2t_bleu": "BLEU_cased", "t2t_bleu_uncased": "BLEU_uncased"}


class Translation(NamedTuple):
    """A file of outputs.

    Files are named `<anything>-<step>`, as `t2t-translate-all` names them, with the modification
    time of the checkpoint.  Scores are TensorBoard events with that step and time, as in
    tensor2tensor's `t2t-bleu`.

    Attributes:
      step: step of the checkpoint.
      path: path of the file.
    """

    step: int
    path: Path

    @property
    def seconds(self) -> float:
        """Time of the checkpoint, in seconds since 1970."""
        return self.path.stat().st_mtime


def translations_in(folder: Path, min_steps: int = 0) -> list[Translation]:
    """Returns the output files in a folder, by increasing step.

    Args:
      folder: the folder; may be missing.
      min_steps: skip files of earlier steps.

    Raises:
      DataError: two files have the same step.
    """
    found: dict[int, Path] = {}
    for path in sorted(folder.glob("*-*")) if folder.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match is None or path.name.startswith(".") or not path.is_file():
            continue
        step = int(match[1])
        if step < min_steps:
            continue
        if step in found:
            raise DataError(
                f"{found[step]} and {path} are of the same step. Give each series of translations "
                "a folder of its own."
            )
        found[step] = path
    return [Translation(step, path) for step, path in sorted(found.items())]


def start_of(folder: Path) -> float:
    """Returns the time of the oldest file in a folder, in seconds since 1970."""
    return min(path.stat().st_mtime for path in folder.iterdir() if path.is_file())


class ScoreEvents:
    """Writes scores as events, and records the last scored step.

    Args:
      folder: output folder of the events; created if missing.
      suffix: suffix of the tags.
    """

    def __init__(self, folder: Path, suffix: str = "") -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder.mkdir(parents=True, exist_ok=True)
        self._suffix = suffix
        self._last = folder / f"last_evaluated_step{suffix}.txt"
        self._writer: Any = EventFileWriter(str(folder))

    def last_step(self) -> int | None:
        """Returns the last scored step; None if there is none.

        Raises:
          DataError: the file that records it is damaged.
        """
        try:
            return int(read_text(self._last))
        except FileNotFoundError:
            return None
        except ValueError:
            raise DataError(
                f"{self._last} should hold the number of a step. Remove it, and all is scored "
                "again, or say where to begin: --min_steps=..."
            ) from None

    def write(self, step: int, seconds: float, scores: Mapping[str, float]) -> None:
        """Writes scores.

        Args:
          step: step of the checkpoint.
          seconds: time of the checkpoint, since 1970.
          scores: by name.
        """
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=f"{_TAGS.get(name, name)}{self._suffix}", simple_value=value)
            for name, value in scores.items()
        ]
        self._writer.add_event(Event(step=step, wall_time=seconds, summary=Summary(value=values)))
        self._writer.flush()

    def note(self, step: int) -> None:
        """Records that a step was scored."""
        write_text(self._last, f"{step}\n")

    def close(self) -> None:
        """Closes the event file."""
        self._writer.close()
