"""Speech problems on tiny archives of tones in the published layouts, and declared ones."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import t2t_torch as t2t
from t2t_torch import registry
from t2t_torch.bin.commands import evaluation as evaluate
from t2t_torch.errors import DataError, RegistryError
from t2t_torch.features import Audio, Transcript
from t2t_torch.features.audio import int16_of, wav_of
from t2t_torch.mode import Split
from t2t_torch.problem_types.speech import Speech2TextProblem

PARTS = ("train-clean-100", "train-clean-360", "train-other-500", "dev-clean", "dev-other")
PARTS = (*PARTS, "test-clean", "test-other")


def tone(number: int, rate: int = 16000) -> bytes:
    """Returns a wav file of two formants, 0.2 s."""
    times = np.arange(rate // 5) / rate
    formants = np.sin(2 * np.pi * (300 + 40 * number) * times) + np.sin(9000 * times) / 2
    return wav_of(int16_of(formants / 4), rate)


def flac(number: int) -> bytes:
    soundfile = pytest.importorskip("soundfile")
    samples, file = np.frombuffer(tone(number)[44:], "<i2"), io.BytesIO()
    soundfile.write(file, samples, 16000, format="FLAC")
    return file.getvalue()


def write_raw_files(tmp_dir: Path) -> None:
    """LibriSpeech's archives, and Common Voice's lists and clips of both releases."""
    folder = tmp_dir / "librispeech"
    folder.mkdir()
    for part in PARTS:
        with tarfile.open(folder / f"{part}.tar.gz", "w:gz") as archive:
            names = [f"{speaker}-9-000{i}" for speaker in (84, 103) for i in range(2)]
            for speaker in (84, 103):
                lines = [
                    f"{n} THE {part.upper()} {n[-1]}\n"
                    for n in names
                    if n.startswith(f"{speaker}-")
                ]
                place = f"LibriSpeech/{part}/{speaker}/9"
                _add(archive, f"{place}/{speaker}-9.trans.txt", "".join(lines).encode())
            for number, name in enumerate(names):
                speaker = name.split("-")[0]
                _add(archive, f"LibriSpeech/{part}/{speaker}/9/{name}.flac", flac(number))
    voice = tmp_dir / "common_voice"
    (voice / "clips").mkdir(parents=True)
    for split in ("train", "dev", "test"):
        rows = ["client_id\tpath\tsentence\tup_votes"]
        for i in range(3):
            (voice / "clips" / f"{split}{i}.wav").write_bytes(tone(i, rate=32000))
            rows.append(f"ab\t{split}{i}.wav\tSentence {i}.\t2")
        (voice / f"{split}.tsv").write_text("\n".join(rows) + "\n")
        name = f"cv-other-{split}"
        (voice / name).mkdir()
        (voice / name / "a.wav").write_bytes(tone(1))
        (voice / f"{name}.csv").write_text(f"filename,text,up_votes\n{name}/a.wav,said {split},1\n")


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("speech")
    write_raw_files(folder)
    return folder


def test_librispeech_is_read_in_the_order_of_its_utterances(raw: Path, samples: Any) -> None:
    found = samples("librispeech_clean_small", raw, Split.TRAIN)
    names = [sample["inputs"].stem for sample in found]
    assert names == ["103-9-0000", "103-9-0001", "84-9-0000", "84-9-0001"]
    assert found[0]["targets"] == "THE TRAIN-CLEAN-100 0"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("librispeech", (3, 2, 2)),
        ("librispeech_clean", (2, 1, 1)),
        ("librispeech_noisy", (1, 1, 1)),
        ("librispeech_train_full_test_other", (3, 1, 1)),
    ],
)
def test_librispeech_has_tensor2tensors_parts(
    name: str, parts: tuple[int, ...], raw: Path, samples: Any
) -> None:
    for split, count in zip((Split.TRAIN, Split.EVAL, Split.TEST), parts, strict=True):
        assert len(samples(name, raw, split)) == 4 * count


def test_common_voice_is_read_in_both_layouts(raw: Path, samples: Any, rows: Any) -> None:
    assert [one["targets"] for one in samples("common_voice", raw, Split.EVAL)] == [
        "Sentence 0.",
        "Sentence 1.",
        "Sentence 2.",
    ]
    (found,) = samples("common_voice_noisy", raw, Split.TRAIN)
    assert found["targets"] == "said train" and found["inputs"].is_file()
    assert rows("common_voice", raw) == {"train": 3, "dev": 3, "test": 3}


def test_missing_lists_are_named_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train.tsv or cv-valid-train.csv.*commonvoice.mozilla"):
        registry.problem("common_voice").prepare(tmp_path)


def declare(folder: Path, **more: Any) -> Any:
    from t2t_torch.declaration.problem import problem_of

    content = {
        "problem": "my_speech",
        "kind": "speech2text",
        "files": {"train": "train.tsv", "eval": 0.25},
        **more,
    }
    (folder / "my_speech.json").write_text(json.dumps(content))
    (folder / "wavs").mkdir(exist_ok=True)
    lines = ["path\ttext"]
    for number in range(8):
        (folder / "wavs" / f"{number}.wav").write_bytes(tone(number))
        lines.append(f"wavs/{number}.wav\tnumber {number}")
    (folder / "train.tsv").write_text("\n".join(lines) + "\n")
    return problem_of(content, folder / "my_speech.json")


def test_a_declared_problem_reads_paths_from_the_folder_of_its_list(tmp_path: Path) -> None:
    problem = declare(tmp_path)
    found = list(problem.generate_samples(tmp_path, Split.TRAIN))
    found += problem.generate_samples(tmp_path, Split.EVAL)
    assert sorted(sample["targets"] for sample in found) == [f"number {i}" for i in range(8)]
    assert all(sample["inputs"].is_file() for sample in found)
    features = problem.features(tmp_path)
    assert isinstance(features.inputs["inputs"], Audio)
    assert isinstance(features.targets["targets"], Transcript)


def test_a_declaration_sets_the_changes_of_speed(tmp_path: Path) -> None:
    example = {"inputs": Audio().encode(tone(1)).reshape(-1, 160), "targets": np.array([5, 1])}
    lengths = {}
    for speeds in ([], [0.8], [1.25]):
        problem = declare(tmp_path, settings={"speeds": speeds})
        changed = problem.preprocess_example(example, Split.TRAIN, np.random.default_rng(0))
        lengths[str(speeds)] = len(changed["inputs"])
    assert lengths == {"[]": 20, "[0.8]": 25, "[1.25]": 16}
    for wrong in (0.9, [0], ["fast"], [0.5], [True], [float("nan")]):
        with pytest.raises(RegistryError, match=r"settings.speeds\": a list of factors from 0.8"):
            declare(tmp_path, settings={"speeds": wrong})


def test_a_declared_path_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    problem = declare(tmp_path)
    (tmp_path / "wavs" / "3.wav").unlink()
    with pytest.raises(DataError, match=r"train.tsv, line 5.*3.wav is not there"):
        list(problem.generate_samples(tmp_path, Split.TRAIN))
        list(problem.generate_samples(tmp_path, Split.EVAL))


def test_training_examples_change_their_speed_and_evaluation_does_not() -> None:
    class Tones(Speech2TextProblem):
        name = "tones"
        speeds = (0.5, 2.0)

        def generate_samples(self, tmp_dir: Path, split: Split) -> Any:
            yield {}

    problem, frames = Tones(), Audio().encode(tone(1)).reshape(-1, 160)
    example = {"inputs": frames, "targets": np.array([5, 1]), "inputs_seed": np.array(0)}
    kept = problem.preprocess_example(example, Split.EVAL, np.random.default_rng(1))
    assert kept["inputs_seed"] == 0 and len(kept["inputs"]) == 20
    draws = [
        problem.preprocess_example(example, Split.TRAIN, np.random.default_rng(i)) for i in range(8)
    ]
    assert {len(one["inputs"]) for one in draws} == {10, 40}
    assert len({int(one["inputs_seed"]) for one in draws}) == 8
    again = problem.preprocess_example(example, Split.TRAIN, np.random.default_rng(0))
    np.testing.assert_array_equal(again["inputs"], draws[0]["inputs"])


def test_without_espeak_the_message_has_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(DataError, match="apt-get install espeak-ng"):
        registry.problem("speech_espeak_digits").prepare(tmp_path)


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng is not installed")
def test_digits_are_spoken_with_unseen_voices_in_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem: Any = registry.problem("speech_espeak_digits")
    monkeypatch.setattr(type(problem), "counts", dict.fromkeys(Split, 3))
    speakers = [set(problem.speakers[split]) for split in Split]
    assert not speakers[0] & speakers[1] and not speakers[0] & speakers[2]
    first, second = (list(problem.generate_samples(tmp_path, Split.EVAL)) for _ in range(2))
    assert [one["targets"] for one in first] == [one["targets"] for one in second]
    np.testing.assert_array_equal(first[0]["inputs"], second[0]["inputs"])
    assert len(first[0]["inputs"]) > 4000


@pytest.mark.usefixtures("own_registry")
def test_every_row_of_a_model_of_frames_is_evaluated(tmp_path: Path) -> None:
    declare(tmp_path)
    lines = [f"wavs/{number}.wav\t{number}" for number in range(8)]  # fit into 0.2 s
    (tmp_path / "train.tsv").write_text("\n".join(["path\ttext", *lines]) + "\n")
    data = tmp_path / "data"
    t2t.generate(json.loads((tmp_path / "my_speech.json").read_text()), data, tmp_dir=tmp_path)
    t2t.train(
        "my_speech",
        "transformer_ctc",
        "transformer_ctc_tiny",
        data_dir=data,
        output_dir=tmp_path / "run",
        train_steps=1,
        hparams={"hidden_size": 16, "num_hidden_layers": 1, "learning_rate_warmup_steps": 0},
    )
    run = tmp_path / "run"
    flags = [f"--output_dir={run}", f"--data_dir={data}", f"--output={tmp_path / 'rows'}"]
    assert evaluate.main(flags) == 0
    lines = (tmp_path / "rows" / "rows.tsv").read_text().splitlines()
    head = lines[0].split("\t")
    losses = [float(line.split("\t")[head.index("targets_loss")]) for line in lines[1:]]
    assert all(loss > 0 for loss in losses)
    results = json.loads((tmp_path / "rows" / "results.json").read_text())
    ids = sum(len(line.split("\t")[head.index("targets")]) for line in lines[1:])
    assert sum(losses) / ids == pytest.approx(results["metrics"]["loss"], rel=1e-4)
