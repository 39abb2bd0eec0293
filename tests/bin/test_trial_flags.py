"""`t2t-trainer --trial`: what is asked for twice, wrongly or in vain, and what is done about it."""

from __future__ import annotations

import json
import sys

import pytest
import torch
import yaml
from safetensors.torch import load_file

from t2t_torch import load
from t2t_torch.bin.commands import trainer
from t2t_torch.trial import pytorch_trial, user_code

TRIAL = """
import random
import numpy as np
import pedl
import torch
from torch import nn
from torch.utils.data import TensorDataset
from pedl.frameworks.pytorch import LRScheduler, PyTorchTrial
from pedl.frameworks.pytorch.data import DataLoader

def make_data_loaders(experiment_config, hparams):
    x = torch.linspace(-1, 1, experiment_config["data"]["rows"]).unsqueeze(1)
    data = TensorDataset(x, 2 * x)
    return DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=10)

class LineTrial(PyTorchTrial):
    seen = 0

    def build_model(self, hparams):
        return nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.Linear(4, 1))

    def optimizer(self, model):
        self.model = model
        return torch.optim.Adam(model.parameters(), lr=0.1)

    def create_lr_scheduler(self, optimizer):
        self.scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return LRScheduler(self.scheduler)

    def losses(self, predictions, labels):
        noise = random.random() + np.random.rand() + torch.rand(()) + self.seen
        return ((predictions - labels) ** 2).mean() + noise * predictions.mean()

    def validation_metrics(self, predictions, labels, losses):
        {before}
        return {metrics}
"""
MOVES = """self.seen += 1
        self.scheduler.step()
        for tensor in self.model.state_dict().values():
            tensor += 1
        random.random(), np.random.rand(), torch.rand(())"""
METRICS = '{"error": losses.item(), "each": torch.zeros(3)}'
CONFIG = {
    "data": {"rows": 24},
    "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 8}},
}
TRIED = "validation was tried with one batch before training"


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Leaves no trial behind, and nothing to the number of threads."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(pytorch_trial._Current, "context", None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    user_code._Loaded.forget()


@pytest.fixture
def run(tmp_path, capsys):
    """Runs the command; returns its exit code and what it has said.

    `before` and `metrics` are of `validation_metrics`; a flag of None is left out.
    """

    def command(*, before="pass", metrics=METRICS, config=None, **flags):
        (tmp_path / "code").mkdir(exist_ok=True)
        code = TRIAL.replace("{before}", before).replace("{metrics}", metrics)
        (tmp_path / "code" / "line.py").write_text(code)
        (tmp_path / "exp.yaml").write_text(yaml.safe_dump({**CONFIG, **(config or {})}))
        values = {
            "trial": tmp_path / "code",
            "config": tmp_path / "exp.yaml",
            "output_dir": tmp_path / "run",
            "worker_gpu": 0,
            **flags,
        }
        capsys.readouterr()
        done = trainer.main([f"--{name}={it}" for name, it in values.items() if it is not None])
        content = capsys.readouterr()
        return done, content.err + content.out

    return command


def evaluated(folder):
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line["step"] for line in lines if line["split"] == "dev"]


def steps_of(folder):
    return sorted(int(path.name.removeprefix("ckpt-")) for path in folder.glob("ckpt-*"))


def test_a_flag_that_says_its_default_is_stronger_than_the_configuration(run, tmp_path):
    config = {"min_validation_period": {"batches": 2}, "min_checkpoint_period": {"batches": 1}}
    flags = {"local_eval_frequency": 1000, "keep_checkpoint_max": 20, "save_checkpoints_steps": 0}
    done, content = run(config=config, **flags)
    assert done == 0, content
    assert evaluated(tmp_path / "run") == [8]
    assert steps_of(tmp_path / "run") == [8]


