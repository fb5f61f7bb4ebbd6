"""The worker on a compute node: one attempt of one job, from its inputs in the store to its outputs in the store.

May know: stager.model, the node's calls for attempts (node_port) and the reaper's spec and result.
One rule: whatever dies at whatever instant, `adopt` finds out what became of the attempt, and no job runs twice under one attempt id.
"""

from stager.worker.attempt import AttemptResult, AttemptWaiting, Measures, Outcome
from stager.worker.called import Called, Staged
from stager.worker.kept_sandboxes import Kept, KeptSandboxes
from stager.worker.node_port import NodePort
from stager.worker.place import Place
from stager.worker.spec import AttemptInput, AttemptOutput, AttemptSpec, DirectInput, InputAccess, MembersIn
from stager.worker.worker import Sight, Worker

__all__ = [
    "InputAccess",
    "AttemptInput",
    "AttemptOutput",
    "AttemptResult",
    "AttemptSpec",
    "AttemptWaiting",
    "Called",
    "DirectInput",
    "Kept",
    "Measures",
    "MembersIn",
    "NodePort",
    "Outcome",
    "Place",
    "KeptSandboxes",
    "Sight",
    "Staged",
    "Worker",
]
