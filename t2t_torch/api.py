"""The library: what the commands do, as functions.

    import t2t_torch as t2t

    t2t.generate("translate_multi30k_ende", data_dir="data", tmp_dir="raw")
    model = t2t.train(
        problem="translate_multi30k_ende", model="transformer", hparams_set="transformer_multi30k",
        data_dir="data", output_dir="run", train_steps=2000,
    )
    model(["A dog runs."])                         # -> ["Ein Hund rennt."]
    t2t.evaluate("run")                            # -> {"bleu": ..., ...}
    artifact = t2t.export("run", "artifact")
    with t2t.serve("artifact") as server:
        print(server.url)

`generate`, `train`, `evaluate`, `export`, `serve` and `import_run` take every setting of their
command as a keyword, and the command calls the same workflow.  They raise `T2TError`s, and report
as the command does; with `verbosity=-1` they report nothing.  Nothing here imports torch before it
is needed.
"""

from __future__ import annotations

import atexit
import collections
import io
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from t2t_torch import registry
from t2t_torch.errors import DataError, HParamsError, UsageError
from t2t_torch.files import replace_if_other
from t2t_torch.problem import Problem
from t2t_torch.remote import resolve
from t2t_torch.signals import SignalStop, StopRequest, raise_if_stopped
from t2t_torch.workflows.context import called
from t2t_torch.workflows.run import exported, form_of, load

if TYPE_CHECKING:
    from t2t_torch.decode.label_predictor import LabelPredictor
    from t2t_torch.decode.predictor import Predictor
    from t2t_torch.features import Features
    from t2t_torch.hparam import HParams
    from t2t_torch.interop.importer import ImportReport
    from t2t_torch.model import T2TModel
    from t2t_torch.runtime.session import Artifact, TensorArtifact
    from t2t_torch.train.task import Hook
    from t2t_torch.workflows.run_kind import TrainedModel

Declaration: TypeAlias = Mapping[str, Any]
"""A declaration as a dict, with the keys of docs/tutorials/own_data.md.  A file may be a table: a
pandas DataFrame, a pyarrow Table, or a list of dicts."""

ProblemLike: TypeAlias = "str | Problem | type[Problem] | Declaration"


def problem(source: ProblemLike, data_dir: str | Path | None = None) -> Problem:
    """Returns a problem.

    Args:
      source: name, class, instance, or declaration.
      data_dir: directory that keeps a declaration, so that other processes find the problem; see
        `generate`.

    Raises:
      DataError: the declaration is malformed.
      RegistryError: there is no such problem.
      UsageError: a declaration needs `data_dir`.
    """
    if isinstance(source, Problem):
        return source
    return registry.problem(_name_of(source, data_dir))


def model(
    name: str | type[T2TModel], features: Features, hparams: HParams | str | None = None
) -> T2TModel:
    """Returns a new model, in training mode.

    Args:
      name: registered name or class.
      features: features of the problem, `problem.features(data_dir)`.
      hparams: hyperparameters, or the name of a set; default: `<name>_base`.

    Raises:
      HParamsError: the hparams are of another model, or the model does not fit the features.
      RegistryError: there is no such model or set.
    """
    kind = registry.model(name) if isinstance(name, str) else name
    chosen = f"{kind.name}_base" if hparams is None else hparams
    return kind(registry.hparams(chosen, kind) if isinstance(chosen, str) else chosen, features)


def hparams(hparams_set: str, **changes: Any) -> HParams:
    """Returns the hyperparameters of a set, changed.

    Raises:
      HParamsError: a name is unknown or a value is out of bounds.
      RegistryError: there is no such set.
    """
    if not isinstance(hparams_set, str):
        raise UsageError(f"hparams_set={hparams_set!r}: expected the name of a set.")
    made = registry.hparams(hparams_set)
    return made.replace(**changes) if changes else made


