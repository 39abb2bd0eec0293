"""An exported model that answers: onnxruntime, numpy and the standard library alone."""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t2t_torch.artifact.alignment import aligned, check_size, paired, wanted_name
from t2t_torch.artifact.answer import Answer, Input, InputError, Question
from t2t_torch.artifact.batches import batches_of
from t2t_torch.artifact.examples import check_answers, fails, read_examples
from t2t_torch.artifact.feeds import WEIGHTS, Feeds, Row
from t2t_torch.artifact.onnx_runtime import onnx_runtime
from t2t_torch.artifact.prediction import Prediction
from t2t_torch.artifact.readings import answers_of, predictions_of
from t2t_torch.artifact.signature import CTRANSLATE2, FILE, MODEL, ONNX, Signature
from t2t_torch.artifact.stop import Stop, Stopped
from t2t_torch.errors import ArtifactError, UsageError

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
        """Returns the value found for each input, in their order; see `Answer.value`."""
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
        self, inputs: Sequence[Input], *, stop: Stop | None = None, alignments: bool = True
    ) -> list[Answer] | list[Prediction]:
        """Returns what was found for each input, in their order; texts as a `Prediction`.

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
        self, inputs: Sequence[Input], *, stop: Stop | None = None, most: int | None = None
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

    def _predict(self, inputs: Sequence[Input], stop: Stop | None, wanted: _Wanted) -> list[Any]:
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
        self, numbers: Sequence[int], rows: Sequence[Row], stop: Stop | None, wanted: _Wanted
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

    def _run(self, rows: Sequence[Row], stop: Stop | None, wanted: _Wanted) -> dict[str, Any]:
        feeds = self._feeds.batch(rows)
        if self._wanted:
            feeds[self._wanted] = np.array(wanted.alignments)
        is_long = max(row.length for row in rows) > LONG
        if stop is None and is_long:
            stop = Stop()
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
