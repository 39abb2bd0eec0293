"""An exported model that answers: onnxruntime, numpy and the standard library alone."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import re
import reprlib
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import ArtifactError, DataError, UsageError
from t2t_torch.features import OutputSpec
from t2t_torch.files import read_lines
from t2t_torch.runtime.feeds import (
    WEIGHTS,
    Feeds,
    Row,
    aligned,
    answers_of,
    check_size,
    paired,
    predictions_of,
    wanted_name,
)
from t2t_torch.runtime.nesting import array_of, put_together, taken_apart
from t2t_torch.runtime.prediction import Input, InputError, Prediction, Question
from t2t_torch.runtime.signature import CTRANSLATE2, EXAMPLES, FILE, MODEL, ONNX, Signature

# The examples of an artifact: inputs, and the answers that its exporter got for them.


Example: TypeAlias = dict[str, Any]
"""An `input` and its `answer`."""

_TIE = 1e-5  # of scores, relative: either of two values might be the best; of numbers' scale
_CLOSE = 1e-3  # of numbers; the exporter compares more exactly, here another version may compute


def read_examples(path: Path) -> list[Example]:
    """Returns the examples of an artifact; none if it has no file of them.

    Raises:
      ArtifactError: the file is damaged.
    """
    file = path / EXAMPLES
    if not file.exists():
        return []
    try:
        return [json.loads(line) for line in read_lines(file)]
    except ValueError as error:
        raise ArtifactError(f"{file} is damaged: {error}. Export the run again.") from None


def check_answers(
    path: Path,
    targets: Sequence[OutputSpec],
    examples: Sequence[Example],
    found: Sequence[Prediction],
) -> None:
    """Checks that examples are answered as they were when they were exported.

    Args:
      path: of the artifact.
      targets: of its signature.
      examples: of the artifact.
      found: the answers to these examples now.

    Raises:
      ArtifactError: one is answered otherwise; names it.
    """
    scales = {one.name: _scale(one, examples) for one in targets}
    for number, (example, its) in enumerate(zip(examples, found, strict=True)):
        for name, value, expected in _compared(targets, example["answer"], its):
            if not _is_same(value, expected, scales.get(name, 1.0)):
                raise _differs(path, number, f"{name!r} is {value!r}, and was {expected!r}")


def check_nested(path: Path, examples: Sequence[Example], found: Sequence[Any]) -> None:
    """As `check_answers`, of a trial's nested arrays as plain lists.

    Raises:
      ArtifactError: one is answered otherwise; names it.
    """
    for number, (example, value) in enumerate(zip(examples, found, strict=True)):
        if not _is_close(value, example["answer"]):
            told = f"{reprlib.repr(value)}, and it was {reprlib.repr(example['answer'])}"
            raise _differs(path, number, told)


def fails(path: Path, error: Exception) -> ArtifactError:
    """Returns the error of an artifact that cannot answer its examples at all."""
    return ArtifactError(
        f"'{path}' does not answer its own examples: {error!r}. Copy it again from where it was "
        "exported, or export the run again with the onnxruntime that is installed here."
    )


def _differs(path: Path, number: int, told: str) -> ArtifactError:
    return ArtifactError(
        f"'{path}' does not answer its example {number} as it did when it was exported: {told}. "
        "Copy it again from where it was exported, or export the run again with the onnxruntime "
        "that is installed here."
    )


def _compared(
    targets: Sequence[OutputSpec], answer: Mapping[str, Any], found: Prediction
) -> Iterator[tuple[str, Any, Any]]:
    """Yields what was found and what was expected, with its name."""
    if not found.hypotheses:
        for target in targets:
            if target.name in answer["values"] and not _is_tie(target, answer, found):
                yield target.name, found.values[target.name], answer["values"][target.name]
        for name, before in answer.get("scores", {}).items():
            # Labels are in the signature alone; probabilities differ between processors.
            if isinstance(before, Mapping):
                yield f"labels of {name}", sorted(found.scores[name]), sorted(before)
        return
    name, best, its = targets[0].name, answer["hypotheses"][0], found.hypotheses[0]
    is_tie = math.isclose(its.score, best["score"], rel_tol=_TIE)
    if list(its.ids) == best["ids"] or not is_tie:
        yield name, its.text, best["text"]
    yield f"{name}_scores", its.score, best["score"]


def _is_tie(target: OutputSpec, answer: Mapping[str, Any], found: Prediction) -> bool:
    """Whether another part of a text, or another label, was found that is as probable."""
    now, before = found.values[target.name], answer["values"][target.name]
    if now == before:
        return False
    if target.kind == "class":
        scores = found.scores.get(target.name, {})
        if not isinstance(scores, Mapping) or not {now, before} <= scores.keys():
            return False
        return math.isclose(scores[now], scores[before], rel_tol=_CLOSE)
    if target.kind != "span":
        return False
    was = answer["probabilities"][target.name]
    return math.isclose(found.probabilities[target.name], was, rel_tol=_TIE)


def _scale(target: OutputSpec, examples: Sequence[Example]) -> float:
    """Returns the largest number among the answers: by it even numbers near 0 are rounded."""
    if target.kind != "numbers":
        return 1.0
    values = (one["answer"]["values"].get(target.name, ()) for one in examples)
    return max((abs(number) for held in values for number in held), default=1.0)


def _is_same(found: Any, expected: Any, scale: float) -> bool:
    if isinstance(expected, float):
        abs_tol = max(_CLOSE, _TIE * scale)
        return math.isclose(found, expected, rel_tol=_CLOSE, abs_tol=abs_tol)
    if isinstance(expected, Mapping):
        return all(_is_same(found[key], value, scale) for key, value in expected.items())
    if isinstance(expected, list):
        pairs = zip(found, expected, strict=False)
        return len(found) == len(expected) and all(_is_same(*pair, scale) for pair in pairs)
    return bool(found == expected)


def _is_close(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return all(_is_close(found[key], value) for key, value in expected.items())
    if isinstance(expected, list) and any(isinstance(one, dict | list | None) for one in expected):
        return len(found) == len(expected) and all(map(_is_close, found, expected))
    if expected is None or found is None:
        return found is expected
    return np.shape(found) == np.shape(expected) and np.allclose(
        found, expected, rtol=_CLOSE, atol=_CLOSE, equal_nan=True
    )


# onnxruntime as it is used here: imported when it is needed, and telling nobody what it runs.


_SILENT = "ORT_DISABLE_TELEMETRY"


def onnx_runtime() -> Any:
    """Returns the module onnxruntime.

    From 1.29 on its packages for Linux send to Microsoft which graphs are run and how, unless the
    environment has ORT_DISABLE_TELEMETRY=1 when the module is imported.  So that is set; a value
    that was set before stays.

    Raises:
      ImportError: it is not installed.
    """
    wanted = os.environ.setdefault(_SILENT, "1")
    import onnxruntime

    if wanted == "1":  # of what follows, where the module was imported before
        onnxruntime.disable_telemetry_events()
    return onnxruntime


# A word to a computation: nobody waits for it any more.


_SHRINKAGE = "memory.enable_memory_arena_shrinkage"  # of onnxruntime's RunOptions


class Stopped(Exception):
    """A computation was ended before it had found anything; no fault of an input."""


class CancellationToken:
    """Ends a computation from another thread.

    A run of onnxruntime, and a search inside a graph, ends when the operator that runs is done:
    mostly within a tenth of a second, with a very long input after seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._options: Any = None
        self._is_set = False

    @property
    def is_set(self) -> bool:
        """Whether the computation has to end."""
        return self._is_set

    def set(self) -> None:
        """Ends the computation."""
        with self._lock:
            self._is_set = True
            if self._options is not None:
                self._options.terminate = True

    def check(self) -> None:
        """Raises Stopped if the computation has to end."""
        if self._is_set:
            raise Stopped("nobody waits for it.")

    @contextlib.contextmanager
    def run(self, *, gives_back: bool = False) -> Iterator[Any]:
        """Yields onnxruntime's RunOptions for one run, which `set` ends.

        Args:
          gives_back: whether the memory that the session took goes back to the system at the end,
            also if the run was ended; the next one has to ask for it anew.

        Raises:
          Stopped: it was ended, or should not begin.
        """
        self.check()
        options = onnx_runtime().RunOptions()
        if gives_back:
            options.add_run_config_entry(_SHRINKAGE, "cpu:0")
        with self._lock:
            options.terminate = self._is_set
            self._options = options
        try:
            yield options
        except Exception:  # of onnxruntime's own, which have no base of theirs
            self.check()
            raise
        finally:
            with self._lock:
                self._options = None


