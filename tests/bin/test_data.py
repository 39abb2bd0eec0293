"""The command as users run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from t2t_torch.bin.commands import data, datagen
from t2t_torch.reports import statistics


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A hundred rows of two problems."""
    folder = tmp_path_factory.mktemp("data")
    command = ["--problem=dates_to_iso,algorithmic_reverse_binary40_test", "--max_cases=100"]
    options = [f"--data_dir={folder}", f"--tmp_dir={folder / 'raw'}", "--verbosity=-1"]
    assert datagen.main([*command, *options]) == 0
    return folder


def test_it_prints_counts_samples_lengths_and_duplicates(folder, capsys):
    assert data.main(["--problem=dates_to_iso", f"--data_dir={folder}", "--num_samples=1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"dates_to_iso in {folder}\n===")
    for heading in (
        "Rows and lengths",
        "Vocabulary and what is unknown",
        "Samples",
        "The longest and the shortest",
        "Duplicates",
        "Worth a look",
    ):
        assert f"\n{heading}\n---" in out
    assert "\ntrain, row 50\n" in out
    assert "Buckets" not in out, "they are shown with --hparams_set"


def test_it_shows_the_batches_of_a_set(folder, capsys):
    command = ["--problem=dates_to_iso", f"--data_dir={folder}", "--num_samples=0"]
    changes = ["--hparams_set=basic_params1", "--hparams=batch_size=512,max_length=16"]
    assert data.main([*command, *changes]) == 0
    out = capsys.readouterr().out
    assert "with basic_params1 and batch_size=512,max_length=16." in " ".join(out.split())
    total = next(line.split() for line in out.splitlines() if line.startswith("all  "))
    left_out = int(out.split("Left out, too long or too short: ")[1].split()[0])
    assert int(total[1]) + left_out == 100


def test_it_writes_a_page_and_figures(folder, tmp_path, capsys):
    page, figures = tmp_path / "a page.html", tmp_path / "figures.json"
    command = ["--problem=algorithmic_reverse_binary40_test_rev", f"--data_dir={folder}"]
    assert data.main([*command, f"--report={page}", f"--json={figures}"]) == 0
    assert f"Written: {page}" in capsys.readouterr().out
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    content = json.loads(figures.read_text("utf-8"))
    assert content["problem"] == "algorithmic_reverse_binary40_test_rev"
    assert content["rows"]["train"] == 100
    assert isinstance(content["findings"], list)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a page.html", "figures.json"]


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ([], "--problem=..."),
        (["--problem=dates_to_is"], "'dates_to_iso'"),
        (["--problem=tiny_algo"], "t2t-datagen --problem=tiny_algo --data_dir="),
        (["--problem=dates_to_iso", "--num_samples=-1"], "num_samples"),
        (["--problem=dates_to_iso", "--hparams=batch_size=5"], "--hparams_set=NAME"),
        (["--problem=dates_to_iso", "--hparams_set=none"], "none"),
        (["--problem=dates_to_iso", "--report=."], "is a folder. Expected a file"),
        (["--problem=dates_to_iso", "--json=no/such/file"], "mkdir -p no/such"),
        (["--problem=dates_to_iso", "--report=/proc/page.html"], "cannot write /proc/page.html"),
        (["--problem=dates_to_iso", "--json=/proc/a.json"], "name one with --json"),
    ],
)
def test_wrong_flags_are_told_with_exit_code_2(
    folder, options, printed, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert data.main([f"--data_dir={folder}", *options]) == 2
    assert printed in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


MIXTURE = '''
from t2t_torch.problem_types.mixture import MixtureProblem
from t2t_torch.registry import register_problem


@register_problem
class TwoTogether(MixtureProblem):
    """Two problems."""

    problem_names = ("dates_to_iso", "dates_to_iso_rev")
    mixing_schedule = "step @0 0.5 0.5"
'''


@pytest.mark.usefixtures("own_registry")
def test_of_a_mixture_the_problems_are_named_that_have_data(folder, tmp_path, capsys):
    root = tmp_path / "mixtures"
    root.mkdir()
    (root / "two.py").write_text(MIXTURE)
    command = ["--problem=two_together", f"--data_dir={folder}", f"--t2t_usr_dir={root}"]
    assert data.main(command) == 2
    assert "problems that it mixes: dates_to_iso, dates_to_iso_rev." in capsys.readouterr().err


def test_a_damaged_shard_is_named(folder, tmp_path, capsys):
    copy = tmp_path / "data"
    subprocess.run(["cp", "-r", folder, copy], check=True)
    shard = sorted(copy.glob("dates_to_iso-train-*.arrow"))[0]
    shard.write_bytes(shard.read_bytes()[:-20])
    assert data.main(["--problem=dates_to_iso", f"--data_dir={copy}"]) == 2
    err = capsys.readouterr().err
    assert str(shard) in err and "t2t-datagen --problem=dates_to_iso" in err


@pytest.mark.slow
def test_looking_at_data_imports_no_torch(folder, tmp_path):
    code = (
        "import sys; from t2t_torch.bin.commands import data;"
        f"data.main(['--problem=dates_to_iso', '--data_dir={folder}',"
        f"'--report={tmp_path / 'page.html'}', '--hparams_set=basic_params1']);"
        "sys.exit('torch' in sys.modules)"
    )
    environment = {**os.environ, "MPLCONFIGDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_is_known_of_multi30k_is_found(shared_data, tmp_path, capsys):
    problem, figures = "--problem=translate_multi30k_ende", tmp_path / "figures.json"
    raw = f"--tmp_dir={shared_data / 'multi30k'}"
    options = [problem, f"--data_dir={tmp_path}", "--verbosity=-1"]
    assert datagen.main([*options, raw]) == 0
    assert data.main([*options, f"--json={figures}"]) == 0
    # shared/data/README.md: train has 3 duplicate pairs and 9 repeated English lines; 1 line of dev
    # is also in train with another translation, none of test.
    content = json.loads(figures.read_text("utf-8"))
    train = content["repeats"]["train"]
    assert (train["rows"], train["inputs"]) == (3, 9)
    result = {(one["split"], one["other"]): one for one in content["overlaps"]}
    assert (result["dev", "train"]["rows"], result["dev", "train"]["inputs"]) == (0, 1)
    assert result["test", "train"]["inputs"] == result["test", "dev"]["inputs"] == 0
    assert (
        "1 row of dev (0.10 %) has inputs that are in train with other" in capsys.readouterr().out
    )


def test_a_place_that_cannot_be_written_is_told_before_the_census(folder, capsys, monkeypatch):
    monkeypatch.setattr(
        statistics, "statistics_of", lambda *_, **__: pytest.fail("the data was read")
    )
    command = ["--problem=dates_to_iso", f"--data_dir={folder}", "--report=/proc/page.html"]
    assert data.main(command) == 2
    assert ".incomplete" not in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["pack_dataset=True", "pad_batch=True"])
def test_batches_that_the_table_does_not_tell_of_are_the_dry_run_s_business(
    setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--problem=tiny_algo", f"--data_dir={tmp_path}"]
    assert datagen.main([*common, f"--tmp_dir={tmp_path}", "--verbosity=-1"]) == 0
    flags = ["--hparams_set=transformer_test", f"--hparams={setting}"]
    assert data.main([*common, *flags]) == 2
    assert "--dry_run" in capsys.readouterr().err
