"""The hits of other caches with the same work: MIN, which knows the future, and LRU, which knows the past.

May know: nothing but numbers. One rule: everybody has the same accesses in the same order, the same pins and the same space; only what is
evicted when space is short is theirs to choose.

MIN evicts the file of farthest next use (Belady, "A study of replacement algorithms for a virtual-storage computer", 1966), the rule that
is best where all files have one size. Aware of sizes, it then takes back, those used soonest first, what it need not have evicted because
of a larger one. The best choice for files of different sizes is NP-hard; `clairvoyant_bound_bytes` is what even that cannot exceed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush

NEVER = 1 << 60


class Rule(StrEnum):
    MIN = "MIN"
    LRU = "LRU"


@dataclass(frozen=True, slots=True)
class Take:
    """A job is given its inputs, each (file, bytes) once: what is not there is fetched, all are pinned; outputs get room."""

    owner: Hashable
    files: tuple[tuple[Hashable, int], ...]
    reserve_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Give:
    """Its pins and its room are given back; there is now what it made, each (file, bytes, whether it must stay until freed)."""

    owner: Hashable
    made: tuple[tuple[Hashable, int, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Free:
    """A file that had to stay can be had elsewhere now, or is wanted no more."""

    file: Hashable


Step = Take | Give | Free


@dataclass(frozen=True, slots=True)
class Hits:
    """Of `taken_bytes` that jobs were given, `hit_bytes` were there. `spilled_bytes` of what was made had to be put elsewhere before it was
    evicted. `overfull_bytes`: how far what was pinned ever exceeded the space.
    """

    taken_bytes: int
    hit_bytes: int
    spilled_bytes: int = 0
    overfull_bytes: int = 0

    @property
    def fetched_bytes(self) -> int:
        return self.taken_bytes - self.hit_bytes

    @property
    def rate(self) -> float | None:
        """None: jobs were given nothing."""
        return self.hit_bytes / self.taken_bytes if self.taken_bytes else None


def hits_of(rule: Rule, steps: Sequence[Step], capacity_bytes: int) -> Hits:
    """Of a cache that is empty at first and fetches only what is asked for."""
    cache = RivalCache(rule, steps, capacity_bytes)
    for step in steps:
        cache.do(step)
    return Hits(cache.taken_bytes, cache.hit_bytes, cache.spilled_bytes, cache.overfull_bytes)


@dataclass(slots=True)
class Held:
    size_bytes: int
    pins: int = 0
    must_stay: bool = False
    # Smaller goes first; the second settles ties by age.
    key: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class RivalCache:
    rule: Rule
    steps: Sequence[Step]
    capacity_bytes: int
    taken_bytes: int = 0
    hit_bytes: int = 0
    spilled_bytes: int = 0
    overfull_bytes: int = 0
    used_bytes: int = 0
    now: int = 0
    held: dict[Hashable, Held] = field(default_factory=dict)
    open: dict[Hashable, Take] = field(default_factory=dict)
    only_here: dict[Hashable, None] = field(default_factory=dict)
    uses: dict[Hashable, list[int]] = field(default_factory=dict)
    victims: list[tuple[tuple[int, int], Hashable]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """`uses`: where each file is taken, the next one last."""
        for index in range(len(self.steps) - 1, -1, -1):
            step = self.steps[index]
            if isinstance(step, Take):
                for file, _ in step.files:
                    self.uses.setdefault(file, []).append(index)

    def do(self, step: Step) -> None:
        if isinstance(step, Take):
            self.take(step)
        elif isinstance(step, Give):
            self.give(step)
        elif step.file in self.held and self.held[step.file].must_stay:
            self.held[step.file].must_stay = False
            self.only_here.pop(step.file, None)
            self.settle(step.file)
        if self.used_bytes > self.capacity_bytes:
            self.free_space()
        self.now += 1

    def take(self, step: Take) -> None:
        self.open[step.owner] = step
        self.used_bytes += step.reserve_bytes
        for file, size_bytes in step.files:
            self.taken_bytes += size_bytes
            self.uses[file].pop()
            entry = self.held.get(file)
            if entry is None:
                entry = self.put(file, size_bytes)
            else:
                self.hit_bytes += size_bytes
            entry.pins += 1

    def give(self, step: Give) -> None:
        taken = self.open.pop(step.owner)
        self.used_bytes -= taken.reserve_bytes
        for file, _ in taken.files:
            self.held[file].pins -= 1
            self.settle(file)
        for file, size_bytes, must_stay in step.made:
            entry = self.held.get(file) or self.put(file, size_bytes)
            entry.must_stay = must_stay
            self.only_here[file] = None
            self.settle(file)

    def put(self, file: Hashable, size_bytes: int) -> Held:
        entry = self.held[file] = Held(size_bytes)
        self.used_bytes += size_bytes
        return entry

    def settle(self, file: Hashable) -> None:
        """A file that is bound no more can be evicted; MIN drops at once one that is never used again."""
        entry = self.held[file]
        if entry.pins or entry.must_stay:
            return
        if self.rule is Rule.MIN:
            uses = self.uses.get(file)
            if not uses:
                self.drop(file)
                return
            entry.key = (-uses[-1], self.now)
        else:
            entry.key = (self.now, 0)
        heappush(self.victims, (entry.key, file))

    def drop(self, file: Hashable) -> int:
        size_bytes = self.held.pop(file).size_bytes
        self.used_bytes -= size_bytes
        return size_bytes

    def free_space(self) -> None:
        evicted: list[tuple[tuple[int, int], Hashable, int]] = []
        while self.used_bytes > self.capacity_bytes and self.victims:
            key, file = heappop(self.victims)
            entry = self.held.get(file)
            if entry is not None and not entry.pins and not entry.must_stay and entry.key == key:
                evicted.append((key, file, self.drop(file)))
        self.overfull_bytes = max(self.overfull_bytes, self.used_bytes - self.capacity_bytes)
        if self.rule is Rule.MIN:
            for key, file, size_bytes in reversed(evicted):
                if self.used_bytes + size_bytes <= self.capacity_bytes:
                    self.put(file, size_bytes).key = key
                    heappush(self.victims, (key, file))
        for _, file, size_bytes in evicted:
            if file in self.only_here and file not in self.held:
                del self.only_here[file]
                self.spilled_bytes += size_bytes
