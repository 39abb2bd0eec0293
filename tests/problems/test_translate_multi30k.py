from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from t2t_torch import registry
from t2t_torch.data import raw_file
from t2t_torch.mode import Split

PARTS = {Split.TRAIN: "train", Split.EVAL: "val", Split.TEST: "test_2016_flickr"}


@pytest.mark.parametrize("folder", ["", "raw"])
@pytest.mark.parametrize("packed", [True, False])
def test_raw_files_are_found_where_users_keep_them(
    tmp_path: Path, folder: str, packed: bool
) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    for part in PARTS.values():
        for language in ("en", "de"):
            text = f"{part} {language}\n".encode()
            name = f"{part}.{language}"
            if packed:
                (tmp_path / folder / f"{name}.gz").write_bytes(gzip.compress(text))
            else:
                (tmp_path / folder / name).write_bytes(text)
    problem = registry.problem("translate_multi30k_ende")
    problem.prepare(tmp_path)
    for split, part in PARTS.items():
        samples = list(problem.generate_samples(tmp_path, split))
        assert samples == [{"inputs": f"{part} en", "targets": f"{part} de"}]


def test_what_is_absent_is_downloaded_with_its_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def fetch(urls: list[str], tmp_dir: Path, *, filename: str, sha256: str) -> Path:
        asked[filename] = (urls, sha256)
        return tmp_dir / filename

    monkeypatch.setattr(raw_file, "fetch", fetch)
    (tmp_path / "train.en").write_text("here\n", encoding="utf-8")
    registry.problem("translate_multi30k_ende").prepare(tmp_path)
    names = [f"{part}.{language}.gz" for part in PARTS.values() for language in ("en", "de")]
    assert list(asked) == [name for name in names if name != "train.en.gz"]
    for name, (urls, sha256) in asked.items():
        assert len(urls) >= 2
        assert all(url.startswith("https://") and url.endswith(f"/raw/{name}") for url in urls)
        assert len(bytes.fromhex(sha256)) == 32


def test_the_reverse_translates_german_to_english(tmp_path: Path) -> None:
    problem = registry.problem("translate_multi30k_ende_rev")
    assert (problem.full_name, problem.dataset_name) == (
        "translate_multi30k_ende_rev",
        "translate_multi30k_ende",
    )
    assert (problem.input_space_id, problem.target_space_id) == (8, 3)
    assert problem.vocab_files == ("vocab.translate_multi30k_ende.8192.subwords",)
