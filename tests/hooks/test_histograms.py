from __future__ import annotations

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from t2t_torch.run.checkpoint_directory import CheckpointDirectory


def events(folder):
    return EventAccumulator(str(folder), size_guidance={"histograms": 0}).Reload()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({"hparams": "summarize_grads=True"}, {"gradients"}),
        ({"hparams": "summarize_vars=True"}, {"weights"}),
        ({"hooks": ("histograms",)}, {"gradients", "weights"}),
        ({"hparams": "summarize_vars=True", "hooks": ("histograms",)}, {"weights"}),
        ({}, set()),
    ],
)
def test_histograms_are_of_what_was_asked_for(train, settings, kinds):
    tags = events(train(**settings)).Tags()
    assert {tag.partition("/")[0] for tag in tags["histograms"]} == kinds


def test_each_weight_has_a_histogram_and_a_norm_at_each_report(train):
    folder = train("summarize_vars=True")
    result = events(folder)
    weights = CheckpointDirectory(folder).newest().path / "model.safetensors"
    import safetensors.torch

    names = set(safetensors.torch.load_file(weights))
    text = {tag.removeprefix("weights/") for tag in result.Tags()["histograms"]}
    assert names <= text
    for name in names:
        assert [one.step for one in result.Histograms(f"weights/{name}")] == [2, 4]
    norms = {tag for tag in result.Tags()["scalars"] if tag.startswith("weights_norm/")}
    assert len(norms) == len(text)


def test_the_gradients_are_those_that_the_optimizer_gets(make_run):
    limit = 1e-4
    with make_run(f"summarize_grads=True,clip_grad_norm={limit}") as estimator:
        estimator.train(2)
        folder = estimator.directory.path
    result = events(folder)
    norms = [
        result.Scalars(tag)[0].value
        for tag in result.Tags()["scalars"]
        if tag.startswith("gradients_norm/")
    ]
    assert len(norms) == len(list(estimator.model.parameters()))
    assert torch.tensor(norms).norm() == pytest.approx(limit, rel=1e-3)
