"""Reads notify.toml: who is told of what, and how (docs/operating/notifications.md).

May know: the model, TOML. One rule: it names programs that run as the scheduler's user, so only that user's own file counts.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from stager.model.errors import Denied, InvalidInput
from stager.model.notices import NoticeKind, NotifyRules, Target, WorkflowRules
from stager.model.tenants import TENANT_NAME
from stager.model.units import parse_duration_s
from stager.readers.lines import nearest
from stager.readers.tenants import check_owner

KEYS = ("away_after", "sendmail", "targets", "workflows", "secrets")
WORKFLOW_KEYS = ("allow", "hosts")
WORKFLOW_WAYS = ("webhook", "mail")
TARGET_KEYS = ("webhook", "command", "mail", "secret", "on", "tenants", "allow_http")
WAYS = ("webhook", "command", "mail")
AWAY_AFTER_S = 600.0
SENDMAIL = "/usr/sbin/sendmail"
FILE_BYTES_MAX = 1 << 20
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
ESCAPED = ", and letters beyond ASCII in its path as %C3%BC"
SECRET = re.compile(r"file:.+|env:[A-Za-z_][A-Za-z0-9_]*")
ADDRESS = re.compile(r"(?!-)[^\s\x00-\x1f\x7f-\x9f@<>,;:\"()\\]+@[A-Za-z0-9.-]+|[A-Za-z0-9_][A-Za-z0-9._-]*")


def read_notify(path: Path) -> NotifyRules | None:
    """None: there is no such file. Raises Denied for one that others can write or read, InvalidInput for what is wrong in it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise Denied(f"{path} cannot be read: {problem.strerror}; it must be a file of your own", subject=str(path)) from problem
    with open(handle, "rb") as stream:
        check_owner(path, os.fstat(handle), "notify_denied")
        text = stream.read(FILE_BYTES_MAX)
    try:
        document = tomllib.loads(text.decode())
    except ValueError as problem:
        raise InvalidInput(f"{path} is not valid TOML: {problem}", code="notify_invalid", subject=str(path)) from problem
    return parse_notify(document, str(path))


def parse_notify(document: Mapping[str, Any], source: str) -> NotifyRules:
    check_keys(document, KEYS, source, "")
    section = document.get("targets", {})
    if not isinstance(section, dict):
        raise wrong(source, "targets", "should be tables; write [targets.NAME]")
    try:
        away_after_s = parse_duration_s(document.get("away_after", AWAY_AFTER_S))
    except ValueError as problem:
        raise wrong(source, "away_after", str(problem)) from None
    sendmail = document.get("sendmail", SENDMAIL)
    if not isinstance(sendmail, str) or not sendmail.startswith("/"):
        raise wrong(source, "sendmail", f"should be the whole path of a program, as in {SENDMAIL!r}")
    targets = tuple(target_of(name, value, source) for name, value in section.items())
    return NotifyRules(targets, away_after_s, sendmail, workflows_of(document, source))


def workflows_of(document: Mapping[str, Any], source: str) -> WorkflowRules | None:
    """What workflows may have told by themselves."""
    section, named = document.get("workflows"), document.get("secrets", {})
    if not isinstance(named, dict):
        raise wrong(source, "secrets", "should be a table; write [secrets] and below it NAME = 'file:/path'")
    for name, reference in named.items():
        if not NAME.fullmatch(name) or not isinstance(reference, str) or not SECRET.fullmatch(reference):
            raise wrong(source, f"secrets.{name}", "should say where a secret is: 'file:/path' or 'env:NAME', and never the secret itself")
    if section is None:
        return None
    if not isinstance(section, dict):
        raise wrong(source, "workflows", "should be a table; write [workflows]")
    check_keys(section, WORKFLOW_KEYS, source, "workflows")
    allow = words_of(section.get("allow"), source, "workflows.allow")
    for word in allow:
        if word not in WORKFLOW_WAYS:
            raise wrong(source, "workflows.allow", f"has {word!r}; workflows may use {' and '.join(WORKFLOW_WAYS)}, and never a command")
    hosts = words_of(section["hosts"], source, "workflows.hosts") if "hosts" in section else []
    return WorkflowRules(frozenset(allow), tuple([host.lower() for host in hosts]), dict(named))


