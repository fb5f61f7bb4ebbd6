"""Silent nodes and hosts: what a run is told of them, and when they are given up without a person's word."""

from __future__ import annotations

import pytest

from stager.model.errors import InvalidInput
from stager.planning.policy import Limits, Policy
from stager.scheduler import events as ev
from stager.scheduler.machine import Machine
from stager.service.giving_up import NEVER_GIVES_UP, Patience
from stager.service.settings import read_settings
from stager.service.waiting_hosts import away_view
from stager.service.waiting_nodes import until_text


def machine() -> Machine:
    """A node and its host, both lost at 100."""
    made = Machine(Policy(), Limits(cores=1))
    made.step(ev.SchedulerStarted(at=0.0, cause="start", epoch=1, version="0"))
    for node in ("node0", "node1"):
        made.step(ev.NodeReported(at=1.0, node=node, incarnation="i1", capacity_bytes=10, can_link=True, replicas=(), transfers=()))
    made.step(ev.HostReported(at=2.0, host="h1", node="node1", cores=2, memory_bytes=None, incarnation="i1"))
    made.step(ev.NodeLost(at=100.0, node="node1"))
    made.step(ev.HostLost(at=100.0, host="h1"))
    return made


def patience(after_s: float | None = 600.0, began_at: float = 0.0, silent: bool = True, heard: bool = True) -> Patience:
    return Patience(after_s, began_at, lambda node: silent and node != "node0", lambda tenant: heard)


def test_what_is_silent_for_so_long_is_given_up_and_nothing_sooner() -> None:
    state = machine().state
    assert list(patience().due(state, 699.0)) == []
    gone = list(patience().due(state, 700.0))
    assert [(type(event), event.cause, event.why) for event in gone] == [
        (ev.NodeGone, "gone_after", "no answer for 10 min 00 s (gone_after)"),
        (ev.HostGone, "gone_after", "no answer for 10 min 00 s (gone_after)"),
    ]
    assert list(NEVER_GIVES_UP.due(state, 1e9)) == []


def test_time_in_which_nobody_listened_does_not_count() -> None:
    state = machine().state
    assert list(patience(began_at=5000.0).due(state, 5599.0)) == []
    assert len(list(patience(began_at=5000.0).due(state, 5600.0))) == 2


def test_a_node_that_refuses_and_a_host_whose_pool_is_silent_are_not_given_up() -> None:
    state = machine().state
    assert [type(event) for event in patience(silent=False).due(state, 1e6)] == [ev.HostGone]
    assert [type(event) for event in patience(heard=False).due(state, 1e6)] == [ev.NodeGone]


def test_a_pool_that_was_away_for_long_is_followed_by_its_hosts_and_not_by_their_end() -> None:
    """They come a few seconds after it. What runs there was lost for a restart of the pool."""
    state, heard = machine().state, [False]
    asked = Patience(600.0, 0.0, lambda node: False, lambda tenant: heard[0])
    host = state.nodes["node1"].hosts["h1"]
    assert list(asked.due(state, 8000.0)) == [] and asked.of_host(host) is None
    heard[0] = True
    assert list(asked.due(state, 8005.0)) == [] and asked.of_host(host) == 8600.0
    assert [type(event) for event in asked.due(state, 8600.0)] == [ev.HostGone]


def test_a_node_that_refused_for_long_is_silent_from_then_on_only() -> None:
    """As one whose certificate has expired, and that is started again with a new one."""
    state, silent = machine().state, [False]
    asked = Patience(600.0, 0.0, lambda node: silent[0] and node == "node1", lambda tenant: False)
    assert list(asked.due(state, 8000.0)) == []
    silent[0] = True
    assert list(asked.due(state, 8005.0)) == []
    assert [type(event) for event in asked.due(state, 8600.0)] == [ev.NodeGone]


def test_a_run_is_told_since_when_and_until_when() -> None:
    state = machine().state
    host = state.nodes["node1"].hosts["h1"]
    told = away_view(host, 2, 220.0, patience()).message
    assert told.startswith("host h1: no answer for 2 min 00 s; 2 jobs began there and may go on; it is given up at ")
    assert told.endswith(", in 8 min 00 s, if it does not come back")
    assert away_view(host, 1, 220.0, NEVER_GIVES_UP).message.endswith("`stager host forget h1` if it does not come back")
    assert until_text(None, 1.0) == ""


def test_the_setting_is_off_by_default_and_longer_than_a_restart() -> None:
    assert read_settings(environ={"HOME": "/nowhere"}).gone_after_s is None
    settings = read_settings(environ={"HOME": "/nowhere", "STAGER_GONE_AFTER": "10 min"})
    assert settings.gone_after_s == 600.0 and "--gone-after-s 600" in " ".join(settings.scheduler_arguments())
    with pytest.raises(InvalidInput, match="write 60 s or more"):
        read_settings(environ={"HOME": "/nowhere", "STAGER_GONE_AFTER": "5 s"})
