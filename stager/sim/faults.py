"""The faults of a run, and their times: a value drawn from a seed before the run begins.

May know: draws. One rule: after `until_s` nothing goes wrong any more, so that a run that does not end then is the Machine's fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from stager.model.errors import ErrorClass, Fault
from stager.sim.sampling import fraction

TRANSFER_FAULTS = (
    Fault(ErrorClass.TRANSIENT, "connection_lost", "the connection was lost half way; it is tried again"),
    Fault(ErrorClass.TRANSIENT, "timeout", "no byte came for too long; it is tried again"),
    Fault(ErrorClass.CORRUPT, "checksum_mismatch", "the bytes that came are not those expected; they were deleted"),
    Fault(ErrorClass.TRANSIENT, "short_read", "the file ended early; the bytes that came were deleted"),
    Fault(ErrorClass.TRANSIENT, "io_error", "a disk answered with an error"),
)
JOB_FAULT = Fault(ErrorClass.TRANSIENT, "exit_code", "the job ended with exit code 1")
ORIGIN_FAULTS = {
    "origin_unreachable": Fault(ErrorClass.TRANSIENT, "origin_unreachable", "the origin does not answer"),
    "connection_lost": Fault(ErrorClass.TRANSIENT, "connection_lost", "the origin ends every connection"),
    "timeout": Fault(ErrorClass.TRANSIENT, "timeout", "the origin takes connections and says nothing"),
    "denied": Fault(ErrorClass.DENIED, "denied", "the origin refuses these credentials"),
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that begins at a time and lasts. `at_share` picks the victim. `what`: restart, outage, crash, origin, corrupt,
    kill, slow, lost, gone, drains, joins; of hosts: host_lost, host_gone, host_drains, host_joins, host_moves. `code`: of an origin,
    the fault; of a host, its name.
    """

    at: float
    what: str
    lasts_s: float = 0.0
    at_share: float = 0.0
    code: str = ""


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares are chances per transfer, attempt, delete or event."""

    seed: int = 0
    until_s: float = 0.0
    transfer_share: float = 0.0
    attempt_share: float = 0.0
    busy_share: float = 0.0
    repeat_share: float = 0.0
    troubles: tuple[Trouble, ...] = ()

    def strikes(self, now: float, share: float, *names: str) -> bool:
        return bool(share) and now < self.until_s and fraction(self.seed, *names) < share

    def transfer_fault(self, now: float, transfer: str) -> tuple[Fault, float] | None:
        """(what, after which part of its bytes), or None."""
        if not self.strikes(now, self.transfer_share, "transfer", transfer):
            return None
        which = fraction(self.seed, "which", transfer)
        return TRANSFER_FAULTS[int(which * len(TRANSFER_FAULTS))], fraction(self.seed, "when", transfer)


NO_FAULTS = Faults()
ALL_TROUBLES = ("restart", "outage", "crash", "origin", "corrupt", "kill")
# With nodes that come back without their disks: what only they held has to be made again.
WITH_LOSSES = (*ALL_TROUBLES, "lost")
HOST_TROUBLES = ("host_lost", "host_gone", "host_drains", "host_joins", "host_moves")
# And with nodes that leave for good, that are to leave, and that come late.
WITH_DEPARTURES = (*WITH_LOSSES, "gone", "drains", "joins")


# As a cloud takes to give another machine.
REPLACED_AFTER_S = 60.0


def sampled_losses(
    seed: int, failures_per_hour: Sequence[float], horizon_s: float, lasts_s: float = REPLACED_AFTER_S
) -> tuple[Trouble, ...]:
    """When each node is lost with its disk, for as long as this horizon: at random, each at its own rate (a Poisson process)."""
    troubles = []
    for node, rate in enumerate(failures_per_hour):
        random = Random(f"losses/{seed}/{node}")
        at = random.expovariate(rate / 3600.0) if rate > 0 else horizon_s
        while at < horizon_s:
            troubles.append(Trouble(at, "lost", lasts_s, (node + 0.5) / len(failures_per_hour)))
            at += lasts_s + random.expovariate(rate / 3600.0)
    return tuple(sorted(troubles, key=lambda trouble: (trouble.at, trouble.at_share)))


def sampled_faults(seed: int, horizon_s: float, kinds: tuple[str, ...] = ALL_TROUBLES) -> Faults:
    """A few troubles of each kind over the horizon, and a share of everything else; about one seed in four has none of a given kind."""
    random = Random(f"faults/{seed}")
    troubles = []
    for kind in kinds:
        for _ in range(random.choice((0, 1, 1, 3))):
            code = random.choice(("origin_unreachable", "origin_unreachable", "denied")) if kind == "origin" else ""
            lasts_s = random.choice((0.0, 0.05, 0.2)) * random.random() * horizon_s
            troubles.append(Trouble(random.random() * horizon_s, kind, lasts_s, random.random(), code))
    return Faults(
        seed,
        horizon_s,
        transfer_share=random.choice((0.0, 0.05, 0.2)),
        attempt_share=random.choice((0.0, 0.05, 0.1)),
        busy_share=random.choice((0.0, 0.2)),
        repeat_share=random.choice((0.0, 0.1)),
        troubles=tuple(sorted(troubles, key=lambda trouble: (trouble.at, trouble.what))),
    )