def target_of(name: str, value: Any, source: str) -> Target:
    key = f"targets.{name}"
    if not NAME.fullmatch(name):
        raise wrong(source, key, "is no name of a target; use up to 40 letters, digits, - and _")
    if not isinstance(value, dict):
        raise wrong(source, key, f"should be a table; write [{key}]")
    check_keys(value, TARGET_KEYS, source, key)
    ways = [way for way in WAYS if way in value]
    if len(ways) != 1:
        raise wrong(source, key, f"should have exactly one of {', '.join(WAYS)}")
    secret = value.get("secret", "")
    if secret and (not isinstance(secret, str) or not SECRET.fullmatch(secret) or ways != ["webhook"]):
        raise wrong(
            source, f"{key}.secret", "should say where a webhook's secret is: 'file:/path' or 'env:NAME', and never the secret itself"
        )
    return Target(
        name,
        kinds_of(value.get("on", [kind.value for kind in NoticeKind]), source, f"{key}.on"),
        webhook=webhook_of(value, source, f"{key}.webhook") if "webhook" in value else "",
        command=tuple(words_of(value["command"], source, f"{key}.command")) if "command" in value else (),
        mail=address_of(value["mail"], source, f"{key}.mail") if "mail" in value else "",
        secret=secret,
        tenants=tenants_of(value.get("tenants", []), source, f"{key}.tenants"),
    )


def kinds_of(value: Any, source: str, key: str) -> frozenset[NoticeKind]:
    known = [kind.value for kind in NoticeKind]
    words = words_of(value, source, key)
    for word in words:
        if word not in known:
            raise wrong(source, key, f"has {word!r}{nearest(word, known)}; there are {', '.join(known)}")
    return frozenset(NoticeKind(word) for word in words)


def webhook_of(value: Mapping[str, Any], source: str, key: str) -> str:
    """By TLS, unless it stays on this machine or the file says otherwise: what is told is nobody else's business."""
    text = value["webhook"]
    url = url_of(text) if isinstance(text, str) else None
    if url is None:
        raise wrong(source, key, f"should be a URL, as in 'https://hooks.example.org/stager'{ESCAPED}")
    if url.username is not None or url.password is not None:
        raise wrong(source, key, "should hold no user and no password; sign what is sent with `secret`")
    if url.scheme == "http" and not is_loopback(url.hostname or "") and value.get("allow_http") is not True:
        raise wrong(source, key, "would be told in plain text; write https://, or allow_http = true")
    return str(text)


def url_of(text: str) -> SplitResult | None:
    """None: it is none that can be called."""
    try:
        url = urlsplit(text)
        good = url.scheme in ("http", "https") and url.hostname and url.port != 0 and not re.search(r"[\s\x00-\x20\x7f]", text)
    except ValueError:
        return None
    return url if good and (url.path + url.query).isascii() else None


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_of(value: Any, source: str, key: str) -> str:
    if not isinstance(value, str) or not ADDRESS.fullmatch(value):
        raise wrong(source, key, "should be one address, as in 'me@example.org', or a user of this machine")
    return value


def tenants_of(value: Any, source: str, key: str) -> tuple[str, ...]:
    names = words_of(value, source, key) if value != [] else []
    for name in names:
        if not TENANT_NAME.fullmatch(name):
            raise wrong(source, key, f"{name!r} is no name of a tenant")
    return tuple(names)


def words_of(value: Any, source: str, key: str) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(word, str) and word and "\0" not in word for word in value):
        raise wrong(source, key, "should be a list of texts, as in ['/usr/local/bin/tell', '--quiet']")
    return list(value)


def check_keys(value: Mapping[str, Any], known: tuple[str, ...], source: str, key: str) -> None:
    for name in value:
        if name not in known:
            raise wrong(source, f"{key}.{name}".lstrip("."), f"is unknown{nearest(name, known)}; there are {', '.join(known)}")


def wrong(source: str, key: str, text: str) -> InvalidInput:
    return InvalidInput(f"{source}: {key} {text}", code="notify_invalid", subject=key)
