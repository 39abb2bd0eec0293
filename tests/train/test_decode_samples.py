from __future__ import annotations

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from t2t_torch.train.run_page import (
    DecodeSample,
    as_markdown,
    choose_samples,
    read_samples,
    show_samples,
)
from t2t_torch.train.summary import Summary


def test_samples_come_from_all_over_a_file_and_are_always_the_same():
    inputs = [f"in {i}" for i in range(100)]
    decodes, references = [f"out {i}" for i in range(100)], [f"right {i}" for i in range(100)]
    chosen = choose_samples(inputs, decodes, references, most=4)
    assert [sample.inputs for sample in chosen] == ["in 0", "in 25", "in 50", "in 75"]
    assert chosen[1] == DecodeSample("in 25", "right 25", "out 25")
    assert choose_samples(inputs, decodes, most=4)[1].reference is None


@pytest.mark.parametrize("count", [0, 1, 3])
def test_of_a_short_file_all_lines_are_samples(count):
    lines = [str(i) for i in range(count)]
    assert [sample.decode for sample in choose_samples(lines, lines)] == lines


def test_samples_are_in_tensorboard_and_the_newest_in_a_file(tmp_path):
    assert read_samples(tmp_path) == (0, [])
    summary = Summary(tmp_path, leads=True)
    for step in (1, 2):
        show_samples(summary, tmp_path, [DecodeSample("ein Hund", None, f"dog {step}")], step)
    summary.close()
    assert read_samples(tmp_path) == (2, [DecodeSample("ein Hund", None, "dog 2")])
    result = EventAccumulator(str(tmp_path / "eval"), size_guidance={"tensors": 0}).Reload()
    texts = result.Tensors("decodes/text_summary")
    assert [one.step for one in texts] == [1, 2]
    assert texts[1].tensor_proto.string_val[0].decode().endswith("| ein Hund |  | dog 2 |")


def test_processes_that_do_not_lead_show_nothing(tmp_path):
    show_samples(Summary(tmp_path, leads=False), tmp_path, [DecodeSample("a", "b", "c")], 1)
    assert list(tmp_path.iterdir()) == []


def test_no_text_is_taken_for_a_mark_of_markdown():
    cell = as_markdown([DecodeSample("a|b\n*c* <script>", "_x_", "`y`")]).splitlines()[2]
    assert cell == r"| a\|b \*c\* &lt;script&gt; | \_x\_ | \`y\` |"


def test_a_full_disk_ends_nothing(tmp_path, monkeypatch, capsys):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", fail)
    summary = Summary(tmp_path, leads=True)
    show_samples(summary, tmp_path, [DecodeSample("a", "b", "c")], 1)
    summary.close()
    assert "decode_samples.json" in capsys.readouterr().err