# Inputs of like lengths put together, so that little of a batch is padding.


def batches_of(lengths: Sequence[int], budget: int, price: float) -> list[list[int]]:
    """Returns the numbers of inputs of like lengths, the longest first.

    Of all ways to cut them, sorted by length, it is the one in which what the batches hold and what
    they cost besides are the least together.

    Args:
      lengths: of the inputs, in any unit; one of 0 counts as 1.
      budget: what a batch may hold with its padding, in that unit; an input that is longer is a
        batch by itself.
      price: what a batch costs, however little it holds, in that unit; with `budget` there are few
        batches.
    """
    if len(lengths) == 1:
        return [[0]]
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    sizes = [max(1, lengths[number]) for number in order]
    widths, costs = np.array(sizes, np.float64), np.zeros(len(order) + 1)
    starts, earliest = [0], 0  # where the last batch begins, by how many inputs are cut
    for end in range(1, len(order) + 1):
        while earliest < end - 1 and sizes[earliest] * (end - earliest) > budget:
            earliest += 1
        counts = np.arange(end - earliest, 0, -1)  # of the last batch
        totals = costs[earliest:end] + widths[earliest:end] * counts
        starts.append(earliest + int(totals.argmin()))
        costs[end] = totals.min() + price
    batches, end = [], len(order)
    while end:
        batches.append(order[starts[end] : end])
        end = starts[end]
    return batches[::-1]


