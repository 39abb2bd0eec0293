"""`t2t-trainer --trial`: its flags, its errors, its restarts, and how a run goes on."""

from __future__ import annotations

import json
import logging
import sys
import textwrap

import pytest
import torch
import yaml
from safetensors.torch import load_file

import t2t_torch
from t2t_torch.bin.commands import trainer
from t2t_torch.errors import CheckpointError, T2TError
from t2t_torch.trial import pytorch_trial, user_code

TRIAL = """
    import os
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset
    import pedl
    from pedl.frameworks.pytorch import LRScheduler, PyTorchTrial
    from pedl.frameworks.pytorch.data import DataLoader

    def make_data_loaders(experiment_config, hparams):
        x = torch.linspace(-1, 1, 24).unsqueeze(1)
        data = TensorDataset(x, 2 * x)
        return DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=10)

    class LineTrial(PyTorchTrial):
        batches = 0

        def build_model(self, hparams):
            return nn.Sequential(nn.Linear(1, hparams["net"]["hidden"]), nn.Linear(4, 1))

        def optimizer(self, model):
            return torch.optim.Adam(model.parameters(), lr=pedl.get_hyperparameter("lr"))

        def losses(self, predictions, labels):
            self.batches += torch.is_grad_enabled()
            return ((predictions - labels) ** 2).mean()

        def validation_metrics(self, predictions, labels, losses):
            return {"error": losses.item()}
"""

