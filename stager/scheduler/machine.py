"""The Machine: `step(event) -> list[Command]`. Production, simulation, cost estimates and tests all run this one.

May know: the pure packages. One rule: the same policy, limits and events give the same commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from stager.planning.policy import Limits, Policy
from stager.scheduler.admission import work_nodes
from stager.scheduler.apply_commands import apply_command
from stager.scheduler.apply_events import apply_event
from stager.scheduler.balance import balance
from stager.scheduler.budget import next_due, watch_budgets
from stager.scheduler.commands import Command, WakeAt
from stager.scheduler.completion import end_runs, refuse_if_stuck
from stager.scheduler.decision import Decision
from stager.scheduler.events import Event
from stager.scheduler.handlers import SUBJECTS, handle, subject_of
from stager.scheduler.leaving import evacuate
from stager.scheduler.migration import delete_migrated
from stager.scheduler.rehoming import rehome_ready
from stager.scheduler.relief import look_again_at, relieve
from stager.scheduler.replication import send_extra_copies
from stager.scheduler.state import State
from stager.scheduler.stripes import call_off_parts
from stager.scheduler.uploads import send_finals, tidy_up


class Machine:
    """Owns its state alone. `state` is for views and checks; nobody else writes to it."""

    __slots__ = ("state",)

    def __init__(self, policy: Policy, limits: Limits) -> None:
        self.state = State(policy, limits)

    @classmethod
    def of(cls, state: State) -> Machine:
        """One that goes on from a restored state, which is its own from now on."""
        machine = cls(state.policy, state.limits)
        machine.state = state
        return machine

    def step(self, event: Event) -> list[Command]:
        """Applies the event, decides, applies what was decided and returns it."""
        state = self.state
        subject = subject_of(state, event) if type(event) in SUBJECTS else None
        apply_event(state, event)
        decision = Decision(state, f"e{state.events_seen}")
        handle(decision, event, subject)
        if state.budgeted:
            watch_budgets(decision)
        self._work(decision)
        while not (state.attempts or state.transfers) and refuse_if_stuck(decision):
            # The room that the refused run no longer claims may be what another waits for.
            self._work(decision)
        if state.timers or state.budgeted or len(state.nodes) > 1:
            self._ask_for_time(decision)
        return decision.commands

    def _work(self, decision: Decision) -> None:
        """Again when a run ended: what it held may be given away now. And when a job was sent to a node that was worked before."""
        state, ended = self.state, True
        if state.moved:
            delete_migrated(decision)
        while ended:
            if state.awaited or state.awaited_ended or state.done_of_guess:
                self._take_over(decision)
            if state.useless or state.spills_to_erase or state.orphaned_parts:
                self._clear_up(decision)
            if state.due_uploads and state.uploads_live < state.policy.uploads_max:
                send_finals(decision)
            if state.closed:
                rehome_ready(decision)
                evacuate(decision)
            work_nodes(decision)
            if len(state.nodes) > 1:
                balance(decision)
                relieve(decision)
            if state.to_replicate or state.replicating:
                send_extra_copies(decision)
            ended = bool(state.finish_checks) and end_runs(decision)
            if state.closed and rehome_ready(decision):
                ended = True
            if (state.awaited or state.awaited_ended or state.done_of_guess) and self._take_over(decision):
                ended = True
        if state.useless or state.spills_to_erase or state.orphaned_parts:
            self._clear_up(decision)

    def _take_over(self, decision: Decision) -> bool:
        """What others made that was waited for, and what earlier runs made of what was just made again. True if anything was decided. Asked
        for only where there is something, as is what follows.
        """
        state, before = self.state, len(decision.commands)
        from stager.scheduler.cutting_off import cut_off
        from stager.scheduler.joining import settle_waits

        while state.awaited_ended or state.done_of_guess:
            cut_off(decision)
            settle_waits(decision)
        settle_waits(decision)
        return len(decision.commands) > before

    def _clear_up(self, decision: Decision) -> None:
        """Asked for only where there is something: at most events there is not."""
        if self.state.orphaned_parts:
            call_off_parts(decision)
        tidy_up(decision)

    def replay(self, events: Iterable[Event], commands: Sequence[Command]) -> None:
        """Applies a recorded batch without deciding: for a journal written by another version.

        `commands` are in the order given; those that follow from an event carry its number as their cause.
        """
        pending = list(reversed(commands))
        for event in events:
            apply_event(self.state, event)
            cause = f"e{self.state.events_seen}"
            while pending and pending[-1].cause == cause:
                apply_command(self.state, pending.pop())
            settle_queues(self.state)
        if pending:
            raise AssertionError(f"journal: command {pending[-1].id} follows from no event of its batch")

    def _ask_for_time(self, decision: Decision) -> None:
        state = self.state
        due = state.timers[0][0] if state.timers else inf
        if state.budgeted:
            due = min(due, next_due(state))
        if len(state.nodes) > 1:
            due = min(due, look_again_at(state))
        if due < inf and (state.wake_at is None or due < state.wake_at):
            decision.emit(WakeAt, wake_at=due)


def settle_queues(state: State) -> None:
    """Empties the lists that deciding would have emptied: the recorded commands answered their entries."""
    state.lost.clear()
    state.awaited_ended.clear()
    state.done_of_guess.clear()
    state.stranded.clear()
    state.back.clear()
    state.broken_stripes.clear()
    state.orphaned_parts.clear()
    state.finish_checks = dict.fromkeys(state.active)