_BATCH_WORDS = 256  # with padding, of inputs that are answered with labels
_BATCH_PRICE = 20.0  # in words
"""What a run of the graph costs, however small its batch: of the joint BiLSTM 2 ms, and 0.11 ms
more for each word and each place of padding."""

LONG = 256
"""After an input of more words onnxruntime gives back the memory that it took, which it else keeps
for the next ones: the attention of a text grows with the square of its length."""

NO_ATTENTION = (
    "it was exported without, or attends to no text. t2t-exporter "
    "--decode_hparams=write_alignments=true  exports a run whose model attends to one"
)
"""Why an artifact tells no attention; ends a sentence."""

_BATCH_WORDS_OF_TEXTS = 512  # each step of a search has its price, however few inputs there are


class _Wanted(NamedTuple):
    """What is told of texts besides.

    Attributes:
      alignments: of all hypotheses.
      weights: of the attention of an input's best hypothesis, at most; None: it is not told.
    """

    alignments: bool = False
    weights: int | None = None


class Artifact:
    """What `t2t-exporter` wrote, ready to answer, in any number of threads at once.

    Inputs and answers are those of `decode.label_predictor.LabelPredictor`; of what writes texts
    those of `decode.predictor.Predictor`.

    Args:
      path: the artifact's folder.
      threads: of onnxruntime, for one batch; 0: as many as there are cores.

    Attributes:
      signature: what the artifact says of itself.
      fields: what an input consists of.
      examples: inputs with the answers that the exporter got.

    Raises:
      ArtifactError: this is no artifact, it is damaged, altered or newer than this version, it does
        not answer its examples as it did, or onnxruntime or its extensions are missing.
      UsageError: `threads` is below 0.
    """

    def __init__(self, path: str | Path, *, threads: int = 0) -> None:
        if threads < 0:
            raise UsageError(f"threads={threads}: expected 0, all cores, or more.")
        self.path = Path(path)
        self.signature = Signature.read(self.path)
        if self.signature.form != ONNX:
            raise ArtifactError(
                f"'{path}' was exported with --format={self.signature.form}, which has no graph. "
                f"{_reader(self.signature.form)}; or export the run with --format=onnx."
            )
        if self.signature.nesting:
            raise ArtifactError(f"'{path}' is of a trial: t2t_torch.load('{path}') reads it.")
        self.signature.check_files(self.path)
        self.fields = tuple(field.name for field in self.signature.fields)
        self._question = Question(self.signature.problem, self.fields)
        self._feeds = Feeds(self.signature.fields)
        self._session = open_session(self.path / MODEL, self.signature, threads)
        self._outputs = [output.name for output in self._session.get_outputs()]
        self._writes = any(target.kind == "text" for target in self.signature.targets)
        self._wanted = ""  # the input that asks for attention, if there is some
        if self.tells_attention:
            self._wanted = wanted_name(self.signature.targets[0].name)
        self._check_names()
        self.examples = read_examples(self.path)
        self._check_examples()

    def __repr__(self) -> str:
        return f"Artifact({str(self.path)!r})"

    def __call__(self, inputs: Sequence[Input]) -> list[Any]:
        """Returns the value found for each input, in their order; see `Prediction.value`."""
        return [answer.value for answer in self.predict(inputs, alignments=False)]

    @property
    def tells_attention(self) -> bool:
        """Whether it was exported to tell which word of an input each word of a text is from."""
        return bool(self.signature.search.get("write_alignments"))

    def _check_names(self) -> None:
        """Raises ArtifactError if fields and targets are not the graph's inputs and outputs."""
        fields = {field.name for field in self.signature.fields}
        fields |= {f.name + WEIGHTS for f in self.signature.fields if f.kind == "gazetteer"}
        check_names(
            self.path,
            fields,
            {given.name for given in self._session.get_inputs()},
            {target.name for target in self.signature.targets},
            set(self._outputs),
        )

    def _check_examples(self) -> None:
        """Raises ArtifactError if an example is not answered as it was."""
        alone = self.fields[0] if len(self.fields) == 1 else ""
        try:
            inputs = [one["input"] for one in self.examples]
            # A text that is all of an input is given as it is.
            given = [one[alone] if isinstance(one.get(alone), str) else one for one in inputs]
            found = self.predict(given, alignments=False)
            check_answers(self.path, self.signature.targets, self.examples, found)
        except ArtifactError:
            raise
        except Exception as error:  # of a signature that does not fit the graph
            raise fails(self.path, error) from error

    def predict(
        self,
        inputs: Sequence[Input],
        *,
        stop: CancellationToken | None = None,
        alignments: bool = True,
    ) -> list[Prediction]:
        """Returns the prediction of each input, in their order.

        Args:
          inputs: texts, where a text is all that an input is; else mappings by field.
          stop: may end it from another thread.
          alignments: whether hypotheses get theirs, where `tells_attention`; sooner without.

        Raises:
          InputError: an input cannot be encoded; names it.
          DecodeError: an input lacks a field or is no mapping, or `inputs` is one text, not a list.
          Stopped: `stop` was set.
        """
        return self._predict(inputs, stop, _Wanted(alignments and self.tells_attention))

    def attend(
        self,
        inputs: Sequence[Input],
        *,
        stop: CancellationToken | None = None,
        most: int | None = None,
    ) -> list[Prediction]:
        """Returns what `predict` does, with the `attention` of each best hypothesis.

        Args:
          inputs: texts.
          stop: may end it from another thread.
          most: weights of an input; None: any number.

        Raises:
          ArtifactError: it was not exported to tell attention.
          DecodeError: an input has more weights than `most`; or as `predict` does.
          InputError, Stopped: as `predict` does.
        """
        if not self.tells_attention:
            raise ArtifactError(f"'{self.path}' tells no attention: {NO_ATTENTION}.")
        return self._predict(inputs, stop, _Wanted(True, sys.maxsize if most is None else most))

    def _predict(
        self, inputs: Sequence[Input], stop: CancellationToken | None, wanted: _Wanted
    ) -> list[Any]:
        samples = self._question.samples(inputs)
        rows = [self._feeds.row(number, sample) for number, sample in enumerate(samples)]
        found: dict[int, Any] = {}
        # What is multiplied with weights of eight bits has one scale in a batch: it would depend on
        # the other inputs.
        budget, price = _BATCH_WORDS, _BATCH_PRICE
        if self._writes:
            budget = price = _BATCH_WORDS_OF_TEXTS
        if self.signature.quantized:
            budget = 1
        for numbers in batches_of([row.length for row in rows], budget, price):
            its = [rows[number] for number in numbers]
            answers = self._answers(numbers, its, stop, wanted)
            found.update(zip(numbers, answers, strict=True))
        return [found[number] for number in range(len(rows))]

    def _answers(
        self,
        numbers: Sequence[int],
        rows: Sequence[Row],
        stop: CancellationToken | None,
        wanted: _Wanted,
    ) -> list[Any]:
        """Returns the answers of a batch.

        Raises:
          DecodeError: an input has more weights than are wanted.
          InputError: the graph fails on an input, as on a word that has to be known and is not.
        """
        try:
            outputs = self._run(rows, stop, wanted)
        except Stopped:
            raise
        except Exception as error:  # of onnxruntime's own, which have no base of theirs
            if len(rows) == 1:
                raise InputError(numbers[0], _why(error)) from error
            one_by_one = zip(numbers, rows, strict=True)
            return [self._answers([number], [row], stop, wanted)[0] for number, row in one_by_one]
        if not self._writes:
            return answers_of(self.signature.targets, outputs, rows)
        (target,) = self.signature.targets
        if wanted.weights is not None:
            check_size(target.name, outputs, numbers, wanted.weights)
        predictions = predictions_of(target, outputs)
        if wanted.weights is not None:
            return aligned(target.name, outputs, predictions)
        return paired(target.name, outputs, predictions) if wanted.alignments else predictions

    def _run(
        self, rows: Sequence[Row], stop: CancellationToken | None, wanted: _Wanted
    ) -> dict[str, Any]:
        feeds = self._feeds.batch(rows)
        if self._wanted:
            feeds[self._wanted] = np.array(wanted.alignments)
        is_long = max(row.length for row in rows) > LONG
        if stop is None and is_long:
            stop = CancellationToken()
        with stop.run(gives_back=is_long) if stop else contextlib.nullcontext() as options:
            found = self._session.run(self._outputs, feeds, options)
        return dict(zip(self._outputs, found, strict=True))


