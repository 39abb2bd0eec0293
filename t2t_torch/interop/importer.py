"""Import of trained models of other libraries as run directories.

A *source* is a module that reads the runs of one library; `SOURCES` lists them by name.  It has

    OPTIONS: frozenset[str]                                         # settings that it reads
    def detect(source: Path) -> bool                                # are these files of mine?
    def read(source: Path, settings: ImportSettings) -> ImportedRun  # writes nothing

`detect` looks at names of files, and at most at their first bytes.  `read` refuses by name, with
an `HParamsError`, `DataError` or `CheckpointError`, what this library does not compute.
`import_run` then builds the model, checks that every weight has its place, verifies the outputs,
and only then gives the run directory its name.

Conventions of an `ImportedRun`:

- **Ids** are this library's: `PAD` is 0, `EOS` is 1.  A source whose library numbers otherwise
  writes its dictionary in our order and permutes the rows of the embeddings.
- **Vocabularies** are one file per encoder, `vocab.NAME.SUFFIX`, named in the declaration by
  `"vocabularies": {"inputs": FILE, "targets": FILE}` (the same file if they are shared).  The
  suffix chooses the encoder in `TextProblem._encoder_in`: `.subwords` (sentencepiece model of
  `text/subword.py`, or tensor2tensor's), `.tokens`, `.words`, `.symbols`.  A new kind of encoder
  is a new suffix there, with everything that it needs in the one file; then training, decoding,
  averaging, export and serving find it.  For strings in an exported graph see
  `export/encoders.py`.
- **Problem**: a declaration in JSON, as users write it; it is stored in `task.json`, so that no
  other file is needed.  Its `files` name the data to train on, which need not exist.
- **Decoding**: `decode_hparams` become the defaults of t2t-decoder, t2t-exporter, t2t-server,
  t2t-eval and `t2t.load` for this run.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import t2t_torch
from t2t_torch import registry
from t2t_torch.atomic_files import staged_folder, sync
from t2t_torch.declaration.problem import problem_of
from t2t_torch.decode.evaluation import score_lines
from t2t_torch.decode.files import form_of, input_of, read_inputs
from t2t_torch.decode.hparam import parse_decode_hparams
from t2t_torch.decode.loading import load
from t2t_torch.decode.outputs import one_line
from t2t_torch.decode.predictor import Predictor
from t2t_torch.errors import CheckpointError, DataError, UsageError
from t2t_torch.hparam import HParams
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.layers.recurrent import is_memory
from t2t_torch.loss import total_loss
from t2t_torch.model import T2TModel
from t2t_torch.optim.parameter_groups import parameter_groups
from t2t_torch.params import value_text
from t2t_torch.pipeline.collate import random_batch
from t2t_torch.problem import Problem
from t2t_torch.reporter import Reporter, phase
from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.code import keep_code
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.run.tensors import aliases_of, check_fit
from t2t_torch.settings import require
from t2t_torch.train.run_config import DEFAULT_SEED
from t2t_torch.trust import running

SOURCES = ("tensor2tensor", "fairseq", "opennmt", "sockeye", "marian", "transformers", "pytext")
"""Names of libraries, and of the modules beside this that read their runs; of pytext, its
configurations."""

_ALIASES = {
    **dict.fromkeys(("opennmt_py", "opennmt-py", "onmt"), "opennmt"),
    **dict.fromkeys(("huggingface", "hf"), ""),  # of several models, which are detected
    "t2t": "tensor2tensor",
    **dict.fromkeys(("bert", "distilbert", "gpt2"), "transformers"),
}

_SHOWN = 10  # names in an error


@dataclass(frozen=True)
class ImportedRun:
    """A trained model of another library, in the terms of this one.

    Attributes:
      library: name of the library, for messages; the source of the hyperparameters.
      problem: name of the problem, with `_rev` and `_copy`.
      model: registered name of the model.
      hparams: its hyperparameters.
      weights: by names of the model's `state_dict`; of a weight with several names any will do.
      declaration: declaration of the problem; None if it is registered.
      vocabularies: contents of the vocabulary files, by name.
      step: optimizer steps done.
      train_steps: requested number of them; 0 if unknown.
      slots: optimizer state by weight and slot, such as {"w": {"step", "exp_avg", "exp_avg_sq"}};
        None: training starts with a fresh optimizer.
      decode_hparams: decoding settings by name, only those that differ from the defaults here.
      if_outputs_differ: advice for the error of a verification, a sentence and a space; or "".
      ignored: parts of the source that were not imported, for the report.
    """

    library: str
    problem: str
    model: str
    hparams: HParams
    weights: Mapping[str, Tensor]
    declaration: Mapping[str, Any] | None = None
    vocabularies: Mapping[str, bytes] = field(default_factory=dict)
    step: int = 0
    train_steps: int = 0
    slots: Mapping[str, Mapping[str, Tensor | int | float]] | None = None
    decode_hparams: Mapping[str, Any] = field(default_factory=dict)
    if_outputs_differ: str = ""
    ignored: Sequence[str] = ()


@dataclass(frozen=True)
class ImportReport:
    """Result of an import.

    Attributes:
      path: the run directory.
      lines: report for the user, one statement each.
    """

    path: Path
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([str(self.path), *(f"  {line}" for line in self.lines)])


def declaration_of(
    name: str, kind: str, vocabularies: Mapping[str, str], **more: Any
) -> dict[str, Any]:
    """Returns the declaration of a problem of texts, whose files need not exist.

    Args:
      name: name of the problem.
      kind: kind of a declaration; each split is a file of lines, or one of columns.
      vocabularies: files of the vocabularies by field.
      more: other entries, in place of these.
    """
    suffix = "txt" if kind == "text2self" else "tsv"
    files = {split: f"{name}-{split}.{suffix}" for split in ("train", "eval")}
    known = {"problem": name, "kind": kind, "files": files, "vocabularies": vocabularies}
    return {**known, **more}


def class_names(count: int, settings: ImportSettings, usual: Sequence[str] = ()) -> list[str]:
    """Returns the names of the classes of a model: those of `labels`, the usual ones, or numbers.

    Raises:
      UsageError: they are not one for each class.
    """
    labels = list(settings.labels) or list(usual) or [str(number) for number in range(count)]
    if len(labels) != count or len(set(labels)) != count:
        raise UsageError(
            f"--labels={','.join(labels)}: the model has {count} classes. Name each of them once, "
            "in the order of their numbers."
        )
    return labels


def source_named(name: str) -> Any:
    """Returns the module that is the source of a library.

    Raises:
      UsageError: there is none of this name.
    """
    if name not in SOURCES:
        raise UsageError(f"--from={name}: expected one of {', '.join(SOURCES)}.")
    return importlib.import_module(f"t2t_torch.interop.{name}")


def detect_source(folder: Path) -> str:
    """Returns the name of the library whose files a folder holds.

    Raises:
      UsageError: the folder holds files of none or of several libraries.
    """
    found = _libraries_in(folder)
    if len(found) == 1:
        return found[0]
    if (folder / "task.json").exists():
        raise UsageError(
            f"--source={folder} is a run of this library already:  t2t-decoder "
            f"--output_dir={folder}"
        )
    paths = sorted(folder.iterdir()) if folder.is_dir() else [folder]
    names = ", ".join(path.name for path in paths[:_SHOWN])
    fault = "are files of several libraries" if found else "is no run of a library known here"
    runs = [path for path in paths[:_SHOWN] if path.is_dir() and _libraries_in(path)]
    if runs and not found:
        raise UsageError(
            f"--source={folder}: its folders are runs. Give one of them:  --source={runs[0]}"
        )
    raise UsageError(
        f"--source={folder}: this {fault} ({names or 'it is empty'}). Say which: "
        f"--from={'|'.join(found or SOURCES)}."
    )


def _libraries_in(folder: Path) -> list[str]:
    return [name for name in SOURCES if source_named(name).detect(folder)]


def _located(settings: ImportSettings) -> tuple[Path, str, ImportSettings]:
    """Returns the folder of a source, the name of its library, and the settings.

    A checkpoint file stands for its folder and its name.

    Raises:
      UsageError: the source does not exist, is of no known library or of another one, or the
        library does not use a setting.
    """
    source = Path(str(settings.source)).expanduser()
    if not source.exists():
        raise UsageError(f"--source={source} does not exist. Give the folder of the old run.")
    library = _ALIASES.get(settings.from_, settings.from_)
    if source.is_file() and source.suffix != ".json" and not settings.checkpoint:
        folder = source.parent
        found = [library] if library else _libraries_in(source) or _libraries_in(folder)
        if found in (["tensor2tensor"], ["fairseq"], ["sockeye"]):
            name = re.sub(r"^params\.|\.(index|meta|data-\d+-of-\d+)$", "", source.name)
            source, settings = folder, settings.replace(checkpoint=name)
        elif source.name.startswith(("model.safetensors", "pytorch_model.bin")):
            source = folder
    name = library or detect_source(source)
    reader = source_named(name)
    if library and not reader.detect(source) and (found := _libraries_in(source)):
        raise UsageError(
            f"--from={library}: {source} has files of {', '.join(found)}. Leave --from out."
        )
    of_sources = set[str]().union(*(source_named(one).OPTIONS for one in SOURCES))
    for one in sorted(of_sources - reader.OPTIONS):
        if getattr(settings, one) != settings.declared()[one].default:
            raise UsageError(
                f"--{one}: a run of {name} does not use it. Leave it out; what is used: "
                f"{', '.join(f'--{used}' for used in sorted(reader.OPTIONS))}."
            )
    return source, name, settings


def import_run(settings: ImportSettings, *, reporter: Reporter | None = None) -> ImportReport:
    """Imports a run of another library as a run directory, or a configuration of PyText.

    Without outputs or pairs to verify it with, it computes a finite loss of random inputs.

    Args:
      settings: what is imported, and how it is verified.
      reporter: where progress is reported; None: to the current one.

    Returns:
      The report; its `path` is the run directory.

    Raises:
      T2TError: the run cannot be imported, or its outputs differ.  Nothing is written.
    """
    with running(settings, reporter), phase("importing"):
        require(settings, "source", "output_dir")
        _check_verification(settings)
        target = Path(str(settings.output_dir)).expanduser()
        check_is_free(target)
        folder, name, settings = _located(settings)
        reader = source_named(name)
        if name != "pytext":
            return write_run(reader.read(folder, settings), target, settings)
        if settings.verify or settings.pairs:
            raise UsageError("--verify: a configuration has no weights. Leave it out.")
        return ImportReport(target, tuple(reader.import_config(folder, target, settings.problem)))


def _check_verification(settings: ImportSettings) -> None:
    """Raises UsageError or DataError if the settings of the verification do not fit."""
    if bool(settings.verify) != bool(settings.expect):
        raise UsageError("--verify and --expect go together: give inputs and their outputs.")
    if settings.allow_differences and not settings.verify:
        raise UsageError("--allow_differences belongs to --verify and --expect. Leave it out.")
    if settings.pairs and settings.verify:
        raise UsageError("--pairs and --verify are two ways to verify. Give one of them.")
    if settings.verify:
        _check_lines(settings)
    elif settings.pairs:
        _lines_of(settings.pairs)


def write_run(imported: ImportedRun, output_dir: Path, settings: ImportSettings) -> ImportReport:
    """Writes an imported run as a run directory, after its verification.

    Args:
      imported: the run.
      output_dir: new run directory; an empty folder may exist.
      settings: how it is verified; their `decode_hparams` replace those of the run.

    Raises:
      CheckpointError: weights are missing, unknown, of another shape or not finite.
      DataError: the outputs differ from the expected ones.
      T2TError: hyperparameters, vocabularies or decoding settings are invalid.
    """
    problem = _problem_of(imported)
    asked = parse_decode_hparams(settings.decode_hparams)
    decoding_of = {**imported.decode_hparams}
    decoding_of |= {name: getattr(asked, name) for name in asked.model_fields_set}
    decoding = ",".join(f"{name}={value_text(value)}" for name, value in decoding_of.items())
    parse_decode_hparams(decoding, f"decoding settings of {imported.library}")
    with _staged(output_dir) as folder:
        for name, content in imported.vocabularies.items():
            (folder / name).write_bytes(content)
        task = TaskRecord(
            problem=problem.full_name,
            model=imported.model,
            usr_dirs=tuple(registry.usr_dirs()),
            train_steps=imported.train_steps,
            decode_hparams=decoding,
            version=t2t_torch.__version__,
        )
        model = _built(imported, problem, folder)
        lines = _write(folder, imported, task, model)
        if settings.verify:
            lines.append(_compared(folder, settings, imported.if_outputs_differ))
        elif settings.pairs:
            lines.append(_loss_of(folder, settings.pairs))
        else:
            lines.append(_self_check(model))
        for path in (*folder.rglob("*"), folder):
            sync(path)
    return ImportReport(output_dir, tuple(lines))


@contextlib.contextmanager
def _staged(output_dir: Path) -> Iterator[Path]:
    """Yields a folder that becomes the run directory; see `staged_folder`.

    Raises:
      UsageError: the folder cannot be made, or another process has filled it meanwhile.
    """
    try:
        output_dir.parent.mkdir(parents=True, exist_ok=True)
        with staged_folder(output_dir) as folder:
            yield folder
    except OSError as error:
        fault = f"{error.filename or output_dir}: {error.strerror}"
        raise UsageError(f"--output_dir={output_dir}: {fault}. Name another.") from None


def check_is_free(output_dir: Path) -> None:
    """Checks that a run directory does not exist yet, or is empty.

    Raises:
      UsageError: it has files.
    """
    try:
        taken = output_dir.exists() and any(output_dir.iterdir())
    except OSError as error:
        raise UsageError(f"--output_dir={output_dir}: {error.strerror}. Name another.") from None
    if taken:
        raise UsageError(f"--output_dir={output_dir} has files. Name a new folder.")


def _problem_of(imported: ImportedRun) -> Problem:
    if imported.declaration is None:
        return registry.problem(imported.problem)
    base = registry.parse_problem_name(imported.problem)
    if base.base_name in registry.list_names("problem"):
        raise UsageError(
            f"there is a problem {base.base_name!r} here already, with other texts or vocabularies "
            f"than those of {imported.library}. Name the imported one: --problem=NAME."
        )
    problem = problem_of(imported.declaration, Path(f"{base.base_name}.json"))
    return type(problem)(reverse=base.was_reversed, copy=base.was_copy)


def _built(imported: ImportedRun, problem: Problem, folder: Path) -> T2TModel:
    """Returns the model with the imported weights.

    Shapes are compared before memory is taken, as hyperparameters may be of any size.
    """
    features, hparams = problem.features(folder), imported.hparams
    for name in ("num_hidden_layers", "num_encoder_layers", "num_decoder_layers"):
        if getattr(hparams, name, 0) > len(imported.weights):
            raise CheckpointError(
                f"{name}={getattr(hparams, name)}: the checkpoint has {len(imported.weights)} "
                "weights in all. Copy hyperparameters and checkpoint from one training."
            )
    with torch.device("meta"):
        model = registry.model(imported.model)(hparams, features)
    complete_weights(model, imported.weights)
    model = registry.model(imported.model)(hparams, features)
    load_all(model, imported.weights)
    bad = [name for name, tensor in imported.weights.items() if not bool(tensor.isfinite().all())]
    if bad:
        raise CheckpointError(
            f"the weights of {imported.library} hold values that are not finite: "
            f"{', '.join(bad[:_SHOWN])}. The training had failed; import an earlier checkpoint."
        )
    return model


def load_all(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Loads weights by their names in this library.

    Args:
      model: model to load into.
      weights: all weights of the model by name; of one with several names any will do.

    Raises:
      CheckpointError: a weight is unknown to the model, missing, or has another shape; the first
        ten are named.
    """
    complete = complete_weights(model, weights)
    # The memory of a model is not imported.
    model.load_state_dict({**model.state_dict(), **complete})


