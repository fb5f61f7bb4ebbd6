"""Seeds of drawn cases, in small parts: they spread over workers, and a failure names few seeds.

One rule: the first part of each kind is small, for `make unit`; the first quarter is for `make test`, the rest for `make heavy`.
STAGER_SIM_SEEDS=n looks at n seeds of each kind instead of the few that fit into a short test.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import pairwise

import pytest

SEEDS = int(os.environ.get("STAGER_SIM_SEEDS", "0"))
QUICK, PART = 1, 10


def parts(kinds: Mapping[str, int]) -> list[object]:
    """(kind, range of seeds) for so many seeds of each kind, as `pytest.mark.parametrize` takes them."""
    found = []
    for kind, number in kinds.items():
        ends = [*range(QUICK, SEEDS or number, PART), SEEDS or number]
        for start, end in pairwise([0, *ends]):
            marks = [pytest.mark.slow] if start else []
            if not SEEDS and start > number // 4:
                marks.append(pytest.mark.heavy)
            found.append(pytest.param(kind, range(start, end), id=f"{kind}-{start}", marks=marks))
    return found
