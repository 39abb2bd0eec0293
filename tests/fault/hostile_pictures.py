"""Hostile pictures."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile import add, hostile, reader
from PIL import Image as Pillow


@reader("picture")
def read_picture(path: Path) -> Any:
    """Opens a picture file within the limits of the server."""
    from t2t_torch.features.image import pixels_of
    from t2t_torch.features.picture import PictureLimits
    from t2t_torch.serve.limits import MAX_PIXELS

    return pixels_of(path, (32, 32, 3), PictureLimits(MAX_PIXELS))


def saved(
    ending: str, size: tuple[int, int] = (64, 48), mode: str = "RGB", **options: Any
) -> bytes:
    """Returns a picture with a gradient as a file."""
    file = io.BytesIO()
    Pillow.linear_gradient("L").resize(size).convert(mode).save(file, ending, **options)
    return file.getvalue()


# Formats that start programs, or that nobody needs.

_EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
add("picture", "eps.eps", _EPS)
add("picture", "eps.png", _EPS, is_quick=True)
add(
    "picture",
    "dos_eps.jpg",
    b"\xc5\xd0\xd3\xc6" + struct.pack("<II", 30, len(_EPS)) + bytes(18) + _EPS,
)
add("picture", "ps.jpg", b"%!PS\n(r) file\n" + _EPS)
add("picture", "pdf.png", b"%PDF-1.4\n1 0 obj << >> endobj\n")
add(
    "picture",
    "svg.png",
    b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
)
add("picture", "wmf.bmp", b"\xd7\xcd\xc6\x9a\x00\x00" + bytes(100))
add("picture", "mvg.png", b"push graphic-context\nimage over 0,0 0,0 'url(https://a.b/c\"|ls\")'\n")
add("picture", "empty.png", b"")
add(
    "picture",
    "header_xbm.png",
    b"#define a_width 60000\n#define a_height 60000\nstatic char a_bits[] = {\n0",
)
add("picture", "header_ppm.png", b"P6\n60000 60000\n255\n")
add("picture", "text.jpg", b"this is no picture\n" * 1000)
for _format in ("PPM", "ICO", "TGA", "PCX", "SGI", "DDS"):
    add("picture", f"{_format.lower()}.png", saved(_format))

# GIF.


def gif(
    width: int, height: int, frame: tuple[int, int] | None = None, before: bytes = b""
) -> bytes:
    """Returns a picture of one pixel's data."""
    wide, high = frame or (width, height)
    head = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    image = b"\x2c" + struct.pack("<HHHHB", 0, 0, wide, high, 0) + b"\x02\x02\x4c\x01\x00\x3b"
    return head + before + image


for _size in ((7000, 7000), (65535, 65535), (1, 65535), (65535, 300), (4800, 4800), (0, 0)):
    add("picture", f"{_size[0]}x{_size[1]}.gif", gif(*_size), is_quick=_size == (7000, 7000))
add("picture", "frame_beyond.gif", gif(8, 8, (65535, 65535)))
add("picture", "frame_beyond_a_bit.gif", gif(8, 8, (7000, 7000)))
add(
    "picture",
    "comments.gif",
    gif(8, 8, before=b"\x21\xfe" + (b"\xff" + b"c" * 255) * 4000 + b"\x00"),
)
add(
    "picture",
    "empty_extensions.gif",
    gif(8, 8, before=b"\x21\xf9\x04\x00\x00\x00\x00\x00" * 100_000),
)
add("picture", "cut.gif", saved("GIF")[:-60], is_quick=True)

# PNG.


