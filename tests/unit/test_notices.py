"""Notices of journals, the file that says who is told, and the ways to tell: ids, secrets, hostile names."""

from __future__ import annotations

import email
import json
from pathlib import Path
from typing import Any

import pytest

from stager.adapters.notice_box import NoticeBox, owed_in
from stager.adapters.notice_ways import Undelivered, Ways, mail_of, secret_of, signature
from stager.model.errors import Denied, ErrorClass, Fault, InvalidInput
from stager.model.notices import Notice, NoticeKind, Target
from stager.readers.notify import parse_notify, read_notify
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.service.notices import NoticeFold, body_of
from stager.sim.simulate import simulate
from tests.sim.cases import KINDS, world_of

AWAY = Fault(ErrorClass.TRANSIENT, "origin_unreachable", "no route to lab")


def journal_of(kind: str, seed: int) -> list[tuple[int, Any, Any]]:
    world = world_of(KINDS[kind](seed))
    simulate(world)
    return [(number, events, commands) for number, (events, commands) in enumerate(world.journal, 1)]


@pytest.mark.parametrize(("kind", "seed"), [("runs", 3), ("faults", 17), ("interrupts", 6)])
def test_a_journal_that_is_read_in_two_parts_makes_the_same_notices(kind: str, seed: int) -> None:
    """The second part by a scheduler that found what the first one kept."""
    batches = journal_of(kind, seed)
    whole = NoticeFold("s", 5.0)
    made = [notice for batch in batches for notice in whole.saw(*batch)]
    assert len({notice.id for notice in made}) == len(made)
    finishes = sum(type(command) is cmd.FinishRun for _, _, commands in batches for command in commands)
    assert sum(notice.kind is NoticeKind.RUN_ENDED for notice in made) == finishes > 0
    for cut in range(0, len(batches), max(1, len(batches) // 7)):
        first, second = NoticeFold("s", 5.0), NoticeFold("s", 5.0)
        parts = [notice for batch in batches[:cut] for notice in first.saw(*batch)]
        second.take_up(first.to_keep())
        assert [body_of(each) for each in parts + [notice for batch in batches[cut:] for notice in second.saw(*batch)]] == [
            body_of(each) for each in made
        ]


def fetch(transfer: str, at: float) -> cmd.Fetch:
    return cmd.Fetch(
        id=f"c{transfer}",
        at=at,
        cause="",
        node="n",
        transfer=transfer,
        file="f",
        lfn="in",
        run="w-1",
        origin="lab",
        path="in",
        size_bytes=1,
        token="",
        purpose=cmd.Purpose.DEMAND,
        priority=0,
    )


def failed(transfer: str, at: float) -> ev.TransferFailed:
    return ev.TransferFailed(at=at, node="n", transfer=transfer, fault=AWAY)


def done(transfer: str, at: float) -> ev.TransferDone:
    return ev.TransferDone(at=at, node="n", transfer=transfer, size_bytes=1, blake3="b")


def test_an_origin_that_is_away_for_long_is_told_once_until_it_was_back() -> None:
    fold = NoticeFold("s", 600.0)
    told = []
    for number, (events, commands) in enumerate(
        [
            ([ev.Woken(at=1.0)], [fetch("t1", 1.0)]),
            ([failed("t1", 100.0)], [fetch("t2", 100.0)]),
            ([failed("t2", 650.0)], [fetch("t3", 650.0)]),
            ([failed("t3", 701.0)], [fetch("t4", 701.0)]),
            ([failed("t4", 2000.0)], [fetch("t5", 2000.0)]),
            ([done("t5", 2100.0)], [fetch("t6", 2100.0)]),
            ([failed("t6", 2200.0)], []),
            ([ev.Woken(at=2799.0)], []),
            ([ev.Woken(at=2800.0)], []),
        ],
        1,
    ):
        told += [(number, notice.kind, notice.at) for notice in fold.saw(number, events, commands)]
    assert told == [(4, "origin_away", 701.0), (9, "origin_away", 2800.0)]


RULES = """
away_after = "90 s"
[targets.ops]
webhook = "https://hooks.example.org/x?team=1"
secret = "file:/etc/stager/hook"
on = ["run_ended"]
tenants = ["alice"]
[targets.me]
mail = "me@example.org"
[targets.page]
command = ["/usr/local/bin/page", "now"]
"""


def test_the_file_says_who_is_told(tmp_path: Path) -> None:
    file = tmp_path / "notify.toml"
    assert read_notify(file) is None
    file.write_text(RULES)
    file.chmod(0o600)
    rules = read_notify(file)
    assert rules is not None
    ops, me, page = rules.targets
    assert (rules.away_after_s, rules.sendmail) == (90.0, "/usr/sbin/sendmail")
    assert (ops.way, me.way, page.way, page.command) == ("webhook", "mail", "command", ("/usr/local/bin/page", "now"))
    ended = Notice("i", NoticeKind.RUN_ENDED, 0.0, "t", "w-1", "w", "alice")
    assert [ops.wants(ended), ops.wants(Notice("i", NoticeKind.RUN_ENDED, 0.0, "t", "w-2", "w", "bob"))] == [True, False]
    assert not ops.wants(Notice("i", NoticeKind.FINAL_DURABLE, 0.0, "t", "w-1", "w", "alice"))
    assert me.kinds == frozenset(NoticeKind)
    file.chmod(0o644)
    with pytest.raises(Denied, match="open to other users"):
        read_notify(file)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({}, "exactly one of"),
        ({"webhook": "https://a/", "mail": "me"}, "exactly one of"),
        ({"webhook": "http://hooks.example.org/"}, "in plain text"),
        ({"webhook": "ftp://hooks.example.org/"}, "should be a URL"),
        ({"webhook": "https://u:p@hooks.example.org/"}, "no password"),
        ({"webhook": "https://a/\r\nX: y"}, "should be a URL"),
        ({"webhook": "https://[a/"}, "should be a URL"),
        ({"webhook": "https://a:70000/"}, "should be a URL"),
        ({"webhook": "https://a/\u00fc"}, "beyond ASCII in its path as %C3%BC"),
        ({"webhook": "https://a/", "secret": "hunter2"}, "never the secret itself"),
        ({"command": "rm -rf /"}, "a list of texts"),
        ({"mail": "-oQ/tmp/x"}, "one address"),
        ({"mail": "a@b, c@d"}, "one address"),
        ({"mail": "a\0b@c"}, "one address"),
        ({"mail": "me", "on": ["run_end"]}, "did you mean"),
        ({"mail": "me", "onn": []}, "is unknown"),
    ],
)
def test_what_is_wrong_with_the_file_is_said_and_no_secret_is(target: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_notify({"targets": {"t": target}}, "notify.toml")
    assert said in caught.value.message
    assert "hunter2" not in caught.value.message
    parse_notify({"targets": {"t": {"webhook": "http://127.0.0.1:1/"}}}, "x")
    parse_notify({"targets": {"t": {"webhook": "http://hooks.example.org/", "allow_http": True}}}, "x")


def test_a_signature_can_be_made_again_by_the_receiver() -> None:
    """As docs/operating/notifications.md says, with `openssl dgst -sha256 -hmac`."""
    assert signature(b"key", "1700000000", b'{"a":1}') == "v1=a438e398bfafc57e4396bb7fc2304422f0f768e965d073ca313cb52e22e6ad03"


def test_a_secret_is_read_where_it_is_and_never_told(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hunter2\n")
    assert secret_of(f"file:{tmp_path}/key", {}) == secret_of("env:KEY", {"KEY": "hunter2"}) == b"hunter2"
    assert secret_of("", {}) == b""
    for reference in ("env:NONE", f"file:{tmp_path}/none"):
        with pytest.raises(Undelivered):
            secret_of(reference, {})


HOSTILE = "x\r\nBcc: evil@example.org\r\n\r\nbody; $(touch /tmp/x) `id` 'q' \"d\" \u202e\x00"


def hostile_body() -> bytes:
    return body_of(Notice("s-1-2-e0", NoticeKind.RUN_ENDED, 0.0, HOSTILE, HOSTILE, HOSTILE, "", {"file": HOSTILE}))


def test_no_name_becomes_a_header_of_a_mail() -> None:
    message = email.message_from_bytes(mail_of("me@example.org", "s-1-2-e0", hostile_body()))
    assert sorted(message.keys()) == sorted(
        ["To", "Subject", "Stager-Notice", "Auto-Submitted", "Content-Type", "Content-Transfer-Encoding", "MIME-Version"]
    )
    assert message["Bcc"] is None


def test_a_command_gets_facts_as_environment_and_json_and_no_shell(tmp_path: Path) -> None:
    program = tmp_path / "tell"
    program.write_text('#!/bin/sh\ncat >"$1.json"\nprintf %s "$STAGER_TEXT" >"$1.text"\nenv | grep -c HUNTER >"$1.secret"\nexit 0\n')
    program.chmod(0o755)
    target = Target("t", frozenset(NoticeKind), command=(str(program), str(tmp_path / "out; touch evil")))
    Ways({"PATH": "/usr/bin:/bin", "HUNTER": "2"}, "").deliver(target, "i", hostile_body())
    assert json.loads((tmp_path / "out; touch evil.json").read_bytes())["facts"]["file"] == HOSTILE
    assert (tmp_path / "out; touch evil.text").read_bytes().decode() == HOSTILE.replace("\0", "")
    assert (tmp_path / "out; touch evil.secret").read_text().strip() == "0"
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(("script", "refused", "said"), [("echo no >&2; exit 1", True, "ended with 1: no"), ("exit 75", False, "75")])
def test_a_command_that_fails_is_told(tmp_path: Path, script: str, refused: bool, said: str) -> None:
    with pytest.raises(Undelivered, match=said) as caught:
        Ways({"PATH": "/usr/bin:/bin"}, "").deliver(Target("t", frozenset(), command=("/bin/sh", "-c", script)), "i", hostile_body())
    assert caught.value.refused is refused


def test_a_box_keeps_what_is_owed_once_and_in_order(tmp_path: Path) -> None:
    place = tmp_path / "notices.sqlite"
    box = NoticeBox(place)
    assert box.place() is None
    box.add([("1", "a", 1.0, b"one"), ("1", "b", 1.0, b"one"), ("2", "a", 2.0, b"two")], 7, b"kept")
    box.add([("2", "a", 2.0, b"again")], 8, b"more")
    source = box.source
    box.close()
    assert box.first("a") is None
    box = NoticeBox(place)
    assert (box.source, box.place()) == (source, (8, b"more"))
    first = box.first("a")
    assert first is not None and first.body == b"one"
    box.failed(first, "away", given_up=False)
    assert [(each.id, each.target, each.tries, each.problem) for each in owed_in(place)] == [
        ("1", "a", 1, "away"),
        ("1", "b", 0, ""),
        ("2", "a", 0, ""),
    ]
    box.delivered(first)
    second = box.first("a")
    assert second is not None and second.body == b"two"
    box.failed(second, "no", given_up=True)
    assert box.first("a") is None
    assert box.keep_only(["a"]) == 1
    box.leave_off()
    assert box.place() is None
    box.close()
    assert place.stat().st_mode & 0o077 == 0
