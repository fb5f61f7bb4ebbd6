"""Whom a workflow may have told of its runs: what its file may say, what the administrator's allows, and where a webhook may be."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stager.adapters import notice_ways
from stager.adapters.notice_ways import Undelivered, Ways
from stager.model.errors import Denied, InvalidInput
from stager.model.notices import OF_RUNS, NotifyRules, Target
from stager.model.workflow import RunTarget, Workflow
from stager.readers.lines import WorkflowInvalid
from stager.readers.notify import parse_notify
from stager.readers.sniff import read_workflow
from stager.service.run_targets import check_allowed, name_of, require_allowed, shown, target_of

HOOK = RunTarget(webhook="https://hooks.example.org/in?token=hush", secret="lab", on=("budget",))
MAIL = RunTarget(mail="me@example.org", on=OF_RUNS)


def rules(**workflows: Any) -> NotifyRules:
    return parse_notify({"workflows": workflows, "secrets": {"lab": "env:LAB"}}, "notify.toml")


def read(place: Path, notify: str) -> Workflow:
    (place / "w.yml").write_text(f"stager: 1\nnotify:\n{notify}\njobs: {{a: {{run: 'true'}}}}\n")
    return read_workflow(place / "w.yml", access=None)


def test_a_workflow_names_webhooks_and_addresses_and_nothing_else(tmp_path: Path) -> None:
    found = read(tmp_path, "  - {mail: me@example.org}\n  - {webhook: 'https://hooks.example.org/in?token=hush', on: budget, secret: lab}")
    assert found.notify == (MAIL, HOOK)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("{command: [/bin/sh]}", "unknown key"),
        ("{}", "exactly one of webhook and mail"),
        ("{mail: me@example.org, webhook: 'https://x.org/'}", "exactly one of webhook and mail"),
        ("{mail: root}", "no address"),
        ("{mail: '-oQ/tmp@x.org'}", "no address"),
        ('{mail: "a\\ab@x.org"}', "no address"),
        ("{webhook: 'ftp://x.org/'}", "a webhook is a URL"),
        ("{webhook: 'https://[x/'}", "a webhook is a URL"),
        ("{webhook: 'https://x.org:70000/'}", "a webhook is a URL"),
        ("{webhook: 'https://x.org/\u00fc'}", "beyond ASCII in its path as %C3%BC"),
        ("{webhook: 'https://me:hunter2@x.org/'}", "no user and no password"),
        ("{webhook: 'https://x.org/', secret: 'file:/etc/key'}", "a secret is never in a workflow"),
        ("{mail: me@x.org, secret: lab}", "a secret signs what a webhook gets"),
        ("{mail: me@x.org, on: [run_endet]}", "did you mean 'run_ended'"),
        ("{mail: me@x.org, on: damage_found}", "nothing that a run is told of"),
    ],
)
def test_what_is_wrong_with_a_target_is_said_and_no_secret_is(tmp_path: Path, target: str, said: str) -> None:
    with pytest.raises(WorkflowInvalid) as caught:
        read(tmp_path, f"  - {target}")
    assert said in caught.value.message and "hunter2" not in caught.value.message


def test_nothing_is_told_that_the_administrator_does_not_allow(tmp_path: Path) -> None:
    workflow = Workflow("w", {}, {}, notify=(MAIL,))
    with pytest.raises(Denied, match="notify.toml does not allow that"):
        require_allowed(workflow, tmp_path / "notify.toml")
    (tmp_path / "notify.toml").write_text("[workflows]\nallow = ['mail']\n")
    (tmp_path / "notify.toml").chmod(0o600)
    require_allowed(workflow, tmp_path / "notify.toml")
    with pytest.raises(Denied, match="names a webhook"):
        require_allowed(replace(workflow, notify=(HOOK,)), tmp_path / "notify.toml")
    require_allowed(replace(workflow, notify=()), tmp_path / "no-such-file")
    with pytest.raises(InvalidInput, match="no secret 'other'"):
        check_allowed(RunTarget(webhook="https://1.1.1.1/", secret="other"), rules(allow=["webhook"]))
    # What was allowed at the submit may not be any more.
    for late in (rules(allow=["mail"]), replace(rules(allow=["webhook"]), workflows=None)):
        with pytest.raises(Denied, match="any more"):
            target_of(name_of(HOOK), late)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.7", "169.254.169.254", "[::1]", "0x7f.1", "[::ffff:10.0.0.1]"])
def test_a_webhook_of_a_workflow_is_of_the_public_internet_unless_its_host_is_listed(host: str) -> None:
    target = RunTarget(webhook=f"https://{host}/hook", on=("budget",))
    with pytest.raises(Denied):
        check_allowed(target, rules(allow=["webhook"]))
    with pytest.raises(Undelivered, match="not of the public internet"):
        found, public_only = target_of(name_of(target), rules(allow=["webhook"]))
        Ways({}, "/bin/false").deliver(found, "n", b"{}", public_only=public_only)
    listed = rules(allow=["webhook"], hosts=[host.strip("[]")])
    check_allowed(replace_scheme(target), listed)
    assert target_of(name_of(target), listed)[1] is False
    with pytest.raises(Denied, match="plain text"):
        check_allowed(replace_scheme(target), rules(allow=["webhook"]))


def replace_scheme(target: RunTarget) -> RunTarget:
    return RunTarget(webhook=target.webhook.replace("https://", "http://"), on=target.on)


def test_a_name_that_means_another_address_by_now_is_not_called_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its host is looked up once, judged, and called by that address."""
    answers = iter([["1.1.1.1"], ["127.0.0.1"]])
    called: list[Any] = []
    monkeypatch.setattr(notice_ways, "look_up", lambda host: next(answers))

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        called.append(address)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", connect)
    target = Target("t", frozenset(), webhook="https://hooks.example.org/in")
    with pytest.raises(Undelivered, match=r"hooks\.example\.org does not answer"):
        Ways({}, "/bin/false").deliver(target, "n", b"{}", public_only=True)
    assert called == [("1.1.1.1", 443)]
    with pytest.raises(Undelivered, match="not of the public internet"):
        Ways({}, "/bin/false").deliver(target, "n", b"{}", public_only=True)
    assert called == [("1.1.1.1", 443)]


