"""Reads and writes the simplest FITS files: one image of 32- or 64-bit floats and its header.

May know: numpy, the FITS standard. One rule: what it writes any FITS reader can read; what it reads it checks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

CARD, BLOCK = 80, 2880
TYPES = {-32: ">f4", -64: ">f8"}
Header = dict[str, bool | int | float | str]


def card(key: str, value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        text = f"{'T' if value else 'F':>20}"
    elif isinstance(value, (int, float)):
        text = f"{value!r:>20}".upper()
    else:
        text = f"'{value:<8}'"
    return f"{key:<8}= {text}".ljust(CARD)


def header_lines(header: Header) -> list[str]:
    return [card(key, value) for key, value in header.items()] + ["END".ljust(CARD)]


def image_bytes(pixels: np.ndarray, header: Header) -> bytes:
    """`header` holds what is beyond the shape: the WCS and words for people."""
    rows, columns = pixels.shape
    basic: Header = {"SIMPLE": True, "BITPIX": -32, "NAXIS": 2, "NAXIS1": columns, "NAXIS2": rows}
    head = "".join(header_lines(basic | header)).encode("ascii")
    data = pixels.astype(">f4").tobytes()
    return head.ljust(-(-len(head) // BLOCK) * BLOCK) + data.ljust(-(-len(data) // BLOCK) * BLOCK, b"\0")


def read(path: Path) -> tuple[np.ndarray, Header]:
    """Pixels as native 64-bit floats, the first row at the bottom of the picture, and the header. ValueError if they are no floats."""
    raw = path.read_bytes()
    header: Header = {}
    for start in range(0, len(raw), CARD):
        line = raw[start : start + CARD].decode("ascii")
        key = line[:8].strip()
        if key == "END":
            break
        if line[8:10] == "= ":
            header[key] = value_of(line[10:])
    else:
        raise ValueError(f"{path}: no END in the header; is this a FITS file?")
    kind, columns, rows = header.get("BITPIX"), int(header.get("NAXIS1", 0)), int(header.get("NAXIS2", 0))
    if kind not in TYPES:
        raise ValueError(f"{path}: BITPIX is {kind}, only floats are read here")
    offset = -(-(start + CARD) // BLOCK) * BLOCK
    pixels = np.frombuffer(raw, TYPES[int(kind)], count=rows * columns, offset=offset)
    return pixels.reshape(rows, columns).astype(np.float64), header


def value_of(text: str) -> bool | int | float | str:
    if text.lstrip().startswith("'"):
        return text.split("'")[1].rstrip()
    text = text.split("/")[0].strip()
    if text in ("T", "F"):
        return text == "T"
    return float(text) if any(mark in text for mark in ".EDN") else int(text)
