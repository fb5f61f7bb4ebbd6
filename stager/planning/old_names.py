"""The names of before in plans of version 4 and earlier, and those of today.

May know: plain values, as JSON or MessagePack give them. One rule: names alone change; what they hold stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PLAN_NAMES = {"read_in_place_bytes": "direct_read_bytes"}
FILE_NAMES = {"in_place": "direct_access"}
WAY_NAMES = {"in_place_s": "direct_s", "in_place_bytes": "direct_bytes"}


def renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in values.items()}


def plan_with_present_names(plan: Mapping[str, Any]) -> dict[str, Any]:
    """`plan`: its fields by their names, its files as a list of such. One that has the present names stays as it is."""
    return renamed(plan, PLAN_NAMES) | {"files": [file_with_present_names(file) for file in plan.get("files", ())]}


def file_with_present_names(file: Mapping[str, Any]) -> dict[str, Any]:
    found = renamed(file, FILE_NAMES)
    if found.get("direct_access") is not None:
        found["direct_access"] = renamed(found["direct_access"], WAY_NAMES)
    return found
