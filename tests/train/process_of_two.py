"""A training process among several, as torchrun starts one: settings as JSON in the arguments."""

import json
import os
import resource
import sys
from pathlib import Path

import torch
from torch.distributed.tensor.debug import CommDebugMode

from t2t_torch import registry
from t2t_torch.distributed.process_group import join_world
from t2t_torch.run.checkpoint import Snapshot
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.multi_task import task_of
from t2t_torch.train.run_config import RunConfig


def take_alone(*arguments):
    """Takes a snapshot, and makes sure that nothing is put together or exchanged for it."""
    with CommDebugMode() as exchanged:
        snapshot = take(*arguments)
    assert exchanged.get_total_counts() == 0
    return snapshot


take, Snapshot.take = Snapshot.take, take_alone


def main(
    problem: str,
    data_dir: str,
    output_dir: str,
    hparams: str,
    steps: int,
    model: str = "transformer",
    hparams_set: str = "transformer_test",
    usr_dir: str = "",
) -> None:
    torch.set_num_threads(1)
    if usr_dir:
        registry.import_usr_dir(usr_dir)
    largest = int(os.environ.get("LARGEST_FILE", "0"))  # bytes that this process's disk takes
    if largest:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    task = task_of(
        registry.problem(problem),
        registry.model(model),
        registry.hparams(hparams_set).parse(hparams),
        data_dir=Path(data_dir),
        vocab_dir=Path(data_dir),
    )
    config = RunConfig(train_steps=steps, eval_steps=3)
    directory = RunDirectory(output_dir)
    with join_world(use_gpu=False) as world:
        if world.leads:
            record = TaskRecord(problem=problem, model=model, hparams_set="")
            directory.begin(record, task.hparams)
        with Estimator(task, directory, config, world=world) as estimator:
            estimator.checkpoints.wait = lambda seconds: None
            estimator.train(steps)
            estimator.evaluate()
            estimator.save()  # after an evaluation too: each process still knows its part


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
