"""Trial of the shape of determined-ai/determined 0.12.4, examples/official/mnist_pytorch."""

import determined as det
import torch
from determined.pytorch import DataLoader, LRScheduler, PyTorchTrial, Reducer, reset_parameters
from torch import nn
from torch.utils.data import TensorDataset


class OlderTrial(PyTorchTrial):
    def __init__(self, context: det.TrialContext) -> None:
        self.context = context

    def build_training_data_loader(self):
        return self._loader(48, 1)

    def build_validation_data_loader(self):
        return self._loader(16, 2)

    def _loader(self, count, seed):
        rows = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
        labels = (rows.sum(1) > 0).long()
        size = self.context.get_per_slot_batch_size()
        return DataLoader(TensorDataset(rows, labels), batch_size=size)

    def build_model(self):
        model = nn.Sequential(nn.Linear(4, self.context.get_hparam("size")), nn.Linear(8, 2))
        reset_parameters(model)
        return model

    def optimizer(self, model):
        self.optimizer = torch.optim.Adadelta(model.parameters(), lr=self.context.get_hparam("lr"))
        return self.optimizer

    def create_lr_scheduler(self, optimizer):
        return LRScheduler(
            torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5),
            step_mode=LRScheduler.StepMode.STEP_EVERY_BATCH,
        )

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        return {"loss": nn.functional.cross_entropy(model(batch[0]), batch[1])}

    def evaluation_reducer(self):
        return {"right": Reducer.SUM}

    def evaluate_batch(self, batch, model):
        return {"right": (model(batch[0]).argmax(1) == batch[1]).sum()}