def _reader(form: str) -> str:
    """Says what reads what has no graph."""
    if form == CTRANSLATE2:
        return "CTranslate2 reads it, as its README.md shows"
    return "t2t_torch.load reads it, with torch"


def check_names(
    path: Path,
    fields: Collection[str],
    inputs: Collection[str],
    targets: Collection[str],
    outputs: Collection[str],
) -> None:
    """Checks that a signature is of its graph.

    Args:
      path: of the artifact.
      fields: what the graph is given.
      inputs: what it takes.
      targets: what is read of it.
      outputs: what it gives.

    Raises:
      ArtifactError: the graph takes something else, or does not give a target.
    """
    odd = [f"input {name!r}" for name in sorted(set(fields) ^ set(inputs))]
    odd += [f"output {name!r}" for name in sorted(set(targets) - set(outputs))]
    if odd:
        raise ArtifactError(
            f"{path / FILE} is not of {MODEL}: the {odd[0]} is in one of them alone. Copy the "
            "artifact again from where it was exported, or export the run again."
        )


def open_session(model: Path, signature: Signature, threads: int) -> Any:
    """Returns onnxruntime's session.

    Args:
      model: the graph.
      signature: what the artifact says of itself.
      threads: for one batch; 0: as many as there are cores.

    Raises:
      ArtifactError: what it needs is missing, or it cannot read the graph.
    """
    try:
        onnxruntime = onnx_runtime()
    except ImportError as error:
        raise ArtifactError(
            f"an artifact is answered from by onnxruntime, and there is none: {error}.  "
            "pip install onnxruntime"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # not errors: they are raised
    if signature.needs_extensions:
        try:
            import onnxruntime_extensions
        except ImportError as error:
            raise ArtifactError(
                f"'{model.parent}' has a tokenizer of onnxruntime-extensions, and there are none: "
                f"{error}.  pip install onnxruntime-extensions"
            ) from None
        library = onnxruntime_extensions.get_library_path()
        with contextlib.suppress(OSError, AttributeError):  # a build without the symbol
            _log_errors_only(ctypes.CDLL(library))
        options.register_custom_ops_library(library)
    try:
        return onnxruntime.InferenceSession(
            model, sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # of onnxruntime's own, which have no base of theirs
        made = signature.made_with.get("onnxruntime", "?")
        raise ArtifactError(
            f"onnxruntime {onnxruntime.__version__} cannot read {model}: {error}  It was made with "
            f"onnxruntime {made}; install that one or a newer:  "
            f"pip install 'onnxruntime>={made}'"
        ) from error


def _log_errors_only(library: ctypes.CDLL) -> None:
    """Silences the informational lines that the library's sentencepiece writes to stderr."""
    library._ZN13sentencepiece7logging14SetMinLogLevelEi(2)  # SetMinLogLevel(ERROR), C++ mangled


def _why(error: Exception) -> str:
    """Returns what a graph says of an input: the name of the operator that failed."""
    match = re.search(r"while running \w+ node\. Name:'([^']+)' Status Message: (.*)", str(error))
    if match is None:
        return f"onnxruntime fails: {error}"
    if " " in match[1]:
        return f"{match[1]}."
    return f"onnxruntime fails in {match[1]}: {match[2]}"


# An exported trial that answers: nested arrays in, nested arrays out; no torch.


Arrays = Mapping[str, npt.NDArray[Any]]
"""Arrays by the names of a graph's inputs or outputs."""

_MOST_RECORDS = 64  # of a batch


class TensorArtifact:
    """What `t2t-exporter` wrote of a trial's run, ready to answer, in any number of threads.

    It is called as `trial.predictor.TrialPredictor` is, and answers alike.

    Args:
      path: the artifact's folder.
      threads: of onnxruntime, for one batch; 0: as many as there are cores.

    Attributes:
      path: the artifact's folder.
      signature: what the artifact says of itself; its fields and targets are the graph's inputs and
        outputs.
      examples: inputs with the answers that the exporter got.

    Raises:
      ArtifactError: this is no artifact of a trial, it is damaged, altered or newer than this
        version, it does not answer its examples as it did, or onnxruntime is missing.
      UsageError: `threads` is below 0.
    """

    def __init__(self, path: str | Path, *, threads: int = 0) -> None:
        if threads < 0:
            raise UsageError(f"threads={threads}: expected 0, all cores, or more.")
        self.path = Path(path)
        self.signature = Signature.read(self.path)
        if not self.signature.nesting:
            raise ArtifactError(f"'{path}' is no artifact of a trial: t2t_torch.load reads it.")
        self.signature.check_files(self.path)
        self._session = open_session(self.path / MODEL, self.signature, threads)
        self._read = {given.name for given in self._session.get_inputs()}
        self._outputs = [output.name for output in self._session.get_outputs()]
        fields = {field.name for field in self.signature.fields}
        targets = {target.name for target in self.signature.targets}
        # What no output depends on is not in the graph.
        check_names(self.path, fields & self._read, self._read, targets, self._outputs)
        self.examples = read_examples(self.path)
        self._check_examples()

    def __repr__(self) -> str:
        return f"TensorArtifact({str(self.path)!r})"

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Returns the outputs for single records, in their order.

        Args:
          inputs: what the model's `forward` took, nested as there, each of one record: arrays
            without the axis of the batch, numbers, or numbers in lists.

        Returns:
          Of each what `forward` returned, nested as there, of arrays.

        Raises:
          InputError: an input is nested otherwise, of other shapes, or the graph fails on it; names
            it.
          UsageError: `inputs` is no list.
        """
        return [prediction.value for prediction in self.predict(inputs)]

    def predict(self, inputs: Sequence[Any]) -> list[Prediction]:
        """Returns the predictions for single records; takes and raises what a call does."""
        if not isinstance(inputs, list):
            raise UsageError(
                "inputs should be a list of records: artifact([record]). A whole batch takes "
                "artifact.batch(inputs)."
            )
        records = [self.arrays(number, one) for number, one in enumerate(inputs)]
        nesting = self.signature.nesting["outputs"]
        return [
            Prediction({"output": put_together(nesting, outputs.__getitem__)})
            for outputs in self.predict_arrays(records)
        ]

    def _check_examples(self) -> None:
        """Raises ArtifactError if an example is not answered as it was."""
        nesting = self.signature.nesting["outputs"]
        try:
            records = [self.arrays(n, one["input"]) for n, one in enumerate(self.examples)]
            found = []
            for outputs in self.predict_arrays(records):
                arrays = {name: array.tolist() for name, array in outputs.items()}
                found.append(put_together(nesting, arrays.__getitem__, plain=True))
            check_nested(self.path, self.examples, found)
        except ArtifactError:
            raise
        except Exception as error:  # of a signature that does not fit the graph
            raise fails(self.path, error) from error

    def batch(self, inputs: Any) -> Any:
        """Returns the outputs for a batch.

        Args:
          inputs: what the model's `forward` took, nested as there, of arrays or lists.

        Raises:
          InputError: they are nested otherwise, of other shapes, or the graph fails on them.
        """
        arrays = self._arrays(0, inputs, rows=True)
        sizes = {name: len(array) for name, array in arrays.items()}
        if len(set(sizes.values())) > 1:
            raise InputError(0, f"its parts have different numbers of rows: {sizes}.")
        outputs = self._run(arrays, CancellationToken())
        return put_together(self.signature.nesting["outputs"], outputs.__getitem__)

    def arrays(self, number: int, record: Any) -> Arrays:
        """Returns what a record gives to the graph.

        Args:
          number: of the input, for errors.
          record: nested as the inputs are.

        Raises:
          InputError: it is nested otherwise, or of other shapes.
        """
        return self._arrays(number, record, rows=False)

    def _arrays(self, number: int, given: Any, *, rows: bool) -> Arrays:
        fields = {field.name: field for field in self.signature.fields}
        try:
            leaves = dict(taken_apart(self.signature.nesting["inputs"], given))
            return {name: array_of(fields[name], leaf, rows=rows) for name, leaf in leaves.items()}
        except DataError as error:
            raise InputError(number, str(error)) from None

    def predict_arrays(
        self, records: Sequence[Arrays], *, stop: CancellationToken | None = None
    ) -> list[Arrays]:
        """Returns the graph's outputs for records.

        Args:
          records: as `arrays` returns them; those of the same shapes are computed together.
          stop: may end it from another thread.

        Raises:
          InputError: the graph fails on one; names it.
          Stopped: `stop` was set.
        """
        stop = CancellationToken() if stop is None else stop
        alike: dict[Any, list[int]] = {}
        for number, record in enumerate(records):
            alike.setdefault(tuple(array.shape for array in record.values()), []).append(number)
        found: dict[int, Arrays] = {}
        for numbers in alike.values():
            for first in range(0, len(numbers), _MOST_RECORDS):
                some = numbers[first : first + _MOST_RECORDS]
                outputs = self._rows(some, [records[number] for number in some], stop)
                found |= zip(some, outputs, strict=True)
        return [found[number] for number in range(len(records))]

    def _rows(
        self, numbers: Sequence[int], records: Sequence[Arrays], stop: CancellationToken
    ) -> list[Arrays]:
        together = {name: np.stack([record[name] for record in records]) for name in records[0]}
        try:
            outputs = self._run(together, stop)
        except InputError as error:
            if len(numbers) == 1:
                raise InputError(numbers[0], error.why) from error.__cause__
            each = zip(numbers, records, strict=True)
            return [self._rows([number], [record], stop)[0] for number, record in each]
        return [
            {name: array[row] for name, array in outputs.items()} for row in range(len(numbers))
        ]

    def _run(self, arrays: Arrays, stop: CancellationToken) -> Arrays:
        """Returns the graph's outputs.

        Raises:
          InputError: it fails.
        """
        given = {name: array for name, array in arrays.items() if name in self._read}
        try:
            with stop.run(gives_back=self._is_long(arrays)) as options:
                found = self._session.run(self._outputs, given, options)
        except Stopped:
            raise
        except Exception as error:  # of onnxruntime's own, which have no base of theirs
            raise InputError(0, f"onnxruntime fails: {error}") from error
        return dict(zip(self._outputs, found, strict=True))

    def _is_long(self, arrays: Arrays) -> bool:
        """Whether one has more rows, or more of what may be of any size, than usual."""
        shapes = ((field.shape, arrays[field.name].shape) for field in self.signature.fields)
        return any(
            there > LONG
            for known, found in shapes
            for size, there in zip((-1, *known), found, strict=True)
            if size == -1
        )


# An artifact as what answers from it: with texts and labels, or with a trial's nested arrays.


def open_artifact(path: str | Path, *, threads: int = 0) -> Artifact | TensorArtifact:
    """Opens what `t2t-exporter` wrote.

    Args:
      path: the artifact's folder.
      threads: of onnxruntime, for one batch; 0: as many as there are cores.

    Raises:
      ArtifactError: this is no artifact, it is damaged, altered or newer than this version, or
        onnxruntime or its extensions are missing.
      UsageError: `threads` is below 0.
    """
    if Signature.read(Path(path)).nesting:
        return TensorArtifact(path, threads=threads)
    return Artifact(path, threads=threads)
