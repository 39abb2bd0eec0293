"""Inference sessions of exported models: onnxruntime, numpy and the standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.machinery
import importlib.util
import json
import math
import os
import re
import reprlib
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import ArtifactError, DataError, UsageError
from t2t_torch.features import OutputSpec
from t2t_torch.files import check_regular, read_lines
from t2t_torch.runtime.feeds import (
    WEIGHTS,
    Feeds,
    GraphInput,
    aligned,
    answers_of,
    predictions_of,
    wanted_name,
)
from t2t_torch.runtime.nesting import alike, array_of, put_together, taken_apart
from t2t_torch.runtime.prediction import Input, InputColumns, InputError, Prediction
from t2t_torch.runtime.signature import (
    CTRANSLATE2,
    EXAMPLES,
    FILE,
    HUGGINGFACE,
    MODEL,
    ONNX,
    Signature,
)

Example: TypeAlias = dict[str, Any]
"""An `input` and its `answer`."""

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""Arrays by input or output name of a graph."""

_TIE = 1e-5  # relative tolerance of tied scores; for numbers, relative to their scale
_CLOSE = 1e-3  # tolerance of numbers; looser than the exporter's, as versions may differ


def read_examples(path: Path) -> list[Example]:
    """Returns the examples of an artifact; an empty list if it has no examples file.

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
    predictions: Sequence[Prediction],
) -> None:
    """Checks that the predictions for the examples equal those computed at export.

    Args:
      path: folder of the artifact.
      targets: targets of its signature.
      examples: examples of the artifact.
      predictions: current predictions for these examples.

    Raises:
      ArtifactError: a prediction differs; names the example.
    """
    scales = {}  # the largest expected number of each target
    for name in (one.name for one in targets if one.kind == "numbers"):
        values = (one["answer"]["values"].get(name, ()) for one in examples)
        scales[name] = max((abs(number) for row in values for number in row), default=1.0)
    for number, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
        for name, value, expected in _compared(targets, example["answer"], prediction):
            if not _is_same(value, expected, scales.get(name, 1.0)):
                raise _differs(path, number, f"{name!r} is {value!r}, and was {expected!r}")


def _differs(path: Path, number: int, difference: str) -> ArtifactError:
    return ArtifactError(
        f"'{path}' predicts its example {number} differently than at export: {difference}. "
        "Copy it again from where it was exported, or export the run again with the onnxruntime "
        "that is installed here."
    )


def _compared(
    targets: Sequence[OutputSpec], answer: Mapping[str, Any], prediction: Prediction
) -> Iterator[tuple[str, Any, Any]]:
    """Yields the name of each value with its predicted and its expected value."""
    if not prediction.hypotheses:
        for target in targets:
            if target.name in answer["values"] and not _is_tie(target, answer, prediction):
                yield target.name, prediction.values[target.name], answer["values"][target.name]
        for name, before in answer.get("scores", {}).items():
            # The labels are only in the signature; probabilities differ between processors.
            if isinstance(before, Mapping):
                yield f"labels of {name}", sorted(prediction.scores[name]), sorted(before)
        return
    name, best, hypothesis = targets[0].name, answer["hypotheses"][0], prediction.hypotheses[0]
    is_tie = math.isclose(hypothesis.score, best["score"], rel_tol=_TIE)
    if list(hypothesis.ids) == best["ids"] or not is_tie:
        yield name, hypothesis.text, best["text"]
    yield f"{name}_scores", hypothesis.score, best["score"]


def _is_tie(target: OutputSpec, answer: Mapping[str, Any], prediction: Prediction) -> bool:
    """Returns True if another span or label was predicted that is equally probable."""
    now, before = prediction.values[target.name], answer["values"][target.name]
    if now == before:
        return False
    if target.kind == "class":
        scores = prediction.scores.get(target.name, {})
        if not isinstance(scores, Mapping) or not {now, before} <= scores.keys():
            return False
        return math.isclose(scores[now], scores[before], rel_tol=_CLOSE)
    if target.kind != "span":
        return False
    was = answer["probabilities"][target.name]
    return math.isclose(prediction.probabilities[target.name], was, rel_tol=_TIE)


def _is_same(actual: Any, expected: Any, scale: float = 1.0) -> bool:
    if isinstance(expected, float):
        is_close = math.isclose(actual, expected, rel_tol=_CLOSE, abs_tol=max(_CLOSE, _TIE * scale))
        return is_close or (math.isnan(actual) and math.isnan(expected))
    if isinstance(expected, Mapping):
        return all(_is_same(actual[key], value, scale) for key, value in expected.items())
    if isinstance(expected, list):
        pairs = zip(actual, expected, strict=False)
        return len(actual) == len(expected) and all(_is_same(*pair, scale) for pair in pairs)
    return bool(actual == expected)


_SILENT = "ORT_DISABLE_TELEMETRY"


def onnx_runtime() -> Any:
    """Returns the module onnxruntime.

    Since 1.29 its packages for Linux send usage data about graphs to Microsoft, unless
    ORT_DISABLE_TELEMETRY=1 is set in the environment before the import.  This function sets it,
    and keeps a value that is already set.

    Raises:
      ImportError: onnxruntime is not installed.
    """
    wanted = os.environ.setdefault(_SILENT, "1")
    import onnxruntime

    if wanted == "1":  # for later events, if the module was imported before
        onnxruntime.disable_telemetry_events()
    return onnxruntime


_SHRINKAGE = "memory.enable_memory_arena_shrinkage"  # of onnxruntime's RunOptions


class Stopped(Exception):
    """A computation was cancelled before it returned a result; not an error of an input."""


class CancellationToken:
    """Cancellation token for a computation in another thread.

    A run of onnxruntime, or a search inside a graph, ends when the current operator is done:
    usually within 0.1 s, for very long inputs after seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._options: Any = None
        self._is_set = False

    @property
    def is_set(self) -> bool:
        """True if the computation is cancelled."""
        return self._is_set

    def set(self) -> None:
        """Cancels the computation."""
        with self._lock:
            self._is_set = True
            if self._options is not None:
                self._options.terminate = True

    def check(self) -> None:
        """Raises Stopped if the computation is cancelled."""
        if self._is_set:
            raise Stopped("nobody waits for it.")

    @contextlib.contextmanager
    def run(self, *, gives_back: bool = False) -> Iterator[Any]:
        """Yields onnxruntime's RunOptions for one run, which `set` cancels.

        Args:
          gives_back: if True, the session's memory arena is released to the system after the run,
            also after a cancelled one; the next run allocates it again.

        Raises:
          Stopped: the run was cancelled, before or after its start.
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
        except Exception:  # onnxruntime's errors have no common base class
            self.check()
            raise
        finally:
            with self._lock:
                self._options = None


def batches_of(lengths: Sequence[int], budget: int, price: float) -> list[list[int]]:
    """Returns batches of inputs of similar lengths, as indices, the longest first.

    Of all ways to split the inputs, sorted by length, into batches, it chooses the one with the
    smallest total of padded sizes and fixed costs.

    Args:
      lengths: lengths of the inputs, in any unit; 0 counts as 1.
      budget: maximum padded size of a batch, in that unit; a longer input is a batch by itself.
      price: fixed cost of a batch, in that unit; a price of `budget` results in few batches.
    """
    if len(lengths) == 1:
        return [[0]]
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    sizes = [max(1, lengths[number]) for number in order]
    widths, costs = np.array(sizes, np.float64), np.zeros(len(order) + 1)
    starts, earliest = [0], 0  # start of the last batch, by number of inputs
    for end in range(1, len(order) + 1):
        while earliest < end - 1 and sizes[earliest] * (end - earliest) > budget:
            earliest += 1
        counts = np.arange(end - earliest, 0, -1)  # sizes of the last batch
        totals = costs[earliest:end] + widths[earliest:end] * counts
        starts.append(earliest + int(totals.argmin()))
        costs[end] = totals.min() + price
    batches, end = [], len(order)
    while end:
        batches.append(order[starts[end] : end])
        end = starts[end]
    return batches[::-1]


_BATCH_WORDS = 256  # padded words of a batch, for models that predict labels
_BATCH_PRICE = 20.0  # in words
"""Fixed cost of a run of the graph: for the joint BiLSTM 2 ms, plus 0.11 ms for each word,
including padding."""

LONG = 256
"""Number of words above which onnxruntime releases its memory after the run instead of keeping it:
the attention of a text is quadratic in its length."""

NO_ATTENTION = (
    "it was exported without, or attends to no text. t2t-exporter "
    "--decode_hparams=write_alignments=true  exports a run whose model attends to one"
)
"""Reason why an artifact has no attention; end of an error message."""

_BATCH_WORDS_OF_TEXTS = 512  # larger, as each step of a search has a fixed cost


class _Wanted(NamedTuple):
    """Requested additional outputs of texts.

    Attributes:
      alignments: True if the alignments of all hypotheses are requested.
      weights: maximum number of attention weights of an input's best hypothesis; None if the
        attention is not requested.
    """

    alignments: bool = False
    weights: int | None = None


class _GraphArtifact(ABC):
    """A folder with a graph, opened and checked against its examples.

    Args:
      path: folder of the artifact.
      threads: number of onnxruntime threads per batch; 0 uses all cores.

    Attributes:
      path: folder of the artifact.
      signature: metadata of the artifact.
      examples: inputs with the predictions computed at export.
    """

    def __init__(self, path: str | Path, *, threads: int = 0) -> None:
        if threads < 0:
            raise UsageError(f"threads={threads}: expected 0, all cores, or more.")
        self.path = Path(path)
        self._threads = threads
        self.signature = Signature.read(self.path)
        self.prepare()
        self.signature.check_files(self.path)
        self._session = open_session(self.path / MODEL, self.signature, threads)
        self._read = {node.name for node in self._session.get_inputs()}
        self._outputs = [output.name for output in self._session.get_outputs()]
        self._check_names()
        self.examples = read_examples(self.path)
        try:
            self.check_examples()
        except ArtifactError:
            raise
        except Exception as error:  # of a signature that does not match the graph
            raise ArtifactError(
                f"'{self.path}' does not answer its own examples: {error!r}. Copy it again from "
                "where it was exported, or export the run again with the onnxruntime that is "
                "installed here."
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the folder, which is opened again."""
        return functools.partial(open_artifact, threads=self._threads), (self.path.absolute(),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @abstractmethod
    def prepare(self) -> None:
        """Sets what follows from the signature; raises ArtifactError if it is of another kind."""

    def _check_names(self) -> None:
        """Raises ArtifactError if the graph has other inputs than the signature, or lacks a
        target.
        """
        signature = self.signature
        fields = {field.name for field in signature.fields}
        fields |= {field.name + WEIGHTS for field in signature.fields if field.kind == "gazetteer"}
        if signature.nesting:
            fields &= self._read  # the graph lacks inputs that no output depends on
        odd = [f"input {name!r}" for name in sorted(fields ^ self._read)]
        targets = {target.name for target in signature.targets}
        odd += [f"output {name!r}" for name in sorted(targets - set(self._outputs))]
        if odd:
            raise ArtifactError(
                f"{self.path / FILE} is not of {MODEL}: the {odd[0]} is in one of them alone. Copy "
                "the artifact again from where it was exported, or export the run again."
            )

    @abstractmethod
    def check_examples(self) -> None:
        """Raises ArtifactError if the prediction of an example differs from the one at export."""

    def _computed(
        self,
        numbers: Sequence[int],
        feeds_of: Callable[[Sequence[int]], tuple[Arrays, bool]],
        stop: CancellationToken | None,
    ) -> Iterator[tuple[Sequence[int], Arrays]]:
        """Yields inputs with the outputs of the graph: the whole batch, or one by one if it fails.

        Args:
          numbers: numbers of the inputs of the batch.
          feeds_of: returns the graph's inputs, and whether the memory is released after the run.
          stop: cancellation token.

        Raises:
          InputError: the graph fails on an input, for example on an unknown word that must be
            known.
          Stopped: `stop` was set.
        """
        try:
            feeds, is_long = feeds_of(numbers)
            with (stop or CancellationToken()).run(gives_back=is_long) as options:
                arrays = self._session.run(self._outputs, feeds, options)
        except Stopped:
            raise
        except Exception as error:  # onnxruntime's errors have no common base class
            if len(numbers) == 1:
                raise InputError(numbers[0], _why(error)) from error
            for number in numbers:
                yield from self._computed([number], feeds_of, stop)
        else:
            yield numbers, dict(zip(self._outputs, arrays, strict=True))


class Artifact(_GraphArtifact):
    """Inference session of an artifact written by `t2t-exporter`; thread-safe.

    Inputs and predictions are those of `decode.label_predictor.LabelPredictor`; for models that
    generate texts, those of `decode.predictor.Predictor`.

    Args:
      path: folder of the artifact.
      threads: number of onnxruntime threads per batch; 0 uses all cores.

    Attributes:
      signature: metadata of the artifact.
      fields: fields of an input.
      columns: columns of the fields.
      examples: inputs with the predictions computed at export.

    Raises:
      ArtifactError: the folder is not an artifact, is damaged, modified or newer than this version,
        predicts its examples differently, or onnxruntime or its extensions are missing.
      UsageError: `threads` is negative.
    """

    def prepare(self) -> None:
        """See `_GraphArtifact.prepare`."""
        signature = self.signature
        if signature.form != ONNX:
            reader = "t2t_torch.load reads it, with torch"
            if library := {CTRANSLATE2: "CTranslate2", HUGGINGFACE: "transformers"}.get(
                signature.form
            ):
                reader = f"{library} reads it, as its README.md shows"
            raise ArtifactError(
                f"'{self.path}' was exported with --format={signature.form}, which has no graph. "
                f"{reader}; or export the run with --format=onnx."
            )
        if signature.nesting:
            raise ArtifactError(
                f"'{self.path}' is of a trial: t2t_torch.load('{self.path}') reads it."
            )
        kinds = {field.name: field.kind for field in signature.fields}
        names, forms = signature.column_names, signature.column_forms
        self.fields = tuple(kinds)
        self.columns = InputColumns(signature.problem, kinds, names, forms)
        self._feeds = Feeds(signature.fields)
        self._writes = any(target.kind == "text" for target in signature.targets)

    def __call__(self, inputs: Sequence[Input]) -> list[Any]:
        """Returns the predicted value of each input in order; see `Prediction.value`."""
        return [answer.value for answer in self.predict(inputs, alignments=False)]

    @property
    def tells_attention(self) -> bool:
        """True if the artifact was exported with attention and alignments."""
        return bool(self.signature.search.get("write_alignments"))

    def check_examples(self) -> None:
        """See `_GraphArtifact.check_examples`."""
        predictions = self.predict([one["input"] for one in self.examples], alignments=False)
        check_answers(self.path, self.signature.targets, self.examples, predictions)

    def predict(
        self,
        inputs: Sequence[Input],
        *,
        stop: CancellationToken | None = None,
        alignments: bool = True,
    ) -> list[Prediction]:
        """Returns the prediction of each input in order.

        Args:
          inputs: texts if a text is the only field of an input, else mappings by field.
          stop: cancellation token.
          alignments: if True and `tells_attention`, adds alignments to the hypotheses; slower.

        Raises:
          InputError: an input cannot be encoded; names the input.
          DecodeError: an input lacks a field or is not a mapping, or `inputs` is a single text
            instead of a list.
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
        """Returns the predictions of `predict` with the `attention` of each best hypothesis.

        Args:
          inputs: texts.
          stop: cancellation token.
          most: maximum number of weights per input; None for no limit.

        Raises:
          ArtifactError: the artifact was exported without attention.
          DecodeError: an input has more weights than `most`; or see `predict`.
          InputError, Stopped: see `predict`.
        """
        if not self.tells_attention:
            raise ArtifactError(f"'{self.path}' returns no attention: {NO_ATTENTION}.")
        return self._predict(inputs, stop, _Wanted(True, sys.maxsize if most is None else most))

    def _predict(
        self, inputs: Sequence[Input], stop: CancellationToken | None, wanted: _Wanted
    ) -> list[Any]:
        samples = self.columns.whole_samples(inputs)
        rows = [self._feeds.row(number, sample) for number, sample in enumerate(samples)]
        predictions: dict[int, Any] = {}
        # Activations multiplied with int8 weights share one scale per batch: in a larger batch the
        # result would depend on the other inputs.
        budget, price = _BATCH_WORDS, _BATCH_PRICE
        if self._writes:
            budget = price = _BATCH_WORDS_OF_TEXTS
        if self.signature.quantized:
            budget = 1

        def feeds_of(numbers: Sequence[int]) -> tuple[Arrays, bool]:
            feeds = self._feeds.batch([rows[number] for number in numbers])
            if self.tells_attention:
                feeds[wanted_name(self.signature.targets[0].name)] = np.array(wanted.alignments)
            return feeds, max(rows[number].length for number in numbers) > LONG

        for batch in batches_of([row.length for row in rows], budget, price):
            for numbers, outputs in self._computed(batch, feeds_of, stop):
                own = [rows[number] for number in numbers]
                answers = self._answers(numbers, own, outputs, wanted)
                predictions.update(zip(numbers, answers, strict=True))
        return [predictions[number] for number in range(len(rows))]

    def _answers(
        self, numbers: Sequence[int], rows: Sequence[GraphInput], outputs: Arrays, wanted: _Wanted
    ) -> list[Any]:
        """Returns the predictions of a batch.

        Raises:
          DecodeError: an input has more weights than requested.
          InputError: a text has other words in the graph.
        """
        self._feeds.check_offsets(numbers, rows, outputs)
        if not self._writes:
            return answers_of(self.signature.targets, outputs, rows)
        (target,) = self.signature.targets
        predictions = predictions_of(target, outputs)
        if not wanted.alignments:
            return predictions
        return aligned(target.name, outputs, predictions, numbers, wanted.weights)


def open_session(model: Path, signature: Signature, threads: int) -> Any:
    """Returns the onnxruntime session of a graph.

    Args:
      model: file of the graph.
      signature: metadata of the artifact.
      threads: number of threads per batch; 0 uses all cores.

    Raises:
      ArtifactError: a required package is missing, or onnxruntime cannot read the graph.
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
    options.log_severity_level = 4  # do not log errors: they are raised
    if signature.needs_extensions:
        # The file of onnxruntime-extensions' operators; importing it would import torch.
        spec = importlib.util.find_spec("onnxruntime_extensions")
        folders = (spec.submodule_search_locations or ()) if spec else ()
        names = [f"_extensions_pydll{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES]
        paths = (Path(folder, name) for folder in folders for name in names)
        library = next((str(path) for path in paths if path.exists()), None)
        if library is None:
            raise ArtifactError(
                f"'{model.parent}' has a tokenizer of onnxruntime-extensions, which is not "
                "installed.  pip install onnxruntime-extensions"
            )
        with contextlib.suppress(OSError, AttributeError):  # a build without the symbol
            # SetMinLogLevel(ERROR), mangled: no info messages of its sentencepiece on stderr.
            ctypes.CDLL(library)._ZN13sentencepiece7logging14SetMinLogLevelEi(2)
        options.register_custom_ops_library(library)
    try:
        return onnxruntime.InferenceSession(
            check_regular(model), sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # onnxruntime's errors have no common base class
        version = signature.made_with.get("onnxruntime", "?")
        raise ArtifactError(
            f"onnxruntime {onnxruntime.__version__} cannot read {model}: {error}  It was made with "
            f"onnxruntime {version}; install that one or a newer:  "
            f"pip install 'onnxruntime>={version}'"
        ) from error


def _why(error: Exception) -> str:
    """Returns the reason why a graph failed: the name of the operator."""
    match = re.search(r"while running \w+ node\. Name:'([^']+)' Status Message: (.*)", str(error))
    if match is None:
        return f"onnxruntime fails: {error}"
    if " " in match[1]:
        return f"{match[1]}."
    return f"onnxruntime fails in {match[1]}: {match[2]}"


_MOST_RECORDS = 64  # per batch


class TensorArtifact(_GraphArtifact):
    """Inference session of a trial exported by `t2t-exporter`; thread-safe.

    It has the same interface and returns the same outputs as `trial.predictor.TrialPredictor`.

    Args:
      path: folder of the artifact.
      threads: number of onnxruntime threads per batch; 0 uses all cores.

    Attributes:
      path: folder of the artifact.
      signature: metadata of the artifact; its fields and targets are the graph's inputs and
        outputs.
      examples: inputs with the outputs computed at export.

    Raises:
      ArtifactError: the folder is not an artifact of a trial, is damaged, modified or newer than
        this version, predicts its examples differently, or onnxruntime is missing.
      UsageError: `threads` is negative.
    """

    def prepare(self) -> None:
        """See `_GraphArtifact.prepare`."""
        if not self.signature.nesting:
            raise ArtifactError(
                f"'{self.path}' is no artifact of a trial: t2t_torch.load reads it."
            )

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Returns the outputs for single records in order.

        Args:
          inputs: inputs of the model's `forward` with the same nesting, one per record: arrays
            without the batch axis, numbers, or nested lists of numbers.

        Returns:
          The outputs of `forward` for each record, with the same nesting, as arrays.

        Raises:
          InputError: an input has another nesting or other shapes, or the graph fails on it; names
            the input.
          UsageError: `inputs` is not a list.
        """
        return [prediction.value for prediction in self.predict(inputs)]

    def predict(self, inputs: Sequence[Any]) -> list[Prediction]:
        """Returns the predictions for single records; arguments and errors are those of a call."""
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

    def check_examples(self) -> None:
        """See `_GraphArtifact.check_examples`."""
        nesting = self.signature.nesting["outputs"]
        records = [self.arrays(n, one["input"]) for n, one in enumerate(self.examples)]
        for number, outputs in enumerate(self.predict_arrays(records)):
            value = put_together(nesting, outputs.__getitem__, plain=True)
            expected = self.examples[number]["answer"]
            if not _is_same(value, expected):
                difference = f"{reprlib.repr(value)}, and it was {reprlib.repr(expected)}"
                raise _differs(self.path, number, difference)

    def batch(self, inputs: Any) -> Any:
        """Returns the outputs for a batch.

        Args:
          inputs: inputs of the model's `forward` with the same nesting, as arrays or lists.

        Raises:
          InputError: the inputs have another nesting or other shapes, or the graph fails on them.
        """
        arrays = self.arrays(0, inputs, rows=True)
        sizes = {name: len(array) for name, array in arrays.items()}
        if len(set(sizes.values())) > 1:
            raise InputError(0, f"its parts have different numbers of rows: {sizes}.")
        ((_, outputs),) = self._computed([0], lambda _: self._fed(arrays), None)
        return put_together(self.signature.nesting["outputs"], outputs.__getitem__)

    def arrays(self, number: int, record: Any, *, rows: bool = False) -> Arrays:
        """Returns the graph's inputs for a record.

        Args:
          number: index of the input, for error messages.
          record: record with the nesting of the inputs.
          rows: if True, the record is a batch; see `batch`.

        Raises:
          InputError: the record has another nesting or other shapes.
        """
        fields = {field.name: field for field in self.signature.fields}
        try:
            leaves = dict(taken_apart(self.signature.nesting["inputs"], record))
            return {name: array_of(fields[name], leaf, rows=rows) for name, leaf in leaves.items()}
        except DataError as error:
            raise InputError(number, str(error)) from None

    def predict_arrays(
        self, records: Sequence[Arrays], *, stop: CancellationToken | None = None
    ) -> list[Arrays]:
        """Returns the graph's outputs for records.

        Args:
          records: records returned by `arrays`; records of equal shapes are computed in one batch.
          stop: cancellation token.

        Raises:
          InputError: the graph fails on a record; names it.
          Stopped: `stop` was set.
        """

        def feeds_of(numbers: Sequence[int]) -> tuple[Arrays, bool]:
            own = [records[number] for number in numbers]
            return self._fed({name: np.stack([one[name] for one in own]) for name in own[0]})

        shapes = (tuple(array.shape for array in record.values()) for record in records)
        by_number: dict[int, Arrays] = {}
        for batch in alike(shapes, _MOST_RECORDS):
            for numbers, outputs in self._computed(batch, feeds_of, stop):
                for row, number in enumerate(numbers):
                    by_number[number] = {name: array[row] for name, array in outputs.items()}
        return [by_number[number] for number in range(len(records))]

    def _fed(self, arrays: Arrays) -> tuple[Arrays, bool]:
        """Returns what the graph reads, and if the batch or a dynamic axis exceeds `LONG`."""
        shapes = ((field.shape, arrays[field.name].shape) for field in self.signature.fields)
        is_long = any(
            expected > LONG
            for known, actual in shapes
            for size, expected in zip((-1, *known), actual, strict=True)
            if size == -1
        )
        return {name: array for name, array in arrays.items() if name in self._read}, is_long


def open_artifact(path: str | Path, *, threads: int = 0) -> Artifact | TensorArtifact:
    """Opens an artifact written by `t2t-exporter`.

    Args:
      path: folder of the artifact.
      threads: number of onnxruntime threads per batch; 0 uses all cores.

    Raises:
      ArtifactError: the folder is not an artifact, is damaged, modified or newer than this version,
        or onnxruntime or its extensions are missing.
      UsageError: `threads` is negative.
    """
    if Signature.read(Path(path)).nesting:
        return TensorArtifact(path, threads=threads)
    return Artifact(path, threads=threads)
