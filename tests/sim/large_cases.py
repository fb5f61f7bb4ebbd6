"""Files so large that they are worth fetching in stripes, and what has to be as large and as fast for them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from msgspec import structs

from stager.model.files import File
from stager.planning.plan import Plan

LARGE = 80_000  # A file of the largest size that is drawn then has some twenty stripes.


def large(value: Any) -> Any:
    """The same file, source, node or link with so many times as many bytes, and as fast for them."""
    if isinstance(value, File):
        value = replace(value, sources=tuple(large(source) for source in value.sources))
    fields = ("size_bytes", "capacity_bytes", "disk_bytes_per_s", "network_bytes_per_s", "fetch_bytes_per_s", "upload_bytes_per_s")
    return replace(value, **{name: getattr(value, name) * LARGE for name in fields if getattr(value, name, None) is not None})


def striped(plan: Plan, nodes: int, random: Random) -> Plan:
    """Some of its files in so many stripes as somebody might have planned."""
    chosen = (random.choice((1, 2, nodes, nodes)) for _ in plan.files)
    return replace(plan, files=tuple(structs.replace(file, stripes=stripes) for file, stripes in zip(plan.files, chosen, strict=True)))
