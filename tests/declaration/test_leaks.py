"""Held-out rows that nearly repeat a training row are left out, and said."""

from __future__ import annotations

from t2t_torch.declaration.problem import problem_of
from t2t_torch.mode import Split

WORDS = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi".split()
)


def _problem(tmp_path, texts, **files):
    lines = "".join(f"{text}\t{number % 2}\n" for number, text in enumerate(texts))
    (tmp_path / "a.tsv").write_text(f"t\tl\n{lines}")
    content = {
        "problem": "leaky",
        "kind": "text2class",
        "files": {"train": "a.tsv", "eval": 0.3, **files},
        "fields": {"inputs": "t", "targets": "l"},
    }
    problem = problem_of(content, tmp_path / "leaky.json")
    said = []
    type(problem).sample_maker.say = said.append
    splits = {
        split: [sample["inputs"] for sample in problem.generate_samples(tmp_path, split)]
        for split in (Split.EVAL, Split.TRAIN)
    }
    return splits[Split.EVAL], splits[Split.TRAIN], said


def _text(number):
    return " ".join(WORDS[(number * step + step) % 16] for step in (1, 3, 5, 7, 9, 11, 13, 15))


def test_near_duplicates_are_left_out_of_dev_and_counted(tmp_path):
    texts = [f"{_text(n)} {n} {n * 7} {n * 11}" for n in range(60)]
    repeated = [text.upper() + "!" for text in texts[:10]]
    dev, train, said = _problem(tmp_path, [*texts, *repeated])
    same = {" ".join(text.casefold().strip("!").split()) for text in train}
    assert dev and not same & {text.casefold().strip("!") for text in dev}
    left_out = len(texts) + len(repeated) - len(dev) - len(train)
    (line,) = said
    assert left_out > 0 and line.startswith(f"{left_out} of {left_out + len(dev)} rows held out")
    assert "left out" in line


def test_data_that_is_all_near_duplicates_is_kept_and_said(tmp_path):
    texts = [f"{_text(1)} {_text(2)} {_text(3)} {_text(4)} {n}" for n in range(40)]
    dev, train, said = _problem(tmp_path, texts, eval={"rows": 8})
    assert len(dev) + len(train) == 40
    assert "and kept" in said[0]


def test_unlike_texts_are_left_alone(tmp_path):
    dev, train, said = _problem(tmp_path, [f"{n} {n * 7} {n * 11}" for n in range(40)])
    assert len(dev) + len(train) == 40 and not said
