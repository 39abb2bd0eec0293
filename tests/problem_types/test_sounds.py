"""Classification of sounds: from a folder or a list to a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import t2t_torch as t2t
from t2t_torch import registry
from t2t_torch.declaration.draft import draft
from t2t_torch.errors import DataError
from t2t_torch.features import Audio, ClassLabel, Features
from t2t_torch.features.audio import NO_SAMPLE, wav_of
from t2t_torch.models.resnet import Resnet
from t2t_torch.text.encoder import ClassLabelEncoder
from t2t_torch.train.recommendation import recommend

RATE = 8000
LABELS = ClassLabelEncoder(["a", "b"])
TONES = {"low": 300, "high": 1500}


def tones(count: int) -> Iterator[tuple[str, int, bytes]]:
    """Yields names of classes, numbers, and sounds of 50 to 150 ms of the tone of each class."""
    rng = np.random.default_rng(0)
    for number in range(count):
        for name, hertz in TONES.items():
            times = np.arange(rng.integers(400, 1200)) / RATE
            wave = np.sin(2 * np.pi * hertz * rng.uniform(0.8, 1.2) * times) + rng.normal(
                0, 0.3, len(times)
            )
            yield name, number, wav_of((5000 * wave).astype(np.int16), RATE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sounds") / "tones"
    for name, number, content in tones(40):
        (made / name).mkdir(parents=True, exist_ok=True)
        (made / name / f"{number}.wav").write_bytes(content)
    return made


def test_a_folder_of_sounds_by_class_is_learnt(
    folder: Path, tmp_path: Path, own_registry: None
) -> None:
    made = draft(folder)
    assert made.content["kind"] == "audio2class"
    assert made.content["settings"] == {"sample_rate": RATE, "resample": True}
    content = {**made.content, "files": {"train": str(folder), "eval": {"rows": 16}}}
    run = t2t.train(
        json.loads(json.dumps(content)), "resnet", "resnet_sound", data_dir=tmp_path / "data",
        output_dir=tmp_path / "run", train_steps=60, random_seed=1,
        hparams="batch_size=300,max_length=300,learning_rate_warmup_steps=10",
    )  # fmt: skip
    others = list(tones(60))[-40:]
    predicted = run([content for _, _, content in others])
    assert sum(str(one) == name for one, (name, *_) in zip(predicted, others, strict=True)) >= 36
    chosen = recommend(made.content["problem"], tmp_path / "data")
    assert chosen.hparams_set == "resnet_sound"
    assert 0 < chosen.epochs <= 350  # batches are counted in frames, not in rows


def test_few_words_that_repeat_are_classes_and_may_be_texts(folder: Path) -> None:
    files = sorted(folder.glob("*/*.wav"))
    rows = [f"tones/{one.parent.name}/{one.name},{one.parent.name}" for one in files]
    path = folder.parent / "list.csv"
    path.write_text("\n".join(["path,text", *rows]), "utf-8")
    made = draft(path)
    fields = {"inputs": "path", "targets": "text"}
    assert (made.content["kind"], made.content["fields"]) == ("audio2class", fields)
    assert [content["kind"] for _, content in made.alternatives] == ["speech2text"]


def test_sounds_without_classes_are_refused_by_what_to_do(folder: Path) -> None:
    with pytest.raises(DataError, match="40 sounds or pictures"):
        draft(folder / "low")


@pytest.mark.parametrize("name", ["resnet_sound", "resnet_cifar_fast", "resnet_18"])
def test_padding_does_not_change_the_class_of_a_sound(name: str) -> None:
    hparams = registry.hparams(name)
    model = Resnet(hparams, Features({"inputs": Audio(RATE)}, {"targets": ClassLabel(LABELS)}))
    model.eval()
    samples = torch.randint(-9000, 9000, (2, 37, RATE // 100), dtype=torch.int16)
    longer = torch.nn.functional.pad(samples, (0, 0, 0, 8), value=NO_SAMPLE)
    with torch.no_grad():
        first, second = (model.logits({"inputs": one})["targets"] for one in (samples, longer))
    torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-5)
