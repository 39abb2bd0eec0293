"""`--config`, `--print_config`, `--hp_name` and what a run that goes on remembers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import t2t_torch
from t2t_torch import registry
from t2t_torch.bin.commands import trainer

ROOT = Path(t2t_torch.__file__).parents[1]
SILENT = dict.fromkeys(("problem", "model", "hparams_set", "hparams", "train_steps", "eval_steps"))


def config_of(run):
    return json.loads((run / "config.json").read_text())


def hparams_of(run):
    return json.loads((run / "hparams.json").read_text())


@pytest.fixture
def write(tmp_path):
    """Writes a JSON file; returns the flag that reads it."""

    def write(content):
        file = tmp_path / "my.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return f"--config={file}"

    return write


def test_the_json_of_a_run_makes_a_run_that_is_bit_equal(arguments, data_dir, tmp_path):
    hparams = "batch_size=256,learning_rate_warmup_steps=2,hidden_size=8"
    flags = {"random_seed": 5, "local_eval_frequency": 2, "reduce_lr_on_plateau_factor": 0.5}
    torch.set_num_threads(1)
    assert trainer.main(arguments(hparams=hparams, **flags)) == 0
    config = config_of(tmp_path / "run")
    assert config["hparams"]["hidden_size"] == 8
    assert config["version"] == t2t_torch.__version__
    assert config["data_dir"] == str(data_dir)
    assert "output_dir" not in config
    again = [f"--config={tmp_path}/run/config.json", f"--output_dir={tmp_path}/again"]
    assert trainer.main(again) == 0
    ours, theirs = (
        load_file(tmp_path / run / "ckpt-3" / "model.safetensors") for run in ("again", "run")
    )
    assert [name for name in theirs if not torch.equal(theirs[name], ours[name])] == []
    assert config_of(tmp_path / "again") == config


def test_what_is_printed_is_what_is_written_and_nothing_is_begun(arguments, tmp_path, capsys):
    assert trainer.main([*arguments(hooks="histograms"), "--print_config"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(tmp_path.iterdir()) == []
    assert trainer.main(arguments(hooks="histograms")) == 0
    assert config_of(tmp_path / "run") == printed
    assert printed["hooks"] == ["histograms"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("flags", [["--print_config"], ["--train_steps=0"], ["--model=transfomer"]])
def test_what_needs_no_training_needs_no_torch(arguments, flags):
    script = (
        "import sys; from t2t_torch.bin.trainer import main\n"
        f"main({[*arguments(), *flags]}); assert 'torch' not in sys.modules"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_flags_win_over_the_file(arguments, tmp_path, write):
    config = write(
        {
            "train_steps": 9,
            "local_eval_frequency": 2,
            "hooks": ["histograms"],
            "hparams": {"hidden_size": 8, "num_heads": 4, "num_hidden_layers": 1},
        }
    )
    flags = arguments(train_steps=2, hparams="hidden_size=16,batch_size=256", hooks="")
    assert trainer.main([*flags, config]) == 0
    hparams = hparams_of(tmp_path / "run")
    assert [hparams[name] for name in ("hidden_size", "num_heads")] == [16, 4]
    assert hparams["provenance"]["hidden_size"] == "--hparams"
    assert hparams["provenance"]["num_heads"] == "my.json"
    config = config_of(tmp_path / "run")
    assert (config["train_steps"], config["local_eval_frequency"]) == (2, 2)
    assert "hooks" not in config


def test_hparams_may_be_a_string_as_in_the_flag(arguments, tmp_path, write):
    flags = [*arguments(train_steps=1, hparams=None), write({"hparams": "hidden_size=8"})]
    assert trainer.main(flags) == 0
    assert hparams_of(tmp_path / "run")["hidden_size"] == 8


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"train_stepz": 3}, "unknown flag 'train_stepz'. Did you mean 'train_steps'"),
        ({"hidden_size": 3}, '"hparams": {"hidden_size": ...}'),
        ({"train_steps": "3"}, 'train_steps: "3" should be an integer'),
        ({"train_steps": 1.5}, "train_steps: 1.5 should be an integer"),
        ({"train_steps": True}, "train_steps: true should be an integer"),
        ({"train_steps": None}, "train_steps: null should be an integer"),
        ({"profile": 1}, "profile: 1 should be true or false"),
        ({"hooks": "histograms"}, 'hooks: "histograms" should be a list of strings'),
        ({"problem": 3}, "problem: 3 should be a string"),
        ({"schedule": "trian"}, "continuous_train_and_eval"),
        ({"hparams": 3}, "hparams: 3 should be an object"),
        ({"hparams": {"hiden_size": 3}}, "hidden_size"),
        ({"hparams": {"hidden_size": "3"}}, "hidden_size='3'"),
        ('{"train_steps": 1, "train_steps": 2}', "says train_steps twice"),
        ("[1]", "should be a JSON object"),
        ("{", "is not valid JSON"),
    ],
    ids=str,
)
def test_a_mistake_in_the_file_is_told_with_its_place(
    arguments, tmp_path, capsys, write, content, told
):
    assert trainer.main([*arguments(), write(content)]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error
    assert not (tmp_path / "run").exists()


def test_all_mistakes_of_a_file_are_told_at_once(arguments, capsys, write):
    assert trainer.main([*arguments(), write({"train_stepz": 3, "eval_steps": "1"})]) == 2
    error = capsys.readouterr().err
    assert error.count("my.json: ") == 2


def test_a_file_that_is_not_there_is_named(arguments, capsys):
    assert trainer.main([*arguments(), "--config=nowhere.json"]) == 2
    assert "--config=nowhere.json: there is no such file" in capsys.readouterr().err


def test_a_file_of_another_version_or_size_of_run_is_warned_of(arguments, capsys, write):
    config = write({"version": "0.0.1", "processes": 8})
    assert trainer.main([*arguments(train_steps=1), config]) == 0
    printed = capsys.readouterr().err
    assert "is of version 0.0.1, here it is" in printed
    assert "is of processes 8, here it is 1" in printed


@pytest.mark.parametrize("form", [["--hp_hidden_size=8"], ["--hp_hidden_size", "8"]])
def test_one_hyperparameter_is_set_as_in_tensor2tensor(arguments, tmp_path, form):
    assert trainer.main([*arguments(train_steps=1), *form]) == 0
    assert hparams_of(tmp_path / "run")["hidden_size"] == 8
    assert hparams_of(tmp_path / "run")["provenance"]["hidden_size"] == "--hp_hidden_size"


def test_an_unknown_one_is_refused(arguments, capsys):
    assert trainer.main([*arguments(), "--hp_hiden_size=8"]) == 2
    assert "--hp_hiden_size: no hyperparameter is named 'hiden_size'" in capsys.readouterr().err
    assert trainer.main([*arguments(), "--hp_hidden_size"]) == 2
    assert "--hp_hidden_size needs a value" in capsys.readouterr().err


def test_help_hparams_shows_what_the_file_changes(capsys, write):
    config = write({"hparams": {"num_heads": 4}})
    assert trainer.main(["--hparams_set=transformer_test", config, "--help_hparams"]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
    assert rows["num_heads"][1:4] == ["int", "4", "my.json"]


@pytest.mark.slow
def test_a_run_that_goes_on_is_evaluated_and_saved_as_it_was_begun(arguments, tmp_path, capsys):
    assert trainer.main(arguments(train_steps=2, local_eval_frequency=1)) == 0
    assert trainer.main(arguments(**{**SILENT, "train_steps": 4})) == 0
    printed = capsys.readouterr().err
    assert f"as in {tmp_path}/run/config.json:  " in printed
    assert "--local_eval_frequency=1" in printed
    assert (tmp_path / "run" / "ckpt-3").is_dir()
    assert config_of(tmp_path / "run")["local_eval_frequency"] == 1
    capsys.readouterr()
    assert trainer.main(arguments(**{**SILENT, "train_steps": 6, "local_eval_frequency": 2})) == 0
    assert "--local_eval_frequency" not in capsys.readouterr().err
    assert not (tmp_path / "run" / "ckpt-5").exists()


def test_a_seed_that_was_given_is_still_told_when_the_run_goes_on(arguments, tmp_path):
    assert trainer.main(arguments(train_steps=1, random_seed=7)) == 0
    assert trainer.main(arguments(train_steps=2)) == 0
    assert config_of(tmp_path / "run")["random_seed"] == 7


@pytest.mark.sample(1)
@pytest.mark.parametrize("leftover", ["ckpt-1.tmp-99", ".gone"])
def test_a_run_killed_before_its_first_checkpoint_begins_again_as_it_was_asked_to(
    arguments, tmp_path, leftover
):
    assert trainer.main(arguments(train_steps=1, random_seed=7)) == 0
    warm = {"random_seed": 8, "warm_start_from": tmp_path / "run", "output_dir": tmp_path / "warm"}
    assert trainer.main(arguments(train_steps=1, **warm)) == 0
    states = []
    for _ in range(2):
        checkpoint = tmp_path / "warm" / "ckpt-1"
        states.append(load_file(checkpoint / "model.safetensors"))
        checkpoint.rename(checkpoint.with_name(leftover))
        assert trainer.main(arguments(**SILENT, output_dir=tmp_path / "warm")) == 0
        leftover = ".again"
    assert json.loads((checkpoint / "trainer.json").read_text())["seed"] == 8
    states.append(load_file(checkpoint / "model.safetensors"))
    for state in states[1:]:
        assert all(torch.equal(state[name], value) for name, value in states[0].items())


def test_a_folder_is_no_config(arguments, capsys, tmp_path):
    assert trainer.main(arguments(config=tmp_path)) == 2
    assert f"{tmp_path} cannot be read: Is a directory. A JSON file was" in capsys.readouterr().err


def test_a_broken_json_of_the_run_is_told_with_the_copy_that_mends_it(arguments, capsys, tmp_path):
    run = tmp_path / "run"
    assert trainer.main(arguments(train_steps=1)) == 0
    whole = (run / "config.json").read_bytes()
    (run / "config.json").write_text("{")
    assert trainer.main(arguments(train_steps=2)) == 2
    assert f"cp {run}/ckpt-1/config.json {run}/config.json\n" in capsys.readouterr().err
    assert (run / "ckpt-1" / "config.json").read_bytes() == whole


def test_what_is_remembered_is_told_as_flags_are_written(arguments, capsys):
    assert trainer.main(arguments(train_steps=1, hooks="profile,histograms")) == 0
    capsys.readouterr()
    assert trainer.main(arguments(train_steps=2)) == 0
    assert "--hooks=profile,histograms" in capsys.readouterr().err


@pytest.mark.usefixtures("own_registry")
def test_code_in_a_teachers_run_needs_trust_which_no_run_remembers(
    arguments, tmp_path, capsys, monkeypatch
):
    code = tmp_path / "teacher" / "own_code"
    code.mkdir(parents=True)
    (code / "nothing.py").write_text("")
    teacher = arguments(output_dir=code.parent, t2t_usr_dir=code, train_steps=1)
    assert trainer.main(teacher) == 0
    monkeypatch.setattr(registry, "usr_dirs", list)  # of another process
    student = arguments(output_dir=tmp_path / "student", teacher=code.parent, train_steps=1)
    capsys.readouterr()
    assert trainer.main(student) == 2
    assert "inside it. The author of this folder wrote that code" in capsys.readouterr().err
    assert trainer.main([*student, "--trust_code"]) == 0
    assert "trust_code" not in config_of(tmp_path / "student")
    assert trainer.main([*student, "--train_steps=2"]) == 2, "a run that resumes is asked again"
