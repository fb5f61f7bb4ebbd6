"""The sky that the demo's telescope looks at: stars, a spiral galaxy, a nebula, all from one seed, and the geometry of its tiles.

May know: numpy. One rule: a pure function of the seed; every tile sees the same sky.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CENTER_RA_DEG, CENTER_DEC_DEG = 83.6, 22.0
PIXEL_ARCSEC = 1.0
PIXEL_DEG = PIXEL_ARCSEC / 3600
SEEING_ARCSEC = 1.3
OVERLAP = 0.15
STARS_PER_SQUARE_DEG, CLUSTERS_TRIED = 40_000, 6_000


@dataclass(frozen=True)
class Wcs:
    """A gnomonic (TAN) projection: the sky at (ra, dec) falls on pixel (x0, y0), counted from 1; rotation is east of north."""

    ra_deg: float
    dec_deg: float
    x0: float
    y0: float
    rotation_deg: float = 0.0
    pixel_deg: float = PIXEL_DEG

    def header(self) -> dict[str, float | str]:
        cos, sin = np.cos(np.radians(self.rotation_deg)), np.sin(np.radians(self.rotation_deg))
        matrix = {"CD1_1": -cos, "CD1_2": sin, "CD2_1": sin, "CD2_2": cos}
        place: dict[str, float | str] = {"CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "EQUINOX": 2000.0}
        place |= {"CRVAL1": self.ra_deg, "CRVAL2": self.dec_deg, "CRPIX1": self.x0, "CRPIX2": self.y0}
        return place | {key: float(value * self.pixel_deg) for key, value in matrix.items()}

    def to_pixel(self, ra_deg: np.ndarray, dec_deg: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        east, north = project(ra_deg, dec_deg, self.ra_deg, self.dec_deg)
        cos, sin = np.cos(np.radians(self.rotation_deg)), np.sin(np.radians(self.rotation_deg))
        return self.x0 + (-cos * east + sin * north) / self.pixel_deg, self.y0 + (sin * east + cos * north) / self.pixel_deg

    def to_sky(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cos, sin = np.cos(np.radians(self.rotation_deg)), np.sin(np.radians(self.rotation_deg))
        dx, dy = (x - self.x0) * self.pixel_deg, (y - self.y0) * self.pixel_deg
        return deproject(-cos * dx + sin * dy, sin * dx + cos * dy, self.ra_deg, self.dec_deg)


def project(ra_deg: np.ndarray, dec_deg: np.ndarray, ra0_deg: float, dec0_deg: float) -> tuple[np.ndarray, np.ndarray]:
    """Degrees on the plane that touches the sphere at (ra0, dec0): east, north."""
    ra, dec, dec0 = np.radians(ra_deg - ra0_deg), np.radians(dec_deg), np.radians(dec0_deg)
    depth = np.sin(dec0) * np.sin(dec) + np.cos(dec0) * np.cos(dec) * np.cos(ra)
    east = np.cos(dec) * np.sin(ra) / depth
    north = (np.cos(dec0) * np.sin(dec) - np.sin(dec0) * np.cos(dec) * np.cos(ra)) / depth
    return np.degrees(east), np.degrees(north)


def deproject(east_deg: np.ndarray, north_deg: np.ndarray, ra0_deg: float, dec0_deg: float) -> tuple[np.ndarray, np.ndarray]:
    east, north, dec0 = np.radians(east_deg), np.radians(north_deg), np.radians(dec0_deg)
    ra = np.arctan2(east, np.cos(dec0) - north * np.sin(dec0))
    dec = np.arctan2((np.sin(dec0) + north * np.cos(dec0)) * np.cos(ra), np.cos(dec0) - north * np.sin(dec0))
    return ra0_deg + np.degrees(ra), np.degrees(dec)


@dataclass(frozen=True)
class Sky:
    """`width_deg` x `height_deg` around the center; brightness is in counts per pixel of one square arcsecond."""

    ra_deg: np.ndarray
    dec_deg: np.ndarray
    flux: np.ndarray
    width_deg: float
    height_deg: float

    def brightness(self, wcs: Wcs, columns: int, rows: int) -> np.ndarray:
        """What a perfect camera with this geometry sees."""
        x, y = np.meshgrid(np.arange(1, columns + 1, dtype=float), np.arange(1, rows + 1, dtype=float))
        east, north = project(*wcs.to_sky(x, y), CENTER_RA_DEG, CENTER_DEC_DEG)
        image = galaxy(east, north, self.width_deg) + nebula(east / self.width_deg, north / self.width_deg)
        for star_x, star_y, flux in zip(*wcs.to_pixel(self.ra_deg, self.dec_deg), self.flux, strict=True):
            add_star(image, float(star_x), float(star_y), float(flux))
        return image


def make_sky(seed: int, width_deg: float, height_deg: float) -> Sky:
    """Stars by a power law of brightness: many faint ones, a few bright ones; and young clusters along the arms of the galaxy."""
    chance = np.random.default_rng([seed, 0])
    count = round(STARS_PER_SQUARE_DEG * width_deg * height_deg)
    east, north = chance.uniform(-0.55, 0.55, (2, count)) * [[width_deg], [height_deg]]
    flux = np.minimum(250 * chance.pareto(0.9, count) + 120, 400_000)
    near_east, near_north = chance.normal(0, 0.12, (2, CLUSTERS_TRIED)) * width_deg
    chosen = chance.uniform(0, 420, CLUSTERS_TRIED) < galaxy(near_east, near_north, width_deg)
    clusters = np.minimum(150 * chance.pareto(1.4, CLUSTERS_TRIED) + 150, 4000)[chosen]
    ra, dec = deproject(np.append(east, near_east[chosen]), np.append(north, near_north[chosen]), CENTER_RA_DEG, CENTER_DEC_DEG)
    return Sky(ra, dec, np.append(flux, clusters), width_deg, height_deg)


def add_star(image: np.ndarray, x: float, y: float, flux: float) -> None:
    """A Gaussian of the seeing, out to where it drops below a tenth of a count; pixels count from 1."""
    sigma = SEEING_ARCSEC / PIXEL_ARCSEC
    peak = flux / (2 * np.pi * sigma**2)
    reach = sigma * np.sqrt(2 * np.log(max(peak / 0.1, 2.0)))
    rows, columns = image.shape
    left, right = max(0, int(x - 1 - reach)), min(columns, int(x + reach) + 1)
    low, high = max(0, int(y - 1 - reach)), min(rows, int(y + reach) + 1)
    if left >= right or low >= high:
        return
    across = np.exp(-((np.arange(left, right) + 1 - x) ** 2) / (2 * sigma**2))
    up = np.exp(-((np.arange(low, high) + 1 - y) ** 2) / (2 * sigma**2))
    image[low:high, left:right] += peak * np.outer(up, across)


def galaxy(east: np.ndarray, north: np.ndarray, width_deg: float) -> np.ndarray:
    """A spiral with two arms, tilted, a little off the center of the field."""
    u, v = east / width_deg - 0.06, north / width_deg + 0.03
    turn = np.radians(35)
    along, across = u * np.cos(turn) + v * np.sin(turn), (v * np.cos(turn) - u * np.sin(turn)) / 0.55
    radius = np.hypot(along, across) + 1e-6
    arms = np.cos(2 * (np.arctan2(across, along) - 3.2 * np.log(radius / 0.02)))
    disk = 260 * np.exp(-radius / 0.07) * (1 + 0.75 * arms * np.clip(radius / 0.05, 0, 1))
    bulge = 900 * np.exp(-((radius / 0.018) ** 0.8))
    return disk + bulge


def nebula(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Soft clouds over the whole field: a few waves bent by each other."""
    bent_u, bent_v = u + 0.06 * np.sin(9 * v + 1.3), v + 0.06 * np.sin(8 * u + 0.4)
    cloud = np.sin(7 * bent_u + 2.0) * np.cos(6 * bent_v - 0.7) + 0.5 * np.sin(17 * bent_u - 13 * bent_v)
    return 18 * np.clip(cloud, 0, None) ** 1.5
