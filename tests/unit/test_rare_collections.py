"""The thresholds of the garbage collector are the usual ones again after simulations and plans that overlap."""

from __future__ import annotations

import gc

from stager.sim.simulate import rare_collections


def test_the_last_that_ends_restores_the_usual_thresholds() -> None:
    usual = gc.get_threshold()
    first, second = rare_collections(), rare_collections()
    first.__enter__()
    second.__enter__()
    assert gc.get_threshold() != usual
    first.__exit__(None, None, None)
    assert gc.get_threshold() != usual, "the other is still at work"
    second.__exit__(None, None, None)
    assert gc.get_threshold() == usual
