"""Models of pictures: shapes of blocks, shake-drop, generated pictures."""

from __future__ import annotations

import pytest
import torch
from onnxruntime import InferenceSession

from t2t_torch import registry, testing
from t2t_torch.errors import HParamsError
from t2t_torch.export.network import export_network
from t2t_torch.features import ClassLabel, Features, Image, PixelSequence
from t2t_torch.models.resnet import Convolution
from t2t_torch.text.encoder import ClassLabelEncoder

LABELS = ClassLabelEncoder(["a", "b", "c"])


def features(*shape: int) -> Features:
    return Features({"inputs": Image(*shape)}, {"targets": ClassLabel(LABELS)})


@pytest.mark.parametrize(
    ("name", "count"), [("resnet_18", 11.2), ("resnet_50", 23.5), ("resnet_cifar_18", 11.2)]
)
def test_a_resnet_has_the_published_number_of_weights(name: str, count: float) -> None:
    with torch.device("meta"):
        model = registry.model("resnet")(registry.hparams(name), features(32, 32, 3))
    assert sum(one.numel() for one in model.parameters()) == pytest.approx(1e6 * count, rel=0.01)


def test_a_convolution_of_one_pixel_skips_pixels_as_a_stride_does() -> None:
    layer = Convolution(4, 8, 1, 2)
    x = torch.randn(2, 4, 7, 6)
    expected = torch.nn.functional.conv2d(x, layer.weight, stride=2)
    torch.testing.assert_close(layer(x), expected)
    torch.autograd.backward(layer(x.contiguous(memory_format=torch.channels_last)).sum())


def test_options_of_shake_shake_hold_the_contract() -> None:
    changes = {"shake_drop_prob": 0.5, "shake_shake_concat": True}
    hparams = registry.hparams("shakeshake_small").replace(**changes)
    testing.check_model(registry.model("shake_shake"), hparams)


@pytest.mark.parametrize("name", ["resnet_18", "resnet_50"])
def test_both_kinds_of_blocks_hold_the_contract(name: str) -> None:
    hparams = registry.hparams(name).replace(image_standardization="per_image")
    testing.check_model(registry.model("resnet"), hparams)


def test_evaluation_averages_a_picture_and_its_mirror_image() -> None:
    """Also in an exported graph; not if training has no mirror images."""
    kind, hparams = registry.model("resnet"), testing.small(registry.hparams("resnet_cifar_fast"))
    both = kind(hparams, features(8, 8, 3))
    pixels = torch.randint(256, (3, 8, 8, 3), dtype=torch.uint8)
    for _ in range(9):  # statistics of the norms
        both.logits({"inputs": pixels})
    both.eval()
    for changes in ({"average_mirrored": False}, {"image_augmentation": ("crop:4",)}):
        one = kind(hparams.replace(**changes), features(8, 8, 3)).eval()
        one.load_state_dict(both.state_dict())
        with torch.no_grad():
            first, second, mean = (
                model.logits({"inputs": picture})["targets"]
                for model, picture in ((one, pixels), (one, pixels.flip(2)), (both, pixels))
            )
        assert not torch.allclose(first, second, atol=1e-3)
        torch.testing.assert_close(mean, (first + second) / 2)
    graph = InferenceSession(export_network(both, {"inputs": pixels}).SerializeToString())
    for rows in (1, 3):
        (scores,) = graph.run(["targets.scores"], {"inputs": pixels[:rows].numpy()})
        torch.testing.assert_close(torch.from_numpy(scores), mean[:rows].softmax(1))


@pytest.mark.parametrize(
    ("model", "changes", "complaint"),
    [
        ("resnet", {"filter_sizes": (8, 8)}, "layer_sizes has 4 groups, which need 5 numbers"),
        ("resnet", {"layer_sizes": (1, 0)}, "expected numbers from 1 on"),
        ("resnet", {"image_standardization": "imagenet", "layer_sizes": (1,)}, "pictures have 1"),
        ("shake_shake", {"num_hidden_layers": 9}, r"needs 6 n \+ 2 layers"),
        ("vit", {"patch_size": 5}, "cannot be cut into squares of 5 pixels. Set another"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    model: str, changes: dict[str, object], complaint: str
) -> None:
    kind = registry.model(model)
    with pytest.raises(HParamsError, match=complaint):
        made = kind(kind.HParams().replace(**changes), features(8, 8, 1))
        made(testing.random_batch(features(8, 8, 1)))


def test_a_generated_picture_has_all_its_values_and_ends() -> None:
    picture = PixelSequence(height=2, width=2, channels=3)
    model = registry.model("imagetransformer")(
        testing.small(registry.hparams("imagetransformer_tiny")), Features({}, {"targets": picture})
    ).eval()
    ids, state = torch.zeros(1, dtype=torch.int64), model.encode({"targets": torch.zeros(1, 0)})
    read = []
    with torch.no_grad():
        for _ in range(picture.size + 1):
            logits, state = model.step(ids, state)
            ids = logits.argmax(-1)
            read.append(int(ids))
    assert read[-1] == 1 and min(read[:-1]) >= 2
    assert picture.pixels(read).shape == (2, 2, 3)
