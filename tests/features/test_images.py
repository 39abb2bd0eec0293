"""Pictures: random changes, files, scaling; golden vectors of tensor2tensor 1.15.7."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from t2t_torch import registry
from t2t_torch.decode.outputs import from_line
from t2t_torch.errors import DataError, UsageError
from t2t_torch.features import Image, picture
from t2t_torch.features.image_augmentation import (
    _OPERATIONS,
    crop,
    cutout,
    fits_first,
    flip,
    parse,
    shift,
)
from t2t_torch.features.picture import PictureLimits, center_fit, decoded, encoded, resize_by_area
from t2t_torch.hparam import HParams
from t2t_torch.modalities.image import standardize
from t2t_torch.mode import Split
from t2t_torch.readers.tables import picture_of
from t2t_torch.serve.limits import MAX_PIXELS

GOLDEN = np.load(Path(__file__).resolve().parent.parent / "golden" / "t2t_pictures" / "images.npz")
PICTURE = GOLDEN["in/random32"]
NAMES = ("crop:4", "flip", "shift:0.2", "cutout:8", "resized_crop", "rand_augment:2:9")


class Given:
    """A generator that returns given values."""

    def __init__(self, *values: Any) -> None:
        self.values = list(values)

    def integers(self, *_: Any, **__: Any) -> Any:
        return self.values.pop(0)

    random = integers


@pytest.mark.parametrize("name", ["random32", "dark32", "constant32", "odd"])
def test_standardization_equals_tensor2tensor(name: str) -> None:
    pixels = torch.from_numpy(GOLDEN[f"in/{name}"])[None]
    for kind, key in (
        ("per_image", "per_image_standardization_float32_input"),  # not its result for bytes
        ("per_channel", "standardize_images"),
    ):
        expected = torch.from_numpy(GOLDEN[f"{key}/{name}"])
        torch.testing.assert_close(standardize(pixels, kind)[0], expected, atol=1e-5, rtol=0)


def test_the_range_equals_tensor2tensor() -> None:
    scaled = standardize(torch.arange(256).view(1, 1, 256, 1).byte(), "range").flatten()
    expected = torch.from_numpy(GOLDEN["convert_rgb_to_symmetric_real"])
    torch.testing.assert_close(scaled, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("size", [8, 16])
@pytest.mark.parametrize("name", ["random32", "dark32", "constant32", "odd"])
def test_scaling_by_area_equals_tensor2tensor(name: str, size: int) -> None:
    scaled = resize_by_area(GOLDEN[f"in/{name}"], size)
    np.testing.assert_array_equal(scaled, GOLDEN[f"resize_by_area_{size}/{name}"])


def test_a_crop_and_a_mirror_equal_tensor2tensor() -> None:
    cut = crop(PICTURE, Given((2, 5)), 4)  # type: ignore[arg-type]
    mirrored = flip(cut, Given(0.4))  # type: ignore[arg-type]
    np.testing.assert_array_equal(mirrored, GOLDEN["crop_2_5_flip/random32"])


def test_draws_have_the_range_of_tensor2tensors() -> None:
    rows, columns, mirrored = GOLDEN["cifar_augmentation_draws"].T
    assert (rows.min(), rows.max(), columns.max(), set(mirrored)) == (0, 8, 8, {0, 1})
    rng = np.random.default_rng(0)
    marked = np.zeros((9, 9, 1), np.uint8)
    marked[4, 4] = 1
    places = {tuple(np.argwhere(crop(marked, rng, 4)[..., 0])[0]) for _ in range(2000)}
    assert places == {(i, j) for i in range(9) for j in range(9)}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_a_change_is_a_function_of_picture_and_generator(name: str, channels: int) -> None:
    (change,) = parse([name], (32, 32))
    before = PICTURE[..., :channels].copy()
    made = [change(before, np.random.default_rng(seed)) for seed in (1, 1, *range(2, 9))]
    assert all(one.shape == before.shape and one.dtype == np.uint8 for one in made)
    np.testing.assert_array_equal(made[0], made[1])
    assert any(not np.array_equal(made[0], one) for one in made[2:])
    np.testing.assert_array_equal(before, PICTURE[..., :channels])


@pytest.mark.parametrize("number", range(len(_OPERATIONS)))
@pytest.mark.parametrize("level", [0.5, 3.0])
def test_each_operation_keeps_the_shape_at_any_strength(number: int, level: float) -> None:
    for sign in (1.0, -1.0):
        made = _OPERATIONS[number](PICTURE[:20], level, sign)
        assert made.shape == (20, 32, 3) and made.dtype == np.uint8


def test_cutout_puts_the_mean_into_a_square() -> None:
    made = cutout(PICTURE, Given(0, 10), 8)  # type: ignore[arg-type]
    mean = PICTURE.mean((0, 1)).round().astype(np.uint8)
    assert (made[:4, 6:14] == mean).all()
    np.testing.assert_array_equal(made[4:], PICTURE[4:])


def test_a_shift_moves_by_whole_pixels_and_fills_with_zeros() -> None:
    rng = np.random.default_rng(3)
    down, right = (round(x * 32) for x in np.random.default_rng(3).uniform(-0.5, 0.5, 2))
    made = shift(PICTURE, rng, 0.5)
    expected = np.roll(PICTURE, (down, right), (0, 1))
    inner = (slice(max(down, 0), 32 + min(down, 0)), slice(max(right, 0), 32 + min(right, 0)))
    np.testing.assert_array_equal(made[inner], expected[inner])
    assert made.astype(int).sum() == expected[inner].astype(int).sum()


@pytest.mark.parametrize(
    "name",
    [
        *("blur", "crop:4:5", "cutout:-1", "flip:1", "crop:x", "", "crop:33", "cutout:2.5"),
        *("shift:2", "resized_crop:5", "rand_augment:2.5:9", "rand_augment:2:31", "shift:nan"),
    ],
)
def test_an_unknown_change_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"there is no '.*' for pictures of .*names of crop"):
        parse([name], (32, 32))


# Files.


def test_a_file_is_stored_as_it_is_and_scaled_when_it_is_read() -> None:
    feature = Image(8, 8, 3, is_file=True)
    file = encoded(PICTURE)
    stored = feature.encode(file)
    assert stored.tobytes() == file
    np.testing.assert_array_equal(feature.opened(stored), PICTURE)
    np.testing.assert_array_equal(feature.decode(stored), center_fit(PICTURE, (8, 8)))
    again = feature.encode(PICTURE[:8, :8].tolist())
    np.testing.assert_array_equal(feature.decode(again), PICTURE[:8, :8])


def test_a_picture_file_is_a_value(tmp_path: Path) -> None:
    path, file = tmp_path / "a.png", encoded(PICTURE)
    path.write_bytes(file)
    text = base64.b64encode(file).decode()
    expected = center_fit(PICTURE, (8, 8))
    wrapped = base64.encodebytes(file).decode().replace("\n", "\r\n")
    for_urls = base64.urlsafe_b64encode(file).decode().rstrip("=")
    for value in (path, file, text, f"data:image/png;base64,{text}", wrapped, for_urls):
        plain, stored = Image(8, 8, 3), Image(8, 8, 3, is_file=True)
        for feature in (plain, stored):
            np.testing.assert_array_equal(feature.decode(feature.encode(value)), expected)
    assert from_line(Image(8, 8, 3), "a.png", tmp_path) == path


def test_a_stored_file_is_checked_when_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(encoded(PICTURE)[:80])
    with pytest.raises(DataError, match="cannot be decoded"):
        Image(8, 8, 3, is_file=True).encode(path)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of Pillow
def test_damaged_exif_data_leave_a_picture_as_it_is() -> None:
    pillow = pytest.importorskip("PIL.Image")
    exif = pillow.Exif()
    exif[0x0112], exif[0x010E] = 6, "a description"
    file = bytearray(saved(pillow.fromarray(PICTURE), "jpeg", exif=exif, quality=95))
    start, rng = file.index(b"Exif"), np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(file)
        for place in rng.integers(start + 6, start + 50, 3):
            damaged[place] = rng.integers(256)
        try:
            assert decoded(bytes(damaged), 3).shape == (32, 32, 3)
        except DataError:
            continue


def saved(picture: Any, ending: str = "png", **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, ending, **options)
    return file.getvalue()


def test_pictures_are_decoded_as_programs_show_them() -> None:
    """Turned by EXIF data, 16 bits scaled to 8, transparent parts white."""
    pillow = pytest.importorskip("PIL.Image")
    upright = np.zeros((4, 2, 3), np.uint8)
    upright[:2] = 200
    exif = pillow.Exif()
    exif[0x0112] = 6  # the file's left is the upper side
    turned = saved(pillow.fromarray(np.ascontiguousarray(np.rot90(upright))), exif=exif)
    np.testing.assert_array_equal(decoded(turned, 3), upright)
    deep = saved(pillow.fromarray(upright[..., 0].astype(np.uint16) * 257))
    for channels in (1, 3):
        np.testing.assert_array_equal(decoded(deep, channels), upright[..., :channels])
    colours = np.dstack([upright, np.full((4, 2), 255, np.uint8)])
    colours[2:, :, 3] = 0  # black, but not seen
    expected = np.where(np.arange(4)[:, None, None] < 2, upright, 255)
    np.testing.assert_array_equal(decoded(saved(pillow.fromarray(colours)), 3), expected)
    grey = pillow.fromarray(colours[..., [0, 3]])
    np.testing.assert_array_equal(decoded(saved(grey), 1), expected[..., :1])
    for file, shape in ((deep, (4, 2, 1)), (turned, (4, 2, 3)), (saved(grey), (4, 2, 1))):
        assert picture_of({"bytes": file}).shape == shape


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (Path("missing.png"), "No such file"),
        ("a cat", "is no picture"),
        ("QUJD", "3 bytes that are no picture"),
    ],
)
def test_what_is_no_picture_is_refused(value: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        Image(8, 8, 3).encode(value)


def test_a_picture_of_too_many_pixels_is_refused() -> None:
    for limits in (PictureLimits(pixels=1023), PictureLimits(side=31)):
        with pytest.raises(DataError, match=r"of 32 x 32 pixels; at most .* Scale it down"):
            decoded(encoded(PICTURE), 3, limits)


@pytest.mark.parametrize(
    ("size", "most", "format_"),
    [
        ((6048, 4032), MAX_PIXELS, "PNG"),
        ((4032, 3024), MAX_PIXELS, "WEBP"),
        ((8192, 5464), PictureLimits().pixels, "PNG"),
        ((5616, 4096), PictureLimits().pixels, "WEBP"),
    ],
)
def test_pictures_of_common_cameras_are_within_the_limits(
    size: tuple[int, int], most: int, format_: str
) -> None:
    counted: list[int] = []
    limits = PictureLimits(most, spend=counted.append)
    limits.check(SimpleNamespace(size=size, format=format_), b"")
    assert counted == [size[0] * size[1]]


def test_each_byte_of_a_png_is_read_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = b"".join(b"\0" + np.random.default_rng(i).bytes(3000) for i in range(700))
    file, inflater = png(1000, 700, 8, 2, 0, rows), zlib.decompressobj()
    given: list[int] = []

    class Counting:
        eof = False

        def decompress(self, data: bytes, most: int) -> bytes:
            given.append(len(data))
            return inflater.decompress(data, most)

        @property
        def unconsumed_tail(self) -> bytes:
            return inflater.unconsumed_tail

    monkeypatch.setattr(picture.zlib, "decompressobj", Counting)
    picture._check_rows(file)
    assert len(file) > 2_000_000 and sum(given) < 3 * len(file)


def test_the_pixels_of_several_pictures_are_counted_before_they_are_decoded() -> None:
    counted: list[int] = []
    with pytest.raises(DataError, match="cannot be decoded"):
        decoded(encoded(PICTURE)[:-30], 3, PictureLimits(spend=counted.append))
    assert counted == [1024]


def postscript(width: int = 8) -> bytes:
    return (
        f"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 {width} 8\n%%EndComments\nshowpage\n"
    ).encode()


def test_only_six_decoders_read_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """EPS would start Ghostscript."""
    pillow = pytest.importorskip("PIL.Image")
    for ending in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"):
        file = saved(pillow.fromarray(PICTURE), ending)
        assert decoded(file, 3).shape == (32, 32, 3)
        assert picture_of({"bytes": file}).shape == (32, 32, 3)
    others = [saved(pillow.fromarray(PICTURE), ending) for ending in ("ppm", "ico", "tga", "pcx")]
    for file in (postscript(), *others):
        for read in (decoded, lambda file: picture_of({"bytes": file})):
            with pytest.raises(DataError, match="bytes that are no picture; expected JPEG, PNG"):
                read(file)


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA", "I;16"])
def test_a_png_with_a_third_of_its_rows_is_refused(mode: str) -> None:
    bits, kind = {"1": (1, 0), "L": (8, 0), "P": (4, 3), "LA": (8, 4), "RGB": (8, 2),
                  "RGBA": (16, 6), "I;16": (16, 0)}[mode]  # fmt: skip
    width = 11 * bits * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
    row = b"\0" + bytes([1] * (-(-width // 8)))
    assert decoded(png(11, 30, bits, kind, 0, row * 30)).shape[:2] == (30, 11)
    with pytest.raises(DataError, match="cannot be decoded: 33% of its rows are there"):
        decoded(png(11, 30, bits, kind, 0, row * 10))


def png(width: int, height: int, bits: int, kind: int, interlace: int, rows: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, interlace)
    parts = [(b"IHDR", head), (b"PLTE", bytes(48))][: 2 if kind == 3 else 1]
    parts += [(b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )


def test_an_interlaced_png_is_whole_with_the_rows_of_its_passes() -> None:
    rows = b"".join(
        (b"\0" + bytes(-(-(11 - left) // right) * 3)) * -(-(30 - top) // down)
        for left, top, right, down in picture._ADAM7
    )
    assert decoded(png(11, 30, 8, 2, 1, rows)).shape == (30, 11, 3)
    with pytest.raises(DataError, match="of its rows are there"):
        decoded(png(11, 30, 8, 2, 1, rows[:-34]))


def test_a_large_jpeg_is_decoded_smaller_and_one_of_many_scans_is_refused() -> None:
    pillow = pytest.importorskip("PIL.Image")
    large = pillow.fromarray(PICTURE).resize((64, 64))
    file = saved(large, "jpeg")
    assert decoded(file, 3, PictureLimits(pixels=1024)).shape == (32, 32, 3)
    assert decoded(file, 3, PictureLimits(pixels=500)).shape == (16, 16, 3)
    progressive = saved(large, "jpeg", progressive=True)
    assert picture._count_scans(file) == 1
    assert picture._count_scans(progressive) > 5
    with pytest.raises(DataError, match="at most 1,024 pixels"):
        decoded(progressive, 3, PictureLimits(pixels=1024))
    with pytest.raises(DataError, match=r"a JPEG of 10 scans; at most 5"):
        decoded(progressive, 3, PictureLimits(scans=5))


def test_changes_of_files_count_pixels_of_the_result() -> None:
    large = np.random.default_rng(0).integers(0, 256, (240, 320, 3), np.uint8)
    problem = registry.problem("image_cifar10")
    changes = problem.preprocessing(HParams(image_augmentation=["cutout:16"]))
    assert changes is not None
    plain = center_fit(large, (32, 32))
    made = changes({"inputs": large}, Split.TRAIN, np.random.default_rng(2))["inputs"]
    changed = (made != plain).any(-1).sum()
    assert made.shape == plain.shape and 50 < changed <= 256
    assert not fits_first(["flip", "resized_crop:0.3", "cutout:8"])
    assert fits_first(["crop:4", "resized_crop"])


def test_grey_and_colours_are_converted() -> None:
    grey = Image(32, 32, 1, is_file=True)
    assert grey.opened(np.frombuffer(encoded(PICTURE), np.uint8)).shape == (32, 32, 1)
    colour = Image(32, 32, 3, is_file=True)
    one = colour.opened(np.frombuffer(encoded(PICTURE[..., :1]), np.uint8))
    np.testing.assert_array_equal(one[..., 2], PICTURE[..., 0])


@pytest.mark.parametrize("content", [b"", b"no picture", encoded(PICTURE)[:200]])
def test_a_damaged_file_is_refused(content: bytes) -> None:
    with pytest.raises(DataError, match=r"that are no picture|cannot be decoded"):
        Image(8, 8, 3, is_file=True).opened(np.frombuffer(content, np.uint8))
