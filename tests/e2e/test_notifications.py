"""Notifications of real schedulers to a real web server, while they are killed."""

from __future__ import annotations

import email
import email.policy
import hashlib
import hmac
import json
import os
import shutil
import signal
import socketserver
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from stager.adapters.journal_sqlite import SqliteJournal
from stager.adapters.notice_ways import HTTP_S, Undelivered, post
from stager.runtime.deciding import deciding_digest
from stager.service.notices import NoticeFold
from stager.service.notifying import CLOSE_S
from tests.e2e.serve_rig import Service, small
from tests.e2e.test_corruption import gated, replicas, rot
from tests.testbed.processes import free_port
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until
from tests.testbed.web import Web

SECRET = "hunter2-not-to-be-seen"
WORKFLOW = """stager: 1
name: w
origins:
  o: file:data
jobs:
  a: {foreach: {n: ['1', '2', '3']}, run: 'sleep 0.3; echo {n} > {n}.txt', outputs: {'{n}.txt': 'o:{n}.txt'}}
"""


class Hook:
    """A receiver. `answer`: the status of each answer; `before`: called in place of the first one; `held`: all are, until it is set."""

    def __init__(self, port: int) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answer = 204
        self.before: Callable[[], None] | None = None
        self.held: threading.Event | None = None
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.got.append((dict(self.headers), body))
                if hook.held is not None:
                    hook.held.wait(60)
                before, hook.before = hook.before, None
                if before is not None:
                    before()
                    return
                self.send_response(hook.answer)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def told(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]

    def ids(self) -> list[str]:
        return [each["id"] for each in self.told()]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Bed:
    def __init__(self, place: Path) -> None:
        self.place, self.port, self.hooks = place, free_port(), list[Hook]()
        self.stager = Stager(place / "s", place / "home")
        (place / "data").mkdir()
        (place / "w.yml").write_text(WORKFLOW)
        (place / "secret").write_text(SECRET)
        self.stager.state_dir.mkdir(mode=0o700)
        self.box = self.stager.state_dir / "notices.sqlite"
        self.rules()

    def rules(self, first: str = "") -> None:
        file, place = self.stager.state_dir / "notify.toml", self.place
        file.write_text(
            f'{first}[targets.hook]\nwebhook = "http://127.0.0.1:{self.port}/in?token=url-token"\nsecret = "file:{place}/secret"\n'
            f'[targets.program]\ncommand = ["/bin/sh", "-c", "cat >>{place}/told; echo >>{place}/told"]\non = ["run_ended"]\n'
        )
        file.chmod(0o600)

    def hook(self) -> Hook:
        self.hooks.append(Hook(self.port))
        return self.hooks[-1]

    def kill(self) -> None:
        """The scheduler, at this instant."""
        pid = self.stager.scheduler_pid()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: self.stager.scheduler_pid() is None, "the scheduler to be gone")

    def owed(self) -> dict[str, int]:
        return {row["target"]: row["owed"] for row in self.stager.json("notify", "list")}

    def of_journal(self) -> list[str]:
        """The ids of all that the journal tells of, made by a program of its own."""
        with sqlite3.connect(self.box) as db:
            source = db.execute("SELECT value FROM meta WHERE key = 'source'").fetchone()[0]
        journal = SqliteJournal(self.stager.state_dir / "journal.sqlite", deciding_digest())
        fold = NoticeFold(source, 600.0)
        ids = [notice.id for batch in journal.batches() for notice in fold.saw(batch.number, batch.events, batch.commands)]
        journal.close()
        return ids


@pytest.fixture
def bed(short_dir: Path) -> Iterator[Bed]:
    made = Bed(short_dir)
    yield made
    made.stager.end()
    for hook in made.hooks:
        hook.close()


def test_all_is_told_once_and_signed_and_no_secret_is_anywhere(bed: Bed) -> None:
    hook = bed.hook()
    bed.stager.run("submit", bed.place / "w.yml")
    wait_until(lambda: len(hook.got) == 4 and (bed.place / "told").exists(), "all to be told")
    told = hook.told()
    assert [each["kind"] for each in told] == ["final_durable"] * 3 + ["run_ended"]
    assert {each["facts"]["file"] for each in told[:3]} == {"1.txt", "2.txt", "3.txt"}
    assert (told[3]["run"], told[3]["workflow"], told[3]["facts"]["outcome"]) == ("w-1", "w", "succeeded")
    for headers, body in hook.got:
        signed = hmac.new(SECRET.encode(), headers["Stager-Timestamp"].encode() + b"." + body, hashlib.sha256).hexdigest()
        assert headers["Stager-Signature"] == f"v1={signed}"
        assert headers["Stager-Notice"] == json.loads(body)["id"]
        assert abs(time.time() - int(headers["Stager-Timestamp"])) < 60
    assert json.loads((bed.place / "told").read_text())["id"] == told[3]["id"]
    wait_until(lambda: bed.owed() == {"hook": 0, "program": 0}, "nothing to be owed")
    assert sorted(hook.ids()) == sorted(bed.of_journal())
    for file in bed.stager.state_dir.rglob("*"):
        if file.is_file() and file.name != "notify.toml":
            assert not any(word in file.read_bytes() for word in (SECRET.encode(), b"url-token")), file


