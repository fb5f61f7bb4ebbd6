"""The Machine's memory of a spill that is to be erased. One rule: the same as for all of the state (`state.py`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ErasedSpill:
    node: str
    run: str
    file: str
    token: str
