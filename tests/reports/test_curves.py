from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from t2t_torch.reports.plots import Curve, chart, downsampled

EVIL = "<script>alert(1)</script>\x1b"


def parsed(svg):
    return ElementTree.fromstring(svg)


def lines_of(svg):
    """The points of each polyline."""
    return [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in parsed(svg).iter("polyline")
    ]


def ticks_of(svg, anchor):
    return [one.text for one in parsed(svg).iter("text") if one.get("text-anchor") == anchor]


def test_steps_run_to_the_right_and_values_upwards():
    (line,) = lines_of(chart([Curve("loss", [(1, 1.0), (2, 3.0), (3, 2.0)])]))
    xs, ys = zip(*line, strict=True)
    assert list(xs) == sorted(xs)
    assert ys[1] < ys[2] < ys[0], "an SVG counts from above"
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.11)
    assert (ys[0] - ys[1]) / (ys[0] - ys[2]) == pytest.approx(2, rel=0.01)


def test_powers_of_ten_are_equally_far_from_each_other_on_a_logarithmic_axis():
    svg = chart([Curve("norm", [(1, 1.0), (2, 10.0), (3, 100.0)])], logarithmic=True)
    ((_, one), (_, ten), (_, hundred)) = lines_of(svg)[0]
    assert one - ten == pytest.approx(ten - hundred, abs=0.11)
    assert ticks_of(svg, "end") == ["1", "10", "100"]


def test_what_is_not_positive_has_no_logarithm():
    points = [(1, 0.0), (2, 10.0)]
    assert chart([Curve("x", points)], logarithmic=True) == chart([Curve("x", points)])


@pytest.mark.parametrize("gap", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_a_gap(gap):
    svg = chart([Curve("loss", [(1, 1.0), (2, 2.0), (3, gap), (4, 1.0), (5, 2.0)])])
    assert [len(line) for line in lines_of(svg)] == [2, 2]
    assert "nan" not in svg and "inf" not in svg


def test_huge_values_have_short_numbers_beside_the_axis():
    written = ticks_of(chart([Curve("x", [(1, 0.0), (2, 7.75e29)])]), "end")
    assert "2e+29" in written and max(map(len, written)) < 9


@pytest.mark.parametrize(
    "points", [[(100, 3.0)], [(1, 0.0), (2, 0.0)], [(0, -1.0), (7, -1.0)], [(1, 1e-30), (2, 1e30)]]
)
@pytest.mark.parametrize("logarithmic", [True, False])
def test_odd_values_are_drawn_within_the_plot(points, logarithmic):
    svg = chart([Curve("x", points)], logarithmic=logarithmic)
    for x, y in (point for line in lines_of(svg) for point in line):
        assert 50 <= x <= 450
        assert 20 <= y <= 200
    assert len(ticks_of(svg, "end")) >= 2


def test_the_legend_says_each_curves_last_value():
    svg = chart([Curve("train", [(1, 1.0), (2, 2.5)]), Curve("dev", [(1, 4.0), (2, math.nan)])])
    text = "".join(parsed(svg).itertext())
    assert "train 2.5" in text
    assert "dev 4" in text


def test_few_points_say_their_values_under_the_mouse():
    few = [(step, step / 2) for step in range(1, 5)]
    titles = [one.text for one in parsed(chart([Curve("loss", few)])).iter("title")]
    assert titles[2] == "loss 1.5 at step 3"
    many = [(step, step / 2) for step in range(1, 500)]
    assert len(list(parsed(chart([Curve("loss", many)])).iter("title"))) == 1


def test_a_mark_stands_at_its_step():
    svg = chart([Curve("loss", [(0, 1.0), (100, 2.0)])], marks=[50, 1000])
    marks = [line for line in parsed(svg).iter("line") if line.get("stroke-dasharray")]
    ((left, _), (right, _)) = lines_of(svg)[0]
    assert [float(line.get("x1")) for line in marks] == [pytest.approx((left + right) / 2)]


def test_a_long_curve_keeps_its_peaks_and_its_gaps():
    points = [(float(step), 1.0) for step in range(100_000)]
    points[54_321] = (54_321.0, 9.0)
    points[77_777] = (77_777.0, -9.0)
    points[33_333] = (33_333.0, math.nan)
    kept = downsampled(points)
    assert len(kept) < 400
    assert {points[54_321], points[77_777], points[-1]} <= set(kept)
    assert sum(math.isnan(value) for _, value in kept) == 1
    assert [step for step, _ in kept] == sorted(step for step, _ in kept)
    assert len(chart([Curve("loss", points)])) < 10_000


def test_a_short_curve_is_kept_whole():
    points = [(float(step), float(step % 7)) for step in range(300)]
    assert downsampled(points) == points


def test_a_name_is_nothing_but_a_text():
    svg = chart([Curve(EVIL, [(1, 1.0), (2, 2.0)])])
    tags = []
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, attrs: tags.append(tag)
    reader.feed(svg)
    assert "script" not in tags
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", svg)
