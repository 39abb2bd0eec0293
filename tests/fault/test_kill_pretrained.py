"""A fine-tuning that is killed again and again, or stopped, ends as one that was not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from test_kill import KILLS, killed_and_killed, weights_and_slots

from tests.pretrained.folders import save_model

pytestmark = pytest.mark.slow

ROWS = [f"the {word} dog number {n}\t{word}" for n in range(24) for word in ("lazy", "quick")]


@pytest.fixture
def arguments(tmp_path):
    """Makes the flags of `t2t-trainer`."""
    pytest.importorskip("transformers")
    save_model("bert", tmp_path / "bert")
    declared = tmp_path / "declared"
    declared.mkdir()
    files = {split: f"{split}.tsv" for split in ("train", "eval")}
    for file in files.values():
        (declared / file).write_text("\n".join(["inputs\ttargets", *ROWS]) + "\n")
    content = {"problem": "mine", "kind": "text2class", "files": files}
    (declared / "mine.json").write_text(json.dumps(content))

    def make(name, steps, **more):
        values = {
            "problem": "mine",
            "model": "pretrained_encoder",
            "hparams_set": "pretrained_encoder_base",
            "hparams": f"pretrained={tmp_path / 'bert'},batch_size=8",
            "t2t_usr_dir": declared,
            "tmp_dir": declared,
            "data_dir": tmp_path / "data",
            "output_dir": tmp_path / name,
            "train_steps": steps,
            "local_eval_frequency": 3,
            "log_step_count_steps": 1,
            "worker_gpu": 0,
            **more,
        }
        return ["--generate_data", *(f"--{name}={value}" for name, value in values.items())]

    return make


def test_a_fine_tuning_killed_at_random_instants_ends_bit_equal(arguments, tmp_path):
    killed, whole = killed_and_killed(arguments, tmp_path, kills=KILLS, steps=15 * KILLS, seed=2)
    assert killed == whole


@pytest.mark.parametrize("problem", ["mine", "mine_masked"])
def test_two_processes_resume_bit_equal(problem, arguments, tmp_path):
    def run(*flags):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node=2", "-m", "t2t_torch.bin.trainer", *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    run(*arguments("whole", 6, problem=problem))
    run(*arguments("part", 6, problem=problem, pause_at_step=3))
    run(*arguments("part", 6, problem=problem))
    both = [weights_and_slots(tmp_path / name / "ckpt-6") for name in ("whole", "part")]
    assert both[0] == both[1]
