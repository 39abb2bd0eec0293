"""Flipped bytes of a run and of a data folder: refused by name, or without effect, never wrong.

The long test flips every byte of every JSON file and 1,000 random ones of each other file, and
writes its table into the page that `T2T_FAULT_PAGE` names; the short one takes a sample.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest
import saving

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.data.shards import Shards
from t2t_torch.errors import T2TError
from t2t_torch.mode import Split
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.checksums import check_files
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.trial.experiment import NAME, RunRecord
from t2t_torch.workflows import config_file
from t2t_torch.workflows.train_settings import REMEMBERED, TrainSettings

PROBLEM = "dates_to_iso"
BEGIN, END = "<!-- bit flips: begin -->", "<!-- bit flips: end -->"
SUMS = ("SHA256SUMS", "MANIFEST.json")
UNREAD = ("train.lock",)
RANDOM_FLIPS = 1000  # of a file that is no JSON


def content_of(folder):
    """The bytes of all files below a folder."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def add_checkpoint(run):
    """Saves and rates a checkpoint, and notes the end of the run."""
    (run / "vocab.words").write_text("one\ntwo\nthree\n")
    checkpoints = CheckpointDirectory(run)
    checkpoints.save(saving.snapshot(7))
    checkpoints.rate(7, 1.25, lower_is_better=True, metric="loss")
    RunDirectory(run).note_end(7)


def make_run(folder):
    """A run of a problem with a checkpoint."""
    directory = RunDirectory(folder)
    record = TaskRecord(problem=PROBLEM, model="transformer", hparams_set="transformer_dates")
    config = {"train_steps": 7, "random_seed": 3, "eval_steps": 12, "keep_checkpoint_max": 5}
    hparams = registry.hparams("transformer_dates").parse("batch_size=512")
    directory.claim(record, hparams, config=config_file.written(config))
    directory.commit()
    directory.unlock()
    add_checkpoint(folder)


def checkpoint_of(run):
    checkpoints = CheckpointDirectory(run)
    newest, best = checkpoints.newest(), checkpoints.best()
    state = newest.trainer_state()
    tensors = content_of(newest.path)
    del tensors["MANIFEST.json"]
    return newest.step, best.step, state, tensors, (run / "vocab.words").read_bytes()


def read_run(run):
    """Reads all that commands read of a run of a problem."""
    directory = RunDirectory(run)
    hparams = directory.hparams(type(registry.hparams("transformer_dates")))
    names = [*REMEMBERED, "random_seed", "warm_start_from", "warm_start_patterns"]
    remembered = config_file.remembered(run, names, TrainSettings)
    # A hint for those who wait: without it they wait for the last step or the timeout.
    assert directory.ended_at() in (None, 7)
    return directory.task(), hparams, dict(hparams.provenance), remembered, *checkpoint_of(run)


def make_trial(folder):
    """A run of a trial with its code and a checkpoint."""
    directory = RunDirectory(folder)
    config = {"searcher": {"name": "single", "metric": "error", "max_length": {"batches": 12}}}
    record = RunRecord(trial="/gone/model_def.py", config=config, hparams={"lr": 0.125})
    directory.claim_files(TaskRecord(trial="Mine", train_steps=7), {NAME: record.text})
    code = {"model_def.py": b"RATE = 0.125\n", "parts/layers.py": b"WIDTH = 12\n"}
    directory.keep({f"code/{name}": content for name, content in code.items()})
    directory.commit()
    directory.unlock()
    add_checkpoint(folder)


def read_trial(run):
    """Reads all that commands read of a run of a trial."""
    check_files(run, ["code/"])
    task, record = RunDirectory(run).task(), RunRecord.read(run)
    return task, record, content_of(run / "code"), *checkpoint_of(run)


def make_data(folder):
    """The data of a problem with a vocabulary."""
    problem = registry.problem(PROBLEM)
    generate_data(problem, folder, folder, num_processes=1, max_cases=40, progress=False)


def read_data(folder):
    """Reads all rows of two splits, and what their ids mean."""
    found = []
    for split in (Split.TRAIN, Split.EVAL):
        shards = Shards.open(folder, PROBLEM, split)
        found.append((shards.num_rows, shards.features, shards.fingerprint, shards.manifest))
        for name in shards.features:
            found += [(v.tobytes(), o.tobytes()) for v, o in shards.column(name)]
    vocabularies = {name: (folder / name).read_bytes() for name in shards.manifest.vocab_files}
    return found, vocabularies


KINDS = {
    "run of a problem": (make_run, read_run),
    "run of a trial": (make_trial, read_trial),
    "data folder": (make_data, read_data),
}


def places_of(file, draw, step):
    """The bytes of a file that are flipped: every one of a JSON file, else some."""
    size = file.stat().st_size
    if file.suffix == ".json" or size <= RANDOM_FLIPS // step:
        return range(draw.randrange(step) if step > 1 else 0, size, step)
    return draw.sample(range(size), min(size, max(RANDOM_FLIPS // step, 1)))


def flips_of(kind, folder, step, seed):
    """Flips bytes; returns how often each file was refused or had no effect.

    Fails for a flip that was read as something else, or refused without the name of the file.
    """
    make, read = KINDS[kind]
    make(folder)
    draw, whole = random.Random(seed), read(folder)
    counts = {}
    for name, content in content_of(folder).items():
        file = folder / name
        if name in UNREAD or not content:
            continue
        found = counts.setdefault(name, Counter())
        for place in places_of(file, draw, step):
            flipped = content[place] ^ draw.randrange(1, 256)
            file.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
            try:
                outcome = read(folder)
            except T2TError as error:
                # A changed checksum is refused by the name of the file that it is of.
                assert file.name in str(error) or file.name in SUMS, (name, place, error)
                found["refused"] += 1
            else:
                assert outcome == whole, f"{name}: byte {place} {content[place]} -> {flipped}"
                found["no effect"] += 1
        file.write_bytes(content)
    assert read(folder) == whole
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_of_flipped_bytes_is_refused_by_name_or_without_effect(tmp_path, kind):
    counts = flips_of(kind, tmp_path / "folder", step=101, seed=1)
    assert sum(found["refused"] for found in counts.values()) > 20


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_flipped_byte_is_refused_by_name_or_without_effect(tmp_path):
    lines = ["| folder | file | flips | refused by name | no effect | wrong |"]
    lines.append("|---|---|--:|--:|--:|--:|")
    for kind in KINDS:
        for name, found in flips_of(kind, tmp_path / kind, step=1, seed=2).items():
            cells = (kind, f"`{name}`", found.total(), found["refused"], found["no effect"], 0)
            lines.append(f"| {' | '.join(map(str, cells))} |")
    if page := os.environ.get("T2T_FAULT_PAGE"):
        text = Path(page).read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        assert after, f"{page} lacks the mark {END}"
        table = "\n".join([BEGIN, *lines, END])
        Path(page).write_text(f"{before}{table}{after}", encoding="utf-8")
