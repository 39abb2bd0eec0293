"""Twenty training steps are those of tensor2tensor 1.15.7: losses, learning rates, gradient norms.

From its initial weights, on its batches, without dropout.  The norm is that before clipping, of
the loss with its weight decay.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from t2t_torch import registry
from t2t_torch.features import Features, Text
from t2t_torch.interop.tensor2tensor import load_variables, transformer_hparams
from t2t_torch.models.transformer import Transformer
from t2t_torch.text.encoder import NUM_RESERVED
from t2t_torch.text.integer import IntegerEncoder
from t2t_torch.train.gradient import GradientFinisher
from t2t_torch.train.learner import total_loss
from t2t_torch.train.learning_rate import learning_rate

FOLDER = Path(__file__).parent / "train_parity"


@pytest.mark.parametrize("run", ["adam", "adam_clip1", "adam_weight_decay", "adam_legacy_noam"])
def test_twenty_steps_are_those_of_tensor2tensor(run):
    golden = json.loads((FOLDER / f"{run}.json").read_text())
    batches = np.load(FOLDER / "batches.npz")
    hparams = transformer_hparams(golden["hparams"])
    problem = golden["problem_hparams"]
    text = Text(IntegerEncoder(problem["vocab_size"]["targets"] - NUM_RESERVED))
    features = Features(inputs={"inputs": text}, targets={"targets": text})
    model = Transformer(hparams, features, target_space_id=problem["target_space_id"])
    load_variables(model, dict(np.load(FOLDER / "initial_variables.npz")))
    model.train()
    optimizer = registry.optimizer(hparams.optimizer)(model.parameters(), hparams)
    rate = learning_rate(hparams, train_steps=250000)
    finish_gradients = GradientFinisher(
        model.named_parameters(),
        clip_grad_norm=hparams.clip_grad_norm,
        weight_decay=hparams.weight_decay,
    )

    losses, norms, rates = [], [], []
    for step in range(golden["steps"]):
        names = ("inputs", "targets")
        batch = {n: torch.from_numpy(batches[f"{n}_{step:02d}"].astype(np.int64)) for n in names}
        loss = total_loss(model(batch))
        loss.sum.backward()
        norms.append(float(finish_gradients(loss.weight)))
        rates.append(rate(step))
        optimizer.param_groups[0]["lr"] = rates[-1]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.sum.detach() / loss.weight))

    assert losses == pytest.approx(golden["loss"], rel=1e-4)
    assert rates == pytest.approx(golden["learning_rate"], rel=1e-4)
    assert norms == pytest.approx(golden["global_grad_norm"], rel=2e-3)
