"""Profiles as tables for people and as values for programs. One rule: what was not seen is an empty cell, and null."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from stager.cli.tables import print_table
from stager.model.profile import QUANTITIES, FileProfile, Profile, Quantity
from stager.model.units import counted, format_duration, format_size

# From this share of bytes read on from where the last read ended, reading is called sequential.
SEQUENTIAL_SHARE = 0.9
LISTED = {
    "wall": "wall_s",
    "cpu": "cpu_s",
    "memory": "memory_peak_bytes",
    "input": "input_bytes",
    "read": "read_bytes",
    "again": "reread_bytes",
    "touched": "read_fraction",
    "written": "written_bytes",
    "output": "output_bytes",
}


def list_profiles(profiles: Sequence[Profile]) -> None:
    columns = [("job type", "left"), ("jobs", "right"), ("runs", "right"), *((title, "right") for title in LISTED)]
    rows = []
    for profile in profiles:
        quantities = [getattr(profile, name) for name in LISTED.values()]
        cells = [middle(name, quantity) for name, quantity in zip(LISTED.values(), quantities, strict=True)]
        rows.append((profile.job_type, str(profile.samples), str(profile.runs), *cells))
    print_table(columns, rows)
    if any(is_imported(profile) for profile in profiles):
        click.echo("~ imported: not measured here yet")


def is_imported(profile: Profile) -> bool:
    return any(quantity.imported for name in LISTED.values() if (quantity := getattr(profile, name)) is not None)


def middle(name: str, quantity: Quantity | None) -> str:
    return "" if quantity is None else ("~" if quantity.imported else "") + shown(name)(quantity.median)


def show_profile(profile: Profile) -> None:
    click.echo(f"job type {profile.job_type}: {counted(profile.samples, 'job')} of {counted(profile.runs, 'run')}")
    columns = [
        ("quantity", "left"),
        ("middle", "right"),
        ("spread", "right"),
        ("95 of 100", "right"),
        ("jobs", "right"),
        ("by input size", "left"),
        ("", "left"),
    ]
    rows = [row_of(name, quantity) for name in QUANTITIES if (quantity := getattr(profile, name)) is not None]
    print_table(columns, rows)
    missing = [name for name in QUANTITIES if getattr(profile, name) is None]
    if missing:
        click.echo(f"not seen: {', '.join(missing)}")
    for title, files in (("inputs", profile.inputs), ("outputs", profile.outputs)):
        if files:
            click.echo()
            show_files(title, list(files.values()))


def row_of(name: str, quantity: Quantity) -> tuple[str, ...]:
    show = shown(name)
    line = quantity.line
    by_input = ""
    if line is not None:
        low, high = (f"{show(line.at(size))} at {format_size(size)}" for size in (line.low, line.high))
        by_input = f"{low}, {high}"
    spread = "" if quantity.spread is None or quantity.spread < 1.005 else f"x {quantity.spread:.3g}"
    origin = "imported" if quantity.imported else ""
    return name, show(quantity.median), spread, show(quantity.high), str(quantity.samples), by_input, origin


def show_files(title: str, files: Sequence[FileProfile]) -> None:
    columns = [(title, "left"), ("per job", "right"), ("size", "right"), ("largest", "right")]
    traced = title == "inputs" and any(found.touched_fraction is not None for found in files)
    columns += [("touched", "right"), ("read", "right"), ("how", "left")] if traced else []
    rows = []
    for found in files:
        size = found.size_bytes
        cells = [found.pattern, f"{found.files.median:.0f}"]
        cells += [format_size(size.median), format_size(size.high)] if size is not None else ["", ""]
        if traced:
            again = "" if found.reads_per_byte is None else f"{found.reads_per_byte.median:.2g}x"
            cells += [middle("fraction", found.touched_fraction), again, how(found.sequential_fraction)]
        rows.append(cells)
    print_table(columns, rows)


def how(sequential: Quantity | None) -> str:
    return "" if sequential is None else how_read(sequential.median)


def how_read(share: float) -> str:
    return "sequential" if share >= SEQUENTIAL_SHARE else f"random ({share:.0%} in sequence)"


def shown(name: str) -> Callable[[float], str]:
    if name.endswith("_s"):
        return format_duration
    if name.endswith("_bytes"):
        return format_size
    if name.endswith("fraction"):
        return lambda value: f"{value:.0%}"
    return lambda value: f"{value:.0f}"
