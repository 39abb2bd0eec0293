from __future__ import annotations

import numpy as np
import pytest

from t2t_torch.reports.plots import heat_maps

pytest.importorskip("matplotlib")


def drawn(count=1, rows=("a", "b"), columns=("x", "y", "z"), **kwargs):
    matrix = np.linspace(0, 1, len(rows) * len(columns)).reshape(len(rows), len(columns))
    figure = heat_maps(
        [matrix] * count,
        title="title",
        titles=[f"head {i}" for i in range(count)],
        rows=rows,
        columns=columns,
        axes=("targets", "inputs"),
        **kwargs,
    )
    return figure, [ax for ax in figure.axes[:-1] if ax.get_visible()]


def test_a_word_stands_at_each_row_and_column():
    _, (ax,) = drawn()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["x", "y", "z"]
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("targets", "inputs")


@pytest.mark.parametrize(("count", "shape"), [(1, (1, 1)), (4, (2, 2)), (8, (2, 4)), (7, (3, 3))])
def test_panels_stand_in_a_shape_near_a_square(count, shape):
    _, panels = drawn(count)
    assert len(panels) == count
    assert panels[0].get_subplotspec().get_gridspec().get_geometry() == shape


def test_the_lowest_panel_of_each_column_says_what_its_columns_are():
    _, panels = drawn(7)
    assert [bool(ax.get_xlabel()) for ax in panels] == [False] * 4 + [True] * 3


def test_numbers_stand_in_the_cells_if_there_are_few():
    _, (ax,) = drawn(numbers=[["1", "2", "3"], ["4", "5", "6"]])
    assert [text.get_text() for text in ax.texts] == ["1", "2", "3", "4", "5", "6"]
    many = [str(i) for i in range(13)]
    _, (ax,) = drawn(rows=many, columns=many, numbers=[many] * 13)
    assert not ax.texts


@pytest.mark.parametrize("word", ["$\\frac{", "你好", "\x1b[31m", "x" * 100, ""])
def test_any_word_can_be_drawn(word, tmp_path):
    from t2t_torch.train.summary import Summary

    figure, (ax,) = drawn(rows=(word, "b"))
    summary = Summary(tmp_path, leads=True)
    summary.figure("tag", figure, 1)  # a letter that no font has is no warning
    summary.close()
    assert (tmp_path / "figures" / "tag.png").stat().st_size > 1000
    assert len(ax.get_yticklabels()[0].get_text()) <= 24
