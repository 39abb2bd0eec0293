"""Outputs of a trained trial, for records, batches, its validation loader or a file.

predictor = t2t_torch.load("run")
predictor([{"image": image}, {"image": other}])     # -> a list of outputs as numpy arrays
predictor.batch({"image": images})                  # -> the outputs of a whole batch

`decode` writes npz files, with arrays named after the leaves (`input1.0.sub_input1`; "input" and
"output" for a single tensor), or jsonl files, with one nested record per line.
"""

from __future__ import annotations

import collections
import copy
import inspect
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from absl import logging
from torch import Tensor, nn

from t2t_torch.atomic_files import staged
from t2t_torch.decode.loading import load_checkpoint
from t2t_torch.distributed.process_group import World
from t2t_torch.errors import CheckpointError, DataError, T2TError, TrialError, UsageError, listed
from t2t_torch.export.folder import averaged, newest_whole
from t2t_torch.features import InputSpec
from t2t_torch.files import check_regular, check_target, read_lines
from t2t_torch.mode import Split
from t2t_torch.reporter import output
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.checksums import CODE
from t2t_torch.run.code import CHANGED, open_code
from t2t_torch.run.directory import RunDirectory
from t2t_torch.run.warm_start import average_checkpoints
from t2t_torch.runtime.nesting import alike, array_of, nesting_of, put_together, taken_apart
from t2t_torch.runtime.prediction import Prediction
from t2t_torch.runtime.signature import FILE, Signature
from t2t_torch.train.memory import new_model
from t2t_torch.train.random_state import isolated_generators, restored_generators
from t2t_torch.train.run_config import DEFAULT_SEED
from t2t_torch.trial import experiment, nested, pytorch_trial, user_code
from t2t_torch.trial.context import PyTorchTrialContext, WrappedModels
from t2t_torch.trial.metrics import check_batch_pair
from t2t_torch.trial.preparation import prepare
from t2t_torch.trial.task import TrialTask, model_of
from t2t_torch.trust import trusting

if TYPE_CHECKING:
    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.workflows.decode import DecodeSettings


class ChosenCheckpoint(NamedTuple):
    """A checkpoint, or an average of several.

    Attributes:
      step: step of the latest checkpoint.
      description: description of the choice: "step 500", "mean of steps 400, 500".
    """

    step: int
    description: str


_MOST_RECORDS = 128  # per batch


class TrialPredictor:
    """Trained model of a trial.

    Args:
      model: model; switched to evaluation mode.
      name: name of the trial class.
      chosen: the loaded checkpoint.
      run: the run directory.

    Attributes:
      model: model on its device, in evaluation mode.
      name: name of the trial class.
      chosen: the loaded checkpoint.
    """

    def __init__(self, model: nn.Module, name: str, chosen: ChosenCheckpoint, run: Path) -> None:
        self._run = run
        self.model = model.eval()
        self.name = name
        self.chosen = chosen

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the run, whose code builds the model again, and the weights."""
        weights = {name: one.cpu() for name, one in self.model.state_dict().items()}
        return _loaded_again, (self._run.absolute(), weights, self.chosen)

    def __repr__(self) -> str:
        return f"TrialPredictor({self.name}, {self.chosen.description})"

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next((one.device for one in self.model.parameters()), torch.device("cpu"))

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Returns the outputs for single records, in order.

        Records with the same nesting and shapes are computed together.

        Args:
          inputs: list of single inputs of `forward`, with the same nesting: tensors or arrays
            without the batch axis, or numbers.

        Returns:
          The output of `forward` for each record, with the same nesting and arrays instead of
          tensors.

        Raises:
          TrialError: an input is not numeric, the model raises an error, or it returns no row for
            each record.
          UsageError: `inputs` is not a list.
        """
        if not isinstance(inputs, list):
            raise UsageError(
                f"inputs should be a list of records, not {nested.described(inputs)}: "
                "predictor([record]). A whole batch takes predictor.batch(inputs)."
            )
        results: dict[int, Any] = {}
        for numbers in alike(map(nested.kind_of, inputs), _MOST_RECORDS):
            outputs = self.batch(nested.stacked([inputs[number] for number in numbers]))
            results |= zip(numbers, nested.unstacked(outputs, len(numbers)), strict=True)
        return [results[number] for number in range(len(inputs))]

    def predict(self, inputs: Sequence[Any]) -> list[Prediction]:
        """Returns the predictions for single records; arguments and errors as in `__call__`."""
        return [Prediction({"output": output}) for output in self(inputs)]

    def batch(self, inputs: Any) -> Any:
        """Returns the outputs for a batch.

        Args:
          inputs: input of `forward`, with tensors or arrays.  A tuple or list if it takes several
            arguments.

        Returns:
          The output of `forward`, with the same nesting and arrays instead of tensors.

        Raises:
          TrialError: the model raises an error.
        """
        given = nested.to_device(inputs, self.device)
        try:
            with torch.no_grad():
                outputs = forward(self.model, given)
        except T2TError:
            raise
        except Exception as error:
            shapes = "\n  ".join(nested.shapes(inputs))
            raise TrialError(
                f"{type(self.model).__name__} of {self.name} cannot compute with these inputs: "
                f"{type(error).__name__}: {error}\n  {shapes}\nExpected what its forward was given "
                "in training, nested alike."
            ) from error
        return nested.as_arrays(outputs)