def declare(source: Any, name: str = "", **keys: Any) -> dict[str, Any]:
    """Drafts the declaration of a problem from data, as `t2t-datagen --declare`.

    Args:
      source: file or folder; or a table: a pandas DataFrame, a pyarrow Table, or a list of dicts.
      name: name of the problem; required for a table.
      **keys: values that replace those of the draft, for example
        `fields={"inputs": "text", "targets": "label"}`.

    Returns:
      The declaration, to be checked and passed to `generate` or `train`.

    Raises:
      DataError: the data cannot be read, or no problem can be inferred.
      UsageError: a table has no name.
    """
    from t2t_torch.declaration.draft import draft
    from t2t_torch.declaration.problem import located

    if isinstance(source, str | Path):
        drafted = draft(resolve(source))
        content = dict(drafted.content)
        content["files"] = located(content["files"], drafted.path.parent.resolve())
    else:
        if not name:
            raise UsageError('a table has no name of its own: declare(table, name="reviews").')
        with tempfile.TemporaryDirectory() as temporary:
            content = dict(draft(_write_table(source, Path(temporary) / f"{name}.parquet")).content)
        content["files"] = {**content["files"], "train": source}
    if name:
        content["problem"] = name
    return {**content, **keys}


def generate(
    problem: ProblemLike, data_dir: str | Path, tmp_dir: str | Path | None = None, **settings: Any
) -> Problem:
    """Generates the data of a problem, as `t2t-datagen`; keeps data that is there already.

    Args:
      problem: name, class, instance, or declaration.  A declaration is written into
        `<data_dir>/declarations`, with its tables as parquet files, and belongs to every run that
        is trained on it.
      data_dir: directory of the generated data.
      tmp_dir: directory of raw files; missing files are downloaded.
      **settings: any flag of `t2t-datagen`, but `declare`, which is a function.

    Returns:
      The problem.

    Raises:
      DataError: raw files are missing or malformed, or other data of this name is there.
      RegistryError: there is no such problem.
      UsageError: a setting is unknown or does not fit.
    """
    from t2t_torch.workflows.generate import GenerateSettings
    from t2t_torch.workflows.generate import generate as workflow

    name = _name_of(problem, data_dir, overwrite=bool(settings.get("overwrite")))
    chosen = {"problem": name, "data_dir": data_dir, "tmp_dir": tmp_dir, **settings}
    with called(GenerateSettings, "t2t-datagen", chosen) as made:
        workflow(made)
    return registry.problem(name)


def train(
    problem: ProblemLike | None = None,
    model: str | type[T2TModel] | None = None,
    hparams_set: str | HParams | None = None,
    *,
    data_dir: str | Path | None = None,
    output_dir: str | Path,
    train_steps: int | None = None,
    hparams: Mapping[str, Any] | HParams | str | None = None,
    callbacks: Sequence[Hook] = (),
    stop: StopRequest | None = None,
    **settings: Any,
) -> Predictor | LabelPredictor | TrainedModel:
    """Trains a model, as `t2t-trainer`; resumes the run of `output_dir` exactly.

    Args:
      problem: name, class, instance, or declaration, whose data is generated if it is missing; not
        needed to resume.
      model: registered name or class; not needed to resume.
      hparams_set: name of a set, or hyperparameters; not needed to resume.
      data_dir: directory of the generated data; not needed to resume if it has not moved.
      output_dir: run directory.
      train_steps: optimizer steps at which the run ends, from its beginning.
      hparams: changes to the set, by name; or hyperparameters, in place of a set.
      callbacks: hooks to call in addition to those of `hooks`, a list of names.
      stop: request to save and return; None: signals end the run, in the main thread.
      **settings: any flag of `t2t-trainer`, for example `local_eval_frequency=500`.

    Returns:
      The trained model, as `load(output_dir)` returns it.

    Raises:
      KeyboardInterrupt: Ctrl-C ended the run; it has been saved and can be resumed.
      SystemExit: another signal did.
      T2TError: as `t2t-trainer`; after several problems, for `load(output_dir, problem=...)`.
    """
    from t2t_torch.workflows.train import train as workflow
    from t2t_torch.workflows.train_settings import TrainSettings

    _check_types(model, hparams_set, hparams, callbacks, settings)
    if isinstance(problem, Mapping):
        if data_dir is None:
            raise UsageError("data_dir is needed: the directory for the data of the declaration.")
        more = {name: settings.get(name) for name in ("tmp_dir", "verbosity", "t2t_usr_dir")}
        problem = generate(problem, data_dir, **more)
    named, changed = _set_and_changes(hparams_set, hparams)
    chosen = {
        "problem": None if problem is None else _name_of(problem, data_dir),
        "model": model if model is None or isinstance(model, str) else _registered(model),
        "hparams_set": named,
        "hparams": changed,
        "data_dir": data_dir,
        "output_dir": output_dir,
        "train_steps": train_steps,
    }
    with called(TrainSettings, "t2t-trainer", {**chosen, **settings}) as made:
        number = workflow(made, callbacks=callbacks, stop=SignalStop() if stop is None else stop)
    if stop is None:
        raise_if_stopped(number)
    return load(output_dir, trust_code=made.trust_code)


