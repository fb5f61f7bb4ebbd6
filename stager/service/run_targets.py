"""Whom a workflow may have told of its runs: judged by the administrator's notify.toml, at the submit and at each call.

May know: the rules, hosts of the public internet. One rule: what the file does not allow is told to nobody.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from stager.adapters.public_hosts import check_public
from stager.model.errors import Denied, InvalidInput
from stager.model.notices import NotifyRules, Target
from stager.model.workflow import RunTarget, Workflow
from stager.readers.notify import read_notify

# Of the names that targets of workflows have in the box: no target of notify.toml begins so.
MARK = "="
HOW = "docs/operating/notifications.md says how"


def require_allowed(workflow: Workflow, file: Path) -> None:
    """Raises Denied where the administrator's file does not allow a target, InvalidInput for a secret that it does not have."""
    if workflow.notify:
        rules = read_notify(file)
        for target in workflow.notify:
            check_allowed(target, rules)


def check_allowed(target: RunTarget, rules: NotifyRules | None) -> None:
    way = "webhook" if target.webhook else "mail"
    if rules is None or rules.workflows is None or way not in rules.workflows.allow:
        text = f"the workflow names a {way} that is to be told of its runs (notify), and notify.toml does not allow that"
        raise Denied(f"{text}; leave it out, or ask for [workflows] allow there ({HOW})", code="notify_denied", subject="notify")
    if target.secret and target.secret not in rules.workflows.secrets:
        text = f"notify.toml has no secret {target.secret!r} that a webhook could be signed with"
        raise InvalidInput(f"{text}; name one of its [secrets]", code="notify_secret", subject="notify")
    if target.webhook and not is_listed(target, rules):
        url = urlsplit(target.webhook)
        if url.scheme != "https":
            text = f"a webhook at {url.hostname} would be told in plain text"
            raise Denied(f"{text}; write https://, or ask for it in [workflows] hosts ({HOW})", code="notify_denied", subject="notify")
        check_public(url.hostname or "")


def is_listed(target: RunTarget, rules: NotifyRules) -> bool:
    """Whether the administrator named its host."""
    return rules.workflows is not None and (urlsplit(target.webhook).hostname or "").lower() in rules.workflows.hosts


def name_of(target: RunTarget) -> str:
    """Says all of it, so that the box needs to know no run."""
    return MARK + msgspec.json.encode(target).decode()


def target_of(name: str, rules: NotifyRules) -> tuple[Target, bool]:
    """(as one of the file, whether it may be at public addresses only). Raises Denied where it may not be told now."""
    found = msgspec.json.decode(name[len(MARK) :], type=RunTarget)
    allowed = rules.workflows
    way = "webhook" if found.webhook else "mail"
    if allowed is None or way not in allowed.allow or (found.secret and found.secret not in allowed.secrets):
        raise Denied("notify.toml does not allow it any more", code="notify_denied", subject="notify")
    public_only = not is_listed(found, rules)
    if public_only and found.webhook and urlsplit(found.webhook).scheme != "https":
        raise Denied("notify.toml does not allow it in plain text any more", code="notify_denied", subject="notify")
    secret = allowed.secrets.get(found.secret, "")
    return Target(shown(name), frozenset(), webhook=found.webhook, mail=found.mail, secret=secret), public_only


def shown(name: str) -> str:
    """For people: of a URL the host only."""
    if not name.startswith(MARK):
        return name
    found = msgspec.json.decode(name[len(MARK) :], type=RunTarget)
    return f"{found.mail} (of a workflow)" if found.mail else f"{urlsplit(found.webhook).hostname} (of a workflow)"
