"""Every registered model on a GPU beside the same on the CPU: outputs, losses and gradients.

The models are small and computed in float32, without TF32, on the batches of `testing`.  A model
whose training step waits for the GPU is named, with the line that waits: such a step cannot be
queued ahead, nor recorded as a CUDA graph.
"""

from __future__ import annotations

import argparse
import math
import traceback
import warnings
from typing import TYPE_CHECKING

import torch
from report import print_header, print_table

from t2t_torch import registry
from t2t_torch.pipeline.collate import random_batch
from t2t_torch.testing import features_for, small

if TYPE_CHECKING:
    from torch import Tensor

    from t2t_torch.features import Features
    from t2t_torch.model import T2TModel

_TOLERANCE = 2e-4  # of the largest element


def main() -> None:
    """Prints a table; exits with 1 if a model fails or differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="cpu only shows that it runs")
    parser.add_argument("--models", nargs="*", default=registry.list_names("model"))
    arguments = parser.parse_args()
    print_header(0)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("left out: there is no GPU here; --device=cpu only shows that it runs")
        return
    torch.backends.cudnn.allow_tf32 = False
    rows, failed = [], 0
    for name in arguments.models:
        model_class = registry.model(name)
        for features in features_for(model_class):
            targets = ", ".join(type(each).__name__ for each in features.targets.values())
            try:
                errors = _compare(model_class, features, torch.device(arguments.device))
                waits = _waits(model_class, features, torch.device(arguments.device))
            except Exception:  # the others are compared, too
                traceback.print_exc()
                errors, waits = {"failed": math.inf}, []
            good = max(errors.values()) < _TOLERANCE
            failed += not good
            worst = max(errors, key=lambda each: errors[each])
            rows.append(
                [name, targets, f"{errors[worst]:.1e}", "" if good else worst, ", ".join(waits)]
            )
    print_table(["model", "targets", "largest difference", "of", "waits in"], rows)
    raise SystemExit(1 if failed else 0)


def _built(model_class: type[T2TModel], features: Features) -> T2TModel:
    torch.manual_seed(0)
    return model_class(small(model_class.HParams()), features)


def _loss(model: T2TModel, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    output = model(batch)
    losses = [loss.sum / loss.weight for loss in output.losses.values()]
    return torch.stack(losses).sum(), dict(output.logits) if model.searches else {}


def _compare(
    model_class: type[T2TModel], features: Features, device: torch.device
) -> dict[str, float]:
    """Returns the largest difference of each tensor, divided by its largest element.

    It is infinity where a difference is not a number.
    """
    found = []
    for where in (torch.device("cpu"), device):
        model = _built(model_class, features).eval().to(where)
        batch = {name: values.to(where) for name, values in random_batch(features).items()}
        # cuDNN computes gradients of an LSTM in training mode alone.
        for module in model.modules():
            if isinstance(module, torch.nn.RNNBase):
                module.train()
        loss, tensors = _loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        found.append({"loss": loss, **tensors, **gradients})
    expected, got = found
    assert set(expected) == set(got), f"of one device alone: {sorted(set(expected) ^ set(got))}"
    return {name: _difference(got[name], expected[name]) for name in expected}


def _difference(got: Tensor, expected: Tensor) -> float:
    largest = expected.detach().abs().amax().clamp(min=1e-3)
    got, expected = got.detach().cpu(), expected.detach()
    difference = torch.where(got == expected, 0.0, got - expected).abs().amax()  # infinities
    difference = difference / largest.nan_to_num(posinf=1.0)
    return float(difference.nan_to_num(nan=math.inf))


def _waits(model_class: type[T2TModel], features: Features, device: torch.device) -> list[str]:
    """Returns the lines of a training step that wait for the GPU."""
    if device.type != "cuda":
        return []
    model = _built(model_class, features).train().to(device)
    batch = {name: values.to(device) for name, values in random_batch(features).items()}
    _loss(model, batch)[0].backward()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            _loss(model, batch)[0].backward()  # type: ignore[no-untyped-call]
        finally:
            torch.cuda.set_sync_debug_mode("default")
    places = [f"{each.filename.rpartition('/')[2]}:{each.lineno}" for each in caught]
    return list(dict.fromkeys(places))


if __name__ == "__main__":
    main()
