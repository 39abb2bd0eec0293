from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ElementTree

from t2t_torch.reports.data_report import sections_of
from t2t_torch.reports.plots import draw
from t2t_torch.reports.section import Plot


def test_every_place_for_a_plot_has_one_and_every_plot_a_place(evil_statistics):
    places = [
        block.name
        for section in sections_of(evil_statistics)
        for block in section.blocks
        if isinstance(block, Plot)
    ]
    assert sorted(places) == sorted(draw(evil_statistics))
    assert len(places) == len(set(places))


def test_plots_take_their_colours_and_size_from_the_page(evil_statistics):
    for svg in draw(evil_statistics).values():
        assert not re.search("#[0-9a-f]{6}", svg), "a colour of its own"
        assert "var(--" in svg
        head = svg[: svg.index(">")]
        assert "viewBox" in head
        assert not re.search(r'\b(width|height)="', head)


def test_plots_are_whole_elements(evil_statistics):
    for svg in draw(evil_statistics).values():
        assert ElementTree.fromstring(svg).tag.endswith("svg")


def test_a_name_is_drawn_as_it_is_written(evil_statistics):
    feature = dataclasses.replace(evil_statistics.features[0], name=r"$\frac{$ <b>猫</b>")
    drawn = draw(dataclasses.replace(evil_statistics, features=(feature,), pairs=(), buckets=None))
    (svg,) = drawn.values()
    assert r"length of $\frac{$ &lt;b&gt;猫&lt;/b&gt;" in svg