def test_a_webhook_that_is_down_holds_nothing_up_and_gets_all_of_it_later(bed: Bed) -> None:
    began = time.monotonic()
    bed.stager.run("submit", bed.place / "w.yml")
    assert "notifications owed to hook: 4 (127.0.0.1 does not answer: Connection refused)" in bed.stager.run("status").stdout
    assert bed.owed() == {"hook": 4, "program": 0}
    bed.stager.run("shutdown")
    wait_until(lambda: bed.stager.scheduler_pid() is None, "the scheduler to end")
    assert time.monotonic() - began < 60
    hook = bed.hook()
    hook.answer = 503
    bed.stager.run("runs")
    wait_until(lambda: len(hook.got) >= 2, "it to be tried again while it is busy")
    hook.answer = 200
    wait_until(lambda: bed.owed()["hook"] == 0, "all to be delivered")
    assert list(dict.fromkeys(hook.ids())) == bed.of_journal()
    assert len({body for _, body in hook.got}) == 4


def test_a_webhook_that_says_nothing_keeps_no_scheduler(bed: Bed) -> None:
    hook = bed.hook()
    hook.held = threading.Event()
    bed.stager.run("submit", bed.place / "w.yml")
    wait_until(lambda: hook.got, "it to be asked")
    began = time.monotonic()
    bed.stager.run("shutdown")
    wait_until(lambda: bed.stager.scheduler_pid() is None, "the scheduler to end")
    # It would be held for as long as four of them say nothing.
    assert time.monotonic() - began < 4 * HTTP_S - CLOSE_S
    hook.held.set()
    assert bed.owed()["hook"] == 4


def test_a_scheduler_that_is_killed_while_it_tells_tells_it_again_by_the_same_id(bed: Bed) -> None:
    hook = bed.hook()
    hook.before = bed.kill
    bed.stager.run("submit", "--detach", bed.place / "w.yml")
    wait_until(lambda: len(hook.got) == 1 and bed.stager.scheduler_pid() is None, "the kill")
    bed.stager.run("wait", "w-1")
    wait_until(lambda: bed.owed()["hook"] == 0, "all to be delivered")
    assert hook.ids()[0] == hook.ids()[1]
    assert list(dict.fromkeys(hook.ids())) == bed.of_journal()


def test_what_the_journal_holds_and_the_box_does_not_is_made_again(bed: Bed) -> None:
    """As a kill between the two leaves it: the box is set back to what it was before the run."""
    hook = bed.hook()
    bed.stager.run("runs")
    bed.kill()
    before = bed.place / "before"
    before.mkdir()
    for file in bed.stager.state_dir.glob("notices.sqlite*"):
        shutil.copy(file, before)
    bed.stager.run("submit", bed.place / "w.yml")
    wait_until(lambda: bed.owed()["hook"] == 0 and len(hook.got) == 4, "all to be told")
    bed.kill()
    for file in bed.stager.state_dir.glob("notices.sqlite*"):
        file.unlink()
    for file in before.iterdir():
        shutil.copy(file, bed.stager.state_dir)
    bed.stager.run("runs")
    wait_until(lambda: len(hook.got) == 8, "all to be told again")
    assert hook.ids()[:4] == hook.ids()[4:] == bed.of_journal()


def test_kills_at_any_time_lose_none(bed: Bed) -> None:
    hook = bed.hook()
    bed.stager.run("submit", "--detach", bed.place / "w.yml")
    for pause_s in (0.05, 0.3, 0.15, 0.5):
        time.sleep(pause_s)
        bed.kill()
        bed.stager.run("runs")
    bed.stager.run("wait", "w-1")
    wait_until(lambda: bed.owed() == {"hook": 0, "program": 0}, "all to be delivered")
    assert set(hook.ids()) == set(bed.of_journal())
    assert {each["kind"] for each in hook.told()} == {"final_durable", "run_ended"}


