"""Sizes and times as people write and read them. One rule: numbers inside are bytes and seconds, always."""

from __future__ import annotations

import re
from math import floor, isfinite, log10, nan

SUFFIXES = {
    "": 1,
    "B": 1,
    "K": 10**3,
    "KB": 10**3,
    "M": 10**6,
    "MB": 10**6,
    "G": 10**9,
    "GB": 10**9,
    "T": 10**12,
    "TB": 10**12,
    "P": 10**15,
    "PB": 10**15,
}
SUFFIXES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "PIB": 2**50}
# What the journal's integers hold.
SIZE_BYTES_MAX = 2**63 - 1
# What the reaper waits at most.
DURATION_S_MAX = 1e9
TIMES = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
BITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12}
MONEY_PLACES = 9
MONEY = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([A-Za-z]{3})\s*\Z")
PLAIN_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*\Z")


def parse_number(text: str) -> float:
    """Less than Python takes for one: no `nan`, no `1_000`. Raises ValueError."""
    found = float(text) if PLAIN_NUMBER.fullmatch(text) else nan
    if not isfinite(found):
        raise ValueError(f"{text!r} is not a number")
    return found


def parse_size_bytes(text: str | int | float) -> int:
    """`10 GB`, `512MiB`, `4096` -> bytes. Raises ValueError with what is allowed."""
    if isinstance(text, (int, float)) and not isinstance(text, bool) and 0 <= text <= SIZE_BYTES_MAX:
        return int(text)
    match = NUMBER.match(str(text))
    if not match or match[2].upper() not in SUFFIXES or float(match[1]) * SUFFIXES[match[2].upper()] > SIZE_BYTES_MAX:
        raise ValueError(f"{text!r} is not a size; write a number with B, KB, MB, GB, TB or KiB, MiB, GiB, TiB, as in '10 GB'")
    return round(float(match[1]) * SUFFIXES[match[2].upper()])


def parse_rate_bytes_per_s(text: str) -> float:
    """`50 MB/s`, `1 Gbit/s`, with or without the `/s` -> bytes per second. Raises ValueError with what is allowed."""
    amount = text.strip().removesuffix("/s")
    match = NUMBER.match(amount)
    bits = BITS.get(match[2].lower()) if match else None
    try:
        rate = float(match[1]) * bits / 8 if match and bits else float(parse_size_bytes(amount))
    except ValueError:
        rate = 0.0
    if not 0 < rate <= SIZE_BYTES_MAX:
        raise ValueError(f"{text!r} is not a rate; write a number above 0 with B, KB, MB, GB or Mbit, Gbit a second, as in '50 MB/s'")
    return rate


def parse_duration_s(text: str | int | float) -> float:
    """`90`, `1.5h`, `20 min` -> seconds. Raises ValueError with what is allowed."""
    if isinstance(text, (int, float)) and not isinstance(text, bool) and 0 <= text <= DURATION_S_MAX:
        return float(text)
    match = NUMBER.match(str(text))
    if not match or match[2] not in TIMES:
        raise ValueError(f"{text!r} is not a duration; write a number with ms, s, min, h or d, as in '20 min'")
    seconds = float(match[1]) * TIMES[match[2]]
    if seconds > DURATION_S_MAX:
        raise ValueError(f"{text!r} is longer than {DURATION_S_MAX:,.0f} s, which are 31 years")
    return seconds


def format_size(size_bytes: float) -> str:
    """4 digits at most, decimal units: `1.53 GB`."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(size_bytes) < 999.5 or unit == "TB":
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.3g} {unit}"
        size_bytes /= 1000
    raise AssertionError("unreachable: TB ends the loop")


def format_duration(seconds: float) -> str:
    """`0.42 s`, `12 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_money(amount: float) -> str:
    """Cents where there are some, else as many places as it takes to see something. `parse_money` reads it."""
    if amount >= 0.1 or amount <= 0:
        return f"{amount:.2f}"
    places = min(MONEY_PLACES, 1 - floor(log10(amount)))
    return f"{max(amount, 10.0**-MONEY_PLACES):.{places}f}".rstrip("0")


def parse_money(text: str) -> tuple[float, str]:
    """`20 USD` -> (20.0, `USD`). Raises ValueError with what is allowed."""
    match = MONEY.match(str(text))
    if not match or float(match[1]) <= 0:
        raise ValueError(f"{text!r} is no amount of money; write a number above 0 and a currency, as in '20 USD'")
    return float(match[1]), match[2].upper()


def counted(count: int, what: str, one: str = "", more: str = "") -> str:
    """`1 file`, `2 files`; with what one does and more do: `1 file is there`, `2 files are there`."""
    does = one if count == 1 else more
    return f"{count} {what}{'' if count == 1 else 's'}{f' {does}' if does else ''}"
