"""From the bytes of a JPEG or PNG file to the pixels of a crop, at the size that a network needs.

Files are not trusted: other formats, images of too many pixels and damaged ones are refused.
"""

from __future__ import annotations

import hashlib
import io
import math
import warnings
from typing import Any

import numpy
from numpy.typing import NDArray
from PIL import Image

from oni.terminal import printable

__all__ = ["LARGEST", "Box", "CannotDecode", "centre_box", "decode", "random_box"]

FORMATS = ("JPEG", "PNG")
"""No others, because Pillow has formats that start other programs."""
LARGEST = 89_478_485
"""Pixels of the largest image that is decoded: Pillow's own limit, a quarter of a gigabyte in memory."""
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
ATTEMPTS = 10

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels of the whole image."""


class CannotDecode(ValueError):
    """The file can't be decoded; the message says why."""


def random_box(width: int, height: int, *key: int) -> Box:
    """A crop of 8 to 100 % of the area with sides between 3 : 4 and 4 : 3, different for every key.

    The same distribution as torchvision's ``RandomResizedCrop``: if none of ten attempts fits into the image, the
    largest centred crop of an allowed ratio.

    >>> random_box(640, 480, 0, 0, 7) == random_box(640, 480, 0, 0, 7), random_box(640, 480, 0, 1, 7)
    (True, (303, 83, 624, 463))
    """
    for attempt in range(ATTEMPTS):
        area, ratio, left, top = draw(*key, attempt)
        target = width * height * (AREA[0] + area * (AREA[1] - AREA[0]))
        stretch = math.exp(math.log(RATIO[0]) + ratio * math.log(RATIO[1] / RATIO[0]))
        w, h = round(math.sqrt(target * stretch)), round(math.sqrt(target / stretch))
        if 0 < w <= width and 0 < h <= height:
            x, y = int(left * (width - w + 1)), int(top * (height - h + 1))
            return x, y, x + w, y + h
    w = min(width, round(height * RATIO[1]))
    h = min(height, round(width / RATIO[0]))
    x, y = (width - w) // 2, (height - h) // 2
    return x, y, x + w, y + h


def draw(*key: int) -> list[float]:
    """Four numbers in [0, 1)."""
    digest = hashlib.blake2b(",".join(map(str, key)).encode(), digest_size=16).digest()
    return [int.from_bytes(digest[start : start + 4], "big") / 2**32 for start in (0, 4, 8, 12)]


def centre_box(width: int, height: int, resize: int, size: int) -> Box:
    """The centre crop of side ``size`` after the shorter side is resized to ``resize``, in pixels of the original.

    >>> centre_box(512, 256, 256, 224)
    (144.0, 16.0, 368.0, 240.0)
    """
    # As torchvision rounds.
    short = min(width, height)
    new_width, new_height = resize * width // short, resize * height // short
    x, y = round((new_width - size) / 2), round((new_height - size) / 2)
    across, down = width / new_width, height / new_height
    return x * across, y * down, (x + size) * across, (y + size) * down


def decode(content: bytes, size: int, resize: int, key: tuple[int, ...] | None = None) -> NDArray[numpy.uint8]:
    """A square crop of an image as (size, size, 3) bytes.

    Palettes, greyscale, CMYK and 16-bit images become RGB. Transparency is dropped and a camera's orientation ignored,
    as in torchvision's ``ImageFolder``. JPEGs are decoded at a half, quarter or eighth of their size if that is enough.

    Args:
        content: of the file.
        size: of the result.
        resize: length of the shorter side before a centre crop.
        key: of a random crop instead.

    Raises:
        CannotDecode: if it is not an image, or is damaged or too large.
    """
    try:
        with warnings.catch_warnings():
            # Warnings about oddities in a file; too many pixels are an error below.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                return crop(image, size, resize, key)
    except CannotDecode:
        raise
    except Image.DecompressionBombError:
        raise CannotDecode(f"has more than twice the limit of {LARGEST:,} pixels") from None
    except Exception as error:  # a hostile file fails in any way
        reason = printable(str(error)) if isinstance(error, OSError | SyntaxError | ValueError) else ""
        if "cannot identify" in reason:
            reason = "neither JPEG nor PNG"
        raise CannotDecode(reason or type(error).__name__) from None


def crop(image: Image.Image, size: int, resize: int, key: tuple[int, ...] | None) -> NDArray[numpy.uint8]:
    width, height = image.size
    if width * height > LARGEST:
        raise CannotDecode(f"has {width} x {height} pixels, more than the limit of {LARGEST:,}")
    left, top, right, bottom = (
        centre_box(width, height, resize, size) if key is None else random_box(width, height, *key)
    )
    least = int(width * size / (right - left)), int(height * size / (bottom - top))
    reduced = image.draft(None, (max(1, least[0]), max(1, least[1])))
    across, down = (reduced[1][2] / width, reduced[1][3] / height) if reduced else (1.0, 1.0)
    colours = as_rgb(image)
    box = (
        left * across,
        top * down,
        min(right * across, colours.width),
        min(bottom * down, colours.height),
    )
    return numpy.asarray(colours.resize((size, size), Image.Resampling.BILINEAR, box=box))


def as_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB":
        image.load()
        return image
    if image.mode.startswith("I"):
        # 16 bits, which convert would cut off at 255.
        values: NDArray[Any] = numpy.asarray(image).astype(numpy.int64) >> 8
        image = Image.fromarray(values.clip(0, 255).astype(numpy.uint8))
    return image.convert("RGB")
