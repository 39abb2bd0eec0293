"""The page of a search says all that was tried, and a person can look into it."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from planted_search import of_a_trial, planted_search

from t2t_torch.atomic_files import write_text
from t2t_torch.reports.plots import AxisScale
from t2t_torch.tune.findings import evidence_of, ready_to_paste, scale_of
from t2t_torch.tune.search_page import (
    BEHAVIOUR,
    scale_of_metric,
    scale_of_steps,
    search_page,
    trial_curves,
)
from t2t_torch.tune.search_plan import SearchRecord, SpaceAxis, TrialRecord

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Page(HTMLParser):
    """What a page holds: its tags in pairs, the elements by trial, the texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in ("meta", "wbr", "br", "img", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def of(self, trial: int) -> list[tuple[str, list[str]]]:
        """The tags that tell of a trial, with their classes."""
        return [
            (tag, given.get("class", "").split())
            for tag, given in self.elements
            if given.get("data-trial") == str(trial)
        ]


def with_trials(record: SearchRecord, *trials: TrialRecord) -> SearchRecord:
    return dataclasses.replace(record, trials=trials, default=None)


@pytest.mark.sample(2)
@pytest.mark.parametrize("axes", [3, 12])
@pytest.mark.parametrize("trials", [4, 60])
def test_every_trial_is_a_line_a_curve_and_a_row(trials: int, axes: int) -> None:
    page = Page(search_page(planted_search(trials, axes)))
    for number in range(trials):
        tags = [tag for tag, _ in page.of(number)]
        assert [tags.count(tag) for tag in ("path", "g", "tr")] == [1, 1, 1]


def test_states_the_best_and_the_unchanged_set_are_told_apart() -> None:
    record = planted_search()
    page = Page(search_page(record))
    assert record.best is not None
    for trial in record.trials:
        for _, classes in page.of(trial.number):
            assert trial.state in classes
            assert ("best" in classes) == (trial.number == record.best.number)
            assert ("default" in classes) == (trial.number == 0)


def test_the_page_needs_nothing_from_elsewhere_and_runs_its_own_script_alone() -> None:
    page = search_page(planted_search())
    assert not re.findall(r"(?:src|href)=\"(?!#)|https?://|@import|url\(", page)
    policy = re.search('Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'") and "script-src 'sha256-" in policy[1]
    assert page.count("<script>") == 1 and BEHAVIOUR.script in page


def test_what_users_write_is_only_text() -> None:
    evil = "<img src=x onerror=alert(1)>\"'&\u202e"
    record = planted_search(4, 3, over=True)
    space = (SpaceAxis(evil, "categorical", log=False, values=(evil, "b")), *record.space[1:])
    trials = tuple(
        dataclasses.replace(
            one,
            hparams={**one.hparams, evil: evil if one.number % 2 else "b"},
            error=evil,
            output_dir=Path(evil),
        )
        for one in record.trials
    )
    hostile = dataclasses.replace(
        record,
        name=evil, metric=evil, space=space, trials=trials, default=trials[0], command=evil,
        problem=evil, hparams_set=evil, hparams_changes=f"a={evil}", searcher=evil,
    )  # fmt: skip
    page = Page(search_page(hostile))
    assert not [tag for tag, _ in page.elements if tag == "img"]
    assert not [name for _, given in page.elements for name in given if name.startswith("on")]
    assert "\u202e" not in "".join(page.texts)


def test_what_is_to_be_pasted_stands_on_the_page_as_it_is() -> None:
    for record in (planted_search(), of_a_trial(planted_search())):
        page = Page(search_page(record))
        evidence = evidence_of(record)
        assert evidence is not None
        assert ready_to_paste(record, evidence).rstrip("\n") in "".join(page.texts)


def test_a_search_without_a_value_has_a_page() -> None:
    record = planted_search(3, 3)
    started = [dataclasses.replace(t, value=None, curve=(), state="running") for t in record.trials]
    page_text = "".join(Page(search_page(with_trials(record, *started))).texts)
    assert "No trial has been evaluated yet." in page_text and "No evaluation yet." in page_text
    assert "3 running" not in page_text  # no legend without a curve
    none = "".join(Page(search_page(with_trials(record))).texts)
    assert "No trial has been evaluated yet." in none and "No trial yet." in none


def test_values_that_are_not_finite_leave_gaps() -> None:
    record = planted_search(3, 3, over=True)
    odd = dataclasses.replace(
        record.trials[1], value=None, curve=((50, 3.0), (100, None)), state="completed"
    )
    page = Page(search_page(with_trials(record, record.trials[0], odd)))
    (path,) = [e for t, e in page.elements if t == "path" and e.get("data-trial") == "1"]
    assert path["data-at"].startswith(",")
    assert "no value" in "".join(page.texts)
    row = next(
        place
        for place, (tag, given) in enumerate(page.elements)
        if tag == "tr" and given.get("data-trial") == "1"
    )
    assert "data-key" not in page.elements[row + 4][1]  # it is sorted behind all values


def test_the_page_says_whether_the_search_was_over() -> None:
    assert "; the search was not over." in search_page(planted_search(4, 3))
    assert "the search was not over" not in search_page(planted_search(4, 3, over=True))


def test_rungs_are_told_where_their_lines_stand() -> None:
    plot = trial_curves(planted_search(16, 3))
    assert re.findall(r">(rung at [\d,]+)<", plot) == ["rung at 100"] and ">400<" in plot


def test_one_trial_and_one_constant_have_a_page() -> None:
    record = planted_search(1, 1, over=True)
    page = search_page(record)
    assert Page(page) and "Nothing better than the unchanged set" in page
    constant = SpaceAxis("fixed", "const", log=False, values=(3,))
    trial = dataclasses.replace(record.trials[0], hparams={"fixed": 3})
    alone = dataclasses.replace(record, space=(constant,), trials=(trial,), default=None)
    assert Page(search_page(alone))


def test_the_commonest_reason_of_failures_is_told() -> None:
    record = planted_search(4, 3, over=True)
    reasons = ["Traceback\nMemoryError: out", "Traceback\nMemoryError: out", "ValueError: odd"]
    failed = [
        dataclasses.replace(one, state="failed", value=None, curve=(), error=reason)
        for one, reason in zip(record.trials[1:], reasons, strict=True)
    ]
    page_text = "".join(Page(search_page(with_trials(record, record.trials[0], *failed))).texts)
    assert "3 trials failed, 2 of which say: MemoryError: out" in page_text


def test_the_page_is_whole_whenever_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "search.html"
    write_text(path, search_page(planted_search()))
    assert path.read_text("utf-8").endswith("</html>\n")
    assert [one.name for one in tmp_path.iterdir()] == ["search.html"]


def test_values_stand_where_their_scale_says() -> None:
    rate = scale_of(SpaceAxis("rate", "double", log=True, low=1e-4, high=1.0), [0.01])
    assert [rate.place(value) for value in (1e-4, 0.01, 1.0)] == [0.0, 0.5, 1.0]
    assert rate.place(None) is None and rate.place("x") is None and rate.place(-1.0) is None
    assert [label for _, label in rate.marks()] == ["0.0001", "0.001", "0.01", "0.1", "1"]


def test_a_value_beside_its_range_makes_the_axis_longer() -> None:
    layers = scale_of(SpaceAxis("layers", "int", log=False, low=2, high=4), [2, 8])
    assert layers.place(8) == 1.0
    assert all("." not in label for _, label in layers.marks())


def test_numbers_of_a_category_stand_in_their_order() -> None:
    sizes = scale_of(SpaceAxis("size", "categorical", log=False, values=(512, 64, 8)), [64])
    assert sizes.names == ("8", "64", "512") and sizes.place(64) == 0.5
    words = scale_of(SpaceAxis("word", "categorical", log=False, values=("b", True)), [])
    assert words.names == ("b", "true") and words.place("a") is None


def test_many_categories_keep_labels_that_can_be_read() -> None:
    many = scale_of(
        SpaceAxis("seed", "categorical", log=False, values=tuple(range(100))), [1]
    ).marks()
    assert len(many) <= 14


def test_metrics_far_apart_and_rungs_stand_by_powers_of_ten() -> None:
    assert scale_of_metric([0.1, 3.0]).log and not scale_of_metric([0.5, 3.0]).log
    assert not scale_of_metric([-1.0, 300.0]).log
    assert scale_of_metric([2.0]).place(2.0) is not None
    assert scale_of_steps([10, 40, 160]).log and not scale_of_steps([100, 400]).log
    assert isinstance(scale_of_steps([0]), AxisScale)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def opened(browser: Any, record: SearchRecord, folder: Path) -> Any:
    (folder / "search.html").write_text(search_page(record), "utf-8")
    view = browser.new_page(viewport={"width": 1280, "height": 900})
    faults: list[str] = []
    view.on("pageerror", lambda error: faults.append(str(error)))
    view.on("console", lambda message: faults.append(message.text))
    view.goto(f"file://{folder}/search.html")
    assert not faults
    return view


OVERLAPS = """query => [...document.querySelectorAll(query)].flatMap((plot, at) => {
  const boxes = [...plot.querySelectorAll("text")].map(one => [one, one.getBoundingClientRect()]);
  return boxes.flatMap(([one, a], k) => boxes.slice(k + 1).filter(([other, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3
  ).map(([other]) => `${at}: ${one.textContent} / ${other.textContent}`));
})"""


@pytest.mark.parametrize(("trials", "axes"), [(4, 3), (16, 8), (40, 12)])
def test_no_label_covers_another(browser: Any, tmp_path: Path, trials: int, axes: int) -> None:
    view = opened(browser, planted_search(trials, axes), tmp_path)
    for query in ("svg.parallel", "svg.curves"):
        assert view.evaluate(OVERLAPS, query) == []
    cut = view.evaluate(
        "[...document.querySelectorAll('.wide')].map(one => one.scrollWidth > one.clientWidth)"
    )
    assert cut == [axes > 8, False]  # ten axes, those of the metric and the step among them
    for width in (1280, 400):
        view.set_viewport_size({"width": width, "height": 800})
        assert view.evaluate("document.documentElement.scrollWidth <= innerWidth")
    view.close()


def test_a_person_sorts_points_and_chooses(browser: Any, tmp_path: Path) -> None:
    record = planted_search(16, 3, over=True)
    view = opened(browser, record, tmp_path)
    assert record.best is not None
    numbers = "all => all.map(row => +row.dataset.trial)"

    # A click sorts by the metric; what has no value stays last.  A second one turns it round.
    head = view.locator("#trials th button").nth(3)
    head.click()
    order = view.locator("#trials tbody tr").evaluate_all(numbers)
    values = [record.trials[number].value or 9.9 for number in order]
    assert values == sorted(values) and order[0] == record.best.number
    head.click()
    assert view.locator("#trials tbody tr").evaluate_all(numbers) == order[::-1]

    # Under the mouse a line says whose it is.
    plot = view.locator("svg.parallel")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    scale = box["width"] / float(plot.get_attribute("viewBox").split()[2])
    (at,) = plot.locator(".trial.best").evaluate_all("all => all.map(one => one.dataset.at)")
    top, bottom = float(plot.get_attribute("data-top")), float(plot.get_attribute("data-bottom"))
    height = bottom - float(at.split(",")[0]) * (bottom - top)
    x = float(plot.locator(".axis line").first.get_attribute("x1"))
    view.mouse.move(box["x"] + (x + 1) * scale, box["y"] + height * scale)
    assert f"trial\t{record.best.number} best" in view.inner_text("#tip")
    assert "hit" in view.get_attribute(f"#trials tr[data-trial='{record.best.number}']", "class")
    view.screenshot(path=tmp_path / "pointed.png")

    # Dragging over the upper half of the metric's axis chooses the better ones.
    view.mouse.move(box["x"] + x * scale, box["y"] + (top - 4) * scale)
    view.mouse.down()
    view.mouse.move(box["x"] + x * scale, box["y"] + (top + bottom) / 2 * scale, steps=3)
    view.mouse.up()
    ats = plot.locator("[data-at]").evaluate_all("all => all.map(one => one.dataset.at)")
    better = sum(bool(at.split(",")[0]) and float(at.split(",")[0]) >= 0.499 for at in ats)
    assert 0 < better < 16
    assert view.inner_text("#chosen") == f"{better} of 16 trials chosen"
    assert view.locator("#trials tbody tr:not(.out)").count() == better
    view.click("#clear")
    assert view.locator(".out").count() == 0 and view.is_hidden("#clear")
    view.close()
