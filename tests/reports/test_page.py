from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

from t2t_torch.reports.data_report import findings, sections_of
from t2t_torch.reports.page import page

VOID = {"meta", "img", "br"}


class Reader(HTMLParser):
    """Notes elements, ids and visible text; complains of what is left open."""

    def __init__(self):
        super().__init__()
        self.elements, self.ids, self.open = [], Counter(), []
        self.attributes, self.text = [], []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.ids.update(value for name, value in attrs if name == "id")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.ids.update(value for name, value in attrs if name == "id")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def written(statistics):
    made = page(statistics, sections_of(statistics), findings(statistics))
    reader = Reader()
    reader.feed(made)
    assert not reader.open
    return made, reader


def test_nothing_of_the_data_becomes_markup(evil_statistics):
    made, reader = written(evil_statistics)
    assert not [tag for tag, _ in reader.elements if tag in ("script", "iframe", "object")]
    handlers = [
        name for _, attributes in reader.elements for name in attributes if name[:2] == "on"
    ]
    assert not handlers
    assert "<script>alert(1)</script>" in "".join(reader.text), "it is shown, as text"
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", made), "no control character is left"


def test_the_page_needs_nothing_from_elsewhere(evil_statistics):
    _, reader = written(evil_statistics)
    for tag, attributes in reader.elements:
        for name in ("src", "href", "xlink:href"):
            if name in attributes:
                assert attributes[name].startswith(("data:image/png;base64,", "#")), (
                    tag,
                    attributes,
                )
    policies = [a["content"] for _, a in reader.elements if "http-equiv" in a]
    assert policies and policies[0].startswith("default-src 'none'")


def test_every_link_of_the_contents_leads_to_a_heading(evil_statistics):
    _, reader = written(evil_statistics)
    links = [a["href"][1:] for tag, a in reader.elements if tag == "a"]
    assert len(links) == 8
    assert set(links) <= set(reader.ids)
    assert not [name for name, count in reader.ids.items() if count > 1]


def test_pictures_and_plots_say_what_is_seen_on_them(evil_statistics):
    _, reader = written(evil_statistics)
    pictures = [a["alt"] for tag, a in reader.elements if tag == "img"]
    assert len(pictures) == 4
    assert all(alt.startswith("picture of ") for alt in pictures)
    drawn = [a for _, a in reader.elements if a.get("role") == "img"]
    assert all(a["aria-label"] for a in drawn)
    # 3 texts, 2 numbers, 2 pairs, buckets; tags are as long as their words
    assert len(drawn) == 3 + 2 + 2 + 1


def test_the_same_figures_make_the_same_page(evil_statistics):
    assert written(evil_statistics)[0] == written(evil_statistics)[0]
