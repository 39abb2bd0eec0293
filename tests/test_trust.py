"""Code that comes with a run is executed only if its user says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch import registry, trust
from t2t_torch.bin import decoder, exporter, latency, server, trainer, translate_all, tuner
from t2t_torch.bin import eval as evaluation
from t2t_torch.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    imported: list[str] = []
    monkeypatch.setattr(registry, "import_usr_dir", lambda one: imported.append(str(one)))
    monkeypatch.setattr(registry, "imported", imported, raising=False)
    for name in ("run/own", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "run" / "own")
    return tmp_path


def test_code_elsewhere_on_this_machine_is_imported_and_what_is_gone_is_returned(
    folder: Path,
) -> None:
    elsewhere, gone = str(folder / "elsewhere"), str(folder / "gone")
    assert trust.import_usr_dirs(folder / "run", (elsewhere, gone)) == [gone]
    assert registry.imported == [elsewhere]  # type: ignore[attr-defined]


@pytest.mark.parametrize("code", ["elsewhere", "run/own", "./run", "{}/run/own", "{}/link"])
def test_code_that_comes_with_the_run_needs_trust(folder: Path, code: str) -> None:
    code = code.format(folder)
    with pytest.raises(UsageError, match=r"--trust_code .*trust_code=True") as refused:
        trust.import_usr_dirs(folder / "run", (code,))
    assert f"--t2t_usr_dir={code} (in Python" in str(refused.value)
    assert registry.imported == []  # type: ignore[attr-defined]
    with trust.trusting(True), trust.trusting(False):
        trust.import_usr_dirs(folder / "run", (code,))
    assert registry.imported == [code]  # type: ignore[attr-defined]
    with pytest.raises(UsageError):
        trust.import_usr_dirs(folder / "run", (code,))


def test_a_folder_that_was_given_on_the_command_line_is_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "usr_dirs", lambda: [str(folder / "run" / "own")])
    trust.import_usr_dirs(folder / "run", ("run/own",))
    assert registry.imported == ["run/own"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "command",
    [decoder, evaluation, exporter, latency, server, trainer, translate_all, tuner],
    ids=lambda command: command.__name__.rpartition(".")[2],
)
def test_every_command_that_opens_runs_has_the_flags_that_the_message_names(command) -> None:
    assert {"trust_code", "t2t_usr_dir"} <= set(command.FLAGS)
