"""How likely a model finds the lines of a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from t2t_torch.bin.commands import decoder
from t2t_torch.decode.evaluation import score_file, score_lines
from t2t_torch.decode.predictor import Predictor
from t2t_torch.errors import DataError

LINES = ["3 4 5", "", "1", "1 2 3 4 5 6 7 8", "3 4 5"]


def loss_of(predictor: Predictor, batch: dict[str, list[int]]) -> float:
    """The summed loss of an example alone."""
    tensors = {name: torch.tensor([ids]) for name, ids in batch.items()}
    with torch.inference_mode():
        return float(predictor.model(tensors).losses["targets"].sum)


def ids_of(line: str) -> list[int]:
    return [*(int(word) + 2 for word in line.split()), 1]


def test_a_lines_score_is_minus_its_loss(language_model: Predictor) -> None:
    found = score_lines(language_model, LINES)
    expected = [-loss_of(language_model, {"targets": ids_of(line)}) for line in LINES]
    assert [score.log_probability for score in found] == pytest.approx(expected, abs=1e-4)
    assert [score.tokens for score in found] == [4, 1, 2, 9, 4]


def test_so_is_that_of_a_pair(predictor: Predictor) -> None:
    pairs = [("1 2 3", "3 2 1"), ("4", "4"), ("1 2 3 4 5 6", "")]
    found = score_lines(predictor, ["\t".join(pair) for pair in pairs])
    expected = [
        -loss_of(predictor, {"inputs": ids_of(given), "targets": ids_of(output)})
        for given, output in pairs
    ]
    assert [score.log_probability for score in found] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("line", ["no tab", "1\t2\t3"])
def test_a_line_that_is_no_pair_is_named(predictor: Predictor, tmp_path: Path, line: str) -> None:
    file = tmp_path / "lines.txt"
    file.write_text(f"1\t2\n{line}\n")
    with pytest.raises(DataError, match=r"lines\.txt: line 2"):
        score_file(predictor, file, tmp_path / "scores")
    assert not (tmp_path / "scores").exists()


def test_a_file_of_scores_has_a_line_for_each(language_model: Predictor, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{line}\n" for line in LINES))
    found = score_file(language_model, file, tmp_path / "scores")
    written = [float(line) for line in (tmp_path / "scores").read_text().splitlines()]
    assert written == pytest.approx([score.log_probability for score in found], abs=1e-6)


def test_the_command_writes_beside_the_file(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pairs.txt"
    file.write_text("first of may 1999\t1999-05-01\nx\t2000-01-01\n")
    assert decoder.main([f"--output_dir={run_dir}", f"--score_file={file}"]) == 0
    scores = [float(line) for line in (tmp_path / "pairs.txt.scores").read_text().splitlines()]
    assert len(scores) == 2
    assert all(score < 0 for score in scores)
    told = capsys.readouterr().out
    assert "2 lines, 22 tokens" in told
    assert f"{sum(scores):.3f}"[:-1] in told


def test_a_file_that_is_not_utf8_is_named_once(predictor: Predictor, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"caf\xe9\n")
    with pytest.raises(DataError) as caught:
        score_file(predictor, file, tmp_path / "scores")
    assert str(caught.value).count(str(file)) == 1


def test_a_file_without_lines_has_no_perplexity(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pairs.txt"
    file.touch()
    assert decoder.main([f"--output_dir={run_dir}", f"--score_file={file}"]) == 0
    assert capsys.readouterr().out.startswith("0 lines, nothing to score: ")


def test_only_one_thing_is_done_at_a_time(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [f"--output_dir={run_dir}", "--score_file=a", "--decode_from_file=b"]
    assert decoder.main(flags) == 2
    assert "--score_file and --decode_from_file: give one of them" in capsys.readouterr().err
