"""Reporters: where results, messages and progress bars go."""

from __future__ import annotations

import io
import json
import sys
import threading
import time

import pytest
from tqdm import tqdm
from tqdm.auto import tqdm as auto_tqdm

from t2t_torch import reporter
from t2t_torch.reporter import (
    CONSOLE,
    SILENT,
    JsonLinesReporter,
    NotebookReporter,
    bar,
    current,
    message,
    output,
    phase,
    reporting,
)


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


def say():
    """Reports everything; returns the class of the progress bar, None if it is hidden."""
    output("a result\nof two lines")
    message("a warning")
    with bar(total=3, desc="baking") as shown:
        shown.update(3)
        return None if shown.disable else type(shown)


def test_the_console_has_results_on_stdout_and_messages_on_stderr(capsys):
    assert current() is CONSOLE
    assert say() is None  # no terminal
    assert capsys.readouterr() == ("a result\nof two lines\n", "a warning\n")


def test_a_terminal_has_a_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert say() is tqdm
    assert "baking: 100%" in sys.stderr.getvalue()
    assert bar(show=False).disable


def test_the_silent_one_prints_nothing(capsys, monkeypatch):
    monkeypatch.setattr(reporter, "_SILENCE", 0.001)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with reporting(SILENT), phase("waiting"):
        assert say() is None
        assert "phase" not in [thread.name for thread in threading.enumerate()]
    assert capsys.readouterr() == ("", "")


def test_json_lines_are_objects_with_the_time(capsys):
    stream, before = io.StringIO(), time.time()
    with reporting(JsonLinesReporter(stream)):
        assert say() is None
        message("größer")
    first, *rest = lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert all(before <= line.pop("time") <= time.time() for line in lines)
    assert first == {"output": "a result\nof two lines"}
    assert rest == [{"message": "a warning"}, {"message": "größer"}]
    assert "größer" in stream.getvalue()
    assert capsys.readouterr() == ("", "")


def test_a_notebook_has_bars_of_its_own_and_all_text_in_the_cell(capsys):
    with reporting(NotebookReporter()):
        assert say() is auto_tqdm
    told = capsys.readouterr()
    assert told.out == "a result\nof two lines\na warning\n"
    assert "baking: 100%" in told.err  # here, where there is no notebook


def test_a_reporter_is_the_current_one_until_its_context_ends_also_after_an_error():
    outer, inner = NotebookReporter(), JsonLinesReporter(io.StringIO())
    with reporting(outer):
        with pytest.raises(KeyError), reporting(inner):
            assert current() is inner
            raise KeyError
        assert current() is outer
    assert current() is CONSOLE


def test_a_silent_call_holds_back_nothing_of_other_threads(capsys):
    lines = [f"line {number}" for number in range(20)]

    def report():
        for line in lines:
            output(line)
            message(line)

    with reporting(SILENT):
        output("of the call")
        other = threading.Thread(target=report)
        other.start()
        other.join()
        message("of the call")
    told = capsys.readouterr()
    assert told.out.splitlines() == told.err.splitlines() == lines


def test_a_phase_without_output_reports_that_it_lasts(capsys, monkeypatch):
    monkeypatch.setattr(reporter, "_SILENCE", 0.01)
    with phase("waiting"):
        deadline, seen = time.monotonic() + 20, ""
        while "so far" not in seen and time.monotonic() < deadline:
            seen += capsys.readouterr().err
    assert seen.startswith("waiting: 0 s so far\n")


def test_a_phase_reports_to_the_reporter_of_its_beginning(monkeypatch):
    monkeypatch.setattr(reporter, "_SILENCE", 0.01)
    stream = io.StringIO()
    with reporting(JsonLinesReporter(stream)), phase("waiting"):
        deadline = time.monotonic() + 20
        while "so far" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert '"message": "waiting: 0 s so far"' in stream.getvalue()


def test_a_phase_outlasts_a_closed_stream(monkeypatch):
    monkeypatch.setattr(reporter, "_SILENCE", 0.001)
    stream = io.StringIO()
    stream.close()
    with reporting(JsonLinesReporter(stream)), phase("waiting"):
        time.sleep(0.02)


def test_a_short_phase_says_nothing(capsys):
    with phase("waiting"):
        pass
    assert capsys.readouterr() == ("", "")
