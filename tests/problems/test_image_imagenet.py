from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.features.picture import encoded
from t2t_torch.mode import Split

WNIDS = ("n01440764", "n02102040")


def write_raw_files(tmp_dir: Path) -> None:
    rng = np.random.default_rng(0)
    for part, count in (("train", 3), ("val", 1)):
        for wnid in WNIDS:
            folder = tmp_dir / "imagenet" / part / wnid
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(256, size=(40 + number, 60, 3), dtype=np.uint8)
                (folder / f"{wnid}_{number}.JPEG").write_bytes(encoded(pixels))


def test_files_of_the_published_layout_are_read(tmp_path: Path) -> None:
    write_raw_files(tmp_path)
    problem = registry.problem("image_imagenet32")
    samples = list(problem.generate_samples(tmp_path, Split.TRAIN))
    assert [one["targets"] for one in samples] == [*WNIDS] * 3
    data = tmp_path / "data"
    data.mkdir()
    problem.build_vocab(data, tmp_path)
    features = problem.features(data)
    assert features.targets["targets"].labels == WNIDS
    assert features.inputs["inputs"].decode(samples[0]["inputs"]).shape == (32, 32, 3)


def test_missing_folders_are_named_with_their_source(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"imagenet/train.*imagenet/val.*image-net\.org"):
        registry.problem("image_imagenet224").prepare(tmp_path)
