from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch.mode import Split

# The third line is a range of words and the last an empty node: neither is a word.
SENTENCE = """\
# sent_id = made-up
1\tDogs\tdog\tNOUN\tNNS\t_\t2\tnsubj\t_\t_
2-3\tcannot\t_\t_\t_\t_\t_\t_\t_\t_
2\tcan\tcan\tAUX\tMD\t_\t4\taux\t_\t_
3\tnot\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tread\tread\tVERB\tVB\t_\t0\troot\t_\t_
5\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\t_
5.1\tbooks\tbook\tNOUN\tNNS\t_\t_\t_\t_\t_

"""


def write_raw_files(tmp_dir: Path) -> None:
    folder = tmp_dir / "ud_english_ewt"
    folder.mkdir()
    for part in ("train", "dev", "test"):
        (folder / f"en_ewt-ud-{part}.conllu").write_text(SENTENCE * 3, "utf-8")


def test_a_sentence_has_a_tag_for_each_word(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    assert samples("pos_ud_english_ewt", tmp_path, Split.EVAL)[2] == {
        "inputs": ["Dogs", "can", "not", "read", "."],
        "targets": ["NOUN", "AUX", "PART", "VERB", "PUNCT"],
    }
    assert rows("pos_ud_english_ewt", tmp_path) == {"train": 3, "dev": 3, "test": 3}


@pytest.mark.slow
def test_the_real_sentences_are_all_there(real, samples, rows):
    tmp_dir = real("ud_english_ewt")
    train = samples("pos_ud_english_ewt", tmp_dir, Split.TRAIN)
    assert train[0]["inputs"][:3] == ["Al", "-", "Zaman"]
    assert train[0]["targets"][:3] == ["PROPN", "PUNCT", "PROPN"]
    assert sum(len(sample["inputs"]) for sample in train) == 204_577
    assert rows("pos_ud_english_ewt", tmp_dir) == {"train": 12544, "dev": 2001, "test": 2077}
