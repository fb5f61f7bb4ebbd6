"""The bandwidth that is declared for an origin, divided among the nodes that have transfers there, as a live scheduler does it.

May know: the links, the division. One rule: a node's line is never wider than its part.
"""

from __future__ import annotations

from math import inf

from stager.planning.allowances import Allowance, divided
from stager.sim.clock import Clock
from stager.sim.links import Links

WAYS = ("fetch", "upload")


class DividedLinks:
    """Of the origins with a declared bandwidth, where there are several nodes."""

    def __init__(self, links: Links, clock: Clock) -> None:
        self._links, self._clock = links, clock
        self._limits: dict[str, int] = {}
        self._lines: dict[str, float] = {}
        self._under_way: dict[str, dict[str, int]] = {}

    def declare(self, url: str, bytes_per_s: float, nodes: list[str]) -> None:
        """Before anything moves there."""
        self._limits[url], self._under_way[url] = int(bytes_per_s), {}
        for line in (f"line:{way}:{url}:{node}" for way in WAYS for node in nodes):
            self._lines[line] = self._links.bytes_per_s.get(line, inf)
            self._links.bytes_per_s[line] = min(self._lines[line], bytes_per_s)

    def begin(self, url: str, node: str) -> None:
        if url in self._limits:
            under_way = self._under_way[url]
            under_way[node] = under_way.get(node, 0) + 1
            if under_way[node] == 1:
                self._divide(url)

    def end(self, url: str, node: str) -> None:
        if url in self._limits:
            under_way = self._under_way[url]
            under_way[node] -= 1
            if not under_way[node]:
                del under_way[node]
                self._divide(url)

    def _divide(self, url: str) -> None:
        for node, part in divided(Allowance(self._limits[url]), list(self._under_way[url])).items():
            for line in (f"line:{way}:{url}:{node}" for way in WAYS):
                self._links.set_rate(self._clock.now, line, min(self._lines.get(line, inf), float(part.bytes_per_s or 0)))
