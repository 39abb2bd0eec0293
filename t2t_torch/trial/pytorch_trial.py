"""The class that a trial is a subclass of.

As PEDL's document has it:

    class MyTrial(PyTorchTrial):
        def build_model(self, hparams): ...                  # -> nn.Module
        def optimizer(self, model): ...                      # -> torch.optim.Optimizer
        def losses(self, predictions, labels): ...           # -> a loss, or a dict with "loss"
        def validation_metrics(self, predictions, labels, losses): ...    # -> dict
        def training_metrics(self, predictions, labels, losses): ...      # -> dict; may be absent
        def batch_size(self): ...                            # -> int; may be absent

As trials were written later, the step in one method:

    class MyTrial(PyTorchTrial):
        def build_model(self): ...
        def optimizer(self, model): ...
        def create_lr_scheduler(self, optimizer): ...        # -> LRScheduler; may be absent
        def train_batch(self, batch, model, epoch_idx, batch_idx): ...    # -> dict with "loss"
        def evaluate_batch(self, batch, model): ...          # -> dict
        def evaluate_full_dataset(self, data_loader, model): ...          # or this one -> dict
"""

from __future__ import annotations

from typing import Any


class PyTorchTrial:
    """What a user trains.

    None of the methods above is declared here: which of them a trial has says how it is trained
    (`definition.py`), and what is missing is told all at once when it is loaded.

    Args:
      hparams: the chosen hyperparameters; a subclass hands on what it was given, or nothing.
    """

    def __init__(self, hparams: dict[str, Any] | None = None, *_: Any, **__: Any) -> None:
        """Takes whatever subclasses of the time hand on, and keeps none of it."""
