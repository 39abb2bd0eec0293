"""Initialization of a new run from the weights of another, and averages of checkpoints."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch.errors import CheckpointError, UsageError, listed
from t2t_torch.hparam import HParams, recorded_beside
from t2t_torch.layers.lora import is_adapter
from t2t_torch.params import value_text
from t2t_torch.run.checkpoint import AVERAGE, MODEL, Checkpoint, Snapshot
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.storage import step_of
from t2t_torch.run.tensors import StoredTensors, aliases_of, read_tensors, without_adapters
from t2t_torch.run.vocabulary_rows import VocabularyRows

_RENAMES = "->"
_SHOWN = 12
_FEW = 0.5
"""Minimum fraction of loaded parameters; with fewer a name is most likely wrong."""


@dataclasses.dataclass(frozen=True)
class WarmStartReport:
    """Result of a warm start for each tensor.

    Attributes:
      source: the file or checkpoint that was read.
      loaded: loaded tensors of the model.
      left_out: tensors of the model excluded by the patterns.
      skipped: tensors of the model without a source tensor of that name.
      mismatched: tensors of the model with another shape: (name, the source's, the model's).
      unused: renamed source tensors that the model does not have.
      share: fraction of the model's parameters (elements, not tensors) that were loaded: 0 to 1.
      departing: hyperparameters with which the model computes something else of equal weights than
        the source: (name, the source's value, the model's).
      by_token: loaded tensors whose rows were matched by token, since the source has another
        vocabulary: (name, number of rows of each origin).
      doubts: sentences about tensors whose rows may be of other tokens.
    """

    source: Path
    loaded: tuple[str, ...]
    left_out: tuple[str, ...]
    skipped: tuple[str, ...]
    mismatched: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    unused: tuple[str, ...]
    share: float
    departing: tuple[tuple[str, Any, Any], ...] = ()
    by_token: tuple[tuple[str, str], ...] = ()
    doubts: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"warm start from {self.source}: {self.share:.0%} of the parameters"]
        for what, names in self._rows():
            lines.append(f"  {what:<15} {len(names):>5}  {listed(names, _SHOWN)}".rstrip())
        return "\n".join(lines)

    @property
    def missing(self) -> list[str]:
        """The tensors of the model that were not loaded."""
        return [*self.left_out, *self.skipped, *(name for name, _, _ in self.mismatched)]

    @property
    def table(self) -> str:
        """A table of all names, one per line."""
        lines = [f"warm start from {self.source}: {self.share:.1%} of the parameters"]
        lines += [f"{what:<15} {name}" for what, names in self._rows() for name in names]
        return "\n".join(lines) + "\n"

    @property
    def warning(self) -> str:
        """Warnings about unusual results, one per line; "" if there are none."""
        warnings = [f"warning: {doubt}" for doubt in self.doubts]
        if self.departing:
            values = ",".join(f"{name}={value_text(value)}" for name, value, _ in self.departing)
            ours = ", ".join(f"{name}={value_text(own)}" for name, _, own in self.departing)
            warnings.append(
                f"warning: the weights of {self.source} were trained with other hyperparameters, "
                f"so this model computes something else of them: here {ours}. To compute the "
                f"same:  --hparams={values}"
            )
        if self.share >= _FEW:
            return "\n".join(warnings)
        warnings.append(
            f"warning: the warm start from {self.source} loaded {self.share:.1%} of the model's "
            "parameters; all others begin at random. If that is not what you want, look at the "
            "names and rename them with --warm_start_patterns='old->new'."
        )
        return "\n".join(warnings)

    def _rows(self) -> Iterator[tuple[str, Sequence[str]]]:
        yield "loaded", self.loaded
        if self.by_token:
            yield "rows by token", [f"{name}: {counts}" for name, counts in self.by_token]
        yield "by your pattern", self.left_out
        yield "not in source", self.skipped
        yield (
            "mismatched",
            [f"{name} {list(theirs)}, here {list(ours)}" for name, theirs, ours in self.mismatched],
        )
        yield "not used", self.unused


@torch.no_grad()
def warm_start(
    model: nn.Module, source: str | Path, *, patterns: Sequence[str] = ()
) -> WarmStartReport:
    """Loads the weights that a model shares by name with another one.

    Uses the average of the weights if the source run keeps one.  Adapters of the source are merged
    into its weights; those of the model are not loaded.  Rows are matched by token: `row_sources`.

    Args:
      model: model of a new run, on any device.
      source: a run directory, whose newest valid checkpoint is used, a `ckpt-<step>` folder, or a
        safetensors file.
      patterns: regular expressions, searched in names.  `old->new` renames the source's tensors
        (`re.sub`, in the given order); others select tensors of the model, all if there are none;
        those that begin with `!` exclude tensors.

    Raises:
      CheckpointError: the source cannot be read, or no tensor matches.
      UsageError: a pattern is not a valid regular expression.
    """
    renames, is_taken = _parsed(patterns)
    renamed, origin = _renamed(Path(source), renames)
    here, rows = model.state_dict(), VocabularyRows(model, Path(source))
    loaded, left_out, skipped, mismatched, used = [], [], [], [], set()
    by_token: dict[str, str] = {}
    for name, aliases in aliases_of(model).items():
        if is_adapter(name):
            continue
        known, ours = next((alias for alias in aliases if alias in renamed), None), here[name]
        if known is not None:
            used.add(known)
            theirs, counts = rows.take([known, *aliases], origin[known], renamed[known], ours)
        if not is_taken(aliases):
            left_out.append(name)
        elif known is None:
            skipped.append(name)
        elif (theirs.shape, theirs.is_floating_point()) != (ours.shape, ours.is_floating_point()):
            mismatched.append((name, tuple(theirs.shape), tuple(ours.shape)))
        else:
            ours.copy_(theirs)
            loaded.append(name)
            by_token |= {name: counts} if counts else {}
    report = WarmStartReport(
        source=Path(source),
        loaded=tuple(loaded),
        left_out=tuple(left_out),
        skipped=tuple(skipped),
        mismatched=tuple(mismatched),
        unused=tuple(sorted(set(renamed) - used)),
        share=_share(model, loaded),
        departing=_departing(model, Path(source)),
        by_token=tuple(by_token.items()),
        doubts=rows.doubts({n: here[n] for n in loaded if n not in by_token}),
    )
    if not loaded:
        raise CheckpointError(
            f"nothing of --warm_start_from={source} fits this model.\n{report}\nRename its tensors "
            "with --warm_start_patterns='old->new' (regular expressions), or leave the flag out."
        )
    return report


def _share(model: nn.Module, loaded: Sequence[str]) -> float:
    """Returns the fraction of the parameters, adapters left out, that these tensors hold."""
    sizes = {
        name: parameter.numel()
        for name, parameter in model.named_parameters()
        if not is_adapter(name)
    }
    return sum(sizes.get(name, 0) for name in loaded) / max(1, sum(sizes.values()))


def _departing(model: nn.Module, source: Path) -> tuple[tuple[str, Any, Any], ...]:
    """Returns the rows of `WarmStartReport.departing`; none for a model without hyperparameters."""
    hparams = getattr(model, "hparams", None)
    if not isinstance(hparams, HParams):
        return ()
    found = hparams.departing(recorded_beside(source))
    return tuple((name, value, getattr(hparams, name)) for name, value in found.items())


def _parsed(
    patterns: Sequence[str],
) -> tuple[list[tuple[re.Pattern[str], str]], Callable[[Sequence[str]], bool]]:
    """Returns the renames, and whether the patterns select a tensor of some names."""
    renames, wanted, unwanted = [], [], []
    for pattern in patterns:
        old, arrow, new = pattern.partition(_RENAMES)
        try:
            if arrow:
                renames.append((re.compile(old), new))
            elif pattern.startswith("!"):
                unwanted.append(re.compile(pattern[1:]))
            else:
                wanted.append(re.compile(pattern))
        except re.error as error:
            raise UsageError(
                f"--warm_start_patterns: {pattern!r} is no regular expression: {error}"
            ) from None

    def is_taken(names: Sequence[str]) -> bool:
        def any_of(patterns: Sequence[re.Pattern[str]]) -> bool:
            return any(pattern.search(name) for pattern in patterns for name in names)

        return (not wanted or any_of(wanted)) and not any_of(unwanted)

    return renames, is_taken


def _renamed(
    source: Path, renames: Sequence[tuple[re.Pattern[str], str]]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Returns the weights of a source, averaged if there is an average, with merged adapters; and
    their names there.
    """
    file, average = _files(source)
    tensors = read_tensors(file)
    if average is not None:
        tensors |= read_tensors(average)
    tensors = without_adapters(tensors, file)
    renamed: dict[str, Tensor] = {}
    origin: dict[str, str] = {}
    for old, tensor in tensors.items():
        name = old
        for pattern, new in renames:
            try:
                name = pattern.sub(new, name)
            except (re.error, IndexError) as error:
                raise UsageError(
                    f"--warm_start_patterns: '{pattern.pattern}{_RENAMES}{new}': {error}"
                ) from None
        if name in renamed:
            raise UsageError(
                f"--warm_start_patterns: {origin[name]} and {old} would both be called {name}."
            )
        renamed[name], origin[name] = tensor, old
    return renamed, origin


