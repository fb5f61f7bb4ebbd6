"""Cases in which an origin is away for long. One rule: everything follows from the seed of the case."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from stager.model.errors import UNREACHABLE_CODES
from stager.planning.policy import Policy
from stager.sim.faults import Trouble

if TYPE_CHECKING:
    from tests.sim.cases import Case


def with_long_outage(case: Case, horizon_s: float) -> Case:
    """In one case of three an origin is away for much longer than all else takes: waited for to its end, or given up and resumed."""
    random = Random(f"away/{case.seed}")
    if random.random() > 0.33:
        return case
    lasts_s, code = random.choice((60.0, 300.0, 1200.0)), random.choice(sorted(UNREACHABLE_CODES))
    trouble = Trouble(random.random() * horizon_s, "origin", lasts_s, random.random(), code)
    troubles = tuple(sorted((*case.faults.troubles, trouble), key=lambda each: (each.at, each.what)))
    faults = replace(case.faults, until_s=max(horizon_s, trouble.at + lasts_s), troubles=troubles)
    policy = random.choice((Policy(), Policy(), Policy(outage_s_max=20.0)))
    return replace(case, faults=faults, policy=policy, resumes_max=case.resumes_max + int(lasts_s))