def evaluate(
    output_dir: str | Path, data_dir: str | Path | None = None, **settings: Any
) -> dict[str, float]:
    """Evaluates a run, as `t2t-eval`; see `Run.evaluate`.

    Args:
      output_dir: run directory.
      data_dir: directory of the generated data; default: that of the run.
      **settings: any flag of `t2t-eval`, for example `eval_use_test_set=True`.

    Returns:
      Metrics by name; NaN for an undefined one.

    Raises:
      T2TError: as `t2t-eval`.
    """
    from t2t_torch.workflows.evaluate import metrics_of

    return metrics_of({"output_dir": output_dir, "data_dir": data_dir, **settings})


def export(
    output_dir: str | Path,
    export_dir: str | Path,
    data_dir: str | Path | None = None,
    **settings: Any,
) -> Artifact | TensorArtifact | Path:
    """Exports a run and verifies the result, as `t2t-exporter`; see `Run.export`.

    Args:
      output_dir: run directory.
      export_dir: new directory of the artifact.
      data_dir: directory of the generated data; default: that of the run.
      **settings: any flag of `t2t-exporter`, for example `overwrite=True` or `quantize="int8"`.

    Returns:
      The loaded artifact; its path for formats that are not run here.

    Raises:
      T2TError: as `t2t-exporter`; `export_dir` is then unchanged.
    """
    given = {"output_dir": output_dir, "export_dir": export_dir, "data_dir": data_dir}
    return exported({**given, **settings})


class Server:
    """A server in another process; `serve` starts one.

    As a context manager it is closed on exit.

    Attributes:
      url: address of the page and of the API, `http://host:port`.
    """

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url = url
        self._process = process
        self._log = threading.Thread(target=_copy_log, args=(process.stderr,), daemon=True)
        self._log.start()
        atexit.register(self.close)

    def __repr__(self) -> str:
        state = "running" if self._process.poll() is None else "closed"
        return f"Server({self.url!r}, {state})"

    def predict(self, inputs: Sequence[Any]) -> list[Any]:
        """Returns the predictions of `POST /predict` for several inputs, each by target.

        Raises:
          UsageError: the server refused the request, or cannot be reached.
        """
        from t2t_torch.workflows.serve import ask

        if isinstance(inputs, str | bytes | Mapping):
            raise UsageError("inputs should be a list: server.predict([text])")
        try:
            return ask(f"{self.url}/predict", list(inputs), _TIMEOUT_SECONDS)
        except TypeError as error:
            raise UsageError(f"inputs should be JSON values: {error}") from None

    def wait(self) -> int:
        """Waits until the server ends; returns its exit code."""
        return self._process.wait()

    def close(self) -> None:
        """Ends the server after the requests in progress; a second call does nothing."""
        atexit.unregister(self.close)
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()
        self._log.join()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def import_run(source: str | Path, output_dir: str | Path, **settings: Any) -> ImportReport:
    """Imports a trained model of another library as a run, as `t2t-import`.

    Args:
      source: run directory of the other library.
      output_dir: new run directory.
      **settings: any flag of `t2t-import`, for example `verify="in.txt", expect="out.txt"`.

    Returns:
      The report; its `path` is the run directory.

    Raises:
      T2TError: as `t2t-import`; nothing is written.
    """
    from t2t_torch.interop.importer import import_run as workflow
    from t2t_torch.interop.settings import ImportSettings

    chosen = {"source": source, "output_dir": output_dir, **settings}
    with called(ImportSettings, "t2t-import", chosen) as made:
        return workflow(made)


