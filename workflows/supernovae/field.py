"""The field that the survey looks at night after night: stars, galaxies, and stars that explode in them, all from one seed.

May know: numpy. One rule: a pure function of the seed; every exposure sees the same field, as it is on its night.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PIXELS_PER_STAR, PIXELS_PER_GALAXY, PIXELS_PER_TRANSIENT = 500, 12_000, 30_000
# Beyond the frame of the first exposure there is sky too: others are a little off.
MARGIN_PIXELS = 24
FROM_BORDER_PIXELS, APART_PIXELS = 40, 25


@dataclass(frozen=True)
class Transient:
    """`x`, `y` in pixels of the first exposure, counted from 0. `fluxes` in counts, by night."""

    x: float
    y: float
    fluxes: tuple[float, ...]


@dataclass(frozen=True)
class Field:
    """Round blobs: `width` is their own sigma in pixels, 0 for a point; a galaxy is some of them. All positions as in Transient."""

    x: np.ndarray
    y: np.ndarray
    flux: np.ndarray
    width: np.ndarray
    transients: tuple[Transient, ...]


def make_field(seed: int, size: int, nights: int) -> Field:
    chance = np.random.default_rng([seed, 0])
    span = (-MARGIN_PIXELS, size + MARGIN_PIXELS)
    stars = round(size**2 / PIXELS_PER_STAR)
    x, y = chance.uniform(*span, (2, stars))
    flux = np.minimum(600 * (chance.pareto(1.0, stars) + 1), 60_000)
    galaxies = max(3, round(size**2 / PIXELS_PER_GALAXY))
    host_x, host_y = chance.uniform(*span, (2, galaxies))
    host_flux = 4000 * (chance.pareto(1.5, galaxies) + 1)
    host_width = chance.uniform(2.0, 5.0, galaxies)
    # An exponential disk, nearly: a bright middle, a broad rest.
    parts = [(0.25, 0.4), (0.45, 1.0), (0.30, 1.8)]
    return Field(
        np.concatenate([x, *[host_x] * len(parts)]),
        np.concatenate([y, *[host_y] * len(parts)]),
        np.concatenate([flux, *[host_flux * share for share, _ in parts]]),
        np.concatenate([np.zeros(stars), *[host_width * scale for _, scale in parts]]),
        explode(chance, size, nights, np.stack([host_x, host_y], axis=1)),
    )


def explode(chance: np.random.Generator, size: int, nights: int, hosts: np.ndarray) -> tuple[Transient, ...]:
    """Every other one in a galaxy, where one is free; none at the border, no two at one place."""
    wanted = max(2, round(size**2 / PIXELS_PER_TRANSIENT))
    found: list[Transient] = []
    for number in range(100 * wanted):
        if len(found) == wanted:
            break
        near = hosts[chance.integers(len(hosts))] + chance.normal(0, 3, 2) if number % 2 else chance.uniform(0, size, 2)
        inside = FROM_BORDER_PIXELS < near.min() and near.max() < size - FROM_BORDER_PIXELS
        if inside and all(np.hypot(near[0] - other.x, near[1] - other.y) > APART_PIXELS for other in found):
            found.append(Transient(float(near[0]), float(near[1]), light_curve(chance, nights)))
    if len(found) < wanted:
        raise ValueError(f"a field of {size} pixels has no room for {wanted} transients")
    return tuple(found)


def light_curve(chance: np.random.Generator, nights: int) -> tuple[float, ...]:
    """Up within a night or two, down within many; bright for two nights at least, the last two at the latest."""
    peak, brightest = chance.uniform(2500, 9000), chance.integers(0, nights - 1)
    since = np.arange(nights) - brightest
    return tuple(float(value) for value in peak * np.where(since < 0, np.exp(since / 0.5), np.exp(-since / 6.0)))


def add_blob(image: np.ndarray, x: float, y: float, flux: float, sigma: float) -> None:
    """A round Gaussian, out to where it drops below a tenth of a count."""
    peak = flux / (2 * np.pi * sigma**2)
    reach = sigma * np.sqrt(2 * np.log(max(peak / 0.1, 2.0)))
    rows, columns = image.shape
    left, right = max(0, int(x - reach)), min(columns, int(x + reach) + 2)
    low, high = max(0, int(y - reach)), min(rows, int(y + reach) + 2)
    if left >= right or low >= high:
        return
    across = np.exp(-((np.arange(left, right) - x) ** 2) / (2 * sigma**2))
    up = np.exp(-((np.arange(low, high) - y) ** 2) / (2 * sigma**2))
    image[low:high, left:right] += peak * np.outer(up, across)
