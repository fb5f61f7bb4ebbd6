"""An origin's limits divided among nodes: the division by itself, and who is told what, when.

One rule: whatever happens in whatever order, all nodes together never have more than there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stager.model.errors import InvalidInput, Transient
from stager.planning.allowances import Allowance, Division, divided
from stager.runtime.allowances import CLOSED_AFTER_S, LEASE_S, Allowances, NotAskedError

NODES = ("a", "b", "c", "d")


def test_parts_are_equal_and_no_more_nodes_than_connections_have_any() -> None:
    assert divided(Allowance(100, 7), ["a", "b", "c"]) == {"a": Allowance(34, 3), "b": Allowance(33, 2), "c": Allowance(33, 2)}
    assert divided(Allowance(100, 2), ["a", "b", "c"]) == {"a": Allowance(50, 1), "b": Allowance(50, 1)}
    assert divided(Allowance(None, 2), ["a"]) == {"a": Allowance(None, 2)}
    assert divided(Allowance(10), []) == {}


class Nodes:
    """What each node uses at most: what it was told, and, as long as it drains them, the connections that it had. The scheduler's word
    reaches it, and its answer the scheduler, or not.
    """

    def __init__(self, limits: Allowance) -> None:
        self.limits, self.now = limits, 0.0
        self.division = Division(limits, keep_s=1.0)
        self.uses: dict[str, tuple[Allowance, float]] = {}

    def tell(self, node: str, part: Allowance, heard: bool, answered: bool, drains: int) -> None:
        self.division.telling(node, part)
        has = self.uses.get(node, (self.division.nothing, 0.0))[0] if self.uses.get(node, (None, 0.0))[1] > self.now else None
        if heard:
            open_now = min(drains, has.connections or 0) if has is not None and has.connections is not None else 0
            used = part if part.connections is None else part._replace(connections=max(part.connections, open_now))
            self.uses[node] = used, self.now + LEASE_S
            if answered:
                self.division.told(node, part, used.connections or 0, self.now + LEASE_S)
                return
        self.division.not_told(node, self.now + LEASE_S)

    def check(self) -> None:
        using = [used for used, until in self.uses.values() if until > self.now]
        for most, each in zip(self.limits, zip(*using, strict=True) if using else (), strict=False):
            assert most is None or sum(part or 0 for part in each) <= most, (self.limits, self.uses)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("want", "over", "lost", "fresh", "pass", "fewer", "more", "release")),
        st.sampled_from(NODES),
        st.integers(0, 5),
        st.booleans(),
        st.booleans(),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from((Allowance(1000, 3), Allowance(1000), Allowance(None, 1), Allowance(7, 4))), STEPS)
def test_whatever_happens_all_together_never_have_more_than_there_is(
    limits: Allowance, steps: list[tuple[str, str, int, bool, bool]]
) -> None:
    nodes = Nodes(limits)
    division = nodes.division
    for step, node, number, heard, answered in steps:
        if step == "want":
            division.want(node, f"{node}{number}")
        elif step == "over":
            division.over(node, f"{node}{number}")
        elif step == "lost":
            division.lost(node)
        elif step == "fresh":
            nodes.uses.pop(node, None)
            division.fresh(node)
        elif step == "pass":
            nodes.now += number * 7.0
            division.pass_to(nodes.now)
        elif step == "release":
            for served, _ in division.released():
                assert nodes.uses[served][0].is_usable
        else:
            for told, part in (division.fewer() if step == "fewer" else division.more()).items():
                nodes.tell(told, part, heard, answered, number)
                nodes.check()
        nodes.check()


def test_with_one_connection_nodes_take_turns_and_a_busy_one_keeps_its_own() -> None:
    nodes = Nodes(Allowance(None, 1))
    division = nodes.division

    def settle() -> list[tuple[str, str]]:
        for parts in (division.fewer(), division.more()):
            for node, part in parts.items():
                nodes.tell(node, part, True, True, 0)
        if division.more():
            return settle()
        return division.released()

    division.want("a", "a1")
    assert settle() == [("a", "a1")]
    division.want("b", "b1")
    division.want("a", "a2")
    assert settle() == []
    division.over("a", "a1")
    assert settle() == [("b", "b1")]
    division.over("b", "b1")
    assert settle() == [("a", "a2")]


class ToldNode:
    """Says what it was told; `away`: it does not answer; `is_old`: it does not know the call."""

    def __init__(self, told: list[tuple[str, int | None, int | None]], name: str) -> None:
        self.told, self.name, self.away, self.open, self.is_old = told, name, False, 0, False

    async def allow(self, origin: str, bytes_per_s: int | None, connections: int | None, lease_s: float, *, timeout_s: float) -> int:
        await asyncio.sleep(0)
        if self.away:
            raise Transient("away", code="connection_lost")
        if self.is_old:
            raise InvalidInput("there is no such call", code="not_found")
        self.told.append((self.name, bytes_per_s, connections))
        return min(self.open, connections or 0) if self.open != 99 else 99


CONFIG = {"kind": "sftp", "bandwidth_bytes_per_s_max": 100, "connections_max": 4}


class Bed:
    def __init__(self, *names: str, predecessor: bool = False) -> None:
        self.now = 0.0
        self.told: list[tuple[str, int | None, int | None]] = []
        self.all = Allowances(lambda: self.now, predecessor=predecessor)
        self.nodes = {name: ToldNode(self.told, name) for name in names}
        self.of = {name: self.all.of(name, cast(Any, node)) for name, node in self.nodes.items()}
        for one in self.of.values():
            one.met("i1")

    async def require(self, node: str, what: str) -> None:
        async with asyncio.timeout(5.0):
            await self.of[node].require("o1", CONFIG, what)


def lives(steps: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await steps()

    asyncio.run(main())


def test_a_node_alone_is_asked_at_once_and_told_nothing() -> None:
    async def steps() -> None:
        bed = Bed("a")
        await bed.require("a", "t1")
        assert bed.told == []
        # A second one joins: the first has less before the second has any.
        bed.nodes["b"] = ToldNode(bed.told, "b")
        bed.of["b"] = bed.all.of("b", cast(Any, bed.nodes["b"]))
        bed.of["b"].met("i1")
        await bed.require("b", "t2")
        assert bed.told == [("a", 50, 2), ("b", 50, 2)]
        # The first is done with it.
        bed.all.ended("t1")
        bed.now += 10.0
        await bed.require("b", "t3")
        await bed.all.close()

    lives(steps)


def test_a_lost_node_keeps_its_part_until_its_lease_ends() -> None:
    async def steps() -> None:
        bed = Bed("a", "b")
        await bed.require("a", "t1")
        bed.nodes["a"].away = True
        bed.of["a"].lost()
        waiting = asyncio.ensure_future(bed.require("b", "t2"))
        await asyncio.sleep(0.5)
        assert not waiting.done() and bed.told == [("a", 100, 4)]
        bed.now += LEASE_S + CLOSED_AFTER_S + 1
        await waiting
        assert bed.told[-1] == ("b", 100, 4)
        await bed.all.close()

    lives(steps)


def test_a_node_of_an_older_version_is_asked_all_the_same() -> None:
    async def steps() -> None:
        bed = Bed("a", "b")
        bed.nodes["a"].is_old = True
        await bed.require("a", "t1")
        await bed.require("b", "t2")
        assert bed.told == [("b", 50, 2)]
        await bed.all.close()

    lives(steps)


def test_what_an_earlier_scheduler_told_counts_until_its_lease_would_end() -> None:
    async def steps() -> None:
        bed = Bed("a", "b", predecessor=True)
        bed.of["a"].lost()
        waiting = asyncio.ensure_future(bed.require("b", "t1"))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        # It was started anew meanwhile.
        bed.of["a"].met("i2")
        await waiting
        await bed.all.close()

    lives(steps)


def test_what_is_called_off_or_of_a_lost_node_is_not_asked() -> None:
    async def steps() -> None:
        bed = Bed("a", "b")
        for node in bed.nodes.values():
            node.away = True
        first, second = (asyncio.ensure_future(bed.require(node, f"t{node}")) for node in "ab")
        await asyncio.sleep(0)
        bed.of["a"].withdraw("ta")
        bed.of["b"].lost()
        for each in (first, second):
            with pytest.raises(NotAskedError):
                await each
        await bed.all.close()

    lives(steps)