def test_a_target_can_be_tried_and_a_wrong_file_is_told_before_anything_starts(bed: Bed) -> None:
    assert "FAIL  hook: 127.0.0.1 does not answer" in bed.stager.run("notify", "test", "hook", code=None).stdout
    hook = bed.hook()
    assert "ok    hook: webhook" in bed.stager.run("notify", "test", "hook").stdout
    assert hook.told()[0]["kind"] == "test"
    file = bed.stager.state_dir / "notify.toml"
    file.write_text("[targets.x]\nmail = ['a']\n")
    assert "targets.x.mail should be one address" in bed.stager.run("submit", bed.place / "w.yml", code=None).stderr


def test_an_origin_that_is_away_is_told_once_and_names_what_it_is(bed: Bed, tmp_path: Path) -> None:
    """It goes while a fetch is under way, and comes back."""
    web = Web(tmp_path / "web", locations="location / { limit_rate 100k; }")
    web.data.joinpath("in.bin").write_bytes(bytes(1_000_000))
    bed.rules("away_after = '2 s'\n")
    hook = bed.hook()
    web.start()
    try:
        (bed.place / "a.yml").write_text(
            f"stager: 1\nname: a\norigins: {{web: {{url: 'http://127.0.0.1:{web.port}/', allow_http: true}}, o: 'file:data'}}\n"
            "jobs:\n  a: {run: 'wc -c in.bin > n.txt', inputs: ['web:in.bin'], outputs: {n.txt: 'o:n.txt'}}\n"
        )
        run = bed.stager.submit(bed.place / "a.yml")
        wait_until(lambda: bed.stager.json("status", run)["fetched_bytes"] or bed.stager.json("status", run)["transfers"], "the fetch")
        web.stop()
        wait_until(lambda: hook.got, "somebody to be told")
        (told,) = hook.told()
        assert (told["kind"], told["run"], told["facts"]["origin"]) == ("origin_away", run, "web")
        assert told["facts"]["away_s"] >= 2 and "origin web does not answer run a-1" in told["text"]
    finally:
        web.start()
    bed.stager.run("resume", run, code=None)
    bed.stager.run("wait", run)
    wait_until(lambda: len(hook.got) == 3, "the end to be told")
    assert [each["kind"] for each in hook.told()] == ["origin_away", "final_durable", "run_ended"]
    web.stop()


def test_a_service_tells_each_of_the_runs_that_are_for_them(short_dir: Path) -> None:
    """Its administrator names who is told; a workflow of a tenant cannot, where the file does not allow it."""
    data = short_dir / "data"
    service = Service(short_dir, f'[tenants.alice]\nnative_jobs = true\nfile_roots = ["{data}"]\n[tenants.bob]\n')
    file = service.stager.state_dir / "notify.toml"
    file.write_text("".join(f'[targets.{name}]\ncommand = ["/bin/sh", "-c", "cat >>{short_dir}/{name}"]\n' for name in ("all", "bob")))
    with file.open("a") as more:
        more.write('tenants = ["bob"]\n')
    file.chmod(0o600)
    try:
        alice = service.start().client(service.token("alice", "submit"))
        text = small(data)
        refused = alice.post("/runs", json={"workflow": f"{text}notify: [{{webhook: 'http://127.0.0.1:1/'}}]\n"})
        assert refused.status_code == 403 and "notify.toml does not allow that" in refused.text
        assert alice.post("/runs", json={"workflow": text}).status_code == 201
        wait_until(lambda: (short_dir / "all").exists() and "run_ended" in (short_dir / "all").read_text(), "the end to be told")
        assert '"tenant":"alice"' in (short_dir / "all").read_text()
        assert not (short_dir / "bob").exists()
    finally:
        service.end()


def test_damage_on_a_node_is_told(bed: Bed) -> None:
    bed.stager.env = {"STAGER_SCRUB_RATE": "1 GB", "STAGER_SCRUB_EVERY": "0 s"}
    content = os.urandom(300_000)
    (bed.place / "data" / "in.bin").write_bytes(content)
    hook = bed.hook()
    run = bed.stager.submit(gated(bed.place, f"file:{bed.place / 'data'}"))
    wait_until(lambda: bed.stager.json("status", run)["jobs"].get("done"), "the first job to end")
    (replica,) = replicas(bed.stager, content * 2)
    rot(replica)
    wait_until(lambda: hook.got, "the damage to be told")
    told = hook.told()[0]
    assert (told["kind"], told["facts"]["file"], told["run"], told["tenant"]) == ("damage_found", "mid.bin", "", "")
    (bed.place / "go").touch()
    bed.stager.run("wait", run)


