"""What is wrong with a declaration, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from t2t_torch.data.generate import generate_data
from t2t_torch.errors import DataError, RegistryError

FILES = {"train": "train.csv", "eval": 0.5}


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"kind": "text2clas"}, r'mine\.json:3: "kind": there is no kind .* mean \'text2class\'\?'),
        ({"kind": None}, r'"kind": is missing'),
        ({"files": None}, r'"files": is missing'),
        ({"files": "train.csv"}, r'"files": expected \{"train": PATH'),
        ({"files": {"train": "a", "eval": None}}, r'"files\.eval": expected a path'),
        ({"fieldz": {}}, r'mine\.json:\d+: "fieldz": there is no such key\. .* mean \'fields\'\?'),
        ({"files": {"train": "a", "evl": "b"}}, r'"files\.evl": .* mean \'eval\'\?'),
        ({"eval": 0.1}, r'"eval": it belongs into "files"'),
        ({"files": {"train": 0.5}}, r'"files": \'train\' needs a path'),
        ({"files": {"train": "a", "eval": 0.5, "test": 0.5}}, "leave no training rows"),
        ({"files": {"train": "a", "eval": 2}}, r'"files\.eval": expected a path.*not 2'),
        ({"files": {"train": []}}, r'"files\.train": expected a path'),
        ({"fields": {"input": "a", "targets": "b"}}, r'fields\.input": .* mean \'inputs\'\?'),
        ({"fields": {"inputs": "a"}}, "'targets' is missing"),
        ({"fields": {"inputs": []}}, r'"fields\.inputs": expected a column'),
        (
            {"fields": {"inputs": {"kolumn": "a"}}},
            r'"fields\.inputs\.kolumn": .* mean \'column\'\?',
        ),
        ({"split_by": ""}, r'"split_by\.0": .*at least 1 character'),
        ({"format": "cvs"}, r'"format": there is no format \'cvs\'.*mean \'csv\'\?'),
        ({"features": {"dens": ["a"]}}, r'"features\.dens": .* mean \'dense\'\?'),
        ({"features": {"characters": 9}}, r'"features\.characters": kind .* has no such feature'),
        ({"features": {"dense": {"column": "a"}}}, r'"features\.dense\.size": is missing'),
        ({"vocab_type": "subwords"}, r'"vocab_type": .*\'subword\''),
        ({"vocab_size": 2}, r'"vocab_size": .*greater than or equal to 4'),
        ({"vocab_size": 10**12}, r'"vocab_size": .*less than or equal to 10000000'),
        ({"shards": 0}, r'"shards\.train": .*greater than or equal to 1'),
        ({"shards": True}, r'"shards": expected a number of files, not True'),
        ({"shards": {"train": True}}, r'"shards\.train": .*valid integer'),
        ({"settings": {"target_size": 2}}, r'"settings\.target_size": kind .* no such setting'),
        ({"settings": {"min_word_count": "x"}}, r"a whole number.*not 'x'"),
        ({"settings": {"oov_token": 3}}, "a word was expected, not 3"),
        ({"vocab_size": 10**12}, "less than or equal to 10000000"),
        ({"settings": {"max_samples_for_vocab": 10**12}}, "a whole number from 1 to 10,000,000"),
        ({"settings": {"min_word_count": -1}}, "a whole number from 0 to 10,000,000"),
        ({"metrics": ["accuracyy"]}, r'"metrics": there is no metric .* mean \'accuracy\'\?'),
        ({"labels": ["a", "a"]}, r'"labels": names one of them twice'),
        ({"kind": "text2text", "labels": ["a"]}, r'"labels": kind .* none that could be given'),
        ({"kind": "image2class", "labels": ["0"], "vocab_size": 99}, "has no vocabulary"),
        ({"problems": ["a"]}, r'"problems": is for kind \'mixture\''),
        (
            {"kind": "mixture", "problems": ["a"], "schedule": "x"},
            r'"files": a mixture has no data of its own',
        ),
        ({"kind": "mixture", "files": None, "problems": ["a"]}, r'"schedule": is missing'),
    ],
)
def test_a_mistake_names_file_line_key_and_the_nearest_right_one(
    keys: dict[str, Any], told: str, declare
):
    with pytest.raises(RegistryError, match=told):
        declare(**keys)


def test_all_mistakes_are_told_at_once(declare):
    with pytest.raises(RegistryError) as told:
        declare(vocab_size="many", fieldz={}, shards={"tran": 1})
    assert len(str(told.value).splitlines()) == 3


def test_missing_files_are_named_all_at_once(declare, tmp_path):
    problem = declare(files={"train": ["a.csv", "b*.csv"], "eval": "c.csv", "test": "sub/d.csv"})
    with pytest.raises(DataError) as told:
        problem.prepare(tmp_path / "raw")
    for name in ("a.csv", "b*.csv", "c.csv", "sub/d.csv"):
        assert str(tmp_path / "raw" / name) in str(told.value)


def test_an_unknown_column_is_told_with_those_that_there_are(declare, samples):
    problem = declare(
        {"train.csv": "text,queue\nhello,a\n"}, fields={"inputs": "txt", "targets": "queue"}
    )
    with pytest.raises(
        DataError,
        match=r"""(?x) mine\.json:\d+:[ ]"fields\.inputs":[ ]
        there[ ]is[ ]no[ ]column[ ]'txt'\.[ ]Did[ ]you[ ]mean[ ]'text'\?.*queue,[ ]text""",
    ):
        samples(problem)


def test_an_unknown_column_of_features_is_told_with_the_key_that_names_it(declare, samples):
    problem = declare({"train.csv": "inputs,targets,a\nx,y,1\n"}, features={"dense": ["age"]})
    with pytest.raises(
        DataError, match=r'"features\.dense": there is no column \'age\'.* There are'
    ):
        samples(problem)


def test_a_vocabulary_that_is_too_small_is_told_by_the_declarations_key(declare, tmp_path):
    lines = "".join(f"text {n},x\n" for n in range(50))
    problem = declare({"train.csv": f"inputs,targets\n{lines}"}, vocab_size=10)
    with pytest.raises(
        RegistryError, match=r'mine\.json:\d+: "vocab_size": .* of 10 subwords'
    ) as e:
        generate_data(problem, tmp_path / "data", tmp_path, progress=False, num_processes=1)
    assert "approx_vocab_size" not in str(e.value)


def test_a_column_is_looked_for_in_every_file_before_anything_is_made(declare, tmp_path):
    files = {"train.csv": "inputs,targets\nhello,a\n", "dev.csv": "inputs,label\nhello,a\n"}
    problem = declare(files, files={"train": "train.csv", "eval": "dev.csv"})
    with pytest.raises(DataError, match=r"no column 'targets'.*dev\.csv"):
        problem.prepare(tmp_path)


def test_a_column_of_split_by_that_is_not_there_is_told(declare, samples):
    problem = declare({"train.csv": "inputs,targets,who\nhello,a,b\n"}, split_by=["whom"])
    with pytest.raises(DataError, match=r'"split_by": there is no column \'whom\'.*mean \'who\''):
        samples(problem)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"delimiterr": ";"}, r'mine\.json:\d+: "options": .*no option \'delimiterr\''),
        ({"header": "no"}, r'"options": .*true or false'),
    ],
)
def test_a_wrong_option_is_told(options: dict[str, Any], told: str, declare, samples):
    problem = declare({"train.csv": "inputs,targets\nhello,a\n"}, options=options)
    with pytest.raises(RegistryError, match=told):
        samples(problem)


def test_an_ending_that_tells_no_format_asks_for_one(declare, samples):
    problem = declare({"train.dat": "x"}, files={"train": "train.dat"})
    with pytest.raises(RegistryError, match=r'"format": is missing\. .*train\.dat'):
        samples(problem)


def test_a_part_that_holds_no_row_is_told(declare, samples):
    problem = declare(
        {"train.csv": "inputs,targets\nhello,a\n"}, files={"train": "train.csv", "eval": 0.0001}
    )
    with pytest.raises(DataError, match=r"no row for 'eval': no training row falls into the 0\.0%"):
        samples(problem)


def test_parts_that_hold_all_rows_are_told(declare, samples):
    problem = declare(
        {"train.csv": "inputs,targets\nhello,a\n"}, files={"train": "train.csv", "eval": 0.9999}
    )
    with pytest.raises(DataError, match="no row for 'train': all rows are held out"):
        samples(problem)
