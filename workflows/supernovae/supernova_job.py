"""The steps of the search, one call each; what they measure on images is done by Source Extractor (sep) and scipy.

    python supernova_job.py STEP ARGUMENTS...

Steps: stars, align, template, subtract, detect, join, score. Images are FITS; not-a-number is where an exposure saw nothing. Positions are
in pixels of the first reference, counted from 0.

May know: fits.py, steps.py, numpy, scipy, sep. One rule: a step reads and writes only what its arguments name, the same bytes
each time. It ends with 1 and a message if the images do not allow it.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import fits
import numpy as np
import sep
from scipy.ndimage import affine_transform, binary_erosion, gaussian_filter
from scipy.optimize import minimize_scalar
from scipy.spatial import cKDTree
from steps import Step, run_step

BRIGHTEST = 60
STARS_MIN = 6
EDGE_PIXELS = 10
DETECT_SIGMA, DETECT_PIXELS, KEEP_SIGMA = 2.5, 5, 7.0
APERTURE_PIXELS, SAME_PLACE_PIXELS = 4.0, 2.0
NIGHTS_MIN = 2


def write(path: Path, pixels: np.ndarray, **header: float) -> None:
    path.write_bytes(fits.image_bytes(pixels, {"BUNIT": "count"} | {key: float(value) for key, value in header.items()}))


def without_sky(image: np.ndarray) -> tuple[np.ndarray, float]:
    """What is left above the sky, and its noise per pixel."""
    sky = sep.Background(image, bw=64, bh=64)
    return image - sky.back(), float(sky.globalrms)


def bright_stars(image: np.ndarray, noise: float) -> np.ndarray:
    """Rows of x, y."""
    found = sep.extract(image, 8 * noise, minarea=6)
    found = found[np.argsort(found["flux"])[::-1][:BRIGHTEST]]
    return np.stack([found["x"], found["y"]], axis=1)


def stars(exposure: Path, stars: Path) -> None:
    """exposure -> stars: where the brightest are; all others are put on the pixels of this one."""
    stars.write_text(json.dumps(bright_stars(*without_sky(fits.read(exposure)[0])).tolist()) + "\n")


def align(exposure: Path, stars: Path, aligned: Path) -> None:
    """exposure, stars -> aligned: without its sky, the stars where they are in the first exposure."""
    image, noise = without_sky(fits.read(exposure)[0])
    matrix, shift = similarity(np.array(json.loads(stars.read_text())), bright_stars(image, noise), str(exposure))
    # affine_transform speaks of (row, column), a similarity of (x, y).
    turned = affine_transform(image, matrix[::-1, ::-1], offset=shift[::-1], order=3, mode="constant", cval=np.nan)
    write(aligned, turned, NOISE=noise)


def similarity(target: np.ndarray, stars: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Where a place of the target lies among `stars`: place @ matrix.T + shift. First the shift most pairs agree on, then least squares."""
    if min(len(target), len(stars)) < STARS_MIN:
        sys.exit(f"{name}: {len(stars)} stars here, {len(target)} in the first exposure; {STARS_MIN} are needed to align it")
    shifts = (stars[None, :, :] - target[:, None, :]).reshape(-1, 2)
    votes = cKDTree(shifts)
    matrix, shift = np.eye(2), shifts[np.argmax(votes.query_ball_point(shifts, 2.5, return_length=True))]
    tree = cKDTree(stars)
    for reach in (4.0, 1.5, 1.0):
        distance, nearest = tree.query(target @ matrix.T + shift)
        matched = distance < reach
        if matched.sum() < STARS_MIN:
            sys.exit(f"{name}: only {matched.sum()} stars were found again; it cannot be aligned")
        matrix, shift = fit_similarity(target[matched], stars[nearest[matched]])
    return matrix, shift


