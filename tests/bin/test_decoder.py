"""The command t2t-decoder."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from t2t_torch import registry
from t2t_torch.bin.commands import decoder
from t2t_torch.data.generate import generate_data
from t2t_torch.distributed.precision import Probe
from t2t_torch.reporter import JsonLinesReporter
from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.workflows.decode import DecodeSettings, decode

SHORT = "--decode_hparams=extra_length=3,beam_size=2"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run of tiny_algo that has learnt nothing."""
    path = tmp_path / "run"
    run, hparams = RunDirectory(path), registry.hparams("transformer_test")
    task = TaskRecord(problem="tiny_algo", model="transformer", hparams_set="transformer_test")
    run.begin(task, hparams)
    torch.manual_seed(0)
    model = registry.model("transformer")(hparams, registry.problem("tiny_algo").features(path))
    adam = torch.optim.Adam(model.parameters())
    CheckpointDirectory(path).save(Snapshot.take(model, adam, TrainerState(step=7)))
    run.unlock()
    return path


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    file = tmp_path / "in.txt"
    file.write_text("0 1\n\n1 1 1 0")
    return file


def test_a_file_is_decoded_with_the_run_directory_alone(
    run_dir: Path, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = inputs.with_name("out.txt")
    flags = [f"--output_dir={run_dir}", f"--decode_from_file={inputs}"]
    assert decoder.main([*flags, f"--decode_to_file={target}", SHORT]) == 0
    assert target.read_text().count("\n") == 3
    assert str(target) in capsys.readouterr().out


def test_without_a_name_the_outputs_are_named_as_tensor2tensor_names_them(
    run_dir: Path, inputs: Path
) -> None:
    flags = [f"--checkpoint_path={run_dir / 'ckpt-7'}", f"--decode_from_file={inputs}", SHORT]
    assert decoder.main(flags) == 0
    name = "in.txt.transformer.transformer_test.tiny_algo.beam2.alpha0.6.decodes"
    assert inputs.with_name(name).read_text().count("\n") == 3


def test_a_reporter_gets_all_that_is_printed(
    run_dir: Path, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = DecodeSettings(
        output_dir=str(run_dir),
        decode_from_file=str(inputs),
        decode_hparams=SHORT.partition("=")[2],
    )
    written = io.StringIO()
    decode(settings, reporter=JsonLinesReporter(written))
    assert '"output": "3 inputs in ' in written.getvalue()
    assert capsys.readouterr() == ("", "")


def test_a_reference_is_scored_with_sacrebleu(
    run_dir: Path, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [f"--output_dir={run_dir}", f"--decode_from_file={inputs}", SHORT]
    assert decoder.main([*flags, f"--decode_reference={inputs}"]) == 0
    out = capsys.readouterr().out
    assert "BLEU = " in out
    assert "version:" in out


def test_a_reference_of_another_length_is_refused_before_anything_is_decoded(
    run_dir: Path, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference, target = inputs.with_name("reference.txt"), inputs.with_name("out.txt")
    reference.write_text("0 1\n")
    flags = [f"--output_dir={run_dir}", f"--decode_from_file={inputs}", SHORT]
    flags += [f"--decode_reference={reference}", f"--decode_to_file={target}"]
    assert decoder.main(flags) == 2
    assert "1 lines, but there are 3 outputs" in capsys.readouterr().err
    assert not target.exists()


def test_a_data_set_is_decoded_when_no_file_is_given(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = tmp_path / "data"
    generate_data(registry.problem("tiny_algo"), data_dir, tmp_path, num_processes=1, max_cases=4)
    assert decoder.main([f"--output_dir={run_dir}", f"--data_dir={data_dir}", SHORT]) == 0
    written = {path.suffix: path for path in (run_dir / "decodes").iterdir()}
    assert sorted(written) == [".decodes", ".inputs", ".targets"]
    assert written[".decodes"].name.startswith("dev-7.transformer.transformer_test.tiny_algo.")
    assert {path.read_text().count("\n") for path in written.values()} == {4}
    out = capsys.readouterr().out
    assert "exact match" in out
    assert "BLEU = " in out


def test_typed_lines_are_answered(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("0 1 1\nq\n"))
    assert decoder.main([f"--output_dir={run_dir}", "--decode_interactive", SHORT]) == 0
    assert capsys.readouterr().out.count("> ") == 2


def test_what_can_be_set_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert decoder.main(["--help_decode_hparams", "--decode_hparams=alpha=1.5"]) == 0
    out = capsys.readouterr().out
    assert "extra_length" in out
    assert "--decode_hparams" in out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--output_dir"),
        (["--output_dir={run}"], "what shall be decoded?"),
        (["--output_dir={run}", "--data_dir={run}"], "t2t-datagen"),
        (["--output_dir={run}/none", "--decode_interactive"], "not a run directory"),
        (["--output_dir={run}", "--decode_from_file={run}/none"], "none"),
        (["--output_dir={run}", "--decode_interactive", "--decode_from_file=x"], "one of them"),
        (["--output_dir={run}", "--data_dir=x", "--decode_reference=x"], "--decode_from_file"),
        (["--output_dir={run}", "--decode_interactive", "--problem=other"], "tiny_algo"),
        (["--output_dir={run}", "--decode_interactive", "--checkpoint_path=9"], "step 9"),
        (["--output_dir={run}", "--decode_hparams=block_size=2"], "block_size"),
        (["--output_dir={run}", "--decode_hparams=beam_size=100000000"], "beam_size"),
        (["--output_dir={run}/ckpt-7", "--decode_interactive"], "is a checkpoint"),
        (["--output_dir={run}", "--data_dir={run}", "--decode_to_file={run}"], "is a folder"),
        (["--output_dir={run}", "--decode_fom_file=x"], "--decode_from_file"),
        (
            ["--output_dir={run}", "--decode_from_file=x", "--decode_hparams=num_samples=2"],
            "--decode_from_file is decoded whole and does not read num_samples",
        ),
        (
            ["--output_dir={run}", "--score_file=x", "--decode_hparams=beam_size=2,return_beams=1"],
            "--score_file searches for nothing and does not read beam_size, return_beams",
        ),
        *(
            (
                ["--output_dir={run}", "--decode_interactive", f"--decode_hparams={settings}"],
                f"--decode_interactive does not read {named}",
            )
            for settings, named in (
                ("output_format=jsonl", "output_format"),
                ("identity_output=true", "identity_output"),
                ("write_alignments=true,output_format=tsv", "output_format, write_alignments"),
            )
        ),
    ],
)
def test_a_wrong_command_says_what_is_wrong_and_exits_2(
    run_dir: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert decoder.main([flag.format(run=run_dir) for flag in flags]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert message in err


@pytest.mark.parametrize("name", ["in.txt", "reference.txt", "link", "folder", "in.txt/out"])
def test_a_bad_name_for_the_outputs_is_refused_before_anything_is_loaded(
    tmp_path: Path, inputs: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    reference = tmp_path / "reference.txt"
    reference.write_text(inputs.read_text())
    (tmp_path / "link").symlink_to(reference)
    (tmp_path / "folder").mkdir()
    flags = [f"--output_dir={tmp_path / 'no_run'}", f"--decode_from_file={inputs}"]
    flags += [f"--decode_reference={reference}", f"--decode_to_file={tmp_path / name}"]
    assert decoder.main(flags) == 2
    assert "--decode_to_file" in capsys.readouterr().err
    assert inputs.read_text() == reference.read_text() == "0 1\n\n1 1 1 0"


def test_nothing_decoded_has_no_bleu(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.txt"
    empty.touch()
    flags = [f"--output_dir={run_dir}", f"--decode_from_file={empty}", SHORT]
    assert decoder.main([*flags, f"--decode_reference={empty}"]) == 0
    assert "nothing to score" in capsys.readouterr().out


def test_a_data_set_is_not_decoded_into_a_pipe(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    flags = [f"--output_dir={run_dir}", f"--data_dir={tmp_path}"]
    assert decoder.main([*flags, f"--decode_to_file={tmp_path / 'pipe'}"]) == 2
    assert "three files" in capsys.readouterr().err


def test_typed_bytes_that_are_no_text_are_told(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = io.TextIOWrapper(io.BytesIO(b"0 \xff\n0 1\n"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", typed)
    assert decoder.main([f"--output_dir={run_dir}", "--decode_interactive", SHORT]) == 0
    assert "not UTF-8" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", ["as_trained", "bfloat16"])
def test_a_type_that_is_slower_than_float32_is_warned_of(
    run_dir: Path,
    inputs: Path,
    dtype: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def measure(hparams: Any, device: torch.device, other: str) -> Probe:
        return Probe("float32", {"float32": 1.0, other: 20.0}, {"float32": 1.0, other: 1.0})

    monkeypatch.setattr(Probe, "of", measure)
    flags = [f"--output_dir={run_dir}", f"--decode_from_file={inputs}"]
    target = inputs.with_name("out.txt")
    how = f"{SHORT},activation_dtype={dtype}"
    assert decoder.main([*flags, f"--decode_to_file={target}", how]) == 0
    error = capsys.readouterr().err
    assert ("bfloat16 is 20.0 times slower" in error) == (dtype == "bfloat16")
