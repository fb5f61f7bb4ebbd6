"""The `notify:` section of a native workflow: who is told of its runs.

May know: forms, the kinds of notices. One rule: no secret, no program and no user of a URL is ever in a workflow; whether a target may be
told is for the administrator to say, at the submit.
"""

from __future__ import annotations

from stager.model.notices import OF_RUNS
from stager.model.workflow import RunTarget
from stager.readers.lines import Node, nearest
from stager.readers.native_form import Fields, Form
from stager.readers.notify import ADDRESS, ESCAPED, NAME, url_of

NOTIFY_KEYS = ("webhook", "mail", "secret", "on")
TARGETS_MAX = 8


def read_targets(form: Form, node: Node | None) -> tuple[RunTarget, ...]:
    """A list of {mail: ADDRESS} or {webhook: URL}, each with `on` and perhaps `secret`."""
    found = []
    for member, key in form.members(node, "notify"):
        if form.expect(member, key, "mapping"):
            fields = form.fields(member, key, NOTIFY_KEYS)
            ways = [way for way in ("webhook", "mail") if fields.get(way) is not None]
            if len(ways) != 1:
                form.findings.note(member.place, key, "should have exactly one of webhook and mail")
                continue
            if fields.get("secret") is not None and ways != ["webhook"]:
                form.findings.note(fields.place("secret"), fields.at("secret"), "a secret signs what a webhook gets; leave it out")
            webhook, mail = fields.parsed("webhook", webhook_of, ""), fields.parsed("mail", address_of, "")
            found.append(RunTarget(webhook, mail, fields.parsed("secret", name_of, ""), kinds_of(form, fields)))
    if len(found) > TARGETS_MAX and node is not None:
        form.findings.note(node.place, "notify", f"a workflow may name {TARGETS_MAX} who are told")
    return tuple(dict.fromkeys(found))


def kinds_of(form: Form, fields: Fields) -> tuple[str, ...]:
    """All that a run is told of, where nothing is said."""
    kinds = []
    for text, node, key in form.texts(fields.get("on"), fields.at("on"), single=True):
        if text not in OF_RUNS:
            form.findings.note(node.place, key, f"{text!r} is nothing that a run is told of{nearest(text, OF_RUNS)}; {', '.join(OF_RUNS)}")
        kinds.append(text)
    return tuple(sorted(set(kinds))) or OF_RUNS


def webhook_of(text: str) -> str:
    url = url_of(text)
    if url is None:
        raise ValueError(f"a webhook is a URL, as in https://hooks.example.org/stager{ESCAPED}")
    if url.username is not None or url.password is not None:
        raise ValueError("a webhook's URL holds no user and no password; name a `secret` of the administrator to sign with")
    return text


def address_of(text: str) -> str:
    if not ADDRESS.fullmatch(text) or "@" not in text:
        raise ValueError(f"{text!r} is no address; write one, as in me@example.org")
    return text


def name_of(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError("a secret is never in a workflow; write the name that notify.toml has for it under [secrets]")
    return text