def serve(
    path: str | Path, *, host: str = "127.0.0.1", port: int = 8080, **settings: Any
) -> Server:
    """Starts `t2t-server` in another process, and returns when it is ready.

    Args:
      path: an artifact or a run directory.
      host: address to listen at.
      port: port; 0 takes a free one.
      **settings: any flag of `t2t-server`.

    Raises:
      T2TError: a setting does not fit, or the server cannot start; the message is the server's.
    """
    from t2t_torch.workflows.serve import ServeSettings

    path = Path(path).expanduser()
    place = "output_dir" if form_of(path) is None else "artifact"
    chosen = {place: path, "host": host, "port": port, **settings}
    with called(ServeSettings, "t2t-server", chosen) as made:
        command = [sys.executable, "-m", "t2t_torch.bin", "server", *made.arguments()]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines: list[str] = []
    try:
        for line in process.stderr:
            lines.append(line)
            if '"event": "listening"' in line:
                return Server(json.loads(line)["url"].rstrip("/"), process)
    except BaseException:
        process.terminate()
        raise
    process.stderr.close()
    process.wait()
    raise UsageError("".join(lines).strip().removeprefix("error: "))


_TIMEOUT_SECONDS = 120  # of a request, which the server itself answers earlier


def _copy_log(log: IO[str]) -> None:
    """Copies the log of a server to stderr; without a reader the server would block."""
    with log:
        for line in log:
            sys.stderr.write(line)


def _name_of(source: ProblemLike, data_dir: str | Path | None, *, overwrite: bool = False) -> str:
    """Returns the registered name of a problem; registers it if necessary."""
    if isinstance(source, str):
        registry.add_declarations(None if data_dir is None else resolve(data_dir))
        return source
    if isinstance(source, Mapping):
        if data_dir is None:
            raise UsageError("a declaration is written into data_dir: give it, too.")
        return _declared(source, resolve(data_dir), overwrite=overwrite)
    if isinstance(source, Problem):
        _registered(type(source))
        return source.full_name
    if not (isinstance(source, type) and issubclass(source, Problem)):
        raise UsageError(
            "problem: expected a name, a Problem or a declaration, "
            f"not {type(source).__name__}. Of a table: t2t.declare(table, name=...)."
        )
    return _registered(source)


def _registered(kind: Any) -> str:
    """Returns the name of a problem's or a model's class; registers it if it has none."""
    if "name" not in vars(kind):
        register = "problem" if issubclass(kind, Problem) else "model"
        getattr(registry, f"register_{register}")(kind)
    return str(kind.name)


def _declared(declaration: Declaration, data_dir: Path, *, overwrite: bool) -> str:
    """Writes a declaration and its tables into the data directory; returns the problem's name.

    Raises:
      RegistryError: the declaration is invalid.
      UsageError: there is data of another declaration of this name.
    """
    from t2t_torch.declaration.problem import located, write_declaration

    name, folder = str(declaration.get("problem", "")), data_dir / registry.DECLARATIONS
    files: Any = declaration.get("files")
    tables = {}
    if isinstance(files, Mapping):
        tables = {split: value for split, value in files.items() if _is_table(value)}
        names = {split: f"{name}-{split}.parquet" for split in tables}
        here = {s: located(value, Path()) for s, value in files.items() if s not in tables}
        files = {split: {**names, **here}[split] for split in files}
    content = {**declaration, "files": files} if "files" in declaration else declaration
    write_declaration(content, data_dir, overwrite=overwrite)
    for split, table in tables.items():
        _write_table(table, folder / names[split])
    return name