def chunk(kind: bytes, data: bytes) -> bytes:
    """Returns a chunk."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(
    width: int,
    height: int,
    rows: bytes = b"",
    *,
    bits: int = 8,
    kind: int = 0,
    interlace: int = 0,
    before: bytes = b"",
) -> bytes:
    """Returns a picture; `rows` is what is compressed."""
    head = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, interlace)
    data = chunk(b"IDAT", zlib.compress(rows, 9))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + before + data + chunk(b"IEND", b"")


def zeros(count: int) -> bytes:
    """Returns compressed zeros without holding them."""
    packer = zlib.compressobj(9)
    return b"".join([packer.compress(bytes(1 << 20)) for _ in range(count >> 20)]) + packer.flush()


def png_of_zeros(width: int, height: int, *, kind: int = 0, bits: int = 8) -> Callable[[Path], Any]:
    """Returns a maker of a black picture."""

    def write(path: Path) -> bytes:
        channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
        size = height * (1 + -(-width * channels * bits // 8))
        head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0))
        data = chunk(b"IDAT", zeros(size + (1 << 20)))
        return b"\x89PNG\r\n\x1a\n" + head + data + chunk(b"IEND", b"")

    return write


add("picture", "49_megapixels.png", png_of_zeros(7000, 7000), is_quick=True)
add("picture", "1x49000000.png", png_of_zeros(1, 49_000_000), is_quick=True)
add("picture", "49000000x1.png", png_of_zeros(49_000_000, 1))
add("picture", "1x65535.png", png_of_zeros(1, 65_535), is_read=True)
add("picture", "65535x300.png", png_of_zeros(65_535, 300), is_read=True)
add("picture", "24_megapixels.png", png_of_zeros(6048, 4032, kind=2), is_read=True, is_quick=True)
add("picture", "24_megapixels_alpha.png", png_of_zeros(6048, 4032, kind=6), is_read=True)
add("picture", "24_megapixels_deep.png", png_of_zeros(6000, 4000, bits=16), is_read=True)
add("picture", "24_megapixels_grey_alpha.png", png_of_zeros(6000, 4000, kind=4), is_read=True)
add("picture", "24_megapixels_bits.png", png_of_zeros(6000, 4000, bits=1), is_read=True)
for _size in ((2**31 - 1, 2**31 - 1), (2**32 - 1, 1), (0, 0), (0, 5), (60000, 60000)):
    add("picture", f"header_{_size[0]}x{_size[1]}.png", png(*_size))
_BOMB = zlib.compress(bytes(20 << 20), 9)
add(
    "picture",
    "text_bomb.png",
    png(8, 8, bytes(72), before=chunk(b"zTXt", b"a\0\0" + _BOMB)),
    is_read=True,
)
add(
    "picture",
    "texts.png",
    png(8, 8, bytes(72), before=chunk(b"tEXt", b"a\0" + bytes(900_000)) * 90),
)
add(
    "picture",
    "profile_bomb.png",
    png(8, 8, bytes(72), before=chunk(b"iCCP", b"a\0\0" + _BOMB)),
    is_read=True,
)
add(
    "picture",
    "chunks.png",
    png(8, 8, bytes(72), before=chunk(b"abCd", b"") * 200_000),
    is_read=True,
)
add("picture", "third_of_rows.png", png(8, 9, bytes(27)), is_quick=True)
add("picture", "no_rows.png", png(8, 9))
add("picture", "third_of_rows_interlaced.png", png(64, 64, bytes(2000), interlace=1))
add("picture", "no_palette.png", png(8, 9, bytes(81), kind=3), is_read=True)
add("picture", "bits_3.png", png(8, 9, bytes(81), bits=3))
add("picture", "kind_9.png", png(8, 9, bytes(81), kind=9))
add(
    "picture",
    "frames.png",
    png(8, 8, bytes(72), before=chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0))),
    is_read=True,
)
add(
    "picture",
    "exif_loop.png",
    png(
        8,
        8,
        bytes(72),
        before=chunk(b"eXIf", b"MM\0*\0\0\0\x08\0\x01\x87\x69\0\x04\0\0\0\x01\0\0\0\x08\0\0\0\x08"),
    ),
    is_read=True,
)
add(
    "picture",
    "idat_bomb.png",
    png(8, 8, bytes(72))[:33] + chunk(b"IDAT", _BOMB) + chunk(b"IEND", b""),
    is_read=True,
)

# JPEG.


def jpeg_of_size(width: int, height: int, **options: Any) -> bytes:
    """Returns a JPEG whose header states a size that it has not."""
    file = saved("JPEG", **options)
    at = max(file.find(b"\xff\xc0"), file.find(b"\xff\xc2"))
    return file[: at + 5] + struct.pack(">HH", height, width) + file[at + 9 :]


for _size in ((65535, 65535), (20000, 20000), (6000, 4000), (65500, 300), (0, 0), (8, 0)):
    add("picture", f"header_{_size[0]}x{_size[1]}.jpg", jpeg_of_size(*_size), is_read=True)
    add(
        "picture",
        f"progressive_{_size[0]}x{_size[1]}.jpg",
        jpeg_of_size(*_size, progressive=True),
        is_read=True,
    )


@hostile("picture", "scans.jpg", is_quick=True)
def jpeg_of_scans() -> bytes:
    """Each scan passes over all 24 megapixels."""
    file = jpeg_of_size(6000, 4000, progressive=True)
    at = file.rindex(b"\xff\xda")
    return file[:at] + file[at:-2] * 5000 + b"\xff\xd9"


add("picture", "cut.jpg", saved("JPEG")[:-100], is_quick=True)
add(
    "picture",
    "markers.jpg",
    b"\xff\xd8" + b"\xff\xfe\x00\x02" * 300_000 + saved("JPEG")[2:],
    is_read=True,
)
add(
    "picture",
    "exif_loop.jpg",
    saved(
        "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x87\x69\0\x04\0\0\0\x01\0\0\0\x08\0\0\0\x08"
    ),
    is_read=True,
)
add(
    "picture",
    "exif_of_60000_tags.jpg",
    saved(
        "JPEG",
        exif=b"Exif\0\0MM\0*\0\0\0\x08\x14\x00" + b"\x01\x0e\0\x02\0\xff\xff\xff\0\0\0\x08" * 5000,
    ),
    is_read=True,
)
add(
    "picture",
    "cmyk.jpg",
    lambda path: saved("JPEG", (6000, 4000), "CMYK", progressive=True),
    is_read=True,
)

# WebP, BMP, TIFF.

for _lossless in (False, True):
    add(
        "picture",
        f"24_megapixels_{_lossless}.webp",
        lambda path, lossless=_lossless: saved(
            "WEBP", (6000, 4000), lossless=lossless, quality=0, method=0
        ),
    )
add(
    "picture",
    "12_megapixels.webp",
    lambda path: saved("WEBP", (4032, 3024), quality=0, method=0),
    is_read=True,
)
add(
    "picture",
    "header_16383x16383.webp",
    b"RIFF\x30\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\xfe\x3f\0\xfe\x3f\0VP8L\x12\0\0\0"
    + b"\x2f\xfe\xbf\xff\x0f"
    + bytes(14),
)
add(
    "picture",
    "lossless_16384x16384.webp",
    b"RIFF\x1e\0\0\0WEBPVP8L\x12\0\0\0\x2f\xff\xff\xff\x0f" + bytes(13),
)
add("picture", "cut.webp", saved("WEBP")[:-40], is_quick=True)
add("picture", "cut.bmp", saved("BMP")[:-400])
add("picture", "cut.tiff", saved("TIFF", compression="tiff_deflate")[:-40])


def bmp(width: int, height: int, *, bits: int = 24, compression: int = 0, colors: int = 0) -> bytes:
    """Returns the header of a BMP and some bytes."""
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, 0, 0, 0, colors, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(head), 0, 0, 54) + head + bytes(1000)


for _name, _bmp in {
    "wide": bmp(2**31 - 1, 1),
    "high": bmp(1, -(2**31)),
    "large": bmp(60000, 60000),
    "rle": bmp(4800, 4800, bits=8, compression=1),
    "rle4": bmp(4800, 4800, bits=4, compression=2),
    "colors": bmp(8, 8, bits=8, colors=2**32 - 1),
    "bits": bmp(8, 8, bits=77),
    "jpeg_inside": bmp(8, 8, compression=4),
    "negative": bmp(-8, 8),
}.items():
    add("picture", f"{_name}.bmp", _bmp, is_read=_name in ("rle", "rle4", "colors"))


def tiff(tags: dict[int, tuple[int, int, int]], data: bytes = b"", following: int = 0) -> bytes:
    """Returns a TIFF of tags: type, count, value."""
    entries = [struct.pack("<HHII", tag, *entry) for tag, entry in sorted(tags.items())]
    head = b"II*\0" + struct.pack("<IH", 8, len(entries))
    return head + b"".join(entries) + struct.pack("<I", following) + data


def tiff_of_strip(width: int, height: int, data: bytes, **more: int) -> bytes:
    """Returns a grey TIFF of one strip; `more` are tags t259=... of one number."""
    tags = {256: (4, 1, width), 257: (4, 1, height), 258: (3, 1, 8), 259: (3, 1, 1)}
    tags |= {262: (3, 1, 1), 277: (3, 1, 1), 278: (4, 1, height)}
    tags |= {int(name[1:]): (4, 1, value) for name, value in more.items()}
    at = 8 + 2 + 12 * (len(tags) + 2) + 4
    return tiff({**tags, 273: (4, 1, at), 279: (4, 1, len(data))}, data)


_DEFLATED = zlib.compress(bytes(24 << 20), 9)
for _name, _tiff in {
    "large": tiff_of_strip(60000, 60000, bytes(100)),
    "1x24000000": tiff_of_strip(1, 24_000_000, _DEFLATED, t259=8),
    "49_megapixels": tiff_of_strip(7000, 7000, _DEFLATED, t259=8),
    "23_megapixels": tiff_of_strip(5000, 4600, _DEFLATED, t259=8),
    "samples": tiff_of_strip(8, 8, bytes(100), t277=65535),
    "tiles": tiff_of_strip(64, 64, bytes(100), t322=2**30, t323=2**30),
    "loop": tiff({256: (4, 1, 8), 257: (4, 1, 8)}, following=8),
    "counts": tiff({256: (4, 1, 8), 257: (4, 1, 8), 273: (4, 2**30, 8), 279: (4, 2**30, 8)}),
    "lzw": tiff_of_strip(4800, 4800, b"\x80" * 1000, t259=5),
    "fax": tiff_of_strip(4800, 4800, b"\x00" * 1000, t259=4, t258=1),
    "old_jpeg": tiff_of_strip(4800, 4800, b"\xff\xd8" * 100, t259=6),
    "jpeg_inside": tiff_of_strip(4800, 4800, saved("JPEG"), t259=7),
    "one_strip_of_many": tiff_of_strip(3000, 3000, bytes(3000), t278=1),
    "webp_inside": tiff_of_strip(4800, 4800, saved("WEBP"), t259=50001),
}.items():
    add("picture", f"{_name}.tiff", _tiff, is_read=_name == "23_megapixels")


# Damaged files, by chance.

for _format in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"):
    for _seed in range(8):
        _rng, _file = random.Random(f"{_format}{_seed}"), bytearray(saved(_format))
        for _ in range(1 + _seed):
            _file[_rng.randrange(2, min(len(_file), 60 * (1 + _seed)))] = _rng.randrange(256)
        add("picture", f"damaged_{_seed}.{_format.lower()}", bytes(_file), is_read=True)
