"""What a browser makes of the page, where there is one."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess

import pytest

from t2t_torch.reports.data_report import sections_of
from t2t_torch.reports.page import page

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
MEASURE = """<script>document.title = [...document.querySelectorAll(".scroll")]
.filter(one => one.scrollWidth > one.clientWidth).map(one => one.closest("section").id)
</script></body>"""
BLANK = """<script>
const bottom = [...document.querySelectorAll("section")].at(-1).getBoundingClientRect().bottom;
document.title = document.querySelector("footer").getBoundingClientRect().top - bottom;
</script></body>"""


def _with_unknowns(feature, often):
    """The feature, many words of which are unknown."""
    splits = {
        split: dataclasses.replace(
            one,
            unknowns=one.unknowns
            and dataclasses.replace(one.unknowns, unknown=1_234_567, most_frequent=often),
        )
        for split, one in feature.splits.items()
    }
    return dataclasses.replace(feature, vocab_size=123_456, splits=splits)


def _dom(written, folder, script):
    """The page's elements after a script has run in a window of 1200 pixels."""
    written = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", written)
    (folder / "page.html").write_text(written.replace("</body>", script), "utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,900", "--dump-dom"]
    command = [BROWSER, *flags, f"--user-data-dir={folder}", f"file://{folder}/page.html"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_the_vocabulary_fits_a_window_of_1200_pixels(evil_statistics, tmp_path):
    often = tuple((f"internationalization{i}", 12_345) for i in range(5))
    features = [_with_unknowns(feature, often) for feature in evil_statistics.features]
    statistics = dataclasses.replace(evil_statistics, features=features)
    dom = _dom(page(statistics, sections_of(statistics), []), tmp_path, MEASURE)
    assert "Vocabulary and what is unknown" in dom
    assert "unknowns" not in re.search("<title>(.*?)</title>", dom)[1]


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_no_blank_space_between_the_last_section_and_the_footer(evil_statistics, tmp_path):
    written = page(evil_statistics, sections_of(evil_statistics), [])
    dom = _dom(written, tmp_path, BLANK)
    blank = float(re.search("<title>(.*?)</title>", dom)[1])
    assert 0 <= blank < 48
