"""Draws the pictures of docs/reference/models.md: run it, and they are written beside it.

A picture is columns of boxes from left to right, and arrows between boxes that are named.
"""

from __future__ import annotations

import html
from pathlib import Path

FOLDER = Path(__file__).parent
FONT, LINE, GAP_X, GAP_Y, PAD = 13, 17, 44, 18, 9
FILLS = {"": "#ffffff", "in": "#dbeafe", "out": "#dcfce7", "mem": "#fef3c7"}

Box = tuple[str, str, str]  # name, kind, text with \n

PICTURES: dict[str, tuple[list[list[Box]], list[tuple[str, str]]]] = {
    "tokens": (
        [
            [
                ("w", "in", "id of the word"),
                ("c", "in", "characters or bytes"),
                ("s", "in", "shape: Capital, 12, ..."),
                ("g", "in", "gazetteer entries"),
                ("r", "in", "another run of ours"),
            ],
            [
                ("tw", "", "table, drawn or pretrained"),
                ("tc", "", "convolutions, maximum,\nhighway"),
                ("ts", "", "table"),
                ("tg", "", "table, weighted mean"),
                ("tr", "", "its frozen body,\nprojection"),
            ],
            [("cat", "", "concatenation")],
            [("out", "out", "vector of the token\n[B, S, E]")],
        ],
        [(a, f"t{a}") for a in "wcsgr"] + [(f"t{a}", "cat") for a in "wcsgr"] + [("cat", "out")],
    ),
    "classifiers": (
        [
            [
                ("a", "in", "tokens"),
                ("b", "in", "tokens"),
                ("c", "in", "tokens"),
                ("d", "in", "tokens of\neach turn"),
            ],
            [
                ("a1", "", "BiLSTM"),
                ("b1", "", "convolutions of\n3, 4, 5 words"),
                ("c1", "", "n-grams, hashed"),
                ("d1", "", "CNN or BiLSTM\nof a turn"),
            ],
            [
                ("a2", "", "attention, several hops"),
                ("b2", "", "maximum over time"),
                ("c2", "", "mean"),
                ("d2", "", "BiLSTM over turns,\nattention"),
            ],
            [
                ("a3", "", "softmax"),
                ("b3", "", "softmax"),
                ("c3", "", "softmax"),
                ("d3", "", "softmax"),
            ],
            [
                ("ao", "out", "bilstm_attention_classifier"),
                ("bo", "out", "text_cnn"),
                ("co", "out", "fasttext"),
                ("do", "out", "seqnn"),
            ],
        ],
        [
            (x + i, x + j)
            for x in "abcd"
            for i, j in (("", "1"), ("1", "2"), ("2", "3"), ("3", "o"))
        ],
    ),
    "taggers": (
        [
            [("t", "in", "tokens")],
            [("l", "", "BiLSTM\nor windows of words\n(past, future, around)")],
            [("p", "", "attention pooling"), ("s", "", "slot attention\n(optional)")],
            [
                ("i", "", "softmax of intents"),
                ("k", "", "softmax or CRF\n(BIO constraints, Viterbi)"),
            ],
            [("io", "out", "intent"), ("ko", "out", "a tag for each word")],
        ],
        [
            ("t", "l"),
            ("l", "p"),
            ("l", "s"),
            ("p", "i"),
            ("s", "k"),
            ("i", "k"),
            ("i", "io"),
            ("k", "ko"),
        ],
    ),
    "language_models": (
        [
            [("m", "mem", "state after the\nblock before"), ("t", "in", "tokens before")],
            [("l", "", "LSTM layers\n(or masked attention)")],
            [
                ("d", "", "dropout of units, of\nword types, of weights"),
                ("n", "mem", "state for the\nnext block"),
            ],
            [("s", "", "softmax, the table\nof the tokens")],
            [("o", "out", "next token")],
        ],
        [("m", "l"), ("t", "l"), ("l", "d"), ("d", "s"), ("s", "o"), ("l", "n")],
    ),
    "pairs": (
        [
            [("u", "in", "first text, query"), ("v", "in", "second text, document")],
            [("e", "", "one encoder for both"), ("al", "", "alignment\n(optional)")],
            [
                ("c", "", "u, v, |u - v|, u * v"),
                ("r", "", "cosine or MLP"),
                ("q", "", "start and end\nof each word"),
            ],
            [
                ("co", "out", "pair_classifier:\nclass or number"),
                ("ro", "out", "pairwise_ranker:\nscore"),
                ("qo", "out", "span_qa: answer"),
            ],
        ],
        [
            ("u", "e"),
            ("v", "e"),
            ("u", "al"),
            ("v", "al"),
            ("e", "c"),
            ("al", "c"),
            ("e", "r"),
            ("al", "q"),
            ("e", "q"),
            ("c", "co"),
            ("r", "ro"),
            ("q", "qo"),
        ],
    ),
    "parsers": (
        [
            [
                ("b", "in", "words not yet read"),
                ("k", "mem", "stack of trees"),
                ("a", "in", "actions so far"),
            ],
            [("bl", "", "LSTM, from the end"), ("kl", "", "stack LSTM"), ("al", "", "LSTM")],
            [("c", "", "summary")],
            [("s", "", "softmax over the\nactions that may be")],
            [
                ("n", "out", "open a constituent"),
                ("sh", "out", "shift a word"),
                ("r", "out", "reduce: compose\nthe children"),
            ],
        ],
        [
            ("b", "bl"),
            ("k", "kl"),
            ("a", "al"),
            ("bl", "c"),
            ("kl", "c"),
            ("al", "c"),
            ("c", "s"),
            ("s", "n"),
            ("s", "sh"),
            ("s", "r"),
        ],
    ),
    "seq2seq": (
        [
            [("x", "in", "input text"), ("y", "in", "output so far")],
            [("e", "", "encoder: LSTM,\nTransformer"), ("d", "", "decoder: LSTM,\nTransformer")],
            [("a", "", "attention")],
            [("s", "", "softmax")],
            [("o", "out", "next token;\nbeam search")],
        ],
        [("x", "e"), ("y", "d"), ("e", "a"), ("d", "a"), ("a", "s"), ("s", "o")],
    ),
    "several_problems": (
        [
            [("p", "in", "batch of problem 1"), ("q", "in", "batch of problem 2")],
            [("e", "", "shared: tables, body")],
            [("t", "", "top of problem 1"), ("u", "", "top of problem 2")],
            [("l", "out", "loss 1 x its weight"), ("m", "out", "loss 2 x its weight")],
        ],
        [("p", "e"), ("q", "e"), ("e", "t"), ("e", "u"), ("t", "l"), ("u", "m")],
    ),
}


