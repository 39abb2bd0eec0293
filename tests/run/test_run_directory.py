"""The run directory: whose it is, who trains there."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest
import saving

from t2t_torch import registry
from t2t_torch.decode.evaluation import run_of
from t2t_torch.errors import CheckpointError
from t2t_torch.files import is_open_as
from t2t_torch.hparams.transformer import transformer_test
from t2t_torch.models.transformer import Transformer
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory, TaskRecord, training_lock
from t2t_torch.run.resuming import fields_that_may_change

RECORD = TaskRecord(problem="tiny_algo", model="transformer", hparams_set="transformer_test")


def begun(path, **record):
    directory = RunDirectory(path)
    directory.begin(RECORD.model_copy(update=record), transformer_test())
    return directory


def test_task_and_hparams_are_read_back_with_who_set_them(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    hparams = registry.hparams("transformer_test").parse("batch_size=99")
    directory.begin(RECORD, hparams)
    assert directory.task() == RECORD
    assert directory.hparams(Transformer.HParams) == hparams
    assert directory.hparams(Transformer.HParams).provenance["batch_size"] == "--hparams"


@pytest.mark.parametrize(
    ("what", "other"), [("problem", "tiny_algo_rev"), ("model", "lstm_seq2seq")]
)
def test_a_run_of_another_problem_or_model_is_refused(tmp_path, what, other):
    begun(tmp_path).unlock()
    with pytest.raises(
        CheckpointError, match=rf"holds a run of {what} .* not '{other}'.*--{what}="
    ):
        begun(tmp_path, **{what: other})
    assert RunDirectory(tmp_path).task() == RECORD


def test_a_second_trainer_is_refused_until_the_first_one_ends(tmp_path):
    first = begun(tmp_path)
    with pytest.raises(CheckpointError, match=r"another training runs in .*process"):
        begun(tmp_path)
    first.unlock()
    begun(tmp_path).unlock()


def test_locking_again_is_nothing(tmp_path):
    directory = begun(tmp_path)
    directory.lock()
    with pytest.raises(CheckpointError, match="another training runs in"):
        RunDirectory(tmp_path).lock()
    directory.unlock()
    directory.unlock()
    RunDirectory(tmp_path).lock()
    assert directory.task() == RECORD


def test_leftovers_of_a_crash_are_removed_by_the_next_trainer(tmp_path):
    begun(tmp_path).unlock()
    (tmp_path / "ckpt-5.tmp-1").mkdir()
    (tmp_path / "ckpt-1.removed").mkdir()
    (tmp_path / ".task.json.7.incomplete").write_text("{")
    (tmp_path / "ckpt-3.corrupt").mkdir()
    begun(tmp_path).unlock()
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["SHA256SUMS", "ckpt-3.corrupt", "hparams.json", "task.json", "train.lock"]


@pytest.mark.parametrize(
    "name", ["ckpt-5.tmp-1", "ckpt-5.removed", "ckpt-05", "ckpt-5.old", "ckpt-"]
)
def test_a_folder_of_another_name_is_no_checkpoint(tmp_path, name):
    begun(tmp_path).unlock()
    (tmp_path / name).mkdir()
    assert not RunDirectory(tmp_path).has_checkpoints
    assert CheckpointDirectory(tmp_path).newest() is None


@pytest.mark.parametrize("name", ["ckpt-5.tmp-notes", "ckpt-best.removed"])
def test_a_folder_of_the_users_is_not_removed_as_a_leftover(tmp_path, name):
    (tmp_path / name).mkdir()
    begun(tmp_path).unlock()
    assert (tmp_path / name).is_dir()


def test_a_run_directory_may_have_a_name_like_a_checkpoints(tmp_path):
    begun(tmp_path / "ckpt-first").unlock()
    assert run_of(tmp_path / "ckpt-first").task() == RECORD


def altered(path):
    """Changes a digit of a file; returns what it was."""
    before = path.read_bytes()
    path.write_bytes(
        before.replace(b'"learning_rate_constant": ', b'"learning_rate_constant": 6', 1)
    )
    assert path.read_bytes() != before
    return before


@pytest.mark.parametrize("has_sums", [True, False], ids=["sums", "earlier_version"])
def test_hparams_that_were_altered_are_refused_until_they_are_accepted(tmp_path, has_sums):
    begun(tmp_path).unlock()
    CheckpointDirectory(tmp_path).save(saving.snapshot(3))
    if not has_sums:
        (tmp_path / "SHA256SUMS").unlink()
    assert RunDirectory(tmp_path).hparams(Transformer.HParams).learning_rate_constant < 6
    altered(tmp_path / "hparams.json")
    with pytest.raises(CheckpointError, match=r"hparams.json was altered") as error:
        RunDirectory(tmp_path).hparams(Transformer.HParams)
    assert f"cp {tmp_path}/ckpt-3/hparams.json {tmp_path}/hparams.json" in str(error.value)
    accept = str(error.value).partition("new checksum: ")[2]
    subprocess.run(accept, shell=True, check=True)
    assert RunDirectory(tmp_path).hparams(Transformer.HParams).learning_rate_constant > 6


def test_a_copy_that_is_altered_too_is_not_advised(tmp_path):
    begun(tmp_path).unlock()
    CheckpointDirectory(tmp_path).save(saving.snapshot(3))
    altered(tmp_path / "hparams.json")
    CheckpointDirectory(tmp_path).save(saving.snapshot(4))
    with pytest.raises(CheckpointError, match=r"cp .*ckpt-3/hparams.json"):
        RunDirectory(tmp_path).hparams(Transformer.HParams)


def test_a_commit_that_is_cut_short_anywhere_leaves_files_that_are_accepted(tmp_path, monkeypatch):
    begun(tmp_path).unlock()
    CheckpointDirectory(tmp_path).save(saving.snapshot(3))
    replace = Path.replace
    for number in range(5):
        left = [number]

        def cut(self, target, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return replace(self, target)

        directory = RunDirectory(tmp_path)
        changed = transformer_test().parse(f"learning_rate_constant=0.{number + 1}")
        directory.claim(RECORD.model_copy(update={"train_steps": number}), changed, config="{}")
        monkeypatch.setattr(Path, "replace", cut)
        with contextlib.suppress(KeyboardInterrupt):
            directory.commit()
        monkeypatch.setattr(Path, "replace", replace)
        directory.unlock()
        RunDirectory(tmp_path).task()
        RunDirectory(tmp_path).hparams(Transformer.HParams)
    assert left[0] == 0  # the last one was not cut short


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"not a run directory.*no task.json"):
        RunDirectory(tmp_path).task()


def test_a_damaged_task_is_refused_with_where_to_find_it_whole(tmp_path):
    begun(tmp_path).unlock()
    (tmp_path / "task.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"(?s)was altered.*No checkpoint has a copy"):
        RunDirectory(tmp_path).task()


@pytest.mark.parametrize("damage", ["gone", "half"])
@pytest.mark.parametrize("name", ["task.json", "hparams.json"])
def test_a_run_whose_own_files_are_lost_is_told_to_copy_them_back(tmp_path, name, damage):
    begun(tmp_path).unlock()
    for checkpoint in ("ckpt-9", "ckpt-10", "ckpt-11"):
        (tmp_path / checkpoint).mkdir()
    for checkpoint in ("ckpt-9", "ckpt-10"):  # the newest has no copy
        shutil.copy(tmp_path / name, tmp_path / checkpoint)
    (tmp_path / name).unlink()
    if damage == "half":
        (tmp_path / name).write_text("{")
    with pytest.raises(CheckpointError, match=f"cp {tmp_path}/ckpt-10/{name} {tmp_path}/"):
        begun(tmp_path)


@pytest.mark.parametrize("place", ["file", "file/run"])
def test_an_output_dir_that_cannot_be_one_is_refused(tmp_path, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be made or written to"):
        begun(tmp_path / place)


def test_a_claim_changes_nothing_before_it_is_committed(tmp_path):
    begun(tmp_path / "run").unlock()
    (tmp_path / "vocab.a").write_text("one")
    files = [tmp_path / "run" / name for name in ("task.json", "hparams.json")]
    before = [file.read_bytes() for file in files]
    directory = RunDirectory(tmp_path / "run")
    directory.claim(RECORD, transformer_test().replace(hidden_size=32))
    directory.claim_vocabularies(["vocab.a"], tmp_path)
    directory.unlock()
    assert [file.read_bytes() for file in files] == before
    assert not (tmp_path / "run" / "vocab.a").exists()
    directory.commit()
    assert directory.hparams(Transformer.HParams).hidden_size == 32
    assert (tmp_path / "run" / "vocab.a").read_text() == "one"


def test_hparams_that_do_not_fit_are_refused_by_file(tmp_path):
    begun(tmp_path).unlock()
    (tmp_path / "hparams.json").write_text('{"hiden_size": 3}')
    (tmp_path / "SHA256SUMS").unlink()
    with pytest.raises(CheckpointError, match=r"hparams.json does not fit.*hiden_size"):
        RunDirectory(tmp_path).hparams(Transformer.HParams)


def test_before_the_first_checkpoint_any_hparams_may_change(tmp_path):
    begun(tmp_path).unlock()
    directory = RunDirectory(tmp_path)
    assert directory.begin(RECORD, transformer_test().replace(hidden_size=32)) == []
    assert directory.hparams(Transformer.HParams).hidden_size == 32
    directory.unlock()


def test_after_it_what_shapes_the_run_may_not(tmp_path):
    begun(tmp_path).unlock()
    (tmp_path / "ckpt-1").mkdir()
    changed = transformer_test().replace(hidden_size=32, batch_size=7, learning_rate=0.5)
    directory = RunDirectory(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"batch_size was \d+, is 7, hidden_size was 16, is 32"
    ):
        directory.begin(RECORD, changed)
    assert directory.hparams(Transformer.HParams) == transformer_test()


def test_after_it_a_learning_rate_may_and_is_said(tmp_path):
    begun(tmp_path).unlock()
    (tmp_path / "ckpt-1").mkdir()
    directory = RunDirectory(tmp_path)
    before = transformer_test().learning_rate
    changes = directory.begin(RECORD, transformer_test().replace(learning_rate=0.5))
    assert changes == [f"learning_rate: {before} -> 0.5"]
    directory.unlock()


def test_every_field_that_may_change_exists():
    assert set(Transformer.HParams.model_fields) >= fields_that_may_change()


def test_vocabularies_are_copied_once_and_must_stay_the_same(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "vocab.a").write_text("one")
    directory = begun(tmp_path / "run")
    for _ in range(2):
        directory.copy_vocabularies(["vocab.a"], data)
    assert (tmp_path / "run" / "vocab.a").read_text() == "one"
    (data / "vocab.a").write_text("two")
    with pytest.raises(CheckpointError, match="its ids mean other words"):
        directory.copy_vocabularies(["vocab.a"], data)
    directory.unlock()


def test_a_released_lock_is_free_also_where_another_process_has_its_descriptor(tmp_path):
    file = tmp_path / "train.lock"
    with training_lock(file):
        descriptors = [int(one.name) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
        own = [one for one in descriptors if is_open_as(file, one)]
        other = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=own)
    assert own
    with training_lock(file):
        other.communicate()