def test_a_workflow_has_its_own_people_told_where_the_administrator_allows_it(bed: Bed) -> None:
    """By the way of the administrator's targets: signed, once, whatever is killed. Nothing begins where it is not allowed."""
    named = f'notify: [{{webhook: "http://127.0.0.1:{bed.port}/of-a-run?token=url-token", secret: lab, on: [run_ended]}}]\n'
    (bed.place / "named.yml").write_text(WORKFLOW.replace("origins:", named + "origins:"))
    refused = bed.stager.run("submit", bed.place / "named.yml", code=7).stderr
    assert "notify.toml does not allow that" in refused and "url-token" not in refused
    file = bed.stager.state_dir / "notify.toml"
    secrets = f"[secrets]\nlab = 'file:{bed.place}/secret'\n"
    file.write_text(f"[workflows]\nallow = ['webhook']\n{secrets}")
    assert "plain text" in bed.stager.run("submit", bed.place / "named.yml", code=7).stderr
    file.write_text(f"[workflows]\nallow = ['webhook']\nhosts = ['127.0.0.1']\n{secrets}")
    hook = bed.hook()
    hook.before = bed.kill
    bed.stager.run("submit", "--detach", bed.place / "named.yml")
    wait_until(lambda: hook.got and bed.stager.scheduler_pid() is None, "the kill while it is told")
    bed.stager.run("runs")
    wait_until(lambda: len(hook.got) == 2 and bed.owed() == {}, "it to be told again")
    assert len(set(hook.ids())) == 1 and hook.told()[0]["kind"] == "run_ended" and hook.told()[0]["workflow"] == "w"
    headers, body = hook.got[1]
    signed = hmac.new(SECRET.encode(), headers["Stager-Timestamp"].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["Stager-Signature"] == f"v1={signed}"


class MailServer(socketserver.ThreadingTCPServer):
    """Takes mail, and keeps it as it came."""

    allow_reuse_address = daemon_threads = True

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes]] = []
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                to = ""
                self.wfile.write(b"220 here\r\n")
                for line in self.rfile:
                    word = line[:4].upper()
                    if word == b"RCPT":
                        to = line.decode().partition("<")[2].partition(">")[0]
                    if word == b"DATA":
                        self.wfile.write(b"354 go on\r\n")
                        server.got.append((to, b"".join(iter(self.rfile.readline, b".\r\n"))))
                    self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
                    if word == b"QUIT":
                        return

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.mark.skipif(shutil.which("msmtp") is None, reason="msmtp is not here (apt-get install msmtp)")
def test_mail_goes_out_by_a_real_sendmail(bed: Bed) -> None:
    """To the address of the administrator's file, and to one that a workflow names."""
    server, home, file = MailServer(), bed.stager.home, bed.stager.state_dir / "notify.toml"
    home.mkdir(exist_ok=True)
    (home / ".msmtprc").write_text(f"account default\nhost 127.0.0.1\nport {server.server_address[1]}\nfrom stager@localhost\n")
    (home / ".msmtprc").chmod(0o600)
    file.write_text(f'sendmail = "{shutil.which("msmtp")}"\n[targets.me]\nmail = "me@example.org"\n[workflows]\nallow = ["mail"]\n')
    (bed.place / "named.yml").write_text(WORKFLOW.replace("origins:", "notify: [{mail: you@example.org, on: run_ended}]\norigins:"))
    try:
        assert bed.stager.run("notify", "test").stdout == "ok    me: mail\n"
        bed.stager.run("submit", bed.place / "named.yml")
        wait_until(lambda: len(server.got) == 6, "all mails")
    finally:
        server.shutdown()
        server.server_close()
    mails = [(to, email.message_from_bytes(text, policy=email.policy.default)) for to, text in server.got]
    subjects = [(to, str(mail["Subject"])) for to, mail in mails]
    assert subjects[0] == ("me@example.org", "stager: a test of stager's notifications")
    assert sorted(to for to, subject in subjects if subject == "stager: run w-1 has ended: succeeded") == [
        "me@example.org",
        "you@example.org",
    ]
    ended = next(mail for to, mail in mails if to == "you@example.org")
    words = [line.partition(": ")[0] for line in ended.get_content().splitlines() if ": " in line]
    assert ended["Stager-Notice"] and "outcome: succeeded" in ended.get_content()
    assert "facts" not in words and len(set(words)) == len(words), "each fact stands there once"


def test_a_webhook_is_called_at_each_address_of_its_host_until_one_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that a host of the public internet has may not be reached from here, as those of IPv6 where there is none."""
    web = Web(tmp_path / "web", locations="location /in { return 204; }")
    web.start()
    try:
        monkeypatch.setenv("SSL_CERT_FILE", str(web.ca_file))
        post(f"{web.tls_url}/in", "n", b"{}", b"", ("127.0.0.77", web.where.address))
        with pytest.raises(Undelivered, match="localhost does not answer: Connection refused"):
            post(f"{web.tls_url}/in", "n", b"{}", b"", ("127.0.0.77", "127.0.0.78"))
    finally:
        web.stop()
