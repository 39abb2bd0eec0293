"""Adapters alone: reloaded bit-equal onto their base, refused on another; merged elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import t2t_torch
from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.decode.loading import load_run
from t2t_torch.errors import CheckpointError, ExportError
from t2t_torch.layers.lora import add_adapters, is_adapter
from t2t_torch.run.checkpoint_directory import CheckpointDirectory

RATE = "batch_size=256,learning_rate_warmup_steps=2,learning_rate_constant=0.2"
PROBLEM = "algorithmic_reverse_binary40_test"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A folder with `base`, `lora` that was started from it, and `head` that has frozen weights."""
    folder = tmp_path_factory.mktemp("runs")
    problem = registry.problem(PROBLEM)
    generate_data(problem, folder, folder, num_processes=1, max_cases=80, progress=False)

    def train(name: str, hparams: str, **settings) -> None:
        t2t_torch.train(
            PROBLEM,
            "transformer",
            "transformer_test",
            hparams=f"{RATE},{hparams}".rstrip(","),
            data_dir=str(folder),
            output_dir=str(folder / name),
            train_steps=4,
            eval_steps=1,
            worker_gpu=0,
            **settings,
        )

    train("base", "")
    base = {"warm_start_from": str(folder / "base")}
    train("lora", "lora_rank=2,lora_dropout=0.1,ema_decay=0.9", **base)
    train("head", "freeze=[encoder]", **base)
    return folder


def export(runs, tmp_path, name="lora", form="adapter", **settings) -> Path:
    return t2t_torch.export(runs / name, tmp_path / form, format=form, **settings)


def weights(path):
    return load_run(path).model.state_dict()


def assert_equal(first, second):
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_an_adapter_alone_is_small_and_reloads_bit_equal(runs, tmp_path):
    folder = export(runs, tmp_path)
    read = load_file(folder / "adapter.safetensors")
    assert read and all(map(is_adapter, read))
    assert_equal(weights(folder), weights(runs / "lora"))
    found, expected = (t2t_torch.load(one, device="cpu") for one in (folder, runs / "lora"))
    assert found(["1 0 1 1"]) == expected(["1 0 1 1"])


def test_whole_weights_are_merged_and_plain(runs, tmp_path):
    folder = export(runs, tmp_path, form="safetensors")
    assert_equal(weights(folder), weights(runs / "lora"))
    names = load_file(folder / "model.safetensors").keys()
    assert names == load_file(CheckpointDirectory(runs / "base").newest().weights).keys()


def test_merged_weights_answer_as_the_trained_ones_do(runs):
    loaded = load_run(runs / "lora")
    merged, hparams = loaded.model.eval(), loaded.model.hparams
    adapted = registry.model("transformer")(hparams, loaded.features).eval()
    add_adapters(adapted, hparams)
    CheckpointDirectory(runs / "lora").at(4).load_model(adapted, averaged=True)
    ids = {"inputs": torch.tensor([[3, 2, 3, 1]]), "targets": torch.tensor([[3, 2, 3, 1]])}
    with torch.no_grad():
        found, expected = (model(ids).logits["targets"] for model in (merged, adapted))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    changed = [p for name, p in adapted.named_parameters() if name.endswith("lora_b")]
    assert all(p.abs().max() > 1e-3 for p in changed)


def test_trained_weights_of_a_run_with_frozen_ones_are_an_adapter_too(runs, tmp_path):
    folder = export(runs, tmp_path, "head")
    read = load_file(folder / "adapter.safetensors")
    assert read and not any(name.startswith("encoder.") for name in read)
    assert_equal(weights(folder), weights(runs / "head"))


def test_another_base_is_refused_and_a_moved_one_is_linked(runs, tmp_path):
    folder = export(runs, tmp_path)
    (folder / "base").symlink_to(runs / "head")
    with pytest.raises(CheckpointError, match=r"adapts other weights than those of .*head: their"):
        load_run(folder)
    (folder / "base").unlink()
    moved = shutil.copytree(runs / "base", tmp_path / "moved")
    (folder / "base").symlink_to(moved / "ckpt-4")
    assert_equal(weights(folder), weights(runs / "lora"))
    (folder / "base").unlink()
    recorded = runs / "base"
    recorded.rename(runs / "away")
    try:
        with pytest.raises(CheckpointError, match=r"the weights of .*base, which is missing.*ln"):
            load_run(folder)
        with pytest.raises(ExportError, match=r"started from .*base, which is missing"):
            export(runs, tmp_path / "second")
    finally:
        (runs / "away").rename(recorded)


def test_what_has_no_base_or_nothing_frozen_is_no_adapter(runs, tmp_path):
    with pytest.raises(ExportError, match=r"started without .*warm_start_from.*safetensors"):
        export(runs, tmp_path, "base")
    assert not (tmp_path / "adapter").exists()


def test_a_mean_of_checkpoints_is_an_adapter(runs, tmp_path):
    folder = export(runs, tmp_path, checkpoint="average:1")
    assert folder.is_dir()
