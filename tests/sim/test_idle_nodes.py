"""A node that nothing has happened to since it was found idle is not worked: what is decided is the same as if every node were worked at
every event.

STAGER_SIM_SEEDS=n runs n seeds of each kind, as in tests/sim/seeds.py.
"""

from __future__ import annotations

import pytest

from stager.scheduler import admission
from stager.scheduler.decision import Decision
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import State
from tests.sim.cases import KINDS, check
from tests.sim.seeds import parts

SHORT = 20


def never_idle(state: State, node: NodeEntry) -> bool:
    return False


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seeds"), parts(dict.fromkeys(KINDS, SHORT)))
def test_idle_nodes_are_left_alone_and_nothing_is_decided_otherwise(kind: str, seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    work, worked = admission.work_node, [0]

    def counted(decision: Decision, node: NodeEntry) -> None:
        worked[0] += 1
        work(decision, node)

    monkeypatch.setattr(admission, "work_node", counted)
    some = every = 0
    for seed in seeds:
        skipping = check(KINDS[kind](seed)).journal
        some += worked[0]
        worked[0] = 0
        with monkeypatch.context() as patched:
            patched.setattr(admission, "is_idle", never_idle)
            slow = check(KINDS[kind](seed)).journal
        assert skipping == slow, f"{kind} {seed}: with every node worked at every event the commands are others"
        every += worked[0]
        worked[0] = 0
    assert some < every or len(seeds) == 1, "no node was ever left alone"