def _files(source: Path) -> tuple[Path, Path | None]:
    """Returns the path of the weights, and of their average if there is one."""
    if source.is_file():
        average = source.with_name(AVERAGE)
        return source, average if source.name == MODEL and average.exists() else None
    if not source.is_dir():
        raise CheckpointError(
            f"--warm_start_from={source} is not there. Expected a run directory, a ckpt-<step> "
            "folder, or a safetensors file."
        )
    if (step := step_of(source.resolve())) is not None:
        checkpoint: Checkpoint | None = Checkpoint(step, source)
        Checkpoint(step, source).verify()
    else:
        checkpoint = CheckpointDirectory(source).newest()
    if checkpoint is None:
        raise CheckpointError(
            f"--warm_start_from={source} has no checkpoint. Expected a run directory of "
            "t2t-trainer, a ckpt-<step> folder, or a safetensors file."
        )
    return checkpoint.weights, checkpoint.average


def average_checkpoints(checkpoints: Sequence[Checkpoint], out: CheckpointDirectory) -> Checkpoint:
    """Writes the average of checkpoints as a checkpoint of another directory.

    Sums in float64, one tensor at a time.  Tensors that are not floating-point come from the
    newest.  A running mean kept by the run is not used.

    As in Vaswani et al. 2017, section 6.1, which decodes with the average.

    Args:
      checkpoints: at least one, all of the same model.
      out: output directory; the average has the newest one's step and no optimizer state.

    Returns:
      the average; an existing one if it has the same steps.

    Raises:
      CheckpointError: the models differ, one is corrupt, or `out` has another checkpoint.
      SaveError: it could not be written.
    """
    if not checkpoints:
        raise CheckpointError("an average needs one checkpoint at least")
    ordered = sorted(checkpoints)
    newest, steps = ordered[-1], tuple(checkpoint.step for checkpoint in ordered)
    there = Checkpoint(newest.step, out.path / f"ckpt-{newest.step}")
    if there.path.is_dir() and there.manifest().get("averaged_steps") != list(steps):
        raise CheckpointError(
            f"'{there.path}' is there already and is no average of the checkpoints "
            f"{', '.join(map(str, steps))}. Write to another directory."
        )
    for checkpoint in ordered:
        checkpoint.verify()
    weights = _mean([checkpoint.weights for checkpoint in ordered])
    state = newest.trainer_state()
    task_tensors = newest.task_tensors()
    return out.save(Snapshot(state, weights, slots=None, task=task_tensors, averaged_steps=steps))


def _mean(paths: Sequence[Path]) -> dict[str, Tensor]:
    opened = [StoredTensors(path) for path in paths]
    expected = opened[-1].kinds
    for one in opened:
        kinds = one.kinds
        names = kinds.keys() | expected.keys()
        if odd := sorted(name for name in names if kinds.get(name) != expected.get(name)):
            raise CheckpointError(
                f"{one.path} is not of the model of {paths[-1]}: {', '.join(odd[:10])} differ. "
                "Only checkpoints of one model can be averaged."
            )
    return {name: _mean_of(name, opened) for name in expected}


def _mean_of(name: str, opened: Sequence[StoredTensors]) -> Tensor:
    last = opened[-1].get(name)
    if not last.is_floating_point():
        return last
    total = torch.zeros(last.shape, dtype=torch.float64)
    for one in opened:
        total += one.get(name)
    return (total / len(opened)).to(last.dtype)