def draw(columns: list[list[Box]], arrows: list[tuple[str, str]]) -> str:
    """Returns the picture as SVG."""

    def size(text: str) -> tuple[float, float]:
        lines = text.split("\n")
        return max(len(line) for line in lines) * FONT * 0.56 + 2 * PAD, len(lines) * LINE + 2 * PAD

    # Boxes stand in rows of equal height, so that columns of as many boxes are level.
    full = max(len(c) * (max(size(t)[1] for _, _, t in c) + GAP_Y) for c in columns)
    places: dict[str, tuple[float, float, float, float]] = {}
    shapes: list[str] = []
    x = 10.0
    for column in columns:
        width = max(size(text)[0] for _, _, text in column)
        for row, (name, kind, text) in enumerate(column):
            tall = size(text)[1]
            y = 10 + full * (row + 0.5) / len(column) - tall / 2
            places[name] = (x, y, width, tall)
            shapes.append(
                f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{tall:.0f}" rx="5" '
                f'fill="{FILLS[kind]}" stroke="#475569"/>'
            )
            for number, line in enumerate(text.split("\n")):
                middle = y + PAD + LINE * (number + 0.75)
                shapes.append(
                    f'<text x="{x + width / 2:.0f}" y="{middle:.0f}" text-anchor="middle">'
                    f"{html.escape(line)}</text>"
                )
        x += width + GAP_X
    lines = []
    for start, end in arrows:
        ax, ay, aw, ah = places[start]
        bx, by, _, bh = places[end]
        if bx == ax:  # one above the other
            down = by > ay
            x1, y1, x2, y2 = ax + aw / 2, ay + ah * down, ax + aw / 2, by + bh * (not down)
        else:
            x1, y1, x2, y2 = ax + aw, ay + ah / 2, bx - 2, by + bh / 2
        lines.append(
            f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" stroke="#475569" '
            'marker-end="url(#tip)"/>'
        )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{x - GAP_X + 10:.0f}" '
        f'height="{full + 20:.0f}" font-family="sans-serif" font-size="{FONT}" fill="#0f172a">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#475569"/></marker></defs>'
        '<rect width="100%" height="100%" fill="#f8fafc"/>'
    )
    return "\n".join([head, *lines, *shapes, "</svg>"]) + "\n"


if __name__ == "__main__":
    for name, (columns, arrows) in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(columns, arrows), "utf-8")
