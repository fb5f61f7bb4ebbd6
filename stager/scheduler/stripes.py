"""A file in stripes: several nodes fetch a part each over their own lines, and the node whose job reads it assembles the parts while they
come. Then they are deleted.

May know: the state, planning's formulas. One rule: stripes are a way there and nothing else: parts are no copies of the file, and what
goes wrong with them ends them all, by a recorded decision, after which the file is fetched whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from stager.planning.transport import STRIPE_BYTES, may_take_part, nodes_to_use, part_bytes
from stager.scheduler import commands as cmd
from stager.scheduler.decision import Decision
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import FileEntry, State, TransferEntry

DEMAND = 1
# What a part and the whole have each of its own.
OF_ONE_FETCH = ("id", "at", "cause", "node", "transfer", "stripe")


def give_stripes(decision: Decision, node: NodeEntry, file: FileEntry, whole: cmd.Fetch) -> bool:
    """False: it is better fetched whole, by this command. Parts are asked for before what assembles them, so that they are known where they
    are looked for.
    """
    chosen = nodes_for(decision.state, node, file, whole)
    if not chosen:
        return False
    facts = {name: fact for name, fact in structs.asdict(whole).items() if name not in OF_ONE_FETCH}
    assembly, parts = decision.new_transfer(), []
    for index, other in enumerate(chosen):
        size_bytes = part_bytes(file.size_bytes, index, len(chosen))
        stripe = cmd.Stripe(index, len(chosen), STRIPE_BYTES, file.size_bytes, assembly, node.id)
        part = cmd.Part(other.id, f"{assembly}.{index}", size_bytes)
        parts.append(part)
        own = {"node": other.id, "transfer": part.transfer, "size_bytes": size_bytes, "blake3": "", "sha256": "", "stripe": stripe}
        decision.emit(cmd.Fetch, **(facts | own))
    decision.emit(cmd.AssembleStripes, node=node.id, transfer=assembly, parts=tuple(parts), **facts)
    return True


def nodes_for(state: State, node: NodeEntry, file: FileEntry, whole: cmd.Fetch) -> Sequence[NodeEntry]:
    """Those that are to fetch a part each, the least busy first; none where one line is as good, and none after something failed."""
    planned = state.runs[whole.run].planned.get(whole.lfn)
    if planned is None or planned.stripes < 2 or not node.can_assemble or not is_first_try(file):
        return ()
    # A file that a job waits for has its room already.
    beside_bytes = 0 if node.id in file.copies else file.size_bytes
    planned_bytes = part_bytes(file.size_bytes, 0, planned.stripes)
    able = [other for other in state.nodes.values() if other.reachable and not other.draining]
    ranked = [other for other in able if may_take_part(planned_bytes, other.capacity_bytes)]
    ranked.sort(key=lambda other: (other.line_bytes, other is not node, other.id))
    while ranked:
        count = nodes_to_use([other.line_bytes for other in ranked], node.line_bytes, file.size_bytes, planned.stripes)
        share_bytes = part_bytes(file.size_bytes, 0, max(1, count))
        full = [other for other in ranked[:count] if other.free_bytes - (beside_bytes if other is node else 0) < share_bytes]
        if not full:
            return ranked[:count]
        ranked = [other for other in ranked if other not in full]
    return ()


def is_first_try(file: FileEntry) -> bool:
    """Of a file that only origins have: not one that we wrote, nor one that was tried in vain."""
    retries = file.fetch
    return not (file.whole or file.durable or file.spilled or (retries is not None and (retries.failures or retries.outages)))


def give_up_stripes(decision: Decision, assembly: str, why: str) -> None:
    """The transfer that was to assemble them is called off, and with it the parts; the file is fetched whole."""
    state = decision.state
    transfer = state.transfers[assembly]
    decision.emit(cmd.GiveUpStripes, file=transfer.file, run=transfer.run, transfer=assembly, why=why)
    decision.emit(cmd.CancelTransfer, node=transfer.node, transfer=assembly)


def give_up_broken(decision: Decision) -> None:
    """Those that a part of was lost."""
    broken, decision.state.broken_stripes = decision.state.broken_stripes, {}
    for assembly, why in broken.items():
        if assembly in decision.state.striped:
            give_up_stripes(decision, assembly, why)


def give_up_parts_on(decision: Decision, node: NodeEntry, gap: int) -> int:
    """A job needs the room that parts for other nodes take here. Returns what is still missing."""
    for part in [part for part in decision.state.parts.values() if part.node == node.id]:
        if gap > 0 and part.assembly in decision.state.striped:
            gap -= part.size_bytes
            give_up_stripes(decision, part.assembly, f"a job needs the room that its part takes on {node.id}")
    return gap


def call_off_parts(decision: Decision) -> None:
    """Those that nobody will assemble. A word that a node cannot be told now is told when it has reported."""
    state = decision.state
    orphaned, state.orphaned_parts = state.orphaned_parts, []
    for part_id in orphaned:
        part = state.parts.get(part_id)
        if part is not None and state.nodes[part.node].reachable:
            decision.emit(cmd.CancelTransfer, node=part.node, transfer=part_id)


def reprioritize(decision: Decision, transfer: TransferEntry) -> None:
    """A job waits for it, and so for its parts."""
    decision.emit(cmd.Reprioritize, node=transfer.node, transfer=transfer.id, priority=DEMAND)
    if transfer.assembles:
        for part in decision.state.striped[transfer.id].parts.items():
            decision.emit(cmd.Reprioritize, node=part[0], transfer=part[1], priority=DEMAND)
