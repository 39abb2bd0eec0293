"""Near-duplicates are found, and texts that only share words are not."""

from __future__ import annotations

import random

from t2t_torch.text.near_duplicates import SIMILARITY, NearDuplicates, _read


def test_case_punctuation_and_blanks_do_not_count():
    index = NearDuplicates()
    for text in ("Hello,  World!", "hello moon", "...", "日本語の文"):
        index.add(text)
    assert index.find("hello world") == {0}
    assert index.find("日本語 の文。") == {3}
    assert index.find("!!!") == set() and index.find("hello") == set()


def test_those_of_all_pairs_are_found():
    choose = random.Random(1)
    words = [f"w{n}" for n in range(60)]
    texts = []
    for _ in range(60):
        base = choose.choices(words, k=choose.randint(8, 60))
        for changes in (0, 1, 2, 6):
            changed = list(base)
            for place in choose.sample(range(len(base)), min(changes, len(base))):
                changed[place] = choose.choice(words)
            texts.append(" ".join(changed))
    index = NearDuplicates()
    pairs = [{*_read(text)[1].tolist()} for text in texts]
    for number, text in enumerate(texts):
        expected = {
            other
            for other in range(number)
            if len(pairs[number] & pairs[other]) >= SIMILARITY * len(pairs[number] | pairs[other])
        }
        assert index.find(text) == expected
        index.add(text)
    assert sum(map(bool, map(index.find, texts[::4]))) == 60