def test_an_address_of_ipv6_is_called_at_the_port_of_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the address is taken for a port."""
    called: list[Any] = []

    def connect(address: tuple[str, int], *_: Any) -> socket.socket:
        called.append(address)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", connect)
    for public_only in (True, False):
        with pytest.raises(Undelivered, match="2606:4700::1111 does not answer"):
            target = Target("t", frozenset(), webhook="https://[2606:4700::1111]/in")
            Ways({}, "/bin/false").deliver(target, "n", b"{}", public_only=public_only)
    assert called == [("2606:4700::1111", 443)] * 2


def test_people_see_of_a_url_its_host_only() -> None:
    assert shown(name_of(HOOK)) == "hooks.example.org (of a workflow)" and shown("ops") == "ops"
    found, public_only = target_of(name_of(HOOK), rules(allow=["webhook"]))
    assert (found.webhook, found.secret, public_only) == (HOOK.webhook, "env:LAB", True)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"workflows": {"allow": ["command"]}}, "never a command"),
        ({"workflows": {}}, "workflows.allow should be a list"),
        ({"workflows": {"allow": ["mail"], "host": ["x"]}}, "did you mean 'hosts'"),
        ({"secrets": {"lab": "hunter2"}}, "never the secret itself"),
        ({"workflows": True}, "should be a table"),
    ],
)
def test_what_is_wrong_with_the_rules_is_said(document: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_notify(document, "notify.toml")
    assert said in caught.value.message and "hunter2" not in caught.value.message
