"""An exported trial that answers: nested arrays in, nested arrays out; no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.artifact.answer import InputError
from t2t_torch.artifact.examples import check_nested, fails, read_examples
from t2t_torch.artifact.nesting import array_of, put_together, taken_apart
from t2t_torch.artifact.session import LONG, check_names, open_session
from t2t_torch.artifact.signature import MODEL, Signature
from t2t_torch.artifact.stop import Stop, Stopped
from t2t_torch.errors import ArtifactError, DataError, UsageError

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
        if not isinstance(inputs, list):
            raise UsageError(
                "inputs should be a list of records: artifact([record]). A whole batch takes "
                "artifact.batch(inputs)."
            )
        found = self.predict([self.arrays(number, one) for number, one in enumerate(inputs)])
        nesting = self.signature.nesting["outputs"]
        return [put_together(nesting, outputs.__getitem__) for outputs in found]

    def _check_examples(self) -> None:
        """Raises ArtifactError if an example is not answered as it was."""
        nesting = self.signature.nesting["outputs"]
        try:
            records = [self.arrays(n, one["input"]) for n, one in enumerate(self.examples)]
            found = []
            for outputs in self.predict(records):
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
        outputs = self._run(arrays, Stop())
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

    def predict(self, records: Sequence[Arrays], *, stop: Stop | None = None) -> list[Arrays]:
        """Returns the graph's outputs for records.

        Args:
          records: as `arrays` returns them; those of the same shapes are computed together.
          stop: may end it from another thread.

        Raises:
          InputError: the graph fails on one; names it.
          Stopped: `stop` was set.
        """
        stop = Stop() if stop is None else stop
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

    def _rows(self, numbers: Sequence[int], records: Sequence[Arrays], stop: Stop) -> list[Arrays]:
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

    def _run(self, arrays: Arrays, stop: Stop) -> Arrays:
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
