"""A hook in a folder of the user's, from the command line: examples/my_usr_dir."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from t2t_torch.bin.trainer import main
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.metrics_file import MetricsFile

USR_DIR = Path(__file__).resolve().parents[2] / "examples" / "my_usr_dir"


@pytest.fixture
def trainer(data_dir, tmp_path, own_registry, capsys):
    """Runs t2t-trainer; returns its exit code and what it said."""

    def run(*flags):
        code = main(
            [
                "--problem=algorithmic_reverse_binary40_test",
                "--model=transformer",
                "--hparams_set=transformer_test",
                "--hparams=batch_size=256",
                f"--data_dir={data_dir}",
                f"--output_dir={tmp_path / 'run'}",
                "--local_eval_frequency=2",
                "--log_step_count_steps=1",
                "--eval_steps=1",
                "--worker_gpu=0",
                *flags,
            ]
        )
        return code, capsys.readouterr().err

    return run


def counted(told):
    return [int(number) for number in re.findall(r"loudest: .* of (\d+) steps", told)]


def test_it_watches_a_run_and_a_resumed_run_goes_on_with_what_it_remembers(trainer, tmp_path):
    flags = (f"--t2t_usr_dir={USR_DIR}", "--hooks=loudest_parameter")
    code, text = trainer(*flags, "--train_steps=2")
    assert (code, counted(text)) == (0, [1, 2])
    code, text = trainer(*flags, "--train_steps=4")
    assert (code, counted(text)) == (0, [3, 4])
    state = CheckpointDirectory(tmp_path / "run").newest().trainer_state()
    assert sum(state.hooks["LoudestParameter"].values()) == 4
    assert (tmp_path / "run" / "report.html").exists()


def test_hooks_are_listed_with_the_users_own(capsys, own_registry):
    assert main(["--registry_help", f"--t2t_usr_dir={USR_DIR}"]) == 0
    listed = capsys.readouterr().out.partition("Hooks:")[2].split()
    for name in ("attention_maps", "confusion_matrix", "histograms", "profile"):
        assert name in listed
    assert "loudest_parameter" in listed


def test_a_hook_that_nobody_knows_is_refused_with_the_nearest_name(trainer, tmp_path):
    code, text = trainer("--hooks=attention_map", "--train_steps=2")
    assert code == 2
    assert "no hook is named 'attention_map'. Did you mean 'attention_maps'?" in text
    assert not (tmp_path / "run").exists()


def test_what_is_no_hook_is_refused_before_the_first_step(trainer, tmp_path):
    folder = tmp_path / "usr_no_hook"
    folder.mkdir()
    (folder / "no_hook.py").write_text(
        "from t2t_torch.registry import register_hook\n@register_hook\nclass NoHook: pass\n"
    )
    code, text = trainer(f"--t2t_usr_dir={folder}", "--hooks=no_hook", "--train_steps=2")
    assert code == 2
    assert f"--hooks=no_hook: NoHook in {folder / 'no_hook.py'} " in text
    assert "is no Hook. Register a subclass of" in text


@pytest.mark.slow
def test_profile_is_a_flag(trainer, tmp_path):
    code, _ = trainer("--profile", "--train_steps=14", "--schedule=train")
    assert code == 0
    assert (tmp_path / "run" / "profile" / "14.txt").exists()


@pytest.mark.slow
@pytest.mark.parametrize("shard", [False, True])
def test_all_hooks_together_watch_a_run_of_two_processes(data_dir, tmp_path, shard):
    folder = tmp_path / "run"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone",
        "-m", "t2t_torch.bin.trainer",
        "--problem=algorithmic_reverse_binary40_test",
        "--model=transformer", "--hparams_set=transformer_test",
        f"--hparams=batch_size=256,shard_weights={shard}",
        f"--data_dir={data_dir}", f"--output_dir={folder}", "--worker_gpu=0",
        "--train_steps=18", "--local_eval_frequency=9", "--log_step_count_steps=9",
        "--hooks=attention_maps,histograms,loudest_parameter,profile", f"--t2t_usr_dir={USR_DIR}",
    ]  # fmt: skip
    if shard:  # loudest_parameter looks at gradients as if each process had all of them
        command[-2] = "--hooks=attention_maps,histograms,profile"
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    reports = [(one["step"], one["split"]) for one in MetricsFile(folder).read()]
    assert reports == [(9, "train"), (9, "dev"), (18, "train"), (18, "dev")]
    assert (folder / "profile" / "17.txt").exists()
    assert len(list((folder / "figures" / "attention").iterdir())) == 6
