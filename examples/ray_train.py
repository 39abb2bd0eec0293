"""Training in the workers of Ray Train, which makes the process group and restarts after a failure.

    pip install '.[ray]' 'ray[train]'
    t2t-datagen --problem=dates_to_iso --data_dir=/shared/data --tmp_dir=/shared/raw
    python examples/ray_train.py run.json 2

run.json has the settings of t2t-trainer, with absolute paths:

    {"problem": "dates_to_iso", "model": "transformer", "hparams_set": "transformer_dates",
     "data_dir": "/shared/data", "output_dir": "/shared/run", "train_steps": 1500}

All machines need this library and see both folders under these paths.  After a failure all workers
start again, and resume the run exactly from the newest checkpoint in its folder.
"""

import json
import sys
from pathlib import Path

import ray.train
from ray.train.torch import TorchConfig, TorchTrainer

import t2t_torch as t2t


class RayReports(t2t.Hook):
    """Reports each evaluation, with the newest checkpoint, to Ray Train."""

    def after_evaluation(self, estimator, split, metrics):
        """Is called in every worker, as Ray requires; the leading one has the checkpoint."""
        newest = estimator.checkpoints.list()[-1:] if estimator.world.leads else []
        folder = ray.train.Checkpoint.from_directory(newest[0].path) if newest else None
        values = {name: float(value) for name, value in metrics.items()}
        ray.train.report({"step": estimator.state.step, **values}, checkpoint=folder)


def train(settings):
    """Trains in one worker."""
    t2t.train(**settings, callbacks=[RayReports()])


if __name__ == "__main__":
    settings, workers = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2])
    trainer = TorchTrainer(
        train,
        train_loop_config=settings,
        torch_config=TorchConfig(backend="gloo"),  # on GPUs "cpu:gloo,cuda:nccl", and use_gpu=True
        scaling_config=ray.train.ScalingConfig(num_workers=workers, use_gpu=False),
        run_config=ray.train.RunConfig(
            name="ray",
            storage_path=f"{settings['output_dir']}.ray",  # Ray's copies of the checkpoints
            failure_config=ray.train.FailureConfig(max_failures=3),
        ),
    )
    print(json.dumps(trainer.fit().metrics))