def _is_table(value: Any) -> bool:
    rows = isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value)
    return bool(rows) or hasattr(value, "to_parquet") or hasattr(value, "to_batches")


def _write_table(table: Any, path: Path) -> Path:
    """Writes a pandas DataFrame, a pyarrow Table or a list of dicts as a parquet file.

    Raises:
      DataError: it is no table, or a column has mixed types.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        if hasattr(table, "to_parquet"):
            table = pa.Table.from_pandas(table, preserve_index=False)
        elif not isinstance(table, pa.Table):
            table = pa.Table.from_pylist([dict(row) for row in table])
        buffer = io.BytesIO()
        parquet.write_table(table.replace_schema_metadata(None), buffer)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{path.stem}: expected a pandas DataFrame, a pyarrow Table or a list of dicts whose "
            f"columns each hold one type: {error}."
        ) from None
    replace_if_other(path, buffer.getvalue())
    return path


def _check_types(
    model: Any, hparams_set: Any, changes: Any, callbacks: Any, settings: Mapping[str, Any]
) -> None:
    """Raises UsageError if an argument has the wrong type, or nothing would be trained."""
    from t2t_torch.hparam import HParams
    from t2t_torch.model import T2TModel
    from t2t_torch.train.task import Hook

    is_class = isinstance(model, type) and issubclass(model, T2TModel)
    if not (model is None or isinstance(model, str) or is_class):
        raise UsageError(f"model={model!r}: expected a name or a subclass of T2TModel.")
    if not (hparams_set is None or isinstance(hparams_set, str | HParams)):
        raise UsageError(f"hparams_set={hparams_set!r}: expected a name or HParams.")
    if isinstance(changes, HParams):
        if hparams_set is not None:
            raise UsageError("hparams: give a dict of changes to hparams_set, or HParams alone.")
    elif isinstance(changes, str) and isinstance(hparams_set, HParams):
        raise UsageError("hparams: give a dict of changes if hparams_set is an HParams object.")
    elif not (changes is None or isinstance(changes, str | Mapping)):
        raise UsageError(f"hparams={changes!r}: expected a dict of changes.")
    if not isinstance(callbacks, list | tuple):
        raise UsageError(f"callbacks={callbacks!r}: expected a list of hooks.")
    for name in ("print_config", "help_hparams", "dry_run", "test_mode"):
        if settings.get(name):
            raise UsageError(f"{name} trains no model. Use t2t-trainer, or t2t_torch.workflows.")
    for hook in callbacks:
        if not isinstance(hook, Hook):
            raise UsageError(f"callbacks: {hook!r} is no t2t.Hook. Pass instances of a subclass.")


def _set_and_changes(
    chosen: str | HParams | None, changes: Mapping[str, Any] | HParams | str | None
) -> tuple[str | None, str | dict[str, Any] | None]:
    """Returns the name of a set, and the changes to it, with those of hyperparameters in its place.

    Raises:
      HParamsError: no set has hyperparameters of this class.
    """
    if not (changes is None or isinstance(changes, str | Mapping)):  # HParams, as a set
        chosen, changes = changes, None
    if chosen is None or isinstance(chosen, str):
        return chosen, changes if isinstance(changes, str) else dict(changes or {}) or None
    sources = collections.Counter(chosen.provenance.values())
    names = [*(name for name, _ in sources.most_common()), *registry.list_names("hparams")]
    known = set(registry.list_names("hparams"))
    for name in dict.fromkeys(name for name in names if name in known):
        base = registry.hparams(name)
        if type(base) is type(chosen):
            values = {field: getattr(chosen, field) for field in type(chosen).model_fields}
            differing = {f: v for f, v in values.items() if v != getattr(base, f)}
            return name, {**differing, **dict(changes or {})} or None  # type: ignore[arg-type]
    raise HParamsError(
        f"no registered set is of {type(chosen).__name__}: a run records the name of its set. "
        "Register one with @t2t.registry.register_hparams."
    )
