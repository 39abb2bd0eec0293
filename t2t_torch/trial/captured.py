"""What a trial's model is given while its validation loader is evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from t2t_torch.errors import TrialError
from t2t_torch.mode import Split
from t2t_torch.trial.answers import check_batch_pair
from t2t_torch.trial.definition import TRAIN_BATCH
from t2t_torch.trial.nested import leaves
from t2t_torch.trial.predictor import arguments_of, several_arguments
from t2t_torch.trial.records import rebuilt

if TYPE_CHECKING:
    from t2t_torch.trial.task import TrialTask


class _Enough(BaseException):
    """As many batches were seen as are wanted; no error that a trial's code should catch."""


def validation_inputs(
    task: TrialTask, model: nn.Module, device: torch.device, *, rows: int = 0
) -> Iterator[Any]:
    """Yields the inputs of the model for each batch of the validation loader.

    Of the documented interface it is the first of (inputs, labels).  A trial that evaluates by a
    method of its own is watched: what it gives to the model in its first call of each batch.

    Args:
      task: of the trial.
      model: in evaluation.
      device: where it computes.
      rows: after so many no more is asked; 0: all.

    Raises:
      TrialError: the trial evaluates without a call of the model; or the loader gives nothing.
    """
    seen = 0
    for inputs in _inputs(task, model, device, rows):
        yield inputs
        seen += rows_of(inputs)
        if rows and seen >= rows:
            return
    if not seen:
        raise TrialError(
            "The validation loader gave no batch, so it is not known what the model takes. "
            "make_data_loaders returns (train, valid): look at the second."
        )


def rows_of(inputs: Any) -> int:
    """Returns the number of records of a batch, by the first axis of its first tensor."""
    sizes = (
        len(leaf) for leaf in leaves(inputs).values() if isinstance(leaf, Tensor) and leaf.dim()
    )
    return next(sizes, 1)


def _inputs(task: TrialTask, model: nn.Module, device: torch.device, rows: int) -> Iterator[Any]:
    batches = task.eval_batches(Split.EVAL, rank=0, world_size=1)
    documented = task.definition.generation != TRAIN_BATCH
    full = not documented and not task.definition.has("evaluate_batch")
    for batch in batches:
        moved = task.to_device(batch, device)
        if documented:
            yield check_batch_pair(moved.content)[0]
        else:
            calls = _calls(task, model, moved, rows if full else 0)
            if not calls:
                method = "evaluate_full_dataset" if full else "evaluate_batch"
                raise TrialError(
                    f"{method} does not call the model itself (model(inputs)), so it is not known "
                    "what it takes. Call it, and not its parts or model.forward."
                )
            yield from calls if full else calls[:1]


def _calls(task: TrialTask, model: nn.Module, batch: Any, rows: int) -> list[Any]:
    """Returns what the model was called with, copied: a trial may change it afterwards.

    Raises:
      TrialError: it was called with names that `forward` does not list.
    """
    calls: list[Any] = []

    def note(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        inputs: Any = given
        if named or len(given) > arguments_of(model):
            inputs = several_arguments(model, given, named)
        elif len(given) == 1:
            inputs = given[0]
        calls.append(_copied(inputs))
        if rows and sum(map(rows_of, calls)) >= rows:
            raise _Enough

    hook = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        with torch.no_grad():
            task.evaluated(model, batch)
    except _Enough:
        pass
    finally:
        hook.remove()
    return calls


def _copied(value: Any) -> Any:
    found = leaves(value)

    def leaf_of(name: str) -> Any:
        leaf = found[name]
        return leaf.detach().clone() if isinstance(leaf, Tensor) else leaf

    return rebuilt(value, leaf_of)
