"""Notices: what somebody wants to be told of a run or of a node, and who is told, by which way.

May know: values only. One rule: no secret is in any of them; a target refers to one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class NoticeKind(StrEnum):
    """One for each thing that somebody can be told of. Another one is made in `service/notices.py`, and described in
    docs/operating/notifications.md.
    """

    RUN_ENDED = "run_ended"
    FINAL_DURABLE = "final_durable"
    ORIGIN_AWAY = "origin_away"
    DAMAGE_FOUND = "damage_found"
    BUDGET = "budget"
    DEADLINE = "deadline"


# Of nodes, and so of nobody's run.
OF_NODES = frozenset({NoticeKind.DAMAGE_FOUND})
OF_RUNS = tuple(sorted(kind.value for kind in NoticeKind if kind not in OF_NODES))

Fact = str | int | float


@dataclass(frozen=True, slots=True)
class Notice:
    """`id`: the same whenever the same journal entry is told of. `run` and `tenant`: empty where it is about no run, or an owner's.
    `text`: one line for people. `facts`: what else is known, by names that are also keys of its JSON.
    """

    id: str
    kind: str
    at: float
    text: str
    run: str = ""
    workflow: str = ""
    tenant: str = ""
    facts: Mapping[str, Fact] | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """Exactly one of `webhook` (a URL), `command` (words) and `mail` (an address). `secret`: a reference, `file:PATH` or `env:NAME`; empty:
    what is sent is not signed. `tenants`: of whose runs alone it is told; empty: of all, and of nodes.
    """

    name: str
    kinds: frozenset[NoticeKind]
    webhook: str = ""
    command: tuple[str, ...] = ()
    mail: str = ""
    secret: str = ""
    tenants: tuple[str, ...] = ()

    @property
    def way(self) -> str:
        return "webhook" if self.webhook else "command" if self.command else "mail"

    def wants(self, notice: Notice) -> bool:
        return notice.kind in self.kinds and (not self.tenants or notice.tenant in self.tenants)


@dataclass(frozen=True, slots=True)
class WorkflowRules:
    """What workflows may have told by themselves. `allow`: of the ways webhook and mail. `hosts`: that a webhook may be at though they are
    not of the public internet. `secrets`: references, by the names that workflows use.
    """

    allow: frozenset[str]
    hosts: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotifyRules:
    """`away_after_s`: how long an origin must not answer before somebody is told. `sendmail`: the program that mail is given to.
    `workflows` None: they name nobody.
    """

    targets: tuple[Target, ...]
    away_after_s: float
    sendmail: str
    workflows: WorkflowRules | None = None