CONFIG = {
    "hyperparameters": {"lr": 0.1, "net": {"hidden": 4}},
    "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 12}},
    "min_validation_period": {"batches": 6},
}


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

    `code` is old and new text of the trial; flags named in `without` are left out.
    """

    def command(*code, config=None, without=(), **flags):
        trial = textwrap.dedent(TRIAL)
        for old, new in zip(code[::2], code[1::2], strict=True):
            assert textwrap.dedent(old) in trial, old
            trial = trial.replace(textwrap.dedent(old), textwrap.dedent(new))
        (tmp_path / "line.py").write_text(trial)
        (tmp_path / "exp.yaml").write_text(yaml.safe_dump({**CONFIG, **(config or {})}))
        values = {
            "trial": tmp_path / "line.py",
            "config": tmp_path / "exp.yaml",
            "output_dir": tmp_path / "run",
            "worker_gpu": 0,
            "log_step_count_steps": 1,
            **flags,
        }
        arguments = [f"--{name}={value}" for name, value in values.items() if name not in without]
        capsys.readouterr()
        done = trainer.main(arguments)
        content = capsys.readouterr()
        return done, content.err + content.out

    return command


def steps_of(folder):
    return sorted(int(path.name.removeprefix("ckpt-")) for path in folder.glob("ckpt-*"))


def lines_of(folder, split):
    text = (folder / "metrics.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["split"] == split]


def tensors(folder, step):
    files = sorted((folder / f"ckpt-{step}").glob("*.safetensors"))
    return {f"{file.name}/{name}": t for file in files for name, t in load_file(file).items()}


def assert_same(one, other, step=12):
    left, right = tensors(one, step), tensors(other, step)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in right)


def test_a_run_leaves_all_that_going_on_needs(run, tmp_path):
    code, content = run()
    assert code == 0, content
    folder = tmp_path / "run"
    assert json.loads((folder / "task.json").read_text())["trial"] == "LineTrial"
    assert json.loads((folder / "experiment.json").read_text())["hparams"] == {
        "lr": 0.1,
        "net": {"hidden": 4},
    }
    assert [line["step"] for line in lines_of(folder, "dev")] == [6, 12]
    assert steps_of(folder)[-1] == 12


LOSS = "return ((predictions - labels) ** 2).mean()"
METRICS = 'return {"error": losses.item()}'
MODEL = 'return nn.Sequential(nn.Linear(1, hparams["net"]["hidden"]), nn.Linear(4, 1))'
ADAM = 'return torch.optim.Adam(model.parameters(), lr=pedl.get_hyperparameter("lr"))'
LOADERS = "return DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=10)"
HEAD = "class LineTrial(PyTorchTrial):\n"
DOWNLOAD = "def download_data(experiment_config, hparams):\n    {}\n\nclass LineTrial"
FIRST = "def make_data_loaders(experiment_config, hparams):\n"
METHOD = "def losses(self, predictions, labels):"
LOADER = "DataLoader(data, batch_size=10)"


def method(signature, body):
    return HEAD, f"{HEAD}    def {signature}:\n        {body}\n\n"


ERRORS = {
    "download_data: no text": (("class LineTrial", DOWNLOAD.format("return 3")), "download_data"),
    "download_data: no directory": (
        ("class LineTrial", DOWNLOAD.format("return '/not/there'")),
        "/not/there",
    ),
    "download_data: arguments": (
        ("class LineTrial", "def download_data(a, b, c):\n    return '.'\n\nclass LineTrial"),
        "download_data takes (a, b, c)",
    ),
    "download_data: none": ((FIRST, FIRST + "    pedl.get_download_data_dir()\n"), "download_data"),
    "make_data_loaders: arguments": (
        (FIRST, "def make_data_loaders(a, b, c, d):\n"),
        "make_data_loaders takes (a, b, c, d)",
    ),
    "make_data_loaders: one": ((LOADERS, f"return {LOADER}"), "two loaders were expected"),
    "make_data_loaders: a data set": (
        (LOADERS, f"return data, {LOADER}"),
        "returned a TensorDataset, a DataLoader; two loaders",
    ),
    "make_data_loaders: nothing to train on": (
        (LOADERS, f"return DataLoader(data, batch_size=25, drop_last=True), {LOADER}"),
        "the training loader has no batch",
    ),
    "make_data_loaders: nothing to validate with": (
        (LOADER, "DataLoader(data, batch_size=25, drop_last=True)"),
        "the validation loader has no batch",
    ),
    "build_model: nothing": ((MODEL, "pass"), "build_model returned None"),
    "build_model: a list": ((MODEL, "return []"), "build_model returned a list"),
    "build_model: no parameters": ((MODEL, "return nn.ReLU()"), "without a parameter"),
    "losses: no loss": ((LOSS, "return {'mse': predictions.mean()}"), "without 'loss'"),
    "losses: several": ((LOSS, "return (predictions - labels) ** 2"), "a tensor of shape [4, 1]"),
    "losses: no gradient": ((LOSS, "return labels.mean()"), "no gradient leads back"),
    "losses: no tensor": ((LOSS, "return 1.0"), "losses returned a float"),
    "losses: not finite": ((LOSS, "return predictions.mean() / 0"), "not finite"),
    "losses: no such method": ((METHOD, "def loss(self, predictions, labels):"), "missing: losses"),
    "optimizer: none": ((ADAM, "return model"), "optimizer returned a Sequential"),
    "optimizer: of others": (
        (ADAM, "return torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1)"),
        "2 parameters that are not the model's",
    ),
    "optimizer: a closure": (
        (ADAM, "return torch.optim.LBFGS(model.parameters())"),
        "needs a closure",
    ),
    "optimizer: a state that cannot be kept": (
        (
            ADAM,
            "o = torch.optim.SGD(model.parameters(), lr=1)\n        o.state[model[0].weight]"
            "['names'] = ['a']\n        return o",
        ),
        "SGD keeps 'names' as list",
    ),
    "batch_size: none": (method("batch_size(self)", "return 0"), "batch_size is 0"),
    "batch: no pair": (
        ("TensorDataset(x, 2 * x)", "TensorDataset(x, 2 * x, x)"),
        "The loader yields a list of 3",
    ),
    "validation_metrics: no dict": ((METRICS, "return losses"), "validation_metrics returned a t"),
    "validation_metrics: empty": ((METRICS, "return {}"), "an empty dict"),
    "validation_metrics: a name": ((METRICS, "return {1: 2.0}"), "a metric named 1"),
    "validation_metrics: other names": (
        (METRICS, "return {'error': 1} if len(labels) == 10 else {'error': 1, 'last': 2}"),
        "returned error [], last [] for batch 2, but error [] before",
    ),
    "validation_metrics: other shapes": (
        (METRICS, "return {'error': 1.0, 'each': labels}"),
        "returned each [4, 1], error [] for batch 2, but each [10, 1], error [] before",
    ),
    "validation_metrics: not the searcher's": (
        (METRICS, "return {'accuracy': 1.0}"),
        "searcher.metric is 'error', which selects the best checkpoint, and it is not among them",
    ),
    "validation_metrics: an array is the searcher's": (
        (METRICS, "return {'error': torch.zeros(3)}"),
        "it is an array of shape [3]",
    ),
    "training_metrics: a loss's name": (
        method("training_metrics(self, predictions, labels, losses)", "return {'loss': 3.0}"),
        "'loss' is the name of a loss",
    ),
    "create_lr_scheduler: twice": (
        method(
            "create_lr_scheduler(self, optimizer)",
            "return LRScheduler(torch.optim.lr_scheduler.StepLR(optimizer, 1), True, True)",
        ),
        "at most one of the two",
    ),
    "create_lr_scheduler: another kind": (
        method(
            "create_lr_scheduler(self, optimizer)",
            "return torch.optim.lr_scheduler.StepLR(optimizer, 1)",
        ),
        "create_lr_scheduler returned StepLR",
    ),
    "train_batch: beside losses": (
        method("train_batch(self, batch, model, epoch_idx, batch_idx)", "return 1"),
        "train_batch",
    ),
    "evaluate: both": (
        (
            METHOD,
            "def evaluate_batch(self, batch, model): pass\n\n"
            "    def evaluate_full_dataset(self, data_loader, model): pass\n\n"
            "    def train_batch(self, predictions, labels):",
            "def validation_metrics(",
            "def others(",
        ),
        "evaluate_full_dataset",
    ),
    "no trial": (("(PyTorchTrial)", "(object)"), "PyTorchTrial"),
    "hyperparameter: unknown": (('get_hyperparameter("lr")', 'get_hyperparameter("rate")'), "rate"),
}


@pytest.mark.sample(18)
@pytest.mark.parametrize("fault", ERRORS)
def test_what_a_trial_does_wrong_is_told_without_a_traceback(run, fault):
    code, expected = ERRORS[fault]
    done, content = run(*code, train_steps=12, max_consecutive_nonfinite=2)
    assert done == (4 if fault == "losses: not finite" else 2), content
    assert "Traceback" not in content
    assert "restart" not in content
    assert expected in content[content.rindex("error: ") :]


def test_what_download_data_raises_is_told_with_its_own_traceback(run):
    raising = DOWNLOAD.format("raise ValueError('no network')")
    done, content = run("class LineTrial", raising)
    assert done == 2
    assert "ValueError: no network" in content
    assert "in download_data" in content


def test_what_the_optimizer_leaves_out_is_warned_of(run, caplog):
    with caplog.at_level(logging.WARNING):
        code, _ = run("Adam(model.parameters()", "Adam(model[1].parameters()", train_steps=1)
    assert code == 0
    assert "optimizer does not train 0.weight, 0.bias" in caplog.text


def test_a_leaf_of_an_unknown_type_is_warned_of_once(run, caplog):
    with caplog.at_level(logging.WARNING):
        code, content = run(
            "TensorDataset(x, 2 * x)",
            "[(x[i], 2 * x[i]) for i in range(24)]",
            LOADER,
            "DataLoader(data, batch_size=10, collate_fn=odd)",
            "class LineTrial",
            "class Odd: pass\n\ndef odd(rows):\n    x, y = zip(*rows)\n"
            "    return [torch.stack(x), (torch.stack(y), Odd())]\n\nclass LineTrial",
            METHOD,
            f"{METHOD}\n        labels = labels[0] if isinstance(labels, tuple) else labels",
        )
    assert code == 0, content
    assert caplog.text.count("A batch holds a Odd") == 1


WHERE = {
    "code": ("class LineTrial", "{}\n\nclass LineTrial"),
    "loaders": (FIRST, FIRST + "    {}\n"),
    "model": (MODEL, "{}"),
    "loss": (LOSS, "{}"),
}


@pytest.mark.parametrize("place", WHERE)
def test_impossible_hyperparameters_have_an_exit_code_of_their_own(run, place):
    old, new = WHERE[place]
    done, content = run(old, new.format("raise pedl.InvalidHP('hidden must divide 3')"))
    assert done == 3, content
    assert "hidden must divide 3" in content
    assert "Traceback" not in content


FAILS = """return self.fail(((predictions - labels) ** 2).mean())

    def fail(self, loss):
        marker = pedl.get_data_config()["marker"]
        if self.batches == {at} and torch.is_grad_enabled() and not os.path.exists(marker):
            open(marker, "w").close()
            raise {error}
        return loss"""


def failing(at, error="RuntimeError('once')"):
    return LOSS, FAILS.format(at=at, error=error)


@pytest.mark.sample(1)
@pytest.mark.parametrize("at", [1, 5, 9])
def test_a_trial_that_fails_once_goes_on_and_ends_as_one_that_did_not(run, tmp_path, at):
    marker = tmp_path / "marker"
    config = {"data": {"marker": str(marker)}, "min_checkpoint_period": {"batches": 3}}
    done, content = run(*failing(at), config=config)
    assert done == 0, content
    assert "RuntimeError: once" in content
    assert "restart 1 of 5 (max_restarts), from the newest checkpoint" in content
    assert marker.exists()
    assert run(*failing(at), config=config, output_dir=tmp_path / "whole")[0] == 0
    assert_same(tmp_path / "run", tmp_path / "whole")
    for split in ("train", "dev"):
        lines = [
            [
                (line["step"], line.get("loss"), line.get("error"))
                for line in lines_of(folder, split)
            ]
            for folder in (tmp_path / "run", tmp_path / "whole")
        ]
        assert lines[0] == lines[1]


def test_one_that_fails_the_same_way_again_ends_with_its_traceback(run, tmp_path, capsys):
    code = [part.replace(" and not os.path.exists(marker)", "") for part in failing(2)]
    with pytest.raises(RuntimeError, match="once"):
        run(*code, config={"data": {"marker": str(tmp_path / "marker")}})
    assert capsys.readouterr().err.count("restart ") == 1


def test_one_that_fails_in_other_ways_ends_after_max_restarts(run, tmp_path, capsys):
    other = "RuntimeError(os.urandom(8).hex())"
    code = [part.replace(" and not os.path.exists(marker)", "") for part in failing(2, other)]
    config = {"data": {"marker": str(tmp_path / "marker")}, "max_restarts": 2}
    with pytest.raises(RuntimeError):
        run(*code, config=config)
    assert "restart 2 of 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "flags"), [({"max_restarts": 0}, {}), ({}, {"max_restarts": 0})]
)
def test_without_restarts_the_first_failure_ends_it(run, tmp_path, capsys, config, flags):
    with pytest.raises(RuntimeError, match="once"):
        run(*failing(2), config={"data": {"marker": str(tmp_path / "marker")}, **config}, **flags)
    assert "restart" not in capsys.readouterr().err


def test_test_mode_shows_the_shapes_and_leaves_nothing(run, tmp_path):
    done, content = run(test_mode="true", without=["output_dir"])
    assert done == 0, content
    for line in ("0: float32 [4, 1]", "1: float32 [4, 1]", "error:", "written, read back, equal"):
        assert line in content
    assert not (tmp_path / "run").exists()


def test_test_mode_of_loaders_with_workers_ends(run):
    """Workers held the thread that waits for signals, and the lock of the directory."""
    loaders = ("batch_size=4, shuffle=True", "batch_size=4, shuffle=True, num_workers=1")
    done, content = run(*loaders, test_mode="true", without=["output_dir"])
    assert done == 0, content
    assert "written, read back, equal" in content


@pytest.mark.parametrize("fault", ["losses: no loss", "validation_metrics: empty"])
def test_test_mode_finds_what_is_wrong(run, fault):
    code, expected = ERRORS[fault]
    done, content = run(*code, test_mode="true", without=["output_dir"])
    assert done == 2
    assert expected in content
    assert "Traceback" not in content


RANGE = {
    "hyperparameters": {"lr": {"type": "double", "minval": 0.1, "maxval": 1}, "net": {"hidden": 4}}
}


def test_a_range_without_a_value_is_refused(run):
    done, content = run(config=RANGE)
    assert done == 2
    assert "hyperparameters.lr: a range, and one training needs one value" in content


def test_values_are_given_by_their_dotted_names(run, tmp_path):
    done, content = run(
        "nn.Linear(4, 1)",
        "nn.Linear(5, 1)",
        config=RANGE,
        hparams="lr=1e-2,net.hidden=5",
        train_steps=1,
    )
    assert done == 0, content
    known = json.loads((tmp_path / "run" / "experiment.json").read_text())
    assert known["hparams"] == {"lr": 0.01, "net": {"hidden": 5}}
    assert tensors(tmp_path / "run", 1)["model.safetensors/0.weight"].shape == (5, 1)


def test_an_unknown_hyperparameter_is_refused(run):
    done, content = run(hparams="net.hiddens=5")
    assert done == 2
    assert "Did you mean 'net.hidden'" in content


FLAGS = {
    "problem": "algorithmic_reverse_binary40",
    "model": "transformer",
    "hparams_set": "transformer_tiny",
    "data_dir": "data",
    "train_epochs": 3,
}


def test_all_flags_of_problems_are_refused_together(run):
    done, content = run(**FLAGS)
    assert done == 2
    for name in FLAGS:
        assert f"--{name}" in content
    done, content = run(schedule="train_eval_and_decode")
    assert done == 2
    assert "--schedule=train_eval_and_decode is for a problem" in content


def test_nothing_that_says_how_long_to_train_is_refused(run):
    done, content = run(config={"searcher": {"name": "single"}})
    assert done == 2
    assert "nothing says how long to train" in content


ALONE = ("trial", "config", "log_step_count_steps")


SETTINGS = {"train_steps": 9, "local_eval_frequency": 4, "hparams": "lr=0.05", "random_seed": 7}


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "flags",
    [{}, SETTINGS, {"global_batch_size": 12, "train_steps": 12}, {"keep_checkpoint_max": 3}],
)
def test_a_paused_run_goes_on_with_nothing_but_its_directory(run, tmp_path, flags):
    assert run(**flags, pause_at_step=5)[0] == 0
    assert steps_of(tmp_path / "run")[-1] == 5
    done, content = run(without=ALONE)
    assert done == 0, content
    assert run(**flags, output_dir=tmp_path / "whole")[0] == 0
    assert_same(tmp_path / "run", tmp_path / "whole", flags.get("train_steps", 12))
    evaluated = [{line["step"] for line in lines_of(tmp_path / n, "dev")} for n in ("run", "whole")]
    assert evaluated[0] == evaluated[1] | {5}


def test_a_range_keeps_its_value_when_a_run_goes_on_with_its_configuration(run, tmp_path):
    assert run(config=RANGE, hparams="lr=0.2", pause_at_step=5)[0] == 0
    done, content = run(config=RANGE)
    assert done == 0, content
    assert steps_of(tmp_path / "run")[-1] == 12


@pytest.mark.parametrize(
    "again", [{"hparams": "lr=0.2"}, {"hparams": "lr=0.2", "without": ["config"]}]
)
def test_other_hyperparameters_are_refused(run, again):
    assert run(pause_at_step=5)[0] == 0
    done, content = run(**again)
    assert done == 2
    assert "hyperparameters.lr: 0.1 -> 0.2" in content
    assert "Traceback" not in content


def test_another_length_is_told_and_followed(run, tmp_path):
    assert run()[0] == 0
    searcher = {**CONFIG["searcher"], "max_length": {"batches": 15}}
    done, content = run(config={"searcher": searcher})
    assert done == 0, content
    assert "changed since the checkpoint:  searcher.max_length.batches: 12 -> 15" in content
    assert steps_of(tmp_path / "run")[-1] == 15


def test_the_configuration_is_stronger_than_what_the_run_was_begun_with(run, tmp_path):
    assert run(local_eval_frequency=3, train_steps=6, eval_steps=1)[0] == 0
    done, content = run(config={"min_validation_period": {"batches": 4}})
    assert done == 0, content
    assert "--local_eval_frequency" not in content
    assert [line["step"] for line in lines_of(tmp_path / "run", "dev")] == [3, 6, 8, 12]


def test_a_validation_before_the_first_step(run, tmp_path):
    done, content = run(config={"perform_initial_validation": True})
    assert done == 0, content
    assert [line["step"] for line in lines_of(tmp_path / "run", "dev")] == [0, 6, 12]
    assert run(output_dir=tmp_path / "without")[0] == 0
    assert_same(tmp_path / "run", tmp_path / "without")


def test_a_validation_before_the_first_step_is_told_once_after_a_restart(run, tmp_path):
    config = {"perform_initial_validation": True, "data": {"marker": str(tmp_path / "marker")}}
    done, content = run(*failing(2), config=config)
    assert done == 0, content
    assert "restart 1" in content
    assert [line["step"] for line in lines_of(tmp_path / "run", "dev")] == [0, 6, 12]


def test_checkpoints_between_validations(run, tmp_path):
    config = {"min_checkpoint_period": {"batches": 5}, "checkpoint_policy": "all"}
    assert run(config=config)[0] == 0
    assert steps_of(tmp_path / "run") == [5, 6, 10, 12]


def test_the_best_and_the_newest_are_kept(run, tmp_path):
    config = {"min_validation_period": {"batches": 2}, "save_trial_latest": 2}
    assert run(config=config)[0] == 0
    retained = steps_of(tmp_path / "run")
    assert retained[-2:] == [10, 12]
    errors = {line["step"]: line["error"] for line in lines_of(tmp_path / "run", "dev")}
    assert min(errors, key=errors.get) in retained
    assert len(retained) <= 3


def test_a_policy_of_no_checkpoints_is_told_as_what_happens(run, tmp_path):
    done, content = run(
        config={"checkpoint_policy": "none", "min_validation_period": {"batches": 2}}
    )
    assert done == 0
    assert (
        "checkpoint_policy none, save_trial_latest 1:  the newest 1 checkpoints are kept" in content
    )
    assert steps_of(tmp_path / "run")[-1] == 12
    assert len(steps_of(tmp_path / "run")) <= 2


def test_half_precision_is_told_as_what_happens(run, tmp_path):
    config = {"optimizations": {"mixed_precision": "O2"}}
    done, content = run(config=config, train_steps=2)
    assert done == 0, content
    assert "mixed_precision O2:  O1, O2 and O3 are one here" in content
    state = json.loads((tmp_path / "run" / "ckpt-2" / "trainer.json").read_text())
    assert state["loss_scale"] >= 2.0**13  # halved where it was too large


def test_a_global_batch_is_made_of_batches_of_the_loader(run, tmp_path):
    searcher = {**CONFIG["searcher"], "max_length": {"records": 96}}
    done, content = run(config={"searcher": searcher}, global_batch_size=12)
    assert done == 0, content
    state = json.loads((tmp_path / "run" / "ckpt-8" / "trainer.json").read_text())
    assert (state["batches_per_step"], state["batches_consumed"]) == (3, 24)


def test_a_global_batch_that_cannot_be_made_is_refused(run):
    done, content = run(global_batch_size=10)
    assert done == 2
    assert "--global_batch_size=10: 1 process(es) make 4 in a step, with batches of 4" in content


def test_the_seed_is_the_configurations_unless_a_flag_says_another(run, tmp_path):
    seeded = {"reproducibility": {"experiment_seed": 7}}
    assert run(config=seeded, train_steps=2)[0] == 0
    assert run(random_seed=7, train_steps=2, output_dir=tmp_path / "flag")[0] == 0
    assert run(train_steps=2, output_dir=tmp_path / "none")[0] == 0
    assert_same(tmp_path / "run", tmp_path / "flag", 2)
    state = json.loads((tmp_path / "none" / "ckpt-2" / "trainer.json").read_text())
    assert state["seed"] == 0


def test_a_trial_killed_in_its_first_save_begins_again_with_its_seed(run, tmp_path):
    seeded = {"reproducibility": {"experiment_seed": 7}}
    assert run(config=seeded, train_steps=2)[0] == 0
    assert run(config=seeded, train_steps=2, output_dir=tmp_path / "whole")[0] == 0
    (tmp_path / "run" / "ckpt-2").rename(tmp_path / "run" / "ckpt-2.tmp-99")  # as a kill leaves it
    assert run(config=seeded, train_steps=2)[0] == 0
    assert_same(tmp_path / "run", tmp_path / "whole", 2)


@pytest.mark.parametrize("name", ["experiment.json", "task.json", "config.json"])
def test_a_file_of_a_trials_run_that_was_altered_is_refused_by_name(run, tmp_path, name):
    assert run(pause_at_step=5)[0] == 0
    file = tmp_path / "run" / name
    file.write_text(file.read_text().replace(" 1", " 2").replace('"0.', '"1.'))
    done, content = run(without=ALONE)
    assert done == 2
    assert f"{file} was altered since t2t-trainer wrote it" in content
    assert f"cp {tmp_path}/run/ckpt-5/{name} {file}" in content


def test_a_runs_own_code_that_was_altered_is_not_loaded(run, tmp_path):
    assert run(train_steps=2)[0] == 0
    (tmp_path / "line.py").unlink()
    t2t_torch.load(tmp_path / "run", trust_code=True)
    user_code._Loaded.forget()
    copy = tmp_path / "run" / "code" / "line.py"
    copy.write_text(copy.read_text().replace("nn.Linear(4, 1)", "nn.Linear(4, 1).double()"))
    with pytest.raises(CheckpointError, match=r"code/line.py was altered"):
        t2t_torch.load(tmp_path / "run", trust_code=True)
    copy.unlink()
    with pytest.raises(T2TError, match=r"the code of this run is gone|cannot be read"):
        t2t_torch.load(tmp_path / "run", trust_code=True)


@pytest.mark.parametrize("schedule", ["evaluate", "test", "train"])
def test_each_schedule_of_a_trial_does_what_it_says(run, tmp_path, schedule):
    assert run(pause_at_step=6)[0] == 0
    done, content = run(without=ALONE, schedule=schedule)
    assert done == 0, content
    assert steps_of(tmp_path / "run")[-1] == {"evaluate": 6, "test": 7, "train": 12}[schedule]


def test_a_run_that_is_done_says_so(run):
    assert run()[0] == 0
    done, content = run()
    assert done == 0
    assert "nothing to train" in content
