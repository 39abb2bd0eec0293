"""Models of pictures equal tensor2tensor 1.15.7: golden vectors, also through `t2t-import`.

`tests/golden/t2t_pictures` has variables, inputs and logits that tensor2tensor computed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorflow_writer import write_checkpoint

import t2t_torch as t2t
from t2t_torch import registry
from t2t_torch.bin.commands import import_run
from t2t_torch.features import ClassLabel, Features, Image, PixelSequence, Text
from t2t_torch.interop.tensor2tensor_weights import convert_hparams, load_variables
from t2t_torch.layers.tokens import ModelInput
from t2t_torch.text.encoder import ClassLabelEncoder, TokenEncoder

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "t2t_pictures"
LABELS = ClassLabelEncoder([str(i) for i in range(10)])


def golden(name: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Hyperparameters, variables and the evaluation of a variant."""
    arrays = dict(np.load(GOLDEN / f"{name}.npz"))
    values = json.loads(arrays.pop("hparams").tobytes())
    del values["data_dir"]  # a flag of its trainer
    parts: dict[str, dict[str, Any]] = {"variables": {}, "eval": {}}
    for key, array in arrays.items():
        group, _, rest = key.partition("/")
        is_half = array.dtype == np.float16
        parts[group][rest] = array.astype(np.float32) if is_half else array
    return values, parts["variables"], parts["eval"]


CASES = {"basic_fc_relu": 2e-4, "resnet_cifar": 2e-5, "shake_shake": 2e-5}
"""Tolerances: the logits of basic_fc_relu are of 0 to 300, as its pixels are not scaled."""


def model_of(name: str) -> tuple[Any, dict[str, Any]]:
    values, variables, evaluated = golden(name)
    kind = name.removesuffix("_cifar")
    image = Image(*evaluated["in_inputs"].shape[1:])
    hparams = convert_hparams(kind, values, variables).replace(image_standardization="none")
    model = registry.model(kind)(
        hparams, Features({"inputs": image}, {"targets": ClassLabel(LABELS)})
    )
    load_variables(model, variables)
    return model.eval(), evaluated


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_tensor2tensor(name: str) -> None:
    model, evaluated = model_of(name)
    pixels = torch.from_numpy(evaluated["in_inputs"]).float()
    given = ModelInput(pixels, pixels, torch.ones(len(pixels), 1, dtype=torch.bool))
    with torch.no_grad():
        logits = model.top(model.body({"inputs": given})["targets"], "targets")
    torch.testing.assert_close(
        logits, torch.from_numpy(evaluated["logits"]), atol=CASES[name], rtol=0
    )


def test_logits_of_a_generated_picture_equal_tensor2tensor() -> None:
    values, variables, evaluated = golden("imagetransformer")
    hparams = convert_hparams("imagetransformer", values, variables)
    image = PixelSequence(height=8, width=8, channels=3)
    features = Features(
        {"inputs": Text(TokenEncoder(LABELS.labels), add_eos=False)}, {"targets": image}
    )
    model = registry.model("imagetransformer")(hparams, features).eval()
    load_variables(model, variables)
    targets = image.encode_batch([evaluated["in_targets"][0].astype(np.uint8)])
    inputs = torch.from_numpy(evaluated["in_inputs"]).long() + 2
    with torch.no_grad():
        output = model({"inputs": inputs, "targets": torch.tensor(targets)})
    logits = output.logits["targets"][:, :-1, 2:].view(1, 8, 8, 3, 256)
    torch.testing.assert_close(logits, torch.from_numpy(evaluated["logits"]), atol=2e-5, rtol=0)
    loss = output.losses["targets"]  # here the end of the picture counts, too
    assert float(loss.sum) == pytest.approx(float(evaluated["loss_num"]), abs=1e-3)
    assert float(loss.weight) == float(evaluated["loss_den"]) + 1


@pytest.mark.parametrize("blocks", [(3, 4), (1, 2)])
@pytest.mark.parametrize("kind", ["residual", "bottleneck"])
def test_the_numbers_of_layers_tell_the_blocks_of_a_resnet(
    kind: str, blocks: tuple[int, ...]
) -> None:
    from t2t_torch.interop.tensor2tensor_weights.pictures import _layers

    hparams = registry.hparams("resnet_50").replace(
        block_fn=kind, layer_sizes=blocks, filter_sizes=(4, 4, 8)
    )
    features = Features({"inputs": Image(8, 8)}, {"targets": ClassLabel(LABELS)})
    model = registry.model("resnet")(hparams, features)
    of_block = {"residual": [3, 3], "bottleneck": [1, 3, 1]}[kind]
    sides = [7]
    for count in blocks:
        sides += [1, *of_block * count]
    convolutions, norms = _layers(sides)
    modules = dict(model.named_modules())
    assert [modules[name].weight.size(2) for name in convolutions] == sides
    kinds = {name for name, one in modules.items() if isinstance(one, torch.nn.BatchNorm2d)}
    assert set(norms) == kinds and len(norms) == len(kinds)


def test_a_run_on_cifar10_is_imported_and_predicts(tmp_path: Path) -> None:
    values, variables, _ = golden("resnet_cifar")
    run = tmp_path / "run"
    run.mkdir()
    write_checkpoint(run / "model.ckpt-7", {**variables, "global_step": np.array(7, np.int64)})
    (run / "hparams.json").write_text(json.dumps(values))
    (run / "flags_t2t.txt").write_text("--model=resnet\n--problem=image_cifar10\n")
    imported = tmp_path / "imported"
    import_run.main([f"--source={run}", f"--output_dir={imported}"])
    predictor = t2t.load(imported)
    pixels = np.random.default_rng(0).integers(256, size=(32, 32, 3), dtype=np.uint8)
    (named,) = predictor([{"inputs": pixels.tolist()}])
    model, _ = model_of("resnet_cifar")
    model.modalities["inputs"].bottom.kind = "per_image"
    with torch.no_grad():
        best = model({"inputs": torch.from_numpy(pixels)[None], "targets": torch.zeros(1).long()})
    labels = registry.problem("image_cifar10").class_labels
    assert named == labels[int(best.logits["targets"].argmax())]