def complete_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns weights under all of their names in a model, after checks.

    Args:
      model: the model, maybe without memory (device meta).
      weights: weights by name.

    Raises:
      CheckpointError: a weight that the model shares has several values; or see `load_all`.
    """
    complete = dict(weights)
    for names in aliases_of(model).values():
        given = [name for name in names if name in weights]
        for one, other in itertools.pairwise(given):
            if not torch.equal(weights[one], weights[other]):
                raise CheckpointError(
                    f"{one} and {other} are one weight of the model, and the checkpoint has two. "
                    "Its hyperparameters share a table that the checkpoint does not."
                )
        complete |= {name: weights[given[0]] for name in names if given}
    own = {name: tensor for name, tensor in model.state_dict().items() if not is_memory(name)}
    fault = "the imported checkpoint does not fit the model:"
    remedy = "Make the model from the run's own hyperparameters and vocabularies."
    check_fit(complete, own, fault, remedy)
    return complete


def _optimizer(model: T2TModel, imported: ImportedRun) -> torch.optim.Optimizer:
    """Returns the optimizer of the hyperparameters, with the imported state if there is one.

    Raises:
      CheckpointError: the state is of other weights.
    """
    hparams = imported.hparams
    make = registry.optimizer(hparams.optimizer)
    optimizer: torch.optim.Optimizer = make(parameter_groups(model, hparams), hparams)
    if imported.slots is None:
        return optimizer
    slots, faults = dict(imported.slots), []
    aliases: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        aliases.setdefault(id(parameter), []).append(name)
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter in trained:
        names = [name for name in aliases[id(parameter)] if name in slots]
        if not names:
            faults.append(f"there is no state of {aliases[id(parameter)][0]}")
            continue
        own, *_ = [slots.pop(name) for name in names]
        for slot, value in own.items():
            if isinstance(value, Tensor) and value.ndim and value.shape != parameter.shape:
                faults.append(f"{slot} of {names[0]} is {list(value.shape)}")
        optimizer.state[parameter] = dict(own)
    faults += [f"the model has no {name}" for name in slots]
    if faults:
        raise CheckpointError(
            f"the optimizer's state of {imported.library} does not fit the model:\n  "
            + "\n  ".join(faults[:_SHOWN])
        )
    return optimizer


def _write(folder: Path, imported: ImportedRun, task: TaskRecord, model: T2TModel) -> list[str]:
    """Writes the files of a run; returns lines for the report."""
    run = RunDirectory(folder)
    run.claim_for(task, imported.hparams, vocabularies=(), vocab_dir=folder)
    if imported.declaration:  # for t2t-datagen --t2t_usr_dir, too, which makes data to train on
        registry.add_declaration(imported.declaration)
    keep_code(run, task)
    run.commit()
    state = TrainerState(step=imported.step, seed=DEFAULT_SEED, version=t2t_torch.__version__)
    CheckpointDirectory(folder).save(Snapshot.take(model, _optimizer(model, imported), state))
    count = sum(parameter.numel() for parameter in model.parameters())
    lines = [
        f"problem {task.problem}, model {task.model}, step {imported.step:,} of {imported.library}",
        f"{len(imported.weights):,} weights, {count:,} parameters",
        "optimizer: fresh" if imported.slots is None else "optimizer: its state was taken over",
    ]
    if task.decode_hparams:
        lines.append(f"decoding: {task.decode_hparams}")
    lines += [f"not imported: {part}" for part in imported.ignored]
    return lines


def _self_check(model: T2TModel) -> str:
    """Computes the loss of random inputs, which must be finite; returns a line for the report."""
    model.eval()
    with torch.no_grad():
        loss = total_loss(model(random_batch(model.features)))
    value = float(loss.sum / loss.weight)
    if not math.isfinite(value):
        raise CheckpointError(
            "the imported model computes a loss that is not finite. Import an earlier checkpoint."
        )
    return (
        f"self-check: loss {value:.4f} on random inputs; compare with the old outputs by "
        "--verify=INPUTS --expect=OUTPUTS"
    )


def _lines_of(pairs: str) -> list[str]:
    """Returns the lines of a file of pairs; DataError if it is missing or empty."""
    lines = read_inputs(Path(pairs))
    if not lines:
        raise DataError(f"--pairs={pairs} is empty. Give inputs and targets.")
    return lines


def _loss_of(folder: Path, pairs: str) -> str:
    """Computes the loss of pairs with a run; returns a line for the report.

    Raises:
      DataError: a line is no pair, or the run does not write texts.
      CheckpointError: the loss is not finite, or not below that of guessing.
    """
    predictor = load(folder)
    if not isinstance(predictor, Predictor):
        raise DataError("--pairs: this model writes no texts. Use --verify and --expect.")
    try:
        scores = score_lines(predictor, _lines_of(pairs))
    except DataError as error:
        raise DataError(f"--pairs={pairs}: {error}") from None
    loss = -sum(one.log_probability for one in scores) / sum(one.tokens for one in scores)
    guessing = math.log(predictor.vocab_size)
    if not loss < guessing:
        raise CheckpointError(
            f"the loss of the pairs is {loss:.4f} nats per token, and guessing has "
            f"{guessing:.4f}: these are no inputs and targets of this model, or it is not trained."
        )
    return f"loss of {len(scores):,} pairs: {loss:.4f} nats per token (guessing: {guessing:.4f})"


def _check_lines(settings: ImportSettings) -> tuple[list[str], list[str]]:
    """Returns the inputs and the outputs that the other library has given for them, line by line.

    Raises:
      DataError: a file is missing, or they have different numbers of lines.
    """
    inputs, expected = (read_inputs(Path(str(one))) for one in (settings.verify, settings.expect))
    if len(inputs) != len(expected) or not inputs:
        raise DataError(
            f"--verify={settings.verify} has {len(inputs):,} lines and "
            f"--expect={settings.expect} {len(expected):,}. Line n of one is the output for "
            "line n of the other: give such files."
        )
    return inputs, expected


def _compared(folder: Path, settings: ImportSettings, advice: str) -> str:
    """Decodes the inputs with a run and compares the outputs; returns a line for the report.

    Text after a tab, such as a score, is not compared, unless several outputs per line are decoded.

    Raises:
      DataError: too many outputs differ; the message has the first.
    """
    inputs, expected = _check_lines(settings)
    predictor = load(folder)
    if isinstance(predictor, Predictor):
        hparams = predictor.hparams
        outputs = [one_line(one, hparams) for one in predictor.predict(inputs)]
        if not hparams.writes_several:
            expected = [line.partition("\t")[0] for line in expected]
    else:
        written = form_of(predictor)
        read = [input_of(predictor, line, str(settings.verify)) for line in inputs]
        outputs = [written(one.value) for one in predictor.predict(read)]
    pairs = list(zip(outputs, expected, strict=True))
    wrong = [k for k, (output, line) in enumerate(pairs) if output.strip() != line.strip()]
    summary = f"{len(pairs) - len(wrong):,} of {len(pairs):,} lines are equal"
    if wrong:
        first = wrong[0]
        summary += (
            f"; the first that differs is line {first + 1} of {settings.verify}:\n"
            f"    input:    {inputs[first]}\n    expected: {expected[first]}\n"
            f"    output:   {outputs[first]}"
        )
    if len(wrong) > settings.allow_differences:
        raise DataError(
            f"the imported model gives other outputs than the old one: {summary}\n{advice}Give the "
            "settings of the old decoding with --decode_hparams, or allow some lines to differ "
            "with --allow_differences=N. Nothing was written."
        )
    return f"verified: {summary}"
