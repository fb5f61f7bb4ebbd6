"""How fast bytes move now, from what was moved when somebody looked. One rule: telemetry only; nothing decides by it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from stager.wire.node import NodeTransfer

WINDOW_S = 10.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Moved:
    """Of one run, transfers under way included."""

    fetched_bytes: int
    uploaded_bytes: int
    fetch_bytes_per_s: float = 0.0
    upload_bytes_per_s: float = 0.0


class Rates:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.samples: dict[str, deque[tuple[float, int, int]]] = {}

    def sample(self, run: str, fetched_bytes: int, uploaded_bytes: int) -> Moved:
        now = self.clock()
        samples = self.samples.setdefault(run, deque())
        samples.append((now, fetched_bytes, uploaded_bytes))
        while len(samples) > 2 and samples[0][0] < now - WINDOW_S:
            samples.popleft()
        first = samples[0]
        past_s = now - first[0]
        if past_s <= 0:
            return Moved(fetched_bytes, uploaded_bytes)
        # A transfer that starts anew takes its bytes back.
        per_s = [max(0, new - old) / past_s for new, old in ((fetched_bytes, first[1]), (uploaded_bytes, first[2]))]
        return Moved(fetched_bytes, uploaded_bytes, *per_s)

    def forget(self, run: str) -> None:
        self.samples.pop(run, None)


class Totals:
    """Sums over a whole run, made again at most a tenth of the time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.made: dict[str, tuple[float, Any]] = {}

    def of(self, run: str, make: Callable[[], T]) -> T:
        now = self.clock()
        good_until, value = self.made.get(run, (0.0, None))
        if now < good_until:
            known: T = value
            return known
        made = make()
        spent_s = self.clock() - now
        self.made[run] = (now + 10 * spent_s, made)
        return made


def under_way(telemetry: Mapping[str, NodeTransfer], transfers: Iterable[str]) -> int:
    return sum(telemetry[transfer].bytes_done or 0 for transfer in transfers if transfer in telemetry)
