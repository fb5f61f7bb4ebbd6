"""Nodes of a scheduler, listed, drained and forgotten by a person's word.

May know: the Machine's state (read only), the inbox. One rule: an answer that something was taken comes after the journal holds it, and
what is refused is refused by the same look at the state that would have let it in.
"""

from __future__ import annotations

from collections.abc import Callable

from stager import wire
from stager.model.errors import InvalidInput, Refused
from stager.model.units import counted, format_size
from stager.ports import Put
from stager.scheduler import events as ev
from stager.scheduler.node_entry import NodeEntry
from stager.service.commands import Commits, Told
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns
from stager.service.node_states import Loss, loss_of, with_states, with_unsafe
from stager.service.node_view import NodeWatch


class NodeService:
    """On the event loop's thread. `revoke`: has a node that has joined let in no more."""

    def __init__(
        self, inquiry: Inquiry, commits: Commits, runs: KnownRuns, node_view: NodeWatch, put: Put, revoke: Callable[[str], None]
    ) -> None:
        self.inquiry, self.commits, self.runs, self.node_view, self.put = inquiry, commits, runs, node_view, put
        self.revoke = revoke

    async def listed(self) -> list[wire.NodeView]:
        """Each was asked, or cannot be now."""
        await self.node_view.tried()
        views = await self.node_view.nodes()
        state = self.runs.state
        return await self.inquiry.ask(lambda: with_unsafe(state, with_states(state, views)))

    async def drain(self, node: str, request: wire.NodeDrain) -> wire.NodeView:
        """Says the same again where nothing changes. Raises InvalidInput where there is no such node, Refused where none would be left."""
        await self.node_view.tried()
        await self.commits.taken(lambda told: self._drain(node, told, draining=not request.undo))
        return next(view for view in await self.listed() if view.node == node)

    def _drain(self, name: str, told: Told, *, draining: bool) -> None:
        node = self._known(name)
        if node.gone:
            raise Refused(f"the node {name} is gone ({node.gone}), so there is nothing to drain", code="node_gone", subject=name)
        others = [other for other in self.runs.state.nodes.values() if other.id != name and other.is_open and other.reachable]
        if draining and not others:
            text = f"no other node answers and takes jobs, so nothing that the node {name} holds could go anywhere"
            raise Refused(f"{text}; start another one first", code="last_node", subject=name)
        if node.draining is draining:
            told()
        else:
            self.put(ev.NodeDraining(at=0.0, cause="request", node=name, draining=draining), told)

    async def forget(self, node: str, request: wire.NodeForget, by: str) -> wire.NodeLoss:
        """Raises InvalidInput where there is no such node, Refused where it answers and something would be lost with it."""
        await self.node_view.tried()
        answers, embedded = self.node_view.answers(node), node == self.node_view.embedded
        if embedded:
            raise Refused(f"the node {node} is the scheduler's own, and is not forgotten", code="own_node", subject=node)
        if request.dry_run:
            return await self.inquiry.ask(lambda: loss_of(self.runs.state, self._known(node).id).body(node, forgotten=False))
        why = f"{request.why or 'forgotten'} (by {by})"
        loss = await self.commits.taken(lambda told: self._forget(node, why, told, must_be_safe=answers and not request.force))
        self.revoke(node)
        return loss

    def _forget(self, name: str, why: str, told: Told, *, must_be_safe: bool) -> wire.NodeLoss:
        node, loss = self._known(name), loss_of(self.runs.state, name)
        if must_be_safe and (loss.made or loss.attempts):
            text = (
                f"the node {name} answers, and {losing(loss)}; `stager node drain {name} --wait` has them kept first, --force gives them up"
            )
            raise Refused(text, code="node_unsafe", subject=name)
        if node.gone:
            told()
        else:
            self.put(ev.NodeGone(at=0.0, cause="request", node=name, why=why), told)
        return loss.body(name, forgotten=True)

    def _known(self, name: str) -> NodeEntry:
        nodes = self.runs.state.nodes
        if name not in nodes:
            known = f"there are {', '.join(sorted(nodes))}" if nodes else "there is none yet"
            raise InvalidInput(f"this scheduler knows no node {name!r}; {known}", code="not_found", subject=name)
        return nodes[name]


def losing(loss: Loss) -> str:
    made = f"only it holds {counted(len(loss.made), 'file')} ({format_size(loss.made_bytes)})" if loss.made else ""
    running = f"beside it {counted(len(loss.attempts), 'job')} would end" if loss.attempts else ""
    return " and ".join(part for part in (made, running) if part)
