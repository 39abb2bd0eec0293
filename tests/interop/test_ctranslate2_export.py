"""What t2t-exporter --format=ctranslate2 writes, and when it writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import t2t_torch
from t2t_torch import registry
from t2t_torch.bin.commands import exporter
from t2t_torch.data.generate import generate_data
from t2t_torch.decode.loading import Loaded
from t2t_torch.errors import ArtifactError, ExportError, UsageError
from t2t_torch.export.settings import ExportSettings
from t2t_torch.interop import ctranslate2
from t2t_torch.interop import ctranslate2 as interop
from t2t_torch.interop.ctranslate2 import CTranslate2Exporter
from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.runtime.session import Artifact
from t2t_torch.runtime.signature import Signature

engine = pytest.importorskip("ctranslate2")

PROBLEM = "algorithmic_reverse_binary40_test"
FILES = {
    *("README.md", "config.json", "hparams.json", "model.bin", "shared_vocabulary.json"),
    "signature.json",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `data`, 12 rows in a split, and a `run` that has learnt nothing."""
    folder = tmp_path_factory.mktemp("ctranslate2")
    problem = registry.problem(PROBLEM)
    generate_data(problem, folder / "data", folder, num_processes=1, max_cases=12, progress=False)
    run = RunDirectory(folder / "run")
    hparams = registry.hparams("transformer_test")
    run.begin(
        TaskRecord(problem=PROBLEM, model="transformer", hparams_set="transformer_test"), hparams
    )
    torch.manual_seed(2)
    model = registry.model("transformer")(hparams, problem.features(folder / "data"))
    adam = torch.optim.Adam(model.parameters())
    CheckpointDirectory(run.path).save(Snapshot.take(model, adam, TrainerState(step=3)))
    run.unlock()
    return folder


def settings_of(made: Path, there: Path, **changes: Any) -> ExportSettings:
    places = {"output_dir": made / "run", "data_dir": made / "data", "export_dir": there}
    given = {name: str(path) for name, path in places.items()}
    return ExportSettings(**given, format="ctranslate2", **changes)


def test_the_folder_is_whole_and_what_was_compared_is_told(made: Path, tmp_path: Path) -> None:
    done = CTranslate2Exporter.export(settings_of(made, tmp_path / "out"))
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert done.verified.rows == done.verified.same == 12
    assert done.verified.difference < 1e-4
    told = str(done)
    assert f"transformer of {PROBLEM}, step 3" in told
    assert "12 rows of the dev split (of 200: the split has no more)" in told
    assert "quantized" not in told
    assert engine.Translator(str(tmp_path / "out")).translate_batch([["2", "3"]])


def test_the_command_writes_it_quantized(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [f"--{name}={made / name.partition('_')[0]}" for name in ("data_dir",)]
    flags += [f"--output_dir={made / 'run'}", f"--export_dir={tmp_path / 'out'}"]
    assert exporter.main([*flags, "--format=ctranslate2", "--quantize=int8"]) == 0
    assert "quantized BLEU" in capsys.readouterr().out
    asked = engine.Translator(str(tmp_path / "out"))
    assert asked.compute_type.startswith("int8")


@pytest.fixture
def changed_afterwards(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Weights of the model that change once it was converted; by name."""
    names: list[str] = []
    convert = interop.convert

    def convert_and_change(loaded: Loaded, folder: Path, quantization: str | None = None) -> None:
        convert(loaded, folder, quantization)
        for name in names:
            loaded.model.get_parameter(name).data *= 2

    monkeypatch.setattr(interop, "convert", convert_and_change)
    return names


def test_another_function_is_not_written_and_the_row_is_told(
    made: Path, tmp_path: Path, changed_afterwards: list[str]
) -> None:
    changed_afterwards.append("decoder.0.attention.output.weight")
    with pytest.raises(ExportError, match=r"row 0 of the dev split: the log-probability of id 0"):
        CTranslate2Exporter.export(settings_of(made, tmp_path / "out"))
    assert not list(tmp_path.iterdir())


def test_another_greedy_output_is_told_unless_ids_are_tied() -> None:
    class Model:
        likely = (-0.5, -0.9)

        def log_probs(self, inputs: Sequence[int], outputs: Sequence[int]) -> list[float]:
            assert list(outputs) in ([5, 6], [5, 7])
            return [0.0, self.likely[outputs[1] - 6]]

    model: Any = Model()
    row = ctranslate2.DevRow(4, [2, 1], [3, 1])
    with pytest.raises(ExportError, match=r"row 4 .* greedy output is \[5, 7\] and .* \[5, 6, 8\]"):
        ctranslate2._check_tied(model, row, [5, 6, 8], [5, 7])
    model.likely = (-0.5, -0.50001)
    ctranslate2._check_tied(model, row, [5, 6, 8], [5, 7])


def test_quantizing_that_costs_too_much_is_not_written(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = iter((40.0, 39.4))

    class Found:
        @property
        def value(self) -> float:
            return next(values)

    monkeypatch.setattr(ctranslate2, "score", lambda *_: {"bleu": Found()})
    with pytest.raises(ExportError, match=r"BLEU of 12 rows .* is 39\.40 and not 40\.00"):
        CTranslate2Exporter.export(settings_of(made, tmp_path / "out", quantize="int8"))
    assert not list(tmp_path.iterdir())


def test_what_is_there_stays(made: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        CTranslate2Exporter.export(settings_of(made, tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_a_folder_of_ctranslate2_is_overwritten_if_that_is_asked_and_all_in_it_is_of_it(
    made: Path, tmp_path: Path
) -> None:
    there = tmp_path / "out"
    CTranslate2Exporter.export(settings_of(made, there))
    with pytest.raises(UsageError, match="Replace it with --overwrite"):
        CTranslate2Exporter.export(settings_of(made, there))
    CTranslate2Exporter.export(settings_of(made, there, overwrite=True, quantize="int8"))
    assert Signature.read(there).quantized == "int8"
    (there / "notes").write_text("mine")
    with pytest.raises(UsageError, match="files that are not of it: notes"):
        CTranslate2Exporter.export(settings_of(made, there, overwrite=True))
    assert {path.name for path in there.iterdir()} == {*FILES, "notes"}


def test_the_folder_says_what_it_is_and_that_another_program_reads_it(
    made: Path, tmp_path: Path
) -> None:
    there = tmp_path / "out"
    CTranslate2Exporter.export(settings_of(made, there))
    signature = Signature.read(there)
    assert (signature.form, signature.problem, signature.step) == ("ctranslate2", PROBLEM, 3)
    assert signature.made_with["ctranslate2"] == engine.__version__
    assert set(signature.files) == FILES - {"signature.json"}
    signature.check_files(there)
    with pytest.raises(UsageError, match=r"for another program, as its README\.md says"):
        t2t_torch.load(there)
    with pytest.raises(ArtifactError, match=r"CTranslate2 reads it, as its README\.md shows"):
        Artifact(there)


def test_how_to_search_is_not_told_to_the_export(made: Path, tmp_path: Path) -> None:
    asked = "beam_size=2"
    with pytest.raises(UsageError, match=r"--decode_hparams: .*ctranslate2.* does not read this"):
        CTranslate2Exporter.export(settings_of(made, tmp_path / "out", decode_hparams=asked))


def test_without_the_package_it_says_how_to_install_it(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ctranslate2", None)
    with pytest.raises(ExportError, match=r"pip install '\.\[ct2\]'"):
        CTranslate2Exporter.export(settings_of(made, tmp_path / "out"))
