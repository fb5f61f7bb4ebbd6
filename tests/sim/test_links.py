"""Fair sharing by groups against a slow model that treats each flow by itself."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stager.sim.links import Links


class SlowLinks:
    """Each flow by itself: rates by water filling over flows, time from one end to the next."""

    def __init__(self, bytes_per_s: dict[str, float]) -> None:
        self.bytes_per_s = bytes_per_s
        self.flows: dict[int, tuple[tuple[str, ...], float, int]] = {}
        self.now = 0.0

    def rates(self) -> dict[int, float]:
        left = dict(self.bytes_per_s)
        rates: dict[int, float] = {}
        waiting = dict(self.flows)
        while waiting:
            best = (inf, "")
            for link, room in left.items():
                users = sum(weight for path, _, weight in waiting.values() if link in path)
                if users:
                    best = min(best, (room / users, link))
            share, link = best
            settled = [flow for flow, (path, _, _) in waiting.items() if not link or link in path]
            for flow in settled:
                path, _, weight = waiting.pop(flow)
                rates[flow] = share * weight
                for name in path:
                    if name in left:
                        left[name] -= rates[flow]
        return rates

    def run_until(self, time: float) -> dict[int, float]:
        """Ends of flows by then."""
        ends: dict[int, float] = {}
        while self.flows:
            rates = self.rates()
            step = min((size / rates[flow] if rates[flow] else inf) for flow, (_, size, _) in self.flows.items())
            stop = self.now + step > time
            step = time - self.now if stop else step
            self.now += step
            for flow, (path, size, weight) in list(self.flows.items()):
                size -= rates[flow] * step if rates[flow] != inf else size
                self.flows[flow] = (path, size, weight)
                if size <= 1e-6:
                    ends[flow] = self.now
                    del self.flows[flow]
            if stop:
                break
        self.now = max(self.now, time) if time != inf else self.now
        return ends


PATHS = [("wan_a", "disk"), ("wan_b", "disk"), ("disk",), ("wan_a",), ("wan_a", "wan_b", "disk")]
# Seconds since the one before, the path, the bytes, the weight; or the oldest flow is called off, or weighed.
Step = tuple[float, int, float, int, str]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 5),
            st.integers(0, 4),
            st.floats(0.5, 100),
            st.sampled_from([1, 8]),
            st.sampled_from(["start", "start", "stop", "weigh"]),
        ),
        max_size=12,
    ),
    st.integers(1, 50),
    st.integers(1, 50),
)
def test_flows_end_when_the_slow_model_says(steps: list[Step], wan: int, disk: int) -> None:
    capacity = {"wan_a": float(wan), "wan_b": 7.0, "disk": float(disk)}
    slow, fast = SlowLinks(capacity), Links(capacity)
    expected: dict[int, float] = {}
    seen: dict[int, float] = {}
    now, flows = 0.0, {}

    def run(until: float) -> None:
        while fast.next_at() <= until:
            at = fast.next_at()
            seen.update(dict.fromkeys(fast.take_ended(at), at))

    for number, (gap, path, size, weight, what) in enumerate(steps):
        now += gap
        expected |= slow.run_until(now)
        run(now)
        if what == "stop" and flows:
            victim = min(flows)
            fast.stop(now, flows.pop(victim))
            slow.flows.pop(victim, None)
        elif what == "weigh" and flows.keys() & slow.flows.keys():
            weighed = min(flows.keys() & slow.flows.keys())
            flows[weighed] = fast.weigh(now, flows[weighed], weight)
            slow.flows[weighed] = (*slow.flows[weighed][:2], weight)
        else:
            flows[number] = fast.start(now, PATHS[path], size, number, weight)
            slow.flows[number] = (PATHS[path], size, weight)
    expected |= slow.run_until(inf)
    run(1e12)
    assert seen.keys() == expected.keys()
    for flow, at in expected.items():
        assert seen[flow] == pytest.approx(at, rel=1e-6, abs=1e-3)


def test_a_lone_flow_gets_its_narrowest_link_and_two_share_it() -> None:
    links = Links({"wan": 10.0, "disk": 100.0})
    links.start(0.0, ("wan", "disk"), 100, "one")
    assert links.next_at() == 10
    links.start(5.0, ("wan", "disk"), 100, "two")
    assert links.next_at() == 15
    assert links.take_ended(15.0) == ["one"]
    assert links.next_at() == 20
    assert links.take_ended(20.0) == ["two"]
    assert links.next_at() == inf


def test_unlimited_links_take_no_time() -> None:
    links = Links({})
    links.start(1.0, ("anything",), 10**15, "flow")
    assert links.next_at() == 1.0
    assert links.take_ended(1.0) == ["flow"]


def test_a_link_is_busy_for_what_passed_it() -> None:
    """100 bytes, half of 60 that are called off when they and the rest have shared the link, and nothing of what is still under way."""
    links = Links({"wan": 10.0, "disk": 100.0, "idle": 1.0})
    links.start(0.0, ("wan", "disk"), 100, "one")
    other = links.start(0.0, ("wan", "disk"), 60, "two")
    links.stop(6.0, other)
    assert links.next_at() == 13
    assert links.take_ended(13.0) == ["one"]
    links.start(13.0, ("wan", "disk"), 60, "three")
    links.next_at()
    links.take_ended(14.0)
    assert links.busy_s() == pytest.approx({"wan": 13.0, "disk": 1.3, "idle": 0.0})


def test_a_flow_gets_as_much_as_its_weight_of_others_and_its_rest_may_be_weighed_anew() -> None:
    links = Links({"wan": 9.0})
    heavy = links.start(0.0, ("wan",), 80, "heavy", 8)
    links.start(0.0, ("wan",), 80, "light")
    assert links.next_at() == 10
    links.weigh(5.0, heavy, 1)
    assert links.next_at() == pytest.approx(5 + 40 / 4.5)
    assert links.take_ended(14.0) == ["heavy"]
    links.next_at()
    assert links.take_ended(100.0) == ["light"]
    assert links.busy_s() == pytest.approx({"wan": 160 / 9})
