"""Bodies that hold whole workflows: msgspec values, since 100,000 jobs take well under a second so.

May know: the pure packages. One rule: secrets travel in `Credentials` only, which never shows them and is never written anywhere.
"""

from __future__ import annotations

import msgspec

from stager.model.workflow import Workflow
from stager.planning.budget import Budget
from stager.planning.plan import Plan, ReusedJob, Sharing


class Credentials(msgspec.Struct, frozen=True):
    """The credentials that the submitter's environment gives a run.

    `origins`: the node's configuration of each origin, by its name (docs/formats/ionode-api.md). `env`: the variables named by `env_pass`.
    """

    origins: dict[str, dict[str, object]] = msgspec.field(default_factory=dict)
    env: dict[str, str] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Credentials(origins={sorted(self.origins)}, env={sorted(self.env)})"


class SubmitRequest(msgspec.Struct, frozen=True):
    """`submit_id` makes a repeated submit answer with the run it made before. `part_of`: see RunInfo. `priority`: among the
    runs of the same sender, higher first. `reused`: jobs that need not run; `told`: what there is to say of them, and of how the plan was
    chosen, for the sender. `budget`: what the run may cost, and by when it is to end. `sharing`: what it may take over while it goes on.
    """

    workflow: Workflow
    plan: Plan
    credentials: Credentials = Credentials()
    submit_id: str = ""
    part_of: str = ""
    priority: int = 0
    reused: tuple[ReusedJob, ...] = ()
    told: tuple[str, ...] = ()
    budget: Budget | None = None
    sharing: Sharing | None = None


class ResumeRequest(msgspec.Struct, frozen=True):
    """`workflow` and `plan`: as they are now, if they were read again; None: the run goes on with what it has. `budget`: what it may
    cost in all, as in `30 USD`; empty: what it might before.
    """

    credentials: Credentials = Credentials()
    workflow: Workflow | None = None
    plan: Plan | None = None
    budget: str = ""


def encode(value: object) -> bytes:
    """JSON of a body, a workflow or a plan as it travels; plans on paper are planning.plan_json's."""
    return msgspec.json.encode(value)


def builtins_of(value: object) -> dict[str, object]:
    """A value of the model as plain JSON values, for a place in a pydantic body."""
    found: dict[str, object] = msgspec.to_builtins(value)
    return found


def decode_submit(body: bytes) -> SubmitRequest:
    return msgspec.json.decode(body, type=SubmitRequest)


def decode_resume(body: bytes) -> ResumeRequest:
    return msgspec.json.decode(body or b"{}", type=ResumeRequest)


def decode_workflow(body: bytes) -> Workflow:
    return msgspec.json.decode(body, type=Workflow)


def decode_plan(body: bytes) -> Plan:
    return msgspec.json.decode(body, type=Plan)