def test_weights_to_begin_with_are_refused_by_a_run_that_was_begun(run, tmp_path):
    assert run(output_dir=tmp_path / "other")[0] == 0
    assert run(pause_at_step=2)[0] == 0
    done, content = run(warm_start_from=tmp_path / "other")
    assert done == 2
    assert "was started without --warm_start_from" in content
    searcher = {**CONFIG["searcher"], "source_checkpoint": str(tmp_path / "other")}
    done, content = run(config={"searcher": searcher})
    assert done == 2
    assert "searcher.source_checkpoint: nothing -> " in content
    first = {"warm_start_from": tmp_path / "other", "output_dir": tmp_path / "begun"}
    assert run(**first, pause_at_step=2)[0] == 0
    assert run(**first)[0] == 0
    assert steps_of(tmp_path / "begun")[-1] == 8


@pytest.mark.parametrize("more", [{}, {"eval_early_stopping_steps": 2}])
def test_a_metric_to_watch_that_no_evaluation_has_is_refused(run, tmp_path, more):
    config = {"min_validation_period": {"batches": 2}}
    done, content = run(config=config, eval_early_stopping_metric="errr", **more)
    assert done == 2
    assert "--eval_early_stopping_metric is 'errr'" in content
    assert "returned these numbers: error" in content


def test_a_rule_that_waits_for_the_default_metric_is_refused_if_there_is_none(run, tmp_path):
    searcher = {"name": "single", "max_length": {"batches": 8}}
    done, content = run(config={"searcher": searcher}, eval_early_stopping_steps=2)
    assert done == 2
    assert "--eval_early_stopping_metric is 'loss'" in content
    assert run(config={"searcher": searcher}, output_dir=tmp_path / "without")[0] == 0


@pytest.mark.parametrize("metrics", ['{"accuracy": 1.0}', "None", '{"error": "low"}'])
def test_what_is_wrong_in_an_evaluation_is_found_before_training(run, tmp_path, metrics):
    done, content = run(metrics=metrics, log_step_count_steps=1)
    assert done == 2
    assert "error: " in content
    assert TRIED not in content
    assert not steps_of(tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_try_of_the_evaluation_moves_nothing(run, tmp_path):
    done, content = run(before=MOVES, local_eval_frequency=0)
    assert done == 0, content
    assert TRIED in content
    assert evaluated(tmp_path / "run") == [8]
    # `train` evaluates nothing, and tries nothing.
    done, content = run(schedule="train", output_dir=tmp_path / "whole")
    assert done == 0, content
    assert TRIED not in content
    for file in ("model", "optimizer"):
        one, two = (
            load_file(tmp_path / name / "ckpt-8" / f"{file}.safetensors")
            for name in ("run", "whole")
        )
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], two[name]) for name in one)
    states = [
        json.loads((tmp_path / name / "ckpt-8" / "trainer.json").read_text())["task"]
        for name in ("run", "whole")
    ]
    assert states[0] == states[1]


@pytest.mark.parametrize(
    "how", [{"local_eval_frequency": 4}, {"config": {"perform_initial_validation": True}}]
)
def test_an_evaluation_that_comes_soon_is_not_tried(run, how):
    done, content = run(**how)
    assert done == 0, content
    assert TRIED not in content


TOLD = {
    "slots": (
        {"resources": {"slots_per_trial": 8}},
        "8 slots_per_trial, and the number of processes here is 1; torchrun --nproc-per-node=8 -m",
    ),
    "several processes": (
        {"resources": {"optimized_parallel": True}},
        "the number of processes here is 1; torchrun --nproc-per-node=N",
    ),
    "distributed": (
        {"resources": {"distributed": True, "slots_per_trial": 4}},
        "4 slots_per_trial, and the number of processes here is 1; torchrun --nproc-per-node=4",
    ),
    "best of all": ({"save_experiment_best": 2}, "save_experiment_best 2:  not followed"),
    "no latest": (
        {"save_trial_latest": 0},
        "save_trial_latest 0:  the newest 1 checkpoints are kept",
    ),
    "no checkpoints": (
        {"checkpoint_policy": "none"},
        "checkpoint_policy none, save_trial_latest 1:  the newest 1 checkpoints are kept",
    ),
}


@pytest.mark.parametrize("what", TOLD)
def test_what_is_not_followed_to_the_letter_is_told(run, what):
    config, text = TOLD[what]
    done, content = run(config=config, train_steps=1)
    assert done == 0, content
    assert text in content


