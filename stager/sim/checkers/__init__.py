"""Checkers: each watches one promise from outside, with accounts of its own, and never looks into the Machine.

One rule: a checker raises Violation with what happened, and changes nothing.
"""

from __future__ import annotations

from stager.sim.checkers.capacity import CapacityChecker
from stager.sim.checkers.commands import CommandChecker
from stager.sim.checkers.completion import EndingChecker
from stager.sim.checkers.departures import DepartureChecker
from stager.sim.checkers.engines import EngineChecker
from stager.sim.checkers.evictions import EvictionChecker
from stager.sim.checkers.extra_copies import ExtraCopyChecker
from stager.sim.checkers.hosts import HostChecker
from stager.sim.checkers.inputs import InputChecker
from stager.sim.checkers.joining import JoinChecker
from stager.sim.checkers.places import PlaceChecker
from stager.sim.world import Checker

__all__ = [
    "CapacityChecker",
    "CommandChecker",
    "DepartureChecker",
    "EndingChecker",
    "EngineChecker",
    "EvictionChecker",
    "HostChecker",
    "InputChecker",
    "JoinChecker",
    "PlaceChecker",
    "ExtraCopyChecker",
    "all_checkers",
]


def all_checkers() -> list[Checker]:
    first = [CapacityChecker(), InputChecker(), EvictionChecker(), CommandChecker(), PlaceChecker()]
    return [*first, DepartureChecker(), ExtraCopyChecker(), HostChecker(), JoinChecker(), EndingChecker(), EngineChecker()]
