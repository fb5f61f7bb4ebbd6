"""Seeds of drawn cases, in small parts: they spread over workers, and a failure names few seeds.

One rule: the first part of each kind is for `make unit`, all of them are for `make test`. STAGER_SIM_SEEDS=n looks at n seeds of each kind
instead of the few that fit into a short test.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

SEEDS = int(os.environ.get("STAGER_SIM_SEEDS", "0"))
PART = 10


def parts(kinds: Mapping[str, int]) -> list[object]:
    """(kind, first seed of the part) for so many seeds of each kind, as `pytest.mark.parametrize` takes them."""
    firsts = [(kind, first) for kind, seeds in kinds.items() for first in range(0, SEEDS or seeds, PART)]
    return [pytest.param(kind, first, marks=[pytest.mark.slow] if first else []) for kind, first in firsts]