def arguments_of(model: nn.Module) -> int:
    """Returns the number of required arguments of `forward`; at least 1."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):  # implemented in C
        return 1
    return max(1, len(user_code.required(parameters)))


class _Arguments:
    """Marker base of a namedtuple that holds several model arguments under `forward`'s names."""


def bound_arguments(model: nn.Module, given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """Returns the arguments of a call in positional order, as a namedtuple for `forward`.

    Args:
      model: the called model.
      given: positional arguments.
      named: keyword arguments; parameters between them take their defaults.

    Raises:
      TrialError: `forward` does not list a name, or it is keyword-only.
    """
    bound = inspect.signature(model.forward).bind(*given, **named)
    last = list(bound.arguments)[-1]
    bound.apply_defaults()
    names = list(bound.arguments)[: list(bound.arguments).index(last) + 1]
    if not {bound.signature.parameters[name].kind for name in names} <= set(user_code.POSITIONAL):
        raise TrialError(
            f"the model is called with {', '.join(f'{name}=' for name in named)}, and forward of "
            f"{type(model).__name__} does not list these as arguments that have a place. Write "
            "them out: def forward(self, input_ids, attention_mask=None)."
        )
    kind = collections.namedtuple("Arguments", names, rename=True)  # type: ignore[misc]
    arguments: Any = type("Arguments", (kind, _Arguments), {})
    return arguments(*(bound.arguments[name] for name in names))


def forward(model: nn.Module, inputs: Any) -> Any:
    """Returns the model's output.

    Args:
      model: any module.
      inputs: the only argument, or a tuple or list of several.
    """
    if isinstance(inputs, _Arguments) and isinstance(inputs, tuple):
        return model(*inputs)
    return model(inputs) if arguments_of(model) == 1 else model(*inputs)


def load_trial(
    run_dir: str | Path,
    checkpoint: int | str | Path | None = None,
    *,
    device: str | torch.device | None = None,
) -> TrialPredictor:
    """Loads a model trained by `t2t-trainer --trial`.

    The trial's code is imported from its original location or, if that is gone, from the run's own
    copy.  The class and `build_model` are called; no data is read.  A process holds one trial at a
    time: loading another unloads the modules of the previous one, whose model remains usable.

    Args:
      run_dir: the run directory.
      checkpoint: a step, "best" (the best evaluation), "latest", "average:8" (the mean of the
        weights of the latest eight), or the path of a `ckpt-<step>` folder; default: the latest
        intact checkpoint.  If the run keeps an average of its weights, the average is loaded.
      device: device of the model; default: a GPU if available.

    Raises:
      ArtifactError: it was exported as weights and its files have changed.
      CheckpointError: the directory is no run directory, the checkpoint is missing or corrupt, or
        the code builds a different model.
      TrialError: the code is missing, cannot be imported, or builds no model.
    """
    run = RunDirectory(run_dir)
    if (run.path / FILE).exists():  # exported as weights: verify before importing code
        Signature.read(run.path).check_files(run.path)
    record, config, spec = _read_run(run)
    pytorch_trial.enter(
        pytorch_trial.TrialContext(config.resolved(record.hparams), copy.deepcopy(record.hparams))
    )
    with isolated_generators():  # weights are initialized, then overwritten
        definition = user_code.load_definition(spec, config.functions)
        context = PyTorchTrialContext(World(0, 1, torch.device("cpu")))
        trial = user_code.instance_of(definition, record.hparams, context)
        model = model_of(definition, trial, context, record.hparams)
    chosen = load_weights(model, run, checkpoint, spec)
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return TrialPredictor(model.to(device), definition.trial_class.__name__, chosen, run.path)


def _loaded_again(
    run: Path, weights: Mapping[str, Tensor], chosen: ChosenCheckpoint
) -> TrialPredictor:
    """Restores a pickled predictor; its reader trusts the pickle, and with it the run's code."""
    with trusting(True):
        made = load_trial(run)
    made.model.load_state_dict(weights)
    made.chosen = chosen
    return made


def load_weights(
    model: nn.Module, run: RunDirectory, checkpoint: int | str | Path | None, spec: str
) -> ChosenCheckpoint:
    """Loads the requested weights; warns if the code has changed since the run started.

    Args:
      model: model as the code builds it.
      run: run directory of the trial.
      checkpoint: see `load_trial`.
      spec: location of the code.

    Raises:
      CheckpointError: the checkpoint is missing, corrupt, or of another model.
      UsageError: "average:" is not followed by a number.
    """
    changed = experiment.changed_code(spec, run.path)
    change = CHANGED.format(listed(changed), spec, run.path / CODE)
    try:
        if not (count := averaged(checkpoint)):
            step = load_checkpoint(model, run, checkpoint)
            chosen = ChosenCheckpoint(step, f"step {step}")
        else:
            whole = newest_whole(run.path, count)
            with tempfile.TemporaryDirectory() as scratch:
                average_checkpoints(whole, CheckpointDirectory(scratch)).load_model(model)
            steps = sorted(one.step for one in whole)
            chosen = ChosenCheckpoint(steps[-1], f"mean of steps {', '.join(map(str, steps))}")
    except CheckpointError as error:
        if not changed or "does not fit the model" not in str(error):
            raise
        raise CheckpointError(f"{error}\n{change}") from error
    if changed:
        logging.warning(change)
    return chosen


_DOWNLOAD_SECONDS = 3600.0  # timeout of other processes for `download_data`


def open_run(
    path: str | Path, device: torch.device, checkpoint: int | str | Path | None
) -> tuple[TrialTask, TrialPredictor]:
    """Imports a run's code, downloads its data and loads its model.

    Args:
      path: the run directory.
      device: device of the model.
      checkpoint: see `load_trial`.

    Returns:
      The trial's task, with its loaders, and the model.

    Raises:
      CheckpointError: the directory is no run directory; or see `load_weights`.
      TrialError: the code or the data are missing or invalid.
    """
    task, run = open_task(path, World(0, 1, device)), RunDirectory(path)
    model = new_model(task, device)
    chosen = load_weights(model, run, checkpoint, task.definition.spec)
    return task, TrialPredictor(model, task.name, chosen, run.path)


def open_task(path: str | Path, world: World) -> TrialTask:
    """Imports a run's code and downloads its data; returns the trial's task.

    Args:
      path: the run directory.
      world: process group that opens the run.

    Raises:
      CheckpointError: the directory is no run directory.
      TrialError: the code or the data are missing or invalid.
      UsageError: the code comes with the run, which is not trusted.
    """
    record, config, spec = _read_run(RunDirectory(path))
    seed = config.reproducibility.experiment_seed or DEFAULT_SEED
    return prepare(spec, config, record.hparams, world, seed=seed, timeout_s=_DOWNLOAD_SECONDS)


def _read_run(run: RunDirectory) -> tuple[experiment.RunRecord, experiment.ExperimentConfig, str]:
    """Imports the user directories of a run; returns its record, and the location of its code."""
    record = experiment.RunRecord.read(run.path)
    open_code(run.path, run.task())
    config = experiment.ExperimentConfig.from_dict(
        record.config, source=str(run.path / experiment.NAME)
    )
    pytorch_trial.name_run(run.path)
    spec = experiment.place_of_code(record.trial, run.path, record.module_file)
    experiment.check_functions(spec, run.path, config.functions)
    return record, config, spec


class _Enough(BaseException):
    """Ends an evaluation after enough batches; not an error that user code should catch."""


def validation_inputs(
    task: TrialTask, model: nn.Module, device: torch.device, *, rows: int = 0
) -> Iterator[Any]:
    """Yields the inputs of the model for each batch of the validation loader.

    For the documented interface, this is the first element of (inputs, labels).  If the trial
    evaluates by its own method, the inputs of its first model call in each batch are captured.

    Args:
      task: task of the trial.
      model: model in evaluation mode.
      device: device of the model.
      rows: stops after this number of rows; 0: no limit.

    Raises:
      TrialError: the trial evaluates without calling the model, or the loader is empty.
    """
    method, seen = task.evaluation_method, 0
    full = method == "evaluate_full_dataset"
    for batch in task.eval_batches(Split.EVAL, rank=0, world_size=1):
        moved = task.batches.to_device(batch, device)
        if method == "validation_metrics":
            calls = [check_batch_pair(moved.content)[0]]
        else:
            calls = _calls(task, model, moved, rows if full else 0)
        if not calls:
            raise TrialError(
                f"{method} does not call the model itself (model(inputs)), so it is not known what "
                "it takes. Call it, and not its parts or model.forward."
            )
        for inputs in calls if full else calls[:1]:
            yield inputs
            seen += nested.rows_of(inputs)
            if rows and seen >= rows:
                return
    if not seen:
        raise TrialError(
            "The validation loader gave no batch, so it is not known what the model takes. "
            "make_data_loaders returns (train, valid): look at the second."
        )


def _calls(task: TrialTask, model: nn.Module, batch: Any, rows: int) -> list[Any]:
    """Returns copies of the inputs of each model call: a trial may modify them afterwards.

    Raises:
      TrialError: the model was called with names that `forward` does not list.
    """
    if isinstance(model, WrappedModels):
        model()  # raises an error
    calls: list[Any] = []

    def note(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        inputs: Any = given
        if named or len(given) > arguments_of(model):
            inputs = bound_arguments(model, given, named)
        elif len(given) == 1:
            inputs = given[0]
        calls.append(nested.copied(inputs))
        if rows and sum(map(nested.rows_of, calls)) >= rows:
            raise _Enough

    hook = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        with torch.no_grad():
            task.evaluator().output(model, batch)
    except _Enough:
        pass
    finally:
        hook.remove()
    return calls


NPZ, JSONL = ".npz", ".jsonl"  # suffixes of files

_CHUNK = 1024  # records of a jsonl file that are read at once


def _outputs(task: TrialTask, predictor: TrialPredictor, source: Path | None) -> Iterator[Any]:
    """Yields the output for each record of a file.

    Args:
      task: task of the trial.
      predictor: model of the trial.
      source: npz or jsonl file of inputs; None: the validation loader.

    Raises:
      DataError: the source cannot be read, or does not fit the model.
      TrialError: an output does not have one row per record.
    """
    model, device = predictor.model, predictor.device
    if source is None:
        for inputs in validation_inputs(task, model, device):
            yield from nested.unstacked(predictor.batch(inputs), nested.rows_of(inputs))
        return
    like = next(validation_inputs(task, model, device, rows=1))
    if source.suffix == NPZ:
        for count, batch in _batches_of(source, like):
            yield from nested.unstacked(predictor.batch(batch), count)
        return
    lines = list(read_lines(source))
    for first in range(0, len(lines), _CHUNK):
        yield from predictor([*_records(source, lines[first : first + _CHUNK], first + 1, like)])


def _batches_of(source: Path, like: Any) -> Iterator[tuple[int, Any]]:
    """Yields the arrays of an npz file in batches, nested as one of the loader, with their rows."""
    try:
        with np.load(check_regular(source), allow_pickle=False) as file:
            arrays = dict(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{source} cannot be read: {error}") from None
    names = [name or "input" for name, leaf in nested.leaves(like).items() if leaf is not None]
    if sorted(arrays) != sorted(names):
        raise DataError(
            f"{source} has the arrays {', '.join(arrays) or 'none'}; expected what the loader "
            f"gives: {', '.join(names)}."
        )
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(counts.values())) != 1:
        raise DataError(f"{source}: its arrays have different numbers of rows: {counts}.")
    total, size = next(iter(counts.values())), max(1, nested.rows_of(like))
    for first in range(0, total, size):
        part = {name: array[first : first + size] for name, array in arrays.items()}
        yield min(size, total - first), nested.fill(like, part, "input")


def _records(source: Path, lines: Sequence[str], first: int, like: Any) -> Iterator[Any]:
    """Yields the records of a jsonl file, nested as a batch of the loader.

    Raises:
      DataError: a line does not fit, or the model takes other values than arrays.
    """
    nesting = nesting_of(like, "input")
    fields = {}
    for name, leaf in taken_apart(nesting, like):
        if not isinstance(leaf, Tensor) or not leaf.dim():
            raise DataError(
                f"the model takes {name!r}, {nested.described(leaf)}, which a line of JSON has "
                "not: give the validation loader the records, and leave --decode_from_file out."
            )
        dtype = str(leaf.dtype).removeprefix("torch.")
        fields[name] = InputSpec(name, "tensor", dtype, shape=(-1,) * (leaf.dim() - 1))
    for number, line in enumerate(lines, start=first):
        try:
            given = dict(taken_apart(nesting, json.loads(line)))
            arrays = {name: array_of(fields[name], leaf) for name, leaf in given.items()}
        except (DataError, ValueError) as error:
            raise DataError(f"{source}, line {number}: {error}") from None
        yield nested.fill(like, arrays, "input")


def _write_npz(target: Path, outputs: Iterator[Any]) -> int:
    """Writes an array for each leaf of the outputs; returns the number of records."""
    columns: dict[str, list[Any]] = collections.defaultdict(list)
    records = [nested.leaves(one) for one in outputs]
    for record in records:
        for name, leaf in record.items():
            if leaf is None:
                continue
            if not isinstance(leaf, np.ndarray | np.generic) or leaf.dtype.kind == "O":
                raise TrialError(
                    f"the output {name or 'output'!r}, {nested.described(leaf)}, has no row of "
                    "numbers for each record, so it cannot be written."
                )
            columns[name or "output"].append(leaf)
    for name, rows in columns.items():
        shapes = {row.shape for row in rows}
        if len(shapes) > 1 or len(rows) != len(records):
            raise TrialError(
                f"the output {name!r} has different shapes, or is not there for all records: "
                f"{sorted(map(list, shapes))[:4]}. An npz file has one array for all: write "
                f"NAME{JSONL}."
            )
    arrays: Any = {name: np.stack(rows) for name, rows in columns.items()}
    with target.open("wb") as file:
        np.savez(file, **arrays)
    return len(records)


def _write_jsonl(target: Path, outputs: Iterator[Any]) -> int:
    """Writes a line for each output; returns their number."""
    total = 0
    with target.open("w", encoding="utf-8") as file:
        for one in outputs:
            total += 1
            nesting = nesting_of(one, "output")
            plain = put_together(nesting, dict(taken_apart(nesting, one)).__getitem__, plain=True)
            file.write(json.dumps(plain, ensure_ascii=False) + "\n")
    return total


@restored_generators()
def decode(settings: DecodeSettings, _: DecodeHParams) -> None:
    """Decodes a file of arrays, or the validation loader, with a run of a trial.

    Raises:
      UsageError: the suffix of a file is unknown, or a file cannot be written.
    """
    run_dir = Path(settings.runs[0])
    source, target = (
        Path(file) if file else None
        for file in (settings.decode_from_file, settings.decode_to_file)
    )
    for flag, path in {"--decode_from_file": source, "--decode_to_file": target}.items():
        if path is not None and path.suffix not in (NPZ, JSONL):
            raise UsageError(
                f"{flag}={path}: of a trial a file is NAME{NPZ}, arrays by name, or NAME{JSONL}, "
                "a nested record a line."
            )
    if source is not None and not source.is_file():
        raise UsageError(f"--decode_from_file={source}: there is no such file.")
    given = [source] if source else []
    if target:
        check_target(target, *given)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    task, predictor = open_run(run_dir, device, settings.checkpoint_path)
    chosen = predictor.chosen
    if not target and source:
        target = source.with_name(f"{source.stem}.{task.name}.{chosen.step}{source.suffix}")
    target = target or run_dir / "decodes" / f"validation-{chosen.step}.npz"
    check_target(target, *given)
    write = _write_npz if target.suffix == NPZ else _write_jsonl
    with staged(target) as path:
        count = write(path, _outputs(task, predictor, source))
    what = source or "the validation loader"
    output(f"{count:,} records of {what}, {chosen.description}: {target}")
