"""Folders of pictures by class, from a declaration to batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.data.shards import Shards
from t2t_torch.declaration.problem import problem_class
from t2t_torch.errors import DataError, HParamsError, RegistryError
from t2t_torch.features import ClassLabel, Features, Image
from t2t_torch.mode import Split
from t2t_torch.objectives.batches import mix_examples
from t2t_torch.objectives.objective import Objective
from t2t_torch.pipeline.loader import EvalBatches, TrainBatches
from t2t_torch.pipeline.plan import Batching
from t2t_torch.text.encoder import ClassLabelEncoder

pictures = pytest.importorskip("PIL.Image")

DECLARED = {
    "problem": "pets",
    "kind": "image2class",
    "files": {"train": "pets", "eval": "pets_eval"},
    "format": "class_folders",
    "fields": {"inputs": "image", "targets": "label"},
    "labels": ["cat", "dog"],
    "options": {"encoded": True},
    "settings": {"height": 16, "width": 16, "channels": 3},
}


def write_pets(folder: Path, count: int = 6) -> None:
    rng = np.random.default_rng(0)
    for part in ("pets", "pets_eval"):
        for name, ending in (("cat", "jpg"), ("dog", "png")):
            (folder / part / name).mkdir(parents=True)
            for n in range(count):
                pixels = rng.integers(256, size=(20 + n, 24, 3), dtype=np.uint8)
                pictures.fromarray(pixels).save(folder / part / name / f"{n}.{ending}")


def declared(folder: Path, **changes: Any) -> Any:
    path = folder / "pets.json"
    path.write_text(json.dumps({**DECLARED, **changes}))
    return problem_class(path)()


@pytest.fixture
def pets(tmp_path: Path) -> tuple[Any, Path]:
    write_pets(tmp_path)
    problem = declared(tmp_path)
    data = tmp_path / "data"
    generate_data(problem, data, tmp_path)
    return problem, data


def batches(problem: Any, data: Path, split: Split, **hparams: Any) -> list[Any]:
    values = registry.hparams("resnet_cifar_15").replace(batch_size=4, **hparams)
    shards, features = Shards.open(data, "pets", split), problem.features(data)
    batching = Batching.of(problem, values)
    if split is Split.EVAL:
        return list(EvalBatches(shards, features, batching))
    train = iter(TrainBatches(shards, features, batching, seed=3, workers=2))
    return [next(train) for _ in range(6)]  # two epochs


def test_files_are_stored_and_decoded_in_batches(pets: tuple[Any, Path]) -> None:
    problem, data = pets
    stored = Shards.open(data, "pets", Split.TRAIN).column("inputs")
    first = {bytes(values[offsets[0] : offsets[0] + 4]) for values, offsets in stored}
    assert first <= {b"\xff\xd8\xff\xe0", b"\x89PNG"}
    for split in (Split.TRAIN, Split.EVAL):
        assert {tuple(one["inputs"].shape) for one in batches(problem, data, split)} == {
            (4, 16, 16, 3)
        }


def test_random_parts_are_of_the_whole_picture_and_the_same_again(pets: tuple[Any, Path]) -> None:
    problem, data = pets
    changed = ("resized_crop", "flip")
    first, again = (batches(problem, data, Split.TRAIN, image_augmentation=changed) for _ in "ab")
    plain = batches(problem, data, Split.TRAIN)
    for one, other, unchanged in zip(first, again, plain, strict=True):
        assert torch.equal(one["inputs"], other["inputs"])
        assert not torch.equal(one["inputs"], unchanged["inputs"])
    held_out = batches(problem, data, Split.EVAL, image_augmentation=changed)
    for one, other in zip(held_out, batches(problem, data, Split.EVAL), strict=True):
        assert torch.equal(one["inputs"], other["inputs"])


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write_pets(tmp_path, 1)
    (tmp_path / "pets" / "cat" / "1.jpg").write_bytes(b"\xff\xd8\xff\xe0 no picture")
    with pytest.raises(DataError, match=r"1\.jpg.*cannot be read: a picture of 15 bytes"):
        list(declared(tmp_path).generate_samples(tmp_path, Split.TRAIN))


@pytest.mark.parametrize("value", [["crop:x"], "crop", 3, [1]])
def test_a_wrong_augmentation_of_a_declaration_is_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r'settings.augmentation": a list such as \["crop:4"'):
        declared(tmp_path, settings={"augmentation": value})


def test_a_wrong_hparam_is_refused() -> None:
    values = registry.hparams("resnet_cifar_15").replace(image_augmentation=("blur",))
    with pytest.raises(HParamsError, match="image_augmentation: there is no 'blur'"):
        Batching.of(registry.problem("image_mnist"), values)


# Mixup.

LABELS = ClassLabelEncoder(["a", "b", "c"])
FEATURES = Features({"inputs": Image(8, 8, 3)}, {"targets": ClassLabel(LABELS)})


def test_mixed_pictures_have_the_losses_of_both_labels() -> None:
    hparams = registry.hparams("basic_fc_small").replace(mixup_alpha=0.4, label_smoothing=0.0)
    model = registry.model("basic_fc_relu")(hparams, FEATURES)
    batch = {
        "inputs": torch.randint(256, (5, 8, 8, 3), dtype=torch.uint8),
        "targets": torch.tensor([0, 1, 2, 0, 1]),
    }
    torch.manual_seed(5)
    loss = Objective(model)(batch).losses["targets"]
    torch.manual_seed(5)
    mixed, _ = mix_examples(batch, FEATURES, 0.4)
    model.eval()
    (share, first), (rest, second) = (
        (share, model(view).losses["targets"].sum) for share, view in mixed
    )
    assert 0 < share < 1 and rest == 1 - share
    expected = share * first + rest * second
    torch.testing.assert_close(loss.sum, expected)
    torch.testing.assert_close(loss.weight, torch.tensor(5.0))
