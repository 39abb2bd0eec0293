"""The page, in a browser."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import threading
import time
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from PIL import Image
from served import (
    LISTED,
    Served,
    artifact_source,
    files_source,
    length_of,
    listed_source,
    stub_source,
    translator_source,
    write_artifact,
)

from t2t_torch.serve.application import POLICY, _shown, page
from t2t_torch.serve.server import listen_at

IS_FRAMED = "cells => cells.map(cell => cell.className === 'most')"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def test_the_page_needs_nothing_from_elsewhere(server: Served) -> None:
    answer = server.get("/")
    assert answer.content == page()
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert "default-src 'none'" in POLICY and "connect-src 'self'" in POLICY
    assert not re.findall(
        r"(?:src|href)=\"(?!data:|openapi)|https?://|@import|url\(", page().decode()
    )
    assert "STYLE */" not in page().decode()


def test_the_page_is_told_all_models(serve: Callable[..., Served], tmp_path: Path) -> None:
    made = artifact_source(write_artifact(tmp_path / "made"))
    told = serve(made, stub_source(length_of)).get("/models").json()["models"]
    assert [one["name"] for one in told] == ["made", "stub"]
    dense = {"name": "dense", "title": "dense", "kind": "numbers", "size": 2}
    assert told[0]["fields"][3] == dense
    assert told[0]["targets"][0] == {"name": "slots", "title": "slots", "kind": "tags"}
    assert told[0]["examples"][0]["inputs"] == "go to oslo"


def test_a_request_may_have_the_names_of_the_users_columns(serve: Callable[..., Served]) -> None:
    names = {"inputs": "body", "targets": "queue"}
    server = serve(stub_source(length_of, column_names=names))
    (model,) = server.get("/models").json()["models"]
    assert [one["title"] for one in (*model["fields"], *model["targets"])] == ["body", "queue"]
    for name in ("body", "inputs"):
        outputs = server.post("/predict", json={"inputs": [{name: "a long text"}]}).json()[
            "outputs"
        ]
        assert outputs[0]["targets"]["value"] == "long"
    refused = server.post("/predict", json={"inputs": [{"text": "a"}]})
    assert (refused.status_code, "has no inputs" in refused.text) == (400, True)


def test_the_description_names_the_media_type_of_each_response(
    serve: Callable[..., Served],
) -> None:
    server = serve(stub_source(length_of))
    for path, operations in server.get("/openapi.json").json()["paths"].items():
        if "get" in operations and "{" not in path:
            (described,) = operations["get"]["responses"]["200"]["content"]
            assert server.get(path).headers["content-type"].partition(";")[0] == described


def test_usual_examples_come_first() -> None:
    texts = [" \n", "<UNK> b", "", "c", "d e"]
    shown = _shown([{"prompt": text} for text in texts])
    assert [one["prompt"] for one in shown] == ["c", "d e", " \n", "<UNK> b", ""]


@pytest.fixture
def address(serve: Callable[..., Served], tmp_path: Path) -> Iterator[str]:
    """Where a server listens, whose keys are not empty."""
    folder = tmp_path / "made"
    for version in ("1", "2"):
        write_artifact(folder / version)
    stub = stub_source(length_of, examples=[{"inputs": " \n"}, {"inputs": " a text"}])
    others = translator_source(), listed_source([]), files_source()
    sources = artifact_source(folder), stub, *others
    config = uvicorn.Config(
        serve(*sources, keys=["a-key-of-one"]).app, log_config=None, lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    listener = listen_at("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    while not server.started:
        time.sleep(0.005)
    yield "http://{}:{}/".format(*listener.getsockname())
    server.should_exit = True
    thread.join(60)


@pytest.fixture
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        microphone = "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"
        chromium = running.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", *microphone]
        )
        yield chromium
        chromium.close()


def test_a_person_asks_and_sees_the_answer(browser: Any, address: str, tmp_path: Path) -> None:
    view = browser.new_page(viewport={"width": 900, "height": 900})
    faults: list[str] = []
    requested: list[str] = []
    view.on("pageerror", lambda error: faults.append(str(error)))
    view.on("request", lambda request: requested.append(request.url))
    view.goto(address)

    # A key is asked for where one is wanted; Enter in it is enough.
    view.wait_for_selector("#keybox:not([hidden])")
    assert "expected an API key" in view.inner_text("#error")
    view.fill("#key", "a-key-of-one")
    view.press("#key", "Enter")
    view.wait_for_selector("[data-field=dense]")
    assert view.is_hidden("#error")

    # Four fields, the keyboard alone.
    fields = view.locator("[data-field]").evaluate_all("all => all.map(one => one.dataset.field)")
    assert fields == ["inputs", "pos", "note", "dense"]
    for text in ("go to oslo", "X X X", "<b>&amp;</b>", "1, 2.5"):
        view.keyboard.insert_text(text)
        view.keyboard.press("Tab")
    view.keyboard.press("Control+Enter")
    view.wait_for_selector(".tagged")
    assert view.inner_text(".tagged .mark").split("\n") == ["oslo", "city"]
    assert "97" not in view.inner_text(".tagged") and "96.5 %" in view.get_attribute(
        ".tagged .mark", "title"
    )
    rows = view.locator(".bars").first.locator("tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == ["go", "stay"]
    assert view.locator(".bars meter").first.evaluate("meter => meter.value") == pytest.approx(
        0.9526, abs=1e-4
    )
    assert "2, 5" in view.inner_text("#answer")
    view.screenshot(path=tmp_path / "page.png")
    _assert_meter_is_filled(view.locator(".bars meter").first, tmp_path / "meter.png")

    # What cannot be encoded is told.
    view.fill("[data-field=dense]", "1")
    view.click("#ask")
    view.wait_for_selector("#error:not([hidden])")
    assert "1 numbers; 2 were expected" in view.inner_text("#error")
    assert view.inner_text("#answer") == ""

    # An example, an older version, another model.
    view.select_option("#version", "1")
    view.locator("#examples button").first.click()
    view.wait_for_selector(".tagged")
    view.click("summary")
    assert '"version": "1"' in view.inner_text("pre")
    view.select_option("#model", "stub")
    assert view.locator("#examples button").all_text_contents() == ["a text", "(nothing)"]
    view.fill("[data-field=inputs]", "a long text")
    view.keyboard.press("Control+Enter")
    view.wait_for_selector(".value")
    assert view.inner_text(".value").startswith("long")
    assert faults == []
    assert all(url.startswith((address, "data:")) for url in requested)


@pytest.mark.parametrize("text", ['it\'s "so" <b>long</b> & $HOME `id`', "a\nlong text"])
def test_the_request_is_shown_as_commands_that_run(text: str, browser: Any, address: str) -> None:
    view = browser.new_page()
    view.goto(f"{address}?model=stub")
    view.wait_for_selector("#keybox:not([hidden])")
    view.fill("#key", "a-key-of-one")
    view.press("#key", "Enter")
    view.wait_for_selector("[data-field=inputs]")
    view.select_option("#model", "stub")
    view.fill("[data-field=inputs]", text)
    view.click("#ask")
    view.wait_for_selector("pre.curl", state="attached")
    for name, command in (("curl", ["bash", "-c"]), ("python", [sys.executable, "-c"])):
        code = view.locator(f"pre.{name}").text_content().replace("KEY", "a-key-of-one")
        done = subprocess.run([*command, code], check=True, capture_output=True, text=True)
        assert "'value': 'long'" in done.stdout.replace('"', "'").replace("':'", "': '")


def _assert_meter_is_filled(meter: Any, picture: Path) -> None:
    """Checks that the bar has the full height of its meter: the middle column is one color."""
    images = pytest.importorskip("PIL.Image")
    meter.screenshot(path=picture)
    pixels = np.asarray(images.open(picture).convert("RGB"), dtype=int)  # [height, width, 3]
    column = pixels[2:-2, pixels.shape[1] // 2]
    assert len(column) >= 6
    assert np.abs(column - column[len(column) // 2]).max() < 8


def test_a_person_sees_what_each_written_word_attends_to(
    browser: Any, address: str, tmp_path: Path
) -> None:
    view = browser.new_page(viewport={"width": 700, "height": 900})
    faults: list[str] = []
    view.on("pageerror", lambda error: faults.append(str(error)))
    view.on("console", lambda told: faults.append(told.text) if told.type == "error" else None)
    view.goto(f"{address}?model=translator")
    view.wait_for_selector("#keybox:not([hidden])")
    faults.clear()  # that a key was wanted
    view.fill("#key", "a-key-of-one")
    view.press("#key", "Enter")
    view.wait_for_selector("#attentionbox:not([hidden])")
    view.fill("[data-field=inputs]", "<i>one two three")
    view.click("#ask")
    view.wait_for_selector(".heat")
    assert view.locator(".heat thead th").all_inner_texts() == ["<i>one", "two", "three"]
    assert view.locator(".heat tbody th").all_inner_texts() == ["three", "two", "<i>one"]
    rows = view.locator(".heat tbody tr").all()
    framed = [row.locator("td").evaluate_all(IS_FRAMED) for row in rows]
    assert framed == [[False, False, True], [False, True, False], [True, False, False]]
    cell = rows[0].locator("td").nth(2)
    assert cell.get_attribute("title") == "three \u2190 three: 75.0 %"
    assert cell.evaluate("cell => getComputedStyle(cell, '::before').opacity") == "0.75"
    view.screenshot(path=tmp_path / "attention.png")

    # Who does not want it is answered without, and so is whoever asks a model that has none.
    view.uncheck("#attention")
    view.click("#ask")
    view.wait_for_selector(".heat", state="detached")
    assert view.inner_text(".value").startswith("three two <i>one")
    view.select_option("#model", "stub")
    assert view.is_hidden("#attentionbox")
    view.fill("[data-field=inputs]", "a long text")
    view.click("#ask")
    view.wait_for_selector(".bars")
    assert faults == []


def test_what_words_have_and_pictures_are_written_as_json(browser: Any, address: str) -> None:
    view = browser.new_page()
    faults: list[str] = []
    view.on("pageerror", lambda error: faults.append(str(error)))
    view.goto(f"{address}?model=listed")
    view.wait_for_selector("#keybox:not([hidden])")
    view.fill("#key", "a-key-of-one")
    view.press("#key", "Enter")
    view.wait_for_selector("[data-field=lists]")
    labels = view.locator("#fields label").all_inner_texts()
    assert [label.partition(" (")[0] for label in labels] == [
        "lists", "inputs", "vectors", "picture",
    ]  # fmt: skip
    assert "for each word a list of 2 numbers" in labels[2]
    view.click("#examples button")
    view.wait_for_selector(".value")
    assert view.inner_text(".value").startswith("go")
    assert json.loads(view.input_value("[data-field=lists]")) == LISTED["lists"]
    assert json.loads(view.input_value("[data-field=picture]")) == LISTED["picture"]
    view.fill("[data-field=inputs]", "to go")
    view.click("#ask")
    view.locator(".value", has_text="to").wait_for()
    assert faults == []


@pytest.fixture
def view(browser: Any, address: str) -> Any:
    """The page, whose server has taken the key."""
    view = browser.new_page()
    view.goto(f"{address}?model=stub")
    view.wait_for_selector("#keybox:not([hidden])")
    view.fill("#key", "a-key-of-one")
    view.press("#key", "Enter")
    view.wait_for_selector("[data-field=inputs]")
    return view


def test_an_answer_that_comes_late_is_not_shown_under_another_model(view: Any) -> None:
    held: list[Any] = []
    view.route("**/models/stub/predict", lambda route: held.append(route))
    view.fill("[data-field=inputs]", "a long text")
    with view.expect_request("**/models/stub/predict"):
        view.click("#ask")
    view.wait_for_selector("#ask:disabled")
    with view.expect_event("requestfailed"):  # it is not waited for any more
        view.select_option("#model", "translator")
    view.fill("[data-field=inputs]", "one two")
    view.click("#ask")
    view.wait_for_selector(".heat")
    assert view.inner_text(".value").startswith("two one")
    assert view.is_hidden("#error")
    view.select_option("#model", "stub")
    assert view.inner_text("#answer") == ""
    assert len(held) == 1


def test_who_asks_again_while_one_runs_is_answered_once(view: Any) -> None:
    held: list[Any] = []
    view.route("**/models/stub/predict", lambda route: held.append(route))
    view.fill("[data-field=inputs]", "a long text")
    with view.expect_request("**/models/stub/predict"):
        view.keyboard.press("Control+Enter")
    view.fill("[data-field=inputs]", "short")
    view.keyboard.press("Control+Enter")
    view.locator("#examples button").first.click()
    assert view.input_value("[data-field=inputs]") == "short"
    (route,) = held
    route.continue_()
    view.wait_for_selector(".value")
    assert view.inner_text(".value").startswith("long")
    view.unroute("**/models/stub/predict")
    view.keyboard.press("Control+Enter")
    view.locator(".value", has_text="short").wait_for()
    assert len(held) == 1


def answering(status: int, body: str) -> Callable[[Any], None]:
    return lambda route: route.fulfill(status=status, body=body)


def test_errors_of_another_form_are_told(view: Any) -> None:
    faults: list[str] = []
    view.on("pageerror", lambda error: faults.append(str(error)))
    answers = {
        (502, '{"detail": "x"}'): "The server answered with status 502.",
        (502, "<html>bad</html>"): "The server answered with status 502.",
        (503, "null"): "The server answered with status 503.",
        (500, '{"error": {"code": 1}}'): "The server answered with status 500.",
        (422, '{"error": "its own"}'): "its own",
        (200, "<html>hello</html>"): "no JSON object",
        (200, "null"): "no JSON object",
        (200, '{"outputs": []}'): "lacks an output",
        (200, '{"outputs": 3}'): "lacks an output",
        (200, '{"outputs": [{"other": {"value": 1}}]}'): "lacks an output",
    }
    view.fill("[data-field=inputs]", "a long text")
    for (status, body), message in answers.items():
        view.click("#ask")
        view.wait_for_selector("#answer section")
        view.route("**/models/stub/predict", answering(status, body))
        view.click("#ask")
        view.wait_for_selector("#error:not([hidden])")
        assert message in view.inner_text("#error")
        assert view.inner_text("#answer") == ""
        assert view.is_enabled("#ask")
        view.unroute("**/models/stub/predict")
    assert faults == []


def test_sounds_and_pictures_are_files_or_recorded(view: Any, tmp_path: Path) -> None:
    file, other = tmp_path / "FILE", tmp_path / "other"
    other.write_text("not a sound")
    tone = 20_000 * np.sin(np.arange(48_000) * 2 * np.pi * 440 / 16_000)
    with wave.open(str(file), "wb") as sound:  # its base64 is longer than an argument may be
        sound.setparams((2, 2, 16_000, 0, "NONE", ""))
        sound.writeframes(np.stack([tone, 0 * tone], 1).astype(np.int16).tobytes())
    noise = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "photo.png")
    digest = hashlib.sha256(noise.tobytes()).hexdigest()
    view.select_option("#model", "files")
    view.set_input_files("[aria-label='Sound file']", file)
    view.get_by_text("3.0 s").wait_for()
    view.set_input_files("[aria-label='Picture file']", tmp_path / "photo.png")
    view.click("#ask")
    text = view.inner_text(".value")
    assert text.startswith("24000 samples up to ") and digest in text
    assert int(text.split(" up to ")[1].split(";")[0]) == pytest.approx(10_000, rel=0.05)

    for name, line in (("python", [sys.executable, "-"]), ("curl", ["bash", "-s"])):
        command = view.locator(f"pre.{name}").text_content()
        assert len(command) < 2000
        command = command.replace("Bearer KEY", "Bearer a-key-of-one")
        done = subprocess.run(line, input=command, capture_output=True, text=True, cwd=tmp_path)
        assert digest in done.stdout

    view.set_input_files("[aria-label='Sound file']", other)
    view.get_by_text("cannot decode the sound").wait_for()
    view.get_by_role("button", name="Record").click()
    view.get_by_text("Recording").wait_for()
    view.wait_for_timeout(700)
    view.get_by_role("button", name="Stop").click()
    view.get_by_text(re.compile(r"^[012]\.\d s$")).wait_for()
    view.click("#ask")
    view.locator(".value", has_not_text=text).wait_for()
    recorded = view.inner_text(".value")
    assert digest in recorded
    assert int(recorded.split()[0]) > 2000


def test_a_photo_that_is_larger_than_a_request_is_scaled(view: Any, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (600, 1500, 3), np.uint8)
    file = tmp_path / "photo.png"
    Image.fromarray(noise).save(file)
    assert file.stat().st_size > 2_000_000
    view.select_option("#model", "files")
    view.set_input_files("[aria-label='Picture file']", file)
    for _ in range(200):
        if content := view.input_value("[data-field=photo]"):
            break
        view.wait_for_timeout(50)
    sent = json.loads(content)
    assert Image.open(io.BytesIO(base64.b64decode(sent))).size == (1024, 410)
