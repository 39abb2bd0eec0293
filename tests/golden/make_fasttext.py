"""Makes fasttext/: models of fastText itself, and the vectors that it gives words.

Run in a folder's environment that has it, never in this project's:

    python -m venv /tmp/fasttext && /tmp/fasttext/bin/pip install fasttext-numpy2-wheel==0.9.2
    /tmp/fasttext/bin/python tests/golden/make_fasttext.py tests/golden/fasttext
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

LINES = ["the naïve cat sat on the mat", "a cat and a Zoo", "北京 the zoo", "on and on"] * 3
ASKED = "the cat cats Zoo naïve naïvely 北京 北 </s> a zzz Mat".split()
# fastText 0.9.2 draws a tenth of the first weights by each thread: with fewer than eleven some are
# whatever the memory held.  So no two runs write the same bytes.
SIZE = {"dim": 4, "minCount": 1, "epoch": 2, "thread": 11, "verbose": 0}


def main(folder: Path) -> None:
    """Trains a model of each kind and writes it, and the vectors of some words."""
    import fasttext

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        texts, labelled = Path(scratch, "texts"), Path(scratch, "labelled")
        texts.write_text("\n".join(LINES) + "\n", "utf-8")
        lines = [f"__label__{i % 2} {line}" for i, line in enumerate(LINES)]
        labelled.write_text("\n".join(lines) + "\n", "utf-8")
        pieces = {"minn": 2, "maxn": 4, "bucket": 40}
        models = {
            "skipgram": fasttext.train_unsupervised(str(texts), "skipgram", **SIZE, **pieces),
            "whole_words": fasttext.train_unsupervised(str(texts), "cbow", **SIZE, maxn=0),
            "supervised": fasttext.train_supervised(
                str(labelled), **SIZE, lr=0.05, wordNgrams=2, bucket=300
            ),
        }
        vectors = {}
        for name, model in models.items():
            model.save_model(str(folder / f"{name}.bin"))
            vectors[name] = {word: model.get_word_vector(word).tolist() for word in ASKED}
        models["supervised"].quantize(str(labelled), qnorm=True)
        models["supervised"].save_model(str(folder / "quantized.ftz"))
    made = f"fasttext {version('fasttext-numpy2-wheel')}: model, word and get_word_vector of it"
    rows = [
        f"  {json.dumps([name, word, *numbers], ensure_ascii=False)}"
        for name, words in vectors.items()
        for word, numbers in words.items()
    ]
    joined = ",\n".join(rows)
    text = f'{{\n "made": {json.dumps(made)},\n "vectors": [\n{joined}\n ]\n}}\n'
    (folder / "vectors.json").write_text(text, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
