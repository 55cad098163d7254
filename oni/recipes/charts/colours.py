"""Colours of lines: ordered shades that can be told apart, and their counterparts on a dark background.

All of it works in OKLab (B. Ottosson, 2020), where equal distances look about equally different.
"""

from __future__ import annotations

import math

__all__ = ["distance", "for_dark", "ramp", "shades"]

Vector = tuple[float, float, float]

RAMP_LIGHTNESS = (0.66, 0.42)
"""First and last colour of a ramp. The first still has a contrast of 3 to white, which WCAG 2 asks of lines."""
RAMP_HUES = (math.radians(-200), math.radians(40))
"""Where the hue of a ramp starts and ends, from that of its colour: lightness alone can't tell seven lines apart."""
SHADE_HUES = math.radians(70)
"""How far the hue turns over more than two shades of a colour."""
DARK_LIGHTNESS = (0.55, 1.0)
"""What black and white become on a dark background."""


def ramp(colour: str, count: int) -> list[str]:
    """Colours for an ordered quantity, from light to dark, ending near ``colour``.

    >>> ramp("#0072B2", 3)
    ['#d3754b', '#00835c', '#473e91']
    """
    _, chroma, hue = to_polar(to_oklab(colour))
    positions = [index / (count - 1) if count > 1 else 1.0 for index in range(count)]

    def between(ends: tuple[float, float], position: float) -> float:
        return ends[0] + (ends[1] - ends[0]) * position

    return [
        from_polar(between(RAMP_LIGHTNESS, position), max(chroma, 0.13), hue + between(RAMP_HUES, position))
        for position in positions
    ]


def shades(colour: str, count: int) -> list[str]:
    """Shades of a colour, from dark to light; the colour itself if there is only one.

    More than two also turn in hue: on a dark background lightness alone would not tell them apart.

    >>> shades("#0072B2", 1), shades("#0072B2", 2)
    (['#0072b2'], ['#004f7e', '#57b0f5'])
    """
    lightness, chroma, hue = to_polar(to_oklab(colour))
    if count == 1:
        return [colour.lower()]
    low, high = lightness - 0.12, lightness + 0.2
    turn = SHADE_HUES if count > 2 else 0.0
    positions = [index / (count - 1) for index in range(count)]
    return [from_polar(low + (high - low) * at, chroma, hue + turn * (0.5 - at)) for at in positions]


def for_dark(colour: str) -> str:
    """The colour on a dark background: lighter, of the same hue, and as far from the others as can be.

    By the square of its lightness: dark colours are lifted, light ones stay nearly as they are. Lifted too, they would
    lose what tells them apart, as a screen shows little chroma near white: orange and vermilion would be one colour.

    >>> for_dark("#0072B2")
    '#449fe2'
    """
    lightness, chroma, hue = to_polar(to_oklab(colour))
    low, high = DARK_LIGHTNESS
    return from_polar(low + (high - low) * lightness**2, chroma, hue)


def distance(first: str, second: str) -> float:
    """How different two colours look; about 0.02 is just noticeable."""
    return math.dist(to_oklab(first), to_oklab(second))


def to_polar(colour: Vector) -> Vector:
    lightness, a, b = colour
    return lightness, math.hypot(a, b), math.atan2(b, a)


def from_polar(lightness: float, chroma: float, hue: float) -> str:
    """Lightness, chroma and hue as ``#rrggbb``; as much of the chroma as a screen can show."""

    def at(share: float) -> Vector:
        return to_linear_rgb((lightness, share * chroma * math.cos(hue), share * chroma * math.sin(hue)))

    low, high = 0.0, 1.0
    if not visible(at(1.0)):
        for _ in range(16):
            middle = (low + high) / 2
            low, high = (middle, high) if visible(at(middle)) else (low, middle)
    else:
        low = 1.0
    return "#" + "".join(f"{round(255 * encode(min(max(channel, 0.0), 1.0))):02x}" for channel in at(low))


def visible(channels: Vector) -> bool:
    return all(-1e-4 <= channel <= 1.0001 for channel in channels)


def encode(channel: float) -> float:
    """From linear light to sRGB."""
    return 12.92 * channel if channel <= 0.0031308 else 1.055 * channel ** (1 / 2.4) - 0.055


def decode(channel: float) -> float:
    """From sRGB to linear light."""
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def to_oklab(colour: str) -> Vector:
    if len(colour) != 7 or not colour.startswith("#"):
        raise ValueError(f"colour must be written #rrggbb, got {colour!r}")
    red, green, blue = (decode(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    middle = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def to_linear_rgb(colour: Vector) -> Vector:
    lightness, a, b = colour
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )
