from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.mode import Split

# Two stories; the second question of the first one is about all before it.
LINES = """\
1 Rex took the book.
2 Rex went to the garden.
3 Where is Rex? \tgarden\t2
4 Rex took the cup.
5 What has Rex? \tbook,cup\t1 4
1 Bo slept.
2 Who slept?\tBo\t1
"""


def write_raw_files(tmp_dir: Path) -> None:
    (tmp_dir / "babi").mkdir()
    with tarfile.open(tmp_dir / "babi" / "tasks_1-20_v1-2.tar.gz", "w:gz") as archive:
        for folder in ("en-valid", "en-valid-10k"):
            for task in range(1, 21):
                for part in ("train", "valid", "test"):
                    name = f"tasks_1-20_v1-2/{folder}/qa{task}_{part}.txt"
                    content = LINES.replace("Rex", f"Rex{task}").encode()
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))


def test_a_question_comes_before_the_story_so_far(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    assert samples("babi_qa_concat_task8_10k", tmp_path, Split.TRAIN) == [
        {
            "inputs": "Where is Rex8 ? <EOQ> Rex8 took the book . Rex8 went to the garden .",
            "targets": "garden",
        },
        {
            "inputs": "What has Rex8 ? <EOQ> Rex8 took the book . Rex8 went to the garden . "
            "Rex8 took the cup .",
            "targets": "book,cup",
        },
        {"inputs": "Who slept ? <EOQ> Bo slept .", "targets": "Bo"},
    ]
    assert rows("babi_qa_concat_task8_10k", tmp_path) == {"train": 3, "dev": 3, "test": 3}
    assert rows("babi_qa_concat_all_tasks_1k", tmp_path) == {"train": 60, "dev": 60, "test": 60}


def test_tensor2tensors_42_names_are_there():
    names = [name for name in registry.list_names("problem") if name.startswith("babi_qa_concat_")]
    tasks = ["all_tasks", *(f"task{i}" for i in range(1, 21))]
    assert sorted(names) == sorted(f"babi_qa_concat_{t}_{n}" for t in tasks for n in ("1k", "10k"))
    for name in names:
        task, size = name.removeprefix("babi_qa_concat_").rsplit("_", 1)
        problem = registry.problem(name)
        expected = range(1, 21) if task == "all_tasks" else [int(task.removeprefix("task"))]
        assert (list(problem.tasks), problem.folder) == (
            list(expected),
            "en-valid" if size == "1k" else "en-valid-10k",
        )


@pytest.mark.parametrize("line", ["no number\n", "1 Where is Rex?\t\n", "1\n"])
def test_a_line_of_another_form_is_bad(line, tmp_path):
    (tmp_path / "en-valid").mkdir()
    (tmp_path / "en-valid" / "qa1_train.txt").write_text(f"1 Rex slept.\n{line}", "utf-8")
    with pytest.raises(DataError, match=r"qa1_train\.txt, line 2: no number and sentence"):
        list(registry.problem("babi_qa_concat_task1_1k").generate_samples(tmp_path, Split.TRAIN))


def test_an_archive_without_the_files_says_where_to_put_them(real):
    with pytest.raises(DataError, match=r"(?s)holds no qa1_train\.txt .*Put it, .*en-valid-10k"):
        registry.problem("babi_qa_concat_task1_10k").prepare(real("babi"))


@pytest.mark.slow
def test_the_real_questions_are_all_there(real, samples, rows):
    tmp_dir = real("babi")
    counts = rows("babi_qa_concat_all_tasks_1k", tmp_dir)
    assert counts == {"train": 18013, "dev": 1987, "test": 20000}
    assert samples("babi_qa_concat_task1_1k", tmp_dir, Split.TRAIN)[0] == {
        "inputs": "Where is Mary ? <EOQ> Mary moved to the bathroom . John went to the hallway .",
        "targets": "bathroom",
    }