def test_what_needs_no_words_gets_none(run):
    done, content = run(config={"resources": {"slots_per_trial": 1}}, train_steps=1)
    assert done == 0
    assert "slots_per_trial" not in content
    done, content = run(
        config={"perform_initial_validation": True}, schedule="train", train_steps=2
    )
    assert done == 0
    assert "perform_initial_validation:  --schedule=train evaluates nothing" in content


@pytest.mark.parametrize("entrypoint", ["line:LineTrial", "code.line:LineTrial"])
def test_an_entrypoint_names_the_trial(run, entrypoint):
    assert run(config={"entrypoint": entrypoint}, train_steps=1)[0] == 0


@pytest.mark.parametrize(
    ("entrypoint", "fault"),
    [
        ("model_def:LineTrial", "names no class of a module of "),
        ("other.line:LineTrial", "names no class of a module of "),
        ("LineTrial", "names no class of a module of "),
    ],
)
def test_an_entrypoint_that_is_not_there_is_refused(run, entrypoint, fault):
    done, content = run(config={"entrypoint": entrypoint})
    assert done == 2
    assert fault in content


def test_entrypoints_name_the_class_and_the_functions(run, tmp_path):
    """As configurations of PEDL 0.11 do; what was trained is loaded without them."""
    own = tmp_path / "code" / "own.py"
    own.parent.mkdir(exist_ok=True)
    own.write_text(
        "import line\n\ndef fetch(config, hparams):\n    return config['data']['place']\n\n"
        "def few(config, hparams):\n    import pedl\n    assert pedl.get_download_data_dir()\n"
        "    return line.make_data_loaders({'data': {'rows': 8}}, hparams)\n"
    )
    places = {
        "trial_class": "line:LineTrial",
        "data_loaders_function": "own:few",
        "download_data_function": "own:fetch",
    }
    data = {"rows": 24, "place": str(tmp_path)}
    config = {"entrypoints": places, "data": data}
    done, content = run(config=config, train_steps=1)
    assert done == 0, content
    assert "data: 8 of 8 examples" in content
    assert load(tmp_path / "run").batch(torch.zeros(3, 1)).shape == (3, 1)
    places["data_loaders_function"] = "own:many"
    done, content = run(config=config, train_steps=2)
    assert done == 2
    assert "'own:many': own has no function many" in content
    places["data_loaders_function"] = "there:many"
    assert "there is no module there" in run(config=config, train_steps=2)[1]


def test_a_run_goes_on_where_its_data_was_moved_and_not_with_other_data(run, tmp_path):
    assert run(pause_at_step=3)[0] == 0
    done, content = run(config={"data": {"rows": 24, "path": "there"}}, pause_at_step=5)
    assert done == 0, content
    assert 'changed since the checkpoint:  data.path: nothing -> "there"' in content
    done, content = run(config={"data": {"rows": 32}})
    assert done == 2
    assert "The trial's data, its training loader or its sampler" in content
    assert steps_of(tmp_path / "run")[-1] == 5


def test_a_gpu_that_has_failed_is_not_tried_again(run, capsys):
    if not hasattr(torch, "AcceleratorError"):
        pytest.skip("torch tells errors of a device from others since 2.8")
    fails = "raise torch.AcceleratorError('an illegal memory access was encountered')"
    with pytest.raises(torch.AcceleratorError, match="illegal memory access"):
        run(before=fails)
    assert "restart" not in capsys.readouterr().err


def test_a_newest_checkpoint_that_is_the_best_is_the_only_one_that_is_left(run, tmp_path):
    improves = '{"error": -float(self.model[1].num_batches_tracked)}'
    config = {"min_validation_period": {"batches": 2}}
    assert run(metrics=improves, config=config, pause_at_step=6)[0] == 0
    assert steps_of(tmp_path / "run") == [4, 6]  # the one was the best when the other was written
    assert run(metrics=improves, config=config)[0] == 0
    assert steps_of(tmp_path / "run") == [8]