def fit_similarity(points: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least squares for x' = a x - b y + c, y' = b x + a y + d."""
    x, y, one, zero = points[:, 0], points[:, 1], np.ones(len(points)), np.zeros(len(points))
    rows = np.concatenate([np.stack([x, -y, one, zero], axis=1), np.stack([y, x, zero, one], axis=1)])
    (a, b, c, d), *_ = np.linalg.lstsq(rows, np.concatenate([images[:, 0], images[:, 1]]), rcond=None)
    return np.array([[a, -b], [b, a]]), np.array([c, d])


def template(template: Path, images: Sequence[Path]) -> None:
    """images -> template: their median, so that cosmic rays of one do not count."""
    stack = [fits.read(image) for image in images]
    noise = np.sqrt(sum(float(header["NOISE"]) ** 2 for _, header in stack)) / len(stack)
    # The median is a little noisier than the mean: by the square root of half of pi for many, not at all for one or two.
    write(template, np.median([pixels for pixels, _ in stack], axis=0), NOISE=noise * (1.15 if len(stack) > 2 else 1.0))


def subtract(image: Path, template: Path, difference: Path, error: Path) -> None:
    """image, template -> difference, error: the sharper one is blurred until stars vanish, then taken away at the right brightness."""
    new, header = fits.read(image)
    old, old_header = fits.read(template)
    seen = np.isfinite(new) & np.isfinite(old)
    inner = binary_erosion(seen, iterations=EDGE_PIXELS, border_value=0)
    new, old = np.where(seen, new, 0.0), np.where(seen, old, 0.0)
    noise, old_noise = float(header["NOISE"]), float(old_header["NOISE"])
    stars = inner & (gaussian_filter(old, 2.0) > 4 * old_noise)
    if stars.sum() < 50:
        sys.exit(f"{image}: too few stars in common with {template} to compare them")
    best = minimize_scalar(lambda blur: remains(new, old, stars, blur), bounds=(-6, 6), method="bounded", options={"xatol": 0.01})
    sharp_new, sharp_old = blurred(new, old, best.x)
    scale = brightness(sharp_new, sharp_old, stars)
    left = np.where(inner, sharp_new - scale * sharp_old, np.nan)
    light = np.clip(scale * sharp_old, 0, None)
    write(difference, left, SCALE=scale, BLUR=float(best.x))
    write(error, np.sqrt(noise**2 + (scale * old_noise) ** 2 + light))


def blurred(new: np.ndarray, old: np.ndarray, blur: float) -> tuple[np.ndarray, np.ndarray]:
    """`blur` in square pixels: the old one's where it is positive, else the new one's."""
    if blur > 0:
        return new, gaussian_filter(old, np.sqrt(blur))
    return gaussian_filter(new, np.sqrt(-blur)), old


def brightness(new: np.ndarray, old: np.ndarray, stars: np.ndarray) -> float:
    """Least squares, twice: what exploded or struck meanwhile is no star to compare with."""
    keep = stars
    for _ in range(2):
        scale = float((new[keep] * old[keep]).sum() / (old[keep] ** 2).sum())
        off = abs(new - scale * old)
        keep = stars & (off < 5 * np.median(off[stars]))
    return scale


def remains(new: np.ndarray, old: np.ndarray, stars: np.ndarray, blur: float) -> float:
    """How much of the stars is left; by absolute values, since some will have exploded."""
    new, old = blurred(new, old, blur)
    return float(abs(new - brightness(new, old, stars) * old)[stars].sum())


def detect(difference: Path, error: Path, candidates: Path) -> None:
    """difference, error -> candidates: all that is brighter than before, beyond doubt."""
    image, header = fits.read(difference)
    errors = fits.read(error)[0]
    hidden = ~np.isfinite(image)
    image = np.where(hidden, 0.0, image)
    found = sep.extract(image, DETECT_SIGMA, err=errors, mask=hidden, minarea=DETECT_PIXELS)
    flux, flux_error, _ = sep.sum_circle(image, found["x"], found["y"], APERTURE_PIXELS, err=errors, mask=hidden)
    sure = flux / flux_error > KEEP_SIGMA
    columns = found["x"][sure], found["y"][sure], (flux / float(header["SCALE"]))[sure], (flux / flux_error)[sure]
    rows = (map(float, row) for row in zip(*columns, strict=True))
    said = [{"x": round(x, 3), "y": round(y, 3), "flux": round(light, 3), "sigma": round(sigma, 3)} for x, y, light, sigma in rows]
    candidates.write_text(json.dumps(said, indent=1) + "\n")


def join(transients: Path, candidates: Sequence[Path]) -> None:
    """candidates -> transients: what was seen at one place in two nights or more. A cosmic ray never is."""
    seen = [(entry, path.stem) for path in sorted(candidates) for entry in json.loads(path.read_text())]
    seen.sort(key=lambda found: -found[0]["sigma"])
    groups: list[list[tuple[dict[str, float], str]]] = []
    for entry, night in seen:
        near = (group for group in groups if np.hypot(group[0][0]["x"] - entry["x"], group[0][0]["y"] - entry["y"]) < SAME_PLACE_PIXELS)
        group = next(near, None)
        if group is None:
            groups.append([(entry, night)])
        else:
            group.append((entry, night))
    with transients.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["x", "y", "nights", "first", "brightest", "flux", "sigma"])
        for group in groups:
            nights = sorted({night for _, night in group})
            best, brightest = max(group, key=lambda found: found[0]["flux"])
            if len(nights) >= NIGHTS_MIN:
                rows.writerow([group[0][0]["x"], group[0][0]["y"], len(nights), nights[0], brightest, best["flux"], group[0][0]["sigma"]])


def score(truth: Path, transients: Path, score: Path) -> None:
    """truth, transients -> score: which of the injected ones were found, and what was found besides."""
    injected = np.array([(entry["x"], entry["y"]) for entry in json.loads(truth.read_text())]).reshape(-1, 2)
    with transients.open(newline="") as file:
        found = np.array([(float(row["x"]), float(row["y"])) for row in csv.DictReader(file)]).reshape(-1, 2)
    apart = np.hypot(*(injected[:, None, :] - found[None, :, :]).transpose(2, 0, 1))
    hit, right = (apart < SAME_PLACE_PIXELS).any(axis=1), (apart < SAME_PLACE_PIXELS).any(axis=0)
    missed = [{"x": float(x), "y": float(y)} for x, y in injected[~hit]]
    said = {"injected": len(injected), "found": int(hit.sum()), "false": int((~right).sum()), "missed": missed}
    score.write_text(json.dumps(said, indent=1) + "\n")


def main() -> None:
    steps = {
        "stars": Step(stars, ["exposure", "stars"]),
        "align": Step(align, ["exposure", "stars", "aligned"]),
        "template": Step(template, ["template"], ["images"]),
        "subtract": Step(subtract, ["image", "template", "difference", "error"]),
        "detect": Step(detect, ["difference", "error", "candidates"]),
        "join": Step(join, ["transients"], ["candidates"]),
        "score": Step(score, ["truth", "transients", "score"]),
    }
    run_step("One step of the search for supernovae.", steps)


if __name__ == "__main__":
    main()
