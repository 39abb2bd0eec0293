"""Hostile labels, texts and names in the pages that are written, opened in a browser."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from planted_search import planted_search

from t2t_torch.hparam import HParams
from t2t_torch.reports.data_report import sections_of
from t2t_torch.reports.page import page
from t2t_torch.reports.section import Section, confusion_blocks
from t2t_torch.reports.statistics import AlignedWords
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.run.metrics_file import MetricsFile
from t2t_torch.train.run_page import DecodeSample, run_page, show_samples
from t2t_torch.train.summary import Summary
from t2t_torch.tune.search_page import search_page
from t2t_torch.tune.search_plan import SpaceAxis

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
EVIL = """</script></title><script>attacked=1</script><img src=x onerror="attacked=1">"'`&\u202e"""
"""Would set `attacked` if any page took it for markup."""


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def assert_harmless(browser: Any, written: str, folder: Path) -> None:
    """Opens the page twice, with its policy and without it: markup must be escaped, not blocked."""
    without = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", written)
    for name, content in (("page.html", written), ("without.html", without)):
        (folder / name).write_text(content, "utf-8")
        view = browser.new_page()
        requested: list[str] = []
        faults: list[str] = []
        view.on("request", lambda request, to=requested: to.append(request.url))
        view.on("pageerror", lambda error, to=faults: to.append(str(error)))
        view.on("dialog", lambda dialog, to=faults: to.append(dialog.message))
        view.goto(f"file://{folder}/{name}")
        assert view.evaluate("typeof attacked") == "undefined"
        assert view.evaluate("document.querySelectorAll('[onerror], img[src=x]').length") == 0
        assert [url for url in requested if not url.startswith("data:")] == [view.url]
        assert faults == []
        assert "attacked=1" in view.inner_text("body")  # it is on the page, as text
        view.close()


def test_the_page_of_data(browser, evil_statistics, tmp_path):
    column = dataclasses.replace(evil_statistics.features[0], name=EVIL)
    statistics = dataclasses.replace(
        evil_statistics, features=[column, *evil_statistics.features[1:]]
    )
    assert_harmless(browser, page(statistics, sections_of(statistics), [EVIL]), tmp_path)


def test_the_page_of_a_run(browser, tmp_path):
    record = TaskRecord(problem="a_problem", model="a_model", hparams_set="basic_params1")
    RunDirectory(tmp_path).begin(record, HParams())
    task = json.loads((tmp_path / "task.json").read_text("utf-8"))
    hostile = {**task, "problem": EVIL, "model": EVIL, "hparams_set": EVIL}
    (tmp_path / "task.json").write_text(json.dumps(hostile), "utf-8")
    metrics = MetricsFile(tmp_path)
    for step in (1, 2):
        metrics.add("train", step, {"loss": 1.0, "tokens_per_second": 9.0, EVIL: 2.0})
        metrics.add("dev", step, {f"f1_per_label/{EVIL}": 0.5, EVIL: float(step)})
        metrics.add(EVIL, step, {"loss": 1.0})
    summary = Summary(tmp_path, leads=True)
    show_samples(summary, tmp_path, [DecodeSample(EVIL, EVIL, EVIL)], 2)
    summary.close()
    assert_harmless(browser, run_page(tmp_path), tmp_path)


def test_the_page_of_a_search(browser, tmp_path):
    record = planted_search(4, 3, over=True)
    space = (SpaceAxis(EVIL, "categorical", log=False, values=(EVIL, "b")), *record.space[1:])
    trials = tuple(
        dataclasses.replace(
            one,
            hparams={**one.hparams, EVIL: EVIL if one.number % 2 else "b"},
            error=EVIL,
            output_dir=Path(EVIL),
        )
        for one in record.trials
    )
    hostile = dataclasses.replace(
        record,
        name=EVIL, metric=EVIL, space=space, trials=trials, default=trials[0], command=EVIL,
        problem=EVIL, hparams_set=EVIL, hparams_changes=f"a={EVIL}", searcher=EVIL,
    )  # fmt: skip
    assert_harmless(browser, search_page(hostile), tmp_path)


@pytest.mark.parametrize("width", [390, 1280])
def test_long_names_do_not_make_a_page_wider_than_the_window(
    browser, evil_statistics, tmp_path, width
):
    long = "B-" + "x" * 150
    words = AlignedWords((long, long), ((long, long), ("a", "O")), 0)
    samples = [dataclasses.replace(one, aligned=(words,)) for one in evil_statistics.samples]
    statistics = dataclasses.replace(evil_statistics, samples=tuple(samples), problem=long)
    search = dataclasses.replace(planted_search(3, 3), name=long)
    matrix = list(confusion_blocks([long, long[:-1]], [(0, 1, 3)]))
    sections = [*sections_of(statistics), Section("matrix", long, long, matrix)]
    for written in (page(statistics, sections, [long]), search_page(search)):
        (tmp_path / "page.html").write_text(written, "utf-8")
        view = browser.new_page(viewport={"width": width, "height": 900})
        view.goto(f"file://{tmp_path}/page.html")
        assert view.evaluate("document.documentElement.scrollWidth") <= width
        view.close()
