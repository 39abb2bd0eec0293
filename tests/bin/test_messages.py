"""Error messages and logs of the commands, as a new user meets them."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.bin.commands import (
    _STOPPING,
    avg_all,
    bleu,
    data,
    datagen,
    decoder,
    evaluation,
    exporter,
    latency,
    quick,
    server,
    trainer,
    translate_all,
    tuner,
)
from t2t_torch.data.raw_file import fetch
from t2t_torch.errors import DataError, RegistryError, install_extra
from t2t_torch.signals import SignalStop

ALL = {
    trainer: ("problem", "model", "hparams_set", "data_dir", "output_dir"),
    tuner: ("problem", "model", "hparams_set", "data_dir", "train_steps", "output_dir"),
    datagen: ("problem", "data_dir"),
    evaluation: ("output_dir",),
    decoder: ("output_dir",),
    exporter: ("output_dir", "export_dir"),
    latency: ("artifact",),
    server: ("artifact", "output_dir"),
    avg_all: ("model_dir", "output_dir"),
    bleu: ("translation", "reference"),
    translate_all: ("model_dir", "source"),
    data: ("problem", "data_dir"),
    quick: ("file",),
}


def refused(capsys: pytest.CaptureFixture[str], command: object, *arguments: str) -> str:
    """Runs a command that refuses its flags; returns its message."""
    assert command.main(list(arguments)) == 2  # type: ignore[attr-defined]
    return capsys.readouterr().err


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
def test_a_command_without_flags_names_all_that_it_needs_and_an_example(capsys, command):
    message = refused(capsys, command)
    assert [f"--{name}" for name in ALL[command] if f"--{name}=" not in message] == []
    command_line = command.help().split("\n\n")[1].splitlines()[0]
    assert f"Example:\n{command_line}" in message


def test_a_wrong_number_is_explained_without_words_of_python(capsys):
    message = refused(capsys, trainer, "--train_steps=abc")
    assert message.startswith("error: --train_steps=abc: expected a positive integer. ")
    assert "int()" not in message


def test_a_wrong_choice_lists_the_choices(capsys):
    message = refused(capsys, datagen, "--on_bad_record=drop")
    assert message == "error: --on_bad_record=drop: expected fail or skip.\n"


@pytest.mark.parametrize(
    ("alias", "meant"),
    [
        ("epochs", "--train_epochs=3"),
        ("steps", "--train_steps=3"),
        ("lr", "--hparams=learning_rate_constant=3"),
        ("dropout", "--hparams=layer_prepostprocess_dropout=3"),
        ("hidden", "--hparams=hidden_size=3"),
        ("layers", "--hparams=num_hidden_layers=3"),
    ],
)
def test_common_names_of_other_libraries_are_understood(capsys, alias, meant):
    message = refused(capsys, trainer, f"--{alias}=3")
    assert f"unknown flag --{alias}. Did you mean " in message
    assert meant in message
    name = meant.removeprefix("--hparams=").partition("=")[0]
    within = refused(
        capsys, trainer, "--hparams_set=transformer_tiny", f"--hparams={alias}=3", "--help_hparams"
    )
    assert name in within
    assert "Did you mean" in within


def test_an_unknown_name_may_be_the_users_own():
    with pytest.raises(RegistryError, match="If it is your own, add --t2t_usr_dir=FOLDER"):
        registry.problem("ner")


def test_a_failed_download_is_reported_once(tmp_path, caplog):
    mirrors = [f"file://{tmp_path}/no", f"file://{tmp_path}/nothing"]
    with caplog.at_level(logging.DEBUG), pytest.raises(DataError, match="could not be downloaded"):
        fetch(mirrors, tmp_path / "raw", filename="a.txt")
    assert caplog.text == ""


def test_log_lines_have_the_style_of_the_trainers_lines(tmp_path):
    arguments = ["--problem=algorithmic_identity_binary40", f"--data_dir={tmp_path}"]
    arguments += [f"--tmp_dir={tmp_path}", "--max_cases=20", "--num_concurrent_processes=1"]
    command = [sys.executable, "-m", "t2t_torch.bin", "datagen", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert lines[0] == (
        f"algorithmic_identity_binary40: generating in {tmp_path}; raw files: {tmp_path}"
    )
    assert "'algorithmic_identity_binary40' train: 20 rows encoded; writing the shards" in lines
    assert [line for line in lines if "generate.py:" in line or "datagen.py:" in line] == []


def test_a_search_has_its_own_message_of_a_signal(capfd):
    with SignalStop(_STOPPING):
        os.kill(os.getpid(), signal.SIGTERM)
    expected = "SIGTERM: stopping: trials are being saved; run the same command to continue"
    assert expected in capfd.readouterr().err


def test_a_search_without_data_starts_no_trial(capsys, tmp_path):
    arguments = ["--problem=dates_to_iso", "--model=transformer", "--train_steps=10"]
    arguments += ["--hparams_set=transformer_tiny", "--hparams_range=transformer_tiny_range"]
    arguments += [f"--data_dir={tmp_path}", f"--output_dir={tmp_path / 'search'}", "--metric=loss"]
    message = refused(capsys, tuner, *arguments)
    assert message.startswith("error: No data of 'dates_to_iso' in ")
    assert not (tmp_path / "search" / "trials").exists()


def test_matplotlib_logs_warnings_only():
    trainer.main(["--registry_help"])
    assert not logging.getLogger("matplotlib.font_manager").isEnabledFor(logging.INFO)


def test_install_commands_are_for_the_clone():
    assert install_extra("serve").startswith("pip install '.[serve]'")
    package = Path(registry.__file__).parent
    published = [
        path.name
        for path in package.rglob("*.py")
        if "pip install t2t" in (text := path.read_text("utf-8")) or "pip install 't2t" in text
    ]
    assert published == []


def test_a_path_that_is_not_utf8_is_an_error_of_one_line(monkeypatch, tmp_path, capsys) -> None:
    # Workers of pytest cannot send a log with such a path.
    monkeypatch.setattr(logging.getLogger("absl"), "propagate", False)
    folder = tmp_path / os.fsdecode(b"bad\xff")
    folder.mkdir()
    arguments = ["--problem=algorithmic_identity_binary40", f"--data_dir={folder}"]
    assert datagen.main(arguments) == 2
    said = capsys.readouterr().err
    assert "udcff/" in said and "is not UTF-8. Rename the file or folder." in said
    assert "Traceback" not in said


def test_a_limit_of_file_sizes_is_an_error_of_one_line(monkeypatch, tmp_path, capsys) -> None:
    def absent() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", absent)  # as under `ulimit -f 0`
    arguments = ["--problem=algorithmic_identity_binary40", f"--data_dir={tmp_path}"]
    assert datagen.main(arguments) == 2
    assert "raise the limit of file sizes (ulimit -f)" in capsys.readouterr().err


def test_a_message_quotes_no_long_input_in_full() -> None:
    said = str(DataError(f"{'x' * 10_000} is no label.\nName one of a, b."))
    assert len(said) < 1100
    assert "characters ...]" in said and said.endswith("is no label.\nName one of a, b.")
    assert str(DataError("short " * 100)) == "short " * 100
