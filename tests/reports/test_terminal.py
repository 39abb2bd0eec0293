from __future__ import annotations

import dataclasses

from t2t_torch.reports.data_report import findings, plain_text, sections_of
from t2t_torch.reports.section import width


def test_nothing_of_the_data_moves_the_cursor(evil_statistics):
    text = plain_text("title", sections_of(evil_statistics), findings(evil_statistics))
    assert "\x1b" not in text and "\x00" not in text
    assert "\\x1b[31m" in text, "it is shown as an escape"


def test_columns_are_aligned(evil_statistics):
    lines = plain_text("title", sections_of(evil_statistics), []).splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("split  rows  feature"))
    tokens = lines[head].index("tokens")
    table = lines[head + 1 : head + 5]
    assert [line.split()[2:4] for line in table[:1]] == [["inputs", "Text"]]
    for line in (table[0], table[1], table[3]):  # the sequences
        assert line[tokens - 2 : tokens].isspace(), "numbers end where their head does"
        assert line[tokens : tokens + len("tokens")].strip().isdigit()


def test_words_stand_above_their_tags(evil_statistics):
    (sample, *_) = evil_statistics.samples
    words = dataclasses.replace(
        sample.aligned[0],
        names=("words", "tags"),
        words=(("to", "O"), ("東京", "B-city"), ("by", "O"), *[("word", "O")] * 40),
    )
    sample = dataclasses.replace(sample, aligned=(words,))
    statistics = dataclasses.replace(evil_statistics, samples=(sample,))
    lines = plain_text("title", sections_of(statistics), []).splitlines()
    first = next(i for i, line in enumerate(lines) if line.lstrip().startswith("words    to"))
    above, below = lines[first], lines[first + 1]
    assert width(above[: above.index("by")]) == below.index("O", below.index("B-city"))
    assert width(above) <= 110
    assert sum(line.split()[1:].count("word") for line in lines if "words  " in line) == 40


def test_what_is_odd_stands_at_the_end(evil_statistics):
    text = plain_text("title", [], ["One thing.", "Another."])
    assert text.endswith("- One thing.\n- Another.")
    assert plain_text("title", [], []).endswith("- Nothing odd was found.")
